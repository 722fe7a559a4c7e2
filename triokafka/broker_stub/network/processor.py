"""One connection: find out whose it is, read a request, have it answered, send the answer, and only then read on.

There is at most one request of a connection in progress, so answers leave in the order of the requests. What the
peer sends meanwhile waits in the kernel's buffer. Whatever goes wrong here closes this connection and no other, with
one line in the log: ``closing`` the connection's id, and the reason. The number of such lines at WARNING, which any
peer can cause, is limited.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import trio

from triokafka.broker_stub.authorizer import ANONYMOUS
from triokafka.broker_stub.network.authentication import Authentication, AuthenticationFailedError, NoAuthentication
from triokafka.broker_stub.network.fair_scheduler import FairScheduler
from triokafka.broker_stub.network.framing import BUFFER_BYTES, FrameBuffers, FrameReader
from triokafka.broker_stub.network.limited_log import LimitedLog
from triokafka.broker_stub.network.pending_responses import LARGE_BYTES, PendingResponses, bytes_in_memory
from triokafka.broker_stub.request.dispatcher import Answer, Dispatcher
from triokafka.broker_stub.request.handler_slots import HandlerSlots, Slot
from triokafka.broker_stub.request.registry import CloseConnectionError
from triokafka.broker_stub.request.request_memory import MEDIUM_BYTES, STEP_BYTES, Claim, RequestMemory
from triokafka.errors import ProtocolError
from triokafka.named_tuple import NamedTuple
from triokafka.protocol.repeated_requests import RepeatedRequests
from triokafka.world import Stream, World

logger = logging.getLogger(__name__)

BUSY: Final = float("inf")
"""`ConnectionProcessor.idle_since` of a connection that the broker works for."""
_TURNS: Final = 4
"""Requests of one connection that are worked on before the others are let in, if it never waits for its bytes."""
_LONG_SECONDS: Final = 0.00015
"""When they have taken longer than this, the others are let in at once."""


class Shared(NamedTuple):
    """What all connections of a broker share."""

    dispatcher: Dispatcher
    slots: HandlerSlots
    memory: RequestMemory
    unsent: PendingResponses
    buffers: FrameBuffers
    turns: FairScheduler
    world: World
    max_frame_bytes: int
    authentication: Authentication = NoAuthentication()  # it has no state
    failed_authentication_delay_ms: int = 0
    bad_requests: LimitedLog | None = None


class _Held:
    """What a connection holds for its request: the buffer of the frame, and the memory that was reserved for it."""

    __slots__ = ("_charged", "_claim", "_close", "_memory", "_reader", "_turns")

    def __init__(
        self, reader: FrameReader, memory: RequestMemory, turns: FairScheduler, close: Callable[[str], None]
    ) -> None:
        self._turns = turns
        self._claim: Claim | None = None
        self._charged = 0
        self._reader = reader
        self._memory = memory
        self._close = close

    async def admit(self, size: int) -> None:
        """Wait for the memory of a frame: of all of it, or, of a large one, of the first bytes."""
        claim = self._claim = Claim(size, self._close)
        if size <= MEDIUM_BYTES:
            await self._memory.grow(claim, size)
        self._memory.begin(claim)

    async def reserve(self, total: int) -> None:
        """Wait until the frame may occupy so many bytes in all. Large frames are received in turns."""
        claim = self._claim
        if claim is None or claim.size <= MEDIUM_BYTES:
            return
        if claim.reserved < total:
            await self._memory.grow(claim, max(total, min(claim.size, claim.reserved + STEP_BYTES)) - claim.reserved)
        await self._turns.step_back()

    def received(self) -> None:
        """Note that all of the frame is here."""
        if self._claim is not None:
            self._memory.received(self._claim)

    def charge(self, memory: int) -> None:
        """Count what was decoded from the frame, until all is let go."""
        self._charged += memory
        self._memory.add(memory)

    def let_go(self) -> None:
        """Free the frame's memory: nothing refers to it any more. A second call does nothing."""
        claim = self._claim
        if claim is not None:
            self._claim = None
            self._memory.received(claim)
            if claim.reserved:
                self._memory.release(claim.reserved)
        if self._charged:
            charged, self._charged = self._charged, 0
            self._memory.remove(charged)
        self._reader.done()


class ConnectionProcessor:
    """Serves one connection until either side closes it.

    ``idle_since`` is the time on the world's clock since when nothing was asked of the broker, or `BUSY` while a
    request is being worked on; the listener's sweep closes those that are idle for too long. Who sends a request
    slowly, or does not take its answer, is idle, too.
    """

    def __init__(self, stream: Stream, *, connection_id: str, listener: str, shared: Shared) -> None:
        self.connection_id = connection_id
        self.listener = listener
        self.idle_since = shared.world.now()
        self.principal = ANONYMOUS
        self._stream = stream
        self._shared = shared
        self._closing = False
        self._reason: str | None = None

    @property
    def closing(self) -> bool:
        """Whether it is about to end."""
        return self._closing

    def close(self, reason: str) -> None:
        """Close from outside."""
        self._closing = True
        if self._reason is None:
            self._reason = reason
        self._stream.close()

    def finish(self) -> None:
        """Stop after the request in progress, if there is one; at once otherwise."""
        self._closing = True
        if self._reason is None:
            self._reason = "the broker stops"
        if self.idle_since != BUSY:
            self._stream.close()

    async def run(self) -> None:
        """Serve until the connection ends; raises nothing but `trio.Cancelled`."""
        level, reason = logging.INFO, "the broker stops"
        try:
            await self._authenticate()
            await self._serve()
            reason = "the peer closed it"
        except (ProtocolError, CloseConnectionError, AuthenticationFailedError) as error:
            level, reason = logging.WARNING, str(error)
        except (OSError, trio.ClosedResourceError) as error:
            reason = f"it broke: {error!r}"
        except Exception:
            logger.exception("%s: a request failed in an unforeseen way", self.connection_id)
            level, reason = logging.ERROR, "a request failed in an unforeseen way"
        finally:
            self._stream.close()
            if self._reason is not None:
                level, reason = logging.INFO, self._reason
            limited = self._shared.bad_requests
            if level == logging.WARNING and limited is not None:
                limited.warn("closing %s: %s", self.connection_id, reason)
            else:
                logger.log(level, "closing %s: %s", self.connection_id, reason)

    async def _authenticate(self) -> None:
        """The stage before the first request."""
        shared = self._shared
        try:
            known = await shared.authentication.authenticate(self._stream, self.listener)
        except AuthenticationFailedError:
            # Who guesses passwords is not to learn quickly that this one was wrong (KIP-306).
            await trio.sleep(shared.failed_authentication_delay_ms / 1000)
            raise
        self._stream, self.principal = known.stream, known.principal

    async def _serve(self) -> None:
        shared, stream = self._shared, self._stream
        world, slots, dispatcher = shared.world, shared.slots, shared.dispatcher
        reader = FrameReader(stream, max_bytes=shared.max_frame_bytes, buffers=shared.buffers)
        held = _Held(reader, shared.memory, shared.turns, self.close)
        let_go, charge = held.let_go, held.charge
        repeated = RepeatedRequests()
        peer = stream.peer_address
        turns = taken = waits = 0
        began_at = done_at = 0.0
        while not self._closing:
            size = await reader.read_size()
            if size is None:
                return
            slot: Slot | None = None
            try:
                if size > BUFFER_BYTES or (slots.free <= 0 and slots.full):
                    await self._admit(size, held)
                frame = reader.take_body(size) or await reader.read_body(size, held.reserve)
                held.received()
                started_at = received_at = world.now()
                self.idle_since = BUSY
                if stream.waits != waits:  # the others have just had their turn
                    sends_ahead = taken > 1  # of what came last
                    turns, taken, waits = 0, 0, stream.waits
                    if sends_ahead:
                        await shared.turns.come_back()
                        started_at = world.now()
                    else:
                        shared.turns.count_other()
                elif turns >= _TURNS or done_at - began_at > _LONG_SECONDS:
                    turns = 0
                    await shared.turns.step_back()
                    started_at = world.now()
                if not turns:
                    began_at = started_at
                turns += 1
                taken += 1
                if slots.free > 0:
                    slot = slots.acquire_nowait()
                else:
                    slot = await slots.acquire()
                    started_at = world.now()
                work = dispatcher.dispatch(
                    frame,
                    slot=slot,
                    principal=self.principal,
                    listener=self.listener,
                    peer=peer,
                    received_at=received_at,
                    started_at=started_at,
                    let_go=let_go,
                    charge=charge,
                    repeated=repeated,
                )
                del frame  # so that nobody has it but who works on it
                answer = await work
            finally:
                if slot is not None:
                    slot.release()
                repeated.done()
                let_go()  # after all views of the frame: its buffer is for the next one
            done_at = answer.done_at
            await self._send(answer)
            if answer.closes:
                self._reason = "a fault was injected: closed within the answer"
                return
            if answer.throttle_ms:
                # After the answer, which tells the client; it may obey, but need not.
                await trio.sleep(answer.throttle_ms / 1000)
                self.idle_since = world.now()
            del answer, work  # an idle connection keeps nothing of its last request

    async def _admit(self, size: int, held: _Held) -> None:
        """Wait for room in the queue, and for memory if the request needs its own."""
        shared = self._shared
        # Waiting is the broker's doing, so the connection is not idle meanwhile; while its request comes in, it is.
        self.idle_since = BUSY
        await shared.slots.wait_for_room()
        if size > BUFFER_BYTES:
            await held.admit(size)
        self.idle_since = shared.world.now()

    async def _send(self, answer: Answer) -> None:
        shared = self._shared
        sending_at = answer.done_at
        if answer.delay_ms:
            await trio.sleep(answer.delay_ms / 1000)
            sending_at = shared.world.now()
        self.idle_since = sending_at
        size = bytes_in_memory(answer.parts)
        if size > LARGE_BYTES:
            shared.unsent.begin(self, size, self.close)
        try:
            if answer.parts:
                await self._stream.send_parts(answer.parts)
        finally:
            if size > LARGE_BYTES:
                shared.unsent.end(self)
            self.idle_since = sent_at = shared.world.now()
            shared.dispatcher.answered(answer, sending_at, sent_at)
