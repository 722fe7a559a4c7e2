"""``triokafka groups validate-regex``: check a pattern for subscriptions."""

from __future__ import annotations

from importlib.util import find_spec

import click

from triokafka.cli.output import examples


@click.command(
    "validate-regex",
    epilog=examples("triokafka groups validate-regex 'orders-.*'", "triokafka groups validate-regex '('"),
)
@click.option("-b", "--bootstrap-server", expose_value=False, hidden=True)  # kafka-consumer-groups demands it
@click.argument("regex")
def validate_regex(regex: str) -> int:
    """Check whether brokers accept a regular expression in subscriptions: RE2's syntax (KIP-848).

    The check needs no broker. The exit status is 1 if the expression is not valid. Needs the package google-re2, as
    brokers do: pip install 'triokafka[patterns]'.
    """
    if find_spec("re2") is None:
        raise click.ClickException("validate-regex needs the package google-re2: pip install 'triokafka[patterns]'.")
    from triokafka.coordinator.regular_expressions import compile_regular_expression
    from triokafka.errors import InvalidRegularExpressionError

    try:
        compile_regular_expression(regex)
    except InvalidRegularExpressionError as error:
        click.echo(f"triokafka: {error}", err=True)
        return 1
    click.echo(f"The regular expression `{regex}` is valid.")
    return 0
