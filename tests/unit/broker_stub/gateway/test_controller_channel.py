"""ControllerChannel: the requests of a broker to the active controller do not disturb each other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from tests.support.scripted_broker import SILENCE, ScriptedBroker, ScriptedCluster
from tests.support.simulated import current_simulation, simulated
from triokafka.broker_stub.gateway.controller_channel import ControllerChannel, Purpose
from triokafka.errors import RequestTimedOutError
from triokafka.network.node_channel import NodeChannel
from triokafka.protocol.api.find_coordinator import FindCoordinatorRequest
from triokafka.protocol.api.metadata import MetadataRequest, MetadataResponse
from triokafka.structs import Node

ASK = MetadataRequest(topics=[])
BEAT = FindCoordinatorRequest(coordinator_keys=["any"])


@asynccontextmanager
async def controller_and_channel() -> AsyncIterator[tuple[ScriptedBroker, ControllerChannel]]:
    """Run a scripted controller, and a broker's channel to it with a time limit of 10 seconds."""
    simulation = current_simulation()
    world = simulation.host("broker").world
    async with trio.open_nursery() as nursery:
        cluster = ScriptedCluster(orders=1)
        await cluster.start(nursery, simulation.host("controller").world)
        controller = cluster.brokers[1]
        host, _, port = controller.address.rpartition(":")
        channel = ControllerChannel(
            world,
            find=lambda: Node(1, host, int(port)),
            connect=lambda node: NodeChannel(node, world=world, client_id="2"),
            timeout_ms=10_000,
        )
        nursery.start_soon(channel.run)
        yield controller, channel
        nursery.cancel_scope.cancel()


@simulated
async def test_a_short_time_limit_of_one_client_does_not_end_the_request_of_another() -> None:
    async with controller_and_channel() as (controller, channel):

        async def slowly(request: MetadataRequest) -> MetadataResponse:
            await trio.sleep(1)
            return controller.metadata(request)

        controller.script(MetadataRequest, slowly, slowly)

        async def impatient() -> None:
            began = trio.current_time()
            with pytest.raises(RequestTimedOutError, match="within 5 ms"):
                await channel.send(ASK, Purpose.CLIENTS, timeout_ms=5)
            assert trio.current_time() - began == pytest.approx(0.005, abs=0.001)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(impatient)
            assert isinstance(await channel.send(ASK, Purpose.CLIENTS), MetadataResponse)
        assert controller.connection_count == 1
        assert len(controller.seen(MetadataRequest)) == 2  # neither was sent again


@simulated
async def test_a_heartbeat_does_not_wait_behind_the_request_of_a_client() -> None:
    async with controller_and_channel() as (controller, channel):
        controller.script(MetadataRequest, SILENCE)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(channel.send, ASK, Purpose.CLIENTS)
            await controller.wait_for(MetadataRequest)
            began = trio.current_time()
            await channel.send(BEAT, Purpose.LIFECYCLE, timeout_ms=9_000)
            await channel.send(BEAT, Purpose.REPLICAS, timeout_ms=3_000)
            assert trio.current_time() - began < 0.1
            nursery.cancel_scope.cancel()
