"""The protocol without a client: one connection, one request at a time, no retries."""

from __future__ import annotations

import struct
from typing import TypeVar

import trio

from triokafka.errors import ProtocolError
from triokafka.protocol.frames import decode_response, encode_request
from triokafka.protocol.message import Request, Response
from triokafka.world import Stream, World

R = TypeVar("R", bound=Response)


class NoAnswerError(Exception):
    """The broker is unreachable, closed the connection, or took too long. The request may have been executed."""


class Wire:
    """A connection to ``host:port`` that is opened on demand, and abandoned when a response does not arrive."""

    def __init__(self, world: World, host: str, port: int, client_id: str) -> None:
        self._world = world
        self._address = (host, port)
        self._client_id = client_id
        self._stream: Stream | None = None
        self._correlation = 0

    async def ask(self, request: Request[R], version: int, *, timeout: float) -> R:
        """Send a request and wait for its response, at most ``timeout`` seconds. Raises `NoAnswerError`."""
        try:
            with trio.fail_after(timeout):
                return await self._ask(request, version)
        except (OSError, trio.TooSlowError, trio.ClosedResourceError, ProtocolError) as error:
            self.close()
            raise NoAnswerError(f"{type(request).__name__}: {error!r}") from error
        except BaseException:
            self.close()
            raise

    async def _ask(self, request: Request[R], version: int) -> R:
        if self._stream is None:
            self._stream = await self._world.connect(*self._address)
        self._correlation += 1
        parts = encode_request(request, version=version, correlation_id=self._correlation, client_id=self._client_id)
        await self._stream.send(*parts)
        (size,) = struct.unpack(">i", await self._receive(self._stream, 4))
        frame = await self._receive(self._stream, size)
        correlation, response = decode_response(request.response_type, frame, version=version)
        if correlation != self._correlation:
            raise ProtocolError(f"an answer to request {correlation} of {self._correlation}", path="", offset=0)
        return response  # the request determines the response

    async def _receive(self, stream: Stream, size: int) -> bytes:
        data = memoryview(bytearray(size))
        filled = 0
        while filled < size:
            count = await stream.receive_into(data[filled:])
            if not count:
                raise OSError("the broker hung up")
            filled += count
        return bytes(data)

    def close(self) -> None:
        """Close the connection."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
