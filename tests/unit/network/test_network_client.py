"""The network client against scripted brokers: connecting, choosing a broker, timeouts and reconnecting."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from tests.support.scripted_broker import CLOSE, SILENCE, ScriptedBroker, ScriptedCluster
from tests.support.simulated import current_simulation, simulated
from triokafka.errors import (
    ClosedError,
    ConfigurationError,
    CoordinatorNotAvailableError,
    KafkaConnectionError,
    KafkaTimeoutError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from triokafka.network.config import NetworkConfig
from triokafka.network.network_client import NetworkClient
from triokafka.protocol.api.api_versions import ApiVersionsRequest
from triokafka.protocol.api.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from triokafka.protocol.api.heartbeat import HeartbeatRequest
from triokafka.protocol.api.metadata import MetadataRequest, MetadataResponse
from triokafka.world import World
from triokafka.world.system import RealWorld


def addresses(cluster: ScriptedCluster) -> list[tuple[str, int]]:
    return [(host, int(port)) for host, _, port in (b.address.partition(":") for b in cluster.brokers.values())]


@asynccontextmanager
async def client_of(
    *, nodes: int = 1, bootstrap: list[tuple[str, int]] | None = None, world: World | None = None, **options: Any
) -> AsyncIterator[tuple[ScriptedCluster, NetworkClient]]:
    simulation = current_simulation()
    cluster = ScriptedCluster(orders=3)
    await cluster.start(simulation.nursery, simulation.host("broker").world, nodes=nodes)
    config = NetworkConfig(bootstrap_servers=bootstrap or addresses(cluster)[:1], **options)
    async with NetworkClient(config, world=world or simulation.host("client").world) as client:
        yield cluster, client


ASK = MetadataRequest(topics=[])


@simulated
async def test_entering_connects_nothing_and_the_first_request_does() -> None:
    async with client_of() as (cluster, client):
        await trio.sleep(1000)
        assert cluster.brokers[1].connection_count == 0
        assert isinstance(await client.send_to_least_loaded(ASK), MetadataResponse)
        assert client.node_ids() == [-1]
        await client.refresh_metadata()
        assert client.node_ids() == [1]


@simulated
async def test_unreachable_brokers_are_named_with_address_and_reason() -> None:
    unreachable = [("127.0.0.1", 1), ("127.0.0.1", 2)]
    async with client_of(bootstrap=unreachable) as (_, client):
        with pytest.raises(KafkaConnectionError, match=r"127\.0\.0\.1:1: .*refused.*127\.0\.0\.1:2: .*refused"):
            await client.send_to_least_loaded(ASK, timeout_ms=3000)
        with pytest.raises(KafkaConnectionError, match=r"bootstrap server 127\.0\.0\.1:1"):
            await client.send(-1, ASK, timeout_ms=3000)
        with pytest.raises(KafkaTimeoutError, match="refused"):
            await client.refresh_metadata(timeout_ms=3000)


@simulated
async def test_connect_tries_every_broker_once_and_learns_the_cluster() -> None:
    unreachable = [("127.0.0.1", 1), ("127.0.0.1", 2)]
    async with client_of(bootstrap=unreachable) as (cluster, client):
        begun = trio.current_time()
        with pytest.raises(KafkaConnectionError, match=r"127\.0\.0\.1:[12]: .*refused.*127\.0\.0\.1:[12]: .*refused"):
            await client.connect()
        assert trio.current_time() - begun < 1
        reachable = [*unreachable, *addresses(cluster)]
    async with client_of(bootstrap=reachable) as (cluster, client):
        await client.connect()
        assert client.node_ids() == [1]


@simulated
async def test_connect_gives_up_at_a_broker_that_sends_no_metadata() -> None:
    async with client_of() as (cluster, client):
        cluster.brokers[1].script(MetadataRequest, SILENCE)
        with pytest.raises(KafkaTimeoutError, match="no metadata within"):
            await client.connect(timeout_ms=3_000)


@simulated
async def test_broker_that_hangs_is_not_waited_for_while_another_can_be_asked() -> None:
    """A process that is stopped accepts connections, and answers nothing."""
    async with client_of(nodes=3) as (cluster, _):
        world = current_simulation().host("client").world
        for broker in (cluster.brokers[1], cluster.brokers[2]):
            broker.script(ApiVersionsRequest, *[SILENCE] * 20)
        for _ in range(10):
            config = NetworkConfig(bootstrap_servers=addresses(cluster))
            async with NetworkClient(config, world=world) as client:
                began = trio.current_time()
                assert isinstance(await client.send_to_least_loaded(ASK), MetadataResponse)
                assert trio.current_time() - began < 2.5


class _ManyAddresses(RealWorld):
    """A world with a host name of three addresses, of which only the last accepts connections."""

    def __init__(self, world: World, good: tuple[str, int]) -> None:
        self._world = world
        self.random = world.random
        self.good = good
        self.tried: list[str] = []

    def now(self) -> float:
        return self._world.now()

    def deadline(self, at: float) -> float:
        return self._world.deadline(at)

    async def resolve(self, host: str, port: int) -> list[tuple[str, int]]:
        await trio.lowlevel.checkpoint()
        return [("10.0.0.1", port), ("10.0.0.2", port), self.good] if host == "kafka" else [(host, port)]

    async def connect(self, host: str, port: int, **options: Any) -> Any:
        self.tried.append(host)
        if host == "10.0.0.1":
            raise ConnectionRefusedError(111, "Connection refused")
        if host == "10.0.0.2":
            await trio.sleep_forever()
        return await self._world.connect(host, port)


@simulated
async def test_every_address_of_a_name_is_tried() -> None:
    """KIP-302, KIP-601, KIP-602."""
    simulation = current_simulation()
    cluster = ScriptedCluster(orders=1)
    await cluster.start(simulation.nursery, simulation.host("broker").world)
    world = _ManyAddresses(simulation.host("client").world, addresses(cluster)[0])
    config = NetworkConfig(bootstrap_servers=[("kafka", 9092)], socket_connection_setup_timeout_ms=2000)
    async with NetworkClient(config, world=world) as client:
        started = trio.current_time()
        assert isinstance(await client.send_to_least_loaded(ASK), MetadataResponse)
        assert world.tried == ["10.0.0.1", "10.0.0.2", "127.0.0.1"]
        assert 1.5 < trio.current_time() - started < 3
    world.good = ("10.0.0.1", 1)
    async with NetworkClient(config, world=world) as client:
        with pytest.raises(KafkaConnectionError, match=r"10.0.0.1:9092: Connection refused; 10.0.0.2:9092: no answer"):
            await client.send(-1, ASK)


@simulated
async def test_reconnecting_backs_off_more_and_more() -> None:
    async with client_of(reconnect_backoff_ms=100, reconnect_backoff_max_ms=1600) as (cluster, client):
        await client.send(-1, ASK)
        cluster.brokers[1].stop()
        await trio.sleep(0.01)
        times = []
        for _ in range(6):
            with pytest.raises(KafkaConnectionError):
                await client.send(-1, ASK)
            times.append(trio.current_time())
        waits = [after - before for before, after in itertools.pairwise(times)]
        for wait, expected in zip(waits, (0.2, 0.4, 0.8, 1.6, 1.6), strict=True):
            assert expected * 0.7 < wait < expected * 1.3


@simulated
async def test_broker_that_returns_is_used_again() -> None:
    async with client_of() as (cluster, client):
        await client.refresh_metadata()
        port = cluster.brokers[1].stop()
        with pytest.raises(KafkaConnectionError):
            await client.send(1, ASK)
        await cluster.brokers[1].start(current_simulation().nursery, port)
        assert isinstance(await client.send(1, ASK), MetadataResponse)


@simulated
async def test_client_rebootstraps_when_every_known_broker_is_gone() -> None:
    """KIP-899."""
    simulation = current_simulation()
    spare_port = 45_000
    async with client_of(nodes=2, bootstrap=[("127.0.0.1", 40_000), ("127.0.0.1", spare_port)]) as (cluster, client):
        assert sorted((await client.refresh_metadata()).nodes) == [1, 2]
        for broker in cluster.brokers.values():
            broker.stop()
        moved = ScriptedCluster(orders=1)
        await trio.sleep(30)
        for node_id, port in ((7, spare_port), (8, 0)):
            await ScriptedBroker(moved, node_id, simulation.host("broker").world).start(simulation.nursery, port)
        cluster_now = await client.refresh_metadata()
        assert sorted(cluster_now.nodes) == [7, 8]


@simulated
async def test_idle_connected_broker_is_preferred() -> None:
    async with client_of(nodes=3) as (cluster, client):
        await client.refresh_metadata()
        await client.send(2, ASK)
        assert {client.least_loaded() for _ in range(20)} == {2}
        cluster.brokers[2].script(MetadataRequest, SILENCE)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, 2, ASK)
            await cluster.brokers[2].wait_for(MetadataRequest, 2)
            await client.send(3, ASK)
            assert {client.least_loaded() for _ in range(20)} == {3}
            nursery.cancel_scope.cancel()


@simulated
async def test_version_is_the_highest_common_one() -> None:
    """KIP-35."""
    async with client_of() as (cluster, client):
        cluster.brokers[1].api_versions[3] = (4, 8)
        asked: list[int] = []

        def build(version: int) -> MetadataRequest:
            asked.append(version)
            return ASK

        await client.send(-1, build, api=MetadataRequest)
        await client.send(-1, build, api=MetadataRequest, max_version=6)
        assert asked == [8, 6]
        assert client.version_for(-1, MetadataRequest) == 8
        with pytest.raises(UnsupportedVersionError, match="Metadata in versions 4 to 8, this call needs 9 to 13"):
            await client.send(-1, ASK, min_version=9)
        with pytest.raises(UnsupportedVersionError, match="does not support the API Heartbeat"):
            await client.send(-1, HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))
        with pytest.raises(TypeError, match="api="):
            await client.send(-1, build)


@simulated
async def test_client_falls_back_to_an_old_version_of_api_versions() -> None:
    """The client falls back to version 0 on error 35 (KIP-511)."""
    async with client_of() as (cluster, client):
        cluster.brokers[1].api_versions[18] = (0, 0)
        assert isinstance(await client.send(-1, ASK), MetadataResponse)
        assert [header.api_version for header in cluster.brokers[1].headers][:2] == [4, 0]


@simulated
async def test_client_retries_api_versions_with_version_0_when_the_broker_disconnects() -> None:
    async with client_of() as (cluster, client):
        cluster.brokers[1].script(ApiVersionsRequest, CLOSE)
        assert isinstance(await client.send_to_least_loaded(ASK), MetadataResponse)
        assert [header.api_version for header in cluster.brokers[1].headers][:2] == [4, 0]


@simulated
async def test_versions_are_negotiated_again_with_an_upgraded_broker() -> None:
    async with client_of() as (cluster, client):
        cluster.brokers[1].api_versions[3] = (0, 5)
        await client.send(-1, ASK)
        assert client.version_for(-1, MetadataRequest) == 5
        cluster.brokers[1].api_versions[3] = (0, 9)
        cluster.brokers[1].cut()
        await trio.sleep(1)
        await client.send(-1, ASK)
        assert client.version_for(-1, MetadataRequest) == 9


@simulated
async def test_silent_broker_costs_one_request_timeout_and_then_a_new_connection() -> None:
    async with client_of(request_timeout_ms=2000) as (cluster, client):
        await client.send(-1, ASK)
        cluster.brokers[1].script(MetadataRequest, SILENCE)
        with pytest.raises(RequestTimedOutError):
            await client.send(-1, ASK)
        assert isinstance(await client.send(-1, ASK), MetadataResponse)


@simulated
async def test_lost_connection_triggers_a_metadata_refresh() -> None:
    async with client_of() as (cluster, client):
        await client.refresh_metadata()
        await client.send(1, ASK)
        version = client.metadata.version
        cluster.brokers[1].cut()
        await trio.sleep(2)
        assert client.metadata.version > version


@simulated
async def test_metadata_is_refreshed_periodically() -> None:
    async with client_of(metadata_max_age_ms=10_000) as (_, client):
        await client.refresh_metadata()
        version = client.metadata.version
        await trio.sleep(101)
        assert client.metadata.version - version == 10


@simulated
async def test_only_one_metadata_request_is_in_flight() -> None:
    async with client_of(request_timeout_ms=60_000, connections_max_silence_ms=-1) as (cluster, client):
        await client.refresh_metadata()
        cluster.brokers[1].script(MetadataRequest, SILENCE)
        for _ in range(20):
            client.request_metadata_update()
            await trio.sleep(1)
        assert len(cluster.brokers[1].seen(MetadataRequest)) == 2


@simulated
async def test_coordinator_is_cached_until_it_is_forgotten() -> None:
    async with client_of() as (cluster, client):
        broker = cluster.brokers[1]
        refusal = FindCoordinatorResponse(coordinators=[Coordinator(key="g", error_code=15)])
        broker.script(FindCoordinatorRequest, refusal)
        with pytest.raises(CoordinatorNotAvailableError):
            await client.find_coordinator("g")
        assert (await client.find_coordinator("g")).node_id == 1
        await client.find_coordinator("g")
        assert len(broker.seen(FindCoordinatorRequest)) == 2
        client.forget_coordinator("g")
        await client.find_coordinator("g")
        assert len(broker.seen(FindCoordinatorRequest)) == 3


@simulated
async def test_coordinator_has_a_connection_of_its_own() -> None:
    async with client_of() as (cluster, client):
        await client.refresh_metadata()
        await client.send(1, ASK)
        before = cluster.brokers[1].connection_count
        await client.send(1, ASK, purpose="coordinator")
        assert cluster.brokers[1].connection_count == before + 1


@simulated
async def test_waiting_callers_wake_when_the_client_is_closed() -> None:
    async with trio.open_nursery() as nursery:
        async with client_of() as (cluster, client):
            await client.send(-1, ASK)
            cluster.brokers[1].script(MetadataRequest, SILENCE)

            async def ask() -> None:
                with pytest.raises(ClosedError):
                    await client.send(-1, ASK)

            nursery.start_soon(ask)
            await cluster.brokers[1].wait_for(MetadataRequest, 2)
        with pytest.raises(ClosedError):
            await client.send(-1, ASK)


@simulated
async def test_cancelled_connect_leaves_the_connection_to_others() -> None:
    async with client_of() as (_, client):
        with trio.move_on_after(0.0001):
            await client.send(-1, ASK)
        assert isinstance(await client.send(-1, ASK), MetadataResponse)


def test_unknown_security_protocol_is_refused_with_a_clear_message() -> None:
    config = NetworkConfig(bootstrap_servers=[("h", 1)], security_protocol="SASL_SSL")
    with pytest.raises(ConfigurationError, match="needs the settings of TLS or SASL"):
        NetworkClient(config, world=RealWorld())


@simulated
async def test_request_made_while_the_connection_is_ending_waits_for_the_next_one() -> None:
    """Between the end of a connection and the end of its task the channel is neither ready nor disconnected."""
    async with client_of() as (cluster, client):
        await client.send(-1, ASK)
        channel = client._brokers.channel(-1)
        assert channel.connection is not None
        channel.connection.close(KafkaConnectionError("gone"))
        with trio.fail_after(5):
            assert isinstance(await client.send(-1, ASK), MetadataResponse)
        assert cluster.brokers[1].connection_count == 2


@simulated
async def test_callers_take_turns_when_too_many_requests_are_in_flight() -> None:
    async with client_of(max_in_flight_requests_per_connection=2) as (cluster, client):
        await client.send(-1, ASK)
        most = 0

        async def ask() -> None:
            nonlocal most
            await client.send(-1, ASK)
            connection = client._brokers.channel(-1).connection
            most = max(most, connection.in_flight if connection is not None else 0)

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(ask)
        assert len(cluster.brokers[1].seen(MetadataRequest)) == 21
        assert most <= 2


@pytest.mark.timeout(30)  # without its checkpoint the wait would never yield to the event loop
@simulated
async def test_a_request_right_after_the_connection_ended_lets_the_others_run() -> None:
    """The connection has ended, and its channel has not run since: the caller must not wait for that in a busy loop."""
    async with client_of() as (_cluster, client):
        await client.send_to_least_loaded(ASK)
        connection = client._brokers.channel(-1, "").connection
        assert connection is not None
        connection.close(KafkaConnectionError("cut"))
        assert isinstance(await client.send(-1, ASK), MetadataResponse)


@simulated
async def test_request_to_any_broker_waits_for_the_only_one_while_it_is_busy() -> None:
    """The request waits only until the broker has a free slot."""
    async with client_of(max_in_flight_requests_per_connection=1) as (cluster, client):
        broker = cluster.brokers[1]
        await client.send(-1, ASK)

        async def slow(request: MetadataRequest) -> MetadataResponse:
            await trio.sleep(1)
            return broker.metadata(request)

        broker.script(MetadataRequest, slow)
        started = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(client.send_to_least_loaded, ASK)
        assert trio.current_time() - started == pytest.approx(1, abs=0.1)
        assert cluster.brokers[1].connection_count == 1


@simulated
async def test_listener_is_notified_when_the_queue_of_waiters_is_empty() -> None:
    """A throttled connection has waiters, and its owner must be notified when none is left."""
    async with client_of() as (_, client):
        await client.send(-1, ASK)
        connection = client._brokers.channel(-1).connection
        assert connection is not None
        connection.throttled_until = client.world.now() + 2
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, -1, ASK)
            await trio.testing.wait_all_tasks_blocked()
            assert not client.ready(-1)
            assert client.ready_delay(-1) == pytest.approx(2)
            notified: list[bool] = []
            client.add_listener(lambda: notified.append(True))
        assert notified
        assert client.ready(-1)
