"""Connections made by the user: through a SOCKS5 proxy, and by factories that fail (real sockets)."""

from __future__ import annotations

import runpy
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

import triokafka
from triokafka.errors import KafkaConnectionError, KafkaTimeoutError
from triokafka.network.config import NetworkConfig
from triokafka.network.network_client import NetworkClient
from triokafka.protocol.api.metadata import MetadataRequest, MetadataResponse
from triokafka.testing import running_broker
from triokafka.world.system import RealWorld

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "socks5_proxy.py"))
ASK = MetadataRequest(topics=[])


class SocksServer:
    """The part of RFC 1928 that connecting needs. Names end in ``.inside`` and all resolve to this machine."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.greeting = b"\x05\x00"
        self.port = 0
        self.target = ("", 0)

    async def run(self, *, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
        async with trio.open_nursery() as nursery:
            listeners = await nursery.start(partial(trio.serve_tcp, self.serve, 0, host="127.0.0.1"))
            self.port = listeners[0].socket.getsockname()[1]
            task_status.started()

    async def serve(self, client: trio.SocketStream) -> None:
        receive = EXAMPLE["receive_exactly"]
        assert await receive(client, 3) == b"\x05\x01\x00"
        await client.send_all(self.greeting)
        if self.greeting != b"\x05\x00":
            return
        head = await receive(client, 5)
        assert head[:4] == b"\x05\x01\x00\x03"
        name = (await receive(client, head[4])).decode()
        port = int.from_bytes(await receive(client, 2), "big")
        self.asked.append((name, port))
        if not name.endswith(".inside"):
            await client.send_all(b"\x05\x04\x00\x01" + bytes(6))
            return
        server = await trio.open_tcp_stream(*self.target)
        await client.send_all(b"\x05\x00\x00\x01" + bytes(6))
        await join(client, server)


async def join(one: trio.abc.Stream, other: trio.abc.Stream) -> None:
    """Copy bytes in both directions until one end closes."""

    async def copy(source: trio.abc.Stream, target: trio.abc.Stream, scope: trio.CancelScope) -> None:
        try:
            async for data in source:
                await target.send_all(data)
        except trio.BrokenResourceError:
            pass
        scope.cancel()

    async with other, trio.open_nursery() as nursery:
        nursery.start_soon(copy, one, other, nursery.cancel_scope)
        nursery.start_soon(copy, other, one, nursery.cancel_scope)


@asynccontextmanager
async def proxied_broker() -> AsyncIterator[tuple[SocksServer, str, Any]]:
    """Run a broker that advertises ``kafka.inside``, which only the proxy can resolve."""
    proxy = SocksServer()
    proxy.target = ("127.0.0.1", free_port())
    addresses: dict[str, Any] = {
        "listeners": ("PLAINTEXT://{}:{}".format(*proxy.target),),
        "advertised_listeners": ("PLAINTEXT://kafka.inside:9092",),
    }
    async with trio.open_nursery() as nursery, running_broker(**addresses) as broker:
        await nursery.start(proxy.run)
        yield proxy, broker.bootstrap_servers, EXAMPLE["socks5"]("127.0.0.1", proxy.port)
        nursery.cancel_scope.cancel()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def address_of(broker: Any) -> tuple[str, int]:
    host, _, port = broker.bootstrap_servers.partition(":")
    return host, int(port)


async def test_producer_and_consumer_work_through_a_proxy_that_resolves_the_names() -> None:
    with trio.fail_after(30):
        async with proxied_broker() as (proxy, address, factory):
            options: dict[str, Any] = {"bootstrap_servers": address, "stream_factory": factory}
            values = [bytes([i]) * (i * 5_000) for i in range(1, 40)]  # larger than one receive buffer
            async with triokafka.Producer(**options, batch_size=500_000) as producer:
                await (await producer.send_many("orders", values, partition=0))
            async with triokafka.Consumer("orders", **options, auto_offset_reset="earliest") as consumer:
                received: list[Any] = []
                while len(received) < len(values):
                    for records in (await consumer.poll(timeout_ms=1000)).values():
                        received += [record.value for record in records]
            assert received == values
            assert set(proxy.asked) == {("kafka.inside", 9092)}


async def test_example_sends_through_the_proxy(capsys: pytest.CaptureFixture[str]) -> None:
    with trio.fail_after(30):
        async with proxied_broker() as (proxy, address, _):
            await EXAMPLE["main"](address, "127.0.0.1", str(proxy.port), "examples")
            assert capsys.readouterr().out == "examples, partition 0, offset 0\n"


async def test_refusal_of_the_proxy_is_in_the_error() -> None:
    with trio.fail_after(30):
        async with proxied_broker() as (proxy, _, factory):
            config = NetworkConfig(bootstrap_servers=[("kafka.outside", 9092)], stream_factory=factory)
            async with NetworkClient(config, world=RealWorld()) as client:
                with pytest.raises(KafkaConnectionError, match=r"kafka\.outside:9092: .*cannot connect.*reply 4"):
                    await client.send(-1, ASK)
                proxy.greeting = b"\x05\xff"
                with pytest.raises(KafkaTimeoutError, match="wants a name and a password"):
                    await client.refresh_metadata(timeout_ms=300)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (ValueError("a bug in the factory"), r"stream_factory failed: ValueError\('a bug in the factory'\)"),
        (trio.BrokenResourceError("gone"), "stream_factory failed: BrokenResourceError"),
        ("no stream", "returned 'no stream', not a trio.abc.Stream"),
    ],
)
async def test_failing_factory_is_a_connect_error(made: Any, message: str) -> None:
    async def factory(host: str, port: int) -> Any:
        await trio.lowlevel.checkpoint()
        if isinstance(made, Exception):
            raise made
        return made

    config = NetworkConfig(bootstrap_servers=[("h", 1)], stream_factory=factory)
    async with NetworkClient(config, world=RealWorld()) as client:
        with pytest.raises(KafkaConnectionError, match=message):
            await client.send(-1, ASK)


async def test_factory_that_never_returns_is_bounded_by_the_setup_timeout() -> None:
    async def factory(host: str, port: int) -> Any:
        await trio.sleep_forever()

    config = NetworkConfig(bootstrap_servers=[("h", 1)], stream_factory=factory, socket_connection_setup_timeout_ms=50)
    async with NetworkClient(config, world=RealWorld()) as client:
        with pytest.raises(KafkaConnectionError, match=r"h:1: no answer within \d\d ms"):
            await client.send(-1, ASK)


async def test_stream_of_a_factory_is_closed_with_the_client() -> None:
    """It is closed permanently, without waiting for the peer."""
    made: list[trio.SocketStream] = []

    async def factory(host: str, port: int) -> trio.SocketStream:
        made.append(await trio.open_tcp_stream(host, port))
        return made[-1]

    with trio.fail_after(30):
        async with running_broker() as broker:
            config = NetworkConfig(bootstrap_servers=[address_of(broker)], stream_factory=factory)
            async with NetworkClient(config, world=RealWorld()) as client:
                assert isinstance(await client.send(-1, ASK), MetadataResponse)
                client.disconnect(-1, "for the test")
                assert isinstance(await client.send(-1, ASK), MetadataResponse)
            assert len(made) == 2
            assert all(stream.socket.fileno() == -1 for stream in made)


async def test_factory_may_return_a_tls_stream() -> None:
    """The broker is behind a proxy that terminates TLS."""
    authority = trustme.CA()
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(server_context)
    client_context = ssl.create_default_context()
    authority.configure_trust(client_context)

    async def factory(host: str, port: int) -> trio.SSLStream[trio.SocketStream]:
        return await trio.open_ssl_over_tcp_stream(host, terminator, ssl_context=client_context)

    with trio.fail_after(30):
        async with running_broker() as broker, trio.open_nursery() as nursery:

            async def end_tls(client: Any) -> None:
                await join(client, await trio.open_tcp_stream(*address_of(broker)))

            listeners = await nursery.start(
                partial(trio.serve_ssl_over_tcp, end_tls, 0, server_context, host="127.0.0.1")
            )
            terminator = listeners[0].transport_listener.socket.getsockname()[1]
            config = NetworkConfig(bootstrap_servers=[("127.0.0.1", 9092)], stream_factory=factory)
            async with NetworkClient(config, world=RealWorld()) as client:
                for _ in range(3):
                    assert isinstance(await client.send(-1, ASK), MetadataResponse)
            nursery.cancel_scope.cancel()
