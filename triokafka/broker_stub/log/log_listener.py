"""What `LogManager` reports to the owner of the partitions, and what it asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.structs import TopicPartition


class LogListener(Protocol):
    """The owner of the partitions whose logs a `LogManager` has. All calls come from the event loop."""

    def high_watermark_of(self, topic_partition: TopicPartition) -> int | None:
        """Return the high watermark of a partition; None when no partition is hosted for the log."""

    def log_flushed(self, topic_partition: TopicPartition) -> None:
        """More of a log is on disk."""

    def logs_offline(self, topic_partitions: Sequence[TopicPartition], reason: str) -> None:
        """Logs cannot be used any longer, for ``reason``."""

    def log_moved(self, topic_partition: TopicPartition, log: PartitionLog) -> None:
        """The log of a partition is in another data directory, with the same records."""
