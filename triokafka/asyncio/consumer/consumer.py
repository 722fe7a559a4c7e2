"""`AIOKafkaConsumer`: aiokafka's consumer over the SDK's.

Records cross from the loop thread in large batches (`session`) into a `RecordBuffer` of the asyncio loop. ``async
for`` and `getmany` take them from there without a switch to another thread or task.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
import warnings
import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, Self

from triokafka import ConsumerRecord
from triokafka.asyncio.abc import ConsumerRebalanceListener
from triokafka.asyncio.bridge import Bridge, running_loop
from triokafka.asyncio.client_view import ClientView
from triokafka.asyncio.consumer.asyncio_state import AsyncioState
from triokafka.asyncio.consumer.calls import NOT_STARTED
from triokafka.asyncio.consumer.options import sdk_options
from triokafka.asyncio.consumer.queries import Queries
from triokafka.asyncio.consumer.session import ConsumerSession
from triokafka.asyncio.consumer.subscription import ProgramSubscription
from triokafka.asyncio.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from triokafka.asyncio.errors import ConsumerStoppedError, IllegalOperation
from triokafka.asyncio.offsets import checked_offsets
from triokafka.asyncio.options import API_VERSION_IS_DEPRECATED, network_options, warn_of_deprecated
from triokafka.asyncio.structs import OffsetAndTimestamp
from triokafka.errors import IllegalStateError
from triokafka.structs import TopicPartition

log = logging.getLogger(__name__)

_VERSION: Final = "0.14.0"
"""The version of aiokafka whose interface this is; part of the default ``client_id``."""


class AIOKafkaConsumer:
    """Reads records from Kafka topics; aiokafka's arguments, defaults and behaviour.

    Use it as ``async with AIOKafkaConsumer("orders", group_id="billing") as consumer``, or call `start` and `stop`.
    """

    _closed: bool | None = None

    def __init__(
        self,
        *topics: str,
        loop: asyncio.AbstractEventLoop | None = None,
        bootstrap_servers: str | list[str] = "localhost",
        client_id: str = "aiokafka-" + _VERSION,
        group_id: str | None = None,
        group_instance_id: str | None = None,
        key_deserializer: Callable[[Any], Any] | None = None,
        value_deserializer: Callable[[Any], Any] | None = None,
        fetch_max_wait_ms: int = 500,
        fetch_max_bytes: int = 52428800,
        fetch_min_bytes: int = 1,
        max_partition_fetch_bytes: int = 1 * 1024 * 1024,
        request_timeout_ms: int = 40 * 1000,
        retry_backoff_ms: int = 100,
        auto_offset_reset: str = "latest",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5000,
        check_crcs: bool = True,
        metadata_max_age_ms: int = 5 * 60 * 1000,
        partition_assignment_strategy: Iterable[Any] = (RoundRobinPartitionAssignor,),
        max_poll_interval_ms: int = 300000,
        rebalance_timeout_ms: int | None = None,
        session_timeout_ms: int = 10000,
        heartbeat_interval_ms: int = 3000,
        consumer_timeout_ms: int = 200,
        max_poll_records: int | None = None,
        ssl_context: Any = None,
        security_protocol: str = "PLAINTEXT",
        api_version: Any = None,
        exclude_internal_topics: bool = True,
        connections_max_idle_ms: int | None = 540000,
        isolation_level: str = "read_uncommitted",
        sasl_mechanism: str = "PLAIN",
        sasl_plain_password: str | None = None,
        sasl_plain_username: str | None = None,
        sasl_kerberos_service_name: str = "kafka",
        sasl_kerberos_domain_name: str | None = None,
        sasl_oauth_token_provider: Any = None,
        client_rack: str | None = None,
    ) -> None:
        given = dict(locals())  # the arguments
        if loop is None:
            loop = running_loop()
        else:
            warn_of_deprecated("The loop argument is deprecated since 0.7.1, and scheduled for removal in 0.9.0")
        if api_version is not None:
            warn_of_deprecated(API_VERSION_IS_DEPRECATED)
        if max_poll_records is not None and (not isinstance(max_poll_records, int) or max_poll_records < 1):
            raise ValueError("`max_poll_records` should be positive Integer")
        self._bridge = Bridge(loop, request_timeout_ms)
        options = sdk_options(network_options(self._bridge, given), given)
        self._loop = loop
        self._group_id = group_id
        self._enable_auto_commit = enable_auto_commit  # programs over aiokafka read both
        self._max_poll_records = max_poll_records
        self._request_timeout = request_timeout_ms / 1000
        self._commit_seconds = auto_commit_interval_ms / 1000 if enable_auto_commit and group_id is not None else None
        idle = (max_poll_interval_ms - options["max_poll_interval_ms"]) / 1000
        session = self._session = ConsumerSession(
            self._bridge, options, commits=self._commit_seconds is not None, idle_seconds=idle
        )
        self._local = session.local = AsyncioState(
            loop, key_deserializer, value_deserializer, partial(session.soon, session.release)
        )
        self._buffer = self._local.buffer
        self._queries = Queries(session, request_timeout_ms)
        self._chosen = ProgramSubscription(topics)
        self._committer: asyncio.TimerHandle | None = None
        self._started = False
        self._closed = False

    def __del__(self, _warnings: Any = warnings) -> None:
        if self._closed is False:
            _warnings.warn(f"Unclosed AIOKafkaConsumer {self!r}", ResourceWarning, source=self)
            self._session.abandon()
            if not self._loop.is_closed():
                self._loop.call_exception_handler({"consumer": self, "message": "Unclosed AIOKafkaConsumer"})

    # ---------------------------------------------------------------- starting and stopping

    async def start(self) -> None:
        """Connect to the cluster; with topics, or a pattern and a group, also wait until partitions are assigned.

        Then look up where to begin in the assigned partitions: records that are sent after `start` come behind
        the end of the log. A partition without a leader keeps that waiting for about a second only.

        Raises:
            ConsumerStoppedError: the consumer was stopped.
            KafkaConnectionError: no broker of ``bootstrap_servers`` accepts the connection, or the login, whose error
                is then the cause. Nothing is left open, and `start` may be called again.
            ConfigurationError: an option is invalid.
            ValueError: ``isolation_level`` is unknown.
            UnknownTopicOrPartitionError: a topic did not exist within ``request_timeout_ms``. Nothing is left open.
            KafkaError: the group refuses this member.
        """
        assert self._loop is running_loop(), "Please create objects with the same loop as running with"
        assert not self._started, "Did you call `start` twice?"
        if self._closed:
            raise ConsumerStoppedError()
        session = self._session
        assigned = self._chosen.mode == "assigned"
        by_hand = {partition.topic for partition in self._local.assignment} if assigned else ()
        await self._bridge.call(session.open, self._chosen.topics.union(by_hand))
        self._started = True
        if assigned:
            session.soon(session.assign, list(self._local.assignment), self._local.plan)
        elif self._chosen.mode:
            self._subscribe_session()
            if self._chosen.mode == "topics" or self._group_id is not None:
                while not self._local.assigned:
                    self._raise_errors(in_start=True)
                    await self._local.changed(None)
                self._raise_errors(in_start=True)
        if self._commit_seconds is not None:
            self._commit_later()
        if assigned or self._local.assigned:
            await session.ask(session.find_positions)

    def _subscribe_session(self) -> None:
        self._local.active_at = time.monotonic()
        pattern = self._chosen.whole_name_pattern
        self._session.soon(self._session.subscribe, self._chosen.topics, pattern, self._local.plan)

    async def stop(self) -> None:
        """Commit the records returned so far, with auto-commit, leave the group, and close the connections.

        Calls that wait for records raise `ConsumerStoppedError`. A second call does nothing.
        """
        if self._closed:
            return
        self._closed = True
        if self._committer is not None:
            self._committer.cancel()
        positions = self._local.positions()
        self._buffer.put_back()
        self._local.stop()
        await asyncio.shield(self._end(positions))
        self._buffer.clear()

    async def _end(self, positions: Any) -> None:
        if self._started:
            try:
                await self._session.ask(self._session.close, positions)
            except ConsumerStoppedError:
                pass
        await self._bridge.call(self._session.end)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.stop()

    # ---------------------------------------------------------------- private names of aiokafka that programs read

    @property
    def _client(self) -> ClientView:
        return ClientView(self._bridge, self._session)

    @property
    def _coordinator(self) -> Any:
        return SimpleNamespace(member_id=self._session.member_id)

    @property
    def _subscription(self) -> Any:
        return SimpleNamespace(topics=self.subscription())

    # ---------------------------------------------------------------- subscription

    def subscribe(
        self,
        topics: Iterable[str] = (),
        pattern: str | re.Pattern[str] | None = None,
        listener: ConsumerRebalanceListener | None = None,
    ) -> None:
        """Subscribe to topics by name, or to those whose name begins with a match of ``pattern``.

        Replaces the subscription before.

        Raises:
            IllegalStateError: partitions were assigned with `assign`.
            TypeError: not exactly one of topics and pattern, or the listener has another type.
            ValueError: the pattern is not a regular expression.
        """
        if listener is not None and not isinstance(listener, ConsumerRebalanceListener):
            raise TypeError("listener should be an instance of ConsumerRebalanceListener")
        self._chosen.subscribe(topics, pattern)
        self._local.listener = listener
        if self._group_id is None:
            self._local.begin_plan()
        else:
            self._local.await_assignment()
        if self._started:
            self._subscribe_session()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without a group, in place of the former ones. None keeps its position.

        Raises:
            IllegalStateError: topics are subscribed.
        """
        wanted = frozenset(TopicPartition(*one) for one in partitions)
        self._chosen.assign()
        plan = self._local.begin_plan(wanted)
        if self._started:
            self._session.soon(self._session.assign, list(wanted), plan)

    def unsubscribe(self) -> None:
        """End the subscription or assignment, and leave the group."""
        self._chosen.end()
        plan = self._local.begin_plan()
        if self._started:
            self._session.soon(self._session.unsubscribe, plan)

    def assignment(self) -> set[TopicPartition]:
        """Return the assigned partitions; none during a rebalance."""
        return set(self._local.assignment)

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics; with a pattern, those that match; with `assign`, the partitions' topics."""
        if self._chosen.mode == "pattern":
            return frozenset(self._session.consumer.subscription()) if self._started else frozenset()
        if self._chosen.mode == "assigned":
            return frozenset(partition.topic for partition in self._local.assignment)
        return self._chosen.topics

    # ---------------------------------------------------------------- records

    def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        if self._closed:
            raise ConsumerStoppedError()
        if type(self).__anext__ is not AIOKafkaConsumer.__anext__:
            return self
        return self._buffer.cursor.over(self._next_unless_stopped)

    async def __anext__(self) -> ConsumerRecord:
        """Return the next record; wait without limit. The iteration ends when the consumer is stopped."""
        for record in self._buffer.cursor.iterator:
            return record
        return await self._next_unless_stopped()

    async def _next_unless_stopped(self) -> ConsumerRecord:
        try:
            return await self._next(())
        except ConsumerStoppedError:
            raise StopAsyncIteration from None

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord:
        """Return the next record, of any partition or of one of these; wait without limit.

        Cancelling loses no record.

        Raises:
            ConsumerStoppedError: the consumer was stopped.
            OffsetOutOfRangeError, NoOffsetForPartitionError: with ``auto_offset_reset="none"``.
            CorruptRecordError: a batch is damaged.
            KafkaError: the group or a topic refuses this consumer.
        """
        if not partitions:
            for record in self._buffer.cursor.iterator:
                return record
        assert all(isinstance(one, TopicPartition) for one in partitions)
        return await self._next(partitions)

    async def _next(self, partitions: tuple[TopicPartition, ...]) -> ConsumerRecord:
        while True:
            self._check_usable()
            if self._session.dormant:
                await self._session.ask(self._session.wake_up)
            if self._buffer.next_run(partitions=partitions):
                for record in self._buffer.cursor.iterator:
                    return record
            self._raise_errors(partitions)
            await self._local.changed(None)

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return records by partition, of all partitions or of these; none if there are none within ``timeout_ms``.

        Also returns none if the consumer is stopped meanwhile.

        Args:
            partitions: by default all.
            timeout_ms: time limit in milliseconds; 0 returns at once.
            max_records: most records to return; ``max_poll_records`` by default.

        Raises as `getone`, and `ValueError` for invalid ``max_records``.
        """
        assert all(isinstance(one, TopicPartition) for one in partitions)
        self._check_usable()
        if max_records is not None and (not isinstance(max_records, int) or max_records < 1):
            raise ValueError("`max_records` must be a positive Integer")
        limit = max_records or self._max_poll_records
        until = self._loop.time() + timeout_ms / 1000
        if self._session.dormant:
            await self._session.ask(self._session.wake_up)
        while True:
            records = self._buffer.take(limit, partitions)
            if records:
                return records
            self._raise_errors(partitions)
            left = until - self._loop.time()
            if left <= 0:
                if timeout_ms == 0:
                    await asyncio.sleep(0)  # a program that only calls this must let records arrive
                return {}
            await self._local.changed(left)
            if self._closed:
                return {}  # the call was interrupted; later ones raise
            self._check_usable()

    def _check_usable(self) -> None:
        if self._closed or (self._local.stopped and not self._local.errors):
            raise ConsumerStoppedError()
        if not self._started:
            raise IllegalStateError(NOT_STARTED)
        self._local.active_at = time.monotonic()

    def _raise_errors(self, partitions: tuple[TopicPartition, ...] = (), *, in_start: bool = False) -> None:
        """Raise the next error. Errors of positions are for calls for records of their partitions, not for `start`."""
        if self._closed:
            raise ConsumerStoppedError()
        if not self._local.errors:
            return
        error = self._local.next_error(partitions, of_positions=not in_start)
        if error is not None:
            self._session.soon(self._session.go_on)
            raise error
        if not in_start:
            self._session.soon(self._session.go_past_errors)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until `resume`. Raises `TypeError`, `IllegalStateError`."""
        for partition in self._checked(partitions):
            self._buffer.put_back()
            self._buffer.paused.add(partition)
            self._session.soon(self._session.pause, partition)

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return set(self._buffer.paused)

    def resume(self, *partitions: TopicPartition) -> None:
        """Undo `pause`. Raises as `pause`."""
        for partition in self._checked(partitions):
            self._buffer.paused.discard(partition)
            self._session.soon(self._session.resume, partition)
        self._local.wake()

    def _checked(self, partitions: tuple[TopicPartition, ...]) -> tuple[TopicPartition, ...]:
        if not all(isinstance(one, TopicPartition) for one in partitions):
            raise TypeError("partitions must be TopicPartition namedtuples")
        for partition in partitions:
            self._check_assigned(partition)
        return partitions

    def _check_assigned(self, partition: TopicPartition) -> None:
        if partition not in self._local.assignment:
            raise IllegalStateError(f"Partition {partition!r} is not assigned")

    # ---------------------------------------------------------------- positions

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record of a partition; wait until it is known.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        while True:
            self._check_assigned(partition)
            known = self._buffer.position(partition)
            if known is not None:
                return known.offset
            received = self._local.received
            found = await self._session.ask(self._session.position, partition, self._request_timeout)
            if self._local.received == received:
                return found

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the end offset of a partition as of the last fetch; None before the first one."""
        return self._fetched(partition)[0]

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the last stable offset as of the last fetch: -1 with ``read_uncommitted``, None before the first."""
        stable = self._fetched(partition)[1]
        return stable if stable is None or self._session.options["isolation_level"] == "read_committed" else -1

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """Return the time of the last fetch, in milliseconds since the epoch; None before the first one."""
        return self._fetched(partition)[2]

    def _fetched(self, partition: TopicPartition) -> tuple[int | None, int | None, int | None]:
        assert partition in self._local.assignment, "Partition is not assigned"
        return self._session.fetched(partition)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at ``offset`` with the next call for records.

        Raises:
            ValueError: the offset is not an int, or negative.
            IllegalStateError: the partition is not assigned.
        """
        if not isinstance(offset, int) or offset < 0:
            raise ValueError("Offset must be a positive integer")
        self._check_assigned(partition)
        self._local.note_seek()
        self._session.soon(self._session.seek, partition, offset, self._begin_epoch(partition))

    def _begin_epoch(self, partition: TopicPartition) -> int:
        self._buffer.drop(partition)
        epoch = self._local.epochs[partition] = self._local.epochs.get(partition, 0) + 1
        return epoch

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Continue at the first offset of these partitions, or of all. Return whether it became known in time.

        Raises as `seek_to_committed`.
        """
        return await self._reset(partitions, to_end=False)

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Continue behind the last record; with ``read_committed`` at the last stable offset. As
        `seek_to_beginning`."""
        return await self._reset(partitions, to_end=True)

    async def _reset(self, partitions: tuple[TopicPartition, ...], *, to_end: bool) -> bool:
        epochs = {partition: self._begin_epoch(partition) for partition in self._all_or(partitions)}
        self._local.note_seek()
        work = partial(self._session.reset, to_end=to_end, seconds=self._request_timeout)
        return await self._session.ask(work, epochs)

    async def seek_to_committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """Continue at the committed offset of these partitions, or of all; return these offsets.

        Raises:
            IllegalStateError: a partition is not assigned.
            IllegalOperation: there is no ``group_id``.
            TypeError: an argument is not a `TopicPartition`.
        """
        found = {}
        for partition in self._all_or(partitions):
            offset = found[partition] = await self.committed(partition)
            if offset:
                self.seek(partition, offset)
        return found

    def _all_or(self, partitions: tuple[TopicPartition, ...]) -> tuple[TopicPartition, ...]:
        if not all(isinstance(one, TopicPartition) for one in partitions):
            raise TypeError("partitions must be TopicPartition instances")
        if not partitions:
            assert self._local.assignment, "No partitions are currently assigned"
            return tuple(sorted(self._local.assignment))
        not_assigned = set(partitions) - self._local.assignment
        if not_assigned:
            raise IllegalStateError(f"Partitions {not_assigned} are not assigned")
        return partitions

    # ---------------------------------------------------------------- offsets

    async def commit(self, offsets: Mapping[TopicPartition, Any] | None = None) -> None:
        """Commit offsets, by default those after all returned records, and wait for the answer.

        Args:
            offsets: partition to the next offset to read, or to a pair of it and text.

        Raises:
            IllegalOperation: there is no ``group_id``.
            IllegalStateError: nothing is subscribed, or a partition is not assigned.
            CommitFailedError: the group has removed this member.
            ValueError, TypeError: the offsets have another form.
        """
        if self._group_id is None:
            raise IllegalOperation("Requires group_id")
        if not self._chosen.mode:
            raise IllegalStateError("Not subscribed to any topics")
        wanted = None
        if offsets is not None:
            wanted = checked_offsets(offsets)
            if not self._local.assignment:
                raise IllegalStateError("No partitions assigned")
            for partition in wanted:
                self._check_assigned(partition)
        await self._session.ask(self._session.commit, wanted, self._local.positions())

    def _commit_later(self) -> None:
        assert self._commit_seconds is not None
        self._committer = self._loop.call_later(self._commit_seconds, _auto_commit, weakref.ref(self))

    def _auto_commit(self) -> None:
        self._session.soon(self._session.commit_in_background, self._local.positions())
        self._commit_later()

    async def committed(self, partition: TopicPartition) -> int | None:
        """Return the group's committed offset; None without one. Raises `IllegalOperation` without ``group_id``."""
        if self._group_id is None:
            raise IllegalOperation("Requires group_id")
        return await self._queries.committed(partition)

    async def offsets_for_times(
        self, timestamps: dict[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record of each partition with at least the given timestamp (milliseconds); None without one.

        Raises:
            ValueError: a timestamp is negative.
            KafkaTimeoutError: no answer within ``request_timeout_ms``.
        """
        return await self._queries.offsets_for_times(timestamps)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition. Raises `KafkaTimeoutError` after ``request_timeout_ms``."""
        return await self._queries.beginning_offsets(partitions)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the end offset of each partition. Raises as `beginning_offsets`."""
        return await self._queries.end_offsets(partitions)

    async def topics(self) -> set[str]:
        """Return all topics that the client may see. Raises as `beginning_offsets`."""
        return await self._queries.topics()

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the numbers of a topic's partitions; None if the consumer has no metadata of it."""
        return self._queries.partitions_for_topic(topic) if self._started else None


def _auto_commit(consumer: weakref.ref[AIOKafkaConsumer]) -> None:
    # The loop's timer must not keep a consumer alive that its program has dropped.
    found = consumer()
    if found is not None and not found._closed:
        found._auto_commit()
