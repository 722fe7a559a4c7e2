"""A connection that died silently is abandoned within ``connections_max_silence_ms``; that of a slow broker is not."""

from __future__ import annotations

import socket
from typing import Any

import pytest
import trio

from tests.support.scripted_broker import SILENCE
from tests.support.simulated import current_simulation, simulated
from tests.unit.network.test_network_client import ASK, client_of
from triokafka.errors import KafkaConnectionError
from triokafka.network.config import NetworkConfig
from triokafka.network.dead_peer import DeadPeerDetector, Verdict, allowed_wait
from triokafka.network.transport import open_stream
from triokafka.protocol.api.api_versions import ApiVersionsRequest
from triokafka.protocol.api.create_topics import CreateTopicsRequest, CreateTopicsResponse
from triokafka.protocol.api.fetch import FetchRequest
from triokafka.protocol.api.heartbeat import HeartbeatRequest
from triokafka.protocol.api.metadata import MetadataRequest
from triokafka.world.socket_stream import silence_options
from triokafka.world.system import RealWorld

MOST = 9.6  # seconds: connections_max_silence_ms, plus the time for a new connection


async def answered_after(client: Any, node_id: int = 1) -> float:
    """Request metadata until there is a response; return the seconds that it took."""
    began = trio.current_time()
    while True:
        try:
            await client.send(node_id, ASK)
            return trio.current_time() - began
        except KafkaConnectionError:
            continue


@simulated
@pytest.mark.parametrize("one_way", ["client", "broker", ""])
async def test_request_on_a_half_open_connection_in_use_fails_in_time(one_way: str) -> None:
    async with client_of() as (_, client):
        await client.send(-1, ASK)
        network = current_simulation().network
        network.half_open(one_way or "client", "broker" if one_way != "broker" else "client", one_way=bool(one_way))
        began = trio.current_time()
        with pytest.raises(KafkaConnectionError, match="the connection is dead"):
            await client.send(-1, ASK)
        assert 9 <= trio.current_time() - began < MOST
        assert await answered_after(client, -1) < 1


@simulated
async def test_request_on_an_idle_half_open_connection_fails_within_seconds() -> None:
    async with client_of() as (cluster, client):
        await client.send(-1, ASK)
        await trio.sleep(6)
        current_simulation().network.half_open("client", "broker")
        assert await answered_after(client, -1) < 2.5
        assert cluster.brokers[1].connection_count == 3  # one of them was the probe


@simulated
async def test_ping_goes_ahead_of_a_request_only_after_idleness() -> None:
    async with client_of() as (cluster, client):
        for _ in range(10):
            await client.send(-1, ASK)
            await trio.sleep(1)
        assert len(cluster.brokers[1].seen(ApiVersionsRequest)) == 1
        await trio.sleep(5)
        await client.send(-1, ASK)
        assert [type(r) for r in cluster.brokers[1].requests[-2:]] == [ApiVersionsRequest, MetadataRequest]


@simulated
async def test_unused_connections_that_may_have_died_with_another_are_closed() -> None:
    async with client_of(nodes=2) as (_, client):
        await client.refresh_metadata()
        await client.send(1, ASK)
        await client.send(2, ASK)
        await client.send(1, ASK, purpose="coordinator")
        current_simulation().network.half_open("client", "broker")
        await answered_after(client, 1)
        assert await answered_after(client, 2) < 0.5


@simulated
async def test_answers_before_the_silence_do_not_delay_its_end() -> None:
    async with client_of() as (_, client):
        for _ in range(200):
            await client.send(-1, ASK)
            await trio.sleep(0.01)
        current_simulation().network.half_open("client", "broker")
        assert await answered_after(client, -1) < MOST


@simulated
async def test_young_request_on_a_connection_that_died_with_another_fails_in_half_the_limit() -> None:
    async with client_of() as (cluster, client):
        cluster.brokers[1].api_versions[HeartbeatRequest.api_key] = (0, 4)
        await client.refresh_metadata()
        await client.send(1, ASK)
        await client.send(1, ASK, purpose="coordinator")
        current_simulation().network.half_open("client", "broker")
        async with trio.open_nursery() as nursery:

            async def beat() -> None:
                with pytest.raises(KafkaConnectionError, match="has not answered a HeartbeatRequest for 3"):
                    await client.send(1, HeartbeatRequest(), purpose="coordinator")

            nursery.start_soon(beat)
            await trio.sleep(2)
            assert await answered_after(client, 1) < 4.6


@simulated
@pytest.mark.parametrize("one_way", [False, True])
async def test_client_continues_soon_after_a_black_hole_has_healed(one_way: bool) -> None:
    async with client_of() as (_, client):
        await client.send(-1, ASK)
        network = current_simulation().network
        network.black_hole("client", "broker", one_way=one_way)
        async with trio.open_nursery() as nursery:
            took: list[float] = []

            async def ask() -> None:
                took.append(await answered_after(client, -1))

            nursery.start_soon(ask)
            await trio.sleep(20)
            network.heal()
        assert took[0] < 20 + MOST


@simulated
@pytest.mark.parametrize("side", ["client", "broker"])
async def test_dripping_connection_is_abandoned_in_time(side: str) -> None:
    async with client_of() as (_, client):
        await client.send(-1, ASK)
        current_simulation().network.drip(side, "broker" if side == "client" else "client", 1.5, one_way=True)
        assert await answered_after(client, -1) < MOST


@simulated
async def test_broker_that_answers_after_8_seconds_keeps_its_connection() -> None:
    async with client_of() as (cluster, client):
        await client.send(-1, ASK)
        broker = cluster.brokers[1]
        count = broker.connection_count

        async def slowly(request: MetadataRequest) -> Any:
            await trio.sleep(8)
            return broker.metadata(request)

        for _ in range(3):
            broker.script(MetadataRequest, slowly, slowly)
            async with trio.open_nursery() as nursery:  # one request waits behind the other
                nursery.start_soon(client.send, -1, ASK)
                nursery.start_soon(client.send, -1, ASK)
        assert not client.broker_statuses()[0].error
        probes = 6
        assert broker.connection_count <= count + probes


@simulated
async def test_broker_that_responds_after_20_seconds_gets_a_longer_limit() -> None:
    async with client_of() as (cluster, client):
        await client.send(-1, ASK)
        broker = cluster.brokers[1]

        async def slowly(request: MetadataRequest) -> Any:
            await trio.sleep(20)
            return broker.metadata(request)

        broker.script(MetadataRequest, *[slowly] * 10)
        assert await answered_after(client, -1) < 9 + 18 + 20 + 1  # abandoned twice, with a doubled limit each time
        assert await answered_after(client, -1) < 20.1  # the longer limit stays


@simulated
async def test_broker_that_is_suspended_keeps_its_connection() -> None:
    async with client_of() as (_, client):
        await client.send(-1, ASK)
        simulation = current_simulation()
        world = simulation.host("broker").world
        world.pause()

        async def go_on() -> None:
            await trio.sleep(20)
            world.resume()

        simulation.nursery.start_soon(go_on)
        began = trio.current_time()
        await client.send(-1, ASK)
        assert trio.current_time() - began < 21


@simulated
async def test_large_response_that_arrives_slowly_but_steadily_is_awaited() -> None:
    async with client_of(nodes=1) as (cluster, client):
        cluster.topics.update({f"topic-{number}": 1 for number in range(3_000)})
        await client.send(-1, ASK)
        current_simulation().network.drip("broker", "client", 10_000, one_way=True)
        began = trio.current_time()
        await client.send(-1, MetadataRequest(topics=None))
        assert trio.current_time() - began > 15


@simulated
async def test_change_is_not_sent_on_a_dead_connection() -> None:
    """The broker would receive it twice, and the client would report a success as a failure."""
    async with client_of() as (cluster, client):
        broker = cluster.brokers[1]
        broker.api_versions[19] = (2, 7)
        broker.script(CreateTopicsRequest, CreateTopicsResponse(topics=[]))
        await client.send(-1, ASK)
        await trio.sleep(2)
        current_simulation().network.half_open("client", "broker")
        began = trio.current_time()
        await client.send(-1, CreateTopicsRequest(topics=[], timeout_ms=30_000))
        assert trio.current_time() - began < 2.5
        assert len(broker.seen(CreateTopicsRequest)) == 1


@simulated
async def test_without_a_silence_limit_the_request_timeout_applies() -> None:
    async with client_of(connections_max_silence_ms=-1, request_timeout_ms=40_000) as (cluster, client):
        await client.send(-1, ASK)
        cluster.brokers[1].script(MetadataRequest, SILENCE)
        began = trio.current_time()
        with pytest.raises(Exception, match="within 40000 ms"):
            await client.send(-1, ASK)
        assert trio.current_time() - began >= 40


def test_silence_limit_of_a_fetch_includes_its_max_wait() -> None:
    request = FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=[])
    assert allowed_wait(request) == 60


def test_response_on_another_connection_leaves_a_silent_one_some_time() -> None:
    watch = DeadPeerDetector(9)
    assert watch.look(0, 4.5, share=1, patience=1, has_others=False)[0] is Verdict.PROBE
    watch.probed(20, alive=True)
    assert watch.look(0, 20, share=1, patience=1, has_others=False) == (Verdict.WAIT, 20.5)
    assert watch.look(0, 20.5, share=1, patience=1, has_others=False)[0] is Verdict.CLOSE


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system has no TCP_USER_TIMEOUT")
def test_kernel_limits_cover_unacknowledged_bytes_and_idle_peers() -> None:
    options = dict(silence_options(9))
    assert options[socket.TCP_USER_TIMEOUT] == 9000
    idle, interval, count = (options[o] for o in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT))
    assert idle + interval * count <= 9


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="this system has no TCP_USER_TIMEOUT")
async def test_sockets_of_the_client_have_the_kernels_limits() -> None:
    world = RealWorld()
    listener = await world.listen("127.0.0.1", 0)
    config = NetworkConfig(bootstrap_servers=[listener.address])
    stream: Any = await open_stream(world, config, *listener.address, server_name="")
    try:
        assert stream._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 9000
        assert stream._sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert stream.bytes_drained() == 0
    finally:
        stream.close()
        listener.close()
