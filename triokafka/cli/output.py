"""What commands have in common in how they talk to people and programs: what help shows, text or JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class CommandGroup(click.Group):
    """Commands of one module, or of one folder; its help has the whole first sentence of each."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # click would cut the sentences off at the end of the line.
        rows = [(name, self.commands[name].get_short_help_str(limit=1_000)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def examples(*lines: str) -> str:
    """The end of a command's help: lines that can be copied. Given to a command as ``epilog``."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def output_options(function: F) -> F:
    """``--output`` and, short for one of its values, ``--json``; the command gets ``output``."""

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
    """Ask on standard error before something is deleted. A no aborts; with nobody to ask it is wrong use."""
    if not sys.stdin.isatty():
        raise click.UsageError("Nothing was deleted: there is no terminal to ask for confirmation; say --yes.")
    click.confirm(question, abort=True, err=True)


def print_json(document: Any) -> None:
    """Print a document for programs."""
    import json  # most commands print text

    click.echo(json.dumps(document, indent=2))
