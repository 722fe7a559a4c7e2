"""The controller's event queue, from operations to committed changes and responses.

One task takes operations from a bounded queue in order. Each reads the newest image and yields records and a response.
The records are appended to the metadata log and staged, so that the next operation builds on them before they are
committed. The log reports commitment as an event. Another task then publishes the changes in order, and completes the
operations. Changes that the log drops, or that are not committed when this node loses its leadership, are rolled back
to the newest committed image, and their callers get an error.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Generator
from itertools import takewhile
from typing import Any, Final, Generic, TypeVar

import trio

from triokafka import errors
from triokafka.broker_stub.controller.controller_metrics import EventQueueMetrics
from triokafka.broker_stub.controller.controller_state import ControllerState, StagedChange
from triokafka.broker_stub.controller.outcome import Outcome, Steps
from triokafka.broker_stub.metadata import features
from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.broker_stub.metadata.publisher import MetadataFollower
from triokafka.broker_stub.raft.metadata_log_interface import MetadataLog, MetadataLogListener
from triokafka.broker_stub.work_budget import BUDGET, run_within_budget
from triokafka.named_tuple import NamedTuple
from triokafka.world import World

logger = logging.getLogger(__name__)

T = TypeVar("T")

Compute = Callable[[MetadataImage], Outcome[T] | Steps[T]]
"""An operation: a function from the newest image to an outcome, or to steps that return one."""

MAX_WAITING: Final = 1000
"""The most operations in the queue; further callers wait for room."""
MAX_UNCOMMITTED: Final = 64
"""The most appended operations that wait for their commitment; further ones begin when earlier ones complete."""


def _nothing() -> None:
    pass


class Operation(Generic[T]):
    """One entry of the queue. Its caller waits in `result`."""

    def __init__(self, name: str, compute: Compute[T], expires_at: float, *, now: float = 0.0) -> None:
        self.name = name
        self.compute = compute
        self.expires_at = expires_at
        self.submitted_at = now
        self.abandoned = False
        self._done = trio.Event()
        self._response: list[T] = []
        self.error: Exception | None = None
        """The error with which the operation has failed, None if it has not."""

    def succeed(self, response: T) -> None:
        """Complete the operation: its change is committed and published."""
        self._response.append(response)
        self._done.set()

    def fail(self, error: Exception) -> None:
        """Complete the operation with an error."""
        self.error = error
        self._done.set()

    async def result(self) -> T:
        """Wait for the response. If cancelled, an operation that has not begun never begins; a running one
        continues.
        """
        try:
            await self._done.wait()
        except BaseException:
            self.abandoned = True
            raise
        if self.error is not None:
            error, self.error = self.error, None
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame
        return self._response[0]


class _Appended(NamedTuple):
    """An operation that completes once all records before ``end_offset`` are committed."""

    end_offset: int
    operation: Operation[Any]
    response: Any
    change: StagedChange | None


class EventQueue:
    """Runs operations against a state and its log. It is the listener of the log.

    Args:
        new_log: creates the metadata log, which this node leads, with its listener.
        publish: receives every committed change in order, before its operation completes.
        follower: does slow work for a change, before and after it is published.
        leads: this node leads the log already.
        activate: the first operation of every term.
        resign: called with the epoch when that operation fails: without its first records a term cannot continue.
        term_began, term_ended: called when this node begins to lead an epoch, and when it has published the last change
            of the epoch that it led.
    """

    def __init__(
        self,
        world: World,
        state: ControllerState,
        new_log: Callable[[MetadataLogListener], MetadataLog],
        publish: Callable[[MetadataDelta, MetadataImage], None],
        *,
        follower: MetadataFollower | None = None,
        leads: bool = True,
        activate: Compute[None] | None = None,
        resign: Callable[[int], object] | None = None,
        term_began: Callable[[], None] = _nothing,
        term_ended: Callable[[], None] = _nothing,
    ) -> None:
        self.metrics = EventQueueMetrics()
        self._world = world
        self._state = state
        self._publish = publish
        self._follower = follower
        self._committed_end = state.next_offset
        self._leads = self._in_term = leads
        self._activate = activate
        self._activation_due = False
        self._resign = resign
        self._term_changed = trio.Event()
        self._waiting = trio.CancelScope()
        self._term_began = term_began
        self._term_ended = term_ended
        self._new_term: tuple[int, MetadataImage] | None = None
        self._stopped = False
        self._uncommitted: deque[_Appended] = deque()
        self._woken = trio.Event()
        self._has_room = trio.Event()
        self._send, self._receive = trio.open_memory_channel[Operation[Any]](MAX_WAITING)
        self._log = new_log(self)

    async def submit(self, name: str, compute: Compute[T], *, timeout_ms: int | None = None) -> T:
        """Enqueue an operation and wait for its response; waits for room when the queue is full.

        While an operation runs in steps, other tasks run in between, but no other operation: changes have the order of
        the queue.

        Raises:
            NotControllerError: the queue was stopped, or this node does not lead the metadata log. An appended change
                may be lost.
            RequestTimedOutError: ``timeout_ms`` ended before the operation began; nothing has changed.
            KafkaStorageError: the log could not be written; nothing has changed.
        """
        expires_at = math.inf if timeout_ms is None else self._world.now() + max(timeout_ms, 0) / 1000
        operation = Operation(name, compute, expires_at, now=self._world.now())
        try:
            await self._send.send(operation)
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            raise _stopped() from None
        return await operation.result()

    async def run(self) -> None:
        """Process operations until `stop`, and events of the log until every appended operation is complete.

        If cancelled, operations that were not appended fail. Appended operations wait for the log, which reports their
        result when it stops (see `MetadataLog`).
        """
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._answer)
                try:
                    await self._process_operations()
                finally:
                    self.stop()
        finally:
            self._drop_after(-1, _stopped())  # nothing is left, unless a part failed

    def stop(self) -> None:
        """Reject new operations, and fail the waiting ones. A second call does nothing."""
        self._send.close()
        while True:
            try:
                self._receive.receive_nowait().fail(_stopped())
            except (trio.WouldBlock, trio.EndOfChannel, trio.ClosedResourceError):
                break
        self._receive.close()
        self._stopped = True
        self._woken.set()

    # Operations

    async def _process_operations(self) -> None:
        while True:
            operation: Operation[Any] | None = None
            with trio.CancelScope() as self._waiting:
                if self._activation_due:
                    self._waiting.cancel()
                try:
                    operation = await self._receive.receive()
                except (trio.EndOfChannel, trio.ClosedResourceError):
                    return
            if operation is None:
                await self._process_activation()
                continue
            # Append all waiting operations without a pause, so that one sync commits them.
            while True:
                await self._process(operation)
                try:
                    operation = self._receive.receive_nowait()
                except (trio.WouldBlock, trio.EndOfChannel, trio.ClosedResourceError):
                    break
            del operation  # and its request

    async def _process_activation(self) -> None:
        """Process the first operation of a term, before any other."""
        activate, self._activation_due = self._activate, False
        if activate is None:
            return
        epoch = self._state.epoch
        operation = Operation("Activate", activate, math.inf, now=self._world.now())
        await self._process(operation)
        if operation.error is not None and self._leads and self._state.epoch == epoch:
            logger.error("Controller: cannot begin epoch %d, and resigns: %s", epoch, operation.error)
            self._leads = False
            if self._resign is not None:
                self._resign(epoch)

    async def _process(self, operation: Operation[Any]) -> None:
        try:
            while not self._may_begin():
                await self._wait_to_begin()
            if not operation.abandoned:
                started_at = self._world.now()
                self.metrics.waited.add(started_at - operation.submitted_at)
                try:
                    await self._append(operation)
                finally:
                    self.metrics.processed.add(self._world.now() - started_at)
        except errors.RequestTimedOutError as error:
            self.metrics.timed_out[operation.name] += 1
            operation.fail(error)
        except errors.KafkaError as error:
            operation.fail(error)
        except Exception as error:
            logger.exception("Controller: the operation %s failed with an unexpected error", operation.name)
            operation.fail(error)
        except BaseException:
            operation.fail(_stopped())
            raise

    def _may_begin(self) -> bool:
        """Whether the next operation may begin: the term has begun and is activated, and there is room."""
        return self._new_term is None and not self._activation_due and len(self._uncommitted) < MAX_UNCOMMITTED

    async def _wait_to_begin(self) -> None:
        """Wait until a condition of `_may_begin` may have changed. A term may begin, or end, in each wait."""
        if self._new_term is not None:  # it begins as soon as the changes of the last one are published
            await self._term_changed.wait()
        elif self._activation_due:
            await self._process_activation()
        else:
            self._has_room = trio.Event()
            await self._has_room.wait()

    async def _append(self, operation: Operation[T]) -> None:
        """Compute the outcome of an operation, stage it, and append it to the log."""
        state, log = self._state, self._log
        if log.failure is not None:
            raise log.failure.fresh_copy()
        if not self._leads:
            raise _lost_leadership()
        if operation.expires_at <= self._world.now():
            raise errors.RequestTimedOutError(f"{operation.name}: its time limit ended before the controller began")
        while True:
            newest, base_offset = state.image, log.end_offset
            found = operation.compute(state.image_before(base_offset))
            records, response = await run_within_budget(found) if isinstance(found, Generator) else found
            state.check_newest(newest)
            if not records:
                if self._uncommitted:  # it may have read uncommitted changes
                    self._uncommitted.append(_Appended(self._uncommitted[-1].end_offset, operation, response, None))
                else:
                    operation.succeed(response)
                return
            change = await run_within_budget(state.stage(records, base_offset))
            try:
                if len(records) > BUDGET:
                    await trio.lowlevel.checkpoint()  # other tasks run before all of it is encoded
                    state.check_newest(change.image)
                if log.end_offset != base_offset:  # a control record has taken the offset meanwhile
                    state.roll_back(base_offset)
                    continue
                level = features.metadata_version(change.image.features)
                end_offset = log.append(records, state.epoch, metadata_version=level)
            except BaseException:
                state.roll_back(change.base_offset)
                raise
            self._uncommitted.append(_Appended(end_offset, operation, response, change))
            return

    # Events of the log

    def committed(self, end_offset: int) -> None:
        """See `MetadataLogListener`."""
        self._committed_end = max(self._committed_end, end_offset)
        self._woken.set()

    def rolled_back(self, error: errors.KafkaError) -> None:
        """See `MetadataLogListener`."""
        self._drop_after(self._committed_end, error)

    def lost_leadership(self, epoch: int) -> None:
        """See `MetadataLogListener`."""
        if epoch >= self._state.epoch:
            self._leads, self._new_term = False, None
            self._activation_due = False
            self._term_changed.set()
            self._drop_after(self._committed_end, _lost_leadership())

    def became_leader(self, epoch: int, image: MetadataImage) -> None:
        """See `MetadataLogListener`."""
        self._new_term = epoch, image
        self._term_changed = trio.Event()
        self._in_term = True
        self._woken.set()

    def _drop_after(self, end_offset: int, error: errors.KafkaError) -> None:
        """Fail the operations whose changes end after ``end_offset``, and roll the changes back."""
        while self._uncommitted and self._uncommitted[-1].end_offset > end_offset:
            self._uncommitted.pop().operation.fail(error.fresh_copy())
        self._state.roll_back(end_offset)
        self._has_room.set()
        self._woken.set()

    async def _answer(self) -> None:
        """Publish committed changes and complete their operations. Shielded from cancellation: callers wait for it."""
        with trio.CancelScope(shield=True):
            while True:
                self._woken = trio.Event()
                while self._uncommitted and self._uncommitted[0].end_offset <= self._committed_end:
                    await self._answer_committed()
                if self._in_term and not self._leads and self._new_term is None and not self._uncommitted:
                    self._in_term = False
                    self._term_ended()
                if self._new_term is not None:
                    self._begin_term(*self._new_term)
                if self._stopped and not self._uncommitted:
                    return
                await self._woken.wait()

    async def _answer_committed(self) -> None:
        committed_end = self._committed_end
        ready = list(takewhile(lambda appended: appended.end_offset <= committed_end, self._uncommitted))
        changes = [appended.change for appended in ready if appended.change is not None]
        if self._follower is not None:
            for change in changes:
                await self._follower.prepare(change.delta, change.image)
        for change in changes:
            self._state.commit(change)
            self._publish(change.delta, change.image)
        if self._follower is not None and changes:
            await self._follower.settle()
        for appended in ready:
            self._uncommitted.popleft()
            appended.operation.succeed(appended.response)
        self._has_room.set()

    def _begin_term(self, epoch: int, image: MetadataImage) -> None:
        self._drop_after(self._committed_end, _lost_leadership())
        self._state.load(image._replace(epoch=epoch))
        self._committed_end = self._state.next_offset
        self._leads, self._new_term = True, None
        self._activation_due = True
        self._term_changed.set()
        self._term_began()
        self._waiting.cancel()


def _lost_leadership() -> errors.NotControllerError:
    return errors.NotControllerError("this node is no longer the active controller")


def _stopped() -> errors.NotControllerError:
    return errors.NotControllerError("the controller has stopped")
