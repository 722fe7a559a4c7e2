"""Repeat one run: ``python -m tests.crashing SEED``.

Prints the steps that the failure needs, and the failure.
"""

from __future__ import annotations

import logging
import sys

from tests.crashing.machine import explain

if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    print(explain(int(sys.argv[1])) or "nothing fails")
