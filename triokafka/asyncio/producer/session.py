"""The loop thread's side of an asyncio producer: the SDK's `Producer`, and the task that gives it chunks."""

from __future__ import annotations

import importlib.metadata
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import trio

# Producer is imported now, not in the running loop: it takes a tenth of a second.
from triokafka import Producer, errors
from triokafka.asyncio.bridge import Bridge, Opening, usable_error
from triokafka.asyncio.errors import ProducerClosed
from triokafka.asyncio.producer.outcomes import settle_part
from triokafka.asyncio.producer.sending import Chunk

if TYPE_CHECKING:
    from triokafka import Deliveries

T = TypeVar("T")

with suppress(importlib.metadata.PackageNotFoundError):
    # The first connection reads it, too: the modules that this needs are to be imported now, not in the running loop.
    importlib.metadata.version("triokafka")

logger = logging.getLogger(__name__)

_OF_ONE_RECORD: Final = (TypeError, ValueError, errors.MessageSizeTooLargeError, errors.UnknownTopicOrPartitionError)
_ABANDON_SECONDS: Final = 1.0


class _Rest:
    """The records of a chunk from ``first`` on, which the SDK has not taken yet. The chunk drops their columns."""

    __slots__ = ("chunk", "columns", "count", "first")

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.count = len(chunk.values)
        self.columns: dict[str, Any] = chunk.columns()
        self.first = 0

    def left(self) -> dict[str, Any]:
        """Return the arguments of `Producer.send_many`."""
        first = self.first
        return {name: column[first:] for name, column in self.columns.items()} if first else self.columns


class ProducerSession:
    """The SDK's producer from its construction to its end. Coroutines are for `Bridge.call`.

    Nothing here refers to the `AIOKafkaProducer`, so that an abandoned one is garbage-collected, which ends this
    session. ``on_accepted`` is called in the asyncio loop with the bytes of chunks that left the queue.
    """

    def __init__(self, bridge: Bridge, options: dict[str, Any], on_accepted: Callable[[int], object]) -> None:
        self.bridge = bridge
        self.options = options
        self._on_accepted = on_accepted
        self._producer: Producer | None = None
        self._transactional = options.get("transactional_id") is not None
        self._transaction: Any = None
        self._queued: deque[_Rest] = deque()
        self._arrived = trio.Event()
        self._progress = trio.Event()
        self._received = self._accepted = 0
        self._unsettled = 0
        self._closing = False
        self._opening = Opening()
        self._closed = trio.Event()
        self._closed.set()
        self._outcomes: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._failure: Exception | None = None

    # ---------------------------------------------------------------- lifetime

    @property
    def is_open(self) -> bool:
        """Whether the producer is usable."""
        return self._producer is not None

    async def open(self) -> None:
        """Construct the SDK's producer, and connect it. After a failure nothing is left, and it may be called again.

        Raises:
            ConfigurationError: an option is invalid.
            KafkaConnectionError: no broker accepted the connection, or the login.
            KafkaError: the producer gets no producer id for its ``transactional_id``.
        """
        producer = Producer(world=self.bridge.world, **self.options)
        opening = self._opening = Opening()
        self._closing, self._failure = False, None
        self._closed = trio.Event()
        self.bridge.on_crash.add(self._crashed)
        self.bridge.trio_loop.start(self._run, producer, opening, name=f"kafka {self.options['client_id']}")
        await opening.wait()

    async def _run(self, producer: Producer, opening: Opening) -> None:
        try:
            with opening.scope:
                async with producer:
                    await opening.connect(producer.network, self.options["bootstrap_servers"])
                    if self._transactional:
                        await producer.init_transactions()  # fences older producers from here on, as in aiokafka
                    self._producer = producer
                    opening.done()
                    await self._serve(producer)
        except* Exception as group:
            # Failed records: their futures report them. Anything else is the reason why the session ended.
            self._failure = _first_error(group)
            logger.debug("the producer ended with %r", group)
        finally:
            self._producer = None
            self._closing = True
            self._fail_queued()
            self._closed.set()
            opening.ended(self._failure)
            self.bridge.on_crash.discard(self._crashed)

    def _crashed(self) -> None:
        """End without the tasks, which do not continue. Nothing becomes known of records on their way."""
        self._producer = None
        self._closing = True
        self._failure = errors.ClosedError("the producer was interrupted")
        self._arrived, self._progress, self._closed = trio.Event(), trio.Event(), trio.Event()
        self._closed.set()
        self._fail_queued()

    async def _serve(self, producer: Producer) -> None:
        while not self._closing:
            with trio.move_on_after(self.bridge.check_seconds):
                await self._arrived.wait()
            self._arrived = trio.Event()
            if self.bridge.is_closed:
                self._producer = None
                return
            while self._queued:
                rest = self._queued.popleft()
                try:
                    await self._accept(producer, rest)
                finally:
                    self._accepted += 1
                    self._progress.set()
                    self._progress = trio.Event()
                    self.bridge.post(self._on_accepted, rest.chunk.size)

    async def close(self, abort: bool) -> None:
        """Send everything, wait for the acknowledgements, and end. Aborts a transaction that is open."""
        if self._producer is not None:
            try:
                await self.handed_over()
                if self._transaction is not None and abort:
                    transaction, self._transaction = self._transaction, None
                    await transaction.abort()
                await self._producer.flush()
            except errors.KafkaError as error:
                logger.warning("the producer was closed after a failure: %s", error)
        self._closing = True
        self._arrived.set()
        self._opening.cancel()
        with trio.CancelScope(shield=True):
            await self._closed.wait()

    def abandon(self) -> None:
        """End soon, because the `AIOKafkaProducer` was garbage-collected or its loop closed. From any thread."""
        self.bridge.trio_loop.soon(self._abandon)

    def _abandon(self) -> None:
        async def end() -> None:
            with trio.move_on_after(_ABANDON_SECONDS):
                await self.close(True)
            self._closing = True
            self._arrived.set()

        self._opening.cancel()
        if not self._closed.is_set():
            self.bridge.trio_loop.start(end, name="abandoned kafka producer")

    def usable(self) -> Producer:
        """Return the SDK's producer. Raises `ProducerClosed`, or the error that ended it."""
        if self._producer is None:
            raise usable_error(self._failure) if self._failure is not None else ProducerClosed()
        return self._producer

    @property
    def network(self) -> Any:
        """The connections. Raises as `usable`."""
        return self.usable().network

    # ---------------------------------------------------------------- records

    def receive(self, chunk: Chunk) -> None:
        """Take a chunk over."""
        self._received += 1
        if self._closing and self._producer is None:
            self._accepted += 1
            self._refuse(chunk, 0, len(chunk.values), ProducerClosed())
            return
        producer, is_next = self._producer, self._accepted == self._received - 1
        if producer is not None and is_next and len(chunk.values) == 1 and self._accept_one(producer, chunk):
            rest = None
        else:
            rest = _Rest(chunk)
            if producer is not None and is_next and self._accept_now(producer, rest):
                rest = None
        if rest is None:
            self._accepted += 1
            self.bridge.post(self._on_accepted, chunk.size)
            return
        self._queued.append(rest)
        self._arrived.set()

    @property
    def is_quiet(self) -> bool:
        """Whether no record is on its way: the next one need not wait for others to share its batch."""
        return not self._unsettled and self._accepted == self._received

    def _accept_one(self, producer: Producer, chunk: Chunk) -> bool:
        """Send the only record of a chunk, without a task. Return False if the task must do it."""
        try:
            keys, partitions, timestamps, headers = chunk.keys, chunk.partitions, chunk.timestamps, chunk.headers
            deliveries = producer.send_nowait_as_deliveries(
                chunk.topic,
                chunk.values[0],
                key=keys[0] if keys else None,
                partition=partitions[0] if partitions else None,
                timestamp_ms=timestamps[0] if timestamps else None,
                headers=headers[0] or () if headers else (),
            )
        except (errors.BufferFullError, errors.MetadataNotReadyError):
            return False
        except Exception as error:
            self._refuse(chunk, 0, 1, error)
        else:
            self._await_outcome(chunk, 0, deliveries)
        chunk.columns()  # the record need not stay in memory until its future is dropped
        return True

    async def handed_over(self) -> None:
        """Wait until the SDK has taken or refused all chunks received so far."""
        received = self._received
        while self._accepted < received:
            await self._progress.wait()

    def _accept_now(self, producer: Producer, rest: _Rest) -> bool:
        """Send as many records as possible without a task. Return whether none is left."""
        try:
            accepted: Deliveries | None = producer.send_many_nowait(rest.chunk.topic, **rest.columns)
        except Exception as error:  # the task gets it again, for the first record that is left
            accepted = getattr(error, "accepted", None)
        if accepted is not None and len(accepted):
            self._await_outcome(rest.chunk, 0, accepted)
            rest.first = len(accepted)
        return rest.first == rest.count

    async def _accept(self, producer: Producer, rest: _Rest) -> None:
        """Send the records. If one is refused, its future fails, and the others continue."""
        chunk, count = rest.chunk, rest.count
        try:
            while rest.first < count:
                try:
                    deliveries = await producer.send_many(chunk.topic, **rest.left())
                except Exception as error:
                    accepted: Deliveries | None = getattr(error, "accepted", None)
                    if accepted is not None and len(accepted):
                        self._await_outcome(chunk, rest.first, accepted)
                        rest.first += len(accepted)
                    one = accepted is not None and isinstance(error, _OF_ONE_RECORD)
                    refused = rest.first + 1 if one else count
                    self._refuse(chunk, rest.first, refused, error)
                    rest.first = refused
                else:
                    self._await_outcome(chunk, rest.first, deliveries)
                    rest.first = count
        finally:
            if rest.first < count:
                self._refuse(chunk, rest.first, count, ProducerClosed())

    def _await_outcome(self, chunk: Chunk, first: int, deliveries: Deliveries) -> None:
        settled = self._settled
        for part in deliveries.parts():
            self._unsettled += 1
            part.add_callback(partial(settled, settle_part, chunk, first, part, deliveries))

    def _settled(self, *outcome: Any) -> None:
        self._unsettled -= 1
        self._report(*outcome)

    def _refuse(self, chunk: Chunk, first: int, end: int, error: Exception) -> None:
        error.__traceback__ = None
        self._report(chunk.settle, first, end, error)

    def _fail_queued(self) -> None:
        while self._queued:
            rest = self._queued.popleft()
            self._accepted += 1
            self._refuse(rest.chunk, rest.first, rest.count, ProducerClosed())
        self._progress.set()

    def _report(self, settle: Callable[..., object], *arguments: Any) -> None:
        """Have the asyncio loop settle futures. Outcomes that arrive close together wake that loop once."""
        self._outcomes.append((settle, arguments))
        if len(self._outcomes) == 1:
            self.bridge.post(self._settle_all)

    def _settle_all(self) -> None:
        # One that is appended meanwhile either is found here, or has begun a deque that was empty.
        outcomes = self._outcomes
        while outcomes:
            settle, arguments = outcomes[0]
            try:
                settle(*arguments)
            finally:
                outcomes.popleft()

    # ---------------------------------------------------------------- other calls

    async def partitions(self, topic: str) -> Sequence[Any]:
        """Return the metadata of a topic's partitions. Raises as `Producer.partitions_for`."""
        return await self.usable().partitions_for(topic)

    async def flush(self) -> None:
        """Wait until everything sent so far is settled."""
        producer = self.usable()
        await self.handed_over()
        await producer.flush()

    async def with_producer(self, work: Callable[[Producer], Awaitable[T]]) -> T:
        """Run ``work`` with the SDK's producer."""
        return await work(self.usable())

    # ---------------------------------------------------------------- transactions

    async def begin(self) -> None:
        """Open a transaction; get the producer id first."""
        producer = self.usable()
        await producer.init_transactions()
        transaction = producer.transaction()
        await transaction.begin()
        self._transaction = transaction

    async def commit(self) -> None:
        """Commit everything sent before the call. After an error the transaction stays open, to be aborted."""
        await self.handed_over()
        try:
            await self._transaction.commit()
        except errors.TransactionAbortableError as error:
            raise (error.__cause__ or error) from None  # the reason itself, as in aiokafka
        self._transaction = None

    async def abort(self) -> None:
        """Abort everything sent before the call."""
        await self.handed_over()
        transaction, self._transaction = self._transaction, None
        await transaction.abort()

    async def send_offsets(self, offsets: dict[Any, Any], group_id: str) -> None:
        """Make offsets of a group part of the transaction."""
        await self._transaction.send_offsets(offsets=offsets, group=group_id)


def _first_error(group: ExceptionGroup[Exception]) -> Exception:
    found: Exception = group
    while isinstance(found, ExceptionGroup):
        found = found.exceptions[0]
    return found
