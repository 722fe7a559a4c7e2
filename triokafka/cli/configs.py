"""``triokafka configs``: show and change the configuration of topics, brokers, groups, log levels, and quotas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from triokafka.cli.client_properties import pair, read_properties_text
from triokafka.cli.config_entities import (
    ALL_TYPES,
    QUOTA_PARTS,
    Entity,
    chosen_entities,
    entity_options,
    quota_entity,
    words,
)
from triokafka.cli.connection import admin_command, controller_option
from triokafka.cli.output import CommandGroup, examples, output_options, print_json
from triokafka.cli.parameter_types import INT32, whole_number
from triokafka.cli.quotas import print_quotas, quota_number
from triokafka.cli.user_configs import credentials, has_credentials, print_credentials, taken_alterations

if TYPE_CHECKING:
    from triokafka import AdminClient
    from triokafka.client.admin import ConfigEntry, ConfigResource

_SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG", 2: "DYNAMIC_BROKER_CONFIG", 3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG", 5: "DEFAULT_CONFIG", 6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG", 8: "DYNAMIC_GROUP_CONFIG",
}  # fmt: skip


@click.group("configs", cls=CommandGroup)
def command() -> None:
    """Show and change configurations of topics, brokers, broker loggers, groups and client metrics, and quotas."""


@command.command(
    "describe",
    epilog=examples(
        "triokafka configs describe --topic orders --all",
        "triokafka configs describe --entity-type users --json",
    ),
)
@controller_option
@admin_command
@entity_options(ALL_TYPES)
@click.option("--all", "everything", is_flag=True, help="Include default values.")
@output_options
async def describe(
    admin: AdminClient,
    everything: bool,
    output: str,
    entity_types: tuple[str, ...],
    entity_names: tuple[str, ...],
    entity_default: bool,
    **flags: Any,
) -> None:
    """Print configurations, with the source of each value and its synonyms."""
    entities = chosen_entities(entity_types, entity_names, entity_default, flags, needs_name=False)
    if entities[0].kind in QUOTA_PARTS:
        found = await credentials(admin, entities[0]) if has_credentials(entities) else {}
        await print_quotas(admin, entities, output, credentials=found)
        if output == "text":
            print_credentials(found)
    else:
        await _describe_resources(admin, entities[0], everything, output)


@command.command(
    "alter",
    epilog=examples(
        "triokafka configs alter --topic orders --add-config retention.ms=60000",
        "triokafka configs alter --topic orders --delete-config retention.ms",
        "triokafka configs alter --user alice --add-config producer_byte_rate=1000000",
        "triokafka configs alter --user alice --add-config SCRAM-SHA-512=[iterations=8192,password=…]",
    ),
)
@controller_option
@admin_command
@entity_options(ALL_TYPES)
@click.option(
    "--add-config", "added", multiple=True, metavar="NAME=VALUE,…", help="Set values; lists in brackets: a=1,b=[x,y]."
)
@click.option("--add-config-file", metavar="FILE", help="Set the values in a properties file.")
@click.option("--delete-config", "deleted", multiple=True, metavar="NAME,…", help="Reset values to their defaults.")
@click.option("--append-config", "appended", multiple=True, metavar="NAME=VALUE", help="Add items to lists.")
@click.option("--subtract-config", "subtracted", multiple=True, metavar="NAME=VALUE", help="Remove items from lists.")
@click.option("--dry-run", is_flag=True, help="Validate on the broker without changing anything.")
async def alter(
    admin: AdminClient,
    added: tuple[str, ...],
    add_config_file: str | None,
    deleted: tuple[str, ...],
    appended: tuple[str, ...],
    subtracted: tuple[str, ...],
    dry_run: bool,
    entity_types: tuple[str, ...],
    entity_names: tuple[str, ...],
    entity_default: bool,
    **flags: Any,
) -> None:
    """Change single values of one configuration."""
    entities = chosen_entities(entity_types, entity_names, entity_default, flags, needs_name=True)
    values = {} if add_config_file is None else read_properties_text(add_config_file)
    for text in added:
        values.update(split_configs(text))
    gone = [name.strip() for text in deleted for name in text.split(",") if name.strip()]
    lists = (
        [pair("--append-config", text) for text in appended],
        [pair("--subtract-config", text) for text in subtracted],
    )
    scram = taken_alterations(values, gone, entities)
    if not (values or gone or appended or subtracted or scram):
        raise click.UsageError("Nothing to change: give --add-config, --add-config-file or --delete-config.")
    both = sorted(set(values) & set(gone))
    if both:
        raise click.UsageError(f"{', '.join(both)} cannot be both set and deleted.")
    if entities[0].kind in QUOTA_PARTS:
        if appended or subtracted:
            raise click.UsageError("--append-config and --subtract-config change lists, but quotas are numbers.")
        numbers: dict[str, float | None] = {name: quota_number(name, text) for name, text in values.items()}
        numbers.update(dict.fromkeys(gone))
        if scram and dry_run:
            raise click.UsageError("--dry-run: brokers cannot validate SCRAM credentials without changing them.")
        if scram:
            await admin.alter_user_scram_credentials(scram)
        if numbers:
            await admin.alter_client_quotas({quota_entity(entities): numbers}, validate_only=dry_run)
    else:
        await _alter_resource(admin, entities[0], values, gone, lists, dry_run)
    if dry_run:
        click.echo(f"The configuration of {words(entities)} could be changed.")
    elif entities[0].name is None and len(entities) == 1:
        click.echo(f"Completed updating default config for {entities[0].kind} in the cluster.")
    else:
        click.echo(f"Completed updating config for {words(entities)}.")


# Resources


def _resource(entity: Entity) -> ConfigResource:
    from triokafka.client.admin import ConfigResource

    name = entity.name or ""
    match entity.kind:
        case "topics":
            return ConfigResource.topic(name)
        case "groups":
            return ConfigResource.group(name)
        case "client-metrics":
            return ConfigResource.client_metrics(name)
        case "brokers" if entity.name is None:
            return ConfigResource.broker()
        case _:
            broker = whole_number(name, INT32)
            if broker is None:
                raise click.UsageError(f"A broker id is a number, not {name!r}.")
            return ConfigResource.broker(broker) if entity.kind == "brokers" else ConfigResource.broker_logger(broker)


async def _all_of(admin: AdminClient, kind: str) -> list[Entity]:
    from triokafka.client.admin import ConfigResourceType

    match kind:
        case "topics":
            return [Entity(kind, t.name) for t in await admin.list_topics(include_internal=True)]
        case "brokers" | "broker-loggers":
            nodes = sorted(node.node_id for node in (await admin.describe_cluster()).nodes)
            default = [Entity(kind, None)] if kind == "brokers" else []
            return [*(Entity(kind, str(node)) for node in nodes), *default]
        case _:
            resource_type = ConfigResourceType.GROUP if kind == "groups" else ConfigResourceType.CLIENT_METRICS
            return [Entity(kind, found.name) for found in await admin.list_config_resources([resource_type])]


async def _describe_resources(admin: AdminClient, entity: Entity, everything: bool, output: str) -> None:
    entities = await _all_of(admin, entity.kind) if entity.every else [entity]
    resources = {_resource(one): one for one in entities}
    described = await admin.describe_configs(resources, include_synonyms=True)
    shown = {
        one: [
            entry
            for entry in sorted(described[resource].values(), key=lambda entry: entry.name)
            if everything or _is_own(one, entry)
        ]
        for resource, one in resources.items()
    }
    if output == "json":
        rows = [
            {"type": one.kind, "name": one.name, "configs": [_entry_json(e) for e in entries]}
            for one, entries in shown.items()
        ]
        print_json(rows)
        return
    for one, entries in shown.items():
        if one.name is None:
            click.echo(f"Default configs for {one.kind} in the cluster are:")
        else:
            click.echo(f"{'All' if everything else 'Dynamic'} configs for {words([one])} are:")
        for entry in entries:
            synonyms = ", ".join(f"{_SOURCES.get(s.source, 'UNKNOWN')}:{s.name}={s.value}" for s in entry.synonyms)
            click.echo(
                f"  {entry.name}={entry.value} sensitive={str(entry.is_sensitive).lower()} synonyms={{{synonyms}}}"
            )


def _is_own(entity: Entity, entry: ConfigEntry) -> bool:
    """Whether a value was set for the entity itself, not for the default of its type, in a file or by the program."""
    from triokafka.client.admin import ConfigSource

    if entity.kind == "brokers":
        own = ConfigSource.DYNAMIC_DEFAULT_BROKER if entity.name is None else ConfigSource.DYNAMIC_BROKER
        return entry.source == own
    static = (ConfigSource.DEFAULT, ConfigSource.STATIC_BROKER)
    inherited = (*static, ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER)
    return entry.source not in (inherited if entity.kind == "topics" else static)


def _entry_json(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": _SOURCES.get(entry.source, "UNKNOWN"),
        "sensitive": entry.is_sensitive,
        "read_only": entry.is_read_only,
        "synonyms": [
            {"name": s.name, "value": s.value, "source": _SOURCES.get(s.source, "UNKNOWN")} for s in entry.synonyms
        ],
    }


async def _alter_resource(
    admin: AdminClient,
    entity: Entity,
    values: Mapping[str, str],
    gone: list[str],
    lists: tuple[list[tuple[str, str]], list[tuple[str, str]]],
    dry_run: bool,
) -> None:
    from triokafka.client.admin import AlterConfig, ConfigOperation, ConfigResource
    from triokafka.errors import InvalidConfigurationError

    resource = _resource(entity)
    named = resource
    if gone and entity.kind == "brokers" and entity.name is None:
        # The default has only the values that were set; every broker has all names.
        named = ConfigResource.broker((await admin.describe_cluster()).nodes[0].node_id)
    entries = (await admin.describe_configs([named]))[named]
    unset = [name for name in gone if name not in entries]
    if unset:
        raise InvalidConfigurationError(f"{', '.join(unset)} is not a configuration of {words([entity])}")
    changes = [AlterConfig(name, value) for name, value in values.items()]
    changes += [AlterConfig(name, operation=ConfigOperation.DELETE) for name in gone]
    for operation, items in zip((ConfigOperation.APPEND, ConfigOperation.SUBTRACT), lists, strict=True):
        changes += [AlterConfig(name, value, operation) for name, value in items]
    await admin.incremental_alter_configs({resource: changes}, validate_only=dry_run)


def split_configs(text: str) -> dict[str, str]:
    """Parse ``a=1,b=[x,y]``: pairs separated by commas; brackets enclose a value that contains commas."""
    parts: list[str] = []
    depth, start = 0, 0
    for position, character in enumerate(text):
        depth += {"[": 1, "]": -1}.get(character, 0)
        if character == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    parts.append(text[start:])
    if depth:
        raise click.UsageError(f"--add-config: unbalanced brackets in {text!r}.")
    values = {}
    for part in filter(str.strip, parts):
        name, value = pair("--add-config", part)
        stripped = value.strip()
        values[name] = stripped[1:-1] if stripped[:1] == "[" and stripped[-1:] == "]" else stripped
    return values
