"""Parallel processing of partitions, each in order; commits follow the records finished without a gap."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import trio

from triokafka.client.consumer.consumer import Consumer
from triokafka.client.consumer.finished_prefix import FinishedPrefix
from triokafka.client.consumer.interceptors import Records
from triokafka.client.consumer.rebalance.listener_calls import call_listener
from triokafka.errors import CommitFailedError, IllegalStateError, KafkaError
from triokafka.records import ConsumerRecord
from triokafka.structs import TopicPartition
from triokafka.trio_context import require_trio

logger = logging.getLogger(__name__)

_POLL_MS: Final = 1_000


class _PartitionQueue:
    """One partition: its waiting records, the number of records in hand, its tasks, and its finished prefix."""

    def __init__(self) -> None:
        self.prefix = FinishedPrefix()
        self.committed: int | None = None
        self.waiting: deque[ConsumerRecord] = deque()
        self.in_hand = 0
        self.changed = trio.Event()
        self.closed = False
        self._scopes: list[trio.CancelScope] = []

    def scope(self) -> trio.CancelScope:
        """Return the cancel scope for one of its tasks."""
        scope = trio.CancelScope()
        self._scopes.append(scope)
        if self.closed:
            scope.cancel()
        return scope

    def drop_waiting(self) -> int:
        """Drop the waiting records and return their number. They count as not finished."""
        dropped = len(self.waiting)
        self.waiting.clear()
        self.in_hand -= dropped
        return dropped

    def close(self) -> None:
        """Cancel its tasks."""
        self.closed = True
        self.waiting.clear()
        for scope in self._scopes:
            scope.cancel()

    def notify(self) -> None:
        """Wake the tasks: a record came or is finished."""
        self.changed.set()
        self.changed = trio.Event()


async def process_partitions(
    consumer: Consumer,
    handle: Callable[[ConsumerRecord], Awaitable[object]],
    *,
    tasks_per_partition: int = 1,
    max_records_in_hand: int = 1_000,
    commit_interval_ms: float = 1_000,
) -> None:
    """Call ``handle(record)`` for every consumed record, partitions in parallel, until cancelled.

    Records of one partition are handled in order, one at a time, or ``tasks_per_partition`` at a time. An offset is
    committed only when every record below it is finished, so that no record is lost if the program ends. When
    partitions move to another member, started records are finished and committed first, and the rest is left to that
    member. When partitions are lost, their handlers are cancelled. A listener given to ``subscribe`` is called
    afterwards.

    Cancelling ends all handlers. Finished records are committed, and the next call begins at the first record of each
    partition that is not finished.

    Args:
        consumer: has ``enable_auto_commit=False``, is subscribed or assigned, and is not used otherwise meanwhile.
        handle: async; called in tasks of its own.
        tasks_per_partition: number of records of one partition that are handled at a time.
        max_records_in_hand: maximum number of records of all partitions that are handled or wait; above it fetching
            waits.
        commit_interval_ms: time between commits.

    Raises:
        IllegalStateError: the consumer has auto-commit enabled.
        ValueError: a number is below 1.
        Exception: an error of ``handle``, after the other handlers were cancelled and finished records were committed.
        KafkaError: as `Consumer.poll`; or a commit failed with an error that is not retriable.
    """
    require_trio("process_partitions()")
    if consumer.options.enable_auto_commit and consumer.options.group_id is not None:
        raise IllegalStateError("process_partitions() commits finished records itself: set enable_auto_commit=False")
    for name, number in (
        ("tasks_per_partition", tasks_per_partition),
        ("max_records_in_hand", max_records_in_hand),
        ("commit_interval_ms", commit_interval_ms),
    ):
        if number < 1:
            raise ValueError(f"{name}={number}: it must be at least 1")
    await _Processing(consumer, handle, tasks_per_partition, max_records_in_hand, commit_interval_ms / 1000).run()


class _Processing:
    """One run of `process_partitions`. It takes the place of the user's rebalance listener, and passes all calls on to
    it."""

    def __init__(
        self,
        consumer: Consumer,
        handle: Callable[[ConsumerRecord], Awaitable[object]],
        tasks_per_partition: int,
        max_records_in_hand: int,
        commit_interval: float,
    ) -> None:
        self._consumer = consumer
        self._handle = handle
        self._tasks_per_partition = tasks_per_partition
        self._limit = max_records_in_hand
        self._interval = commit_interval
        self._queues: dict[TopicPartition, _PartitionQueue] = {}
        self._in_hand = 0
        self._full = False
        self._poll_scope: trio.CancelScope | None = None
        self._failure: Exception | None = None
        self._listener: object = None

    async def run(self) -> None:
        """Run until cancelled or until something fails."""
        engine = self._consumer.engine
        self._listener = engine.listener
        engine.listener = self
        cancelled = True
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._commit_now_and_then)
                try:
                    while self._failure is None:
                        await self._take(nursery)
                except Exception as error:
                    self._failure = self._failure or error
                nursery.cancel_scope.cancel()
            cancelled = False
        finally:
            engine.listener = self._listener
            with trio.CancelScope(shield=True):
                await self._commit(self._queues)
            self._put_back()
            # Listener calls that remain after a cancelled run find no records in hand.
            self._drop(list(self._queues))
            if cancelled and self._failure is not None:
                logger.error("process_partitions failed before its cancellation ended", exc_info=self._failure)
        if self._failure is not None:
            raise self._failure

    # ---------------------------------------------------------------- records

    async def _take(self, nursery: trio.Nursery) -> None:
        """Call for records. With too many in hand, request none, so that the group still sees a live member."""
        consumer = self._consumer
        room = self._limit - self._in_hand
        self._full = room <= 0
        stopped = frozenset() if room > 0 else consumer.assignment() - consumer.paused()
        consumer.pause(*stopped)
        try:
            with trio.CancelScope() as self._poll_scope:
                polled = await consumer.poll(timeout_ms=_POLL_MS, max_records=max(1, room))
                self._hand_out(polled, nursery)
        finally:
            self._poll_scope = None
            consumer.resume(*(stopped & consumer.assignment()))

    def _hand_out(self, polled: Records, nursery: trio.Nursery) -> None:
        for partition, records in polled.items():
            queue = self._queues.get(partition)
            if queue is None:
                queue = self._queues[partition] = _PartitionQueue()
                for _ in range(self._tasks_per_partition):
                    nursery.start_soon(self._work, queue, name=f"handling {partition}")
            for record in records:
                queue.prefix.begin(record.offset, record.leader_epoch)
            queue.waiting.extend(records)
            queue.in_hand += len(records)
            self._in_hand += len(records)
            queue.notify()

    async def _work(self, queue: _PartitionQueue) -> None:
        with queue.scope():
            while self._failure is None:
                if not queue.waiting:
                    await queue.changed.wait()
                    continue
                record = queue.waiting.popleft()
                try:
                    await self._handle(record)
                except Exception as error:
                    self._fail(error)
                    return
                if queue.closed:
                    return  # the handler ignored its cancellation; the partition is gone
                queue.prefix.finish(record.offset)
                queue.in_hand -= 1
                self._in_hand -= 1
                queue.notify()
                self._poll_again()

    def _poll_again(self) -> None:
        """End a call that requested no records, if there is room again; a cancelled poll loses no record."""
        if self._full and self._in_hand < self._limit and self._poll_scope is not None:
            self._poll_scope.cancel()

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        for queue in self._queues.values():
            queue.notify()
        if self._poll_scope is not None:
            self._poll_scope.cancel()

    # ---------------------------------------------------------------- commits

    async def _commit_now_and_then(self) -> None:
        while True:
            await trio.sleep(self._interval)
            await self._commit(self._queues)

    async def _commit(self, partitions: Iterable[TopicPartition]) -> None:
        """Commit finished offsets that are not committed yet. If that fails, the next commit covers the same
        offsets."""
        if self._consumer.options.group_id is None:
            return
        queues = {partition: queue for partition in partitions if (queue := self._queues.get(partition)) is not None}
        offsets = {
            partition: position
            for partition, queue in queues.items()
            if (position := queue.prefix.position) is not None and position.offset != queue.committed
        }
        if not offsets:
            return
        try:
            await self._consumer.engine.committer.commit_existing(
                offsets, limit=self._consumer.options.close_timeout_ms / 1000
            )
        except KafkaError as error:
            logger.warning("the commit of %s failed: %s", [str(partition) for partition in offsets], error)
            if not (error.retriable or isinstance(error, CommitFailedError)):
                self._fail(error)  # to continue would mean to handle everything again later
            return
        for partition, offset in offsets.items():
            queues[partition].committed = offset.offset

    # ---------------------------------------------------------------- as a rebalance listener

    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        """Finish started records, commit them, and drop the partitions."""
        going = [queue for partition in partitions if (queue := self._queues.get(partition)) is not None]
        for queue in going:
            # The group waits: leave records that were not started to the next owner.
            self._in_hand -= queue.drop_waiting()
        with self._undisturbed():
            for queue in going:
                while queue.in_hand and self._failure is None:
                    await queue.changed.wait()
            await self._commit(partitions)
            self._drop(partitions)
            await call_listener(self._listener, "on_partitions_revoked", partitions)

    async def on_partitions_lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Cancel the handlers: other members may handle the same records already."""
        self._drop(partitions)
        with self._undisturbed():
            await call_listener(self._listener, "on_partitions_lost", partitions)

    async def on_partitions_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        """Nothing to prepare."""
        with self._undisturbed():
            await call_listener(self._listener, "on_partitions_assigned", partitions)

    @contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """Prevent free room, or a failure, from cancelling a listener, which would then be called again."""
        scope, self._poll_scope = self._poll_scope, None
        try:
            yield
        finally:
            self._poll_scope = scope
            if scope is not None and self._failure is not None:
                scope.cancel()
            self._poll_again()

    def _put_back(self) -> None:
        """Move positions back to unfinished records, for the next call for records."""
        for partition, queue in self._queues.items():
            position = queue.prefix.position
            if position is not None and not queue.prefix.is_complete and partition in self._consumer.assignment():
                self._consumer.seek(partition, position)

    def _drop(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            queue = self._queues.pop(partition, None)
            if queue is not None:
                self._in_hand -= queue.in_hand
                queue.close()
