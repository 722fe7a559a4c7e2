"""Decoding large responses without keeping the event loop: heartbeats and other requests continue meanwhile.

A megabyte of small elements takes half a second to decode. A thread does it, one response of the event loop at a time,
so that the memory of the elements in the making stays that of one response.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import trio

from triokafka.errors import ProtocolError
from triokafka.network.in_flight import InFlightRequest
from triokafka.protocol.compiler import carries_records
from triokafka.protocol.message import Response
from triokafka.structs import Buffer
from triokafka.world import World

LARGE_BYTES: Final = 128 << 10
"""The event loop decodes smaller responses, which takes milliseconds."""
_LITTLE_MEMORY: Final = 2 << 20
"""The event loop decodes a large response with records if its other elements take at most this much memory."""
_turns: Final[trio.lowlevel.RunVar[trio.Lock]] = trio.lowlevel.RunVar("decoding of large responses")


async def decode_large(
    world: World, entry: InFlightRequest, frame: Buffer, broker: str, *, max_memory: int
) -> Response:
    """As `InFlightRequest.decode`, in a thread where it would take long. A cancelled call waits for the thread.

    Raises:
        ProtocolError: the frame is not a response to this request.
    """
    if carries_records(entry.request_type.response_type):
        try:
            return entry.decode(frame, broker, max_memory=min(_LITTLE_MEMORY, max_memory))
        except ProtocolError:
            pass  # malformed, or of many elements
    async with _turn():
        return await world.run_in_thread(partial(entry.decode, frame, broker, max_memory=max_memory))


def _turn() -> trio.Lock:
    try:
        return _turns.get()
    except LookupError:
        lock = trio.Lock()
        _turns.set(lock)
        return lock
