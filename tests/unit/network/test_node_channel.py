"""NodeChannel: requests between nodes over one connection, opened on demand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from tests.support.cancellation import cancelled_at_each_checkpoint
from tests.support.scripted_broker import CLOSE, SILENCE, ScriptedBroker, ScriptedCluster
from tests.support.simulated import current_simulation, simulated
from triokafka.errors import IllegalStateError, KafkaConnectionError, RequestTimedOutError, UnsupportedVersionError
from triokafka.network.node_channel import NodeChannel
from triokafka.network.response_waiter import ResponseWaiter
from triokafka.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from triokafka.protocol.api.metadata import MetadataRequest, MetadataResponse
from triokafka.protocol.api.vote import VoteRequest
from triokafka.structs import Node

ASK = MetadataRequest(topics=[])


@asynccontextmanager
async def peer_and_channel(**options: Any) -> AsyncIterator[tuple[ScriptedBroker, NodeChannel]]:
    """Run a scripted node, and another node's channel to it."""
    simulation = current_simulation()
    async with trio.open_nursery() as nursery:
        cluster = ScriptedCluster(orders=1)
        await cluster.start(nursery, simulation.host("peer").world)
        peer = cluster.brokers[1]
        channel = channel_to(peer, **options)
        nursery.start_soon(channel.run)
        yield peer, channel
        channel.close()
        nursery.cancel_scope.cancel()


def channel_to(peer: ScriptedBroker, **options: Any) -> NodeChannel:
    host, _, port = peer.address.rpartition(":")
    world = current_simulation().host("own").world
    return NodeChannel(Node(1, host, int(port)), world=world, client_id="node-2", **options)


@simulated
async def test_channel_connects_when_there_is_something_to_send() -> None:
    async with peer_and_channel() as (peer, channel):
        await trio.testing.wait_all_tasks_blocked()
        assert peer.connection_count == 0
        assert not channel.is_ready
        answer = await channel.send(ASK)
        assert isinstance(answer, MetadataResponse)
        assert channel.is_ready
        await channel.send(ASK)
        assert peer.connection_count == 1
        assert {header.client_id for header in peer.headers} == {"node-2"}


@simulated
async def test_lost_connection_fails_the_request_and_the_next_request_connects_again() -> None:
    async with peer_and_channel() as (peer, channel):
        peer.script(MetadataRequest, CLOSE)
        with pytest.raises(KafkaConnectionError):
            await channel.send(ASK)
        await channel.send(ASK)
        assert peer.connection_count == 2


@simulated
async def test_idle_channel_does_not_connect_again() -> None:
    async with peer_and_channel() as (peer, channel):
        await channel.send(ASK)
        peer.cut()
        await trio.sleep(60)
        assert peer.connection_count == 1
        assert not channel.is_ready


@simulated
async def test_failed_attempt_fails_its_senders_and_the_next_attempt_waits_longer() -> None:
    async with peer_and_channel(reconnect_backoff_ms=100, reconnect_backoff_max_ms=10_000) as (peer, channel):
        port = peer.stop()
        waits = []
        for _ in range(5):
            began = trio.current_time()
            with pytest.raises(KafkaConnectionError, match="could not connect to broker 1"):
                await channel.send(ASK)
            waits.append(trio.current_time() - began)
        assert waits == sorted(waits)
        assert waits[0] < 0.05 < 0.5 < waits[4] < 1.5
        async with trio.open_nursery() as nursery:
            await peer.start(nursery, port)
            await channel.send(ASK)
            nursery.cancel_scope.cancel()


@simulated
async def test_senders_of_one_attempt_share_its_failure() -> None:
    async with peer_and_channel() as (peer, channel):
        peer.stop()
        failures: list[Exception] = []

        async def send() -> None:
            try:
                await channel.send(ASK)
            except KafkaConnectionError as error:
                failures.append(error)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(send)
        assert len(failures) == len({id(error) for error in failures}) == 3
        assert len({str(error) for error in failures}) == 1


@simulated
async def test_request_without_response_ends_at_its_time_limit() -> None:
    async with peer_and_channel(request_timeout_ms=700) as (peer, channel):
        peer.script(MetadataRequest, SILENCE, SILENCE)
        began = trio.current_time()
        with pytest.raises(RequestTimedOutError):
            await channel.send(ASK)
        assert trio.current_time() - began == pytest.approx(0.7, abs=0.05)
        began = trio.current_time()
        with pytest.raises(RequestTimedOutError):
            await channel.send(ASK, timeout_ms=300)
        assert trio.current_time() - began == pytest.approx(0.3, abs=0.05)
        await channel.send(ASK)


@simulated
async def test_time_limit_includes_the_wait_for_the_connection() -> None:
    async with peer_and_channel(reconnect_backoff_ms=5_000, reconnect_backoff_max_ms=5_000) as (peer, channel):
        peer.stop()
        with pytest.raises(KafkaConnectionError):
            await channel.send(ASK)
        began = trio.current_time()
        with pytest.raises(
            KafkaConnectionError, match=r"no connection to node 1 .* within 200 ms; last failure: could"
        ):
            await channel.send(ASK, timeout_ms=200)
        assert trio.current_time() - began == pytest.approx(0.2, abs=0.01)


@simulated
async def test_half_open_connection_is_found_within_the_limit_of_silence() -> None:
    async with peer_and_channel(max_silence_ms=3_000) as (_peer, channel):
        await channel.send(ASK)
        current_simulation().network.half_open("own", "peer")
        began = trio.current_time()
        with pytest.raises(KafkaConnectionError):
            await channel.send(ASK)
        assert trio.current_time() - began <= 3.1
        await channel.send(ASK)


@simulated
async def test_cut_network_is_found_within_the_limit_of_silence() -> None:
    async with peer_and_channel(max_silence_ms=3_000) as (_peer, channel):
        await channel.send(ASK)
        current_simulation().network.black_hole("own", "peer")
        began = trio.current_time()
        with pytest.raises(KafkaConnectionError):
            await channel.send(ASK)
        assert trio.current_time() - began <= 3.1


@simulated
async def test_cancelled_sender_leaves_the_channel_usable() -> None:
    async with peer_and_channel() as (_peer, channel):

        async def send() -> MetadataResponse:
            return await channel.send(ASK)

        async def check() -> None:
            assert isinstance(
                await channel.send(FindCoordinatorRequest(coordinator_keys=["g"])), FindCoordinatorResponse
            )

        answer, _cancelled = await cancelled_at_each_checkpoint(send, check)
        assert isinstance(answer, MetadataResponse)


@simulated
async def test_cancelled_wait_leaves_another_request_of_the_task_on_its_way() -> None:
    """As in a fetcher, which sends its next fetch before it has processed a response."""
    async with peer_and_channel() as (_peer, channel):
        ahead: list[ResponseWaiter] = []

        async def send_both() -> MetadataResponse:
            ahead.clear()
            first = await channel.submit(ASK)
            ahead.append(await channel.submit(ASK))
            await first.wait()
            answer: MetadataResponse = await ahead[0].wait()
            return answer

        async def check() -> None:
            for waiter in ahead:
                assert isinstance(await waiter.wait(), MetadataResponse)
            assert isinstance(
                await channel.send(FindCoordinatorRequest(coordinator_keys=["g"])), FindCoordinatorResponse
            )
            assert channel.is_ready

        answer, cancelled = await cancelled_at_each_checkpoint(send_both, check)
        assert isinstance(answer, MetadataResponse)
        assert cancelled >= 2


@simulated
async def test_sender_cancelled_while_connecting_leaves_the_channel_usable() -> None:
    async with peer_and_channel() as (peer, channel):
        for _ in range(5):
            with trio.move_on_after(0):
                await channel.send(ASK)
            peer.cut()
        assert isinstance(await channel.send(ASK), MetadataResponse)


@simulated
async def test_closed_channel_fails_waiting_and_later_senders() -> None:
    async with peer_and_channel() as (peer, channel):
        await channel.send(ASK)
        peer.script(MetadataRequest, SILENCE)
        failures: list[str] = []

        async def send() -> None:
            try:
                await channel.send(ASK)
            except KafkaConnectionError as error:
                failures.append(str(error))

        async with trio.open_nursery() as nursery:
            for _ in range(7):  # five in flight, two waiting for a slot
                nursery.start_soon(send)
            await trio.testing.wait_all_tasks_blocked()
            channel.close()
        await send()
        assert len(failures) == 8
        assert all("closed by this node" in failure for failure in failures)


@simulated
async def test_cancelled_run_fails_senders_that_wait_for_a_connection() -> None:
    async with trio.open_nursery() as nursery:
        cluster = ScriptedCluster(orders=1)
        await cluster.start(nursery, current_simulation().host("peer").world)
        channel = channel_to(cluster.brokers[1])
        cluster.brokers[1].stop()
        async with trio.open_nursery() as running:
            running.start_soon(channel.run)
            with pytest.raises(KafkaConnectionError):
                await channel.send(ASK)
            running.cancel_scope.cancel()
        with pytest.raises(KafkaConnectionError, match="closed by this node"):
            await channel.send(ASK)
        with pytest.raises(IllegalStateError):
            await channel.run()
        nursery.cancel_scope.cancel()


@simulated
async def test_version_is_the_highest_allowed_by_both_nodes_and_the_caller() -> None:
    async with peer_and_channel() as (peer, channel):
        peer.api_versions[3] = (0, 9)
        await channel.send(ASK)
        await channel.send(ASK, max_version=4)
        versions: list[int] = []

        def build(version: int) -> MetadataRequest:
            versions.append(version)
            return ASK

        await channel.send(build, api=MetadataRequest, min_version=2)
        assert [header.api_version for header in peer.headers if header.api_key == 3] == [9, 4, 9]
        assert versions == [9]
        with pytest.raises(UnsupportedVersionError):
            await channel.send(VoteRequest())
        await channel.send(ASK)
