"""The command tree, and the messages of usage errors."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from triokafka.cli import failures
from triokafka.cli.commands import COMMANDS, version_line
from triokafka.cli.failures import describe as describe
from triokafka.cli.failures import ended

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class _Commands(click.Group):
    """A group whose commands are modules of this package, imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"triokafka.cli.{cmd_name.replace('-', '_')}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            ctx.fail(f"There is no command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    # click would catch a BrokenPipeError with an errno and exit with 1.

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)  # which prints help and version
        except BrokenPipeError:
            raise BrokenPipeError from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise BrokenPipeError from None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # Completion must not import every command either.
        from click.shell_completion import CompletionItem

        found = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return found or super().shell_complete(ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # Listing must not import every command.
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


def _print_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    click.echo(version_line())
    ctx.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
def commands() -> None:
    """Kafka for Python: a broker, and command line tools for Kafka."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line with ``arguments`` (the process's own when None) and return the exit status."""
    try:
        result = commands.main(arguments, prog_name="triokafka", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except BaseException as error:
        if isinstance(error, click.UsageError) and error.ctx is None:  # such as an option without its value
            error.ctx = _context_of(sys.argv[1:] if arguments is None else arguments)
        return status_of(error)


def _context_of(arguments: Sequence[str]) -> click.Context:
    """Return a context of the command that the first arguments name."""
    context = click.Context(commands, info_name="triokafka")
    for name in arguments:
        group = context.command
        found = group.get_command(context, name) if isinstance(group, click.Group) else None
        if found is None:
            break
        context = click.Context(found, parent=context, info_name=name)
    return context


def status_of(error: BaseException) -> int:
    """Print why a run failed, in one sentence, and return its exit status. Re-raise errors that are our own bugs."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()  # the help is the message
        return error.exit_code
    if isinstance(error, click.UsageError):
        path = "triokafka" if error.ctx is None else error.ctx.command_path
        message = " ".join(error.format_message().split())  # click prints choices on separate lines
        message = re.sub(r"\(Did you mean one of: (.+)\?\)$", r"Did you mean one of \1?", message)
        click.echo(f"{path}: {ended(message)} See {path} --help.", err=True)
        return error.exit_code
    if isinstance(error, click.ClickException):
        click.echo(f"triokafka: {error.format_message()}", err=True)
        return error.exit_code
    return failures.status_of(KeyboardInterrupt() if isinstance(error, click.Abort) else error)
