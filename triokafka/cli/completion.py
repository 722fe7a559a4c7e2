"""``triokafka completion``: what a shell needs to complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from triokafka.cli.output import examples

_VARIABLE = "_TRIOKAFKA_COMPLETE"  # as click makes it from the program's name


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
    """Print what makes SHELL complete the commands and options of triokafka.

    bash must be 4.4 or newer, or nothing is completed.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(click.Group(), {}, "triokafka", _VARIABLE).source())
