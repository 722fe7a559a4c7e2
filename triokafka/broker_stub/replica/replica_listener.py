"""What `ReplicaManager` reports to the coordinators of a broker."""

from __future__ import annotations

from typing import Protocol

from triokafka.named_tuple import NamedTuple
from triokafka.structs import TopicPartition


class LeadershipChange(NamedTuple):
    """A partition whose role on this broker changed; ``leader_epoch`` is -1 when the partition is gone from here."""

    topic_partition: TopicPartition
    leads: bool
    leader_epoch: int


class ReplicaListener(Protocol):
    """Follows the partitions of a broker."""

    def high_watermark_rose(self, topic_partition: TopicPartition, offset: int) -> None:
        """The high watermark of a partition is ``offset`` now."""

    def reopened(self, change: LeadershipChange) -> None:
        """A partition whose log could not be opened is online, with the role that the image gives it."""
