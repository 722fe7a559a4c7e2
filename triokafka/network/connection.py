"""One connection to a broker: frames, correlation ids, pipelined requests and their timeouts.

Two tasks serve it, one that reads and one that writes; a request starts none and opens no cancel scope. Answers come in
the order of the requests. When the connection ends, for whatever reason, all requests in flight fail, the newest first,
so that a caller who puts each back at the head of a queue restores their order (`client/NET-23`).
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import outcome
import trio

from triokafka.errors import KafkaConnectionError, KafkaError, ProtocolError, RequestTimedOutError
from triokafka.network.receive_pool import ReceivePool
from triokafka.protocol.frames import decode_response, encode_request
from triokafka.protocol.message import Request, Response
from triokafka.structs import Buffer
from triokafka.world import Stream, World

logger = logging.getLogger(__name__)

Completion = Callable[[Any, Exception | None], None]
"""Called once with the response and None, or None and the error. Runs in the connection's task; must not block."""

_RECEIVE_BYTES: Final = 64 << 10
_READS_BETWEEN_CHECKPOINTS: Final = 16
_NEVER: Final = float("inf")
_API_VERSIONS_KEY: Final = 18
_UNSUPPORTED_VERSION: Final = 35
_SIZE: Final = struct.Struct(">i")
_CODE: Final = struct.Struct(">h")


class InFlightRequest:
    """A request that was handed over and not answered yet."""

    __slots__ = ("correlation_id", "deadline", "on_done", "request_type", "started_at", "version")

    def __init__(
        self,
        request_type: type[Request[Any]],
        version: int,
        correlation_id: int,
        started_at: float,
        deadline: float,
        on_done: Completion,
    ) -> None:
        self.request_type = request_type
        self.version = version
        self.correlation_id = correlation_id
        self.started_at = started_at
        self.deadline = deadline
        self.on_done = on_done

    def complete(self, response: object, error: Exception | None) -> None:
        """Tell the caller; what it raises is logged and stops nobody else (`client/NET-20`)."""
        try:
            self.on_done(response, error)
        except Exception:
            logger.exception("the completion of a %s request failed", self.request_type.__name__)


class ResponseWaiter:
    """One task that waits for one answer. Cancelling the wait drops the answer when it comes, and harms nobody else."""

    __slots__ = ("_outcome", "_task")

    def __init__(self) -> None:
        self._task: trio.lowlevel.Task | None = None
        self._outcome: outcome.Outcome[Any] | None = None

    def done(self, response: object, error: Exception | None) -> None:
        """The `Completion` to hand over with the request."""
        result: outcome.Outcome[Any] = outcome.Value(response) if error is None else outcome.Error(error)
        if self._task is not None:
            task, self._task = self._task, None
            trio.lowlevel.reschedule(task, result)
        else:
            self._outcome = result

    async def wait(self) -> Any:
        """The response, or the error raised."""
        if self._outcome is not None:
            await trio.lowlevel.checkpoint()
            return self._outcome.unwrap()
        self._task = trio.lowlevel.current_task()

        def abort(_: Callable[[], None]) -> trio.lowlevel.Abort:
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED

        return await trio.lowlevel.wait_task_rescheduled(abort)


class Connection:
    """A connected stream to the broker ``name`` (a text for messages, as in ``broker 1 at localhost:9092``).

    Times are seconds on the world's clock. A request whose answer does not come within its timeout ends the connection,
    since answers behind it cannot come either (`client/NET-30`). ``error`` says why the connection ended.
    """

    def __init__(
        self,
        stream: Stream,
        *,
        world: World,
        name: str,
        client_id: str | None,
        pool: ReceivePool,
        request_timeout: float,
        max_idle: float,
        max_in_flight: int,
        max_response_bytes: int,
    ) -> None:
        self.name = name
        self.error: Exception | None = None
        self.last_used_at = world.now()
        self.bytes_sent = 0
        self.bytes_received = 0
        self._stream = stream
        self._world = world
        self._client_id = client_id
        self._pool = pool
        self._request_timeout = request_timeout
        self._max_idle = max_idle
        self._max_in_flight = max_in_flight
        self._max_response_bytes = max_response_bytes
        self._in_flight: deque[InFlightRequest] = deque()
        self._outgoing: deque[tuple[list[Buffer], InFlightRequest | None]] = deque()
        self._next_correlation_id = 0
        self._writer: trio.lowlevel.Task | None = None
        self._slot_waiters = trio.lowlevel.ParkingLot()
        self._watch = trio.CancelScope()

    @property
    def in_flight(self) -> int:
        """Number of requests that are not answered yet."""
        return len(self._in_flight) + sum(1 for _, unanswered in self._outgoing if unanswered is not None)

    @property
    def can_send(self) -> bool:
        """Whether one more request may be handed over now."""
        return self.error is None and self.in_flight < self._max_in_flight

    async def wait_for_slot(self) -> None:
        """Wait until `can_send` or the connection has ended. Waiters go first come, first served."""
        while self.error is None and self.in_flight >= self._max_in_flight:
            await self._slot_waiters.park()

    def submit(
        self,
        request: Request[Any],
        version: int,
        on_done: Completion,
        *,
        timeout: float | None = None,
        expect_response: bool = True,
    ) -> None:
        """Hand over a request; it is written as soon as the ones before it are.

        ``on_done`` is called once: with the response, or with the error when the connection ends first. Without
        ``expect_response`` it is called with None and None when the bytes are written. The limit of requests in
        flight is the caller's to keep (`can_send`).

        Raises:
            KafkaConnectionError: the connection has ended.
            UnsupportedVersionError, ProtocolError: the request cannot be encoded in this version; nothing was sent.
        """
        if self.error is not None:
            raise KafkaConnectionError(f"the connection to {self.name} has ended: {self.error}") from self.error
        correlation_id = self._next_correlation_id
        parts = encode_request(request, version=version, correlation_id=correlation_id, client_id=self._client_id)
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        now = self.last_used_at = self._world.now()
        deadline = now + (self._request_timeout if timeout is None else timeout)
        entry = InFlightRequest(type(request), version, correlation_id, now, deadline, on_done)
        if expect_response:
            self._in_flight.append(entry)
            self._outgoing.append((parts, None))
        else:
            self._outgoing.append((parts, entry))
        self._watch_deadline()
        if self._writer is not None:
            task, self._writer = self._writer, None
            trio.lowlevel.reschedule(task)

    async def call(self, request: Request[Any], version: int, *, timeout: float | None = None) -> Any:
        """Send one request and wait for its response. Cancelling leaves the connection in order."""
        await self.wait_for_slot()
        waiter = ResponseWaiter()
        self.submit(request, version, waiter.done, timeout=timeout)
        return await waiter.wait()

    async def run(self) -> None:
        """Serve the connection until it ends; then every request in flight has failed and the stream is closed."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write)
                with self._watch:
                    await self._read()
                if self._watch.cancelled_caught and self.error is None:
                    self._end(self._timeout_error())
                nursery.cancel_scope.cancel()
        finally:
            self._end(KafkaConnectionError(f"the connection to {self.name} was closed by this client"))

    def close(self, error: Exception) -> None:
        """End the connection now; requests in flight fail with ``error``. A second call does nothing."""
        self._end(error)

    def _end(self, error: Exception) -> None:
        if self.error is not None:
            return
        self.error = error
        self._stream.close()
        failed = list(self._in_flight)
        failed += [entry for _, entry in self._outgoing if entry is not None]
        self._in_flight.clear()
        self._outgoing.clear()
        for entry in reversed(failed):
            entry.complete(None, error)
        self._slot_waiters.unpark_all()

    def _timeout_error(self) -> Exception:
        now = self._world.now()
        expired = [entry for entry in self._in_flight if entry.deadline <= now]
        expired += [entry for _, entry in self._outgoing if entry is not None and entry.deadline <= now]
        if expired:
            entry = expired[0]
            waited = round((now - entry.started_at) * 1000)
            return RequestTimedOutError(
                f"{self.name} did not answer a {entry.request_type.__name__} within {waited} ms; connection closed"
            )
        idle = round(self._max_idle * 1000)
        return KafkaConnectionError(f"the connection to {self.name} was closed after {idle} ms without use")

    def _watch_deadline(self) -> None:
        deadline = min((entry.deadline for entry in self._in_flight), default=_NEVER)
        for _, entry in self._outgoing:
            if entry is not None and entry.deadline < deadline:
                deadline = entry.deadline
        if deadline is _NEVER:
            deadline = self.last_used_at + self._max_idle
        self._watch.deadline = self._world.deadline(deadline) if deadline < _NEVER else _NEVER

    async def _write(self) -> None:
        outgoing = self._outgoing
        try:
            while True:
                while outgoing:
                    parts, unanswered = outgoing[0]
                    await self._stream.send(*parts)
                    self.bytes_sent += sum(map(len, parts))
                    if self.error is not None:
                        return
                    outgoing.popleft()
                    if unanswered is not None:
                        unanswered.complete(None, None)
                        self._slot_waiters.unpark()
                        self._watch_deadline()
                self._writer = trio.lowlevel.current_task()
                await trio.lowlevel.wait_task_rescheduled(self._abort_write)
        except (OSError, trio.ClosedResourceError) as error:
            self._end(KafkaConnectionError(f"the connection to {self.name} broke while sending: {error}"))

    def _abort_write(self, _: Callable[[], None]) -> trio.lowlevel.Abort:
        self._writer = None
        return trio.lowlevel.Abort.SUCCEEDED

    async def _read(self) -> None:
        self._watch_deadline()
        try:
            await self._read_frames()
        except (OSError, trio.ClosedResourceError) as error:
            self._end(KafkaConnectionError(f"the connection to {self.name} broke while receiving: {error}"))
        except ProtocolError as error:
            self._end(error)

    async def _read_frames(self) -> None:
        buffer = bytearray(_RECEIVE_BYTES)
        view = memoryview(buffer)
        start = end = reads = 0
        while self.error is None:
            while end - start >= 4 and self.error is None:
                (size,) = _SIZE.unpack_from(buffer, start)
                if not 4 <= size <= self._max_response_bytes:
                    raise ProtocolError(
                        f"{self.name} announced a response of {size} bytes; allowed are 4 to {self._max_response_bytes}"
                        " (receive_message_max_bytes)"
                    )
                here = end - start - 4
                if here >= size:
                    # A copy, because decoded responses may keep slices and this buffer is used again at once.
                    frame: Buffer = bytes(view[start + 4 : start + 4 + size])
                    start += 4 + size
                elif size + 4 > _RECEIVE_BYTES:
                    large = self._pool.take(size)
                    large[:here] = view[start + 4 : end]
                    start = end = 0
                    while here < size:
                        got = await self._stream.receive_into(large[here:])
                        if not got:
                            self._end(self._closed_by_peer())
                            return
                        here += got
                        self.bytes_received += got
                    frame = large.toreadonly()
                    del large
                else:
                    break
                self._handle(frame)
                del frame
            if start == end:
                start = end = 0
            elif start:
                buffer[: end - start] = buffer[start:end]
                start, end = 0, end - start
            got = await self._stream.receive_into(view[end:])
            if not got:
                self._end(self._closed_by_peer())
                return
            end += got
            self.bytes_received += got
            reads += 1
            if reads % _READS_BETWEEN_CHECKPOINTS == 0:
                # Receiving does not yield while bytes are there; a fast broker must not starve the other tasks.
                await trio.lowlevel.checkpoint()

    def _closed_by_peer(self) -> KafkaConnectionError:
        return KafkaConnectionError(f"{self.name} closed the connection")

    def _handle(self, frame: Buffer) -> None:
        if not self._in_flight:
            raise ProtocolError(f"{self.name} sent a response to no request")
        entry = self._in_flight[0]
        (correlation_id,) = _SIZE.unpack_from(frame, 0)
        if correlation_id != entry.correlation_id:
            raise ProtocolError(
                f"{self.name} answered with correlation id {correlation_id}, {entry.correlation_id} was due"
            )
        _, response = decode_response(entry.request_type.response_type, frame, version=_body_version(entry, frame))
        self._in_flight.popleft()
        self.last_used_at = self._world.now()
        entry.complete(response, None)
        self._slot_waiters.unpark()
        self._watch_deadline()


def _body_version(entry: InFlightRequest, frame: Buffer) -> int:
    if entry.request_type.api_key == _API_VERSIONS_KEY and len(frame) >= 6:
        # A broker that does not know this version of ApiVersions says so in version 0 (KIP-511).
        (code,) = _CODE.unpack_from(frame, 4)
        if code == _UNSUPPORTED_VERSION:
            return 0
    return entry.version


__all__ = ["Completion", "Connection", "InFlightRequest", "KafkaError", "Response", "ResponseWaiter"]
