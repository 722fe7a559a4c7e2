"""The interface through which `ReplicaManager` reports to the coordinators of a broker."""

from __future__ import annotations

from typing import Protocol

from triokafka.named_tuple import NamedTuple
from triokafka.structs import TopicPartition


class LeadershipChange(NamedTuple):
    """A partition whose role on this broker changed; ``leader_epoch`` is -1 when the broker no longer hosts it."""

    topic_partition: TopicPartition
    leads: bool
    leader_epoch: int


class ReplicaListener(Protocol):
    """Follows the partitions of a broker."""

    def high_watermark_rose(self, topic_partition: TopicPartition, offset: int) -> None:
        """Handle the new high watermark ``offset`` of a partition."""

    def reopened(self, change: LeadershipChange) -> None:
        """Handle a partition that is online after its log could not be opened, with its role in the image."""
