"""The value types of ``aiokafka.structs``."""

from __future__ import annotations

from typing import NamedTuple

from triokafka.asyncio.records import ConsumerRecord
from triokafka.structs import TopicPartition

__all__ = [
    "BrokerMetadata",
    "ConsumerRecord",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionMetadata",
    "RecordMetadata",
    "TopicPartition",
]


class BrokerMetadata(NamedTuple):
    """A broker of the cluster. ``rack`` is None if it has none."""

    nodeId: int | str
    host: str
    port: int
    rack: str | None


class PartitionMetadata(NamedTuple):
    """A partition as metadata names it. ``leader`` is -1 without a leader."""

    topic: str
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    error: Exception | None


class OffsetAndMetadata(NamedTuple):
    """A committed position: the next offset to read, and the committer's own text."""

    offset: int
    metadata: str


class OffsetAndTimestamp(NamedTuple):
    """The result of a lookup by time. ``timestamp`` is milliseconds since the epoch."""

    offset: int
    timestamp: int | None


class RecordMetadata(NamedTuple):
    """Where a record was written.

    ``timestamp`` is milliseconds since the epoch. ``timestamp_type`` is 0 for the sender's time, 1 for the broker's.
    ``log_start_offset`` is None.
    """

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int | None
    timestamp_type: int
    log_start_offset: int | None
