"""The asyncio side of a consumer, as the session in the loop thread sees it.

It holds no reference to the `AIOKafkaConsumer`, so that an abandoned one is garbage-collected.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any

from triokafka import ConsumerRecord
from triokafka.asyncio.consumer.position_errors import OF_A_POSITION, in_aiokafkas_form, is_about
from triokafka.asyncio.records import converter
from triokafka.record_buffer import Position, RecordBuffer
from triokafka.structs import TopicPartition

logger = logging.getLogger(__name__)


class AsyncioState:
    """The buffer, the assignment, errors to raise, and the waiters of one consumer.

    ``active_at`` is the time of the last call for records, in seconds of `time.monotonic`, and ``waiting`` the number
    of calls that wait; the session reads both from its thread. ``epochs`` count the seeks of each partition: records
    fetched before a seek are dropped when they arrive. ``received`` counts deliveries. ``plan`` counts the program's
    changes of the subscription or assignment: results of an earlier plan are dropped.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        key_deserializer: Callable[[Any], Any] | None,
        value_deserializer: Callable[[Any], Any] | None,
        released: Callable[[TopicPartition, int, int], object],
    ) -> None:
        self.loop = loop
        self.buffer = RecordBuffer(converter(key_deserializer, value_deserializer), self._note_released)
        self._released = released
        self.listener: Any = None
        self.assignment: frozenset[TopicPartition] = frozenset()
        self.assigned = False
        self.errors: deque[Exception] = deque()
        self.epochs: dict[TopicPartition, int] = {}
        self.received = 0
        self.plan = 0
        self.seeks = 0
        self.stopped = False
        self.active_at = time.monotonic()
        self.waiting = 0
        self._joins_again = False
        self._waiters: set[asyncio.Future[None]] = set()

    # ---------------------------------------------------------------- waiting

    def wake(self) -> None:
        """Wake all waiters."""
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def changed(self, seconds: float | None) -> bool:
        """Wait for the next `wake`, at most ``seconds``. Return False after the time limit."""
        waiter: asyncio.Future[None] = self.loop.create_future()
        self._waiters.add(waiter)
        alarm = None
        if seconds is not None:
            alarm = self.loop.call_later(seconds, _time_out, waiter)
        self.waiting += 1
        try:
            await waiter
        except TimeoutError:
            return False
        finally:
            self.waiting -= 1
            self.active_at = time.monotonic()
            self._waiters.discard(waiter)
            if alarm is not None:
                alarm.cancel()
        return True

    def _note_released(self, partition: TopicPartition, count: int) -> None:
        self._released(partition, count, self.received)

    # ---------------------------------------------------------------- news from the session

    def deliver(
        self, records: dict[TopicPartition, tuple[int, list[ConsumerRecord], Sequence[int]]], plan: int
    ) -> None:
        """Take over records, each partition's with the epoch of its fetch, and its cuts (`RecordBuffer.add`)."""
        self.received += 1
        if plan != self.plan:
            return
        for partition, (epoch, some, cuts) in records.items():
            if partition in self.assignment and epoch == self.epochs.get(partition, 0):
                self.buffer.add(partition, some, cuts)
        self.wake()

    def fail(self, error: Exception, seeks: int | None = None) -> None:
        """Have a call for records raise, unless the error is of a position that a seek has replaced since."""
        if seeks is not None and seeks < self.seeks and isinstance(error, OF_A_POSITION):
            return
        known = [(type(one), one.args) for one in self.errors]
        new = [one for one in in_aiokafkas_form(error) if (type(one), one.args) not in known]
        if new:
            self.errors.extend(new)
            self.wake()

    def next_error(self, partitions: Collection[TopicPartition], *, of_positions: bool = True) -> Exception | None:
        """Remove and return the first error for a call for records of ``partitions`` (all if empty).

        With ``of_positions`` False, leave errors of positions to other calls.
        """
        for error in self.errors:
            if (of_positions or not isinstance(error, OF_A_POSITION)) and is_about(error, partitions):
                self.errors.remove(error)
                return error
        return None

    def note_seek(self) -> None:
        """Count a seek, and drop errors that it has made void."""
        self.seeks += 1
        self.errors = deque(error for error in self.errors if not isinstance(error, OF_A_POSITION))

    def stop(self) -> None:
        """Note that the session has ended."""
        self.stopped = True
        self.wake()

    def begin_plan(self, assignment: frozenset[TopicPartition] = frozenset()) -> int:
        """Note that the program assigns these partitions itself, or ends everything. Return the number of the plan."""
        self.plan += 1
        for partition in self.assignment | self.buffer.partitions():
            self._forget(partition)
        self.assignment = assignment
        self.assigned = bool(assignment)
        self.note_seek()
        self.wake()
        return self.plan

    def set_assignment(self, assignment: frozenset[TopicPartition], plan: int, listener_follows: bool = False) -> None:
        """Note the present assignment, and drop the records of all other partitions.

        With ``listener_follows``, the consumer counts as assigned only after the call of its listener.
        """
        if plan != self.plan:
            return
        for partition in (self.assignment | self.buffer.partitions()) - assignment:
            self._forget(partition)
        self.assignment = assignment
        if not listener_follows:
            self.finish_assignment()

    def finish_assignment(self) -> None:
        """Note that the consumer has partitions and that its listener knows them."""
        self.assigned = True
        if self._joins_again:
            self._joins_again = False
            self.buffer.withheld.clear()
        self.wake()

    def _forget(self, partition: TopicPartition) -> None:
        self.buffer.drop(partition)
        self.buffer.paused.discard(partition)

    def await_assignment(self) -> None:
        """Return no more records until the member has joined again, or the partitions are known again."""
        self.assigned = False
        self._joins_again = True
        self.buffer.put_back()
        self.buffer.withheld.update(self.assignment)

    # ---------------------------------------------------------------- rebalances; called through the bridge

    def withhold(self, revoked: list[TopicPartition]) -> tuple[int, dict[TopicPartition, Position]]:
        """Return no more records of these partitions; they count for `positions` until `release`."""
        self.buffer.put_back()
        self.buffer.withheld.update(revoked)
        return self.positions()

    def release(self, revoked: list[TopicPartition]) -> None:
        """Drop the records of these partitions."""
        for partition in revoked:
            self._forget(partition)
        self.buffer.withheld.difference_update(revoked)

    def positions(self) -> tuple[int, dict[TopicPartition, Position]]:
        """Return the number of deliveries so far and the positions after them."""
        return self.received, self.buffer.positions()

    async def tell(self, method: str, partitions: Any) -> None:
        """Call a method of the listener; wait for it if it is a coroutine."""
        if self.listener is None:
            return
        try:
            result = getattr(self.listener, method)(partitions)
            if asyncio.iscoroutine(result) or asyncio.isfuture(result):
                await result
        except Exception:
            logger.exception("User provided listener %r failed on %s", self.listener, method)


def _time_out(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_exception(TimeoutError())
