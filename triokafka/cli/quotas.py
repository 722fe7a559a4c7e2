"""``triokafka quotas``: show, change and resolve quotas of users, client ids and addresses (KIP-13, 124, 599, 612)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import click

from triokafka.cli.config_entities import QUOTA_PARTS, Entity, chosen_entities, entity_options, quota_entity, words
from triokafka.cli.connection import admin_command, controller_option
from triokafka.cli.output import CommandGroup, examples, output_options, print_json
from triokafka.cli.parameter_types import FiniteNumber
from triokafka.quota_precedence import CLIENT_ID, IP, USER, EntityParts, address_levels, effective_quota

if TYPE_CHECKING:
    from triokafka import AdminClient
    from triokafka.client.admin import QuotaEntity, QuotaMatch

CLIENT_QUOTAS: Final = {
    "producer_byte_rate": "bytes of Produce requests per second",
    "consumer_byte_rate": "bytes of fetched records per second",
    "request_percentage": "time of the broker's threads in percent; 100 is one thread",
    "controller_mutation_rate": "created and deleted partitions per second",
}
"""The quotas of users and client ids, and what they limit."""
ADDRESS_QUOTAS: Final = {"connection_creation_rate": "new connections per second"}
"""The quota of addresses, and what it limits."""
_WORDS: Final = {USER: "user-principal", CLIENT_ID: "client-id", IP: "ip"}
_ORDER: Final = (USER, CLIENT_ID, IP)


@click.group("quotas", cls=CommandGroup)
def command() -> None:
    """Show, change and resolve the quotas of users, client ids and addresses.

    A client above its quota gets its responses with a throttle time, and the broker does not read its next request
    before.
    """


@command.command(
    "describe",
    epilog=examples(
        "triokafka quotas describe",
        "triokafka quotas describe --user alice --client loader",
        "triokafka quotas describe --entity-type clients --json",
    ),
)
@admin_command
@entity_options(tuple(QUOTA_PARTS))
@output_options
async def describe(
    admin: AdminClient,
    output: str,
    entity_types: tuple[str, ...],
    entity_names: tuple[str, ...],
    entity_default: bool,
    **flags: Any,
) -> None:
    """Print quotas: all, or those of entities. Exit status 0 also if there are none."""
    entities = chosen_entities(entity_types, entity_names, entity_default, flags, needs_name=False, may_be_none=True)
    await print_quotas(admin, entities, output)


def _quota_options(function: Any) -> Any:
    """Add an option for each quota; the command receives them by the quotas' names."""
    for name, what in reversed((CLIENT_QUOTAS | ADDRESS_QUOTAS).items()):
        function = click.option(
            f"--{name.replace('_', '-')}", name, type=FiniteNumber(min=0, min_open=True), metavar="NUMBER",
            help=f"Set {name}: {what}.",
        )(function)  # fmt: skip
    return function


@command.command(
    "alter",
    epilog=examples(
        "triokafka quotas alter --user alice --producer-byte-rate 1000000",
        "triokafka quotas alter --user alice --client-defaults --request-percentage 50",
        "triokafka quotas alter --ip-defaults --connection-creation-rate 20",
        "triokafka quotas alter --client-defaults --remove consumer_byte_rate,request_percentage",
    ),
)
@controller_option
@admin_command
@entity_options(tuple(QUOTA_PARTS))
@_quota_options
@click.option("--remove", "removed", multiple=True, metavar="NAME,…", help="Remove quotas; all for every one.")
@click.option("--dry-run", is_flag=True, help="Validate on the broker without changing anything.")
async def alter(
    admin: AdminClient,
    removed: tuple[str, ...],
    dry_run: bool,
    entity_types: tuple[str, ...],
    entity_names: tuple[str, ...],
    entity_default: bool,
    **options: Any,
) -> None:
    """Set and remove quotas of one entity. Its other quotas stay."""
    entities = chosen_entities(entity_types, entity_names, entity_default, options, needs_name=True)
    known = ADDRESS_QUOTAS if entities[0].kind == "ips" else CLIENT_QUOTAS
    changes: dict[str, float | None] = {
        name: options[name] for name in CLIENT_QUOTAS | ADDRESS_QUOTAS if options[name] is not None
    }
    gone = _removed(removed, known)
    both = sorted(set(changes) & set(gone))
    if both:
        raise click.UsageError(f"{', '.join(both)} cannot be both set and removed.")
    strange = sorted(set(changes) - set(known))
    if strange:
        raise click.UsageError(
            f"{', '.join(strange)} is not a quota of {words(entities)}; known are {', '.join(known)}."
        )
    changes.update(dict.fromkeys(gone))
    if not changes:
        raise click.UsageError("Nothing to change: give a quota, such as --producer-byte-rate, or --remove.")
    await admin.alter_client_quotas({quota_entity(entities): changes}, validate_only=dry_run)
    verb = "can be updated" if dry_run else "are updated"
    click.echo(f"The quotas of {words(entities)} {verb}.")


def _removed(texts: Sequence[str], known: Mapping[str, str]) -> list[str]:
    import difflib

    found: list[str] = []
    for name in (part.strip().replace("-", "_") for text in texts for part in text.split(",") if part.strip()):
        if name == "all":
            found += known
            continue
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}."
            raise click.UsageError(f"--remove: there is no quota {name!r}; {hint}")
        found.append(name)
    return found


@command.command(
    "resolve",
    epilog=examples(
        "triokafka quotas resolve --user alice --client loader",
        "triokafka quotas resolve --ip 192.0.2.7 --json",
    ),
)
@admin_command
@click.option("--user", default="ANONYMOUS", show_default=True, metavar="NAME", help="The user of the client.")
@click.option("--client", "client_id", default="", metavar="NAME", help="The client id of the client.")
@click.option("--ip", "address", metavar="ADDRESS", help="An address, instead of a user and a client id.")
@output_options
async def resolve(admin: AdminClient, user: str, client_id: str, address: str | None, output: str) -> None:
    """Print the quotas that apply to a client, and the entity that each is from.

    The most specific quota applies: of user and client id, then of the user, then of the client id, and for each of
    these the default last. Clients with the same quota of a user share it.
    """
    quotas = {entity.parts: values for entity, values in (await admin.describe_client_quotas()).items()}
    rows: list[tuple[str, float | None, EntityParts | None]] = []
    if address is None:
        for name in CLIENT_QUOTAS:
            found = effective_quota(quotas, name, user, client_id)
            rows.append((name, None, None) if found is None else (name, found[0], found[1].entity))
    else:
        (name,) = ADDRESS_QUOTAS
        entities = [entity for entity in address_levels(address) if name in quotas.get(entity, {})]
        rows.append((name, quotas[entities[0]][name], entities[0]) if entities else (name, None, None))
    if output == "json":
        print_json(
            {name: None if entity is None else {"value": value, "entity": dict(entity)} for name, value, entity in rows}
        )
        return
    for name, value, entity in rows:
        text = "unlimited" if value is None or entity is None else f"{_shown(value)}\tfrom {_named(entity)}"
        click.echo(f"{name}\t{text}")


async def print_quotas(
    admin: AdminClient,
    entities: Sequence[Entity],
    output: str,
    *,
    credentials: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
) -> None:
    """Print the quotas of entities, or all quotas if none is given, in the words of Kafka's tool.

    JSON has ``credentials``, of users, as well.
    """
    from triokafka.client.admin import QuotaMatch

    parts: dict[str, str | QuotaMatch] = {}
    for entity in entities:
        wanted = QuotaMatch.ANY if entity.every else QuotaMatch.DEFAULT if entity.name is None else entity.name
        parts[QUOTA_PARTS[entity.kind]] = wanted
    found = await admin.describe_client_quotas(parts, strict=bool(parts))
    rows = sorted(found.items(), key=lambda row: _sorting(row[0]))
    if output == "json":
        document: list[dict[str, Any]] = [{"entity": dict(entity.parts), "quotas": quotas} for entity, quotas in rows]
        document += [{"entity": {USER: user}, "scram": dict(found)} for user, found in credentials.items()]
        print_json(document)
        return
    for whom, quotas in rows:
        values = ", ".join(f"{name}={value}" for name, value in sorted(quotas.items()))
        click.echo(f"Quota configs for {_named(whom.parts)} are {values}")


def _sorting(entity: QuotaEntity) -> list[tuple[bool, bool, str]]:
    """Sort users before client ids before addresses, and names before their default."""
    parts = dict(entity.parts)
    return [(kind not in parts, parts.get(kind) is None, parts.get(kind) or "") for kind in _ORDER]


def _named(entity: EntityParts) -> str:
    parts = dict(entity)
    return ", ".join(
        f"{_WORDS[kind]} '{parts[kind]}'" if parts[kind] is not None else f"the default {_WORDS[kind]}"
        for kind in _ORDER
        if kind in parts
    )


def _shown(value: float) -> str:
    return str(int(value)) if value == math.floor(value) and abs(value) < 2**63 else str(value)


def quota_number(name: str, text: str) -> float:
    """Parse the value of a quota. Text that is not a number is a usage error."""
    try:
        return float(text)
    except ValueError:
        raise click.UsageError(f"Quota {name} takes a number, not {text!r}.") from None
