"""``python -m tests.churning CLIENT TERMS``: one member."""

from __future__ import annotations

import sys

from tests.churning.member import main

if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
