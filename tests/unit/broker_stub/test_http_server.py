"""The endpoints over HTTP refuse web pages, rebound names, and requests without the token."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trio

from triokafka.broker_stub import http_server
from triokafka.broker_stub.control.endpoint import Action, ControlEndpoint
from triokafka.broker_stub.faults.faults import Faults
from triokafka.broker_stub.http_server import MAX_CONNECTIONS, HttpServer, is_loopback
from triokafka.broker_stub.metrics.endpoint import metrics_server
from triokafka.broker_stub.metrics.sample import Sample
from triokafka.world import Listener, Stream
from triokafka.world.system import RealWorld

TOKEN = "0123456789abcdef"
Ask = Callable[..., Awaitable[int]]


class Calls:
    """A path that notes that it was called, as ``/stop`` is one."""

    def __init__(self) -> None:
        self.count = 0

    async def stop(self, given: object) -> object:
        self.count += 1
        return {}


@asynccontextmanager
async def serving(server: HttpServer | ControlEndpoint, host: str = "127.0.0.1") -> AsyncIterator[Ask]:
    """Run a server; gives a function that sends one request and returns the status."""
    _, port = await server.bind(host, 0)

    async def ask(method: str = "POST", path: str = "/stop", body: bytes = b"{}", **headers: str) -> int:
        headers = {"Host": f"127.0.0.1:{port}", "Content_Type": "application/json"} | headers
        lines = [f"{name.replace('_', '-')}: {value}" for name, value in headers.items() if value]
        head = "\r\n".join([f"{method} {path} HTTP/1.1", *lines, f"Content-Length: {len(body)}", "", ""])
        with trio.fail_after(30):
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(head.encode() + body)
                answer = b"".join([piece async for piece in stream])
        return int(answer.split()[1])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        yield ask
        nursery.cancel_scope.cancel()


def control(calls: Calls, token: str | None = None) -> ControlEndpoint:
    return ControlEndpoint(Faults(), RealWorld(), actions={"/stop": Action("POST", calls.stop)}, token=token)


@pytest.mark.parametrize("host", ["", "localhost", "localhost:9191", "127.0.0.1", "127.8.8.8:1", "[::1]:9191"])
async def test_this_machine_is_served_by_its_own_names(host: str) -> None:
    calls = Calls()
    async with serving(control(calls)) as ask:
        assert await ask(**({"Host": host} if host else {})) == 200
    assert calls.count == 1


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:9191", "localhost.evil.example", "127.0.0.1.evil.example", "10.1.2.3", "["]
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_name_that_was_rebound_to_this_machine_is_refused(host: str, method: str) -> None:
    """``evil.example`` changes its own address to 127.0.0.1; browsers then count the server as the same origin."""
    calls = Calls()
    async with serving(control(calls)) as ask:
        assert await ask(method, "/faults", Host=host) == 403
        assert await ask(Host=host, Origin=f"http://{host}") == 403
    assert not calls.count


@pytest.mark.parametrize("origin", ["http://evil.example", "http://localhost:3000", "https://127.0.0.1", "null"])
async def test_web_page_cannot_stop_the_broker(origin: str) -> None:
    calls = Calls()
    async with serving(control(calls)) as ask:
        assert await ask(Origin=origin) == 403
        assert await ask(Origin=origin, Content_Type="text/plain") == 403
        assert await ask(Sec_Fetch_Site="cross-site") == 403
        assert await ask("DELETE", "/faults", Origin=origin) == 403
    assert not calls.count


@pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "text/plain;application/json"])
@pytest.mark.parametrize("body", [b"", b"{}"])
async def test_change_that_is_not_sent_as_json_is_refused(kind: str, body: bytes) -> None:
    """These are the kinds that a page may send anywhere without asking; older browsers send no ``Origin``."""
    calls = Calls()
    async with serving(control(calls)) as ask:
        assert await ask(body=body, Content_Type=kind) == 415
        assert await ask(body=b"{}", Content_Type="application/json; charset=utf-8") == 200
    assert calls.count == 1


@pytest.mark.parametrize("given", ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \xe9"])
async def test_request_without_the_token_is_refused(given: str) -> None:
    calls = Calls()
    async with serving(control(calls, TOKEN)) as ask:
        for method, path in (("POST", "/stop"), ("GET", "/faults"), ("GET", "/metrics"), ("DELETE", "/faults")):
            assert await ask(method, path, Authorization=given) == 401
        assert await ask(Authorization=f"Bearer {TOKEN}") == 200
    assert calls.count == 1


async def test_endpoint_on_a_public_address_gets_a_generated_token() -> None:
    calls = Calls()
    endpoint = control(calls)
    async with serving(endpoint, "0.0.0.0") as ask:
        assert endpoint.token is not None and len(endpoint.token) == 64
        assert await ask() == 401
        assert await ask(Authorization=f"Bearer {endpoint.token}", Host="broker:9191") == 200
    assert calls.count == 1


async def test_metrics_have_an_address_of_their_own_where_nothing_can_be_changed() -> None:
    server = metrics_server(RealWorld(), lambda: [Sample("up", {}, 1.0)])
    async with serving(server) as ask:
        assert await ask("GET", "/metrics") == 200
        assert await ask("GET", "/metrics?x=1") == 200
        assert [await ask(method, "/metrics") for method in ("POST", "PUT", "DELETE", "OPTIONS")] == [405] * 4
        assert [await ask("GET", path) for path in ("/", "/faults", "/stop")] == [404] * 3
        assert await ask("GET", "/metrics", Host="evil.example") == 403


@pytest.mark.parametrize("sent", [b"", b"GET /metrics HTTP/1.1\r\nHost: "])
async def test_request_is_answered_while_others_hold_every_connection(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection that has waited longest for its peer makes room, so no probe of the node's health fails."""
    monkeypatch.setattr(http_server, "_TIMEOUT_SECONDS", float("inf"))
    server = metrics_server(RealWorld(), lambda: ())
    address = await server.bind("127.0.0.1", 0)
    async with trio.open_nursery() as nursery, AsyncExitStack() as held:
        nursery.start_soon(server.run)
        streams = [await held.enter_async_context(await trio.open_tcp_stream(*address)) for _ in range(MAX_CONNECTIONS)]
        for stream in streams:
            await stream.send_all(sent)
        with trio.fail_after(60):
            last = await held.enter_async_context(await trio.open_tcp_stream(*address))
            await last.send_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = b"".join([piece async for piece in last])
            assert answer.startswith(b"HTTP/1.1 200 OK")
            assert await streams[0].receive_some() == b""
        nursery.cancel_scope.cancel()


async def test_lack_of_file_descriptors_does_not_end_the_server() -> None:
    """A lack of descriptors used to end the broker, too."""

    class Short(RealWorld):
        async def listen(self, *args: object, **options: object) -> Listener:
            return ShortListener(await super().listen(*args, **options))  # type: ignore[arg-type]

    class ShortListener(Listener):
        def __init__(self, inner: Listener) -> None:
            self._inner, self._failures = inner, 2

        async def accept(self) -> Stream:
            self._failures -= 1
            if self._failures >= 0:
                raise OSError(24, "Too many open files")
            return await self._inner.accept()

        def close(self) -> None:
            self._inner.close()

        @property
        def address(self) -> tuple[str, int]:
            return self._inner.address

    async with serving(metrics_server(Short(), tuple)) as ask:
        assert await ask("GET", "/metrics") == 200


@pytest.mark.parametrize(
    ("host", "found"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("0.0.0.0", False), ("::", False), ("localhost", False)],
)
def test_loopback_addresses_are_recognised(host: str, found: bool) -> None:
    assert is_loopback(host) is found
