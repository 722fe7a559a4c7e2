"""The two delayed operations of the data path: a produce that waits for replicas, a fetch that waits for data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from triokafka import errors
from triokafka.broker_stub.purgatory.delayed_operation import DelayedOperation
from triokafka.named_tuple import NamedTuple
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka.broker_stub.replica.partition import Partition


@dataclass(slots=True)
class AppendOutcome:
    """One partition's part of a produce.

    ``record_errors`` names records of the batch that were refused: index in the batch and why. ``leader`` is the leader
    id and epoch to name, where it is not the one that this broker knows. ``flushing``: ``flush.messages`` wants the
    records on the disk, and they are on their way.
    """

    error_code: int = 0
    base_offset: int = -1
    last_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: Sequence[tuple[int, str]] = ()
    leader: tuple[int, int] | None = None
    flushing: bool = False

    @property
    def required_offset(self) -> int:
        """The high watermark that commits it: one after its last record."""
        return self.last_offset + 1


class DelayedProduce(DelayedOperation):
    """A produce with acks=all, until every partition's high watermark has passed its records; one with acks=1, until
    the leader has flushed them (``flush.messages``).

    Each successful partition starts with REQUEST_TIMED_OUT, which success overwrites: at the time-out, those satisfied
    report success and the others the time-out.
    """

    __slots__ = ("_outcomes", "_partitions", "_pending", "_required_acks")

    def __init__(
        self,
        timeout_ms: int,
        outcomes: Mapping[TopicPartition, AppendOutcome],
        partitions: Callable[[TopicPartition], Partition],
        *,
        required_acks: int = -1,
    ) -> None:
        super().__init__(timeout_ms)
        self._required_acks = required_acks
        self._outcomes = outcomes
        self._partitions = partitions
        self._pending = [key for key, outcome in outcomes.items() if not outcome.error_code]
        for key in self._pending:
            outcomes[key].error_code = errors.RequestTimedOutError.code

    def try_complete(self) -> bool:
        self._pending = [key for key in self._pending if not self._settled(key)]
        return not self._pending and self.force_complete()

    def on_complete(self) -> None:
        """The outcomes are final; who waits builds the response."""

    def _settled(self, key: TopicPartition) -> bool:
        outcome = self._outcomes[key]
        try:
            partition = self._partitions(key)
            partition.require_leader()
        except errors.BrokerResponseError as error:
            outcome.error_code = error.code
            return True
        if self._required_acks == 1:
            if partition.log.settled_offset < outcome.required_offset:
                return False
            outcome.error_code = 0
            return True
        if partition.high_watermark < outcome.required_offset:
            return False
        # The records are committed, but on fewer replicas than the topic wants: the producer is to know.
        outcome.error_code = 0 if partition.enough_replicas else errors.NotEnoughReplicasAfterAppendError.code
        return True


class Awaited(NamedTuple):
    """A partition that a fetch waits for, and from where."""

    topic_partition: TopicPartition
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int = -1


class DelayedFetch(DelayedOperation):
    """A fetch that found less than ``min_bytes``, until there is as much, something is wrong, or time is up.

    It keeps nothing that it read: who waits reads again.
    """

    __slots__ = ("_awaited", "_follower", "_min_bytes", "_partitions", "_read_committed")

    def __init__(
        self,
        timeout_ms: int,
        awaited: Sequence[Awaited],
        partitions: Callable[[TopicPartition], Partition],
        *,
        min_bytes: int,
        follower: bool,
        read_committed: bool,
    ) -> None:
        super().__init__(timeout_ms)
        self._awaited = awaited
        self._partitions = partitions
        self._min_bytes = min_bytes
        self._follower = follower
        self._read_committed = read_committed

    def try_complete(self) -> bool:
        available = 0
        for topic_partition, fetch_offset, max_bytes, current_leader_epoch, last_fetched_epoch in self._awaited:
            try:
                partition = self._partitions(topic_partition)
                partition.require_leader(current_leader_epoch)
                if last_fetched_epoch >= 0 and partition.diverging_epoch(fetch_offset, last_fetched_epoch) is not None:
                    return self.force_complete()
            except errors.BrokerResponseError:
                return self.force_complete()  # the client is to learn of it now
            log = partition.log
            if self._follower:
                end = log.log_end_offset
            else:
                end = partition.last_stable_offset if self._read_committed else partition.high_watermark
            if fetch_offset > log.log_end_offset or fetch_offset < log.log_start_offset:
                return self.force_complete()  # truncated or deleted meanwhile: out of range
            if fetch_offset < end:
                if self._min_bytes <= 1 or not log.in_one_segment(fetch_offset, end):
                    # An answer has records of one segment of a partition, so waiting would bring no more.
                    return self.force_complete()
                try:
                    available += log.bytes_between(fetch_offset, end, max_bytes)
                except errors.BrokerResponseError:
                    return self.force_complete()
        return available >= self._min_bytes and self.force_complete()

    def on_complete(self) -> None:
        """Who waits reads again."""
