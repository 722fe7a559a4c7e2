"""A SASL connection to a broker, written byte by byte, for clients that break the protocol."""

from __future__ import annotations

from typing import Any, Self

import trio

from triokafka.protocol.api.sasl_authenticate import SaslAuthenticateRequest
from triokafka.protocol.api.sasl_handshake import SaslHandshakeRequest
from triokafka.protocol.frames import decode_response, encode_request
from triokafka.protocol.message import Request


class SaslTalk:
    """One connection. Responses are None once the broker has closed it."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        self._next = 0

    async def __aenter__(self) -> Self:
        self._stream = await trio.open_tcp_stream(*self._address)
        return self

    async def __aexit__(self, *raised: object) -> None:
        await trio.aclose_forcefully(self._stream)

    async def send(self, raw: bytes) -> None:
        try:
            await self._stream.send_all(raw)
        except trio.BrokenResourceError:
            return

    async def _exactly(self, size: int) -> bytes | None:
        received = b""
        while len(received) < size:
            try:
                part = await self._stream.receive_some(size - len(received))
            except trio.BrokenResourceError:
                return None
            if not part:
                return None
            received += part
        return received

    async def frame(self) -> bytes | None:
        """Receive one frame."""
        size = await self._exactly(4)
        return None if size is None else await self._exactly(int.from_bytes(size, "big"))

    async def ask(self, request: Request[Any], version: int) -> Any:
        """Send a request and return the response."""
        self._next += 1
        await self.send(b"".join(encode_request(request, version=version, correlation_id=self._next, client_id="talk")))
        frame = await self.frame()
        if frame is None:
            return None
        correlation_id, response = decode_response(type(request).response_type, frame, version=version)
        assert correlation_id == self._next
        return response

    async def log_in(self, user: str, password: str) -> int:
        """Log in by PLAIN; return the lifetime of the session in ms, -1 when refused."""
        handshake = await self.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert handshake.error_code == 0
        answer = await self.ask(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode()), 2)
        return -1 if answer.error_code else int(answer.session_lifetime_ms)
