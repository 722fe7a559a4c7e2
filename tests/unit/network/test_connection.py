"""One connection against a scripted broker, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from tests.support.scripted_broker import CLOSE, SILENCE, Raw, ScriptedBroker, ScriptedCluster
from tests.support.simulated import current_simulation, simulated
from triokafka.errors import KafkaConnectionError, KafkaError, ProtocolError, RequestTimedOutError
from triokafka.network.connection import Connection
from triokafka.network.receive_pool import ReceivePool
from triokafka.protocol.api.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from triokafka.protocol.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from triokafka.protocol.api.produce import ProduceRequest
from triokafka.structs import Node

ASK = MetadataRequest(topics=[MetadataRequestTopic(name="orders")])


@asynccontextmanager
async def connected(**options: Any) -> AsyncIterator[tuple[ScriptedBroker, Connection]]:
    simulation = current_simulation()
    cluster = ScriptedCluster(orders=1)
    address = await cluster.start(simulation.nursery, simulation.host("broker").world)
    world = simulation.host("client").world
    host, port = address.split(":")
    connection = Connection(
        await world.connect(host, int(port)),
        world=world,
        **{
            "name": "broker 1",
            "client_id": "me",
            "pool": ReceivePool(1 << 20),
            "request_timeout": 5.0,
            "max_idle": float("inf"),
            "max_in_flight": 3,
            "node": Node(1, host, int(port)),
            "max_response_bytes": 1 << 20,
            **options,
        },
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        yield cluster.brokers[1], connection
        connection.close(KafkaConnectionError("the test is over"))


@simulated
async def test_responses_reach_their_callers_in_order() -> None:
    async with connected() as (broker, connection):
        answers: list[Any] = []
        for _ in range(3):
            connection.submit(ASK, 9, lambda response, error: answers.append(response))
        assert connection.in_flight == 3
        assert not connection.can_send
        await connection.wait_for_slot()
        await broker.wait_for(MetadataRequest, 3)
        await trio.sleep(1)
        assert [type(answer) for answer in answers] == [MetadataResponse] * 3
        assert [header.correlation_id for header in broker.headers] == [0, 1, 2]
        assert broker.headers[0].client_id == "me"


@simulated
async def test_a_request_times_out_also_after_the_clock_has_jumped_over_the_end_of_idleness() -> None:
    async with connected(max_idle=540.0) as (broker, connection):
        await connection.call(ASK, 9)
        await trio.sleep(10)  # only the end of idleness is watched for now
        current_simulation().host("client").world.clock_skew += 600.0
        broker.script(MetadataRequest, SILENCE)
        started = trio.current_time()
        with pytest.raises(RequestTimedOutError):
            await connection.call(ASK, 9)
        assert trio.current_time() - started == pytest.approx(5, abs=0.1)


@simulated
async def test_silence_ends_the_connection_and_fails_the_newest_request_first() -> None:
    async with connected() as (broker, connection):
        await connection.call(ASK, 9)
        broker.script(MetadataRequest, SILENCE)
        failed: list[tuple[int, Any]] = []
        for number in range(3):
            connection.submit(ASK, 9, lambda response, error, number=number: failed.append((number, error)))  # type: ignore[misc]
        started = trio.current_time()
        with pytest.raises(KafkaConnectionError):
            for _ in range(100):
                await trio.sleep(0.5)
                connection.submit(ASK, 9, lambda response, error: None)
        assert trio.current_time() - started == pytest.approx(5, abs=0.6)
        assert [number for number, _ in failed] == [2, 1, 0]
        assert isinstance(failed[0][1], RequestTimedOutError)
        assert "broker 1 did not answer MetadataRequest within 5000 ms" in str(failed[0][1])


@simulated
async def test_written_request_without_a_response_succeeds_although_the_connection_ends() -> None:
    async with connected() as (broker, connection):
        await connection.call(ASK, 9)
        outcomes: list[Any] = []
        connection.submit(ASK, 9, lambda response, error: outcomes.append(error), expect_response=False)
        connection.close(KafkaConnectionError("closed"))
        assert outcomes == [None]
        await broker.wait_for(MetadataRequest, 2)


@simulated
async def test_timeout_of_a_single_request_may_be_shorter_or_longer() -> None:
    async with connected() as (broker, connection):
        broker.script(MetadataRequest, SILENCE)
        started = trio.current_time()
        with pytest.raises(RequestTimedOutError):
            await connection.call(ASK, 9, timeout=1)
        assert trio.current_time() - started == pytest.approx(1, abs=0.1)


@simulated
async def test_shorter_timeout_behind_a_longer_one_expires_on_time() -> None:
    async with connected() as (broker, connection):
        await connection.call(ASK, 9)
        broker.script(MetadataRequest, SILENCE)
        started = trio.current_time()
        connection.submit(ASK, 9, lambda response, error: None, timeout=20)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(RequestTimedOutError, match="within 1000 ms"):
            await connection.call(ASK, 9, timeout=1)
        assert trio.current_time() - started == pytest.approx(1, abs=0.1)


@simulated
async def test_answered_requests_do_not_count_for_the_timeout() -> None:
    """The timer was set for the first request, and must not fail the later ones early."""
    async with connected(request_timeout=5.0) as (broker, connection):
        for _ in range(4):
            await connection.call(ASK, 9)
            await trio.sleep(2)
        broker.script(MetadataRequest, SILENCE)
        started = trio.current_time()
        with pytest.raises(RequestTimedOutError):
            await connection.call(ASK, 9)
        assert trio.current_time() - started == pytest.approx(5, abs=0.1)


@simulated
async def test_cancelled_caller_does_not_affect_others() -> None:
    """The connection drops the response when it arrives."""
    async with connected() as (_, connection):
        with trio.CancelScope() as scope:
            scope.cancel()
            await connection.call(ASK, 9)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.call, ASK, 9)
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert isinstance(await connection.call(ASK, 9), MetadataResponse)
        assert connection.in_flight == 0


@simulated
async def test_closed_connection_fails_waiting_and_later_requests() -> None:
    async with connected() as (broker, connection):
        broker.script(MetadataRequest, CLOSE)
        with pytest.raises(KafkaConnectionError, match="broker 1 closed the connection"):
            await connection.call(ASK, 9)
        with pytest.raises(KafkaConnectionError, match="has ended: broker 1 closed"):
            await connection.call(ASK, 9)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (Raw(b"\x00\x00\x00\x03abc"), "a response of 3 bytes"),
        (Raw(b"\x7f\xff\xff\xffabc"), "receive_message_max_bytes"),
        (Raw(b"\x00\x00\x00\x08\x00\x00\x00\x63abcd"), "correlation id 99, but 0 was due"),
        (Raw(b"\x00\x00\x00\x06\x00\x00\x00\x00\x00\xff"), "MetadataResponse"),
    ],
)
@simulated
async def test_malformed_response_is_a_protocol_error_and_ends_the_connection(raw: Raw, message: str) -> None:
    async with connected() as (broker, connection):
        broker.script(MetadataRequest, raw)
        with pytest.raises(ProtocolError, match=message):
            await connection.call(ASK, 9)
        assert connection.error is not None


@simulated
async def test_response_without_a_request_ends_the_connection() -> None:
    async with connected() as (broker, connection):
        answer = Raw(b"\x00\x00\x00\x04\x00\x00\x00\x00")
        broker.script(ProduceRequest, answer)
        connection.submit(ProduceRequest(acks=0, timeout_ms=1), 9, lambda *args: None, expect_response=False)
        await trio.sleep(1)
        assert "a response to no request" in str(connection.error)


@simulated
async def test_request_without_a_response_completes_once_it_is_written() -> None:
    async with connected() as (broker, connection):
        done: list[Any] = []
        request = ProduceRequest(acks=0, timeout_ms=1)
        connection.submit(request, 9, lambda *args: done.append(args), expect_response=False)
        assert connection.in_flight == 1
        await broker.wait_for(ProduceRequest)
        assert done == [(None, None)]
        assert connection.in_flight == 0


@simulated
async def test_unused_connection_is_closed_after_the_idle_time() -> None:
    async with connected(max_idle=60.0) as (_, connection):
        for _ in range(5):
            await trio.sleep(50)
            await connection.call(ASK, 9)
        await trio.sleep(61)
        assert "after 60000 ms without use" in str(connection.error)


@simulated
async def test_failing_callback_does_not_stop_the_others() -> None:
    async with connected() as (broker, connection):
        done: list[int] = []

        def bad(*args: Any) -> None:
            raise RuntimeError("a bad caller")

        connection.submit(ASK, 9, bad)
        connection.submit(ASK, 9, lambda *args: done.append(1))
        await broker.wait_for(MetadataRequest, 2)
        await trio.sleep(1)
        assert done == [1]
        assert connection.error is None


@pytest.mark.parametrize("topics", [10, 5_000])
@simulated
async def test_large_and_small_answers_arrive_whole(topics: int) -> None:
    """A small response fits the receive buffer, a large one goes into a pooled buffer."""
    async with connected() as (broker, connection):
        names = [f"topic-{i:06d}" for i in range(topics)]
        broker.cluster.topics.update(dict.fromkeys(names, 1))
        for _ in range(3):
            request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
            response = await connection.call(request, 9)
            assert [topic.name for topic in response.topics] == names


@simulated
async def test_refused_version_of_api_versions_is_read_as_version_0() -> None:
    """KIP-511."""
    async with connected() as (broker, connection):
        only = ApiVersion(api_key=18, min_version=0, max_version=2)
        broker.script(ApiVersionsRequest, ApiVersionsResponse(error_code=35, api_keys=[only]))
        response = await connection.call(ApiVersionsRequest(), 4)
        assert (response.error_code, response.api_keys) == (35, [only])


@simulated
async def test_request_that_cannot_be_encoded_leaves_the_connection_in_order() -> None:
    async with connected() as (_, connection):
        with pytest.raises(KafkaError):
            await connection.call(MetadataRequest(topics=None), 0)
        assert isinstance(await connection.call(ASK, 9), MetadataResponse)


def test_pool_reuses_a_buffer_only_when_no_view_of_it_exists() -> None:
    pool = ReceivePool(1 << 20)
    first = pool.take(200_000)
    inner = first[1000:2000]
    del first
    second = pool.take(200_000)
    assert pool.kept_bytes == 2 * 262_144
    inner[0], second[1000] = 1, 2
    assert inner[0] == 1
    del inner, second
    third, fourth = pool.take(200_000), pool.take(150_000)
    assert len(third) == 200_000
    assert len(fourth) == 150_000
    assert pool.kept_bytes == 2 * 262_144


def test_pool_keeps_no_more_than_it_may() -> None:
    pool = ReceivePool(600_000)
    views = [pool.take(200_000) for _ in range(5)]
    assert pool.kept_bytes <= 600_000
    assert all(len(view) == 200_000 for view in views)
    del views
    pool.take(500_000)
    assert pool.kept_bytes <= 600_000
