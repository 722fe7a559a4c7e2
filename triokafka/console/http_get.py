"""Small HTTP requests to a broker's endpoints, bounded in size and time."""

from __future__ import annotations

import json
from typing import Any, Final

import trio

from triokafka.errors import KafkaConnectionError, KafkaTimeoutError
from triokafka.structs import address_text
from triokafka.world import Stream, World

_SECONDS: Final = 5.0
_MOST_BYTES: Final = 32 << 20
_PIECE: Final = 1 << 16


class HttpEndpoint:
    """One address that answers HTTP, with a token if it needs one."""

    def __init__(self, world: World, host: str, port: int, token: str | None = None) -> None:
        self.address = address_text(host, port)
        self._world = world
        self._host, self._port = host, port
        self._token = token

    async def request(self, method: str, path: str, document: Any = None) -> tuple[int, str]:
        """Return status and body of an answer. HTTP/1.0: the answer ends with its connection.

        Raises:
            KafkaConnectionError: the endpoint is not there, or does not talk HTTP.
            KafkaTimeoutError: it does not answer within 5 seconds.
        """
        body = b"" if document is None else json.dumps(document).encode()
        lines = [f"{method} {path} HTTP/1.0", f"Host: {self.address}", f"Content-Length: {len(body)}"]
        if body:
            lines.append("Content-Type: application/json")
        if self._token is not None:
            lines.append(f"Authorization: Bearer {self._token}")
        sent = "\r\n".join([*lines, "", ""]).encode() + body
        try:
            with trio.fail_after(_SECONDS):
                data = await self._exchange(sent)
        except trio.TooSlowError:
            raise KafkaTimeoutError(f"{self.address} did not answer {path} within {_SECONDS:g} seconds") from None
        except OSError as error:
            raise KafkaConnectionError(f"{self.address}: {error.strerror or error}") from None
        head, separator, answer = data.partition(b"\r\n\r\n")
        words = head.split(maxsplit=2)
        if not separator or len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
            raise KafkaConnectionError(f"{self.address} does not answer {path} with HTTP")
        return int(words[1]), answer.decode("utf-8", "replace")

    async def _exchange(self, sent: bytes) -> bytes:
        failure = OSError("no address")
        for address in await self._world.resolve(self._host, self._port):
            try:
                stream = await self._world.connect(*address)
            except OSError as error:
                failure = error
                continue
            try:
                await stream.send(sent)
                return await _read(stream)
            finally:
                stream.close()
        raise failure


async def _read(stream: Stream) -> bytes:
    data = bytearray()
    piece = bytearray(_PIECE)
    while count := await stream.receive_into(memoryview(piece)):
        data += piece[:count]
        if len(data) > _MOST_BYTES:
            raise OSError(f"the answer has more than {_MOST_BYTES} bytes")
    return bytes(data)
