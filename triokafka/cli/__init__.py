"""The command line: ``triokafka …`` and ``python -m triokafka``.

One module per command group, imported when the command runs; `main` is the entry point. A usage error ends with one
sentence and exit status 2, a failed run with one sentence and status 1, never with a traceback. If click is missing
or too old, ``--version``, ``--help`` and a plain ``broker`` work, and every other command says what to install.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import IO


def main() -> None:
    """Run the command line and exit."""
    # If the parent process closed standard streams, reopen them, so that no socket gets file descriptor 0, 1 or 2.
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115 - open until the process ends
    sys.stdout = sys.stdout or _closed_output(sys.argv[1:])
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    _print_any_text()
    gc.disable()  # imports leave no garbage
    try:
        run = _plain_broker(sys.argv[1:]) or _command_line(sys.argv[1:])
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        sys.exit(130)
    gc.freeze()
    gc.enable()
    sys.exit(run())


def _closed_output(arguments: Sequence[str]) -> IO[str]:
    """Return the output of a process without standard output: a write fails, as it does in other programs.

    Services go on without it.
    """
    runs_on = arguments[:1] in (["broker"], ["cluster"], ["console"]) or arguments[:2] == ["mirror", "run"]
    return open(os.open(os.devnull, os.O_WRONLY if runs_on else os.O_RDONLY), "w")


def _print_any_text() -> None:
    """Print characters that the encoding of standard output lacks as escapes, as Python does on standard error."""
    with suppress(AttributeError):  # a replaced stream
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _command_line(arguments: Sequence[str]) -> Callable[[], int]:
    if not _has_click():
        from triokafka.cli.without_click import run as run_without_click

        return lambda: run_without_click(arguments)
    from triokafka.cli.app import run

    return run


def _has_click() -> bool:
    try:
        from click.exceptions import NoArgsIsHelpError  # noqa: F401 - since 8.2
    except ImportError:
        return False
    return True


def _plain_broker(arguments: Sequence[str]) -> Callable[[], int] | None:
    """Return the runner of a broker that needs no click: only addresses, directories and properties are given."""
    if arguments[:1] != ["broker"]:
        return None
    from triokafka.cli.broker_options import WrongUse, plain_options

    options = plain_options(arguments[1:])
    if options is None:
        return None
    from triokafka.cli.broker_run import prepare
    from triokafka.cli.failures import ended, status_of

    def run() -> int:
        try:
            return prepare(options)()
        except WrongUse as error:
            print(f"triokafka broker: {ended(str(error))} See triokafka broker --help.", file=sys.stderr)
            return 2
        except BaseException as error:
            return status_of(error)

    return run
