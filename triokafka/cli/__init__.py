"""The command line: ``triokafka …`` and ``python -m triokafka``.

One module per command group, imported when the command runs; `main` is the entry point. Wrong use ends with one
sentence and exit status 2, a failed run with one sentence and 1, never with a traceback.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Final

_NEEDED: Final = ("click", "rich")


def main() -> None:
    """Run the command line and exit."""
    # Whoever starts a program may have closed any of these; then no connection is to get their numbers.
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115 - for as long as the process
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    gc.disable()  # nothing of what is imported is garbage
    try:
        run = _plain_broker(sys.argv[1:]) or _command_line()
    except KeyboardInterrupt:  # so early that nobody else could say it
        print("stopped", file=sys.stderr)
        sys.exit(130)
    gc.freeze()
    gc.enable()
    sys.exit(run())


def _command_line() -> Callable[[], int]:
    try:
        from triokafka.cli.app import run
    except ModuleNotFoundError as error:
        if error.name not in _NEEDED:
            raise
        sys.exit("The command line needs two more packages: pip install 'triokafka[cli]'")
    return run


def _plain_broker(arguments: Sequence[str]) -> Callable[[], int] | None:
    """A broker of which no more is said than addresses, directories and properties: it starts without click."""
    if arguments[:1] != ["broker"] or not all(map(find_spec, _NEEDED)):
        return None
    from triokafka.cli.broker_options import WrongUse, plain_options

    options = plain_options(arguments[1:])
    if options is None:
        return None
    from triokafka.cli.broker_run import prepare

    def run() -> int:
        try:
            return prepare(options)()
        except WrongUse:
            return _command_line()()  # which says it
        except BaseException as error:
            from triokafka.cli.app import status_of

            return status_of(error)

    return run
