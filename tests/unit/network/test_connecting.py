"""Connecting to brokers: names and addresses, back-off, rebootstrapping when all brokers have moved, and the hooks."""

from __future__ import annotations

import itertools
import ssl
from typing import Any
from unittest.mock import patch

import pytest
import trio
import trio.testing

from tests.support.scripted_broker import CLOSE, SILENCE, ScriptedBroker, ScriptedCluster
from tests.support.simulated import current_simulation, simulated
from tests.unit.network.test_network_client import ASK, addresses, client_of
from triokafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError
from triokafka.hooks import HookChain, Hooks, MetadataSummary
from triokafka.network import broker_channel, transport
from triokafka.network.config import NetworkConfig
from triokafka.network.connection import Connection
from triokafka.network.network_client import NetworkClient
from triokafka.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from triokafka.protocol.api.metadata import MetadataRequest, MetadataResponse
from triokafka.security.client_security import ClientSecurity
from triokafka.security.tls import TlsContexts
from triokafka.structs import Buffer, Node
from triokafka.world import Stream, World
from triokafka.world.system import RealWorld


class NamedWorld(RealWorld):
    """A simulated world with a resolver: ``names`` maps a host to its addresses."""

    def __init__(self, world: World, **names: list[str]) -> None:
        self._world = world
        self.random = world.random
        self.names = names
        self.resolved: list[str] = []
        self.tried: list[tuple[str, float]] = []

    def now(self) -> float:
        return self._world.now()

    def deadline(self, at: float) -> float:
        return self._world.deadline(at)

    async def resolve(self, host: str, port: int) -> list[tuple[str, int]]:
        await trio.lowlevel.checkpoint()
        self.resolved.append(host)
        if host in self.names:
            return [(address, port) for address in self.names[host]]
        if host[0].isdigit():
            return [(host, port)]
        raise OSError(-2, "Name or service not known")

    async def canonical_name(self, address: str) -> str:
        await trio.lowlevel.checkpoint()
        return f"{address}.canonical"

    async def connect(self, host: str, port: int, **options: Any) -> Stream:
        self.tried.append((host, trio.current_time()))
        if host.startswith("10."):
            await trio.sleep_forever()  # the packets vanish: no connection, and no error
        return await self._world.connect(host, port, **options)


class Watcher(Hooks):
    """Records its calls."""

    def __init__(self) -> None:
        self.events_seen: list[tuple[Any, ...]] = []

    def on_connect(self, node: Node, address: str, seconds: float, error: Exception | None) -> None:
        self.events_seen.append(("connect", node.node_id, address, type(error).__name__ if error else None))

    def on_disconnect(self, node: Node, error: Exception) -> None:
        self.events_seen.append(("disconnect", node.node_id, str(error)))

    def on_request(self, node: Node, api: str, version: int, size: int) -> None:
        self.events_seen.append(("request", node.node_id, api, version, size))

    def on_response(self, node: Node, api: str, size: int, seconds: float, error: Exception | None) -> None:
        self.events_seen.append(("response", node.node_id, api, size, seconds, type(error).__name__ if error else None))

    def on_throttle(self, node: Node, seconds: float) -> None:
        self.events_seen.append(("throttle", node.node_id, seconds))

    def on_metadata(self, summary: MetadataSummary) -> None:
        self.events_seen.append(("metadata", summary))

    def on_client_failed(self, error: Exception) -> None:
        self.events_seen.append(("failed", str(error)))

    def events(self, *kinds: str) -> list[tuple[Any, ...]]:
        return [event for event in self.events_seen if event[0] in kinds]


@simulated
async def test_name_that_does_not_resolve_is_named() -> None:
    world = NamedWorld(current_simulation().host("client").world)
    config = NetworkConfig(bootstrap_servers=[("kafka.nowhere", 9092)])
    async with NetworkClient(config, world=world) as client:
        with pytest.raises(
            KafkaConnectionError, match=r"'kafka\.nowhere' cannot be resolved: Name or service not known"
        ):
            await client.send(-1, ASK)
        with pytest.raises(KafkaTimeoutError, match=r"'kafka\.nowhere' cannot be resolved"):
            await client.metadata_for(["orders"], timeout_ms=500)


@simulated
async def test_time_for_connecting_grows_with_failures_only() -> None:
    """KIP-601."""
    simulation = current_simulation()
    world = NamedWorld(simulation.host("client").world, kafka=["10.0.0.1"])
    config = NetworkConfig(
        bootstrap_servers=[("kafka", 9092)],
        socket_connection_setup_timeout_ms=1000,
        socket_connection_setup_timeout_max_ms=3000,
        reconnect_backoff_ms=0,
        reconnect_backoff_max_ms=0,
    )
    async with NetworkClient(config, world=world) as client:
        for _ in range(5):
            with pytest.raises(KafkaConnectionError):
                await client.send(-1, ASK)
    times = [at for _, at in world.tried]
    waits = [after - before for before, after in itertools.pairwise(times)]
    for wait, expected in zip(waits, (1, 2, 3, 3), strict=True):
        assert expected * 0.79 < wait < expected * 1.21


@simulated
async def test_silent_tls_handshake_ends_as_soon_as_a_silent_first_answer() -> None:
    """A connection that began while the network was down does not hold up the client for long afterwards."""
    simulation = current_simulation()
    listener = await simulation.host("broker").world.listen("127.0.0.1", 0)
    accepted: list[float] = []

    async def accept() -> None:
        while True:
            await listener.accept()
            accepted.append(trio.current_time())

    config = NetworkConfig(
        bootstrap_servers=[listener.address],
        security_protocol="SSL",
        security=ClientSecurity("SSL", TlsContexts(ssl.create_default_context())),
        connections_max_silence_ms=2000,
        request_timeout_ms=10_000,
        reconnect_backoff_ms=0,
        reconnect_backoff_max_ms=0,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(accept)
        async with NetworkClient(config, world=simulation.host("client").world) as client:
            for limit in (1000, 2000, 4000):
                with pytest.raises(KafkaConnectionError, match=f"TLS handshake was not finished within {limit} ms"):
                    await client.send(-1, ASK)
        nursery.cancel_scope.cancel()
    listener.close()
    waits = [after - before for before, after in itertools.pairwise(accepted)]
    assert waits == [pytest.approx(seconds, abs=0.1) for seconds in (1, 2)]


@simulated
async def test_failed_handshake_with_one_address_does_not_start_a_protocol_probe_of_another() -> None:
    """When the connection to the other address ends later, no new connection is opened to find out its protocol."""
    simulation = current_simulation()
    cluster = ScriptedCluster(orders=1)
    await cluster.start(simulation.nursery, simulation.host("broker").world)
    broker = cluster.brokers[1]
    world = NamedWorld(simulation.host("client").world, kafka=["127.0.0.2", "127.0.0.1"])
    config = NetworkConfig(bootstrap_servers=[("kafka", addresses(cluster)[0][1])])
    opened: list[str] = []

    async def open_stream(world: World, config: NetworkConfig, host: str, port: int, **options: Any) -> Stream:
        opened.append(host)
        if host == "127.0.0.2":
            raise ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "the peer closed the connection during the TLS handshake")
        return await transport.open_stream(world, config, host, port, **options)

    with patch.object(broker_channel, "open_stream", open_stream):
        async with NetworkClient(config, world=world) as client:
            await client.send(-1, ASK)
            assert opened == ["127.0.0.2", "127.0.0.1"]
            broker.script(MetadataRequest, CLOSE)
            with pytest.raises(KafkaConnectionError):
                await client.send(-1, ASK)
            await trio.sleep(10)
            assert broker.connection_count == 1


@simulated
async def test_brokers_that_moved_are_found_by_resolving_their_names_again() -> None:
    """This happens when all pods restart in Kubernetes: every address changes behind the same names."""
    simulation = current_simulation()
    cluster = ScriptedCluster(orders=1)
    await cluster.start(simulation.nursery, simulation.host("broker").world)
    port = addresses(cluster)[0][1]
    world = NamedWorld(simulation.host("client").world, kafka=["10.0.0.1"])
    config = NetworkConfig(bootstrap_servers=[("kafka", port)], socket_connection_setup_timeout_ms=1000)
    async with NetworkClient(config, world=world) as client:
        with pytest.raises(KafkaTimeoutError, match=r"kafka:\d+: 10\.0\.0\.1:\d+: no answer within"):
            await client.refresh_metadata(timeout_ms=3000)
        world.names["kafka"] = ["127.0.0.1"]
        assert sorted((await client.refresh_metadata()).nodes) == [1]


@simulated
async def test_stale_addresses_of_all_brokers_lead_back_to_the_bootstrap_names() -> None:
    """KIP-899. The metadata named brokers by addresses that no longer exist."""
    simulation = current_simulation()
    cluster = ScriptedCluster(orders=1)
    await cluster.start(simulation.nursery, simulation.host("broker").world, nodes=2)
    broker = cluster.brokers[1]
    port = addresses(cluster)[0][1]
    world = NamedWorld(simulation.host("client").world, kafka=["127.0.0.1"])
    config = NetworkConfig(
        bootstrap_servers=[("kafka", port)], socket_connection_setup_timeout_ms=1000, request_timeout_ms=5000
    )

    def stale(request: MetadataRequest) -> MetadataResponse:
        response = broker.metadata(request)
        for described in response.brokers:
            described.host = f"10.0.0.{described.node_id}"
        return response

    async with NetworkClient(config, world=world) as client:
        broker.script(MetadataRequest, stale)
        await client.refresh_metadata()
        assert {node.host for node in client.cluster.nodes.values()} == {"10.0.0.1", "10.0.0.2"}
        broker.cut()
        await client.refresh_metadata(timeout_ms=60_000)
        assert {node.host for node in client.cluster.nodes.values()} == {"127.0.0.1"}
        assert world.resolved.count("kafka") >= 2


@simulated
async def test_without_recovery_the_bootstrap_servers_are_not_asked_again() -> None:
    async with client_of(metadata_recovery_strategy="none", request_timeout_ms=5000) as (cluster, client):
        await client.refresh_metadata()
        cluster.brokers[1].stop()
        with pytest.raises(KafkaTimeoutError, match="broker 1 at"):
            await client.refresh_metadata(timeout_ms=60_000)
        assert client.node_ids() == [1]


@simulated
async def test_client_rebootstraps_when_brokers_return_no_metadata_for_long() -> None:
    """KIP-1102. The brokers accept connections, but do not respond."""
    async with client_of(metadata_recovery_rebootstrap_trigger_ms=20_000, request_timeout_ms=5000) as (cluster, client):
        await client.refresh_metadata()
        broker = cluster.brokers[1]
        broker.script(MetadataRequest, *[SILENCE] * 6)
        with trio.fail_after(60):
            client.request_metadata_update()
            while client.node_ids() == [1]:
                await trio.sleep(0.5)
            assert client.node_ids() == [-1]
            await client.refresh_metadata(timeout_ms=60_000)
            assert client.node_ids() == [1]


@simulated
async def test_client_rebootstraps_when_the_broker_requires_it() -> None:
    """KIP-1102: the error REBOOTSTRAP_REQUIRED."""
    async with client_of() as (cluster, client):
        await client.refresh_metadata()
        cluster.brokers[1].script(MetadataRequest, MetadataResponse(error_code=129))
        await client.refresh_metadata()
        # To the bootstrap server, to the broker that metadata named, and to the bootstrap server again.
        assert cluster.brokers[1].connection_count == 3
        assert client.node_ids() == [1]


@simulated
async def test_certificates_of_bootstrap_servers_must_match_their_canonical_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """KIP-235. Certificates of other brokers must match the host names in the metadata."""
    proved: list[str] = []

    async def secure(stream: Stream, world: World, config: NetworkConfig, server_name: str) -> Stream:
        await trio.lowlevel.checkpoint()
        proved.append(server_name)
        return stream

    monkeypatch.setattr(transport, "secure", secure)
    simulation = current_simulation()
    cluster = ScriptedCluster(orders=1)
    await cluster.start(simulation.nursery, simulation.host("broker").world)
    world = NamedWorld(simulation.host("client").world, kafka=["127.0.0.1"])
    port = addresses(cluster)[0][1]
    for lookup in ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"):
        config = NetworkConfig(bootstrap_servers=[("kafka", port)], client_dns_lookup=lookup)
        async with NetworkClient(config, world=world) as client:
            await client.refresh_metadata()
            await client.send(1, ASK)
    assert proved == ["kafka", "127.0.0.1", "127.0.0.1.canonical", "127.0.0.1"]


@simulated
async def test_failed_connection_triggers_a_metadata_refresh() -> None:
    async with client_of(nodes=2) as (cluster, client):
        await client.refresh_metadata()
        version = client.metadata.version
        cluster.brokers[2].stop()
        with pytest.raises(KafkaConnectionError, match=r"broker 2 at .*refused"):
            await client.send(2, ASK)
        await trio.sleep(1)
        assert client.metadata.version > version


@simulated
async def test_connection_that_ends_again_and_again_does_not_count_as_a_failed_attempt() -> None:
    """The back-off starts over after each connection that was ready."""
    async with client_of(reconnect_backoff_ms=100, reconnect_backoff_max_ms=10_000) as (cluster, client):
        for _ in range(10):
            await client.send(-1, ASK)
            cluster.brokers[1].cut()
            await trio.sleep(0.01)
        started = trio.current_time()
        await client.send(-1, ASK)
        assert trio.current_time() - started < 0.2


@simulated
async def test_versions_are_negotiated_again_after_an_unsupported_version() -> None:
    """The broker was downgraded behind an address that did not close the connection."""
    async with client_of() as (cluster, client):
        broker = cluster.brokers[1]
        await client.send(-1, ASK)
        assert client.version_for(-1, MetadataRequest) == 13
        broker.api_versions[3] = (0, 8)
        broker.script(MetadataRequest, MetadataResponse(error_code=35))
        assert (await client.send(-1, ASK)).error_code == 35
        await broker.wait_for(ApiVersionsRequest, 2)
        await trio.sleep(0.1)
        assert client.version_for(-1, MetadataRequest) == 8
        await client.send(-1, ASK)
        assert broker.headers[-1].api_version == 8
        assert broker.connection_count == 1


@simulated
async def test_versions_are_negotiated_again_with_an_older_replacement_broker() -> None:
    """Another broker took over the address, and closes the connection on an unknown version."""
    async with client_of() as (cluster, client):
        broker = cluster.brokers[1]
        await client.send(-1, ASK)
        broker.api_versions.update({3: (0, 4), 18: (0, 0)})
        broker.script(ApiVersionsRequest, CLOSE)
        broker.cut()
        await trio.sleep(0.01)
        with pytest.raises(KafkaConnectionError, match="before it sent its API versions"):
            await client.send(-1, ASK)
        await client.send(-1, ASK)
        assert client.version_for(-1, MetadataRequest) == 4


@simulated
async def test_broker_without_a_common_version_is_refused() -> None:
    async with client_of() as (cluster, client):
        cluster.brokers[1].script(
            ApiVersionsRequest, ApiVersionsResponse(api_keys=[]), ApiVersionsResponse(error_code=1)
        )
        with pytest.raises(KafkaConnectionError, match="supports no API"):
            await client.send(-1, ASK)
        with pytest.raises(KafkaConnectionError, match="answers ApiVersions with error 1"):
            await client.send(-1, ASK)
        assert isinstance(await client.send(-1, ASK), MetadataResponse)


@simulated
async def test_hooks_receive_connections_requests_and_metadata() -> None:
    watcher = Watcher()
    async with client_of(hooks=HookChain([watcher])) as (cluster, client):
        broker = cluster.brokers[1]
        await client.refresh_metadata()
        assert watcher.events("connect") == [("connect", -1, broker.address, None)]
        requests = watcher.events("request")
        assert [event[1:4] for event in requests] == [(-1, "ApiVersions", 4), (-1, "Metadata", 13)]
        assert all(event[4] > 10 for event in requests)
        responses = watcher.events("response")
        assert [event[2] for event in responses] == ["ApiVersions", "Metadata"]
        assert all(event[3] > 10 and 0 < event[4] < 1 and event[5] is None for event in responses)
        summary = watcher.events("metadata")[0][1]
        assert summary == MetadataSummary(1, 1, 0, 0, 0, 1, "scripted")
        await client.metadata_for(["orders"])
        assert watcher.events("metadata")[-1][1] == MetadataSummary(2, 1, 1, 3, 0, 1, "scripted")
        watcher.events_seen.clear()

        broker.throttle_time_ms = 250
        broker.script(MetadataRequest, lambda request: MetadataResponse(throttle_time_ms=250))
        await client.send(1, ASK)
        assert watcher.events("throttle") == [("throttle", 1, 0.25)]

        broker.script(MetadataRequest, CLOSE)
        with pytest.raises(KafkaConnectionError):
            await client.send(1, ASK)
        await trio.sleep(0.001)
        assert "closed the connection" in watcher.events("disconnect")[0][2]
        assert watcher.events("response")[-1][3:] == (0, pytest.approx(0.001, abs=0.01), "KafkaConnectionError")
        broker.stop()
        await trio.sleep(0.5)
        assert ("connect", 1, broker.address, "KafkaConnectionError") in watcher.events("connect")


@simulated
async def test_hooks_receive_connections_that_the_client_closes() -> None:
    watcher = Watcher()
    async with client_of(hooks=HookChain([watcher])) as (_, client):
        await client.send(-1, ASK)
    assert [event[2] for event in watcher.events("disconnect")] == ["the client was closed"]


@simulated
async def test_failure_of_a_background_task_is_raised_by_the_next_call_and_logged_once() -> None:
    """The failure of any background task counts: no call may wait for a response that cannot arrive."""
    watcher = Watcher()
    handle = Connection._handle
    broken = False

    def handle_or_break(connection: Connection, frame: Buffer) -> bool:
        if broken:
            raise RuntimeError("a bug in reading")
        return handle(connection, frame)

    with patch.object(Connection, "_handle", handle_or_break):
        async with client_of(hooks=HookChain([watcher])) as (cluster, client):
            await client.send(-1, ASK)
            broken = True
            with pytest.raises(KafkaConnectionError):
                await client.send(-1, ASK)
            await trio.testing.wait_all_tasks_blocked()
            for call in (client.send(-1, ASK), client.refresh_metadata(), client.send_to_least_loaded(ASK)):
                with pytest.raises(Exception, match="a bug in reading"):
                    await call
            with pytest.raises(Exception, match="a bug in reading"):
                client.ready(-1)
            assert len(watcher.events("failed")) == 1
            assert cluster.brokers[1].connection_count == 1


@simulated
async def test_new_broker_of_a_known_id_is_connected_to_at_its_new_address() -> None:
    simulation = current_simulation()
    async with client_of() as (cluster, client):
        await client.refresh_metadata()
        await client.send(1, ASK)
        old = cluster.brokers[1]
        await ScriptedBroker(cluster, 1, simulation.host("other").world).start(simulation.nursery)
        await client.refresh_metadata()
        await trio.sleep(0.001)
        assert isinstance(await client.send(1, ASK), MetadataResponse)
        assert cluster.brokers[1].connection_count == 1
        assert old is not cluster.brokers[1]


@simulated
async def test_each_attempt_starts_one_address_further() -> None:
    """KIP-602: a dead first address costs its timeout only once."""
    simulation = current_simulation()
    cluster = ScriptedCluster(orders=1)
    await cluster.start(simulation.nursery, simulation.host("broker").world)
    world = NamedWorld(simulation.host("client").world, kafka=["10.0.0.1", "127.0.0.1"])
    config = NetworkConfig(bootstrap_servers=[("kafka", addresses(cluster)[0][1])])
    async with NetworkClient(config, world=world) as client:
        for _ in range(3):
            await client.send(-1, ASK)
            cluster.brokers[1].cut()
            await trio.sleep(0.01)
    assert [host for host, _ in world.tried] == ["10.0.0.1", "127.0.0.1", "127.0.0.1", "127.0.0.1"]


@simulated
async def test_new_connection_does_not_shorten_the_throttling() -> None:
    """KIP-219."""
    async with client_of() as (cluster, client):
        cluster.brokers[1].script(MetadataRequest, MetadataResponse(throttle_time_ms=5000))
        await client.send(-1, ASK)
        started = trio.current_time()
        cluster.brokers[1].cut()
        await trio.sleep(0.01)
        await client.send(-1, ASK)
        assert trio.current_time() - started == pytest.approx(5, abs=0.1)


@simulated
async def test_clients_choose_different_first_servers() -> None:
    unreachable = [("127.0.0.1", port) for port in (1, 2, 3)]
    async with client_of(bootstrap=unreachable) as (_, client):
        assert {client.least_loaded() for _ in range(50)} == {-1, -2, -3}


@simulated
async def test_servers_that_could_not_be_reached_are_tried_last() -> None:
    async with client_of() as (cluster, _):
        servers = [("127.0.0.1", 1), ("127.0.0.1", 2), *addresses(cluster)]
        config = NetworkConfig(bootstrap_servers=servers, reconnect_backoff_ms=0, reconnect_backoff_max_ms=0)
        async with NetworkClient(config, world=current_simulation().host("client").world) as other:
            for node_id in (-1, -2):
                with pytest.raises(KafkaConnectionError):
                    await other.send(node_id, ASK)
            assert {other.least_loaded() for _ in range(20)} == {-3}


@simulated
async def test_all_waiters_wake_when_the_client_fails() -> None:
    """They wait for a connection, a slot, metadata or a response."""
    simulation = current_simulation()
    world = NamedWorld(simulation.host("client").world, gone=["10.0.0.1"])
    woken: list[str] = []
    async with client_of(max_in_flight_requests_per_connection=1) as (cluster, _):
        config = NetworkConfig(
            bootstrap_servers=[*addresses(cluster), ("gone", 1)], max_in_flight_requests_per_connection=1
        )
        async with NetworkClient(config, world=world) as client, trio.open_nursery() as nursery:
            await client.send(-1, ASK)
            cluster.brokers[1].script(MetadataRequest, SILENCE)

            async def wait(name: str, call: Any) -> None:
                with pytest.raises(KafkaError):
                    await call
                woken.append(name)

            nursery.start_soon(wait, "answer", client.send(-1, ASK))
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(wait, "slot", client.send(-1, ASK))
            nursery.start_soon(wait, "connection", client.send(-2, ASK))
            nursery.start_soon(wait, "metadata", client.metadata_for(["orders"]))
            await trio.sleep(1)
            started = trio.current_time()
            client.fail(RuntimeError("a bug"))
            await trio.testing.wait_all_tasks_blocked()
            assert sorted(woken) == ["answer", "connection", "metadata", "slot"]
            assert trio.current_time() == started
