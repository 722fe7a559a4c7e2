"""Non-waiting requests: which nodes are ready, when to retry, and which requests are refused."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from tests.support.scripted_broker import SILENCE
from tests.support.simulated import current_simulation, simulated
from tests.unit.network.test_connecting import NamedWorld
from tests.unit.network.test_network_client import ASK, client_of
from triokafka.errors import ClosedError, KafkaConnectionError, NodeNotReadyError
from triokafka.network.config import NetworkConfig
from triokafka.network.network_client import NetworkClient
from triokafka.network.receive_pool import ReceivePool
from triokafka.network.response_reader import _BYTES_BETWEEN_CHECKPOINTS, ResponseReader
from triokafka.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from triokafka.protocol.api.metadata import MetadataRequest, MetadataResponse
from triokafka.structs import Buffer


def ignore(response: object, error: object) -> None:
    pass


@simulated
async def test_asking_whether_a_node_is_ready_starts_one_connection_attempt() -> None:
    async with client_of() as (cluster, client):
        woken: list[bool] = []
        client.add_listener(lambda: woken.append(True))
        assert [client.ready(-1) for _ in range(5)] == [False] * 5
        assert client.ready_delay(-1) == float("inf")  # an event will notify the caller
        await trio.sleep(1)
        assert woken
        assert client.ready(-1)
        assert cluster.brokers[1].connection_count == 1


@simulated
async def test_nothing_is_sent_before_the_versions_are_agreed_on() -> None:
    async with client_of() as (cluster, client):
        broker = cluster.brokers[1]
        go = trio.Event()

        async def later(request: ApiVersionsRequest) -> ApiVersionsResponse:
            await go.wait()
            answer: ApiVersionsResponse = broker._behave(request, broker.headers[-1])
            return answer

        broker.script(ApiVersionsRequest, later)
        client.ready(-1)
        await broker.wait_for(ApiVersionsRequest)
        assert not client.ready(-1)
        with pytest.raises(NodeNotReadyError, match="not ready for a request"):
            client.submit(-1, ASK, 12, ignore)
        with pytest.raises(NodeNotReadyError, match="has not sent its API versions"):
            client.version_for(-1, MetadataRequest)
        go.set()
        await trio.sleep(1)
        client.submit(-1, ASK, client.version_for(-1, MetadataRequest), ignore)
        await broker.wait_for(MetadataRequest)


@simulated
async def test_ready_delay_of_a_node_in_back_off_is_the_remaining_time() -> None:
    async with client_of(bootstrap=[("127.0.0.1", 1)], reconnect_backoff_ms=1000, reconnect_backoff_max_ms=1000) as (
        _,
        client,
    ):
        client.ready(-1)
        await trio.sleep(0.1)
        assert 0.6 < client.ready_delay(-1) < 1.2
        assert not client.ready(-1)
        assert isinstance(client.channel_error(-1), KafkaConnectionError)
        await trio.sleep(client.ready_delay(-1))
        assert client.ready_delay(-1) == 0


@simulated
async def test_unknown_node_triggers_a_metadata_refresh() -> None:
    async with client_of() as (_, client):
        assert not client.ready(7)
        await trio.sleep(1)
        assert client.metadata.version == 1
        with pytest.raises(NodeNotReadyError, match="broker 7 is not known"):
            await client.send(7, ASK)


@simulated
async def test_callback_of_a_submitted_request_is_called_once_whatever_happens_to_the_connection() -> None:
    """A response, a lost connection and a timeout all reach the same callback."""
    async with client_of(request_timeout_ms=2000) as (cluster, client):
        broker = cluster.brokers[1]
        outcomes: list[str] = []

        def done(response: Any, error: Exception | None) -> None:
            outcomes.append(type(response if error is None else error).__name__)

        await client.send(-1, ASK)
        client.submit(-1, ASK, 12, done)
        await trio.sleep(0.1)
        broker.script(MetadataRequest, SILENCE)
        client.submit(-1, ASK, 12, done)
        await trio.sleep(0.1)
        broker.cut()
        await trio.sleep(0.1)
        await client.send(-1, ASK)
        broker.script(MetadataRequest, SILENCE)
        client.submit(-1, ASK, 12, done)
        await trio.sleep(3)
        assert outcomes == ["MetadataResponse", "KafkaConnectionError", "RequestTimedOutError"]


@simulated
async def test_leaving_waits_for_no_broker() -> None:
    """The broker does not respond, or cannot be reached."""
    simulation = current_simulation()
    world = NamedWorld(simulation.host("client").world, gone=["10.0.0.1"])
    async with client_of() as (cluster, client):
        await client.send(-1, ASK)
        cluster.brokers[1].script(MetadataRequest, SILENCE)
        client.submit(-1, ASK, 12, ignore)
        config = NetworkConfig(bootstrap_servers=[("gone", 1)])
        async with NetworkClient(config, world=world) as other:
            other.ready(-1)
            await trio.sleep(1)
            started = trio.current_time()
    assert trio.current_time() == started
    with pytest.raises(ClosedError):
        client.ready(-1)


async def test_large_response_does_not_keep_other_tasks_from_running() -> None:
    """Its bytes may arrive as fast as they are read, so that receiving never has to wait."""
    left = 20 * _BYTES_BETWEEN_CHECKPOINTS
    turns = 0
    ended = False

    class Endless:
        """A stream that always has more bytes of one frame."""

        def expect(self, size: int, *, at_once: int) -> None:
            assert at_once <= size <= left

        async def receive_into(self, room: memoryview) -> int:
            nonlocal left
            got = min(left, len(room), 100_000)
            room[:got] = bytes(got)
            if left == 20 * _BYTES_BETWEEN_CHECKPOINTS:
                room[:4] = (left - 4).to_bytes(4, "big")
            left -= got
            return got

    async def other_task() -> None:
        nonlocal turns
        while not ended:
            turns += 1
            await trio.lowlevel.checkpoint()

    frames: list[int] = []

    async def handle(frame: Buffer) -> bool:
        frames.append(len(frame))
        return True

    reader = ResponseReader(Endless(), ReceivePool(64 << 20), name="a broker", max_bytes=128 << 20)  # type: ignore[arg-type]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(other_task)
        await reader.read(lambda frame: False, handle)
        ended = True
    assert frames == [20 * _BYTES_BETWEEN_CHECKPOINTS - 4]
    assert reader.bytes_received == 20 * _BYTES_BETWEEN_CHECKPOINTS
    assert turns >= 15


@simulated
async def test_every_response_reaches_its_caller_with_many_callers_and_brokers() -> None:
    async with client_of(nodes=3, max_in_flight_requests_per_connection=2) as (_, client):
        await client.refresh_metadata()
        answers: list[object] = []

        async def ask(node: int) -> None:
            answers.append(await client.send(node, ASK))

        async with trio.open_nursery() as nursery:
            for number in range(300):
                nursery.start_soon(ask, 1 + number % 3)
        assert [type(answer) for answer in answers] == [MetadataResponse] * 300
