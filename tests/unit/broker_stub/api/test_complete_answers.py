"""Answers are as complete as clients count on: as many items as were asked for, and lists where they look for lists.

librdkafka ends its process when an admin answer has fewer items than the request, and the Java client fails on a list
that is null.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.odd_requests import request
from tests.unit.broker_stub.api.node import running_node
from triokafka.protocol.message import Struct

NAMES = ["t", "absent", "bad name", "", "..", "u"]
PARTITION = [{"partition_index": 0}]
UNKNOWN = [{"name": None, "topic_id": uuid.UUID(int=number)} for number in (7, 8, 9)]
USERS = [[{"entity_type": "user", "entity_name": name}] for name in NAMES]


def named(field: str, **others: Any) -> list[dict[str, Any]]:
    """An item for each name; some names are impossible or do not exist."""
    return [{field: name, **others} for name in NAMES]


def configured() -> list[dict[str, Any]]:
    """Every name as every kind of resource, and as an unknown kind."""
    return [{"resource_type": kind, "resource_name": name} for name in NAMES for kind in (2, 4, 8, 16, 32, 99)]


CASES: list[tuple[str, int, str, list[Any], str]] = [
    ("metadata", 9, "topics", named("name"), "topics"),
    ("find_coordinator", 4, "coordinator_keys", NAMES, "coordinators"),
    ("describe_groups", 5, "groups", NAMES, "groups"),
    ("consumer_group_describe", 1, "group_ids", NAMES, "groups"),
    ("delete_groups", 2, "groups_names", NAMES, "results"),
    ("offset_fetch", 9, "groups", named("group_id", topics=[]), "groups"),
    ("create_topics", 7, "topics", named("name", num_partitions=1, replication_factor=1), "topics"),
    ("create_topics", 4, "topics", named("name", num_partitions=1, replication_factor=1), "topics"),
    ("create_partitions", 3, "topics", named("name", count=3, assignments=None), "results"),
    ("delete_topics", 5, "topic_names", NAMES, "responses"),
    ("delete_topics", 6, "topics", [*named("name"), *UNKNOWN], "responses"),
    ("describe_configs", 4, "resources", configured(), "results"),
    ("alter_configs", 2, "resources", configured(), "responses"),
    ("incremental_alter_configs", 1, "resources", configured(), "responses"),
    ("alter_client_quotas", 1, "entries", [{"entity": user, "ops": []} for user in USERS], "entries"),
    ("describe_transactions", 0, "transactional_ids", NAMES, "transaction_states"),
    ("create_acls", 3, "creations", named("resource_name"), "results"),
    ("delete_acls", 3, "filters", named("resource_name_filter"), "filter_results"),
    ("list_offsets", 7, "topics", named("name", partitions=[{"partition_index": 0, "timestamp": -1}]), "topics"),
    ("offset_for_leader_epoch", 4, "topics", named("topic", partitions=[{"partition": 0}]), "topics"),
    ("delete_records", 2, "topics", named("name", partitions=[{"partition_index": 0, "offset": 0}]), "topics"),
    ("describe_producers", 0, "topics", named("name", partition_indexes=[0]), "topics"),
    ("describe_topic_partitions", 0, "topics", named("name"), "topics"),
    ("describe_quorum", 2, "topics", named("topic_name", partitions=PARTITION), "topics"),
    ("elect_leaders", 2, "topic_partitions", named("topic", partitions=[0]), "replica_election_results"),
    (
        "alter_partition_reassignments",
        1,
        "topics",
        named("name", partitions=[{"partition_index": 0, "replicas": [1]}]),
        "responses",
    ),
    (
        "update_features",
        1,
        "feature_updates",
        [{"feature": name, "max_version_level": 1, "upgrade_type": 1} for name in NAMES],
        "results",
    ),
]


def nulls(struct: Struct, path: str) -> Iterator[str]:
    """The lists of an answer that are null."""
    for field in type(struct).__fields__:
        value = getattr(struct, field.name)
        if field.is_array and value is None:
            yield f"{path}.{field.name}"
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, Struct):
                yield from nulls(item, f"{path}.{field.name}")


@pytest.mark.parametrize(("api", "version", "field", "asked", "answered"), CASES)
async def test_answer_has_as_many_items_as_the_request_and_no_list_is_null(
    api: str, version: int, field: str, asked: list[Any], answered: str
) -> None:
    """This includes items that fail."""
    async with running_node(auto_create_topics_enable=False) as node:
        await node.create("t")
        await node.create("u")
        whole = request(api, {field: asked})
        if hasattr(whole, "timeout_ms"):
            whole.timeout_ms = 5000
        response = await node.call(whole, version)
    assert len(getattr(response, answered)) == len(asked)
    assert list(nulls(response, "")) == []
