"""``make bench``: run every table in turn, and write JSON and a picture of each to ``benchmarks/results``.

``python -m benchmarks record_codec consume`` runs only these two. Each table compares programs in one run, in
interleaved rounds. Compare the ratios: absolute times depend on this machine and its load.

``python -m benchmarks --save-numbers`` measures the figures that README.md and the documentation quote, in about a
quarter of an hour, and writes them to ``docs/numbers`` and into the pages (`benchmarks.numbers`).
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from typing import Final

from benchmarks.pictures import PICTURES, draw
from benchmarks.report import RESULTS, save

TABLES: Final = (
    "record_codec",
    "protocol_codec",
    "import_time",
    "produce",
    "tls",
    "broker",
    "broker_codecs",
    "cluster",
    "topics",
    "groups",
    "transactions",
    "assignors",
    "rebalance",
    "spark",
    "blocking",
    "asyncio",
    "mirror",
    "consume",
)


def main() -> int:
    """Run the requested tables, all by default. Return 1 if a measurement failed."""
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
        if name in PICTURES:
            save(name, {"rows": [row._asdict() for row in found]}, draw(name, found))
        else:
            save(name, module.as_document(found), module.draw(found))
        if getattr(found, "failures", None):
            status = 1
        print(flush=True)
    print(f"JSON and pictures are in {RESULTS}")
    return status


if __name__ == "__main__":
    sys.exit(main())
