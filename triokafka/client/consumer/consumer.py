"""The consumer as its user sees it: subscribe, ask for records in one of four shapes, seek, commit, leave.

Here are the public calls and the wait for records. What they rest on: `SubscriptionState` (what is read, how far),
`Fetcher` (bytes from brokers), `FetchCollector` (records to the user), `Rebalancer` and
`GroupMembership` (the group), `Committer` (commits), `PositionFinder` (where to start).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import isnan
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self, Unpack, overload
from weakref import WeakKeyDictionary

import trio

from triokafka.client.config import ConsumerOptions
from triokafka.client.consumer.arguments import checked_offset, checked_partitions
from triokafka.client.consumer.batches import Batches, FetchedBatch
from triokafka.client.consumer.engine import Engine
from triokafka.client.consumer.health import ConsumerHealth, take_health, take_metrics
from triokafka.client.consumer.listener import Records
from triokafka.client.consumer.subscription import EARLIEST, LATEST, SubscriptionPattern
from triokafka.client.keywords import ConsumerKeywords
from triokafka.client.plugins import Plugins
from triokafka.client.serializers import Deserializer
from triokafka.errors import IllegalStateError, KafkaError, KafkaTimeoutError
from triokafka.records import ConsumerRecord
from triokafka.structs import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from triokafka.topic_names import check_topic_name
from triokafka.world import World
from triokafka.world.system import RealWorld

if TYPE_CHECKING:
    import pyarrow as pa

_NEVER: Final = float("inf")
_PER_WORLD_NUMBERS: Final[WeakKeyDictionary[World, itertools.count[int]]] = WeakKeyDictionary()


class Consumer:
    """Reads records from Kafka topics. Use it as ``async with Consumer("orders", group_id="billing") as consumer``.

    Positional arguments are topics to subscribe to; options are those of `ConsumerOptions`, by keyword; ``world`` is
    for simulations. A wrong option raises `ConfigurationError` here; nothing is connected before the block is entered.

    One task at a time may use a consumer; a second one gets `IllegalStateError`. Membership, heartbeats, fetching and
    auto-commit go on in the background while the block is open. A record or batch counts as finished when the next is
    asked for; auto-commit commits nothing beyond that.

    Leaving the block commits what was handed out (with ``enable_auto_commit``), calls the rebalance listener's
    ``on_partitions_revoked`` and leaves the group, within ``close_timeout_ms``. If it is left by an exception or a
    cancellation, the record or batch handed out last is not committed.

    A background task that fails does not cancel the body; its error is raised by this call and every later one.
    """

    def __init__(self, *topics: str, world: World | None = None, **options: Unpack[ConsumerKeywords]) -> None:
        parsed = ConsumerOptions.parse(options)
        self._world = world if world is not None else RealWorld()
        number = next(_PER_WORLD_NUMBERS.setdefault(self._world, itertools.count(1)))
        client_id = parsed.client_id or f"triokafka-consumer-{number}"
        self._plugins = Plugins(parsed, client_id)
        try:
            self.options = replace(parsed, **self._plugins.serializers(parsed, "deserializer", Deserializer))
            self._engine = Engine(self.options, self._world, client_id=client_id)
        except BaseException:
            self._plugins.close()
            raise
        self._plugins.warn_of_unused()
        self._collector = self._engine.collector
        if topics:
            self.subscribe(topics)

    @property
    def engine(self) -> Engine:
        """The parts inside, for other modules of this package; not part of the public API."""
        return self._engine

    # ---------------------------------------------------------------- entering and leaving

    async def __aenter__(self) -> Self:
        await self._engine.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self._engine.close(in_hand_is_finished=error is None)
        finally:
            self._plugins.close()

    # ---------------------------------------------------------------- subscription

    def subscribe(
        self,
        topics: Iterable[str] | str = (),
        *,
        pattern: str | re.Pattern[str] | SubscriptionPattern | None = None,
        listener: object = None,
    ) -> None:
        """Subscribe to topics by name, or to all whose whole name matches a pattern. Replaces the former subscription.

        With a ``group_id`` the group deals the partitions, from the next call for records on; without one this consumer
        reads them all. No topics and no pattern is the same as `unsubscribe`.

        Args:
            topics: names of topics.
            pattern: a regular expression instead. A `str` or `re.Pattern` is applied by this consumer to the names of
                all topics; a `SubscriptionPattern` by the coordinator, with ``group_protocol="consumer"``.
            listener: called when partitions are assigned, revoked or lost; see `ConsumerRebalanceListener`.

        Raises:
            IllegalStateError: partitions are assigned by hand, or the other kind of subscription is in use.
            InvalidTopicError, TypeError: no topic can have one of the names.
        """
        if not isinstance(topics, Iterable):
            raise TypeError(f"topics must be an iterable of str, not {topics!r}")
        names = [topics] if isinstance(topics, str) else list(topics)
        for name in names:
            check_topic_name(name)
        if names and pattern is not None:
            raise IllegalStateError("subscribe() takes topics or a pattern, not both")
        if isinstance(pattern, SubscriptionPattern):
            self._engine.subscribe_remote_pattern(pattern, listener)
        elif pattern is not None:
            self._engine.subscribe_pattern(pattern, listener)
        elif names:
            self._engine.subscribe(names, listener)
        else:
            self.unsubscribe()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without a group, in place of the former assignment.

        Partitions in both keep their position. A ``group_id`` is then used for committed offsets only. No partitions is
        the same as `unsubscribe`.

        Raises:
            IllegalStateError: topics are subscribed to.
        """
        wanted = checked_partitions(partitions)
        if wanted:
            self._engine.assign(wanted)
        else:
            self.unsubscribe()

    def unsubscribe(self) -> None:
        """End the subscription or assignment, and leave the group in the background; auto-commit commits first.

        A task that waits for records meanwhile gets `IllegalStateError`, as does every later call for records until
        `subscribe` or `assign`.
        """
        self._engine.unsubscribe()

    def subscription(self) -> frozenset[str]:
        """The topics subscribed to; with a pattern those that match so far, with one that the coordinator applies those
        of which this consumer was assigned partitions."""
        return frozenset(self._engine.subscription.topics)

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer reads now."""
        return frozenset(self._engine.subscription.assignment)

    # ---------------------------------------------------------------- records

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        """Return the next record; wait for it without limit. Otherwise as `poll`, `IllegalStateError` included.

        It yields to other tasks once for every ``max_poll_records`` records. If cancelled, no record is lost.
        """
        for record in self._collector.iterator:
            return record
        return await self._next_run()

    async def _next_run(self) -> ConsumerRecord:
        collector = self._collector
        while True:
            if not collector.next_run():
                with self._engine.user("iterating over the consumer"):
                    await self._engine.wait_for(lambda: collector.take_runs(self.options.max_poll_records), _NEVER)
            for record in collector.iterator:
                return record

    async def poll(self, *, timeout_ms: float = 0, max_records: int | None = None) -> Records:
        """Records by partition, in order; an empty dict when there are none within ``timeout_ms``.

        Records in the buffer are returned at once. Joining the group and finding positions go on in the background when
        the time is over. If cancelled, no record is lost.

        Args:
            timeout_ms: longest wait.
            max_records: most records in all; the option ``max_poll_records`` (500) when None.

        Raises:
            DecompressedSizeError: a batch decompresses to more than ``max_decompressed_batch_bytes``.
            CorruptRecordError, RecordDeserializationError: names topic, partition and offset; seek past it to go on,
                or see ``deserialization_error_policy``.
            OffsetOutOfRangeError, NoOffsetForPartitionError: with ``auto_offset_reset="none"``.
            IllegalStateError: the consumer has neither subscription nor assignment, so that no record can ever come:
                call `subscribe` or `assign` first.
            MaxPollIntervalExceededError: the previous call was too long ago; the next call joins the group again.
            KafkaTimeoutError: a broker, the coordinator or a lookup has failed for ``default_api_timeout_ms``.
            AuthorizationError: not allowed to read a topic or to use the group.
        """
        limit = self._limit(max_records)
        with self._engine.user("poll"):
            self._collector.put_back()
            return await self._engine.wait_for(lambda: self._collector.take(limit), self._seconds(timeout_ms)) or {}

    async def poll_arrow(
        self,
        *,
        timeout_ms: float = 0,
        max_records: int = 100_000,
        columns: Sequence[str] | None = None,
        values: Literal["binary", "view"] = "binary",
    ) -> pa.RecordBatch:
        """Records of all partitions as one Arrow record batch; one with zero rows when there are none in time.

        Columns: key, value, topic, partition, offset, timestamp (µs, UTC), timestampType, headers. ``values="view"``
        makes key and value views into the fetched bytes instead of copies. Deserializers and interceptors do not
        apply. Otherwise as `poll`.
        """
        from triokafka.records.arrow import ArrowBuilder

        builder = ArrowBuilder(columns, values=values, most_bytes=self.options.max_poll_bytes)
        limit = self._limit(max_records)
        with self._engine.user("poll_arrow"):
            self._collector.put_back()
            await self._engine.wait_for(lambda: self._collector.take_columns(builder, limit), self._seconds(timeout_ms))
        return builder.finish()

    def batches(self) -> Batches:
        """Iterate with ``async for`` over batches that are decoded when you ask: see `FetchedBatch`. Never ends.

        Raises as `poll`.
        """
        return Batches(self._next_batch)

    async def _next_batch(self) -> FetchedBatch:
        with self._engine.user("iterating over batches"):
            self._collector.put_back()
            batch = await self._engine.wait_for(self._collector.take_batch, _NEVER)
        assert batch is not None
        return batch

    def _limit(self, max_records: int | None) -> int:
        limit = self.options.max_poll_records if max_records is None else max_records
        if isinstance(limit, bool) or not hasattr(limit, "__index__"):
            raise TypeError(f"max_records must be an int, not {limit!r}")
        if limit < 1:
            raise ValueError(f"max_records={max_records}: ask for at least one record")
        return limit

    def wakeup(self) -> None:
        """End a wait for records, or for a position, from another task: it raises `WakeupError`, and loses no record.

        When there is none, the next one ends so. Listeners, commits and closing are not disturbed. From another thread
        call it through ``trio.from_thread.run_sync``. A cancel scope around the call does as well.
        """
        self._engine.interrupt()

    # ---------------------------------------------------------------- positions

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Go on at ``offset`` with the next call for records; data that was fetched ahead is dropped.

        Raises:
            IllegalStateError: the partition is not assigned.
            ValueError: a negative offset.
        """
        self._collector.put_back()
        (wanted,) = checked_partitions([partition])
        target = checked_offset(wanted, offset)
        self._engine.subscription.seek(wanted, target.offset, target.leader_epoch)
        self._engine.wake()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first offset that is there, looked up in the background; in all partitions if none is named.

        Raises:
            IllegalStateError: a partition is not assigned.
        """
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on behind the last record; under ``read_committed`` at the last stable offset. As `seek_to_beginning`."""
        self._reset(partitions, LATEST)

    def _reset(self, partitions: Sequence[TopicPartition], to: int) -> None:
        self._collector.put_back()
        for partition in checked_partitions(partitions) or self._engine.subscription.assignment:
            self._engine.subscription.request_reset(partition, to)
        self._engine.wake()

    async def position(self, partition: TopicPartition, *, timeout_ms: float | None = None) -> int:
        """The offset of the next record of a partition; waits until it is known.

        Raises:
            IllegalStateError: the partition is not assigned.
            KafkaTimeoutError: not known within ``timeout_ms`` (default ``default_api_timeout_ms``).
        """
        (asked,) = checked_partitions([partition])
        with self._engine.user("position"):
            await trio.lowlevel.checkpoint()
            found = await self._engine.wait_for_state(
                lambda: self._collector.position(asked), self._seconds(timeout_ms)
            )
        if found is None:
            raise KafkaTimeoutError(f"the position of {asked} is not known yet{self._engine.why_not()}")
        return found

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these until `resume`; they stay assigned, and fetched data is kept.

        Raises:
            IllegalStateError: one of them is not assigned; none is paused then.
        """
        self._collector.put_back()
        self._engine.subscription.pause(checked_partitions(partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Undo `pause`. Raises as it does."""
        self._engine.subscription.resume(checked_partitions(partitions))
        self._engine.wake()

    def paused(self) -> frozenset[TopicPartition]:
        """The paused partitions."""
        return frozenset(self._engine.subscription.paused)

    # ---------------------------------------------------------------- offsets

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Commit offsets, by default those behind everything handed out so far, the record in hand included.

        Waits for the coordinator's answer and tries again where that may help, at most ``timeout_ms`` (default
        ``default_api_timeout_ms``). If cancelled, the commit may or may not have happened.

        Args:
            offsets: partition to the next offset to read, that is the last processed one plus one.

        Raises:
            CommitFailedError: the group has removed this member; others will read the records again.
            KafkaTimeoutError: no answer in time.
            IllegalStateError: there is no ``group_id``.
        """
        wanted = self._to_commit(offsets, "commit()")
        with self._engine.user("commit"):
            await self._engine.committer.commit(wanted, deadline=self._deadline(timeout_ms))

    def commit_nowait(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        *,
        on_done: Callable[[Mapping[TopicPartition, OffsetAndMetadata], KafkaError | None], object] | None = None,
    ) -> None:
        """Commit as `commit` does, in the background; returns at once.

        Commits happen in the order of the calls. Offsets that are given while a commit is under way go together
        with the next, so that calling this for every record costs one request at a time. Partitions that have gone
        before their turn comes are left out. Leaving the block waits for the commits.

        Args:
            offsets: partition to the next offset to read; by default those behind everything handed out so far.
            on_done: called in a background task with what was committed and None, or the error; it must not block.
                Without it failures are logged. A function given several times meanwhile is called once.

        Raises:
            IllegalStateError: there is no ``group_id``.
        """
        if on_done is not None and not callable(on_done):
            raise TypeError(f"on_done must be callable, not {on_done!r}")
        self._engine.committer.commit_later(self._to_commit(offsets, "commit_nowait()"), on_done)

    def _to_commit(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None, what: str
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        self._engine.check_usable()
        if self.options.group_id is None:
            raise IllegalStateError(f"{what} needs a group_id: offsets are committed for a group")
        if offsets is None:
            return self._collector.consumed()
        if not isinstance(offsets, Mapping):
            raise TypeError(f"{what}: offsets must be a mapping of partitions to offsets, not {offsets!r}")
        return {
            partition: checked_offset(partition, offset)
            for partition, offset in zip(checked_partitions(offsets), offsets.values(), strict=True)
        }

    @overload
    async def committed(
        self, partitions: TopicPartition, *, timeout_ms: float | None = None
    ) -> OffsetAndMetadata | None: ...

    @overload
    async def committed(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]: ...

    async def committed(
        self, partitions: TopicPartition | Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> OffsetAndMetadata | dict[TopicPartition, OffsetAndMetadata | None] | None:
        """Return the group's committed offset of one partition, or of several as a dict; None where there is none.

        Raises:
            KafkaTimeoutError: no answer within ``timeout_ms`` (default ``default_api_timeout_ms``).
        """
        if isinstance(partitions, TopicPartition):
            return (await self.committed([partitions], timeout_ms=timeout_ms))[partitions]
        self._engine.check_usable()
        wanted = checked_partitions(partitions)
        with self._engine.user("committed"):
            return await self._engine.group_offsets.committed(wanted, deadline=self._deadline(timeout_ms))

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each partition that is still there. Partitions need not be assigned.

        Raises as `offsets_for_times`.
        """
        return await self._ends(partitions, EARLIEST, timeout_ms)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset that the next record will get; under ``read_committed`` the last stable offset.

        Raises as `offsets_for_times`.
        """
        return await self._ends(partitions, LATEST, timeout_ms)

    async def _ends(
        self, partitions: Iterable[TopicPartition], to: int, timeout_ms: float | None
    ) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(checked_partitions(partitions), to)
        found = await self.offsets_for_times(wanted, timeout_ms=timeout_ms)
        return {partition: offset.offset for partition, offset in found.items() if offset is not None}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record of each partition with at least the given timestamp (milliseconds); None if there is none.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            KafkaTimeoutError: no answer within ``timeout_ms`` (default ``default_api_timeout_ms``).
        """
        self._engine.check_usable()
        if not isinstance(timestamps, Mapping):
            raise TypeError(f"timestamps must be a mapping of partitions to milliseconds, not {timestamps!r}")
        for partition, timestamp in timestamps.items():
            if isinstance(timestamp, bool) or not hasattr(timestamp, "__index__"):
                raise TypeError(f"{partition}: a timestamp must be an int of milliseconds, not {timestamp!r}")
        wanted = dict(zip(checked_partitions(timestamps), timestamps.values(), strict=True))
        with self._engine.user("a lookup of offsets"):
            return await self._engine.log_offsets.list_offsets(wanted, deadline=self._deadline(timeout_ms))

    async def partitions_for_topic(self, topic: str, *, timeout_ms: float | None = None) -> list[int] | None:
        """The numbers of a topic's partitions, None if there is no such topic. Never creates it.

        Raises:
            TopicAuthorizationFailedError: not allowed to see the topic.
            InvalidTopicError: no topic can be called so.
            KafkaTimeoutError: no answer within ``timeout_ms`` (default ``default_api_timeout_ms``).
        """
        self._engine.check_usable()
        check_topic_name(topic)
        return (await self._engine.topic_lists.look_up([topic], deadline=self._deadline(timeout_ms))).get(topic)

    async def topics(self, *, timeout_ms: float | None = None) -> dict[str, list[int]]:
        """All topics that this client may see, with the numbers of their partitions.

        Raises:
            KafkaTimeoutError: no answer within ``timeout_ms`` (default ``default_api_timeout_ms``).
        """
        self._engine.check_usable()
        return await self._engine.topic_lists.look_up(None, deadline=self._deadline(timeout_ms))

    def _seconds(self, timeout_ms: float | None) -> float:
        if timeout_ms is None:
            return self.options.default_api_timeout_ms / 1000
        if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, (int, float)) or isnan(timeout_ms):
            raise TypeError(f"timeout_ms must be a number of milliseconds, not {timeout_ms!r}")
        return timeout_ms / 1000

    def _deadline(self, timeout_ms: float | None) -> float:
        return self._world.now() + self._seconds(timeout_ms)

    # ---------------------------------------------------------------- how it is doing

    def health(self) -> ConsumerHealth:
        """Return the state of this consumer and its ongoing failures, without any request."""
        return take_health(self._engine)

    def metrics(self) -> dict[str, float]:
        """Return counters and gauges by name, without any request."""
        return take_metrics(self._engine)
