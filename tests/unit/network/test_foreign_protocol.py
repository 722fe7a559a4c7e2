"""Servers that are not Kafka listeners, and the error messages about them."""

from __future__ import annotations

import pytest
import trio

from tests.support.simulated import current_simulation, simulated
from triokafka.errors import KafkaConnectionError, KafkaTimeoutError, SecurityProtocolMismatchError
from triokafka.network.config import NetworkConfig
from triokafka.network.foreign_protocol import describe_foreign_protocol
from triokafka.network.network_client import NetworkClient
from triokafka.protocol.api.metadata import MetadataRequest

STRANGERS = [
    (b"HTTP/1.1 400 Bad Request\r\nServer: x\r\n\r\n", r"'HTTP/1\.1 400 Bad Request': that is a web server"),
    (b"\x15\x03\x01\x00\x02\x02\x46", "TLS alert: this listener expects TLS"),
    (b"\x15\x03\x03\x00\x02\x02\x28", "TLS alert: this listener expects TLS"),
    (b"SSH-2.0-OpenSSH_9.6\r\n", r"'SSH-2\.0-OpenSSH_9\.6': that is an SSH server"),
    (b"-ERR unknown command\r\n", "'-ERR unknown command', which is not Kafka's protocol"),
    (b"220 mail.example ESMTP\r\n", r"'220 mail\.example ESMTP', which is not Kafka's protocol"),
]


@pytest.mark.parametrize(("banner", "message"), STRANGERS)
@simulated
async def test_error_names_the_protocol_of_the_other_server(banner: bytes, message: str) -> None:
    simulation = current_simulation()
    listener = await simulation.host("other-server").world.listen("127.0.0.1", 0)

    async def serve() -> None:
        while True:
            stream = await listener.accept()
            await stream.receive_into(memoryview(bytearray(1000)))
            await stream.send(banner)

    simulation.nursery.start_soon(serve)
    config = NetworkConfig(bootstrap_servers=[listener.address], receive_message_max_bytes=2**31 - 1)
    async with NetworkClient(config, world=simulation.host("client").world) as client:
        with pytest.raises((KafkaConnectionError, SecurityProtocolMismatchError), match=message):
            await client.send(-1, MetadataRequest(topics=[]))
        with pytest.raises((KafkaTimeoutError, SecurityProtocolMismatchError), match=message):
            await client.refresh_metadata(timeout_ms=500)


@simulated
async def test_error_suggests_tls_or_sasl_when_the_server_closes_without_a_response() -> None:
    simulation = current_simulation()
    listener = await simulation.host("other-server").world.listen("127.0.0.1", 0)

    async def serve() -> None:
        while True:
            stream = await listener.accept()
            await stream.receive_into(memoryview(bytearray(1000)))
            stream.close()

    simulation.nursery.start_soon(serve)
    config = NetworkConfig(bootstrap_servers=[listener.address])
    async with NetworkClient(config, world=simulation.host("client").world) as client:
        with pytest.raises(KafkaConnectionError, match=r"closed the connection before.*expect TLS or SASL"):
            await client.send(-1, MetadataRequest(topics=[]))


@simulated
async def test_silent_server_is_abandoned_after_the_request_timeout() -> None:
    simulation = current_simulation()
    listener = await simulation.host("other-server").world.listen("127.0.0.1", 0)
    config = NetworkConfig(bootstrap_servers=[listener.address], request_timeout_ms=2000)
    async with NetworkClient(config, world=simulation.host("client").world) as client:
        started = trio.current_time()
        with pytest.raises(KafkaConnectionError, match=r"did not answer.*expect TLS\? Is it a Kafka listener"):
            await client.send(-1, MetadataRequest(topics=[]), timeout_ms=10_000)
        assert trio.current_time() - started == pytest.approx(2, abs=0.1)


@pytest.mark.parametrize("first", [b"\x00\x00\x00\x2a\x00\x00\x00\x00", b"", b"\x00", b"\x00\x10\x00\x00HTTP"])
def test_bytes_that_may_be_kafka_are_not_taken_for_another_protocol(first: bytes) -> None:
    assert describe_foreign_protocol(first) is None
