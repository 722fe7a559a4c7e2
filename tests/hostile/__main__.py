"""Runs the hostile sections and prints their table; exits with 1 if a limit is exceeded.

Each row is also printed to standard error as soon as it is measured.
"""

from __future__ import annotations

import importlib
import sys

from tests.hostile.table import Row, render

SECTIONS = ("memory", "storm", "authentication", "damage", "cluster_damage", "silence")


def main(wanted: list[str]) -> int:
    """Run the named sections, or all of them; return the exit code."""
    unknown = sorted(set(wanted) - set(SECTIONS))
    if unknown:
        print(f"Unknown section {unknown[0]!r}; the sections are {', '.join(SECTIONS)}.", file=sys.stderr)
        return 2
    rows: list[Row] = []
    for section in wanted or SECTIONS:
        print(f"running {section} …", file=sys.stderr)
        for row in importlib.import_module(f"tests.hostile.{section}").measure():
            rows.append(row)
            print(f"  {row.case}: {row.figure}{'' if row.met else ' NOT MET'}", file=sys.stderr, flush=True)
    print(render(rows))
    return 0 if all(row.met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
