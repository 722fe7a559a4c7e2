"""The partitions that a broker hosts, and the requests that wait for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import trio

from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.broker_stub.purgatory.delayed_operation import Purgatory
from triokafka.broker_stub.replica.in_sync_replicas import IsrProposal
from triokafka.broker_stub.replica.partition import Partition
from triokafka.broker_stub.replica.replica_listener import ReplicaListener
from triokafka.structs import TopicPartition


class HostedPartitions:
    """The partitions that one broker hosts.

    ``online`` has the partitions with usable logs, ``failed`` the reasons why the others are offline.

    Args:
        now: the world's monotonic clock in seconds.
        propose: sends a new in-sync set to the controller.
        append_failed: called with the error of an append.
    """

    def __init__(
        self,
        produce_purgatory: Purgatory,
        fetch_purgatory: Purgatory,
        delete_purgatory: Purgatory,
        listener: ReplicaListener | None,
        now: Callable[[], float],
        propose: Callable[[Partition, IsrProposal], None],
        append_failed: Callable[[TopicPartition, Exception], None] = lambda topic_partition, error: None,
    ) -> None:
        self.online: dict[tuple[str, int], Partition] = {}
        self.failed: dict[tuple[str, int], str] = {}
        self._produce_purgatory = produce_purgatory
        self._fetch_purgatory = fetch_purgatory
        self._delete_purgatory = delete_purgatory
        self._high_watermark_rose = _ignore if listener is None else listener.high_watermark_rose
        self._now = now
        self._interruptions: dict[int, int] = {}
        self._propose = propose
        self._flush_ended = trio.Event()
        self.append_failed = append_failed

    def take_out(self, topic_partition: TopicPartition) -> Partition | None:
        """Remove a partition from those that are online; return it if it was one of them."""
        partition = self.online.pop(topic_partition, None)
        if partition is not None:
            partition.log.changes.notify()
        return partition

    def find(self, topic: str, partition: int) -> Partition | None:
        """Return a hosted partition that is online, or None."""
        return self.online.get((topic, partition))

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """Return the content of the high watermark checkpoint."""
        return {partition.topic_partition: partition.high_watermark for partition in self.online.values()}

    # -- changes that complete waiting requests

    def appended(self, partition: Partition) -> None:
        """Raise the high watermark after an append if possible, and complete requests that wait for the records."""
        topic_partition = partition.topic_partition
        if partition.advance_high_watermark(self._now() if partition.followers else None):
            self._high_watermark_rose(topic_partition, partition.high_watermark)
            self._produce_purgatory.check_and_complete(topic_partition)
        self._fetch_purgatory.check_and_complete(topic_partition)

    def advance_high_watermark(self, partition: Partition) -> None:
        """Raise the high watermark if possible, and complete waiting requests."""
        if partition.advance_high_watermark(self._now() if partition.followers else None):
            self._high_watermark_rose(partition.topic_partition, partition.high_watermark)
        self.complete_waiting(partition.topic_partition)

    def follower_fetched(
        self, partition: Partition, replica_id: int, fetch_offset: int, *, log_start_offset: int, broker_epoch: int
    ) -> None:
        """Update the progress of a follower; see `Partition.follower_fetched`. It may join the in-sync set."""
        before = partition.followers.get(replica_id)
        start_before = -1 if before is None else before.log_start_offset
        rose = partition.follower_fetched(
            replica_id, fetch_offset, self._now(), log_start_offset=log_start_offset, broker_epoch=broker_epoch
        )
        proposal = partition.propose_expansion(replica_id)
        if proposal is not None:
            self._propose(partition, proposal)
        if rose:
            self._high_watermark_rose(partition.topic_partition, partition.high_watermark)
            self.complete_waiting(partition.topic_partition)
        if log_start_offset > start_before:
            self._delete_purgatory.check_and_complete(partition.topic_partition)

    def interruptions(self, replica_id: int) -> int:
        """Return how many times `interrupt_followers` has named a broker."""
        return self._interruptions.get(replica_id, 0)

    def interrupt_followers(self, replica_ids: Iterable[int]) -> None:
        """Answer the waiting fetches of brokers that have replicas of partitions which this broker leads now, or that
        are not fenced any more.

        Otherwise the brokers would fetch the new partitions, or join the in-sync sets, only after
        ``replica.fetch.wait.max.ms``.
        """
        for replica_id in replica_ids:
            self._interruptions[replica_id] = self.interruptions(replica_id) + 1
            self._fetch_purgatory.check_and_complete(follower_key(replica_id))

    def isr_changed(self, partition: Partition) -> None:
        """Handle a change of the in-sync set under the same leader: the high watermark may rise, and produces may be
        answered.

        Waiting fetches are checked only if it rose. Nothing else that they wait for has changed, and a follower's fetch
        may be of thousands of partitions, all of which a check looks at.
        """
        topic_partition = partition.topic_partition
        if partition.advance_high_watermark(self._now() if partition.followers else None):
            self._high_watermark_rose(partition.topic_partition, partition.high_watermark)
            self._fetch_purgatory.check_and_complete(topic_partition)
        self._produce_purgatory.check_and_complete(topic_partition)
        self._delete_purgatory.check_and_complete(topic_partition)

    def shrink_lagging(self, partition: Partition) -> None:
        """Propose to remove the followers of a partition that lag behind."""
        proposal = partition.propose_shrink(self._now())
        if proposal is not None:
            self._propose(partition, proposal)

    def followed(self, partition: Partition, high_watermark: int, log_start_offset: int) -> None:
        """Take over the leader's offsets on a follower; consumers may wait for them here (KIP-392)."""
        if partition.follow_offsets(high_watermark, log_start_offset):
            self._high_watermark_rose(partition.topic_partition, partition.high_watermark)
            self._fetch_purgatory.check_and_complete(partition.topic_partition)

    def complete_waiting(self, topic_partition: TopicPartition) -> None:
        """Complete the waiting requests whose conditions hold now."""
        self._produce_purgatory.check_and_complete(topic_partition)
        self._fetch_purgatory.check_and_complete(topic_partition)
        self._delete_purgatory.check_and_complete(topic_partition)

    # -- reports of the logs

    def flushed(self, topic_partition: TopicPartition) -> None:
        """Handle an advanced recovery point: with ``flush.messages``, more records may be committed now."""
        partition = self.online.get(topic_partition)
        if partition is not None:
            self.advance_high_watermark(partition)
        self._wake_flush_waiters()

    def _wake_flush_waiters(self) -> None:
        ended, self._flush_ended = self._flush_ended, trio.Event()
        ended.set()

    async def until_flushed(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Wait until ``flush.messages`` keeps no record back that partitions have now, or they are offline."""
        ends = {key: self.online[key].log.log_end_offset for key in topic_partitions if key in self.online}
        for key, end in ends.items():
            while (partition := self.online.get(key)) is not None and partition.log.usable:
                if partition.log.settled_offset >= min(end, partition.log.log_end_offset):
                    break
                await self._flush_ended.wait()

    def log_moved(self, topic_partition: TopicPartition, log: PartitionLog) -> None:
        """Use ``log``, which has the same records in another data directory."""
        partition = self.online.get(topic_partition)
        if partition is not None:
            partition.use_log(log)
            self.flushed(topic_partition)

    def logs_offline(self, topic_partitions: Iterable[TopicPartition], reason: str) -> None:
        """Take partitions offline whose logs went offline. Waiting and later requests fail with ``reason``."""
        for topic_partition in topic_partitions:
            if self.take_out(topic_partition) is not None:
                self.failed[topic_partition] = reason
                self.complete_waiting(topic_partition)
        self._wake_flush_waiters()


def _ignore(topic_partition: TopicPartition, offset: int) -> None:
    """Drop the notice of a new high watermark."""


def follower_key(replica_id: int) -> tuple[str, int]:
    """Return the purgatory key of a follower's waiting fetch."""
    return ("follower", replica_id)
