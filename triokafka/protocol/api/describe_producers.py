"""DescribeProducers (API key 61): which producers a partition's leader remembers (KIP-664).

Version 0; flexible.
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, Int64, String


class TopicRequest(Struct):
    """A topic and some of its partitions."""

    name: str = field(String, doc="The topic's name.")
    partition_indexes: list[int] = field(Array(Int32), doc="Numbers of the partitions.")


class DescribeProducersRequest(Request["DescribeProducersResponse"], api_key=61, versions="0", flexible="0+"):
    """Ask for the producers of partitions."""

    topics: list[TopicRequest] = field(Array(TopicRequest), doc="The topics.")


class ProducerState(Struct):
    """One producer."""

    producer_id: int = field(Int64, doc="The producer's id.")
    producer_epoch: int = field(Int32, doc="The producer's epoch.")
    last_sequence: int = field(Int32, default=-1, doc="The sequence number of its last record; -1 when unknown.")
    last_timestamp: int = field(Int64, default=-1, doc="The timestamp of its last batch in ms; -1 when unknown.")
    coordinator_epoch: int = field(
        Int32, doc="The epoch of the coordinator that ended its last transaction; -1 when none did."
    )
    current_txn_start_offset: int = field(
        Int64, default=-1, doc="The first offset of the open transaction; -1 without one."
    )


class PartitionResponse(Struct):
    """One partition and its producers."""

    partition_index: int = field(Int32, doc="The partition's number.")
    error_code: int = field(
        Int16,
        doc="The error code; 0 means success.",
        errors=(
            "UnknownTopicOrPartitionError",
            "NotLeaderForPartitionError",
            "TopicAuthorizationFailedError",
            "InvalidTopicError",
        ),
    )
    error_message: str | None = fields.error_message(nullable="0+", default=None)
    active_producers: list[ProducerState] = field(Array(ProducerState), doc="The producers that are remembered.")


class TopicResponse(Struct):
    """A topic."""

    name: str = field(String, doc="The topic's name.")
    partitions: list[PartitionResponse] = field(Array(PartitionResponse), doc="The partitions.")


class DescribeProducersResponse(Response, api_key=61, versions="0", flexible="0+"):
    """The producers by partition."""

    throttle_time_ms: int = fields.throttle_time_ms()
    topics: list[TopicResponse] = field(Array(TopicResponse), doc="The topics.")
