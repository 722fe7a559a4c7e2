"""``triokafka protocol``: how a message is declared, and the code that is generated from it."""

from __future__ import annotations

import difflib

import click


@click.group("protocol")
def command() -> None:
    """Print how a message is declared and coded."""


@command.command("show")
@click.argument("message")
@click.option("--version", "message_version", type=int, help="Version to show; the highest when left out.")
@click.option("--code", is_flag=True, help="Print the generated encoder and decoder as well.")
def show(message: str, message_version: int | None, code: bool) -> None:
    """Print the fields of MESSAGE (for example ProduceRequest) in one version."""
    from triokafka.protocol.inspect import describe_message, message_names

    names = message_names()
    if message not in names:
        near = difflib.get_close_matches(message, names, n=1)
        raise click.UsageError(f"There is no message {message!r}." + (f" Did you mean {near[0]}?" if near else ""))
    try:
        click.echo(describe_message(message, message_version, code=code))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
