"""The command tree, and how an error becomes a sentence."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from triokafka.errors import KafkaError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_COMMANDS: Final = {
    "broker": "run one broker",
    "completion": "print what makes a shell complete commands and options",
    "configs": "show and change the configuration of topics, brokers, groups, clients",
    "consume": "print a topic's records",
    "demo": "the main job on real input, end to end",
    "groups": "list and describe consumer groups with their lag, reset and delete their offsets",
    "log": "print the files of a log, repair damaged metadata",
    "perf": "measure how fast records are sent and read",
    "produce": "send lines from standard input to a topic",
    "protocol": "print how a message is declared and coded",
    "spark": "look at what Spark needs here, and say how to fix it",
    "topics": "list, create, describe, grow and delete topics",
}


class _Commands(click.Group):
    """A group whose commands are modules of this package, imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command = importlib.import_module(f"triokafka.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], _COMMANDS, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            ctx.fail(f"There is no command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    # Of both, a broken pipe that has a number would be taken by click, which ends with 1.

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
        # Completing must not import every command either.
        from click.shell_completion import CompletionItem

        found = [CompletionItem(name, help=text) for name, text in _COMMANDS.items() if name.startswith(incomplete)]
        return found or super().shell_complete(ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # Listing must not import every command.
        with formatter.section("Commands"):
            formatter.write_dl(sorted(_COMMANDS.items()))


def _print_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    import platform
    from importlib.metadata import PackageNotFoundError, version  # takes as long as half the other imports

    from triokafka.kernels import implementation

    python = f"{platform.python_implementation()} {platform.python_version()}"
    try:
        number = version("triokafka")
    except PackageNotFoundError:
        number = "from a source tree that is not installed"
    click.echo(f"triokafka {number} ({implementation()} kernels, {python})")
    ctx.exit()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version."
)
def commands() -> None:
    """Kafka for Python: a broker, and what one needs to work with it."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line with ``arguments`` (the process's own when None) and return the exit status."""
    try:
        result = commands.main(arguments, prog_name="triokafka", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except BaseException as error:
        return status_of(error)


def status_of(error: BaseException) -> int:
    """The exit status of a run that ended with ``error``, which is said in a sentence; one that is none is raised."""
    try:
        raise error
    except click.exceptions.NoArgsIsHelpError as wanted:
        wanted.show()  # the help is the message
        return wanted.exit_code
    except click.UsageError as error:
        path = "triokafka" if error.ctx is None else error.ctx.command_path
        message = " ".join(error.format_message().split())  # click shows choices in lines of their own
        click.echo(f"{path}: {_ended(message)} See {path} --help.", err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # Whoever read our output has gone; say nothing more, and keep the interpreter from saying it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except BaseExceptionGroup as group:
        return _report(group)
    except (KafkaError, OSError) as error:
        click.echo(f"triokafka: {describe(error)}", err=True)
        return 1


def _report(group: BaseExceptionGroup[BaseException]) -> int:
    expected, unexpected = group.split((KafkaError, OSError, KeyboardInterrupt))
    if unexpected is not None or expected is None:
        raise group
    leaves = _leaves(expected)
    if any(isinstance(error, KeyboardInterrupt) for error in leaves):
        click.echo("stopped", err=True)
        return 128 + signal.SIGINT
    for error in leaves:
        click.echo(f"triokafka: {describe(error)}", err=True)
    return 1


def _leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found


def describe(error: BaseException) -> str:
    """One line for a person: what happened, and what to do when the error knows it."""
    if isinstance(error, OSError) and error.strerror:  # without the number
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    else:
        text = str(error) or type(error).__name__
    advice = getattr(error, "advice", "")
    return f"{_ended(text)} {advice}" if advice and advice not in text else text


def _ended(text: str) -> str:
    """The text as a whole sentence, so that another one may follow."""
    return text if text.endswith((".", "!", "?", ":")) else f"{text}."
