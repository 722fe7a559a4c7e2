"""``make bench``: every table, one after the other; JSON and a picture of each in ``benchmarks/results``.

``python -m benchmarks record_codec consume`` runs only these. A table compares in one run, taking turns, and its ratios
are what counts: absolute times are this machine's, at this moment.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Callable
from importlib import import_module, metadata
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from triokafka import kernels

RESULTS = Path(__file__).parent / "results"
PEERS = ("kafka-python", "aiokafka", "confluent-kafka", "crc32c", "trio")

Bar = Callable[[Any], tuple[str, float]]
TABLES: Final[dict[str, tuple[str, Bar] | None]] = {
    "record_codec": (
        "million records a second",
        lambda row: (f"{row.operation}, {row.batches} batches", row.records_per_second / 1e6),
    ),
    "protocol_codec": (
        "our time over kafka-python's (below 1 is faster)",
        lambda row: (f"{row.message} {row.operation}", row.ratio),
    ),
    "import_time": ("times `import trio`", lambda row: (row.program, row.ratio)),
    "produce": None,
    "consume": ("CPU seconds a million records", lambda row: (row.client, row.cpu_seconds_per_million)),
}
"""For each table, what its picture shows: the axis, and label and value of a row; None where the table's module has
functions ``as_document`` and ``draw`` of its own."""


def save(name: str, module: ModuleType, found: Any) -> None:
    """Write what was found with what it was measured on, and draw it."""
    RESULTS.mkdir(exist_ok=True)
    picture = TABLES[name]
    document = {
        "table": name,
        "kernels": kernels.implementation(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "versions": {peer: metadata.version(peer) for peer in PEERS},
        **({"rows": [row._asdict() for row in found]} if picture else module.as_document(found)),
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=1, default=str) + "\n")

    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    if picture:
        axis_label, bar = picture
        labels, values = zip(*map(bar, reversed(found)), strict=True)
        figure, axis = pyplot.subplots(figsize=(9, 1 + 0.25 * len(found)))
        axis.barh(labels, values)
        axis.set_xlabel(axis_label)
    else:
        figure = module.draw(found)
    figure.tight_layout()
    figure.savefig(RESULTS / f"{name}.png", dpi=100)
    pyplot.close(figure)


def main() -> int:
    """Run the tables that are asked for, all by default; 1 when a measurement failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"one of {', '.join(TABLES)}; all when left out")
    chosen = parser.parse_args().tables or list(TABLES)
    unknown = [name for name in chosen if name not in TABLES]
    if unknown:
        parser.error(f"there is no table {unknown[0]!r}: choose from {', '.join(TABLES)}")
    status = 0
    for name in chosen:
        module = import_module(f"benchmarks.{name}")
        print(f"== {name}", flush=True)
        found = module.run()
        module.show(found)
        save(name, module, found)
        if getattr(found, "failures", None):
            status = 1
        print(flush=True)
    print(f"JSON and pictures are in {RESULTS}")
    return status


if __name__ == "__main__":
    sys.exit(main())
