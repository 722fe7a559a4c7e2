"""The broker's connections, over a simulated network and in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from triokafka.broker_stub.broker import Broker
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.node import Node
from triokafka.protocol.api.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from triokafka.protocol.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from triokafka.protocol.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from triokafka.protocol.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from triokafka.protocol.frames import decode_response, encode_request
from triokafka.protocol.message import Request, Response
from triokafka.testing.simulation_run import Simulation, run_simulation
from triokafka.world import Stream

PORT = 9092
INTERNAL_PORT = 9093
TWO_LISTENERS: dict[str, Any] = {
    "listeners": (f"CLIENTS://broker:{PORT}", f"BROKERS://broker:{INTERNAL_PORT}"),
    "listener_security_protocol_map": ("CLIENTS:PLAINTEXT", "BROKERS:PLAINTEXT"),
    "inter_broker_listener_name": "BROKERS",
}


class RawClient:
    """One connection that a test drives directly."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    async def send(self, request: Request[Any], version: int) -> None:
        """Send a request."""
        await self.stream.send(*encode_request(request, version=version, correlation_id=1, client_id="raw"))

    async def receive(self, response_type: type[Response], version: int) -> Any:
        """Wait for a response."""
        size = int.from_bytes(await self.exactly(4), "big")
        return decode_response(response_type, await self.exactly(size), version=version)[1]

    async def exactly(self, size: int) -> bytes:
        """Return that many bytes; fewer if the broker closes the connection."""
        data = bytearray(size)
        have = 0
        while have < size:
            received = await self.stream.receive_into(memoryview(data)[have:])
            if not received:
                break
            have += received
        return bytes(data[:have])

    async def metadata(self, *topics: str) -> MetadataResponse:
        """Request metadata, which creates the topics."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in topics])
        await self.send(request, 9)
        response: MetadataResponse = await self.receive(MetadataResponse, 9)
        return response

    async def closed(self) -> bool:
        """Wait until the broker closes the connection."""
        try:
            return await self.exactly(1) == b""
        except OSError:
            return True


@asynccontextmanager
async def broker_in(world: Simulation, **options: Any) -> AsyncIterator[Broker]:
    """Run a broker on the host ``broker``."""
    given = {"listeners": (f"PLAINTEXT://broker:{PORT}",), "log_dirs": ("/data",), **options}
    config = BrokerConfig.for_tests(**given)
    async with Node(config, world=world.host("broker").world) as node:
        yield node.broker


async def connect(world: Simulation, host: str = "client") -> RawClient:
    """Connect from a host."""
    return RawClient(await world.host(host).world.connect("broker", PORT))


def simulate(scenario: Callable[[Simulation], Awaitable[None]]) -> None:
    """Run a scenario in virtual time."""
    run_simulation(scenario, seed=1)


def test_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    """A fetch waits no longer than a connection may be idle, and its connection stays open: it is busy."""

    async def scenario(world: Simulation) -> None:
        async with broker_in(world, connections_max_idle_ms=10_000) as broker:
            idle, busy = await connect(world), await connect(world)
            await idle.metadata()
            await busy.metadata("t")
            start = trio.current_time()
            await busy.send(waiting_fetch("t", 25_000), 11)
            assert await idle.closed()
            assert 9.9 < trio.current_time() - start < 12
            response = await busy.receive(FetchResponse, 11)
            assert response.error_code == 0
            assert 9.9 < trio.current_time() - start < 12
            await busy.send(waiting_fetch("t", 9_000), 11)
            response = await busy.receive(FetchResponse, 11)
            assert response.error_code == 0
            assert 18.9 < trio.current_time() - start < 22
            assert broker.sockets.connection_count == 1
            assert await busy.closed()

    simulate(scenario)


def waiting_fetch(topic: str, max_wait_ms: int) -> FetchRequest:
    """Return a fetch from the end of a topic's first partition."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1000, topics=[FetchTopic(topic=topic, partitions=[partition])]
    )


def test_connection_above_the_limit_of_an_address_is_refused_and_the_others_continue() -> None:

    async def scenario(world: Simulation) -> None:
        async with broker_in(world, max_connections_per_ip=2):
            first, second = await connect(world), await connect(world)
            third = await connect(world)
            assert await third.closed()
            await (await connect(world, "elsewhere")).metadata()
            await first.metadata()
            second.stream.close()
            await trio.sleep(1)
            await (await connect(world)).metadata()

    simulate(scenario)


def test_full_broker_accepts_again_once_a_connection_ends() -> None:
    """The remaining clients wait, and lose nothing."""

    async def scenario(world: Simulation) -> None:
        async with broker_in(world, max_connections=1):
            first = await connect(world)
            await first.metadata()
            second = await connect(world)
            with trio.move_on_after(5) as waited:
                await second.metadata()
            assert waited.cancelled_caught
            first.stream.close()
            response = await second.receive(MetadataResponse, 9)
            assert response.brokers

    simulate(scenario)


def test_slow_sender_and_non_reading_client_do_not_delay_others() -> None:

    async def scenario(world: Simulation) -> None:
        async with broker_in(world, num_partitions=500) as broker:
            slow, deaf, normal = [await connect(world, name) for name in ("slow", "deaf", "normal")]
            request: Any = MetadataRequest(topics=[])
            frame = b"".join(encode_request(request, version=9, correlation_id=1, client_id="slow"))

            async def trickle() -> None:
                for byte in frame:
                    await slow.stream.send(bytes([byte]))
                    await trio.sleep(1)

            await normal.metadata("many")

            async def flood() -> None:
                while True:
                    await deaf.send(MetadataRequest(topics=None), 9)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(trickle)
                nursery.start_soon(flood)
                start = trio.current_time()
                for _ in range(100):
                    await normal.metadata()
                assert trio.current_time() - start < 10
                assert (await slow.receive(MetadataResponse, 9)).brokers
                nursery.cancel_scope.cancel()
            assert broker.tasks.failure is None

    simulate(scenario)


def test_broken_frame_closes_only_its_connection() -> None:

    async def scenario(world: Simulation) -> None:
        async with broker_in(world):
            good = await connect(world)
            await good.metadata()
            for garbage in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"\0\0\0\x04abcd"):
                bad = await connect(world)
                await bad.stream.send(garbage)
                assert await bad.closed()
            await good.metadata()

    simulate(scenario)


def test_stop_completes_parked_requests_before_it_closes_connections() -> None:
    """A parked fetch gets its response, and an idle connection is closed."""

    async def scenario(world: Simulation) -> None:
        start = trio.current_time()
        async with broker_in(world):
            client, idle = await connect(world), await connect(world)
            await client.metadata("t")
            await client.send(waiting_fetch("t", 600_000), 11)
            await trio.sleep(1)
        assert (await client.receive(FetchResponse, 11)).error_code == 0
        assert await client.closed()
        assert await idle.closed()
        assert trio.current_time() - start < 10

    simulate(scenario)


def test_broker_that_is_full_makes_room_for_other_brokers() -> None:
    """The client that was idle the longest is disconnected; a busy one stays, and new clients still wait (KIP-402)."""

    async def scenario(world: Simulation) -> None:
        async with broker_in(world, max_connections=2, **TWO_LISTENERS) as broker:
            idle = await connect(world)
            await idle.metadata()
            await trio.sleep(1)
            busy = await connect(world)
            await busy.metadata("t")
            waiting = await connect(world)
            other = RawClient(await world.host("other").world.connect("broker", INTERNAL_PORT))
            await other.metadata()
            assert await idle.closed()
            await busy.metadata("t")
            with trio.move_on_after(2) as waited:
                await waiting.metadata()
            assert waited.cancelled_caught
            assert broker.sockets.connection_count == 2

    simulate(scenario)


def test_listener_has_limits_of_its_own() -> None:
    """``listener.name.<name>.max.connections``, also from a file."""

    async def scenario(world: Simulation) -> None:
        async with broker_in(world, unused={"listener.name.clients.max.connections": "1"}, **TWO_LISTENERS):
            first = await connect(world)
            await first.metadata()
            second = await connect(world)
            with trio.move_on_after(2) as waited:
                await second.metadata()
            assert waited.cancelled_caught
            for _ in range(3):
                await RawClient(await world.host("x").world.connect("broker", INTERNAL_PORT)).metadata()

    simulate(scenario)


def test_new_connections_are_limited_to_their_rate() -> None:
    """The connections of ten windows are accepted at once, then one after the other; none is refused (KIP-612)."""

    async def scenario(world: Simulation) -> None:
        async with broker_in(world, max_connection_creation_rate=2):
            start = trio.current_time()
            for _ in range(20):
                await (await connect(world)).metadata()
            assert trio.current_time() - start < 1
            for _ in range(10):
                await (await connect(world)).metadata()
            assert 3 < trio.current_time() - start < 12

    simulate(scenario)


def test_address_above_its_connection_rate_quota_is_refused() -> None:
    """The refusal is delayed, so that the client does not reconnect at once; other addresses connect (KIP-612)."""

    async def scenario(world: Simulation) -> None:
        async with broker_in(world) as broker:
            entry = EntryData(
                entity=[EntityData(entity_type="ip", entity_name="10.0.0.1")],
                ops=[OpData(key="connection_creation_rate", value=1.0)],
            )
            altered = await broker.gateway.send(AlterClientQuotasRequest(entries=[entry]))
            assert [one.error_code for one in altered.entries] == [0]
            for _ in range(10):
                await (await connect(world, "10.0.0.1")).metadata()
            start = trio.current_time()
            assert await (await connect(world, "10.0.0.1")).closed()
            assert 0.05 < trio.current_time() - start <= 1.1
            await (await connect(world, "elsewhere")).metadata()

    simulate(scenario)


def test_controller_applies_the_connection_rate_quotas_of_addresses() -> None:
    async def scenario(world: Simulation) -> None:
        listeners = (f"PLAINTEXT://broker:{PORT}", f"CONTROLLER://broker:{INTERNAL_PORT}")
        voters = (f"1@broker:{INTERNAL_PORT}",)
        async with broker_in(world, listeners=listeners, controller_quorum_voters=voters) as broker:
            entry = EntryData(
                entity=[EntityData(entity_type="ip", entity_name="10.0.0.1")],
                ops=[OpData(key="connection_creation_rate", value=1.0)],
            )
            await broker.gateway.send(AlterClientQuotasRequest(entries=[entry]))
            others = world.host("10.0.0.1").world
            accepted = [RawClient(await others.connect("broker", INTERNAL_PORT)) for _ in range(10)]
            with trio.fail_after(5):
                assert await RawClient(await others.connect("broker", INTERNAL_PORT)).closed()
            for client in accepted:
                with trio.move_on_after(0.1) as waited:
                    await client.closed()
                assert waited.cancelled_caught

    simulate(scenario)


def test_limits_change_while_the_broker_runs() -> None:
    """Excess connections are closed; slots are shared by all listeners."""

    async def scenario(world: Simulation) -> None:
        async with broker_in(world, **TWO_LISTENERS) as broker:
            clients = []
            for _ in range(3):
                clients.append(await connect(world))
                await clients[-1].metadata()
                await trio.sleep(1)
            await set_option(broker, "max.connections", "1")
            assert await clients[0].closed()
            assert await clients[1].closed()
            await clients[2].metadata()
            await set_option(broker, "num.io.threads", "12")
            assert (broker.sockets.slots.slots, broker.sockets.slots.free) == (12, 12)
            await set_option(broker, "max.connections", "5")
            await set_option(broker, "max.connections.per.ip", "1")
            assert await (await connect(world)).closed()
            await set_option(broker, "listener.name.clients.max.connections", "1")
            another = await connect(world, "elsewhere")
            with trio.move_on_after(2) as waited:
                await another.metadata()
            assert waited.cancelled_caught

    simulate(scenario)


async def set_option(broker: Broker, name: str, value: str) -> None:
    """Change an option of the running broker, as an administrator does."""
    request = IncrementalAlterConfigsRequest(
        resources=[
            AlterConfigsResource(
                resource_type=4,
                resource_name=str(broker.node_id),
                configs=[AlterableConfig(name=name, config_operation=0, value=value)],
            )
        ]
    )
    response = await broker.gateway.incremental_alter_configs(request)
    assert [result.error_message for result in response.responses if result.error_code] == []


def test_incomplete_request_is_closed_as_idle_and_its_memory_is_released() -> None:
    async def scenario(world: Simulation) -> None:
        limits = {"queued_max_request_bytes": 1_000_000, "socket_request_max_bytes": 1_000_000}
        async with broker_in(world, connections_max_idle_ms=10_000, **limits) as broker:
            slow, other = await connect(world), await connect(world, "other")
            await slow.stream.send((900_000).to_bytes(4, "big") + b"\0\x03\0\x09")
            await trio.sleep(1)
            assert broker.sockets.memory.used == 900_000
            await other.stream.send((500_000).to_bytes(4, "big") + b"\0\x03\0\x09")
            await trio.sleep(1)
            assert broker.sockets.memory.waiting == 1
            await (await connect(world, "small")).metadata()
            assert await slow.closed()
            await trio.sleep(0.1)
            assert (broker.sockets.memory.used, broker.sockets.memory.waiting) == (500_000, 0)
            assert await other.closed()
            await trio.sleep(0.1)
            assert broker.sockets.memory.used == 0

    simulate(scenario)
