"""``make bench``: every table, one after the other; JSON and a picture of each in ``benchmarks/results``.

``python -m benchmarks record_codec consume`` runs only these. A table compares in one run, taking turns, and its ratios
are what counts: absolute times are this machine's, at this moment.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Callable
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, Final

from triokafka import kernels

RESULTS = Path(__file__).parent / "results"
PEERS = ("kafka-python", "aiokafka", "confluent-kafka", "crc32c", "trio")

Bar = Callable[[Any], tuple[str, float]]
TABLES: Final[dict[str, tuple[str, Bar]]] = {
    "record_codec": (
        "million records a second",
        lambda row: (f"{row.operation}, {row.batches} batches", row.records_per_second / 1e6),
    ),
    "protocol_codec": (
        "our time over kafka-python's (below 1 is faster)",
        lambda row: (f"{row.message} {row.operation}", row.ratio),
    ),
    "import_time": ("times `import trio`", lambda row: (row.program, row.ratio)),
    "produce": ("CPU seconds a million records", lambda row: (row.client, row.cpu_seconds_per_million)),
    "consume": ("CPU seconds a million records", lambda row: (row.client, row.cpu_seconds_per_million)),
}
"""For each table, what its picture shows: the axis, and label and value of a row."""


def save(name: str, rows: list[Any]) -> None:
    """Write the rows with what they were measured on, and draw them."""
    RESULTS.mkdir(exist_ok=True)
    document = {
        "table": name,
        "kernels": kernels.implementation(),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "versions": {peer: metadata.version(peer) for peer in PEERS},
        "rows": [row._asdict() for row in rows],
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=1, default=str) + "\n")

    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    axis_label, bar = TABLES[name]
    labels, values = zip(*map(bar, reversed(rows)), strict=True)
    figure, axis = pyplot.subplots(figsize=(9, 1 + 0.25 * len(rows)))
    axis.barh(labels, values)
    axis.set_xlabel(axis_label)
    figure.tight_layout()
    figure.savefig(RESULTS / f"{name}.png", dpi=100)
    pyplot.close(figure)


def main() -> None:
    """Run the tables that are asked for, all by default."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"one of {', '.join(TABLES)}; all when left out")
    chosen = parser.parse_args().tables or list(TABLES)
    unknown = [name for name in chosen if name not in TABLES]
    if unknown:
        parser.error(f"there is no table {unknown[0]!r}: choose from {', '.join(TABLES)}")
    for name in chosen:
        module = import_module(f"benchmarks.{name}")
        print(f"== {name}", flush=True)
        rows = module.run()
        module.show(rows)
        save(name, rows)
        print(flush=True)
    print(f"JSON and pictures are in {RESULTS}")


if __name__ == "__main__":
    main()
