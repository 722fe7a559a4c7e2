"""Shared output of commands: help, text or JSON, confirmations."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class CommandGroup(click.Group):
    """The commands of one module or folder; its help shows the complete first sentence of each."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # click would truncate the sentences at the end of the line.
        shown = [name for name in self.list_commands(ctx) if not self.commands[name].hidden]
        rows = [(name, self.commands[name].get_short_help_str(limit=1_000)) for name in shown]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def examples(*lines: str) -> str:
    """Return a command's ``epilog``: example command lines for copying."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def output_options(function: F) -> F:
    """Add ``--output`` and its short form ``--json``; the command receives ``output``."""

    def read(ctx: click.Context, parameter: click.Parameter, wanted: bool) -> None:
        if wanted:
            ctx.params["output"] = "json"

    function = click.option("--json", is_flag=True, expose_value=False, callback=read, help="Short for --output json.")(
        function
    )
    return click.option(
        "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, is_eager=True
    )(function)


def confirm(question: str) -> None:
    """Ask for confirmation on standard error. "No" and Ctrl-C abort; without a terminal it is a usage error."""
    if not sys.stdin.isatty():
        raise click.UsageError("Nothing was deleted: there is no terminal for the confirmation. Give --yes.")
    # Some commands ask in their Trio run, whose own handler would only note Ctrl-C for the next checkpoint.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        click.confirm(question, abort=True, err=True)
    finally:
        signal.signal(signal.SIGINT, handler)


def print_json(document: Any) -> None:
    """Print a document as JSON."""
    import json  # most commands print only text

    click.echo(json.dumps(document, indent=2))
