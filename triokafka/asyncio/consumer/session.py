"""The loop thread's side of an asyncio consumer: one task that uses the SDK's `Consumer`.

The task polls all the time, so that rebalances continue while the program processes records, and passes the records to
the asyncio loop, one hand-over per poll. A partition that is full there (`FlowControl`) is paused until the program has
taken records. A call of the program (`ProgramCalls`) interrupts the poll, which loses nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any, Final

import trio

from triokafka import Consumer  # now, not in the running loop: it takes a tenth of a second
from triokafka.asyncio.bridge import Bridge, Opening, usable_error
from triokafka.asyncio.consumer.asyncio_state import AsyncioState
from triokafka.asyncio.consumer.calls import ProgramCalls
from triokafka.asyncio.consumer.flow_control import FlowControl
from triokafka.asyncio.consumer.position_errors import OF_A_POSITION
from triokafka.asyncio.consumer.positions import looked_up_position, positions_or_failures
from triokafka.asyncio.errors import ConsumerStoppedError
from triokafka.errors import (
    IllegalStateError,
    KafkaError,
    MaxPollIntervalExceededError,
)
from triokafka.record_buffer import Position
from triokafka.structs import OffsetAndMetadata, TopicPartition

logger = logging.getLogger(__name__)

_COMMIT_SECONDS: Final = 10.0
_SECONDS_PAST_ERRORS: Final = 0.05
"""Between two polls while a partition has an error and the program reads others."""


class ConsumerSession:
    """The SDK's consumer from its construction to its end. Coroutines are for `ask`, other methods for `soon`.

    ``idle_seconds`` is the time after which a program that asks for no records leaves its group.
    """

    def __init__(self, bridge: Bridge, options: dict[str, Any], *, commits: bool, idle_seconds: float) -> None:
        self.bridge = bridge
        self.options = options
        self.local: AsyncioState | None = None
        self.dormant = False
        self._commits = commits
        self._idle_seconds = idle_seconds
        self._consumer: Consumer | None = None
        self._calls = ProgramCalls(bridge, on_arrival=self._end_poll, after_each=self._look_at_assignment)
        self.ask, self.soon = self._calls.ask, self._calls.soon
        self._polling: trio.CancelScope | None = None
        self._holding = False
        self._passes_errors = False
        self._closing = False
        self._opening = Opening()
        self._ended = trio.Event()
        self._ended.set()
        self._failure: Exception | None = None
        self._assignment: frozenset[TopicPartition] | None = None
        self._flow = FlowControl(options["max_partition_fetch_bytes"])
        self._seen: Any = None
        self._settled = False
        self._pattern = False
        self._unassigned_polls = 0
        self._seeks = 0
        self._plan = 0
        self._epoch = 0.0

    @property
    def consumer(self) -> Consumer:
        """The SDK's consumer. Raises `ConsumerStoppedError`, or the error that ended it."""
        if self._consumer is None:
            raise usable_error(self._failure) if self._failure is not None else ConsumerStoppedError()
        return self._consumer

    @property
    def network(self) -> Any:
        """The connections. Raises as `consumer`."""
        return self.consumer.engine.network

    @property
    def member_id(self) -> str:
        """The consumer's id in its group; empty without one. In any thread."""
        membership = self._consumer.engine.membership if self._consumer is not None else None
        return membership.identity.member_id if membership is not None else ""

    @property
    def _state(self) -> AsyncioState:
        assert self.local is not None
        return self.local

    # ---------------------------------------------------------------- lifetime

    async def open(self, topics: Iterable[str]) -> None:
        """Construct the SDK's consumer, connect it, and wait until the topics exist. For `Bridge.call`.

        After a failure nothing is left, and it may be called again.

        Raises:
            ConfigurationError: an option is invalid.
            ValueError: ``isolation_level`` is unknown.
            KafkaConnectionError: no broker accepted the connection, or the login.
            UnknownTopicOrPartitionError: a topic did not exist within ``request_timeout_ms``.
            TopicAuthorizationFailedError: a topic may not be described.
        """
        level = self.options["isolation_level"]
        if level not in ("read_uncommitted", "read_committed"):
            raise ValueError(f"Incorrect isolation level {level}")
        consumer = Consumer(**self.options)
        opening = self._opening = Opening()
        self._closing, self._failure = False, None
        self._ended = trio.Event()
        self._calls.begin()
        name = f"kafka {self.options['client_id']}"
        self.bridge.trio_loop.start(self._run, consumer, sorted(topics), opening, name=name)
        await opening.wait()

    async def _run(self, consumer: Consumer, topics: list[str], opening: Opening) -> None:
        try:
            with opening.scope:
                async with consumer:
                    network = consumer.engine.network
                    await opening.connect(network, self.options["bootstrap_servers"])
                    # A group of which no member knows the topics is stable without partitions.
                    await network.metadata_for(topics, timeout_ms=self.options["request_timeout_ms"])
                    self._consumer = consumer
                    self._epoch = time.time() - trio.current_time()
                    opening.done()
                    await self._serve()
        except Exception as error:
            self._failure = error
            if opening.is_over:
                logger.warning("the consumer ended with an error: %s", error)
                if self.local is not None and not self._closing:
                    self.bridge.post(self.local.fail, error)
        finally:
            self._consumer = None
            self._closing = True
            self._calls.end()
            if self.local is not None and opening.is_over:
                self.bridge.post(self.local.stop)
            self._ended.set()
            opening.ended(self._failure)

    async def close(self, positions: Any) -> None:
        """Commit the positions, if auto-commit is on, and end."""
        if self._commits:
            await self._commit_quietly(self._resolved(positions))
        self._commits = False
        self._closing = True

    async def end(self) -> None:
        """End, if `open` got so far; wait until the consumer has left its group. For `Bridge.call`."""
        self._abandon()
        await self._ended.wait()

    def abandon(self) -> None:
        """End, because the `AIOKafkaConsumer` was garbage-collected. From any thread."""
        self.bridge.trio_loop.soon(self._abandon)

    def _abandon(self) -> None:
        self._commits = False
        self._closing = True
        self._opening.cancel()
        self._calls.wake()

    # ---------------------------------------------------------------- the task

    def _end_poll(self) -> None:
        if self._polling is not None:
            self._polling.cancel()

    async def _serve(self) -> None:
        while not self._closing:
            if self._calls:
                await self._run_call()
            elif self.bridge.is_closed:
                self._commits = False
                return
            elif self._may_poll():
                await self._poll()
            else:
                await self._next_arrival()

    async def _run_call(self) -> None:
        """Execute a call of the program, whose wait does not count as idle time: the member stays in its group."""
        membership = None if self.dormant else self.consumer.engine.membership
        with nullcontext() if membership is None else membership.in_call():
            await self._calls.run_next()

    async def _next_arrival(self) -> None:
        again = self._holding and self._passes_errors
        # Nothing polls while an error waits for the program, which may be busy for up to max_poll_interval_ms.
        membership = self.consumer.engine.membership if self._holding and not self._is_idle() else None
        with nullcontext() if membership is None else membership.in_call():
            await self._calls.wait(_SECONDS_PAST_ERRORS if again else self.bridge.check_seconds)
        if again:
            self._holding = False

    def _may_poll(self) -> bool:
        """Whether there is something to read, the program has seen the last error, and asks for records at all."""
        if self._holding or not (self.consumer.subscription() or self.consumer.assignment() or self._pattern):
            return False
        if not self.dormant and self._is_idle():
            self.dormant = True
            self.bridge.post(self._state.buffer.put_back)  # the next call for records is to come to `wake_up`
        return not self.dormant

    def _is_idle(self) -> bool:
        """Whether the program has asked for no records for ``idle_seconds``, which the member's warning then names."""
        state = self._state
        now, seen = time.monotonic(), state.buffer.progress
        if seen != self._seen:
            self._seen, state.active_at = seen, now
        if state.waiting or now - state.active_at <= self._idle_seconds:
            return False
        membership = self.consumer.engine.membership
        if membership is not None:
            membership.poll_interval.idle_before = self._idle_seconds
        return True

    async def _poll(self) -> None:
        records: Any = None
        seeks = self._seeks
        try:
            with trio.CancelScope() as self._polling:
                if not self._calls:
                    records = await self.consumer.poll(
                        timeout_ms=self._patience() * 1000, max_records=self._flow.most_records
                    )
        except MaxPollIntervalExceededError:
            pass  # the heartbeats have logged it
        except IllegalStateError:
            if self.consumer.subscription() or self.consumer.assignment():
                raise
        except KafkaError as error:
            self._hold(error, seeks)
            if self._passes_errors:
                records = await self._arrived_records()
        finally:
            self._polling = None
        self._look_at_assignment()
        if records:
            self._deliver(records)

    def _hold(self, error: KafkaError, seeks: int) -> None:
        """Give an error to the program. The next poll would raise it again: wait until the program has seen it.

        Leave an error of a position to the next poll if there was a seek since ``seeks``, when the call began.
        """
        if seeks == self._seeks or not isinstance(error, OF_A_POSITION):
            self._holding = True
            self.bridge.post(self._state.fail, error, seeks)

    async def _arrived_records(self) -> Any:
        """Return what has arrived of partitions without an error: the next look for the other's position takes time."""
        seeks = self._seeks
        try:
            return await self.consumer.poll(timeout_ms=0, max_records=self._flow.most_records)
        except KafkaError as error:
            self._hold(error, seeks)
            return None

    def _patience(self) -> float:
        """Return the seconds that a poll may take: at most until the program counts as idle.

        Without a group no event marks the time when partitions are known.
        """
        if self._assignment or self.options["group_id"] is not None:
            idle_in = self._idle_seconds - (time.monotonic() - self._state.active_at)
            return (
                self.bridge.check_seconds if self._state.waiting else min(self.bridge.check_seconds, max(0.0, idle_in))
            )
        self._unassigned_polls += 1
        return min(0.5, 0.01 * self._unassigned_polls)

    def _deliver(self, records: dict[TopicPartition, list[Any]]) -> None:
        pieces, state = self.consumer.engine.collector.pieces, self._state
        message, full = self._flow.send(records, pieces)
        if not self.bridge.post(state.deliver, message, self._plan):
            self._closing = True
        if full:
            self.consumer.pause(*full)

    def _look_at_assignment(self) -> None:
        if self._consumer is None or self.local is None:
            return
        assignment = self._consumer.assignment()
        if assignment == self._assignment or (not assignment and self._assignment is None and not self._settled):
            return
        self._post_assignment(assignment)

    def _post_assignment(self, assignment: frozenset[TopicPartition], *, listener_follows: bool = False) -> None:
        for partition in (self._assignment or frozenset()) - assignment:
            self._flow.forget(partition)
        self._assignment = assignment
        self.bridge.post(self._state.set_assignment, assignment, self._plan, listener_follows)

    # ---------------------------------------------------------------- flow

    def release(self, partition: TopicPartition, count: int, received: int) -> None:
        """Note that ``count`` records have left the buffer of the asyncio loop, after ``received`` deliveries."""
        if self._flow.release(partition, count, received):
            self.consumer.resume(partition)

    def go_on(self) -> None:
        """Poll again: the program has seen an error."""
        self._passes_errors = self._holding = False
        self._calls.wake()

    def go_past_errors(self) -> None:
        """Poll again, and after further errors, too: the program waits for records of partitions without an error."""
        if not self._passes_errors:
            self._passes_errors = True
            self._calls.end_wait()

    async def wake_up(self) -> None:
        """Poll again after a long time without a call for records; if the member has left its group, drop those that
        wait."""
        self.dormant = False
        seeks = self._seeks
        for _ in range(2):  # the first call reports that the member has left, the second one revokes
            try:
                records = await self.consumer.poll(timeout_ms=0, max_records=self._flow.most_records)
            except MaxPollIntervalExceededError:
                pass  # the heartbeats have logged it
            except IllegalStateError:
                return  # neither subscription nor assignment
            except KafkaError as error:
                self._hold(error, seeks)
                return
            else:
                if records:
                    self._deliver(records)

    def pause(self, partition: TopicPartition) -> None:
        """Fetch nothing of the partition until `resume`."""
        self.consumer.pause(partition)
        self._flow.pause(partition)

    def resume(self, partition: TopicPartition) -> None:
        """Undo `pause`."""
        if self._flow.resume(partition):
            self.consumer.resume(partition)

    # ---------------------------------------------------------------- subscription and positions

    def subscribe(self, topics: Iterable[str], pattern: Any, plan: int) -> None:
        """Subscribe; the listener is this session. The member joins again, also for the same topics, as in aiokafka.

        Without a group, no partition keeps its position.
        """
        self.dormant = False
        self._plan = plan
        if self.consumer.subscription():
            membership = self.consumer.engine.membership
            if membership is not None:
                membership.rejoin("the program has subscribed again")
            elif self.options["group_id"] is None:
                self.unsubscribe(plan)
        self._pattern = pattern is not None
        if pattern is not None:
            self.consumer.subscribe(pattern=pattern, listener=self)
        else:
            self.consumer.subscribe(sorted(topics), listener=self)
        self._settled = False
        self._calls.wake()

    def assign(self, partitions: Iterable[TopicPartition], plan: int) -> None:
        """Read exactly these partitions, from their committed offsets or by ``auto_offset_reset``, as in aiokafka."""
        self._begin_plan(plan)
        self.consumer.assign(partitions)
        self._post_assignment(self.consumer.assignment())  # not an empty one before: the program has these already

    def unsubscribe(self, plan: int) -> None:
        """End the subscription or assignment. Nothing that was on its way counts for the program's new ``plan``."""
        self._begin_plan(plan)
        self._post_assignment(frozenset())

    def _begin_plan(self, plan: int) -> None:
        self._plan = plan
        self._seeks += 1
        self._pattern = False
        self.consumer.unsubscribe()
        for partition in self._assignment or ():
            self._flow.forget(partition)
        self._assignment = frozenset()
        self.go_on()

    def seek(self, partition: TopicPartition, offset: int, epoch: int) -> None:
        """Continue at ``offset``; records of earlier epochs are dropped."""
        self._begin_epoch(partition, epoch)
        self.consumer.seek(partition, offset)
        self._seeks += 1
        self.go_on()

    def _begin_epoch(self, partition: TopicPartition, epoch: int) -> None:
        if self._flow.begin_epoch(partition, epoch):
            self.consumer.resume(partition)

    async def reset(self, epochs: dict[TopicPartition, int], *, to_end: bool, seconds: float) -> bool:
        """Continue at the beginning or end of these partitions. Return whether the offsets became known in time."""
        for partition, epoch in epochs.items():
            self._begin_epoch(partition, epoch)
        self._seeks += 1
        if to_end:
            self.consumer.seek_to_end(*epochs)
        else:
            self.consumer.seek_to_beginning(*epochs)
        self._holding = False
        with trio.move_on_after(seconds):
            for partition in epochs:
                await self.consumer.position(partition)
            return True
        return False

    async def find_positions(self) -> None:
        """Wait until the assigned partitions have positions, or cannot have them now.

        A consumer that begins at the end then gets each record that is sent from now on.
        """
        seeks = self._seeks
        try:
            await positions_or_failures(self.consumer, self.bridge.check_seconds)
        except KafkaError as error:
            self._hold(error, seeks)

    async def position(self, partition: TopicPartition, seconds: float) -> int:
        """Return the SDK's position of a partition of which no record has crossed over."""
        self._holding = False
        if self._calls.is_calling_back:
            return await looked_up_position(self.consumer, self.options, partition)
        return await self.consumer.position(partition, timeout_ms=seconds * 1000)

    def fetched(self, partition: TopicPartition) -> tuple[int | None, int | None, int | None]:
        """Return high watermark, last stable offset, and time of the last fetch in milliseconds since the epoch.

        None before the first fetch. In any thread.
        """
        engine = self.consumer.engine
        state, at = engine.subscription.get(partition), engine.fetcher.counters.last_fetch_at
        if state is None or state.high_watermark < 0 or at is None:  # an assignment may be on its way
            return None, None, None
        return state.high_watermark, state.last_stable_offset, int((at + self._epoch) * 1000)

    def _resolved(self, positions: tuple[int, dict[TopicPartition, Position]]) -> dict[TopicPartition, Any]:
        """Return the offset to commit of every assigned partition that has a position.

        That is the first offset that the program has not got: in the asyncio loop's buffer, on its way there, or else
        the SDK's position, which is behind control records, too.
        """
        received, known = positions
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for partition, health in self.consumer.health().partitions.items():
            there = known.get(partition)
            offset = there.offset if there is not None and not there.is_end else None
            if offset is None:
                first = self._flow.first_in_transit(partition, received)
                offset = health.position if first is None else first
            if offset is not None:
                found[partition] = OffsetAndMetadata(offset)
        return found

    # ---------------------------------------------------------------- commits

    async def commit(self, offsets: dict[TopicPartition, Any] | None, positions: Any) -> None:
        """Commit offsets, by default the positions."""
        wanted = self._resolved(positions) if offsets is None else offsets
        if wanted:
            await self.consumer.commit(wanted)

    def commit_in_background(self, positions: Any) -> None:
        """Commit the positions; failures are logged. An idle consumer has left its group, or is about to."""
        wanted = {} if self.dormant else self._resolved(positions)
        if wanted:
            self.consumer.commit_nowait(wanted, on_done=_log_failure)

    async def _commit_quietly(self, offsets: dict[TopicPartition, Any]) -> None:
        try:
            if offsets and self.options["group_id"] is not None:
                await self.consumer.commit(offsets, timeout_ms=_COMMIT_SECONDS * 1000)
        except KafkaError as error:
            logger.warning("OffsetCommit failed: %s", error)

    # ---------------------------------------------------------------- the group; called by the SDK

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Commit what auto-commit covers, then call the program's listener."""
        if self._closing or self.bridge.is_closed:
            return
        partitions = list(revoked)
        positions = await self._calls.call_back(self._state.withhold, partitions)
        if self._commits:
            resolved = self._resolved(positions)
            await self._commit_quietly({one: resolved[one] for one in partitions if one in resolved})
        await self._revoke(partitions)

    async def _revoke(self, partitions: list[TopicPartition]) -> None:
        await self._calls.call_back(self._state.tell, "on_partitions_revoked", set(partitions))
        await self._calls.call_back(self._state.release, partitions)
        for partition in partitions:
            self._flow.forget(partition)

    async def on_partitions_assigned(self, assigned: Any) -> None:
        """Tell the asyncio loop about the assignment, and call the program's listener."""
        if self._closing or self.bridge.is_closed:
            return
        self._settled = True
        for partition in assigned:
            self._flow.begin(partition)
        self._post_assignment(self.consumer.assignment(), listener_follows=True)
        await self._calls.call_back(self._state.tell, "on_partitions_assigned", set(assigned))
        self.bridge.post(self._state.finish_assignment)

    async def on_partitions_lost(self, lost: Any) -> None:
        """Drop the records; aiokafka's listeners have no call for a loss, so they get a revocation."""
        if self._closing or self.bridge.is_closed:
            return
        partitions = list(lost)
        await self._calls.call_back(self._state.withhold, partitions)
        await self._revoke(partitions)


def _log_failure(offsets: Any, error: KafkaError | None) -> None:
    if error is not None:
        logger.warning("Auto offset commit failed: %s", error)
