"""``triokafka completion``: print the completion script for a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from triokafka.cli.output import examples

_VARIABLE = "_TRIOKAFKA_COMPLETE"  # click derives this name from the program's name


@click.command(
    "completion",
    epilog=examples(
        'eval "$(triokafka completion bash)"                    # in ~/.bashrc',
        'eval "$(triokafka completion zsh)"                     # in ~/.zshrc',
        "triokafka completion fish > ~/.config/fish/completions/triokafka.fish",
    ),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script that makes SHELL complete triokafka's commands and options.

    Needs bash 4.4 or newer.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(click.Group(), {}, "triokafka", _VARIABLE).source())
