"""The console with malicious clients and browsers that stop reading: its resources are bounded, and others
are served.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio

import triokafka
from tests.support.console_server import served_console
from triokafka.console.limits import ConsoleLimits
from triokafka.testing import RunningBroker, running_broker

PATIENCE = 120


@asynccontextmanager
async def console_of_a_broker(limits: ConsoleLimits | None = None) -> AsyncIterator[tuple[RunningBroker, int]]:
    """Run a broker with a topic, and a console; yield its port."""
    with trio.fail_after(PATIENCE):
        async with running_broker() as broker:
            client: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}
            async with triokafka.AdminClient(**client) as admin:
                await admin.create_topics([triokafka.NewTopic("orders", 1)])
            async with served_console(client, limits=limits, allow_changes=True) as url:
                yield broker, int(url.rstrip("/").rpartition(":")[2])


async def sent(port: int, path: str, method: str = "GET", head: str = "", body: bytes = b"") -> trio.SocketStream:
    """Send a request, and return the connection."""
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    lines = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {len(body)}\r\n{head}\r\n"
    await stream.send_all(lines.encode("latin-1") + body)
    return stream


async def answer(stream: trio.SocketStream) -> bytes:
    """Read one response to its end."""
    data = b""
    while b"\r\n\r\n" not in data:
        if not (more := await stream.receive_some()):
            return data
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    while len(body) < length:
        if not (more := await stream.receive_some()):
            break
        body += more
    return head + b"\r\n\r\n" + body


async def request(port: int, path: str, method: str = "GET", head: str = "", body: bytes = b"") -> tuple[int, bytes]:
    """Send a request; return status and body of the response."""
    async with await sent(port, path, method, head, body) as stream:
        found = await answer(stream)
    return int(found.split()[1]), found.partition(b"\r\n\r\n")[2]


async def token(port: int) -> str:
    _, page = await request(port, "/")
    return page.decode().partition("token&quot;: &quot;")[2][:32]


async def fill(broker: RunningBroker, records: int, size: int) -> None:
    async with triokafka.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for _ in range(records):
            await producer.send("orders", b"\xff" * size)


@pytest.mark.long
async def test_reader_that_makes_no_progress_loses_its_tail_to_the_next_one() -> None:
    async with (
        console_of_a_broker(ConsoleLimits(max_tails=1, send_timeout_ms=200)) as (broker, port),
        await sent(port, "/api/topics/orders/tail?limit=500") as still,
    ):
        while b'"ready"' not in await still.receive_some():
            pass
        while True:  # until the server has waited long enough to send
            await fill(broker, 100, 20_000)
            async with await sent(port, "/api/topics/orders/tail") as other:
                received = b""
                while b"data: " not in received:
                    received += await other.receive_some()
            if b'"ready"' in received:
                break
            assert b"are watched already" in received


async def test_response_to_a_search_is_bounded_whatever_the_size_of_the_messages() -> None:
    async with console_of_a_broker() as (broker, port):
        await fill(broker, 10, 900_000)
        status, body = await request(port, "/api/topics/orders/messages?limit=500")
        assert status == 200
        shown = json.loads(body)["records"]
        assert len(shown) == 10
        assert all(one["value"]["cut"] and one["value"]["size"] == 900_000 for one in shown)
        assert len(body) < 500_000


@pytest.mark.long
async def test_connections_above_the_limit_are_closed_at_once_and_free_slots_are_reused() -> None:
    async with console_of_a_broker(ConsoleLimits(max_connections=20)) as (_, port):
        silent = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(20)]
        late = [await trio.open_tcp_stream("127.0.0.1", port) for _ in range(100)]
        for stream in late:
            with pytest.raises(trio.BrokenResourceError):  # closed, or reset
                if await stream.receive_some() == b"":
                    raise trio.BrokenResourceError
            await stream.aclose()
        for stream in silent:
            await stream.aclose()
        status = 0
        while status != 200:
            stream = await sent(port, "/api/overview")
            found = await answer(stream)
            status = int(found.split()[1]) if found else 0


@pytest.mark.long
async def test_connections_that_never_finish_their_request_end() -> None:
    async with console_of_a_broker() as (_, port), trio.open_nursery() as nursery:

        async def to_the_end(start: bytes) -> None:
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(start)
                with suppress(trio.BrokenResourceError):
                    while await stream.receive_some():
                        pass

        for start in (b"", b"GET / HTTP/1.1\r\nHost: x\r\nA: ", b"POST /api/login HTTP/1.1\r\nContent-Le"):
            nursery.start_soon(to_the_end, start)


ODD_ADDRESSES: list[tuple[str, set[int]]] = [
    ("/api/topics/%ff%fe", {404, 400, 502}),
    ("/api/topics/%00", {404, 400, 502}),
    ("/api/topics/orders/messages?key=%ff&text=%00", {200}),
    ("/api/topics/orders/messages?partition=²", {400}),
    ("/api/topics/orders/messages?partition=999999999", {404}),
    ("/api/topics/orders/messages?partition=99999999999999999999", {400}),
    ("/api/topics/orders/messages?start=999999999999999999", {200}),
    ("/api/topics/orders/messages?start=@999999999999999999", {200}),
    ("/api/topics?page=99999999", {200}),
    ("/api/topics?page=" + "9" * 5_000, {200, 400, 414, 431}),
    ("/api/group?id=%ff", {200, 404, 400, 502}),
    ("/api/group?id=" + "x" * 10_000, {200, 404, 400, 431, 502}),
    ("/api/brokers/99999999999999999999/configs", {400, 404, 502}),
    ("/api/metrics?since=²", {200}),
    ("/api/metrics?since=-1", {200}),
    ("/static/%2e%2e/app.py", {404}),
]


ODD_BODIES = [b"", b"{", b"[]", b"\xff", b'{"name": 1}', b"[" * 100_000, b'{"name": "\\ud800", "partitions": 1e99}']


async def test_unusual_paths_and_bodies_get_responses() -> None:
    async with console_of_a_broker() as (_, port):
        for path, statuses in ODD_ADDRESSES:
            status, _ = await request(port, path.replace("²", "%C2%B2"))
            assert status in statuses, path
        head = f"X-Console-Token: {await token(port)}\r\nContent-Type: application/json\r\n"
        for body in ODD_BODIES:
            status, _ = await request(port, "/api/change/create-topic", "POST", head, body)
            assert status == 400, body[:50]


async def test_form_of_another_site_is_refused() -> None:
    """A form can send text with the browser's cookies, but not the page's token."""
    body = b'{"name": "orders", "confirmed": "orders"}'
    async with console_of_a_broker() as (_, port):
        for head in ("Content-Type: text/plain\r\n", "Content-Type: application/json\r\nOrigin: null\r\n"):
            assert (await request(port, "/api/change/delete-topic", "POST", head, body))[0] == 403
        assert (await request(port, "/api/topics/orders"))[0] == 200


async def test_each_login_creates_a_session_and_failed_logins_are_limited() -> None:
    async with running_broker(users={"alice": "secret-of-alice"}) as broker:
        client = {key: value for key, value in broker.client_options("alice").items() if key not in _CREDENTIALS}
        limits = ConsoleLimits(login_max_failures=2)
        with trio.fail_after(PATIENCE):
            async with served_console(client, limits=limits, needs_login=True) as url:
                port = int(url.rstrip("/").rpartition(":")[2])
                own = await token(port)

                async def log_in(password: str, cookie: str) -> tuple[int, str]:
                    head = f"X-Console-Token: {own}\r\nCookie: triokafka_session={cookie}\r\n"
                    body = json.dumps({"user": "alice", "password": password}).encode()
                    async with await sent(port, "/api/login", "POST", head, body) as stream:
                        found = (await answer(stream)).decode()
                    return int(found.split()[1]), found.partition("triokafka_session=")[2].partition(";")[0]

                async def overview(cookie: str) -> int:
                    return (await request(port, "/api/overview", head=f"Cookie: triokafka_session={cookie}\r\n"))[0]

                status, first = await log_in("secret-of-alice", "planted")
                assert (status, first != "planted") == (200, True)
                assert (await overview("planted"), await overview(first)) == (401, 200)
                status, second = await log_in("secret-of-alice", first)
                assert (await overview(first), await overview(second)) == (401, 200)
                assert [(await log_in("wrong", ""))[0] for _ in range(2)] == [401, 401]
                assert (await log_in("secret-of-alice", ""))[0] == 401
                assert await overview(second) == 200


_CREDENTIALS = ("sasl_username", "sasl_password")
