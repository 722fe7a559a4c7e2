"""DescribeTopicPartitions (API key 75): partitions of topics, page by page (KIP-966).

Version 0; flexible from 0.
"""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, String, Uuid


class TopicRequest(Struct):
    """A topic, by name."""

    name: str = field(
        String,
        doc="The topic's name.",
        errors=("UnknownTopicOrPartitionError", "InvalidTopicError", "TopicAuthorizationFailedError"),
    )


class Cursor(Struct):
    """A partition at which a page starts."""

    topic_name: str = field(String, doc="The topic's name.")
    partition_index: int = field(Int32, doc="The first partition of the page.")


class DescribeTopicPartitionsRequest(
    Request["DescribeTopicPartitionsResponse"], api_key=75, versions="0", flexible="0+"
):
    """Ask for a page of partitions."""

    topics: list[TopicRequest] = field(Array(TopicRequest), doc="The topics, in order of their names; empty for all.")
    response_partition_limit: int = field(Int32, default=2000, doc="At most how many partitions on the page.")
    cursor: Cursor | None = field(
        Cursor,
        nullable="0+",
        default=None,
        doc="The start of the page; null for the first page.",
    )


class DescribeTopicPartitionsResponsePartition(Struct):
    """A partition's leader and replicas."""

    error_code: int = field(
        Int16,
        doc="Whether the partition is usable.",
        errors=("LeaderNotAvailableError", "ListenerNotFoundError"),
    )
    partition_index: int = field(Int32, doc="The partition's number.")
    leader_id: int = field(Int32, doc="The leader's broker id; -1 for none.")
    leader_epoch: int = fields.leader_epoch(ignorable=True)
    replica_nodes: list[int] = field(
        Array(Int32),
        doc="The brokers that hold the partition, the preferred leader first.",
    )
    isr_nodes: list[int] = field(Array(Int32), doc="Those of them that are in sync.")
    eligible_leader_replicas: list[int] | None = fields.eligible_leader_replicas(nullable="0+")
    last_known_elr: list[int] | None = fields.last_known_elr(nullable="0+")
    offline_replicas: list[int] = field(Array(Int32), ignorable=True, doc="Those of them that are offline.")


class DescribeTopicPartitionsResponseTopic(Struct):
    """A topic and its partitions on this page."""

    error_code: int = field(
        Int16,
        doc="The error code of the topic; 0 for success.",
        errors=("UnknownTopicOrPartitionError", "InvalidTopicError", "TopicAuthorizationFailedError"),
    )
    name: str | None = field(String, nullable="0+", doc="The topic's name.")
    topic_id: UUID = field(Uuid, ignorable=True, doc="The topic's id.")
    is_internal: bool = fields.is_internal(ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(
        Array(DescribeTopicPartitionsResponsePartition),
        doc="Its partitions on the page.",
    )
    topic_authorized_operations: int = fields.topic_authorized_operations()


class DescribeTopicPartitionsResponse(Response, api_key=75, versions="0", flexible="0+"):
    """A page of partitions."""

    throttle_time_ms: int = fields.throttle_time_ms(ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = field(
        Array(DescribeTopicPartitionsResponseTopic),
        doc="The topics on the page.",
    )
    next_cursor: Cursor | None = field(
        Cursor,
        nullable="0+",
        default=None,
        doc="The start of the next page; null on the last page.",
    )
