"""Raw connections of the group benchmark: requests of the declared protocol without a client.

A `Wire` sends one request at a time. `blast` sends encoded requests as fast as they are answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, Final, TypeVar

import trio

from triokafka.protocol.frames import decode_response_header, encode_request
from triokafka.protocol.message import Request, Response

R = TypeVar("R", bound=Response)

_CHUNK: Final = 1 << 18
_FRAMES_AT_ONCE: Final = 20


class Wire:
    """One connection. ``received`` counts the bytes of responses."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.received = 0
        self._stream = stream
        self._buffer = bytearray()

    async def ask(self, request: Request[R], version: int) -> R:
        """Send a request and return its response. Raises `trio.BrokenResourceError` if the broker closes the
        connection."""
        parts = encode_request(request, version=version, correlation_id=1, client_id="load")
        await self._stream.send_all(b"".join(parts))
        return decoded(request.response_type, await self.frame(), version)

    async def send(self, frames: Sequence[bytes]) -> None:
        """Send encoded requests."""
        for first in range(0, len(frames), _FRAMES_AT_ONCE):
            await self._stream.send_all(b"".join(frames[first : first + _FRAMES_AT_ONCE]))

    async def frame(self) -> bytes:
        """Return the next response without its size."""
        while len(self._buffer) < 4 or len(self._buffer) < 4 + int.from_bytes(self._buffer[:4], "big"):
            data = await self._stream.receive_some(_CHUNK)
            if not data:
                raise trio.BrokenResourceError("the broker closed the connection")
            self.received += len(data)
            self._buffer += data
        end = 4 + int.from_bytes(self._buffer[:4], "big")
        frame = bytes(self._buffer[4:end])
        del self._buffer[:end]
        return frame

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()


def encoded(request: Request[Any], version: int) -> bytes:
    """Return a request as bytes to send."""
    return b"".join(encode_request(request, version=version, correlation_id=1, client_id="load"))


def decoded(response_type: type[R], frame: bytes, version: int) -> R:
    """Decode a response."""
    _, start = decode_response_header(response_type, frame, version=version)
    return response_type.decode(frame, version, start)


async def connect(bootstrap: str, count: int) -> list[Wire]:
    """Return ``count`` connections, each of which has been used."""
    host, _, port = bootstrap.rpartition(":")
    wires = []
    for _ in range(count):
        stream = await trio.open_tcp_stream(host, int(port))
        wires.append(Wire(stream))
    return wires


async def blast(wires: Sequence[Wire], frames: Sequence[bytes]) -> list[bytes]:
    """Distribute requests over the connections, send them as fast as the broker accepts them, and return all
    responses."""
    answers: list[bytes] = []

    async def serve(wire: Wire, mine: Sequence[bytes]) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wire.send, mine)
            for _ in mine:
                answers.append(await wire.frame())

    bounds = [round(number * len(frames) / len(wires)) for number in range(len(wires) + 1)]
    async with trio.open_nursery() as nursery:
        for wire, (first, last) in zip(wires, pairwise(bounds), strict=True):
            nursery.start_soon(serve, wire, frames[first:last])
    return answers


async def close(wires: Sequence[Wire]) -> None:
    """Close all connections."""
    for wire in wires:
        with suppress(trio.BrokenResourceError):
            await wire.aclose()
