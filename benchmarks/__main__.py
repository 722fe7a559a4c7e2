"""``make bench``: every table, one after the other; JSON and a picture of each in ``benchmarks/results``.

``python -m benchmarks record_codec consume`` runs only these. A table compares in one run, taking turns, and its ratios
are what counts: absolute times are this machine's, at this moment.

``python -m benchmarks --save-numbers`` measures what README.md and the pages quote, in a quarter of an hour, and writes
it to ``docs/numbers`` and into the pages (`benchmarks.numbers`).
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import Final

from benchmarks.report import RESULTS, Bar, bars, save

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
    "tls": None,
    "broker": None,
    "broker_codecs": None,
    "cluster": None,
    "topics": None,
    "groups": None,
    "assignors": None,
    "rebalance": None,
    "spark": None,
    "blocking": ("times kafka-python (processor time)", lambda row: (row.scenario, row.cpu_ratio)),
    "asyncio": ("times aiokafka (CPU, or latency)", lambda row: (f"{row.scenario}, {row.loop}", row.ratio)),
    "mirror": ("records per CPU second over MirrorMaker 2's", lambda row: (row.tool, row.ratio)),
    "consume": ("CPU seconds a million records", lambda row: (row.client, row.cpu_seconds_per_million)),
}
"""For each table, what its picture shows: the axis, and label and value of a row; None where the table's module has
functions ``as_document`` and ``draw`` of its own."""


def main() -> int:
    """Run the tables that are asked for, all by default; 1 when a measurement failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help=f"one of {', '.join(TABLES)}; all when left out")
    parser.add_argument(
        "--save-numbers", action="store_true", help="measure what the documentation quotes, and write it there"
    )
    parser.add_argument("--rounds", type=int, help="with --save-numbers: other than each table's own number")
    given = parser.parse_args()
    if given.save_numbers:
        from benchmarks import numbers

        unknown = [name for name in given.tables if name not in numbers.SOURCES]
        if unknown:
            parser.error(f"the documentation quotes no table {unknown[0]!r}: choose from {', '.join(numbers.SOURCES)}")
        return numbers.main(given.tables, given.rounds)
    chosen = given.tables or list(TABLES)
    unknown = [name for name in chosen if name not in TABLES]
    if unknown:
        parser.error(f"there is no table {unknown[0]!r}: choose from {', '.join(TABLES)}")
    status = 0
    for name in chosen:
        module = import_module(f"benchmarks.{name}")
        print(f"== {name}", flush=True)
        found = module.run()
        module.show(found)
        picture = TABLES[name]
        if picture:
            save(name, {"rows": [row._asdict() for row in found]}, bars(*picture, found))
        else:
            save(name, module.as_document(found), module.draw(found))
        if getattr(found, "failures", None):
            status = 1
        print(flush=True)
    print(f"JSON and pictures are in {RESULTS}")
    return status


if __name__ == "__main__":
    sys.exit(main())
