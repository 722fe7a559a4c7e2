"""Arguments of the wrong type: `AdminClient` raises at once, names the argument, and sends nothing."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Mapping
from typing import Any

import pytest

from triokafka import AdminClient, ConfigResource, NewTopic, TopicPartition
from triokafka.client.admin import AlterConfig, ConfigResourceType, NewPartitions
from triokafka.client.admin.arguments import checked
from triokafka.errors import ClosedError, UnencodableValueError
from triokafka.structs import OffsetAndMetadata
from triokafka.testing import running_broker

T0 = TopicPartition("t", 0)
TOPIC = ConfigResource(ConfigResourceType.TOPIC, "t")


def admin() -> Any:
    """Return a client that is not open: arguments are checked before anything else."""
    return AdminClient(bootstrap_servers="127.0.0.1:1")


WRONG: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("describe_configs", ("t",), {}, "resources must be an iterable of ConfigResource, not str 't'"),
    ("describe_configs", (["t"],), {}, r"resources\[0\] must be ConfigResource, not str 't'"),
    ("describe_configs", ([ConfigResource("topic", "t")],), {}, r"resources\[0\].type must be ConfigResourceType"),  # type: ignore[arg-type]
    ("describe_configs", ([ConfigResource(ConfigResourceType.TOPIC, 5)],), {}, r"resources\[0\].name must be str"),  # type: ignore[arg-type]
    ("describe_configs", ([TOPIC],), {"keys": "retention.ms"}, "keys must be an iterable of str or None, not str"),
    ("describe_configs", ([TOPIC],), {"include_synonyms": "yes"}, "include_synonyms must be bool"),
    ("describe_configs", (None,), {}, "resources must be an iterable of ConfigResource, not NoneType None"),
    ("create_topics", ("orders",), {}, "topics must be an iterable of NewTopic or str, not str 'orders'"),
    ("create_topics", ([5],), {}, r"topics\[0\] must be NewTopic or str, not int 5"),
    ("create_topics", ([NewTopic("t", "3")],), {}, r"topics\[0\].num_partitions must be int, not str '3'"),  # type: ignore[arg-type]
    ("create_topics", ([NewTopic("t", configs={"retention.ms": 5})],), {}, r"configs\['retention.ms'\] must be str"),  # type: ignore[dict-item]
    ("delete_topics", ("orders",), {}, "topics must be an iterable of str or UUID"),
    ("create_partitions", ({"t": "3"},), {}, r"partitions\['t'\] must be int or NewPartitions"),
    ("create_partitions", ([("t", 3)],), {}, "partitions must be a mapping of str to int or NewPartitions"),
    ("create_partitions", ({"t": NewPartitions("3")},), {}, r"partitions\['t'\].total must be int"),  # type: ignore[arg-type]
    ("alter_configs", ({TOPIC: {"a": 1}},), {}, "must be str or None, not int 1"),
    ("incremental_alter_configs", ({"t": {}},), {}, "a key of changes must be ConfigResource, not str 't'"),
    ("incremental_alter_configs", ({TOPIC: [AlterConfig("a", 1)]},), {}, r"\[0\].value must be str or None"),  # type: ignore[arg-type]
    ("reset_configs", ({TOPIC: "a"},), {}, "must be an iterable of str, not str 'a'"),
    ("delete_records", ({T0: "5"},), {}, "must be int, not str '5'"),
    ("delete_records", ({("t", 0): 5},), {}, "a key of offsets must be TopicPartition, not tuple"),
    ("list_offsets", ([T0],), {}, "partitions must be a mapping of TopicPartition to str or int"),
    ("list_offsets", ({TopicPartition("t", "0"): 1},), {}, "a key of partitions.partition must be int"),  # type: ignore[arg-type]
    ("describe_groups", ("g",), {}, "group_ids must be an iterable of str, not str 'g'"),
    ("delete_groups", ([b"g"],), {}, r"group_ids\[0\] must be str, not bytes b'g'"),
    ("alter_group_offsets", (None, {}), {}, "group_id must be str, not NoneType None"),
    ("alter_group_offsets", ("g", {T0: OffsetAndMetadata("5")}), {}, "offset must be int, not str '5'"),  # type: ignore[arg-type]
    ("describe_producers", (T0,), {}, "partitions must be an iterable of TopicPartition, not TopicPartition"),
    ("elect_leaders", ([T0],), {"election_type": "preferred"}, "election_type must be ElectionType"),
    ("describe_topic_partitions", (["t"],), {"cursor": "t"}, "cursor must be a tuple of"),
    ("unregister_broker", ("1",), {}, "broker_id must be int, not str '1'"),
    ("unregister_broker", (True,), {}, "broker_id must be int, not bool True"),
    ("assume_coordinator", ("g", 1), {}, "group_ids must be an iterable of str"),
    ("list_topics", (), {"timeout_ms": "5"}, "timeout_ms must be a number or None, not str '5'"),
]


@pytest.mark.parametrize(("method", "arguments", "keywords", "message"), WRONG)
async def test_wrong_type_raises_at_once_and_names_the_argument(
    method: str, arguments: tuple[Any, ...], keywords: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(TypeError, match=message) as raised:
        await getattr(admin(), method)(*arguments, **keywords)
    assert str(raised.value).startswith(f"{method}(): ")


METHODS = [
    name for name, member in inspect.getmembers(AdminClient, inspect.iscoroutinefunction) if not name.startswith("_")
]


@pytest.mark.parametrize("method", METHODS)
async def test_every_call_refuses_an_object_as_any_argument(method: str) -> None:
    signature = inspect.signature(getattr(admin(), method))
    for parameter in signature.parameters.values():
        required = {
            other.name: object()
            for other in signature.parameters.values()
            if other.default is other.empty and other is not parameter
        }
        with pytest.raises(TypeError, match=f"{method}\\(\\): "):
            await getattr(admin(), method)(**required, **{parameter.name: object()})


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("timeout_ms", [-1, float("nan")])
async def test_every_call_refuses_a_negative_time_limit(method: str, timeout_ms: float) -> None:
    required = {
        "group_id": "g",
        "node_id": 1,
        "broker_id": 1,
        "members": [],
        "group_ids": [],
        "topics": [],
        "resources": [],
        "partition": TopicPartition("orders", 0),
        "producer_id": 1,
        "producer_epoch": 1,
        "coordinator_epoch": 1,
        "transactional_id": "t",
        "voter_id": 1,
        "directory_id": uuid.UUID(int=1),
        "hmac": b"secret",
        "offset": 0,
    }
    signature = inspect.signature(getattr(admin(), method))
    given = {
        other.name: required.get(other.name, {} if "Mapping" in str(other.annotation) else [])
        for other in signature.parameters.values()
        if other.default is other.empty
    }
    with pytest.raises((ValueError, TypeError), match="timeout_ms"):
        await getattr(admin(), method)(**given, timeout_ms=timeout_ms)


async def test_iterators_are_read_once_and_reach_the_call() -> None:
    async with running_broker() as broker, AdminClient(bootstrap_servers=broker.bootstrap_servers) as client:
        await client.create_topics(NewTopic(name, 1, 1) for name in ("a", "b"))
        assert {topic.name for topic in await client.list_topics()} == {"a", "b"}


async def test_value_that_no_request_can_encode_is_raised_instead_of_reported_per_item() -> None:
    async with running_broker() as broker, AdminClient(bootstrap_servers=broker.bootstrap_servers) as client:
        with pytest.raises(UnencodableValueError, match="num_partitions"):
            await client.create_topics([NewTopic("t", 2**40, 1)])
        with pytest.raises(UnencodableValueError, match="partition"):
            await client.list_partition_reassignments([TopicPartition("t", 2**40)])


async def test_right_arguments_pass_the_check() -> None:
    with pytest.raises(ClosedError):
        await admin().describe_configs(iter([TOPIC]), keys=("retention.ms",), timeout_ms=0)
    with pytest.raises(ClosedError):
        await admin().describe_topics({"t": 1}.keys())


def test_checked_keeps_the_signature_and_the_docstring() -> None:
    def call(names: list[str]) -> list[str]:
        """Say what there is."""
        return names

    wrapped = checked(call)
    assert (wrapped.__doc__, inspect.signature(wrapped)) == (call.__doc__, inspect.signature(call))
    assert wrapped(["a"]) == ["a"]
    assert inspect.iscoroutinefunction(AdminClient.list_topics)


def test_client_has_the_methods_of_its_areas_with_their_signatures_and_docstrings() -> None:
    found: dict[str, Any] = {}
    for area in admin()._areas:
        found |= {name: member for name, member in vars(area).items() if not name.startswith("_")}
    assert sorted(found) == sorted(METHODS)
    for name, function in found.items():
        method = getattr(AdminClient, name)
        assert inspect.signature(method) == inspect.signature(function)
        assert method.__doc__ == function.__doc__
