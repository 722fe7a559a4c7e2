"""The command line: ``triokafka …`` and ``python -m triokafka``.

One module per command group, imported when the command runs; `main` is the entry point. Wrong use ends with one
sentence and exit status 2, a failed run with one sentence and 1, never with a traceback.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit."""
    try:
        from triokafka.cli.app import run
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        sys.exit("The command line needs two more packages: pip install 'triokafka[cli]'")
    sys.exit(run())
