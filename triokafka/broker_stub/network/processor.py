"""One connection: read a request, have it answered, send the answer, and only then read on.

There is at most one request of a connection in progress, so answers leave in the order of the requests (A23). What the
peer sends meanwhile waits in the kernel's buffer. Whatever goes wrong here closes this connection and no other, with
one line in the log.
"""

from __future__ import annotations

import logging
from typing import Final

import trio

from triokafka.broker_stub.authorizer import ANONYMOUS
from triokafka.broker_stub.handlers import CloseConnectionError, Dispatcher
from triokafka.broker_stub.network.framing import FrameBuffers, FrameReader
from triokafka.broker_stub.network.handler_slots import HandlerSlots
from triokafka.errors import ProtocolError
from triokafka.world import Stream, World

logger = logging.getLogger(__name__)

_TURNS: Final = 4
"""Requests of one connection that are worked on before the others are let in, if all its bytes are there already."""


class ConnectionProcessor:
    """Serves one connection until either side closes it.

    ``idle_since`` is the time on the world's clock since when nothing was asked of the broker, or infinity while a
    request is being worked on; the listener's sweep closes those that are idle for too long.
    """

    def __init__(
        self,
        stream: Stream,
        *,
        connection_id: str,
        listener: str,
        dispatcher: Dispatcher,
        slots: HandlerSlots,
        max_frame_bytes: int,
        world: World,
        buffers: FrameBuffers | None = None,
    ) -> None:
        self.connection_id = connection_id
        self.idle_since = world.now()
        self.principal = ANONYMOUS
        self._stream = stream
        self._listener = listener
        self._dispatcher = dispatcher
        self._slots = slots
        self._reader = FrameReader(stream, max_bytes=max_frame_bytes, buffers=buffers)
        self._world = world
        self._closing = False

    def close(self, reason: str) -> None:
        """Close from outside."""
        logger.info("closing %s: %s", self.connection_id, reason)
        self._closing = True
        self._stream.close()

    def finish(self) -> None:
        """Stop after the request in progress, if there is one; at once otherwise."""
        self._closing = True
        if self.idle_since != float("inf"):
            self._stream.close()

    async def run(self) -> None:
        """Serve until the connection ends; raises nothing but `trio.Cancelled`."""
        try:
            await self._authenticate()
            await self._serve()
        except (ProtocolError, CloseConnectionError) as error:
            logger.warning("closing %s: %s", self.connection_id, error)
        except (OSError, trio.ClosedResourceError) as error:
            if not self._closing:
                logger.info("%s broke: %r", self.connection_id, error)
        except Exception:
            logger.exception("closing %s: a request failed in an unforeseen way", self.connection_id)
        finally:
            self._stream.close()

    async def _authenticate(self) -> None:
        """The stage before the first request: a plaintext listener has nothing to ask."""

    async def _serve(self) -> None:
        stream, world = self._stream, self._world
        peer = stream.peer_address
        turns = 0
        while not self._closing:
            await self._slots.wait_for_room()
            frame = await self._reader.read()
            if frame is None:
                return
            self.idle_since = float("inf")
            slot = await self._slots.acquire()
            try:
                answer = await self._dispatcher.dispatch(
                    frame, slot=slot, principal=self.principal, listener=self._listener, peer=peer
                )
            finally:
                slot.release()
            del frame  # records of a produce request are not kept while the peer takes its time
            self._reader.done()
            if answer.delay_ms:
                await trio.sleep(answer.delay_ms / 1000)
            self.idle_since = world.now()  # a peer that does not take its answer is idle, too
            if answer.parts:
                await stream.send(*answer.parts)
            if answer.closes:
                return
            if answer.throttle_ms:
                # After the answer, which tells the client; it may obey, but need not (Z20).
                await trio.sleep(answer.throttle_ms / 1000)
                self.idle_since = world.now()
            turns += 1
            if not turns % _TURNS:
                await trio.lowlevel.checkpoint()  # reading and sending may not have waited: let the others in
