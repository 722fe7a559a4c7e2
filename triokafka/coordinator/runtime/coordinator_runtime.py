"""Coordinator shards over the partitions of a log: append, replay, and hold the answer until the records are committed.

One shard owns the state of one partition of a coordinator's topic. An operation runs on the
shard without waiting and writes its decisions into `Effects`. The runtime appends the records, replays them into the
shard, and releases the answers once the high watermark has passed the records. Without records, the answers wait for
the uncommitted state that the operation may have read. A failed append changes nothing. When the broker loses
leadership, the runtime drops the shard; the next leader reads it again from the log.

All methods are synchronous, and the broker calls them from one thread. `CoordinatorTask` serves a runtime.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import inf
from sys import maxsize
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from triokafka import errors
from triokafka.coordinator.runtime.coordinator_log import CoordinatorLog, TransactionMarker
from triokafka.coordinator.runtime.coordinator_type import CommitLevel, CoordinatorType
from triokafka.coordinator.runtime.effects import Effects
from triokafka.coordinator.runtime.outbox import Outbox
from triokafka.coordinator.runtime.partition_load_times import LoadTimes
from triokafka.coordinator.runtime.replay import replay_log
from triokafka.coordinator.runtime.reply import Reply
from triokafka.coordinator.runtime.shard import Shard
from triokafka.coordinator.runtime.shard_context import Held, ShardContext, ShardState
from triokafka.coordinator.runtime.timer_queue import Moment, TimerKey
from triokafka.world import World

logger = logging.getLogger(__name__)

C = TypeVar("C")
T = TypeVar("T")

_TOLERANCE: Final = 1e-6  # seconds; fires a deadline at a wake-up that rounding put just before it
_FIRST_RETRY_SECONDS: Final = 1.0
_LAST_RETRY_SECONDS: Final = 60.0
"""Delays before a failed load is tried again; each is twice the one before."""
_EXPIRY: Final = TimerKey("expiry")

S = TypeVar("S", bound=Shard[Any])


class CoordinatorRuntime(Generic[S, C]):
    """The shards of one coordinator on one broker.

    Args:
        log: the partitions of the coordinator's topic.
        partitions: the number of partitions of that topic; the broker sets it again when the topic is created.
        wake: called when there is work for the task that sleeps until `next_deadline`.
    """

    def __init__(
        self,
        world: World,
        log: CoordinatorLog,
        coordinator_type: CoordinatorType[S],
        *,
        partitions: int,
        wake: Callable[[], None],
    ) -> None:
        self._world = world
        self._now = world.loop_clock()
        self._log = log
        self._type = coordinator_type
        self.partitions = partitions
        self._wake = wake
        self._commit_timeout = coordinator_type.commit_timeout_ms / 1000
        # Appended records of a coordinator that does not wait for the other replicas count as committed.
        self._committed_below: Callable[[int], int] = (
            log.high_watermark if coordinator_type.commit_level is CommitLevel.ALL else lambda partition: maxsize
        )
        self.is_stopped = False
        self.load_times = LoadTimes()
        """Seconds between the call of `load` and service, for the shards that loaded recently."""
        self._contexts: dict[int, ShardContext[S, C]] = {}
        self._loads: deque[tuple[ShardContext[S, C], Iterator[None]]] = deque()
        self._outbox = Outbox()
        self._sleeps_until = -inf

    def partition_for(self, key: str) -> int:
        """Return the partition that stores ``key``; its leader coordinates the key."""
        return self._type.partition_of(key, self.partitions)

    # --- moving shards ---

    def load(self, partition: int, leader_epoch: int) -> None:
        """Read the log of ``partition`` in the background task; this broker leads it since ``leader_epoch``.

        Until the log is read, requests fail with COORDINATOR_LOAD_IN_PROGRESS. Ignores an epoch that is not newer than
        the known one, so that a late call cannot undo a newer one.
        """
        if self.is_stopped:
            return
        known = self._contexts.get(partition)
        if known is not None:
            if known.leader_epoch >= leader_epoch:
                return
            self._drop(known)
        shard = self._type.new_shard(partition, leader_epoch)
        context: ShardContext[S, C] = ShardContext(partition, leader_epoch, shard, wanted_at=self._now())
        self._contexts[partition] = context
        self._start_loading(context)

    def unload(self, partition: int, leader_epoch: int | None = None) -> None:
        """Drop ``partition``: as of ``leader_epoch`` (None: unconditionally) this broker no longer leads it.

        Waiting requests fail with NOT_COORDINATOR. Writes nothing: the next leader needs the records.
        """
        known = self._contexts.get(partition)
        if known is None or (leader_epoch is not None and leader_epoch < known.leader_epoch):
            return
        self._drop(known)

    def stop(self) -> None:
        """Unload every partition and refuse all later requests; the broker is shutting down."""
        self.is_stopped = True
        for context in list(self._contexts.values()):
            self._drop(context)
        self._outbox.give_all()

    def state(self, partition: int) -> ShardState | None:
        """Return the state of the shard of ``partition``; None when this broker does not host it."""
        context = self._contexts.get(partition)
        return None if context is None else context.state

    def high_watermark_changed(self, partition: int, offset: int) -> None:
        """Note that everything below ``offset`` is committed, and release the answers that waited for it."""
        context = self._contexts.get(partition)
        # During an append the records are not replayed yet; `_carry_out` reads the high watermark after the append.
        if context is not None and context.state is ShardState.ACTIVE and not context.appending:
            self._advance(context, offset)
            self._wake_for(context)

    # --- operations ---

    def write(self, partition: int, operation: Callable[[S, Effects[C]], None]) -> None:
        """Run an operation on a shard and carry out its effects. Answers arrive through the operation's own replies.

        Raises:
            NotCoordinatorError: this broker does not host the shard.
            CoordinatorNotAvailableError: the broker is shutting down.
            CoordinatorLoadInProgressError: the shard is still loading.
            KafkaError: the operation refused the request; nothing changed.
        """
        self._run(self._active(partition), operation)

    def append_marker(self, partition: int, marker: TransactionMarker, reply: Reply[None]) -> None:
        """Append a transaction's marker and apply it to the shard; the reply arrives when it is committed.

        Raises as `write`.
        """

        def operation(_shard: S, effects: Effects[C]) -> None:
            effects.marker = marker
            effects.answer(reply, None)

        self.write(partition, operation)

    def topics_deleted(self, topics: Mapping[UUID, str]) -> None:
        """Have every shard remove the state of deleted topics, given by id and name; a loading shard, once loaded."""
        for context in list(self._contexts.values()):
            if context.state is ShardState.ACTIVE:
                self._run(context, lambda shard, effects: self._type.topics_deleted(shard, topics, effects))
            else:
                context.deleted_topics.update(topics)

    def _run(self, context: ShardContext[S, C], operation: Callable[[S, Effects[C]], None]) -> None:
        effects = self._new_effects(context)
        operation(context.shard, effects)
        self._carry_out(context, effects)
        self._wake_for(context)

    def read(self, partition: int, operation: Callable[[S], T]) -> T:
        """Run a read-only operation on a shard. The operation must read committed state. Raises like `write`."""
        return operation(self._active(partition).shard)

    def active_partitions(self) -> list[int]:
        """Return the partitions whose shards serve requests, sorted."""
        return sorted(p for p, context in self._contexts.items() if context.state is ShardState.ACTIVE)

    def check_running(self) -> None:
        """Raise `CoordinatorNotAvailableError` when the broker is shutting down."""
        if self.is_stopped:
            raise errors.CoordinatorNotAvailableError("this broker is shutting down")

    def count(self, state: ShardState) -> int:
        """Return the number of shards in ``state``."""
        return sum(context.state is state for context in self._contexts.values())

    def held_answers(self) -> int:
        """Return the number of operations whose answers wait for the high watermark."""
        return sum(len(context.held) for context in self._contexts.values())

    @property
    def is_loading(self) -> bool:
        """Whether any shard is loading."""
        return any(context.state is ShardState.LOADING for context in self._contexts.values())

    def _active(self, partition: int) -> ShardContext[S, C]:
        context = self._contexts.get(partition)
        if context is not None and context.state is ShardState.ACTIVE:
            return context
        self.check_running()
        if context is None or context.state is ShardState.FAILED:
            raise errors.NotCoordinatorError(f"{self._type.topic}-{partition}: this broker is not its coordinator")
        raise errors.CoordinatorLoadInProgressError(
            f"{self._type.topic}-{partition}: the coordinator is still loading it"
        )

    # --- time ---

    @property
    def has_queued_work(self) -> bool:
        """Whether shards wait for loading, or answers for their release."""
        return bool(self._loads or self._outbox)

    def fall_asleep(self) -> float:
        """Note that the task sleeps until `next_deadline`, which is returned. Earlier work wakes it."""
        self._sleeps_until = self.next_deadline()
        return self._sleeps_until

    def wake_up(self) -> None:
        """Note that the task is awake."""
        self._sleeps_until = -inf

    def clock_jumped(self) -> None:
        """Wake the task after the world's clock was advanced, so that it fires deadlines that have passed."""
        self._wake()

    def next_deadline(self) -> float:
        """Return when `fire_due` next has work, in seconds on the world's clock: infinity for never, minus infinity for
        immediately."""
        return -inf if self._outbox else min(map(self._deadline_of, self._contexts.values()), default=inf)

    def fire_due(self) -> None:
        """Fire every expired deadline, of the shards and of held commits, and release the next queued answers."""
        self._outbox.give_more()
        now = self._now() + _TOLERANCE
        for context in list(self._contexts.values()):
            if context.state is ShardState.FAILED and context.retry_at <= now:
                context.shard = self._type.new_shard(context.partition, context.leader_epoch)
                self._start_loading(context)
            while self._contexts.get(context.partition) is context and context.state is ShardState.ACTIVE:
                key = context.shard.timers.pop_due(now)
                if key is None:
                    break
                if key is _EXPIRY:
                    self._guarded(context, partial(self._expire, context))
                    continue
                effects = self._new_effects(context)
                self._guarded(context, partial(self._type.timer_fired, context.shard, key, effects))
                self._guarded(context, partial(self._carry_out, context, effects))
            while context.held and context.held[0].deadline <= now:
                self._time_out(context, context.held.popleft())

    def _expire(self, context: ShardContext[S, C]) -> None:
        self._schedule_expiry(context)  # first, so that an exception does not end the expiry
        effects = self._new_effects(context)
        pause = self._type.expire(context.shard, effects)
        if pause is not None:
            context.shard.timers.schedule(_EXPIRY, effects.at.now + pause)
        not_expired = effects.on_failed

        def failed(error: errors.KafkaError, later: Effects[C]) -> None:
            self._schedule_expiry(context)
            if not_expired is not None:
                not_expired(error, later)

        effects.on_failed = failed
        self._carry_out(context, effects)

    def _schedule_expiry(self, context: ShardContext[S, C]) -> None:
        if self._type.expiry_interval_ms is not None:
            context.shard.timers.schedule(_EXPIRY, self._now() + self._type.expiry_interval_ms / 1000)

    def _deadline_of(self, context: ShardContext[S, C]) -> float:
        if context.state is not ShardState.ACTIVE:
            return context.retry_at
        timer = context.shard.timers.next_deadline()
        commit = context.held[0].deadline if context.held else inf
        return commit if timer is None else min(timer, commit)

    def _wake_for(self, context: ShardContext[S, C]) -> None:
        until = self._sleeps_until
        if context.shard.timers.is_due_before(until) or (context.held and context.held[0].deadline < until):
            self._wake()

    def _new_effects(self, context: ShardContext[S, C]) -> Effects[C]:
        return Effects(Moment(self._now(), self._world.wall_ms()), context.shard.timers)

    # --- loading ---

    def _start_loading(self, context: ShardContext[S, C]) -> None:
        context.state, context.retry_at = ShardState.LOADING, inf
        self._loads.append((context, self._load_steps(context)))
        self._wake()

    def load_step(self) -> None:
        """Do a bounded part of the pending loading."""
        if not self._loads:
            return
        context, steps = self._loads[0]
        if self._contexts.get(context.partition) is not context:
            self._loads.popleft()
            return
        try:
            next(steps)
        except StopIteration:
            self._loads.popleft()
        except Exception:
            self._loads.popleft()
            seconds = min(_FIRST_RETRY_SECONDS * 2**context.failed_loads, _LAST_RETRY_SECONDS)
            context.state, context.retry_at = ShardState.FAILED, self._now() + seconds
            context.failed_loads += 1
            logger.exception(
                "%s-%d (leader epoch %d): loading the %s coordinator failed; it tries again in %g seconds",
                *(self._type.topic, context.partition, context.leader_epoch, self._type.name, seconds),
            )

    def load_all(self) -> None:
        """Finish all pending loading now. For brokers that start with little data, and for tests."""
        while self._loads:
            self.load_step()

    def _load_steps(self, context: ShardContext[S, C]) -> Iterator[None]:
        shard, partition = context.shard, context.partition
        context.end, count = yield from replay_log(self._log, partition, shard, self._committed_below)
        context.state = ShardState.ACTIVE
        shard.commit(self._committed_below(partition))
        effects = self._new_effects(context)
        shard.loaded(effects)
        self._schedule_expiry(context)
        self._carry_out(context, effects)
        if context.deleted_topics:
            self._run(context, lambda shard, effects: self._type.topics_deleted(shard, context.deleted_topics, effects))
        now = self._now()
        self.load_times.record(now, now - context.wanted_at)
        logger.info(
            "%s-%d (leader epoch %d): %d records read", self._type.topic, partition, context.leader_epoch, count
        )

    def _drop(self, context: ShardContext[S, C]) -> None:
        del self._contexts[context.partition]
        error = errors.NotCoordinatorError(f"{self._type.topic}-{context.partition} moved to another broker")
        waiting = context.shard.unload()
        context.shard.timers.clear()
        held, context.held = context.held, deque()
        for item in held:
            waiting.extend(reply for reply, _ in item.effects.answers)
        for reply in waiting:
            reply.fail(error)

    # --- carrying out ---

    def _carry_out(self, context: ShardContext[S, C], effects: Effects[C], *, committed: bool = False) -> None:
        """Append and replay the records, and release or hold the answers.

        ``committed``: the effects depend on committed state only, so without records its answers need not wait.
        """
        if effects.records or effects.marker is not None:
            context.appending = True
            try:
                end = self._append(context, effects)
            except (errors.KafkaError, OSError) as error:
                self._append_failed(context, effects, error)
                return
            finally:
                context.appending = False
            effects.appended = True
            self._replay(context, effects, end)
            context.end = end
        if effects.on_appended is not None:
            self._guarded(context, partial(effects.on_appended, effects))
        self._log_notes(effects)
        if not effects.appended and (committed or self._is_committed(context)):
            self._give(effects)
            return
        context.held.append(Held(context.end, effects.at.now + self._commit_timeout, effects))
        self._advance(context, self._committed_below(context.partition))

    def _is_committed(self, context: ShardContext[S, C]) -> bool:
        """Whether all records of the shard are committed. A high watermark does not fall under one leader."""
        return context.end <= context.committed_below or context.end <= self._committed_below(context.partition)

    def _append(self, context: ShardContext[S, C], effects: Effects[C]) -> int:
        """Append the marker or the records; return the offset after them."""
        partition, wall_ms = context.partition, effects.at.wall_ms
        if effects.marker is not None:
            return self._log.append_marker(partition, effects.marker, wall_ms)
        records = effects.encoded
        records += [context.shard.encode(change) for change in effects.records[len(records) :]]
        if effects.producer is not None:
            return self._log.append_in_transaction(partition, effects.producer, records, wall_ms)
        return self._log.append(partition, records, wall_ms)

    def _replay(self, context: ShardContext[S, C], effects: Effects[C], end: int) -> None:
        # With one replica the append is committed at once, so the shard need not remember an older state.
        committed_now = end <= self._committed_below(context.partition)
        marker, first = effects.marker, end - len(effects.records)
        if marker is not None:
            context.shard.end_transaction(marker.producer_id, end - 1, commits=marker.commits, committed=committed_now)
        elif effects.producer is not None:
            for offset, change in enumerate(effects.records, first):
                context.shard.replay_pending(change, offset, effects.producer.producer_id)
        else:
            replay = context.shard.replay
            for offset, change in enumerate(effects.records, first):
                replay(change, offset, committed=committed_now)

    def _append_failed(
        self, context: ShardContext[S, C], effects: Effects[C], cause: errors.KafkaError | OSError
    ) -> None:
        if isinstance(cause, errors.KafkaError):
            error = cause
        else:
            error = errors.KafkaStorageError(f"{self._type.topic}-{context.partition}: append failed: {cause}")
        self._log_notes(effects)
        logger.warning(
            "%s-%d: %d records not appended: %r", self._type.topic, context.partition, len(effects.records), error
        )
        self._fail(context, effects, error)

    def _fail(self, context: ShardContext[S, C], effects: Effects[C], error: errors.KafkaError) -> None:
        for reply, _ in effects.answers:
            reply.fail(error)
        if effects.on_failed is not None:
            later = self._new_effects(context)
            hook, effects.on_failed = effects.on_failed, None
            self._guarded(context, partial(hook, error, later))
            # The answers to a failure depend on no uncommitted state, so they need not wait for the high watermark.
            self._carry_out(context, later, committed=True)

    def _advance(self, context: ShardContext[S, C], high_watermark: int) -> None:
        context.committed_below = high_watermark
        context.shard.commit(high_watermark)
        while context.held and context.held[0].end <= high_watermark:
            held = context.held.popleft()
            self._give(held.effects)
            if held.effects.on_committed is not None:
                later = self._new_effects(context)
                hook = held.effects.on_committed
                self._guarded(context, partial(hook, later))
                self._carry_out(context, later, committed=True)

    def _time_out(self, context: ShardContext[S, C], held: Held[C]) -> None:
        seconds = self._commit_timeout
        error = errors.RequestTimedOutError(
            f"{self._type.topic}-{context.partition}: records not committed within {seconds:g} seconds"
        )
        self._fail(context, held.effects, error)

    @staticmethod
    def _log_notes(effects: Effects[C]) -> None:
        for note in effects.notes:
            logger.info("%s", note)

    def _give(self, effects: Effects[C]) -> None:
        self._outbox.give(effects.answers)
        if self._outbox:
            self._wake()

    def _guarded(self, context: ShardContext[S, C], step: Callable[[], None]) -> None:
        """Run a step and log its exception: a defect in the state of one key must not stop the task that serves all."""
        try:
            step()
        except Exception:
            logger.exception("%s-%d: a coordinator step failed", self._type.topic, context.partition)
