"""The entities of ``triokafka configs`` and ``triokafka quotas``, and the options that name them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from triokafka.cli.completion_values import group_names, topic_names

if TYPE_CHECKING:
    from triokafka.client.admin import QuotaEntity

F = TypeVar("F", bound=Callable[..., Any])

QUOTA_PARTS: Final = {"users": "user", "clients": "client_id", "ips": "ip"}
"""Types of entities with quotas, and the parts of `QuotaEntity` that they are."""
ALL_TYPES: Final = (
    "topics", "brokers", "broker-loggers", "groups", "client-metrics", *QUOTA_PARTS,
)  # fmt: skip
_SHORT: Final = {
    "topic": "topics", "broker": "brokers", "broker_logger": "broker-loggers", "group": "groups",
    "client_metrics": "client-metrics", "user": "users", "client": "clients", "ip": "ips",
}  # fmt: skip
_DEFAULTS: Final = {
    "broker_defaults": "brokers", "user_defaults": "users", "client_defaults": "clients", "ip_defaults": "ips",
}  # fmt: skip
_COMPLETED: Final = {"topics": topic_names, "groups": group_names}


class Entity(NamedTuple):
    """One entity; ``name`` is None for the type's default, ``every`` is true for all entities of the type."""

    kind: str
    name: str | None
    every: bool = False


def entity_options(types: Sequence[str]) -> Callable[[F], F]:
    """Add the options for entities of these types: ``--topic NAME`` and its siblings, and Kafka's --entity-type."""

    def decorate(function: F) -> F:
        for flag, kind in reversed(_SHORT.items()):
            if kind in types:
                by = "id" if kind.startswith("broker") else "name"
                function = click.option(
                    f"--{flag.replace('_', '-')}",
                    flag,
                    metavar=by.upper(),
                    shell_complete=_COMPLETED.get(kind),
                    help=f"One of the {kind.replace('-', ' ')}, by its {by}.",
                )(function)
        for flag, kind in reversed(_DEFAULTS.items()):
            if kind in types:
                name = f"--{flag.replace('_', '-')}"
                function = click.option(name, flag, is_flag=True, help=f"The default of {kind}.")(function)
        function = click.option("--entity-default", is_flag=True, multiple=False, hidden=True)(function)
        function = click.option("--entity-name", "entity_names", multiple=True, metavar="NAME", hidden=True)(function)
        return click.option(
            "--entity-type",
            "entity_types",
            multiple=True,
            type=click.Choice(list(types)),
            help="All entities of a type, or one with --entity-name.",
        )(function)

    return decorate


def chosen_entities(
    types: tuple[str, ...],
    names: tuple[str, ...],
    default: bool,
    flags: Mapping[str, Any],
    *,
    needs_name: bool,
    may_be_none: bool = False,
) -> list[Entity]:
    """Return the entities that the options of `entity_options` name.

    Raises:
        UsageError: none is named, unless ``may_be_none``; several do not go together; one without a name
            although ``needs_name``.
    """
    found = [Entity(_SHORT[flag], flags[flag]) for flag in _SHORT if flags.get(flag) is not None]
    found += [Entity(kind, None) for flag, kind in _DEFAULTS.items() if flags.get(flag)]
    if len(names) + default > len(types):
        raise click.UsageError("--entity-name and --entity-default need a preceding --entity-type.")
    given: list[str | None] = [*names, *([None] if default else [])]
    for number, kind in enumerate(types):
        known = number < len(given)
        found.append(Entity(kind, given[number] if known else None, every=not known))
    kinds = [entity.kind for entity in found]
    if not found and not may_be_none:
        offered = [flag for flag in ("topic", "broker", "user", "client", "ip") if flag in flags]
        raise click.UsageError(f"No entity: give {', '.join(f'--{flag} NAME' for flag in offered)}, …")
    if len(set(kinds)) < len(kinds) or (len(kinds) > 1 and set(kinds) != {"users", "clients"}):
        raise click.UsageError("More than one entity: give one, or a user together with a client.")
    for entity in found:
        if entity.every and needs_name:
            raise click.UsageError(f"--entity-type {entity.kind} needs --entity-name.")
        if entity.name is None and not entity.every and entity.kind not in (*QUOTA_PARTS, "brokers"):
            raise click.UsageError(f"--entity-default: {entity.kind} have no default.")
    return found


def words(entities: Sequence[Entity]) -> str:
    """Return the entities as they stand in a sentence, in the words of ``kafka-configs``."""
    return " and ".join(
        f"{entity.kind.removesuffix('s')} {entity.name}" if entity.name is not None else f"the default of {entity.kind}"
        for entity in entities
    )


def quota_entity(entities: Sequence[Entity]) -> QuotaEntity:
    """Return the entity of a quota from a user, a client, a user and a client, or an address."""
    from triokafka.client.admin import QuotaEntity

    return QuotaEntity.of(**{QUOTA_PARTS[entity.kind]: entity.name for entity in entities})
