"""The public consumer: subscribe, read records in one of four forms, seek, commit, leave.

This module has the public calls and the wait for records. Its parts: `SubscriptionState` (assignment and positions),
`Fetcher` (bytes from brokers), `FetchCollector` (records for the user), `Rebalancer` and `GroupMembership` (the
group), `Committer` (commits), `PositionFinder` (start positions).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self, Unpack, overload
from weakref import WeakKeyDictionary

import trio

from triokafka.client.config import ConsumerOptions
from triokafka.client.consumer.arguments import checked_limit, checked_offset, checked_offsets, checked_partitions
from triokafka.client.consumer.batches import Batches, FetchedBatch
from triokafka.client.consumer.engine import Engine
from triokafka.client.consumer.health import ConsumerHealth, take_health, take_metrics
from triokafka.client.consumer.interceptors import Records
from triokafka.client.consumer.lookups import Lookups
from triokafka.client.consumer.subscription_state import EARLIEST, LATEST, SubscriptionPattern
from triokafka.client.keywords import ConsumerKeywords
from triokafka.client.plugins import Plugins
from triokafka.client.serializers import Deserializer
from triokafka.component_methods import delegated
from triokafka.errors import CommitFailedError, IllegalStateError, KafkaError, KafkaTimeoutError
from triokafka.metrics import MetricName
from triokafka.records import ConsumerRecord
from triokafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from triokafka.topic_names import check_topic_name
from triokafka.world import World
from triokafka.world.system import RealWorld

if TYPE_CHECKING:
    import pyarrow as pa

_NEVER: Final = float("inf")
_PER_WORLD_NUMBERS: Final[WeakKeyDictionary[World, itertools.count[int]]] = WeakKeyDictionary()


class Consumer:
    """Reads records from Kafka topics. Use it as ``async with Consumer("orders", group_id="billing") as consumer``.

    Positional arguments are topics to subscribe to. Options are keyword arguments, such as ``bootstrap_servers``,
    ``group_id``, ``auto_offset_reset``, ``enable_auto_commit`` and ``group_protocol``; `ConsumerOptions` has all of
    them. ``world`` is for simulations. A wrong option raises `ConfigurationError` here. Entering the block starts the
    background tasks, which connect; it does not wait for them.

    One task at a time may use a consumer; a second one gets `IllegalStateError`. Membership, heartbeats, fetching and
    auto-commit run in the background while the block is open. A record or batch is finished when the program asks for
    the next one; auto-commit commits only finished records.

    Leaving the block commits the returned records (with ``enable_auto_commit``), calls the rebalance listener's
    ``on_partitions_revoked`` and leaves the group, within ``close_timeout_ms``. If an exception or a cancellation
    leaves the block, the last returned record or batch is not committed.

    A failed background task does not cancel the body: the current call and every later one raise its error.
    """

    def __init__(self, *topics: str, world: World | None = None, **options: Unpack[ConsumerKeywords]) -> None:
        parsed = ConsumerOptions.parse(options)
        self._world = world if world is not None else RealWorld()
        number = next(_PER_WORLD_NUMBERS.setdefault(self._world, itertools.count(1)))
        client_id = parsed.client_id or f"triokafka-consumer-{number}"
        self._plugins = Plugins(parsed, client_id)
        try:
            deserializers = self._plugins.serializers(parsed, "deserializer", Deserializer)
            self.options = replace(parsed, **deserializers) if any(deserializers.values()) else parsed
            self._engine = Engine(self.options, self._world, client_id=client_id)
        except BaseException:
            self._plugins.close()
            raise
        self._plugins.warn_of_unused()
        self._collector = self._engine.collector
        self._lookups = Lookups(self._engine)
        if topics:
            self.subscribe(topics)

    @property
    def engine(self) -> Engine:
        """The parts of this consumer, for other modules of this package; not part of the public API."""
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
        """Subscribe to topics by name, or to all topics whose name matches a pattern. Replaces the former subscription.

        With a ``group_id`` the group assigns the partitions, from the next call for records on; without one this
        consumer reads all of them. A call without topics and pattern is the same as `unsubscribe`.

        Args:
            topics: names of topics.
            pattern: a regular expression for whole names, instead of topics. The consumer applies a `str` or
                `re.Pattern` to all topics; the coordinator applies a `SubscriptionPattern`, with
                ``group_protocol="consumer"``.
            listener: called when partitions are assigned, revoked or lost; see `ConsumerRebalanceListener`.

        Raises:
            IllegalStateError: partitions are assigned by hand, or the other kind of subscription is in use.
            InvalidTopicError, TypeError: a name is invalid.
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

        Partitions in both keep their position. A ``group_id`` is then used for committed offsets only. An empty list is
        the same as `unsubscribe`.

        Raises:
            IllegalStateError: the consumer has a subscription.
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
        """Return the subscribed topics.

        With a pattern: those that match so far. With a pattern of the coordinator: those with assigned partitions.
        """
        return frozenset(self._engine.subscription.topics)

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that this consumer reads now."""
        return self._engine.subscription.assigned_set

    # ---------------------------------------------------------------- records

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        """Iterate over records without an end: each step does the same as `__anext__`."""
        if type(self).__anext__ is not Consumer.__anext__:
            return self
        return self._collector.cursor.over(self._next_run)

    async def __anext__(self) -> ConsumerRecord:
        """Return the next record; wait without limit. Raises as `poll`, including `IllegalStateError`.

        It yields to other tasks once per ``max_poll_records`` records. Cancelling loses no record.
        """
        for record in self._collector.cursor.iterator:
            return record
        return await self._next_run()

    async def _next_run(self) -> ConsumerRecord:
        collector = self._collector
        while True:
            if not collector.next_run():
                with self._engine.user("iterating over the consumer"):
                    await self._engine.wait_for(lambda: collector.take_runs(self.options.max_poll_records), _NEVER)
            for record in collector.cursor.iterator:
                return record

    async def poll(self, *, timeout_ms: float = 0, max_records: int | None = None) -> Records:
        """Return records by partition, in order; an empty dict if there are none within ``timeout_ms``.

        Buffered records are returned at once. After the time limit, joining the group and finding positions continue in
        the background. Cancelling loses no record.

        Args:
            timeout_ms: time limit.
            max_records: maximum number of records; the option ``max_poll_records`` (500) if None.

        Raises:
            DecompressedSizeError: a batch decompresses to more than ``max_decompressed_batch_bytes``.
            CorruptRecordError, RecordDeserializationError: names topic, partition and offset; seek past it to continue,
                or see ``deserialization_error_policy``.
            OffsetOutOfRangeError, NoOffsetForPartitionError: with ``auto_offset_reset="none"``.
            IllegalStateError: the consumer has neither subscription nor assignment, so that no record can ever come:
                call `subscribe` or `assign` first.
            MaxPollIntervalExceededError: the previous call was too long ago; the next call joins the group again.
            KafkaTimeoutError: a broker, the coordinator or a lookup has failed for ``default_api_timeout_ms``.
            AuthorizationError: reading a topic or using the group is not allowed.
        """
        limit = checked_limit(self.options.max_poll_records if max_records is None else max_records)
        with self._engine.user("poll"):
            self._collector.put_back()
            return (
                await self._engine.wait_for(lambda: self._collector.take(limit), self._engine.seconds(timeout_ms)) or {}
            )

    async def poll_arrow(
        self,
        *,
        timeout_ms: float = 0,
        max_records: int = 100_000,
        columns: Sequence[str] | None = None,
        values: Literal["binary", "view"] = "binary",
    ) -> pa.RecordBatch:
        """Return records of all partitions as one Arrow record batch; it has zero rows if there are none in time.

        Columns: key, value, topic, partition, offset, timestamp (µs, UTC), timestampType, headers. ``values="view"``
        makes key and value views into the fetched bytes instead of copies. Deserializers and interceptors do not
        apply. Otherwise as `poll`.
        """
        from triokafka.records.arrow import ArrowBuilder

        builder = ArrowBuilder(columns, values=values, most_bytes=self.options.max_poll_bytes)
        limit = checked_limit(self.options.max_poll_records if max_records is None else max_records)
        with self._engine.user("poll_arrow"):
            self._collector.put_back()
            await self._engine.wait_for(
                lambda: self._collector.take_columns(builder, limit), self._engine.seconds(timeout_ms)
            )
        return builder.finish()

    def batches(self) -> Batches:
        """Iterate with ``async for`` over batches that are decoded on demand: see `FetchedBatch`. Never ends.

        Raises as `poll`.
        """
        return Batches(self._next_batch)

    async def _next_batch(self) -> FetchedBatch:
        with self._engine.user("iterating over batches"):
            self._collector.put_back()
            batch = await self._engine.wait_for(self._collector.take_batch, _NEVER)
        assert batch is not None
        return batch

    def wakeup(self) -> None:
        """End a wait for records, or for a position, from another task: it raises `WakeupError`, and loses no record.

        Without a wait, the next one raises. Listeners, commits and closing are not disturbed. From another thread call
        it through ``trio.from_thread.run_sync``. Cancelling the waiting call has the same effect.
        """
        self._engine.interrupt()

    # ---------------------------------------------------------------- positions

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Continue at ``offset`` with the next call for records; buffered data is dropped.

        Raises:
            IllegalStateError: the partition is not assigned.
            ValueError: the offset is negative.
        """
        self._collector.put_back()
        (wanted,) = checked_partitions([partition])
        target = checked_offset(wanted, offset)
        self._engine.subscription.seek(wanted, target.offset, target.leader_epoch)
        self._engine.wake()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the log start offset, looked up in the background; by default in all partitions.

        Raises:
            IllegalStateError: a partition is not assigned.
        """
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue after the last record; under ``read_committed`` at the last stable offset. As
        `seek_to_beginning`."""
        self._reset(partitions, LATEST)

    def _reset(self, partitions: Sequence[TopicPartition], to: int) -> None:
        self._collector.put_back()
        for partition in checked_partitions(partitions) or self._engine.subscription.assignment:
            self._engine.subscription.request_reset(partition, to)
        self._engine.wake()

    async def position(self, partition: TopicPartition, *, timeout_ms: float | None = None) -> int:
        """Return the offset of the next record of a partition; wait until it is known.

        Raises:
            IllegalStateError: the partition is not assigned.
            KafkaTimeoutError: no answer within ``timeout_ms`` (default ``default_api_timeout_ms``).
        """
        (asked,) = checked_partitions([partition])
        with self._engine.user("position"):
            await trio.lowlevel.checkpoint()
            found = await self._engine.wait_for_state(
                lambda: self._collector.position(asked), self._engine.seconds(timeout_ms)
            )
        if found is None:
            raise KafkaTimeoutError(f"the position of {asked} is not known yet{self._engine.ongoing_failure()}")
        return found

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until `resume`; they stay assigned, and fetched data is kept.

        Raises:
            IllegalStateError: one of them is not assigned; none is paused then.
        """
        self._collector.put_back()
        self._engine.subscription.pause(checked_partitions(partitions))

    def resume(self, *partitions: TopicPartition) -> None:
        """Undo `pause`. Raises as `pause`."""
        self._engine.subscription.resume(checked_partitions(partitions))
        self._engine.wake()

    def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        return frozenset(self._engine.subscription.paused)

    # ---------------------------------------------------------------- offsets

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Commit offsets, by default those after all returned records, the last one included.

        Waits for the coordinator's answer and retries retriable errors, at most ``timeout_ms`` (default
        ``default_api_timeout_ms``). If cancelled, the commit may or may not have happened.

        Args:
            offsets: partition to the next offset to read: that of the last processed record plus one.

        Raises:
            CommitFailedError: the group has removed this member; others will read the records again.
            KafkaTimeoutError: no answer in time.
            IllegalStateError: ``group_id`` is not set.
        """
        wanted = self._to_commit(offsets, "commit()")
        with self._engine.user("commit"), self._engine.timed("commit"):
            await self._engine.committer.commit(wanted, deadline=self._engine.deadline(timeout_ms))

    def commit_nowait(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        *,
        on_done: Callable[[Mapping[TopicPartition, OffsetAndMetadata], KafkaError | None], object] | None = None,
    ) -> None:
        """Commit as `commit` does, in the background; returns at once.

        Commits happen in the order of the calls. Offsets given while a commit is under way are sent together with the
        next, so a call per record costs one request at a time. Partitions revoked before their turn are left out.
        Leaving the block waits for the commits.

        Args:
            offsets: partition to the next offset to read; by default those after all returned records.
            on_done: called in a background task with the committed offsets and None, or the error; it must not block.
                Without it failures are logged. A function passed several times meanwhile is called once.

        Raises:
            IllegalStateError: ``group_id`` is not set.
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
        return self._collector.consumed() if offsets is None else checked_offsets(offsets, what)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this consumer's membership now, for `Transaction.send_offsets` (KIP-447). Never waits.

        Raises:
            IllegalStateError: there is no ``group_id``.
        """
        group_id = self.options.group_id
        if group_id is None:
            raise IllegalStateError("group_metadata() needs a group_id")
        membership = self._engine.committer.membership
        if membership is None:
            return ConsumerGroupMetadata(group_id)
        identity = membership.identity
        return ConsumerGroupMetadata(group_id, identity.generation, identity.member_id, identity.group_instance_id)

    def transaction_offsets(self) -> tuple[ConsumerGroupMetadata, dict[TopicPartition, OffsetAndMetadata]]:
        """Return the membership, and the offsets behind everything handed out so far, for `Transaction.send_offsets`.

        Raises:
            IllegalStateError: there is no ``group_id``, or ``enable_auto_commit`` is on.
            CommitFailedError: this consumer is not a member of its group now.
        """
        offsets = self._to_commit(None, "send_offsets()")
        if self.options.enable_auto_commit:
            raise IllegalStateError(
                "send_offsets() needs a consumer with enable_auto_commit=False: otherwise it commits offsets of a"
                " transaction that may be aborted"
            )
        metadata = self.group_metadata()
        if self._engine.committer.membership is not None and metadata.generation_id < 0:
            raise CommitFailedError(
                f"the offsets cannot be part of the transaction: this consumer is not a member of group"
                f" {metadata.group_id!r} now; records since the last commit will be read again"
            )
        return metadata, offsets

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
        """Return the group's committed offset of one partition, or of several as a dict; None without a commit.

        Raises:
            KafkaTimeoutError: no answer within ``timeout_ms`` (default ``default_api_timeout_ms``).
        """
        if isinstance(partitions, TopicPartition):
            return (await self.committed([partitions], timeout_ms=timeout_ms))[partitions]
        self._engine.check_usable()
        wanted = checked_partitions(partitions)
        with self._engine.user("committed"), self._engine.timed("committed"):
            return await self._engine.group_offsets.committed(wanted, deadline=self._engine.deadline(timeout_ms))

    beginning_offsets = delegated("_lookups", Lookups.beginning_offsets)
    end_offsets = delegated("_lookups", Lookups.end_offsets)
    offsets_for_times = delegated("_lookups", Lookups.offsets_for_times)
    epoch_ends = delegated("_lookups", Lookups.epoch_ends)
    partitions_for_topic = delegated("_lookups", Lookups.partitions_for_topic)
    topics = delegated("_lookups", Lookups.topics)

    # ---------------------------------------------------------------- health

    def health(self) -> ConsumerHealth:
        """Return the state of this consumer and its ongoing failures, without any request."""
        return take_health(self._engine)

    def metrics(self) -> dict[str, float]:
        """Return counters and gauges by name, without any request."""
        return take_metrics(self._engine)

    def kafka_metrics(self) -> dict[MetricName, float]:
        """Return Kafka's metrics by name, group and tags: rates and averages of the last minute, and totals."""
        return self._engine.metrics.values()
