"""The command line: ``triokafka …`` and ``python -m triokafka``.

One module per command group, imported when the command runs; `main` is the entry point. Wrong use ends with one
sentence and exit status 2, a failed run with one sentence and 1, never with a traceback.
"""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Run the command line and exit."""
    # Whoever starts a program may have closed any of these; then no connection is to get their numbers.
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115 - for as long as the process
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    gc.disable()  # nothing of what is imported is garbage
    try:
        from triokafka.cli.app import run
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich"):
            raise
        sys.exit("The command line needs two more packages: pip install 'triokafka[cli]'")
    except KeyboardInterrupt:  # so early that nobody else could say it
        print("stopped", file=sys.stderr)
        sys.exit(130)
    gc.enable()
    sys.exit(run())
