"""A cancelled wait, at any checkpoint, does not affect other waits and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
import trio.testing

from tests.support.cancellation import cancelled_at_each_checkpoint
from tests.support.scripted_broker import SILENCE, ScriptedCluster
from tests.support.simulated import current_simulation, simulated
from tests.unit.network.test_network_client import ASK, addresses, client_of
from triokafka.errors import ClosedError
from triokafka.network.cluster import Cluster
from triokafka.network.config import NetworkConfig
from triokafka.network.network_client import NetworkClient
from triokafka.protocol.api.metadata import MetadataRequest, MetadataResponse

Call = Callable[[NetworkClient], Awaitable[object]]

CALLS: dict[str, Call] = {
    "send": lambda client: client.send(-1, ASK),
    "send to a broker on a connection of its own": lambda client: client.send(-1, ASK, purpose="coordinator"),
    "send_to_least_loaded": lambda client: client.send_to_least_loaded(ASK),
    "metadata_for": lambda client: client.metadata_for(["orders"]),
    "refresh_metadata": lambda client: client.refresh_metadata(),
    "find_coordinator": lambda client: client.find_coordinator("g"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@simulated
async def test_call_cancelled_at_any_checkpoint_disturbs_neither_its_neighbour_nor_its_successor(call: Call) -> None:
    """The neighbour waits for the same resource at the same time: a connection, a slot, metadata, a coordinator."""
    async with client_of(max_in_flight_requests_per_connection=1) as (cluster, client):
        neighbours = 0

        async def neighbour() -> None:
            nonlocal neighbours
            with trio.fail_after(5):
                await call(client)
            neighbours += 1

        async def with_neighbour() -> object:
            current_simulation().nursery.start_soon(neighbour)
            return await call(client)

        async def check() -> None:
            with trio.fail_after(5):
                await call(client)
            # The next run finds no connection and no metadata, so that it has to wait for everything.
            await trio.sleep(5)
            for broker in cluster.brokers.values():
                broker.cut()
            client.metadata.forget_topic("orders")
            client.forget_coordinator("g")
            await trio.sleep(5)

        _, cancelled = await cancelled_at_each_checkpoint(with_neighbour, check, limit=300)
        await trio.sleep(5)
        assert cancelled >= 1
        assert neighbours == cancelled + 1
        for channel in client._brokers.channels():
            assert channel.in_flight == 0


@simulated
async def test_leaving_cancelled_at_any_checkpoint_ends_every_task_and_wakes_every_waiter() -> None:
    """However the block is left, no call keeps waiting."""
    simulation = current_simulation()
    cluster = ScriptedCluster(orders=1)
    await cluster.start(simulation.nursery, simulation.host("broker").world)
    woken: list[str] = []

    async def wait(client: NetworkClient, call: Call, name: str) -> None:
        with pytest.raises(ClosedError):
            await call(client)
        woken.append(name)

    async def live() -> None:
        config = NetworkConfig(bootstrap_servers=addresses(cluster), max_in_flight_requests_per_connection=1)
        woken.clear()
        async with trio.open_nursery() as nursery:
            async with NetworkClient(config, world=simulation.host("client").world) as client:
                with trio.CancelScope(shield=True):
                    await client.send(-1, ASK)
                    cluster.brokers[1].script(MetadataRequest, SILENCE)
                    for name, call in CALLS.items():
                        if "of its own" not in name:
                            nursery.start_soon(wait, client, call, name)
                    await trio.testing.wait_all_tasks_blocked()
            with trio.CancelScope(shield=True):
                with trio.fail_after(1):
                    await trio.testing.wait_all_tasks_blocked()

    async def check() -> None:
        cluster.brokers[1]._scripts.clear()

    await cancelled_at_each_checkpoint(live, check)
    assert len(woken) == len(CALLS) - 1


@simulated
async def test_cancelling_one_waiter_of_a_shared_connection_attempt_leaves_the_others_waiting() -> None:
    async with client_of(nodes=1) as (cluster, client):
        answers: list[Any] = []

        async def ask(scope: trio.CancelScope) -> None:
            with scope:
                answers.append(await client.send(-1, ASK))

        scopes = [trio.CancelScope() for _ in range(5)]
        async with trio.open_nursery() as nursery:
            for scope in scopes:
                nursery.start_soon(ask, scope)
            await trio.testing.wait_all_tasks_blocked()
            scopes[0].cancel()
            scopes[3].cancel()
        assert [type(answer) for answer in answers] == [MetadataResponse] * 3
        assert cluster.brokers[1].connection_count == 1


@simulated
async def test_cancelled_wait_for_metadata_does_not_stop_the_request() -> None:
    async with client_of() as (cluster, client):
        with trio.move_on_after(0.0001):
            await client.metadata_for(["orders"])
        snapshot: Cluster = await client.metadata_for(["orders"])
        assert "orders" in snapshot.topics
        assert len(cluster.brokers[1].seen(MetadataRequest)) == 1
