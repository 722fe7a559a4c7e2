"""The task of one connection: authenticate the peer, then read a request, dispatch it, send the response, and repeat.

At most one request of a connection is in progress, so responses keep the order of the requests. Bytes that the peer
sends meanwhile wait in the kernel's buffer. One exception: Produce requests whose records are appended and wait for
replicas. The connection takes further Produce requests meanwhile, up to `_MOST_PENDING`, and a task of its own sends
the responses in order; any other request waits until all of these are sent.

An error closes only this connection, with one log line: ``closing``, the connection's id, and the reason. The number of
such lines at WARNING, which any peer can cause, is limited.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence, Sized
from typing import TYPE_CHECKING, Final

import trio

from triokafka.broker_stub.authorizer import ANONYMOUS
from triokafka.broker_stub.network.authentication import (
    Authentication,
    AuthenticationFailedError,
    NoAuthentication,
    delay_refusal,
)
from triokafka.broker_stub.network.fair_scheduler import FairScheduler
from triokafka.broker_stub.network.framing import FrameBuffers, FrameReader
from triokafka.broker_stub.network.limited_log import LimitedLog
from triokafka.broker_stub.network.response_memory import LARGE_BYTES, ResponseMemory, bytes_in_memory
from triokafka.broker_stub.request.answer import Answer
from triokafka.broker_stub.request.dispatcher import Dispatcher
from triokafka.broker_stub.request.handler_slots import HandlerSlots, Slot
from triokafka.broker_stub.request.registry import CloseConnectionError
from triokafka.broker_stub.request.request_memory import MEDIUM_BYTES, STEP_BYTES, Claim, RequestMemory
from triokafka.errors import ProtocolError
from triokafka.named_tuple import NamedTuple
from triokafka.protocol.repeated_requests import RepeatedRequests
from triokafka.world import Stream, World

if TYPE_CHECKING:  # imported when a listener has SASL
    from triokafka.broker_stub.network.sasl_session import SaslSession, SaslStep

logger = logging.getLogger(__name__)

BUSY: Final = float("inf")
"""`ConnectionProcessor.idle_since` of a connection with a request in progress."""
_TURNS: Final = 4
"""Requests of one connection, served without waiting for its bytes, after which it yields to other connections."""
_MOST_PENDING: Final = 5
"""Produce requests of one connection that wait for replicas: as many as an idempotent producer has in flight."""
_LONG_SECONDS: Final = 0.00015
"""Processing time after which the connection yields before it has served that many requests."""


class Shared(NamedTuple):
    """The objects that all connections of a broker share."""

    dispatcher: Dispatcher
    slots: HandlerSlots
    memory: RequestMemory
    unsent: ResponseMemory
    buffers: FrameBuffers
    turns: FairScheduler
    world: World
    max_frame_bytes: int
    authentication: Authentication = NoAuthentication()  # it has no state
    failed_authentication_delay_ms: int = 0
    follower_send_buffer_bytes: int = 0
    """The kernel's send buffer for a follower that receives records; 0 for that of all connections."""
    bad_requests: LimitedLog | None = None
    start: Callable[[Callable[[], Awaitable[None]]], None] | None = None
    """Starts a task that ends with the server."""


class _Held:
    """The resources of a connection's request: the buffer of the frame, and the reserved memory."""

    __slots__ = ("_charged", "_claim", "_close", "_is_receiving", "_memory", "_reader", "_turns")

    def __init__(
        self, reader: FrameReader, memory: RequestMemory, turns: FairScheduler, close: Callable[[str], None]
    ) -> None:
        self._turns = turns
        self._claim: Claim | None = None
        self._is_receiving = False
        self._charged = 0
        self._reader = reader
        self._memory = memory
        self._close = close

    async def admit(self, size: int) -> float:
        """Reserve the memory of a frame up to `MEDIUM_BYTES`; a larger one reserves it as bytes arrive (`reserve`).

        Return the time at which the broker begins to receive the frame.
        """
        claim = self._claim = Claim(size, self._close)
        if size <= MEDIUM_BYTES:
            await self._memory.grow(claim, size)
        self._is_receiving = True
        return self._memory.begin(claim)

    async def reserve(self, total: int) -> None:
        """Wait until a frame above `MEDIUM_BYTES` may occupy ``total`` bytes, and let other connections run."""
        claim = self._claim
        if claim is None:
            return
        if claim.reserved < total:
            await self._memory.grow(claim, max(total, min(claim.size, claim.reserved + STEP_BYTES)) - claim.reserved)
        await self._turns.step_back()

    def received(self) -> None:
        """Record that the whole frame was received, or its connection has ended."""
        if self._is_receiving and self._claim is not None:
            self._is_receiving = False
            self._memory.received(self._claim)

    def charge(self, memory: int) -> None:
        """Count the memory of the decoded request until `let_go`."""
        self._charged += memory
        self._memory.add(memory)

    def let_go(self) -> None:
        """Free the frame's memory, to which nothing refers now. A second call has no effect."""
        claim = self._claim
        if claim is not None:
            if self._is_receiving:
                self.received()
            self._claim = None
            if claim.reserved:
                self._memory.release(claim.reserved)
        if self._charged:
            charged, self._charged = self._charged, 0
            self._memory.remove(charged)
        self._reader.done()


class ConnectionProcessor:
    """Serves one connection until either side closes it.

    ``idle_since`` is the time on the world's clock since which the connection is idle, or `BUSY` while a request is in
    progress. The server's sweep closes connections that are idle for too long. A peer that sends a request slowly or
    does not read its response counts as idle.
    """

    def __init__(self, stream: Stream, *, connection_id: str, listener: str, shared: Shared) -> None:
        self.connection_id = connection_id
        self.listener = listener
        self._now = shared.world.loop_clock()
        self.idle_since = self._now()
        self.principal = ANONYMOUS
        self.token_authenticated = False
        self._stream = stream
        self._shared = shared
        self._session: SaslSession | None = None
        self.closing = False
        """Whether the connection is about to close."""
        self._working = False
        self._pending: deque[Answer] = deque()
        self._sender: trio.CancelScope | None = None
        self._sent = trio.Event()
        self._failure: Exception | None = None
        self._reason: str | None = None
        self._has_wide_buffer = not shared.follower_send_buffer_bytes

    def close(self, reason: str) -> None:
        """Close the connection immediately; ``reason`` goes to the log."""
        self.closing = True
        if self._reason is None:
            self._reason = reason
        self._stream.close()

    def finish(self) -> None:
        """Close the connection after the request in progress, or immediately if there is none."""
        self.closing = True
        if self._reason is None:
            self._reason = "the broker stops"
        if self.idle_since != BUSY and not self._working and not self._pending:
            self._stream.close()

    async def run(self) -> None:
        """Serve until the connection ends. Raises only `trio.Cancelled`."""
        level, reason = logging.INFO, "the broker stops"
        try:
            await self._authenticate()
            try:
                await self._serve()
                await self._send_all()
            except (ProtocolError, CloseConnectionError):
                await self._send_all()  # the requests before the bad one
                raise
            except (OSError, trio.ClosedResourceError):
                if self._failure is not None:
                    raise self._failure from None
                raise
            reason = "the peer closed it"
        except (ProtocolError, CloseConnectionError, AuthenticationFailedError) as error:
            level, reason = logging.WARNING, str(error)
        except (OSError, trio.ClosedResourceError) as error:
            reason = f"it broke: {error!r}"
        except Exception:
            logger.exception("%s: a request failed with an unexpected error", self.connection_id)
            level, reason = logging.ERROR, "a request failed with an unexpected error"
        finally:
            self._stream.close()
            if self._sender is not None:
                self._sender.cancel()
            if self._reason is not None:
                level, reason = logging.INFO, self._reason
            limited = self._shared.bad_requests
            if level == logging.WARNING and limited is not None:
                limited.warn("closing %s: %s", self.connection_id, reason)
            else:
                logger.log(level, "closing %s: %s", self.connection_id, reason)

    async def _authenticate(self) -> None:
        """Authenticate the peer before its first request."""
        shared = self._shared
        try:
            known = await shared.authentication.authenticate(self._stream, self.listener)
        except AuthenticationFailedError:
            await delay_refusal(shared.authentication, self._stream, shared.failed_authentication_delay_ms)
            raise
        self._stream, self.principal, self._session = known
        if self.closing:
            self._stream.close()

    async def _take_sasl(self, step: SaslStep, session: SaslSession, reader: FrameReader) -> None:
        """Answer a request of the SASL exchange, and admit or refuse the peer."""
        shared = self._shared
        if step.evaluate is not None:
            step = session.evaluated(await shared.world.run_in_thread(step.evaluate))
        if step.refusal is not None:
            if step.delayed:
                await delay_refusal(shared.authentication, self._stream, shared.failed_authentication_delay_ms)
            if step.parts:
                await self._stream.send_parts(step.parts)
            raise AuthenticationFailedError(step.refusal)
        if session.is_complete:
            self.principal = session.principal or ANONYMOUS
            self.token_authenticated = session.token_authenticated
            reader.limit(shared.max_frame_bytes)
        await self._stream.send_parts(step.parts)
        if session.is_complete:
            self.idle_since = self._now()

    async def _serve(self) -> None:
        shared, stream = self._shared, self._stream
        now, slots, dispatcher = self._now, shared.slots, shared.dispatcher
        session = self._session
        most = shared.max_frame_bytes if session is None else min(session.max_bytes, shared.max_frame_bytes)
        reader = FrameReader(stream, max_bytes=most, buffers=shared.buffers)
        held = _Held(reader, shared.memory, shared.turns, self.close)
        let_go, charge = held.let_go, held.charge
        repeated = RepeatedRequests()
        may_defer = shared.start is not None
        peer = stream.peer_address
        turns = taken = waits = 0
        began_at = done_at = 0.0
        while not self.closing:
            size = await reader.read_size()
            if size is None:
                return
            slot: Slot | None = None
            try:
                if size > reader.room:
                    await self._admit(held, size)
                    frame = await reader.read_body(size, held.reserve if size > MEDIUM_BYTES else None)
                    held.received()
                else:
                    if slots.free <= 0 and slots.full:
                        await self._admit(held)
                    frame = reader.take_body(size) or await reader.read_body(size)
                if self._pending:
                    # API key 0, Produce, may join the others; the response to any other request comes after theirs.
                    may_join = size > 1 and not (frame[0] or frame[1])
                    await self._send_all(down_to=_MOST_PENDING - 1 if may_join else 0)
                if session is not None:
                    if session.principal is None:
                        await shared.authentication.take_turn(stream)
                    if (step := session.take(frame)) is not None:
                        await self._send_all()
                        await self._take_sasl(step, session, reader)
                        continue
                started_at = received_at = now()
                self.idle_since = BUSY
                self._working = True
                if stream.waits != waits:  # the receive waited, so other connections have just run
                    sends_ahead = taken > 1  # the last receive returned several requests
                    turns, taken, waits = 0, 0, stream.waits
                    if sends_ahead:
                        await shared.turns.come_back()
                        started_at = now()
                    else:
                        shared.turns.count_other()
                elif turns >= _TURNS or done_at - began_at > _LONG_SECONDS:
                    turns = 0
                    await shared.turns.step_back()
                    started_at = now()
                if not turns:
                    began_at = started_at
                turns += 1
                taken += 1
                if slots.free > 0:
                    slot = slots.acquire_nowait()
                else:
                    slot = await slots.acquire()
                    started_at = now()
                work = dispatcher.dispatch(
                    frame,
                    slot=slot,
                    principal=self.principal,
                    token_authenticated=self.token_authenticated,
                    listener=self.listener,
                    peer=peer,
                    received_at=received_at,
                    started_at=started_at,
                    let_go=let_go,
                    charge=charge,
                    repeated=repeated,
                    may_defer=may_defer,
                )
                del frame  # only the dispatcher refers to it now
                answer = await work
            finally:
                self._working = False
                if slot is not None:
                    slot.release()
                repeated.done()
                let_go()  # after all views of the frame, so that the pool can reuse its buffer
            done_at = answer.done_at
            if answer.deferred is not None:
                self._defer(answer)
                del answer, work
                continue
            if self._pending:
                await self._send_all()
            await self._send(answer)
            if answer.closes:
                self._reason = "a fault was injected: closed within the answer"
                return
            if answer.throttle_ms:
                # The response contains the throttle time, but the client may ignore it: stop reading.
                await trio.sleep(answer.throttle_ms / 1000)
                self.idle_since = now()
            del answer, work  # an idle connection must not hold its last request in memory

    async def _admit(self, held: _Held, size: int = 0) -> None:
        """Wait for room in the queue, and for ``size`` bytes of memory outside of the connection's buffer."""
        shared = self._shared
        # The broker causes this wait, so it does not count as idle time. Receiving the request does.
        self.idle_since = BUSY
        await shared.slots.wait_for_room()
        self.idle_since = await held.admit(size) if size else self._now()

    def _defer(self, answer: Answer) -> None:
        """Leave it to the sender to wait for the replicas and to send the response."""
        start = self._shared.start
        assert start is not None
        self._pending.append(answer)
        if self._sender is None:
            self._sender = trio.CancelScope()
            start(self._send_pending)

    async def _send_all(self, down_to: int = 0) -> None:
        """Wait until at most ``down_to`` responses are not sent yet. Raises the error that ended the sender."""
        while len(self._pending) > down_to and self._failure is None:
            await self._sent.wait()
        if self._failure is not None:
            raise self._failure

    async def _send_pending(self) -> None:
        """Send the responses of the requests that wait for replicas, in order, and end when there is none."""
        scope = self._sender
        assert scope is not None
        dispatcher = self._shared.dispatcher
        try:
            with scope:
                while self._pending:
                    deferred = self._pending[0].deferred
                    assert deferred is not None
                    await deferred.operation.wait()
                    await self._send(dispatcher.complete(self._pending[0]))
                    self._pending.popleft()
                    if self._pending or self._working:
                        self.idle_since = BUSY
                    self._wake()
        except Exception as error:
            self._failure = error
            self._stream.close()
        finally:
            self._sender = None
            self._wake()
        if self.closing and not self._working:
            self._stream.close()

    def _wake(self) -> None:
        sent, self._sent = self._sent, trio.Event()
        sent.set()

    async def _send(self, answer: Answer) -> None:
        shared = self._shared
        sending_at = answer.done_at
        if answer.delay_ms:
            await trio.sleep(answer.delay_ms / 1000)
            sending_at = self._now()
        self.idle_since = sending_at
        parts = answer.parts
        size = sum(map(len, parts))
        if size > LARGE_BYTES:
            size = bytes_in_memory(parts)
        if answer.context is not None and answer.context.follower and not self._has_wide_buffer:
            self._widen_buffer(parts)
        try:
            if size > LARGE_BYTES:
                shared.unsent.begin(self, size, self.close)
                try:
                    await self._stream.send_parts(parts)
                finally:
                    shared.unsent.end(self)
            elif parts:
                await self._stream.send_parts(parts)
        finally:
            self.idle_since = sent_at = self._now()
            shared.dispatcher.answered(answer, sending_at, sent_at)

    def _widen_buffer(self, parts: Sequence[Sized]) -> None:
        """Let the kernel take a whole response with records for a follower, which may be far behind.

        This broker then need not wait for the follower in the middle of it. Only a follower that may fetch gets
        records, so no other client can claim the memory.
        """
        if sum(map(len, parts)) > LARGE_BYTES:
            self._stream.widen_send_buffer(self._shared.follower_send_buffer_bytes)
            self._has_wide_buffer = True
