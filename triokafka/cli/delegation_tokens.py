"""``triokafka delegation-tokens``: create, renew, expire and describe delegation tokens (KIP-48)."""

from __future__ import annotations

import binascii
from base64 import b64decode
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from triokafka.cli.connection import admin_command
from triokafka.cli.output import CommandGroup, examples, output_options, print_json
from triokafka.cli.parameter_types import principal_of, text_of_file
from triokafka.security.secret import reveal

if TYPE_CHECKING:
    from triokafka import AdminClient
    from triokafka.client.admin import DelegationToken


@click.group("delegation-tokens", cls=CommandGroup)
def command() -> None:
    """Create, renew, expire and describe delegation tokens.

    A client logs in with a token as its owner, without the owner's password. Brokers answer these commands only on
    connections that have logged in: give the options with --command-config.
    """


_hmac = click.option(
    "--hmac", "hmac", required=True, metavar="BASE64|@FILE", help="The token's secret, or a file with it as @FILE."
)


def _secret(text: str) -> bytes:
    encoded = text_of_file(text[1:]).strip() if text.startswith("@") else text
    try:
        return b64decode(encoded, validate=True)
    except binascii.Error:
        raise click.UsageError("--hmac is not base64.") from None


@command.command(
    "create",
    epilog=examples(
        "triokafka delegation-tokens create -X security.protocol=SASL_SSL -X sasl.mechanism=SCRAM-SHA-512",
        "triokafka delegation-tokens create --renewer-principal User:scheduler --max-life-time-period 86400000 --json",
    ),
)
@admin_command
@click.option("--owner-principal", metavar="TYPE:NAME", help="The owner.  [default: you]")
@click.option(
    "--renewer-principal", "renewers", multiple=True, metavar="TYPE:NAME", help="May renew and expire the token, too."
)
@click.option(
    "--max-life-time-period",
    type=int,
    default=-1,
    metavar="MS",
    help="How long the token can be renewed.  [default: delegation.token.max.lifetime.ms of the broker]",
)
@output_options
async def create(
    admin: AdminClient, owner_principal: str | None, renewers: tuple[str, ...], max_life_time_period: int, output: str
) -> None:
    """Create a token and print it with its secret."""
    renewers = tuple(map(principal_of, renewers))
    owner = None if owner_principal is None else principal_of(owner_principal)
    token = await admin.create_delegation_token(owner=owner, renewers=renewers, max_lifetime_ms=max_life_time_period)
    _print([token], output)


@command.command("renew", epilog=examples("triokafka delegation-tokens renew --hmac @token --renew-time-period -1"))
@admin_command
@_hmac
@click.option(
    "--renew-time-period",
    type=int,
    default=-1,
    metavar="MS",
    help="From now until the expiry.  [default: delegation.token.expiry.time.ms of the broker]",
)
async def renew(admin: AdminClient, hmac: str, renew_time_period: int) -> None:
    """Let a token expire later."""
    secret = _secret(hmac)
    expiry = await admin.renew_delegation_token(secret, renew_period_ms=renew_time_period)
    click.echo(f"The token expires at {_time(expiry)}.")


@command.command("expire", epilog=examples("triokafka delegation-tokens expire --hmac @token"))
@admin_command
@_hmac
@click.option(
    "--expiry-time-period",
    type=int,
    default=-1,
    show_default=True,
    metavar="MS",
    help="From now until the expiry; -1 removes the token immediately.",
)
async def expire(admin: AdminClient, hmac: str, expiry_time_period: int) -> None:
    """Change when a token expires, or remove it."""
    secret = _secret(hmac)
    expiry = await admin.expire_delegation_token(secret, expiry_period_ms=expiry_time_period)
    if expiry_time_period < 0:
        click.echo("The token is removed.")
    else:
        click.echo(f"The token expires at {_time(expiry)}.")


@command.command(
    "describe",
    epilog=examples(
        "triokafka delegation-tokens describe",
        "triokafka delegation-tokens describe --owner-principal User:alice --json",
    ),
)
@admin_command
@click.option(
    "--owner-principal", "owners", multiple=True, metavar="TYPE:NAME", help="Only tokens of this owner or renewer."
)
@output_options
async def describe(admin: AdminClient, owners: tuple[str, ...], output: str) -> None:
    """Print the tokens that you may see, with their secrets."""
    _print(await admin.describe_delegation_tokens(list(map(principal_of, owners)) or None), output)


def _time(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError):
        return "never"


def _print(tokens: list[DelegationToken], output: str) -> None:
    if output == "json":
        print_json([_as_json(token) for token in tokens])
        return
    for token in tokens:
        click.echo(f"Token {token.token_id}")
        rows = {
            "HMAC": reveal(token.password),
            "owner": token.owner,
            "requester": token.requester,
            "renewers": ", ".join(token.renewers),
            "issued": _time(token.issue_timestamp_ms),
            "expires": _time(token.expiry_timestamp_ms),
            "at the latest": _time(token.max_timestamp_ms),
        }
        for name, text in rows.items():
            if text:
                click.echo(f"  {name}: {text}")


def _as_json(token: DelegationToken) -> dict[str, Any]:
    return {
        "token_id": token.token_id,
        "hmac": reveal(token.password),
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issue_timestamp_ms": token.issue_timestamp_ms,
        "expiry_timestamp_ms": token.expiry_timestamp_ms,
        "max_timestamp_ms": token.max_timestamp_ms,
    }
