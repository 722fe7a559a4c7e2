"""Two sides of a flow that are one cluster, by its id and by an address or a topic in common."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from triokafka.client.admin.types import ClusterDescription, TopicListing
from triokafka.mirror.cycles import are_one_cluster
from triokafka.structs import Node

ORDERS, OTHER = uuid.UUID(int=7), uuid.UUID(int=8)


def side(cluster_id: str | None, port: int, topic_id: uuid.UUID) -> Any:
    async def describe_cluster() -> ClusterDescription:
        return ClusterDescription(cluster_id, None, (Node(1, "localhost", port),))

    async def list_topics() -> list[TopicListing]:
        return [TopicListing("orders", topic_id, is_internal=False)]

    return SimpleNamespace(admin=SimpleNamespace(describe_cluster=describe_cluster, list_topics=list_topics))


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (side("a", 9092, ORDERS), side("b", 9092, OTHER), False),
        (side("a", 9092, ORDERS), side("a", 9092, ORDERS), True),
        pytest.param(side("a", 9092, ORDERS), side("a", 9094, ORDERS), True, id="two listeners"),
        pytest.param(side("a", 9092, ORDERS), side("a", 9094, OTHER), False, id="two containers of one image"),
        pytest.param(side("a", 9092, uuid.UUID(int=0)), side("a", 9094, uuid.UUID(int=0)), False, id="no topic ids"),
        pytest.param(side(None, 9092, uuid.UUID(int=0)), side(None, 9092, uuid.UUID(int=0)), True, id="no cluster id"),
    ],
)
async def test_cluster_id_with_an_address_or_a_topic_tells_one_cluster(
    source: Any, target: Any, expected: bool
) -> None:
    assert await are_one_cluster(source, target) is expected
