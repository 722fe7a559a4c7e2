"""The controller's event queue: operations in, committed changes and answers out.

One task takes operations off a bounded queue. Each looks at the newest image and yields records and a response; the
records of all that were waiting are appended to the metadata log and synced together, which commits them; then they
become the image, publishers are told, and only then do the answers go out. A failed append leaves the committed image
as it is, takes the batches back and answers with an error.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

import trio

from triokafka import errors
from triokafka.broker_stub.controller.metadata_log import MetadataLog
from triokafka.broker_stub.controller.outcome import Outcome, Steps
from triokafka.broker_stub.controller.state import ControllerState, StagedChange
from triokafka.broker_stub.metadata import features
from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.broker_stub.metadata.records import encode_records
from triokafka.broker_stub.work_budget import BUDGET, run_within_budget
from triokafka.protocol.message import Struct
from triokafka.world import World

logger = logging.getLogger(__name__)

T = TypeVar("T")

Compute = Callable[[MetadataImage], Outcome[T] | Steps[T]]
"""An operation: what it yields of an image, at once or in steps."""

MAX_WAITING: Final = 1000
"""Operations that may wait in the queue; the callers of more wait for room in it."""
MAX_TOGETHER: Final = 64
"""Operations that are committed with one sync."""


class Follower(Protocol):
    """Who follows changes with work that does not belong on the event loop. Raises nothing."""

    async def prepare(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """The change is committed and about to be published."""

    async def settle(self) -> None:
        """Changes were published; their answers wait for this."""


class Operation(Generic[T]):
    """One entry of the queue, and the place where its caller waits."""

    def __init__(self, name: str, compute: Compute[T], expires_at: float) -> None:
        self.name = name
        self.compute = compute
        self.expires_at = expires_at
        self.abandoned = False
        self._done = trio.Event()
        self._response: list[T] = []
        self._error: Exception | None = None

    def succeed(self, response: T) -> None:
        """Its change is committed and published."""
        self._response.append(response)
        self._done.set()

    def fail(self, error: Exception) -> None:
        """Nothing has changed because of it."""
        self._error = error
        self._done.set()

    async def result(self) -> T:
        """Wait for the response. When cancelled, an operation that has not begun never will; one that has goes on."""
        try:
            await self._done.wait()
        except BaseException:
            self.abandoned = True
            raise
        if self._error is not None:
            error, self._error = self._error, None
            try:
                raise error
            finally:
                del error  # its traceback has this frame
        return self._response[0]


class EventQueue:
    """Runs operations against a state and its log.

    Args:
        publish: told of every committed change, in order, before its answer goes out.
        appended: told how many bytes were committed.
        follower: does what following a change takes and may take long, before and after it is published.
    """

    def __init__(
        self,
        world: World,
        state: ControllerState,
        log: MetadataLog,
        publish: Callable[[MetadataDelta, MetadataImage], None],
        *,
        appended: Callable[[int], None] = lambda size: None,
        follower: Follower | None = None,
    ) -> None:
        self._world = world
        self._state = state
        self._log = log
        self._publish = publish
        self._appended = appended
        self._follower = follower
        self._broken: Exception | None = None
        self._send, self._receive = trio.open_memory_channel[Operation[Any]](MAX_WAITING)

    async def submit(self, name: str, compute: Compute[T], *, timeout_ms: int | None = None) -> T:
        """Enqueue an operation and wait for its response; waits for room when the queue is full.

        An operation that yields its outcome in steps lets others on the event loop have their turn in between, but no
        other operation: the order of the queue is the order of the changes.

        Raises:
            NotControllerError: the queue was stopped.
            RequestTimedOutError: ``timeout_ms`` was over before its turn came; nothing has changed.
            KafkaStorageError: the log could not be written; nothing has changed.
        """
        expires_at = math.inf if timeout_ms is None else self._world.now() + max(timeout_ms, 0) / 1000
        operation = Operation(name, compute, expires_at)
        try:
            await self._send.send(operation)
        except (trio.ClosedResourceError, trio.BrokenResourceError):
            raise _stopped() from None
        return await operation.result()

    async def run(self) -> None:
        """Work off the queue until `stop`. Cancelling it ends after the change in progress, and fails whoever waits."""
        operations: list[Operation[Any]] = []
        try:
            while True:
                try:
                    operations = [await self._receive.receive()]
                except (trio.EndOfChannel, trio.ClosedResourceError):
                    return
                while len(operations) < MAX_TOGETHER:
                    try:
                        operations.append(self._receive.receive_nowait())
                    except (trio.WouldBlock, trio.EndOfChannel):
                        break
                await self._process(operations)
                operations = []
        finally:
            for operation in operations:
                operation.fail(_stopped())
            self._state.roll_back()  # cancelled before its commit began
            self.stop()

    def stop(self) -> None:
        """Take no more operations, and fail those that wait. A second call does nothing."""
        self._send.close()
        while True:
            try:
                self._receive.receive_nowait().fail(_stopped())
            except (trio.WouldBlock, trio.EndOfChannel, trio.ClosedResourceError):
                break
        self._receive.close()

    async def _process(self, operations: Sequence[Operation[Any]]) -> None:
        """Stage what each operation yields, commit all of it together, then publish and answer one by one."""
        staged: list[tuple[Operation[Any], StagedChange | None, Any]] = []
        for operation in operations:
            if operation.abandoned:
                continue
            try:
                staged.append((operation, *await self._stage(operation)))
            except errors.KafkaError as error:
                operation.fail(error)
            except Exception as error:
                logger.exception("%s failed", operation.name)
                operation.fail(error)
        changes = [change for _, change, _ in staged if change is not None]
        if changes:
            # Once begun it must be known whether it was committed, so cancelling waits for it; and for what follows.
            with trio.CancelScope(shield=True):
                failure = await self._commit(changes)
                if failure is None:
                    await self._follow(changes)
            if failure is not None:
                self._state.roll_back()
                for operation, _, _ in staged:
                    operation.fail(errors.KafkaStorageError(f"the metadata log could not be written: {failure}"))
                return
        for operation, _, response in staged:
            operation.succeed(response)

    async def _follow(self, changes: Sequence[StagedChange]) -> None:
        """Publish what was committed."""
        if self._follower is not None:
            for change in changes:
                await self._follower.prepare(change.delta, change.image)
        for change in changes:
            self._state.commit(change)
            self._publish(change.delta, change.image)
        if self._follower is not None:
            await self._follower.settle()

    async def _stage(self, operation: Operation[T]) -> tuple[StagedChange | None, T]:
        if self._broken is not None:
            raise errors.KafkaStorageError(f"the metadata log cannot be written since: {self._broken}")
        if operation.expires_at <= self._world.now():
            raise errors.RequestTimedOutError(f"the time of {operation.name} was over before its turn came")
        found = operation.compute(self._state.image)
        outcome = await run_within_budget(found) if isinstance(found, Generator) else found
        change = await run_within_budget(self._state.stage(outcome.records)) if outcome.records else None
        return change, outcome.response

    async def _commit(self, changes: Sequence[StagedChange]) -> Exception | None:
        """Append and sync; on failure take everything back, and return why."""
        log, now_ms = self._log, self._world.wall_ms()
        size = 0
        try:
            for change in changes:
                if len(change.records) > BUDGET:
                    await trio.lowlevel.checkpoint()  # others have their turn before all of it is encoded
                batch = encode_change(change, self._state.epoch, now_ms)
                log.append(batch, now_ms=now_ms)
                size += len(batch)
            job = log.begin_sync()
            if job is not None:
                await self._world.run_in_thread(job.run)
                log.synced(job)
        except (OSError, errors.KafkaError) as failure:
            logger.error("the metadata log in %s could not be written: %s", log.directory, failure)
            try:
                log.truncate_to(self._state.committed.offset + 1, now_ms=now_ms)
            except (OSError, errors.KafkaError) as error:
                # What is on the disk now is not known: going on could commit what was answered with an error.
                logger.critical("the metadata log in %s could not be cut back: %s", log.directory, error)
                self._broken = failure.with_traceback(None)
            return failure.with_traceback(None)  # its frames refer to the caller, which keeps it
        self._appended(size)
        return None


def encode_change(change: StagedChange, epoch: int, now_ms: int) -> bytes:
    """The batch of one operation; its metadata version is the one that it leads to."""
    return encode_batch_at(change.records, change.base_offset, epoch, now_ms, change.image.features)


def encode_batch_at(
    records: Sequence[Struct], base_offset: int, epoch: int, now_ms: int, levels: Mapping[str, int]
) -> bytes:
    """A batch of records in the versions that these feature levels have."""
    lowest = features.SUPPORTED[features.METADATA_VERSION][0]
    return encode_records(
        records,
        base_offset=base_offset,
        epoch=epoch,
        timestamp_ms=now_ms,
        metadata_version=levels.get(features.METADATA_VERSION, lowest),
    )


def _stopped() -> errors.NotControllerError:
    return errors.NotControllerError("the controller has stopped")
