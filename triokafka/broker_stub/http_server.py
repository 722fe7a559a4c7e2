"""A small HTTP/1.1 server: one request per connection, bounded in size, time and connections. While it serves the most
connections, a new one takes the place of the one that has waited longest for its peer, to send or to read.

It refuses requests that a web page can send: on a loopback address a ``Host`` other than this machine (DNS rebinding),
on any address a foreign ``Origin``, and with a token every request without it. The caller makes the replies.
"""

from __future__ import annotations

import hmac
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from math import inf
from typing import Any, Final

import trio

from triokafka import errors
from triokafka.named_tuple import NamedTuple
from triokafka.world import Listener, Stream, World

logger = logging.getLogger(__name__)

MAX_BODY_BYTES: Final = 65_536
MAX_CONNECTIONS: Final = 64
_TIMEOUT_SECONDS: Final = 10
_ACCEPT_RETRY_SECONDS: Final = 0.1
_COMPLAINT_SECONDS: Final = 60.0
"""Time between two log lines about a lasting lack of file descriptors."""


class BadRequestError(errors.KafkaError):
    """A malformed request; the message has the reason."""


class HttpRequest(NamedTuple):
    """One request; header names are in lower case, and ``path`` is the unchanged request target."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


Reply = tuple[str, Any]
"""A status line such as ``200 OK``, and the body: text, or an object that is sent as JSON."""


class HttpServer:
    """Serves one address. Call `bind` first, which returns the address, and then `run`.

    Args:
        name: the server's name in the log.
        answer: makes the reply to an allowed request. A `KafkaError` from it becomes a 400.
        token: the token that ``Authorization: Bearer`` must contain; None requires no token.
    """

    def __init__(
        self,
        world: World,
        name: str,
        answer: Callable[[HttpRequest], Awaitable[Reply]],
        *,
        token: str | None = None,
    ) -> None:
        self._world = world
        self._name = name
        self._answer = answer
        self.token = token
        self._listener: Listener | None = None
        self.loopback = True
        """Whether only this machine can reach the server."""
        self._names: frozenset[str] = frozenset({"localhost"})
        self._idle: dict[trio.CancelScope, None] = {}  # connections that wait for their peer, the oldest first

    async def bind(self, host: str, port: int) -> tuple[str, int]:
        """Listen and return host and port; port 0 selects a free one. Raises `OSError`."""
        self._listener = await self._world.listen(host, port)
        address = self._listener.address
        self.loopback = is_loopback(address[0])
        self._names = frozenset({"localhost", host.lower()})
        return address

    async def run(self) -> None:
        """Serve until cancelled. Waits while there are no file descriptors."""
        listener = self._listener
        if listener is None:
            raise errors.IllegalStateError(f"{self._name} is not bound to an address: call bind() first")
        room = trio.Semaphore(MAX_CONNECTIONS)
        silent_until = -inf
        try:
            async with trio.open_nursery() as nursery:
                while True:
                    try:
                        stream = await listener.accept()
                    except OSError as error:
                        if (now := self._world.now()) >= silent_until:
                            silent_until = now + _COMPLAINT_SECONDS
                            logger.error("%s cannot accept: %s", self._name, error)
                        await trio.sleep(_ACCEPT_RETRY_SECONDS)
                        continue
                    try:
                        if not room.value and self._idle:
                            next(iter(self._idle)).cancel()
                        await room.acquire()
                    except BaseException:
                        stream.close()
                        raise
                    nursery.start_soon(self._serve, stream, room)
        finally:
            listener.close()

    async def _serve(self, stream: Stream, room: trio.Semaphore) -> None:
        try:
            try:
                with self._patience() as reading:
                    request = await _read_request(stream)
                if reading.cancelled_caught:
                    return
                status, answer = self._refusal(request) or await self._reply(request)
            except BadRequestError as error:
                status, answer = "400 Bad Request", as_answer(error)
            with self._patience():
                await stream.send(_response(status, answer))
        except OSError as error:
            logger.info("%s: a connection broke: %r", self._name, error)
        finally:
            stream.close()
            room.release()

    @contextmanager
    def _patience(self) -> Iterator[trio.CancelScope]:
        """Limit a wait for the peer, which another connection may also end."""
        with trio.move_on_after(_TIMEOUT_SECONDS) as scope:
            self._idle[scope] = None
            try:
                yield scope
            finally:
                del self._idle[scope]

    def _refusal(self, request: HttpRequest) -> Reply | None:
        """Return the reply to a refused request; None for an allowed one."""
        headers = request.headers
        host = headers.get("host")
        if not host:
            raise BadRequestError("the header Host is missing")
        if self.loopback and not self._is_here(host):
            return "403 Forbidden", {"error": f"Host {host!r} is not this machine; use its address or localhost"}
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        if (origin is not None and origin != f"http://{host}") or site not in ("none", "same-origin"):
            return "403 Forbidden", {"error": "requests of web pages are refused"}
        if self.token is not None:
            scheme, _, given = headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self.token.encode()):
                return "401 Unauthorized", {"error": "the header Authorization: Bearer TOKEN is missing or wrong"}
        return None

    def _is_here(self, host: str) -> bool:
        """Whether a ``Host`` header names this machine. DNS rebinding cannot use an address, so every address is
        allowed."""
        name = host.partition("]" if host.startswith("[") else ":")[0].removeprefix("[").lower()
        return name in self._names or is_loopback(name)

    async def _reply(self, request: HttpRequest) -> Reply:
        try:
            return await self._answer(request)
        except errors.KafkaError as error:
            return "400 Bad Request", as_answer(error)
        except Exception as error:  # an action of a test may fail in any way, and must not stop the broker
            logger.exception("%s %s failed with an unexpected error", request.method, request.path)
            return "500 Internal Server Error", as_answer(error)


def is_loopback(host: str) -> bool:
    """Return whether a host is an address of the loopback interface; a name is not."""
    try:
        return ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


def as_answer(error: Exception) -> dict[str, str]:
    """Return an error as the body of a reply."""
    return {"error": str(error), "kind": type(error).__name__}


async def _read_request(stream: Stream) -> HttpRequest:
    data = bytearray()
    while b"\r\n\r\n" not in data:
        await _receive(stream, data)
    head, _, body = bytes(data).partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/"):
        raise BadRequestError(f"not HTTP: {lines[0]!r}")
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        if (name := name.strip().lower()) in headers and name in ("host", "origin", "content-length", "content-type"):
            raise BadRequestError(f"the header {name} occurs twice")
        headers[name] = value.strip()
    length = headers.get("content-length", "0")
    # Few enough digits for int(), and no digits that it does not accept (²).
    if not length.isdecimal() or len(length) > 9 or int(length) > MAX_BODY_BYTES:
        raise BadRequestError(f"content-length {length}; the maximum is {MAX_BODY_BYTES} bytes")
    rest = bytearray(body)
    while len(rest) < int(length):
        await _receive(stream, rest)
    return HttpRequest(words[0], words[1], headers, bytes(rest[: int(length)]))


async def _receive(stream: Stream, data: bytearray) -> None:
    buffer = bytearray(4096)
    size = await stream.receive_into(memoryview(buffer))
    if not size or len(data) + size > 2 * MAX_BODY_BYTES:
        raise BadRequestError("the request is truncated or too large")
    data += buffer[:size]


def _response(status: str, answer: Any) -> bytes:
    kind, text = ("text/plain", answer) if isinstance(answer, str) else ("application/json", json.dumps(answer) + "\n")
    body = text.encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    if status.startswith("401"):
        head += "WWW-Authenticate: Bearer\r\n"
    return head.encode() + b"X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n" + body
