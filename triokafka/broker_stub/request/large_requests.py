"""Decoding large requests in bounded memory, in a thread where it takes long."""

from __future__ import annotations

from typing import Any, Final

import trio

from triokafka.broker_stub.config.current_config import CurrentConfig
from triokafka.broker_stub.request.handler_slots import Slot
from triokafka.broker_stub.request.registry import CloseConnectionError, Handler
from triokafka.broker_stub.request.request_memory import RequestMemory
from triokafka.errors import ProtocolError
from triokafka.protocol.frames import RequestHeader
from triokafka.protocol.message import MOST_MEMORY, Request
from triokafka.structs import Buffer
from triokafka.world import World

LARGE_BYTES: Final = 131_072
"""A thread decodes larger requests, and encodes their responses, since that takes tens of milliseconds or more."""
_LITTLE_MEMORY: Final = 262_144
"""The event loop decodes a large request with records if its other elements take at most this much memory."""
_DECODING_SECONDS: Final = 30
"""Timeout of a large request that waits for memory to be decoded."""
_DECODED_TIMES: Final = 4
"""Limit of the decoded form of a request as a multiple of ``socket.request.max.bytes``, without the frame itself."""


class LargeRequests:
    """Decodes the large requests of all connections of one dispatcher. ``memory`` bounds their decoded forms."""

    def __init__(self, world: World, config: CurrentConfig, memory: RequestMemory) -> None:
        self._world = world
        self._config = config
        self._memory = memory
        self._turn = trio.Semaphore(1)

    async def decode(
        self, handler: Handler[Any, Any], frame: Buffer, header: RequestHeader, slot: Slot | None
    ) -> tuple[Any, int, float]:
        """Decode a large request in bounded memory; return it, the memory of its elements, and the seconds of waiting.

        The event loop decodes requests that consist mostly of records. A thread decodes all others, one at a time,
        since each holds the interpreter for long. Waits while the decoded requests in progress take too much memory.
        """
        if handler.carries_records:
            try:
                return *_decode(handler, frame, header, _LITTLE_MEMORY), 0.0
            except ProtocolError:
                pass  # malformed, or of many elements
        if slot is not None:
            slot.release()  # small requests can run meanwhile
        released_at = self._world.now()
        request, memory, worked = await self._decode_in_turn(handler, frame, header)
        if slot is not None:
            await slot.resume()
        return request, memory, self._world.now() - released_at - worked

    async def _decode_in_turn(
        self, handler: Handler[Any, Any], frame: Buffer, header: RequestHeader
    ) -> tuple[Any, int, float]:
        """Decode a request in a thread; return it, the memory of its elements, and the seconds of work."""
        world, memory = self._world, self._memory

        async def decode(most: int) -> tuple[Any, int, float]:
            began_at = world.now()
            request, taken = await world.run_in_thread(_decode, handler, frame, header, most)
            return request, taken, world.now() - began_at

        most = memory.decoded_limit
        max_memory = max(_DECODED_TIMES * self._config.current.socket_request_max_bytes, LARGE_BYTES * MOST_MEMORY)
        if not most:
            async with self._turn:
                return await decode(max_memory)
        with trio.move_on_after(_DECODING_SECONDS):
            async with self._turn:
                while memory.added > most:
                    await memory.wait_for_release()
                return await decode(min(most, max_memory))
        raise CloseConnectionError(
            f"a request of {len(frame)} bytes waited {_DECODING_SECONDS} s for memory to be decoded, which other large "
            "requests hold (queued.max.request.bytes); send smaller requests, or raise the limit"
        )


def _decode(
    handler: Handler[Any, Any], frame: Buffer, header: RequestHeader, max_memory: int
) -> tuple[Request[Any], int]:
    found: tuple[Request[Any], int] = handler.request_type.decode_within(
        frame,
        header.api_version,
        header.size,
        max_memory=max_memory,
        prefix=not handler.carries_records,
    )
    return found
