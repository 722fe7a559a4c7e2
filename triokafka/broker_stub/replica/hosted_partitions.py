"""The partitions that a broker hosts, and the requests that wait for them."""

from __future__ import annotations

from collections.abc import Iterable

from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.broker_stub.purgatory.delayed_operation import Purgatory
from triokafka.broker_stub.replica.partition import Partition
from triokafka.broker_stub.replica.replica_listener import ReplicaListener
from triokafka.structs import TopicPartition


class HostedPartitions:
    """The partitions that one broker hosts.

    ``online`` has the partitions with usable logs, ``failed`` the reasons why the others are offline.
    """

    def __init__(
        self, produce_purgatory: Purgatory, fetch_purgatory: Purgatory, listener: ReplicaListener | None
    ) -> None:
        self.online: dict[tuple[str, int], Partition] = {}
        self.failed: dict[tuple[str, int], str] = {}
        self._produce_purgatory = produce_purgatory
        self._fetch_purgatory = fetch_purgatory
        self._listener = listener

    def find(self, topic: str, partition: int) -> Partition | None:
        """Return a hosted partition that is online, or None."""
        return self.online.get((topic, partition))

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Return the content of the high watermark checkpoint."""
        return {partition.topic_partition: partition.high_watermark for partition in self.online.values()}

    # -- changes that waiting requests may be waiting for

    def appended(self, partition: Partition) -> None:
        """Raise the high watermark after an append if possible, and complete requests that wait for the records."""
        topic_partition = partition.topic_partition
        if partition.advance_high_watermark():
            self._report_high_watermark(partition)
            self._produce_purgatory.check_and_complete(topic_partition)
        self._fetch_purgatory.check_and_complete(topic_partition)

    def advance_high_watermark(self, partition: Partition) -> None:
        """Raise the high watermark if possible, and complete waiting requests."""
        if partition.advance_high_watermark():
            self._report_high_watermark(partition)
        self.complete_waiting(partition.topic_partition)

    def follower_fetched(self, partition: Partition, replica_id: int, fetch_offset: int, now: float) -> None:
        """Update the progress of a follower; see `Partition.follower_fetched`."""
        if partition.follower_fetched(replica_id, fetch_offset, now):
            self._report_high_watermark(partition)
            self.complete_waiting(partition.topic_partition)

    def complete_waiting(self, topic_partition: TopicPartition) -> None:
        """Complete the waiting requests whose conditions hold now."""
        self._produce_purgatory.check_and_complete(topic_partition)
        self._fetch_purgatory.check_and_complete(topic_partition)

    def _report_high_watermark(self, partition: Partition) -> None:
        if self._listener is not None:
            self._listener.high_watermark_rose(partition.topic_partition, partition.high_watermark)

    # -- reports of the logs

    def flushed(self, topic_partition: TopicPartition) -> None:
        """Handle an advanced recovery point: with ``flush.messages``, more records may be committed now."""
        partition = self.online.get(topic_partition)
        if partition is not None:
            self.advance_high_watermark(partition)

    def log_moved(self, topic_partition: TopicPartition, log: PartitionLog) -> None:
        """Use ``log``, which has the same records in another data directory."""
        partition = self.online.get(topic_partition)
        if partition is not None:
            partition.log = log
            self.flushed(topic_partition)

    def logs_offline(self, topic_partitions: Iterable[TopicPartition], reason: str) -> None:
        """Take partitions offline whose logs went offline. Waiting and later requests fail with ``reason``."""
        for topic_partition in topic_partitions:
            if self.online.pop(topic_partition, None) is not None:
                self.failed[topic_partition] = reason
                self.complete_waiting(topic_partition)
