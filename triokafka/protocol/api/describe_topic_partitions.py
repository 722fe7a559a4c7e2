"""DescribeTopicPartitions (API key 75)."""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int16, Int32, String, Uuid


class TopicRequest(Struct):
    """One item of ``topics``."""

    name: str = field(String, doc="Name.")


class Cursor(Struct):
    """One item of ``cursor``."""

    topic_name: str = field(String, doc="Topic name.")
    partition_index: int = field(Int32, doc="Partition index.")


class DescribeTopicPartitionsRequest(
    Request["DescribeTopicPartitionsResponse"], api_key=75, versions="0", flexible="0+"
):
    """Ask."""

    topics: list[TopicRequest] = field(Array(TopicRequest), doc="Topics.")
    response_partition_limit: int = field(Int32, default=2000, doc="Response partition limit.")
    cursor: Cursor | None = field(Cursor, nullable="0+", default=None, doc="Cursor.")


class DescribeTopicPartitionsResponsePartition(Struct):
    """One item of ``partitions``."""

    error_code: int = field(Int16, doc="Error code.")
    partition_index: int = field(Int32, doc="Partition index.")
    leader_id: int = field(Int32, doc="Leader id.")
    leader_epoch: int = field(Int32, ignorable=True, default=-1, doc="Leader epoch.")
    replica_nodes: list[int] = field(Array(Int32), doc="Replica nodes.")
    isr_nodes: list[int] = field(Array(Int32), doc="Isr nodes.")
    eligible_leader_replicas: list[int] | None = field(
        Array(Int32),
        nullable="0+",
        default=None,
        doc="Eligible leader replicas.",
    )
    last_known_elr: list[int] | None = field(Array(Int32), nullable="0+", default=None, doc="Last known elr.")
    offline_replicas: list[int] = field(Array(Int32), ignorable=True, doc="Offline replicas.")


class DescribeTopicPartitionsResponseTopic(Struct):
    """One item of ``topics``."""

    error_code: int = field(Int16, doc="Error code.")
    name: str | None = field(String, nullable="0+", doc="Name.")
    topic_id: UUID = field(Uuid, ignorable=True, doc="Topic id.")
    is_internal: bool = field(Boolean, ignorable=True, doc="Is internal.")
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(
        Array(DescribeTopicPartitionsResponsePartition),
        doc="Partitions.",
    )
    topic_authorized_operations: int = field(Int32, default=-(2**31), doc="Topic authorized operations.")


class DescribeTopicPartitionsResponse(Response, api_key=75, versions="0", flexible="0+"):
    """The answer."""

    throttle_time_ms: int = field(Int32, ignorable=True, doc="Throttle time ms.")
    topics: list[DescribeTopicPartitionsResponseTopic] = field(
        Array(DescribeTopicPartitionsResponseTopic),
        doc="Topics.",
    )
    next_cursor: Cursor | None = field(Cursor, nullable="0+", default=None, doc="Next cursor.")
