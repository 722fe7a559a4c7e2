"""ListPartitionReassignments (API key 46): which partitions are being moved (KIP-455).

Version 0; flexible.
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int32, String


class ListPartitionReassignmentsTopics(Struct):
    """A topic and some of its partitions."""

    name: str = field(String, doc="The topic's name.")
    partition_indexes: list[int] = field(Array(Int32), doc="Numbers of the partitions.")


class ListPartitionReassignmentsRequest(
    Request["ListPartitionReassignmentsResponse"], api_key=46, versions="0", flexible="0+"
):
    """Ask for reassignments in progress."""

    timeout_ms: int = fields.timeout_ms(default=60000, errors=())
    topics: list[ListPartitionReassignmentsTopics] | None = field(
        Array(ListPartitionReassignmentsTopics),
        nullable="0+",
        default=None,
        doc="The partitions to look at; null for all.",
    )


class OngoingPartitionReassignment(Struct):
    """One partition that is being moved."""

    partition_index: int = field(Int32, doc="The partition's number.")
    replicas: list[int] = field(
        Array(Int32), doc="All brokers that hold the partition now, those that come and go included."
    )
    adding_replicas: list[int] = field(Array(Int32), doc="Brokers that are to hold it.")
    removing_replicas: list[int] = field(Array(Int32), doc="Brokers that are to give it up.")


class OngoingTopicReassignment(Struct):
    """A topic with partitions that are being moved."""

    name: str = field(String, doc="The topic's name.")
    partitions: list[OngoingPartitionReassignment] = field(
        Array(OngoingPartitionReassignment), doc="The partitions that are being moved."
    )


class ListPartitionReassignmentsResponse(Response, api_key=46, versions="0", flexible="0+"):
    """The reassignments in progress."""

    throttle_time_ms: int = fields.throttle_time_ms()
    error_code: int = fields.reassignments_error_code()
    error_message: str | None = fields.error_message(nullable="0+")
    topics: list[OngoingTopicReassignment] = field(
        Array(OngoingTopicReassignment), doc="Topics with partitions that are being moved."
    )
