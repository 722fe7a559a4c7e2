"""Decoding large responses without keeping the event loop: heartbeats and other requests continue meanwhile.

A megabyte of small elements takes half a second to decode. A thread does it, one response of the event loop at a time,
so that the memory of the elements in the making stays that of one response.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import trio

from triokafka.errors import ProtocolError
from triokafka.network.in_flight_request import InFlightRequest
from triokafka.protocol.compiler import carries_records
from triokafka.protocol.message import Response
from triokafka.structs import Buffer
from triokafka.world import World

LARGE_BYTES: Final = 128 << 10
"""The event loop decodes smaller responses, which takes milliseconds."""
_LITTLE_MEMORY: Final = 2 << 20
"""The event loop decodes a large response with records if its other elements take at most this much memory."""
_turns: Final[trio.lowlevel.RunVar[trio.Lock]] = trio.lowlevel.RunVar("decoding of large responses")


def decode_here(entry: InFlightRequest, frame: Buffer, broker: str, *, max_memory: int) -> Response | None:
    """As `InFlightRequest.decode`, or None if `decode_in_thread` must do it: decoding would take long, or fails."""
    if not carries_records(entry.request_type.response_type):
        return None
    try:
        return entry.decode(frame, broker, max_memory=min(_LITTLE_MEMORY, max_memory))
    except ProtocolError:
        return None  # malformed, or of many elements


async def decode_in_thread(
    world: World, entry: InFlightRequest, frame: Buffer, broker: str, *, max_memory: int
) -> Response:
    """As `InFlightRequest.decode`, in a thread. A cancelled call waits for the thread.

    Raises:
        ProtocolError: the frame is not a response to this request.
    """
    async with _turn():
        return await world.run_in_thread(partial(entry.decode, frame, broker, max_memory=max_memory))


def _turn() -> trio.Lock:
    try:
        return _turns.get()
    except LookupError:
        lock = trio.Lock()
        _turns.set(lock)
        return lock
