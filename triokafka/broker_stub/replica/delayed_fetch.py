"""A Fetch request that waits for data."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from triokafka import errors
from triokafka.broker_stub.purgatory.delayed_operation import DelayedOperation
from triokafka.broker_stub.replica.partition import Partition
from triokafka.broker_stub.replica.partition_rest import is_at_end
from triokafka.named_tuple import NamedTuple
from triokafka.structs import TopicPartition


class AwaitedPartition(NamedTuple):
    """A partition that a fetch waits for, with its fetch offset and limits."""

    topic_partition: TopicPartition
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int = -1


class DelayedFetch(DelayedOperation):
    """Waits until ``min_bytes`` can be read, a partition has an error, or the time-out.

    It holds no records: the waiting handler reads again. ``interrupted`` returns whether a follower should fetch anew
    without data, because this broker leads partitions that it does not fetch yet. ``held_back`` returns whether the
    replication quota holds back the records of a partition.
    """

    __slots__ = (
        "_awaited",
        "_by_key",
        "_follower",
        "_held_back",
        "_interrupted",
        "_leader_only",
        "_min_bytes",
        "_partitions",
        "_read_committed",
    )

    def __init__(
        self,
        timeout_ms: int,
        awaited: Sequence[AwaitedPartition],
        partitions: Callable[[TopicPartition], Partition],
        *,
        min_bytes: int,
        follower: bool,
        read_committed: bool,
        leader_only: bool = True,
        interrupted: Callable[[], bool] | None = None,
        held_back: Callable[[Partition], bool] | None = None,
    ) -> None:
        super().__init__(timeout_ms)
        self._awaited = list(awaited)
        self._by_key: dict[Hashable, AwaitedPartition] | None = None
        self._partitions = partitions
        self._min_bytes = min_bytes
        self._follower = follower
        self._read_committed = read_committed
        self._leader_only = leader_only
        self._interrupted = interrupted
        self._held_back = held_back

    def await_also(self, awaited: AwaitedPartition) -> None:
        """Wait for one more partition, which has just changed. The caller watches it in the purgatory."""
        self._awaited.append(awaited)
        if self._by_key is not None:
            self._by_key[awaited.topic_partition] = awaited

    def try_complete(self) -> bool:
        if self._interrupted is not None and self._interrupted():
            return self.force_complete()
        available = 0
        for awaited in self._awaited:
            found = self._available(awaited)
            if found is None:
                return self.force_complete()
            available += found
        return available >= self._min_bytes and self.force_complete()

    def try_complete_after(self, key: Hashable) -> bool:
        """See `DelayedOperation`. A fetch of thousands of partitions that waits for one byte looks at the changed one
        only.
        """
        if self._min_bytes > 1:
            return self.try_complete()
        if self._by_key is None:
            self._by_key = {awaited.topic_partition: awaited for awaited in self._awaited}
        awaited = self._by_key.get(key)
        if awaited is None:
            return self.try_complete()
        return self._available(awaited) is None and self.force_complete()

    def _available(self, awaited: AwaitedPartition) -> int | None:
        """Return how many bytes of a partition can be read; None if the fetch has to be answered for it alone."""
        topic_partition, fetch_offset, max_bytes, current_leader_epoch, last_fetched_epoch = awaited
        try:
            partition = self._partitions(topic_partition)
            log = partition.log
            if self._follower and is_at_end(partition, fetch_offset, current_leader_epoch, last_fetched_epoch):
                return 0
            if self._leader_only:
                partition.require_leader(current_leader_epoch)
            else:
                partition.require_epoch(current_leader_epoch)
            if last_fetched_epoch >= 0 and partition.diverging_epoch(fetch_offset, last_fetched_epoch) is not None:
                return None
        except errors.BrokerResponseError:
            return None  # the response reports the error
        if self._follower:
            end = log.log_end_offset
        else:
            end = partition.last_stable_offset if self._read_committed else partition.high_watermark
        if fetch_offset > log.log_end_offset or fetch_offset < log.log_start_offset:
            return None  # truncated or deleted meanwhile: the offset is out of range
        if fetch_offset < end and (self._held_back is None or not self._held_back(partition)):
            if self._min_bytes <= 1 or not log.in_one_segment(fetch_offset, end):
                # A response has records of one segment per partition, so waiting would not add any.
                return None
            try:
                return log.bytes_between(fetch_offset, end, max_bytes)
            except errors.BrokerResponseError:
                return None
        return 0

    def on_complete(self) -> None:
        """Do nothing: the waiting handler reads again."""
