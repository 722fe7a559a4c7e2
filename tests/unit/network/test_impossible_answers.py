"""Responses that no broker should send: the right error, at most one connection lost, and a client that recovers."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
import trio

import triokafka
from tests.support.scripted_broker import Raw
from tests.support.scripted_reading import started
from tests.support.simulated import simulated
from tests.unit.network.test_network_client import ASK, client_of
from triokafka.errors import (
    CoordinatorNotAvailableError,
    KafkaConnectionError,
    KafkaTimeoutError,
    ProtocolError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from triokafka.protocol.api.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from triokafka.protocol.api.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from triokafka.protocol.api.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from triokafka.protocol.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from triokafka.protocol.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from triokafka.protocol.frames import encode_response
from triokafka.structs import TopicPartition


def frame(correlation_id: int, body: bytes = b"") -> Raw:
    return Raw(struct.pack(">ii", 4 + len(body), correlation_id) + body)


def whole(response: Any, version: int, correlation_id: int) -> bytes:
    return b"".join(encode_response(response, version=version, correlation_id=correlation_id))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (Raw(struct.pack(">i", -1) + bytes(20)), "announced a response of -1 bytes"),
        (Raw(struct.pack(">i", -(2**31)) + bytes(20)), "announced a response of -2147483648 bytes"),
        (Raw(struct.pack(">i", 0) + bytes(20)), "announced a response of 0 bytes"),
        (Raw(struct.pack(">i", 2**31 - 1) + bytes(20)), "receive_message_max_bytes"),
        (frame(99, bytes(30)), "correlation id 99, but 1 was due"),
        (frame(0, bytes(30)), "correlation id 0, but 1 was due"),
        (frame(1, b"\x00"), "MetadataResponse"),
        (frame(1, b"\xff" * 40), "MetadataResponse"),
        (frame(1), "MetadataResponse"),
        (Raw(whole(MetadataResponse(), 13, 1) + bytes(4)), "announced a response of 0 bytes"),
    ],
)
@simulated
async def test_malformed_response_ends_one_connection_and_the_client_continues(raw: Raw, message: str) -> None:
    async with client_of() as (cluster, client):
        broker = cluster.brokers[1]
        await client.refresh_metadata()
        broker.script(MetadataRequest, raw)
        try:
            await client.send(1, ASK)  # its response may be valid, and the malformed data follow it
        except ProtocolError as error:
            assert message in str(error)
        await trio.sleep(0.01)
        error = client.channel_error(1)  # type: ignore[misc]
        assert error is not None
        assert message in str(error)
        assert isinstance(await client.send(1, ASK), MetadataResponse)
        assert client.channel_error(1) is None


@simulated
async def test_response_with_too_many_elements_is_refused_before_they_are_decoded() -> None:
    """Otherwise each byte of a response could take dozens of bytes in the client."""
    async with client_of(receive_message_max_bytes=1_000_000) as (cluster, client):
        count = 90_000
        one = struct.pack(">ibibb", 1, 1, 9092, 0, 0)  # a broker without a host
        length = bytes([(count + 1) & 127 | 128, (count + 1) >> 7 & 127 | 128, (count + 1) >> 14])
        await client.refresh_metadata()
        cluster.brokers[1].script(MetadataRequest, frame(1, bytes(5) + length + one * count))
        with pytest.raises(ProtocolError, match="90000 elements would take more memory"):
            await client.send(1, ASK)
        assert isinstance(await client.send(1, ASK), MetadataResponse)


@simulated
async def test_truncated_response_is_awaited_until_the_request_times_out() -> None:
    async with client_of(request_timeout_ms=2000) as (cluster, client):
        await client.send(-1, ASK)
        cluster.brokers[1].script(MetadataRequest, Raw(whole(MetadataResponse(), 13, 2)[:-1]))
        started = trio.current_time()
        with pytest.raises(Exception, match="did not answer MetadataRequest within 2000 ms"):
            await client.send(-1, ASK)
        assert trio.current_time() - started == pytest.approx(2, abs=0.1)
        assert isinstance(await client.send(-1, ASK), MetadataResponse)


@simulated
async def test_answer_without_a_request_ends_the_connection() -> None:
    async with client_of() as (cluster, client):
        broker = cluster.brokers[1]
        await client.send(-1, ASK)
        await broker.connections[0].send(frame(1, bytes(10)))
        await trio.sleep(0.1)
        assert "a response to no request" in str(client.channel_error(-1))
        assert isinstance(await client.send(-1, ASK), MetadataResponse)


@pytest.mark.parametrize(
    "raw", [frame(0), frame(0, b"\xff" * 9), frame(7, bytes(20)), Raw(bytes([0x7F, 0xFF, 0xFF, 0xFF]) + bytes(60))]
)
@simulated
async def test_garbage_instead_of_api_versions_is_a_failure_to_connect(raw: Raw) -> None:
    async with client_of() as (cluster, client):
        cluster.brokers[1].script(ApiVersionsRequest, raw)
        with pytest.raises(KafkaConnectionError, match="could not connect to bootstrap server"):
            await client.send(-1, ASK)
        assert isinstance(await client.send(-1, ASK), MetadataResponse)


@simulated
async def test_invalid_version_ranges_are_not_used() -> None:
    """The ranges are reversed, negative, beyond ours, or listed twice."""
    async with client_of() as (cluster, client):
        keys = [
            ApiVersion(api_key=3, min_version=5, max_version=2),
            ApiVersion(api_key=10, min_version=-5, max_version=-1),
            ApiVersion(api_key=22, min_version=1000, max_version=2000),
            ApiVersion(api_key=-7, min_version=0, max_version=1),
        ]
        cluster.brokers[1].script(ApiVersionsRequest, ApiVersionsResponse(api_keys=keys))
        for request in (ASK, FindCoordinatorRequest(coordinator_keys=["g"])):
            with pytest.raises(UnsupportedVersionError, match="in versions"):
                await client.send(-1, request)


def changed(change: Callable[[MetadataResponse], None], broker: Any) -> Callable[[MetadataRequest], MetadataResponse]:
    def answer(request: MetadataRequest) -> MetadataResponse:
        response: MetadataResponse = broker.metadata(request)
        change(response)
        return response

    return answer


@simulated
async def test_metadata_without_brokers_is_requested_again() -> None:
    async with client_of() as (cluster, client):
        broker = cluster.brokers[1]
        empty = changed(lambda response: response.brokers.clear(), broker)
        broker.script(MetadataRequest, empty, empty)
        assert sorted((await client.refresh_metadata()).nodes) == [1]
        broker.script(MetadataRequest, *[empty] * 100)
        with pytest.raises(KafkaTimeoutError, match="lists no broker"):
            await client.refresh_metadata(timeout_ms=2000)
        assert sorted(client.cluster.nodes) == [1]  # the last valid metadata remain


@pytest.mark.parametrize(
    "impossible",
    [
        MetadataResponseBroker(node_id=2, host="h", port=-1),
        MetadataResponseBroker(node_id=2, host="h", port=0),
        MetadataResponseBroker(node_id=2, host="h", port=65_536),
        MetadataResponseBroker(node_id=2, host="", port=9092),
        MetadataResponseBroker(node_id=-1, host="h", port=9092),
    ],
)
@simulated
async def test_invalid_brokers_are_left_out(impossible: MetadataResponseBroker) -> None:
    """A port that no socket accepts must not crash the client."""
    async with client_of() as (cluster, client):
        broker = cluster.brokers[1]
        broker.script(MetadataRequest, changed(lambda response: response.brokers.append(impossible), broker))
        assert sorted((await client.refresh_metadata()).nodes) == [1]
        only = changed(lambda response: setattr(response, "brokers", [impossible]), broker)
        broker.script(MetadataRequest, only)
        assert sorted((await client.refresh_metadata()).nodes) == [1]


@simulated
async def test_leader_that_is_not_among_the_brokers_counts_as_missing_and_is_requested_again() -> None:
    async with client_of() as (cluster, client):
        broker = cluster.brokers[1]

        def elsewhere(response: MetadataResponse) -> None:
            response.topics[0].partitions[1].leader_id = 77

        broker.script(MetadataRequest, changed(elsewhere, broker))
        snapshot = await client.metadata_for(["orders"])
        assert [snapshot.leader_for(TopicPartition("orders", n)) for n in range(3)] == [1, -1, 1]
        await trio.sleep(1)
        assert client.cluster.leader_for(TopicPartition("orders", 1)) == 1


@simulated
async def test_broker_that_is_listed_twice_is_known_once() -> None:
    async with client_of() as (cluster, client):
        broker = cluster.brokers[1]
        broker.script(MetadataRequest, changed(lambda response: response.brokers.extend(response.brokers * 2), broker))
        assert list((await client.refresh_metadata()).nodes) == [1]
        assert isinstance(await client.send(1, ASK), MetadataResponse)


@pytest.mark.parametrize("numbers", [[0, 2], [1, 2], [0, 0, 1], [-1, 0, 1]])
@simulated
async def test_topic_with_gaps_between_its_partitions_is_requested_again(numbers: list[int]) -> None:
    async with client_of() as (cluster, client):
        broker = cluster.brokers[1]

        def renumbered(response: MetadataResponse) -> None:
            response.topics[0].partitions = [
                MetadataResponsePartition(
                    partition_index=n, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
                )
                for n in numbers
            ]

        broker.script(MetadataRequest, changed(renumbered, broker))
        assert list((await client.metadata_for(["orders"])).topics["orders"].partitions) == [0, 1, 2]


@simulated
async def test_unrequested_and_unnamed_topics_in_a_response_are_ignored() -> None:
    async with client_of() as (cluster, client):
        broker = cluster.brokers[1]

        def more(response: MetadataResponse) -> None:
            response.topics.append(MetadataResponseTopic(name=None, error_code=100))
            response.topics.append(MetadataResponseTopic(name="other", error_code=3))

        broker.script(MetadataRequest, changed(more, broker))
        assert "orders" in (await client.metadata_for(["orders"])).topics
        with pytest.raises(UnknownTopicOrPartitionError, match="'nowhere' does not exist"):
            await client.metadata_for(["nowhere"], timeout_ms=1000)


@pytest.mark.parametrize(
    "found",
    [
        Coordinator(key="g", node_id=1, host="h", port=-1),
        Coordinator(key="g", node_id=-1, host="h", port=9092),
        Coordinator(key="g", node_id=1, host="", port=9092),
    ],
)
@simulated
async def test_invalid_coordinator_counts_as_not_available(found: Coordinator) -> None:
    async with client_of() as (cluster, client):
        cluster.brokers[1].script(FindCoordinatorRequest, FindCoordinatorResponse(coordinators=[found]))
        with pytest.raises(CoordinatorNotAvailableError, match="invalid coordinator"):
            await client.find_coordinator("g")
        assert (await client.find_coordinator("g")).node_id == 1


@simulated
async def test_unresolvable_host_name_is_a_connect_error() -> None:
    """This includes a text that is not a host name at all."""
    async with client_of() as (cluster, client):
        broker = cluster.brokers[1]
        odd = MetadataResponseBroker(node_id=5, host="a..b\x00c", port=9092)
        broker.script(MetadataRequest, changed(lambda response: response.brokers.append(odd), broker))
        assert sorted((await client.refresh_metadata()).nodes) == [1, 5]
        with pytest.raises(KafkaConnectionError, match="broker 5 at"):
            await client.send(5, ASK)
        assert isinstance(await client.send(1, ASK), MetadataResponse)


@simulated
async def test_sessions_that_expire_at_once_do_not_keep_the_client_busy() -> None:
    """The client authenticates again before a session expires, but at most ten times per second."""
    cluster, broker, options = await started()
    broker.api_versions |= {17: (0, 1), 36: (0, 2)}
    broker.script(SaslHandshakeRequest, *[SaslHandshakeResponse(mechanisms=["PLAIN"])] * 100_000)
    broker.script(SaslAuthenticateRequest, *[SaslAuthenticateResponse(session_lifetime_ms=1)] * 100_000)
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    options |= login | {"sasl_username": "alice", "sasl_password": "secret"}
    async with triokafka.Producer(**options) as producer:
        await (await producer.send("t", b"x"))
        await trio.sleep(10)
        assert 50 < len(broker.seen(SaslAuthenticateRequest)) < 300
        await (await producer.send("t", b"y"))
    assert cluster.values("t") == [b"x", b"y"]


@simulated
async def test_log_lines_about_impossible_metadata_are_short(caplog: pytest.LogCaptureFixture) -> None:
    async with client_of() as (cluster, client):
        broker = cluster.brokers[1]

        def very_many(response: MetadataResponse) -> None:
            response.brokers += [MetadataResponseBroker(node_id=n, host="h", port=0) for n in range(2, 5_000)]
            response.topics[0].partitions *= 2_000

        await client.metadata_for(["orders"])
        broker.script(MetadataRequest, changed(very_many, broker))
        await client.refresh_metadata()
        assert len(caplog.messages) == 2
        assert max(map(len, caplog.messages)) < 2_000
