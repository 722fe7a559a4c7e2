"""Brokers that break the rules of SASL, and re-authentication (KIP-368) while requests are in flight."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

import triokafka
from tests.support.sasl_talk import SaslTalk
from tests.support.scripted_broker import SILENCE, ScriptedBroker, ScriptedCluster
from triokafka.errors import (
    AuthenticationError,
    KafkaConnectionError,
    KafkaError,
    SaslAuthenticationFailedError,
    UnsupportedSaslMechanismError,
    UnsupportedVersionError,
)
from triokafka.protocol.api.metadata import MetadataRequest
from triokafka.protocol.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from triokafka.protocol.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from triokafka.protocol.frames import decode_response, encode_request
from triokafka.security.sasl.oauthbearer import unsecured_token
from triokafka.testing import running_broker
from triokafka.testing.broker import RunningBroker
from triokafka.world.system import RealWorld

pytestmark = pytest.mark.timeout(120)
SCRAM = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "alice"}


@asynccontextmanager
async def scripted() -> AsyncIterator[ScriptedBroker]:
    """Run a broker on a real socket that offers every mechanism; the test scripts its tokens."""
    cluster = ScriptedCluster(orders=1)
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery, RealWorld())
        broker = cluster.brokers[1]
        broker.api_versions |= {17: (0, 1), 36: (0, 2)}
        yield broker
        broker.stop()
        nursery.cancel_scope.cancel()


async def error_of(broker: ScriptedBroker, **options: Any) -> Exception:
    """Return the error of a client's first call."""
    given = {**SCRAM, "sasl_password": "secret", "bootstrap_servers": broker.address, **options}
    with trio.fail_after(60), pytest.raises(KafkaError) as raised:
        async with triokafka.AdminClient(**given) as admin:
            await admin.list_topics()
    return raised.value


def nonce_of(request: SaslAuthenticateRequest) -> str:
    return bytes(request.auth_bytes).decode().partition("r=")[2].partition(",")[0]


def first(text: str) -> Callable[[SaslAuthenticateRequest], SaslAuthenticateResponse]:
    """Return a script that responds with this text; ``NONCE`` stands for the client's nonce."""
    return lambda request: SaslAuthenticateResponse(auth_bytes=text.replace("NONCE", nonce_of(request)).encode())


GOOD_FIRST = "r=NONCEserver,s=c2FsdA==,i=4096"
TALKS: dict[str, tuple[list[str], str]] = {
    "huge iteration count": (["r=NONCEserver,s=c2FsdA==,i=2000000000"], "asks for 2000000000 SCRAM iterations"),
    "endless iteration count": (["r=NONCEserver,s=c2FsdA==,i=" + "9" * 40], "first SCRAM message is invalid"),
    "one iteration": (["r=NONCEserver,s=c2FsdA==,i=1"], "asks for 1 SCRAM iterations"),
    "foreign nonce": (["r=server,s=c2FsdA==,i=4096"], "does not continue the client's"),
    "nonce not extended": (["r=NONCE,s=c2FsdA==,i=4096"], "does not continue the client's"),
    "truncated first message": (["r=NONCEserver,s=c2FsdA=="], "first SCRAM message is invalid"),
    "empty first message": ([""], "first SCRAM message is invalid"),
    "success without a proof": (["v=AAAA"], "first SCRAM message is invalid"),
    "large first message": (["r=NONCEserver,s=" + "AAAA" * 50_000 + ",i=4096"], "allowed are 65536"),
    "wrong signature": ([GOOD_FIRST, "v=" + base64.b64encode(bytes(32)).decode()], "may be an impostor"),
    "truncated signature": ([GOOD_FIRST, "v="], "may be an impostor"),
    "empty final message": ([GOOD_FIRST, ""], "may be an impostor"),
    "another challenge": ([GOOD_FIRST, GOOD_FIRST], "may be an impostor"),
    "SCRAM error": ([GOOD_FIRST, "e=other-error"], "refused the SCRAM proof: other-error"),
}


@pytest.mark.parametrize("talk", TALKS)
async def test_client_names_the_error_of_a_scram_server(talk: str) -> None:
    texts, words = TALKS[talk]
    async with scripted() as broker:
        for _ in range(3):  # for clients that retry
            broker.script(SaslHandshakeRequest, SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"]))
            broker.script(SaslAuthenticateRequest, *map(first, texts))
        error = await error_of(broker)
        assert isinstance(error, SaslAuthenticationFailedError)
        assert words in str(error)
        assert len(broker.seen(SaslHandshakeRequest)) == 1
        assert len(broker.seen(SaslAuthenticateRequest)) == len(texts)


async def test_client_ends_an_endless_exchange_of_challenges() -> None:
    async with scripted() as broker:
        broker.script(SaslHandshakeRequest, SaslHandshakeResponse(mechanisms=["OAUTHBEARER"]))
        broker.script(SaslAuthenticateRequest, *[SaslAuthenticateResponse(auth_bytes=b'{"status":"x"}')] * 100)
        token = unsecured_token({"sub": "alice", "exp": 1 << 40})
        options = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": lambda: token}
        error = await error_of(broker, sasl_username=None, sasl_password=None, **options)
        assert isinstance(error, AuthenticationError)
        assert len(broker.seen(SaslAuthenticateRequest)) <= 16


async def test_client_never_falls_back_to_a_weaker_mechanism() -> None:
    async with scripted() as broker:
        broker.script(SaslHandshakeRequest, SaslHandshakeResponse(error_code=33, mechanisms=["PLAIN"]))
        error = await error_of(broker)
        assert isinstance(error, UnsupportedSaslMechanismError)
        assert "it offers PLAIN" in str(error)
        assert not broker.seen(SaslAuthenticateRequest)


async def test_client_never_falls_back_to_bare_tokens() -> None:
    """The broker claims to be older than Kafka 1.0."""
    async with scripted() as broker:
        del broker.api_versions[36]
        assert isinstance(await error_of(broker), UnsupportedVersionError)
        assert not broker.seen(SaslHandshakeRequest)


async def test_client_gives_up_on_a_silent_broker() -> None:
    async with scripted() as broker:
        for _ in range(50):
            broker.script(SaslHandshakeRequest, SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"]))
            broker.script(SaslAuthenticateRequest, SILENCE)
        error = await error_of(broker, request_timeout_ms=300, default_api_timeout_ms=1000)
        assert isinstance(error, KafkaConnectionError)
        assert "did not answer SaslAuthenticateRequest within" in str(error)


@asynccontextmanager
async def short_sessions(lifetime_ms: int) -> AsyncIterator[RunningBroker]:
    """Run a broker whose sessions expire, with the users alice and bob."""
    jaas = 'PlainLoginModule required username="alice" password="secret" user_alice="secret" user_bob="other";'
    async with running_broker(
        listeners=("SASL_PLAINTEXT://127.0.0.1:0",),
        inter_broker_listener_name="SASL_PLAINTEXT",
        connection_failed_authentication_delay_ms=0,
        auto_create_topics_enable=True,
        security={
            "sasl.enabled.mechanisms": "PLAIN",
            "plain.sasl.jaas.config": jaas,
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "connections.max.reauth.ms": str(lifetime_ms),
        },
    ) as broker:
        yield broker


def pipelined(token: bytes) -> bytes:
    """Return requests around a re-authentication, for one write."""
    requests = [
        (MetadataRequest(topics=[]), 9),
        (SaslHandshakeRequest(mechanism="PLAIN"), 1),
        (SaslAuthenticateRequest(auth_bytes=token), 2),
        (MetadataRequest(topics=[]), 9),
    ]
    return b"".join(
        b"".join(encode_request(request, version=version, correlation_id=number, client_id="talk"))
        for number, (request, version) in enumerate(requests)
    )


async def test_broker_responds_in_order_around_a_pipelined_authentication() -> None:
    async with short_sessions(3_600_000) as broker, SaslTalk(broker.bootstrap_servers) as talk:
        assert await talk.log_in("alice", "secret") == 3_600_000
        for _ in range(3):
            await talk.send(pipelined(b"\0alice\0secret"))
            frames = [await talk.frame() for _ in range(4)]
            assert [int.from_bytes(frame[:4], "big") for frame in frames if frame is not None] == [0, 1, 2, 3]
            assert frames[2] is not None
            answer = decode_response(SaslAuthenticateResponse, frames[2], version=2)[1]
            assert (answer.error_code, answer.session_lifetime_ms) == (0, 3_600_000)


@pytest.mark.parametrize("token", [b"\0alice\0guess", b"\0bob\0other"], ids=["wrong password", "another user"])
async def test_broker_closes_a_connection_whose_pipelined_authentication_fails(token: bytes) -> None:
    """Earlier requests are executed; later ones are not."""
    async with short_sessions(3_600_000) as broker, SaslTalk(broker.bootstrap_servers) as talk:
        await talk.log_in("alice", "secret")
        await talk.send(pipelined(token))
        frames = [await talk.frame() for _ in range(4)]
        assert frames[3] is None and frames[2] is not None
        assert decode_response(SaslAuthenticateResponse, frames[2], version=2)[1].error_code == 58


async def test_failing_authentication_names_the_reason_to_every_waiting_call() -> None:
    """The password changes while a producer runs; acknowledged records are in the log, once."""
    words = ["secret"]
    async with short_sessions(600) as broker:
        options: dict[str, Any] = {
            "bootstrap_servers": broker.bootstrap_servers,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_username": "alice",
            "sasl_password": lambda: words[-1],
        }
        acknowledged = 0
        with trio.fail_after(60), pytest.raises(SaslAuthenticationFailedError, match="Invalid username or password"):
            async with triokafka.Producer(**options, linger_ms=0) as producer:
                while True:
                    deliveries = [await producer.send("orders", b"v", partition=0) for _ in range(20)]
                    for delivery in deliveries:
                        await delivery
                        acknowledged += 1
                    words.append("guess")
        assert acknowledged >= 20
        async with triokafka.AdminClient(**options | {"sasl_password": "secret"}) as admin:
            end = await admin.list_offsets({triokafka.TopicPartition("orders", 0): -1})
        assert next(iter(end.values())).offset >= acknowledged
