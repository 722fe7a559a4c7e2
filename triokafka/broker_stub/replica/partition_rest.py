"""Partitions that rest in a fetch session: those of which a fetch would find nothing new.

A broker may lead thousands of partitions, and each follower fetches all of its own in one session, several times a
second. Most of the partitions are idle. So that an idle fetch costs next to nothing:

1. A fetch reads the partitions of its session that do not rest. If it finds neither records nor an error, and what the
   last response said, `rest_of` decides whether the partition rests from now on: `follower_rests`, `consumer_rests`.
2. A partition that rests has a `PartitionRest` on the `ChangeSignal` of its log. Whatever a fetch reads or compares
   calls the signal when it changes: the log's start and end, its leader epochs and producers, the high watermark, the
   role, leader epoch and in-sync set of the partition, the progress of its followers, and its going offline or away.
3. The first change wakes the partition: the session reads it with the next fetch, and a fetch that waits now watches
   it too. This happens in the middle of the change, so it only takes notes. The change then completes the waiting
   fetches of the partition in the purgatory, as for any other.
4. The fetches of a follower prove that it is alive and has all records. While a partition rests, they are not noted for
   it: it has all records as long as the log's end is the same. When the rest ends, the time of the last one is.

What lies outside of the partition and the session, such as permissions and the registration of a follower, does not
wake partitions. Fetches that depend on it do without rests, or wake all partitions when it is different: see the
``reader`` of `FetchSessionCache.context_for`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from triokafka.broker_stub.replica.follower_state import FollowerState
from triokafka.broker_stub.replica.partition import Partition
from triokafka.broker_stub.replica.read_result import ReadOutcome
from triokafka.structs import TopicPartition

if TYPE_CHECKING:  # imported with the first Fetch
    from triokafka.network.fetch_sessions.fetch_session import WantedPartition


class PartitionRest:
    """The watch of a partition that rests in a session; a `Rest` of the session, and a `ChangeWatcher` of the log.

    Args:
        follower: the progress of the session's client; None for a consumer.
        wake: wakes the partition in its session, which ends the rest.
    """

    __slots__ = ("_changes", "_follower", "_wake", "topic_partition")

    def __init__(self, partition: Partition, follower: FollowerState | None, wake: Callable[[], None]) -> None:
        self.topic_partition: TopicPartition = partition.topic_partition
        self._changes = partition.log.changes
        self._follower = follower
        self._wake = wake
        self._changes.watch(self)

    def changed(self) -> None:
        """See `ChangeWatcher`."""
        self._wake()

    def end(self, fetched_at: float) -> None:
        """See `Rest`."""
        self._changes.unwatch(self)
        if self._follower is not None:
            self._follower.fetched_the_same(fetched_at)


def is_at_end(partition: Partition, offset: int, leader_epoch: int, last_fetched_epoch: int) -> bool:
    """Whether this broker leads the partition in an epoch, and a log that ends at an offset with a record of another
    epoch is equal to its own.
    """
    log = partition.log
    return (
        partition.is_leader
        and leader_epoch == partition.leader_epoch
        and offset == log.log_end_offset
        and (last_fetched_epoch < 0 or last_fetched_epoch == log.leader_epochs.latest)
    )


def follower_rests(partition: Partition, replica_id: int, wanted: WantedPartition, broker_epoch: int) -> bool:
    """Whether a follower in sync has all records, and had them at its last fetch.

    Args:
        broker_epoch: that of the fetch, which is the registered one.
    """
    offset = wanted.fetch_offset
    follower = partition.followers.get(replica_id)
    return (
        follower is not None
        and offset == follower.log_end_offset == follower.leader_end_offset == partition.high_watermark
        and is_at_end(partition, offset, wanted.current_leader_epoch, wanted.last_fetched_epoch)
        and wanted.log_start_offset == follower.log_start_offset
        and broker_epoch == follower.broker_epoch
        and replica_id in partition.isr.committed
    )


def consumer_rests(partition: Partition, wanted: WantedPartition, *, read_committed: bool, leader_only: bool) -> bool:
    """Whether a consumer that does not choose among the replicas has all records that it may read here."""
    end = partition.last_stable_offset if read_committed else partition.high_watermark
    return (
        wanted.fetch_offset == end >= partition.log.log_start_offset
        and (partition.is_leader or not leader_only)
        and wanted.current_leader_epoch in (-1, partition.leader_epoch)
        and wanted.last_fetched_epoch < 0
    )


def idle_follower_fetched(
    partition: Partition, replica_id: int, wanted: WantedPartition, broker_epoch: int, now: float | None
) -> ReadOutcome | None:
    """Process the fetch of a follower if `follower_rests`; return None if not.

    This is what `Partition.require_follower`, `read` and `follower_fetched` do when nothing can have changed, at a
    fraction of the cost. Without ``now``, the fetch has been noted already.
    """
    if not follower_rests(partition, replica_id, wanted, broker_epoch):
        return None
    if now is not None:
        partition.followers[replica_id].fetched_the_same(now)
    log, offset = partition.log, wanted.fetch_offset
    return ReadOutcome(0, offset, log.last_stable_offset(offset), log.log_start_offset)
