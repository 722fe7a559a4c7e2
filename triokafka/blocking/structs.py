"""The value types of ``kafka.structs``."""

from __future__ import annotations

from typing import NamedTuple

from triokafka.structs import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

__all__ = [
    "ConsumerGroupMetadata",
    "MemberState",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "TopicPartition",
    "TopicPartitionReplica",
]


class TopicPartitionReplica(NamedTuple):
    """A partition on one broker."""

    topic: str
    partition: int
    broker_id: int


class MemberState:
    """A consumer's member id and generation in its group."""

    UNJOINED = "<unjoined>"
    REBALANCING = "<rebalancing>"
    STABLE = "<stable>"


class ConsumerGroupMetadata(NamedTuple):
    """A consumer's membership at one moment (KIP-447). ``state`` is one of `MemberState`."""

    group_id: str | None = None
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    state: str = MemberState.UNJOINED
