"""The state of one fetcher of one leader: positions, delays, the fetch session. Pure: times are arguments.

Planning a fetch costs as much as the partitions that may have changed since the last one. A position is *settled* when
the session has its target, the partition is in sync, and it is not delayed. A settled position watches the log of its
partition, and is looked at again after a change of the log, after a result of the partition, and when it is delayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple
from uuid import UUID

from triokafka.backoff import Backoff
from triokafka.broker_stub.replica.partition import Partition
from triokafka.errors import CorruptRecordError
from triokafka.network.fetch_sessions.fetch_session_handler import FetchPlan, FetchSessionHandler, FetchTarget
from triokafka.protocol.api.fetch import PartitionData
from triokafka.records import iter_batches
from triokafka.structs import TopicPartition

_SHORT_WAITS: Final = 10
"""Fetches that wait only shortly after an early response without news."""
_FIRST_DELAY: Final = 0.02
"""Seconds until a leader that does not know of a change of metadata yet is asked again; doubled each time."""


class FetchPosition:
    """The position of one partition, valid in one leader epoch.

    ``fetch_offset`` and ``last_fetched_epoch`` are those of the end of the local log, or of records that have arrived
    and are not appended yet: see `FetcherState.plan_ahead`. ``lag`` is the number of records that the leader has more;
    None before the first response. ``delayed_until`` is in seconds on the monotonic clock. ``refusals`` counts the
    answers since the last success that said that leader and follower have different metadata. ``place`` is the
    position's place in the order of fetching.

    Args:
        unsettle: see `FetcherState.unsettle`.
    """

    __slots__ = (
        "_target",
        "_unsettle",
        "delayed_until",
        "fetch_offset",
        "lag",
        "last_fetched_epoch",
        "leader_epoch",
        "partition",
        "place",
        "refusals",
    )

    def __init__(self, partition: Partition, unsettle: Callable[[TopicPartition], None], place: int) -> None:
        self.partition = partition
        self.place = place
        self._unsettle = unsettle
        self.leader_epoch = partition.leader_epoch
        self.fetch_offset = 0
        self.last_fetched_epoch = -1
        self.lag: int | None = None
        self.delayed_until = 0.0
        self.refusals = 0
        self._target: FetchTarget | None = None
        self.resume()

    def resume(self) -> None:
        """Continue at the end of the local log, also after a truncation."""
        log = self.partition.log
        self.fetch_offset = log.log_end_offset
        self.last_fetched_epoch = log.leader_epochs.latest
        self._unsettle(self.partition.topic_partition)

    def proceed(self, offset: int, epoch: int) -> None:
        """Continue at ``offset``, after records that are still to be appended; the last of them has this epoch."""
        self.fetch_offset, self.last_fetched_epoch = offset, epoch
        self._unsettle(self.partition.topic_partition)

    def changed(self) -> None:
        """Look at the position again after a change of the log; see `ChangeWatcher`."""
        self._unsettle(self.partition.topic_partition)

    def target(self, max_bytes: int) -> FetchTarget:
        """Return what to fetch of the partition: the same object as the last time if nothing has changed."""
        found, log_start_offset = self._target, self.partition.log.log_start_offset
        if (
            found is None
            or found.fetch_offset != self.fetch_offset
            or found.log_start_offset != log_start_offset
            or found.last_fetched_epoch != self.last_fetched_epoch
            or found.max_bytes != max_bytes
        ):
            found = self._target = FetchTarget(
                self.fetch_offset,
                max_bytes,
                self.leader_epoch,
                self.partition.topic_id,
                self.last_fetched_epoch,
                log_start_offset,
            )
        return found

    @property
    def in_sync(self) -> bool:
        """Whether the last response brought everything; replicas in sync are never throttled."""
        return self.lag is not None and self.lag <= 0


class FetchResult(NamedTuple):
    """The result of one partition, with what was asked for."""

    topic_partition: TopicPartition
    sent: FetchTarget
    data: PartitionData


class FetcherState:
    """The partitions that one fetcher replicates from one leader.

    Partitions are fetched round robin: one that brought records goes to the end, so that none starves under the limit
    of a response's size.

    Args:
        max_bytes: the limit per partition (``replica.fetch.max.bytes``).
        backoff_seconds: how long a partition is delayed after an error (``replica.fetch.backoff.ms``).
        throttled: whether a partition that is not in sync has to wait for the follower's replication quota.
    """

    def __init__(
        self,
        *,
        max_bytes: int,
        backoff_seconds: float,
        throttled: Callable[[TopicPartition], bool] = lambda topic_partition: False,
    ) -> None:
        self._max_bytes = max_bytes
        self._backoff = backoff_seconds
        self._throttled = throttled
        self._positions: dict[TopicPartition, FetchPosition] = {}
        self._unsettled: dict[TopicPartition, None] = {}
        self._places = 0
        self._names: dict[UUID, str] = {}
        self._session = FetchSessionHandler()
        self._short_waits = 0

    def __len__(self) -> int:
        return len(self._positions)

    def __contains__(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._positions

    def lags(self) -> dict[TopicPartition, int]:
        """Return how many records each partition lags behind, as far as known."""
        return {key: found.lag for key, found in self._positions.items() if found.lag is not None}

    def delayed(self, now: float) -> int:
        """Return the number of partitions that are delayed after an error."""
        return sum(position.delayed_until > now for position in self._positions.values())

    # -- partitions

    def add(self, partition: Partition) -> None:
        """Fetch a partition from the end of its log, in its present leader epoch.

        A log without leader epochs does not show where it diverges, so it continues at the high watermark, up to which
        all replicas agree; the caller has truncated it.
        """
        self.remove(partition.topic_partition)
        self._positions[partition.topic_partition] = FetchPosition(partition, self.unsettle, self._next_place())
        self._names[partition.topic_id] = partition.topic_partition.topic

    def remove(self, topic_partition: TopicPartition) -> bool:
        """Stop fetching a partition; return whether it was fetched."""
        position = self._positions.pop(topic_partition, None)
        if position is None:
            return False
        position.partition.log.changes.unwatch(position)
        self._unsettled[topic_partition] = None
        return True

    def unsettle(self, topic_partition: TopicPartition) -> None:
        """Look at a partition with the next plan."""
        self._unsettled[topic_partition] = None

    def _next_place(self) -> int:
        self._places += 1
        return self._places

    def topic_name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic that the fetcher has had partitions of."""
        return self._names.get(topic_id)

    # -- requests

    def plan(self, now: float) -> FetchPlan | None:
        """Return the request to send now; None when no partition may be fetched."""
        session = self._session
        if session.is_new:
            self._unsettled.update(dict.fromkeys(self._positions))
        changes: dict[TopicPartition, FetchTarget | None] = {}
        for topic_partition in sorted(self._unsettled, key=self._place):
            changes[topic_partition] = self._target(topic_partition, now)
        if session.is_new:
            targets = {key: target for key, target in changes.items() if target is not None}
            return session.plan(targets) if targets else None
        if not session.size_after(changes):
            return None
        self._unsettled = {key: None for key, target in changes.items() if not self._settle(key, target)}
        return session.plan_changes(changes)

    def _place(self, topic_partition: TopicPartition) -> int:
        position = self._positions.get(topic_partition)
        return 0 if position is None else position.place

    def _target(self, topic_partition: TopicPartition, now: float) -> FetchTarget | None:
        """Return what to fetch of a partition now; None for nothing."""
        position = self._positions.get(topic_partition)
        if (
            position is None
            or position.delayed_until > now
            or (not position.in_sync and self._throttled(topic_partition))
        ):
            return None
        return position.target(self._max_bytes)

    def _settle(self, topic_partition: TopicPartition, target: FetchTarget | None) -> bool:
        """Return whether a partition need not be looked at before it changes, given its part of the next request."""
        position = self._positions.get(topic_partition)
        if position is None:
            return True
        if target is None or not position.in_sync:
            return False
        position.partition.log.changes.watch(position)
        return True

    def next_ready(self) -> float | None:
        """Return the earliest time at which a delayed partition may be fetched; None without partitions."""
        return min((position.delayed_until for position in self._positions.values()), default=None)

    @property
    def waits_shortly(self) -> bool:
        """Whether the next fetch should wait for a short time only.

        The leader has answered early without news: it leads new partitions, which this broker does not know yet.
        """
        return self._short_waits > 0

    def answered(self, session_id: int, error_code: int) -> bool:
        """Process the top of a response; return whether its partitions can be used."""
        return self._session.answered(session_id, error_code)

    def failed(self, now: float) -> None:
        """Begin a new session after a request without an answer, and delay every partition."""
        self._session.failed()
        self.delay_all(now)

    def delay_all(self, now: float) -> None:
        """Delay every partition by the back-off."""
        for topic_partition in self._positions:
            self.delay(topic_partition, now)

    def note_news(self, *, news: bool, early: bool) -> None:
        """Note whether a response had any partition, and whether it came before its time."""
        if not news and early and not self._short_waits:
            self._short_waits = _SHORT_WAITS
        elif self._short_waits:
            self._short_waits -= 1

    # -- responses

    def plan_ahead(self, results: Iterable[FetchResult], now: float) -> FetchPlan | None:
        """Return the request that may be sent before these results are applied; None if it has to follow them.

        Leader and follower then work at the same time. A fetch says that this broker has all records before the fetch
        offset. Below the high watermark, which the leader counts without this broker, nothing depends on that: the
        leader neither acknowledges records nor takes a replica into the in-sync set. If an append fails after all,
        the response is dropped, because it does not continue the log.
        """
        ends: dict[TopicPartition, tuple[int, int]] = {}
        for topic_partition, sent, data in results:
            if self.position(topic_partition, sent) is None:
                continue
            if data.error_code or data.diverging_epoch.end_offset >= 0 or data.diverging_epoch.epoch >= 0:
                return None
            if data.records:
                end = _end_of(data.records)
                if end is None or end[0] >= data.high_watermark:
                    return None
                ends[topic_partition] = end
        for topic_partition, (offset, epoch) in ends.items():
            position = self._positions[topic_partition]
            position.proceed(offset, epoch)
            position.place = self._next_place()
        return self.plan(now) if ends else None

    def position(self, topic_partition: TopicPartition, sent: FetchTarget) -> FetchPosition | None:
        """Return the position that a result belongs to; None when it does not continue the log: the partition was
        removed, added again or truncated since the request, or an append before failed.
        """
        position = self._positions.get(topic_partition)
        if (
            position is None
            or position.leader_epoch != sent.current_leader_epoch
            or position.partition.topic_id != sent.topic_id
        ):
            return None
        log = position.partition.log
        if log.log_end_offset != sent.fetch_offset or log.leader_epochs.latest != sent.last_fetched_epoch:
            position.resume()
            return None
        return position

    def advanced(self, topic_partition: TopicPartition, *, lag: int, with_records: bool) -> None:
        """Continue after a result, at the log end; with records, behind all other partitions."""
        position = self._positions.get(topic_partition)
        if position is None:
            return
        position.lag = lag
        position.refusals = 0
        self._unsettled[topic_partition] = None
        if with_records:
            position.resume()
            position.place = self._next_place()

    def delay(self, topic_partition: TopicPartition, now: float) -> None:
        """Delay a partition by the back-off, unless it is delayed already."""
        position = self._positions.get(topic_partition)
        if position is not None and position.delayed_until <= now:
            position.delayed_until = now + self._backoff
            self._unsettled[topic_partition] = None

    def delay_for_metadata(self, topic_partition: TopicPartition, now: float) -> None:
        """Delay a partition while metadata spreads: briefly at first, and no longer than the back-off.

        After a change of leaders, acknowledgements wait for this partition. The leader learns of the change
        milliseconds later as a rule.
        """
        position = self._positions.get(topic_partition)
        if position is not None and position.delayed_until <= now:
            position.refusals += 1
            position.delayed_until = now + Backoff(_FIRST_DELAY, self._backoff).without_jitter(position.refusals)
            self._unsettled[topic_partition] = None
            self._short_waits = _SHORT_WAITS  # the other partitions do not hold up the next fetch

    def positions(self, topic_partitions: Iterable[TopicPartition]) -> list[FetchPosition]:
        """Return the positions of those partitions that are still fetched."""
        return [self._positions[key] for key in topic_partitions if key in self._positions]


def _end_of(records: bytes | bytearray | memoryview) -> tuple[int, int] | None:
    """Return the offset after the last complete batch, and its leader epoch; None without one, or if it is damaged."""
    end = None
    try:
        for batch in iter_batches(records):
            end = batch.next_offset, batch.partition_leader_epoch
    except CorruptRecordError:
        return None
    return end
