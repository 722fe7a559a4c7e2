"""``triokafka users``: list, add and remove SCRAM users (KIP-554)."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

import click

from triokafka.cli.connection import AdminConnection, admin_command, admin_options, controller_option
from triokafka.cli.output import CommandGroup, confirm, examples, output_options, print_json
from triokafka.cli.parameter_types import Integer, text_of_file
from triokafka.security.scram_credentials import MAX_ITERATIONS, MIN_ITERATIONS, ScramMechanism

if TYPE_CHECKING:
    from triokafka import AdminClient

PASSWORD_VARIABLE: Final = "TRIOKAFKA_USER_PASSWORD"
_MECHANISMS: Final = {mechanism.mechanism_name: mechanism for mechanism in ScramMechanism}

_mechanism = click.option(
    "--mechanism",
    type=click.Choice(list(_MECHANISMS), case_sensitive=False),
    default="SCRAM-SHA-512",
    show_default=True,
    help="The SCRAM mechanism.",
)


@click.group("users", cls=CommandGroup)
def command() -> None:
    """List, add and remove the SCRAM credentials of users.

    The brokers store what verifies a password, never the password.
    """


@command.command("list", epilog=examples("triokafka users list", "triokafka users list alice bob --json"))
@admin_command
@click.argument("names", nargs=-1)
@output_options
async def list_users(admin: AdminClient, names: tuple[str, ...], output: str) -> int:
    """Print users with their mechanisms and iterations: all, or those that are named."""
    found = await admin.describe_user_scram_credentials(names or None)
    known = {user: found[user] for user in sorted(found) if user not in found.errors}
    if output == "json":
        print_json(
            [
                {"user": user, "credentials": {one.mechanism_name: count for one, count in credentials.items()}}
                for user, credentials in known.items()
            ]
        )
    else:
        for user, credentials in known.items():
            text = ", ".join(f"{one.mechanism_name} iterations={count}" for one, count in credentials.items())
            click.echo(f"{user}: {text}")
    for error in found.errors.values():
        click.echo(f"triokafka: {error}", err=True)
    return 1 if found.errors else 0


@command.command(
    "add",
    epilog=examples(
        "triokafka users add alice",
        "triokafka users add alice --password-file alice.secret --mechanism SCRAM-SHA-256 --iterations 8192",
    ),
)
@controller_option
@admin_options
@click.argument("name")
@_mechanism
@click.option(
    "--iterations",
    type=Integer(MIN_ITERATIONS, MAX_ITERATIONS),
    default=MIN_ITERATIONS,
    show_default=True,
    help="How much work one guess of the password is.",
)
@click.option("--password-file", metavar="FILE", help="Read the password from the first line of a file; - for stdin.")
def add(connection: AdminConnection, name: str, mechanism: str, iterations: int, password_file: str | None) -> int:
    """Add a user, or set a new password.

    The password comes from --password-file, from TRIOKAFKA_USER_PASSWORD, or from a prompt: a command line is visible
    to others.
    """
    password = _password(password_file)

    async def work(admin: AdminClient) -> None:
        from triokafka.client.admin import UserScramCredentialUpsertion

        upsertion = UserScramCredentialUpsertion(name, _MECHANISMS[mechanism.upper()], password, iterations)
        await admin.alter_user_scram_credentials([upsertion])
        click.echo(f"User {name}: {mechanism.upper()} is set.")

    return connection.run(work)


@command.command("remove", epilog=examples("triokafka users remove alice --mechanism SCRAM-SHA-256 --yes"))
@controller_option
@admin_options
@click.argument("name")
@_mechanism
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
def remove(connection: AdminConnection, name: str, mechanism: str, yes: bool) -> int:
    """Remove a user's credential of one mechanism. The user's open connections stay."""
    if not yes:
        confirm(f"Remove the {mechanism.upper()} credential of the user {name}?")

    async def work(admin: AdminClient) -> None:
        from triokafka.client.admin import UserScramCredentialDeletion

        await admin.alter_user_scram_credentials([UserScramCredentialDeletion(name, _MECHANISMS[mechanism.upper()])])
        click.echo(f"User {name}: {mechanism.upper()} is removed.")

    return connection.run(work)


def _password(path: str | None) -> str:
    if path == "-":
        text = sys.stdin.readline()
    elif path is not None:
        text = text_of_file(path).partition("\n")[0]
    elif PASSWORD_VARIABLE in os.environ:
        text = os.environ[PASSWORD_VARIABLE]
    elif sys.stdin.isatty():
        given: str = click.prompt("Password", hide_input=True, confirmation_prompt=True, err=True)
        text = given
    else:
        raise click.UsageError(f"There is no password: give --password-file, or set {PASSWORD_VARIABLE}.")
    password = text.rstrip("\r\n")
    if not password:
        raise click.UsageError("The password is empty.")
    return password
