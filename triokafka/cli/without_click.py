"""The command line when click is missing or too old: version, help, and a message that names the remedy.

Every installation brings click. It is missing after ``pip install --no-deps``, and too old when another package asks
for an older one. ``triokafka broker`` with addresses, directories and properties needs no click either;
`triokafka.cli.main` runs it.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from typing import Final

from triokafka.cli.commands import COMMANDS, version_line

INSTALL: Final = "pip install 'click>=8.2'"
_BROKER_OPTIONS: Final = "--listen HOST:PORT, --data-dir DIR, --in-memory and --set NAME=VALUE"


def run(arguments: Sequence[str]) -> int:
    """Run the command line as far as possible without click, and return the exit status."""
    try:
        status = _run(arguments)
        sys.stdout.flush()
        return status
    except BaseException as error:
        from triokafka.cli.failures import status_of

        return status_of(error)


def _run(arguments: Sequence[str]) -> int:
    first = arguments[0] if arguments else "--help"
    if first == "--version":
        print(version_line())
        return 0
    if first in ("-h", "--help"):
        print(_help())
        return 0 if arguments else 2
    if first not in COMMANDS:
        near = difflib.get_close_matches(first, COMMANDS, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        print(f"triokafka: There is no command {first!r}.{hint} See triokafka --help.", file=sys.stderr)
        return 2
    print(f"triokafka {first}: this {_missing()}. Install it: {INSTALL}", file=sys.stderr)
    if first == "broker":
        print(f"Without it, triokafka broker takes {_BROKER_OPTIONS} alone.", file=sys.stderr)
    return 1


def _missing() -> str:
    try:
        import click  # noqa: F401
    except ModuleNotFoundError:
        return "needs the package click, which is not installed"
    from importlib.metadata import version

    return f"needs click 8.2 or newer, but click {version('click')} is installed"


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {text}" for name, text in sorted(COMMANDS.items())]
    return "\n".join(
        [
            "Usage: triokafka [OPTIONS] COMMAND [ARGS]...",
            "",
            "  Kafka for Python: a broker, and command line tools for Kafka.",
            "",
            "Options:",
            "  --version   Print the version.",
            "  -h, --help  Show this message and exit.",
            "",
            "Commands:",
            *lines,
            "",
            f"The commands need the package click: {INSTALL}",
            f"Without it, only broker runs, with {_BROKER_OPTIONS}.",
        ]
    )
