"""Accepting and closing connections."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio

from tests.support.logged import lines
from tests.unit.broker_stub.api.node import memory_world
from tests.unit.broker_stub.network.streams import ScriptedStream
from tests.unit.broker_stub.network.test_processor import PROCESSOR, Bench, answers, heartbeat_frame
from triokafka import AdminClient
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.network.connection_limits import ConnectionConfig
from triokafka.broker_stub.network.socket_server import Endpoint, SocketConfig, SocketServer
from triokafka.broker_stub.node import Node
from triokafka.errors import ConfigurationError
from triokafka.structs import Buffer
from triokafka.world import Listener, Stream, World


class ScriptedListener(Listener):
    """Accepts the given connections, or raises the given errors; then waits."""

    def __init__(self, *outcomes: Stream | OSError) -> None:
        self._outcomes = list(outcomes)
        self._closed = trio.Event()

    async def accept(self) -> Stream:
        if not self._outcomes:
            await self._closed.wait()
            raise trio.ClosedResourceError
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, OSError):
            raise outcome
        return outcome

    def close(self) -> None:
        self._closed.set()

    @property
    def address(self) -> tuple[str, int]:
        return ("192.0.2.9", 9092)


class DeafPeer(ScriptedStream):
    """A peer that sends requests and does not read the answers."""

    async def send(self, *buffers: Buffer) -> None:
        while not self.closed:
            self._more = trio.Event()
            await self._more.wait()
        raise trio.ClosedResourceError


def server_with(listen: Callable[[], Listener], **options: Any) -> tuple[SocketServer, Bench]:
    """A server whose world has scripted listeners."""
    bench = Bench()

    async def listen_(host: str, port: int, **options: int) -> Listener:
        return listen()

    world = SimpleNamespace(listen=listen_, now=bench.world.now, loop_clock=bench.world.loop_clock)
    return SocketServer(cast(World, world), SocketConfig(**options)), bench


async def test_acceptor_survives_running_out_of_file_descriptors(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    """The next connection is served."""
    stream = ScriptedStream(heartbeat_frame(1))
    server, bench = server_with(lambda: ScriptedListener(OSError(errno.EMFILE, "too many open files"), stream))
    await server.bind(Endpoint("PLAINTEXT", "192.0.2.9", 9092))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run, bench.dispatcher)
        await trio.sleep(1)
        assert len(answers(stream)) == 1
        assert server.connection_count == 0
        assert "cannot accept" in caplog.text
        nursery.cancel_scope.cancel()


async def test_failing_accept_is_logged_once_a_minute(autojump_clock: object, caplog: pytest.LogCaptureFixture) -> None:
    """The server accepts again ten times a second."""
    server, bench = server_with(lambda: ScriptedListener(*[OSError(errno.EMFILE, "too many open files")] * 1300))
    await server.bind(Endpoint("PLAINTEXT", "192.0.2.9", 9092))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run, bench.dispatcher)
        await trio.sleep(150)
        assert caplog.text.count("cannot accept") == 3
        nursery.cancel_scope.cancel()


async def test_many_connections_are_accepted_in_one_turn_but_not_all(autojump_clock: object) -> None:
    """One for each turn of the event loop filled the backlog, and the system then drops connections for a second."""
    server, bench = server_with(lambda: ScriptedListener(*(ScriptedStream(end=False) for _ in range(100))))
    await server.bind(Endpoint("PLAINTEXT", "192.0.2.9", 9092))
    open_after_each_turn: list[int] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run, bench.dispatcher)
        with trio.fail_after(60):
            while server.connection_count < 100:
                await trio.lowlevel.checkpoint()
                open_after_each_turn.append(server.connection_count)
        nursery.cancel_scope.cancel()
    steps = [later - earlier for earlier, later in pairwise([0, *open_after_each_turn])]
    assert set(steps) <= {0, 4, 32, 36, 64}, "one turn of the acceptor, or two between two of the test's"
    assert len(steps) < 10


async def test_refused_connections_leave_a_turn_to_others_and_a_few_lines_in_the_log(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    """A flood of connections from one address beyond max.connections.per.ip held up all other connections."""
    caplog.set_level(logging.INFO)
    server, bench = server_with(
        lambda: ScriptedListener(*(ScriptedStream(end=False) for _ in range(2_000))),
        connections=ConnectionConfig(max_connections_per_ip=1),
    )
    await server.bind(Endpoint("PLAINTEXT", "192.0.2.9", 9092))
    turns = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run, bench.dispatcher)
        with trio.fail_after(60):
            while len(caplog.records) < 1_999:
                await trio.lowlevel.checkpoint()
                turns += 1
        nursery.cancel_scope.cancel()
    assert turns >= 2_000 // 32
    refusals = [record for record in caplog.records if "refusing a connection" in record.getMessage()]
    assert sum(record.levelno == logging.WARNING for record in refusals) == 10


async def test_malformed_connections_are_a_few_lines_in_the_log(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    """After the tenth warning they are only counted; at INFO each still has a line."""
    caplog.set_level(logging.INFO)
    streams = [ScriptedStream(b"GET / HTTP/1.1\r\n\r\n") for _ in range(200)]
    server, bench = server_with(lambda: ScriptedListener(*streams))
    await server.bind(Endpoint("PLAINTEXT", "192.0.2.9", 9092))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run, bench.dispatcher)
        await trio.sleep(100)
        nursery.cancel_scope.cancel()
    closed = [record for record in caplog.records if "as of HTTP" in record.getMessage()]
    assert len(closed) == 200
    assert sum(record.levelno == logging.WARNING for record in closed) == 10
    assert "closed 190 more connections for bad requests in the last 60 s" in caplog.text


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (errno.EADDRINUSE, "the port is in use"),
        (errno.EADDRNOTAVAIL, "no such address"),
        (errno.EACCES, "not permitted"),
        (errno.EIO, "boom"),
    ],
)
async def test_address_that_cannot_be_listened_on_is_named_with_the_reason(code: int, sentence: str) -> None:

    def fail() -> Listener:
        raise OSError(code, "boom")

    server, _ = server_with(fail)
    with pytest.raises(ConfigurationError, match=rf"192\.0\.2\.9:9092 \(listener PLAINTEXT\): .*{sentence}"):
        await server.bind(Endpoint("PLAINTEXT", "192.0.2.9", 9092))


async def test_cancelled_server_closes_its_connections() -> None:
    """None is left behind."""
    streams: list[Any] = [ScriptedStream(end=False) for _ in range(3)]
    server, bench = server_with(lambda: ScriptedListener(*streams))
    await server.bind(Endpoint("PLAINTEXT", "192.0.2.9", 9092))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run, bench.dispatcher)
        await trio.testing.wait_all_tasks_blocked()
        assert server.connection_count == 3
        nursery.cancel_scope.cancel()
    assert all(stream.closed for stream in streams)
    assert server.connection_count == 0


async def test_closed_connection_is_uncounted_once(caplog: pytest.LogCaptureFixture) -> None:
    """Its id is that of both ends and a number of its own."""
    caplog.set_level(logging.INFO)
    streams: list[Any] = [ScriptedStream(end=False, peer=("192.0.2.1", 40_000 + number)) for number in range(3)]
    server, bench = server_with(lambda: ScriptedListener(*streams))
    await server.bind(Endpoint("PLAINTEXT", "192.0.2.9", 9092))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run, bench.dispatcher)
        await trio.testing.wait_all_tasks_blocked()
        streams[0].hang_up()
        await trio.testing.wait_all_tasks_blocked()
        assert (server.connection_count, server.limits.count("PLAINTEXT")) == (2, 2)
        streams[1].hang_up()  # both sides at once
        assert server.cut() == 2
        await trio.testing.wait_all_tasks_blocked()
        assert (server.connection_count, server.cut()) == (0, 0)
        nursery.cancel_scope.cancel()
    assert sorted(line.partition(": ")[0] for line in lines(caplog, PROCESSOR)) == [
        f"closing 192.0.2.9:9092-192.0.2.1:{40_000 + number}-{number + 1}" for number in range(3)
    ]


async def test_client_that_does_not_take_its_answer_is_closed_as_idle(
    autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    """It occupies no handler slot meanwhile, and its connection is closed."""
    caplog.set_level(logging.INFO)
    deaf = DeafPeer(heartbeat_frame(1), heartbeat_frame(2), end=False)
    server, bench = server_with(lambda: ScriptedListener(deaf), connections_max_idle_ms=10_000)
    await server.bind(Endpoint("PLAINTEXT", "192.0.2.9", 9092))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run, bench.dispatcher)
        await trio.sleep(9.9)
        assert (server.connection_count, server.slots.free) == (1, server.slots.slots)
        await trio.sleep(0.2)
        assert (server.connection_count, deaf.closed) == (0, True)
        nursery.cancel_scope.cancel()
    (line,) = lines(caplog, PROCESSOR)
    assert "idle for 10000 ms" in line
    assert bench.dispatcher.metrics.count == 1


async def test_every_listener_serves_and_reports_its_own_address() -> None:
    """Clients of one listener never get another listener's address."""
    config = BrokerConfig.for_tests(
        listeners=("PLAINTEXT://127.0.0.1:0", "INSIDE://127.0.0.1:0"),
        listener_security_protocol_map=("PLAINTEXT:PLAINTEXT", "INSIDE:PLAINTEXT"),
    )
    with trio.fail_after(30):
        async with Node(config, world=memory_world()) as process:
            broker = process.broker
            ports = {name: broker.sockets.address(name)[1] for name in ("PLAINTEXT", "INSIDE")}
            assert len(set(ports.values())) == 2
            for port in ports.values():
                async with AdminClient(bootstrap_servers=f"127.0.0.1:{port}") as admin:
                    (node,) = (await admin.describe_cluster()).nodes
                    assert node.port == port
