"""The changes that the page may make, when changes are allowed. Every function takes the JSON that the page sends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from triokafka.client.admin import AdminClient
from triokafka.client.admin.types import ConfigResource, NewTopic
from triokafka.client.producer.producer import Producer
from triokafka.console.cluster_view import ClusterView
from triokafka.protocol.configuration import ConfigResourceType
from triokafka.structs import TopicPartition

Change: TypeAlias = Callable[[ClusterView, Mapping[str, Any]], Awaitable[dict[str, Any] | None]]


class InvalidChangeError(ValueError):
    """The page, or another program, sent something that is not valid."""


class ReadOnlyError(Exception):
    """The console was started without ``--allow-changes``."""


def _text(given: Mapping[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidChangeError(f"{name} is missing")
    return value


def _number(given: Mapping[str, Any], name: str, least: int) -> int:
    value = given.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidChangeError(f"{name} must be a number, at least {least}")
    return value


async def create_topic(view: ClusterView, given: Mapping[str, Any]) -> None:
    """Create a topic: ``name``, ``partitions``, ``replication_factor`` (-1 for the cluster's default)."""
    configs = given.get("configs", {})
    if not isinstance(configs, dict):
        raise InvalidChangeError("configs must be an object")
    partitions, factor = _number(given, "partitions", 1), _number(given, "replication_factor", -1)
    await view.admin.create_topics([NewTopic(_text(given, "name"), partitions, factor, configs)])


async def delete_topic(view: ClusterView, given: Mapping[str, Any]) -> None:
    """Delete the topic ``name``; ``confirmed`` repeats the name."""
    name = _text(given, "name")
    if given.get("confirmed") != name:
        raise InvalidChangeError("the confirmation does not repeat the name")
    await view.admin.delete_topics([name])


async def add_partitions(view: ClusterView, given: Mapping[str, Any]) -> None:
    """Raise the number of partitions of the topic ``name`` to ``total``."""
    await view.admin.create_partitions({_text(given, "name"): _number(given, "total", 1)})


async def set_config(view: ClusterView, given: Mapping[str, Any]) -> None:
    """Set ``key`` of a topic or broker to ``value``; null restores the default."""
    kinds = {"topic": ConfigResourceType.TOPIC, "broker": ConfigResourceType.BROKER}
    kind = kinds.get(_text(given, "type"))
    value = given.get("value")
    if kind is None or not (value is None or isinstance(value, str)):
        raise InvalidChangeError("type must be topic or broker, and value a string or null")
    resource = ConfigResource(kind, _text(given, "name"))
    await view.admin.incremental_alter_configs({resource: {_text(given, "key"): value}})


async def send_record(view: ClusterView, given: Mapping[str, Any]) -> dict[str, Any]:
    """Send one record of texts: ``topic``, ``value``, ``key``, ``partition``, ``headers``."""
    key, value, headers = given.get("key"), given.get("value"), given.get("headers", {})
    partition = None if given.get("partition") is None else _number(given, "partition", 0)
    if not all(one is None or isinstance(one, str) for one in (key, value)) or not isinstance(headers, dict):
        raise InvalidChangeError("key and value must be strings or null, and headers an object of strings")
    async with Producer(**{**view.options, "client_id": "triokafka-console", "linger_ms": 0}) as producer:
        delivery = await producer.send(
            _text(given, "topic"),
            None if value is None else value.encode(),
            key=None if key is None else key.encode(),
            partition=partition,
            headers=[(str(name), str(text).encode()) for name, text in headers.items()],
        )
        metadata = await delivery
    return {"partition": metadata.partition, "offset": metadata.offset}


async def reset_group(view: ClusterView, given: Mapping[str, Any]) -> None:
    """Move the positions of a group without members: ``to`` is earliest, latest, an offset, or @MILLISECONDS."""
    group, topic, to = _text(given, "group"), _text(given, "topic"), _text(given, "to")
    described = (await view.admin.describe_topics([topic]))[topic]
    partitions = [TopicPartition(topic, one.partition) for one in described.partitions]
    await view.admin.alter_group_offsets(group, await _offsets(view.admin, partitions, to))


async def _offsets(admin: AdminClient, partitions: list[TopicPartition], to: str) -> dict[TopicPartition, int]:
    if to.isdigit():
        return dict.fromkeys(partitions, int(to))
    if to not in ("earliest", "latest") and not to.removeprefix("@").isdigit():
        raise InvalidChangeError("to must be earliest, latest, an offset, or @ and milliseconds since 1970")
    spec: str | int = int(to[1:]) if to.startswith("@") else to
    found = await admin.list_offsets(dict.fromkeys(partitions, spec))
    ends = await admin.list_offsets(dict.fromkeys(partitions, "latest"))
    return {one: found[one].offset if found[one].offset >= 0 else ends[one].offset for one in partitions}


async def delete_group(view: ClusterView, given: Mapping[str, Any]) -> None:
    """Delete a group without members; ``confirmed`` repeats its id."""
    group = _text(given, "group")
    if given.get("confirmed") != group:
        raise InvalidChangeError("the confirmation does not repeat the id")
    await view.admin.delete_groups([group])


CHANGES: Final[dict[str, Change]] = {
    "create-topic": create_topic,
    "delete-topic": delete_topic,
    "add-partitions": add_partitions,
    "set-config": set_config,
    "send-record": send_record,
    "reset-group": reset_group,
    "delete-group": delete_group,
}
"""The changes by the name in their address."""


def change_named(name: str, *, allowed: bool) -> Change | None:
    """Return the change with this name in its address, None if there is none.

    Raises:
        ReadOnlyError: changes are not allowed.
    """
    if not allowed:
        raise ReadOnlyError("this console is read-only: start it with --allow-changes")
    return CHANGES.get(name)
