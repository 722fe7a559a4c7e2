"""SCRAM credentials in ``triokafka configs``, as in ``kafka-configs``: a configuration of users beside their quotas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from triokafka.cli.config_entities import Entity, words
from triokafka.cli.failures import describe
from triokafka.security.scram_credentials import MAX_ITERATIONS, MIN_ITERATIONS, ScramMechanism

if TYPE_CHECKING:
    from triokafka import AdminClient

_MECHANISMS: Final = {mechanism.mechanism_name: mechanism for mechanism in ScramMechanism}


def has_credentials(entities: Sequence[Entity]) -> bool:
    """Whether credentials are among the configurations of the entities: of one user, or of all users."""
    return [entity.kind for entity in entities] == ["users"] and (entities[0].every or entities[0].name is not None)


async def credentials(admin: AdminClient, entity: Entity) -> dict[str, dict[str, int]]:
    """Return the iterations by mechanism and user; nothing for a user without credentials."""
    from triokafka.errors import KafkaError, ResourceNotFoundError, UnsupportedVersionError

    try:
        found = await admin.describe_user_scram_credentials(None if entity.name is None else [entity.name])
    except UnsupportedVersionError:
        return {}  # a broker before 2.7
    except KafkaError as error:
        click.echo(f"triokafka: the SCRAM credentials cannot be described: {describe(error)}", err=True)
        return {}
    for user, failure in found.errors.items():
        if not isinstance(failure, ResourceNotFoundError):
            click.echo(f"triokafka: the SCRAM credentials of {user} cannot be described: {describe(failure)}", err=True)
    return {
        user: {one.mechanism_name: count for one, count in sorted(found[user].items())}
        for user in sorted(found)
        if user not in found.errors
    }


def print_credentials(found: Mapping[str, Mapping[str, int]]) -> None:
    """Print credentials in the words of Kafka's tool."""
    for user, mechanisms in found.items():
        text = ", ".join(f"{name}=iterations={count}" for name, count in mechanisms.items())
        click.echo(f"SCRAM credential configs for user-principal '{user}' are {text}")


def taken_alterations(values: dict[str, str], gone: list[str], entities: Sequence[Entity]) -> list[Any]:
    """Remove changes of credentials from the changes of configurations, and return them for the admin client.

    Raises:
        UsageError: the entity has no credentials, or a credential is incomplete. The message has no password.
    """
    from triokafka.client.admin import UserScramCredentialDeletion, UserScramCredentialUpsertion

    set_now = {name: values.pop(name) for name in _MECHANISMS if name in values}
    removed = [name for name in _MECHANISMS if name in gone]
    gone[:] = [name for name in gone if name not in _MECHANISMS]
    if not (set_now or removed):
        return []
    user = entities[0].name
    if not has_credentials(entities) or user is None:
        raise click.UsageError(f"SCRAM credentials are configurations of one user, not of {words(entities)}.")
    changes: list[Any] = [UserScramCredentialDeletion(user, _MECHANISMS[name]) for name in removed]
    for name, text in set_now.items():
        password, iterations = _parsed(name, text)
        changes.append(UserScramCredentialUpsertion(user, _MECHANISMS[name], password, iterations))
    return changes


def _parsed(mechanism: str, text: str) -> tuple[str, int]:
    """Parse ``iterations=8192,password=secret``, whose brackets are removed already."""
    values: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals or name.strip() not in ("iterations", "password"):
            raise click.UsageError(f"--add-config {mechanism} takes [iterations=NUMBER,password=TEXT].")
        values[name.strip()] = value
    if not values.get("password"):
        raise click.UsageError(f"--add-config {mechanism}: the password is missing.")
    iterations = values.get("iterations", str(MIN_ITERATIONS))
    if not iterations.isdecimal() or not MIN_ITERATIONS <= int(iterations) <= MAX_ITERATIONS:
        raise click.UsageError(f"--add-config {mechanism}: iterations are {MIN_ITERATIONS} to {MAX_ITERATIONS}.")
    return values["password"], int(iterations)
