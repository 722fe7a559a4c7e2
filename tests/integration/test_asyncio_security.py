"""The clients of `triokafka.asyncio` take aiokafka's options for TLS and SASL."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import pytest

from tests.support.asyncio_programs import run
from triokafka.asyncio import AIOKafkaConsumer, AIOKafkaProducer
from triokafka.asyncio.abc import AbstractTokenProvider
from triokafka.asyncio.bridge import Bridge, BridgedTokenProvider
from triokafka.asyncio.errors import KafkaConnectionError, SaslAuthenticationFailed
from triokafka.testing.blocking import running_broker


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_clients_log_in_over_tls_and_are_refused_with_a_wrong_password(mechanism: str) -> None:
    with running_broker(tls=True, users={"alice": "secret"}, auto_create_topics_enable=True) as broker:

        async def program(password: str) -> None:
            options: dict[str, Any] = {
                "bootstrap_servers": broker.bootstrap_servers,
                "security_protocol": "SASL_SSL",
                "ssl_context": ssl.create_default_context(cadata=broker.client_options()["ssl_cafile"]),
                "sasl_mechanism": mechanism,
                "sasl_plain_username": "alice",
                "sasl_plain_password": password,
            }
            async with AIOKafkaProducer(**options) as producer:
                await producer.send_and_wait("orders", b"x")
            async with AIOKafkaConsumer("orders", auto_offset_reset="earliest", **options) as consumer:
                assert (await consumer.getone()).value == b"x"

        run(program("secret"))
        with pytest.raises(KafkaConnectionError) as caught:
            run(program("guess"))
        assert isinstance(caught.value.__cause__, SaslAuthenticationFailed)


def test_token_provider_runs_in_the_loop_of_the_program() -> None:
    class Provider(AbstractTokenProvider):
        async def token(self) -> str:
            await asyncio.sleep(0)
            return "token"

    async def program() -> None:
        bridge = Bridge(asyncio.get_running_loop(), 40_000)
        assert await bridge.call(BridgedTokenProvider(bridge, Provider()).token) == "token"

    run(program())


def test_incomplete_or_unknown_options_are_refused() -> None:
    async def program() -> None:
        for options, error in [
            ({"security_protocol": "SSL"}, ValueError),
            ({"security_protocol": "TLS"}, ValueError),
            ({"security_protocol": "SASL_PLAINTEXT"}, ValueError),
            ({"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}, ValueError),
        ]:
            with pytest.raises(error):
                AIOKafkaProducer(**options)  # type: ignore[arg-type]

    run(program())
