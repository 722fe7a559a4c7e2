"""The interface through which `LogManager` reports to the owner of the partitions and reads high watermarks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.structs import TopicPartition


class LogListener(Protocol):
    """The owner of the partitions of a `LogManager`. All calls come from the event loop."""

    def high_watermark_of(self, topic_partition: TopicPartition) -> int | None:
        """Return the high watermark of a partition; None when no partition is hosted for the log."""

    def log_flushed(self, topic_partition: TopicPartition) -> None:
        """Handle an advanced recovery point of a log."""

    def logs_offline(self, topic_partitions: Sequence[TopicPartition], reason: str) -> None:
        """Handle logs that went offline because of ``reason``."""

    def log_moved(self, topic_partition: TopicPartition, log: PartitionLog) -> None:
        """Handle the move of a partition's log to another data directory; its records are the same."""
