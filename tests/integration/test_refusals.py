"""Every client of ours names the reason when a listener or a client refuses a connection, without a second attempt."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
import trio
import trustme

import triokafka
from tests.support.refusals import check_command, read_with_spark
from triokafka import blocking
from triokafka.asyncio import AIOKafkaAdminClient, AIOKafkaConsumer, AIOKafkaProducer
from triokafka.asyncio.abc import AbstractTokenProvider
from triokafka.errors import (
    SaslAuthenticationFailedError,
    SecurityProtocolMismatchError,
    TlsAuthenticationError,
    UnsupportedSaslMechanismError,
)
from triokafka.security.sasl.oauthbearer import unsecured_token
from triokafka.testing.blocking import running_broker

pytestmark = pytest.mark.timeout(300)

PATIENCE = 20
"""Seconds after which a client counts as hanging. On an idle machine each refusal takes a few hundredths."""


class Brokers(NamedTuple):
    """Options of clients that four brokers accept, except for the certificates of the last two."""

    secured: dict[str, Any]
    plaintext: dict[str, Any]
    expired: dict[str, Any]
    misnamed: dict[str, Any]


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    authority = trustme.CA()
    yesterday = datetime.now(UTC) - timedelta(days=1)
    with ExitStack() as running:

        def with_certificate(certificate: trustme.LeafCert) -> dict[str, Any]:
            security = {
                "ssl.keystore.certificate.chain": certificate.cert_chain_pems[0].bytes().decode(),
                "ssl.keystore.key": certificate.private_key_pem.bytes().decode(),
                "ssl.truststore.certificates": authority.cert_pem.bytes().decode(),
            }
            options = {"listeners": ("SSL://127.0.0.1:0",), "inter_broker_listener_name": "SSL", "security": security}
            broker = running.enter_context(running_broker(**options))
            return {
                "bootstrap_servers": broker.bootstrap_servers,
                "security_protocol": "SSL",
                "ssl_cafile": security["ssl.truststore.certificates"],
            }

        def with_users(*, tls: bool) -> dict[str, Any]:
            broker = running.enter_context(running_broker(tls=tls, users={"alice": "secret"}))
            return broker.client_options("alice", mechanism="PLAIN")

        yield Brokers(
            with_users(tls=True),
            with_users(tls=False),
            with_certificate(authority.issue_cert("127.0.0.1", not_after=yesterday)),
            with_certificate(authority.issue_cert("elsewhere.example")),
        )


def _token(options: dict[str, Any]) -> dict[str, Any]:
    expired = unsecured_token({"sub": "alice", "exp": 1})
    rest = {name: value for name, value in options.items() if name not in ("sasl_username", "sasl_password")}
    return {**rest, "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": lambda: expired}


CASES: dict[str, tuple[Callable[[Brokers], dict[str, Any]], type[Exception]]] = {
    "wrong password": (lambda to: {**to.secured, "sasl_password": "guess"}, SaslAuthenticationFailedError),
    "expired token": (lambda to: _token(to.secured), SaslAuthenticationFailedError),
    "expired certificate": (lambda to: to.expired, TlsAuthenticationError),
    "foreign certificate": (
        lambda to: {**to.secured, "ssl_cafile": trustme.CA().cert_pem.bytes().decode()},
        TlsAuthenticationError,
    ),
    "wrong host name": (lambda to: to.misnamed, TlsAuthenticationError),
    "plaintext to TLS": (
        lambda to: {**to.secured, "security_protocol": "SASL_PLAINTEXT"},
        SecurityProtocolMismatchError,
    ),
    "TLS to plaintext": (lambda to: {**to.plaintext, "security_protocol": "SASL_SSL"}, SecurityProtocolMismatchError),
}


async def _native_producer(options: dict[str, Any]) -> None:
    async with triokafka.Producer(**options) as producer:
        await (await producer.send("orders", b"v"))


async def _native_consumer(options: dict[str, Any]) -> None:
    async with triokafka.Consumer("orders", **options) as consumer:
        await consumer.poll(timeout_ms=PATIENCE * 1000)


async def _native_admin(options: dict[str, Any]) -> None:
    async with triokafka.AdminClient(**options) as admin:
        await admin.list_topics()


def _blocking_producer(options: dict[str, Any]) -> None:
    blocking.KafkaProducer(**_of_kafka_python(options)).send("orders", b"v").get(PATIENCE)


def _blocking_consumer(options: dict[str, Any]) -> None:
    blocking.KafkaConsumer("orders", **_of_kafka_python(options)).poll(PATIENCE * 1000)


def _blocking_admin(options: dict[str, Any]) -> None:
    blocking.KafkaAdminClient(**_of_kafka_python(options)).list_topics()


def _of_kafka_python(options: dict[str, Any]) -> dict[str, Any]:
    names = {"sasl_username": "sasl_plain_username", "sasl_password": "sasl_plain_password"}
    return {names.get(name, name): value for name, value in options.items()}


def _of_aiokafka(options: dict[str, Any]) -> dict[str, Any]:
    found = _of_kafka_python(options)
    provider = found.pop("sasl_oauth_token_provider", None)
    if provider is not None:

        class Tokens(AbstractTokenProvider):
            async def token(self) -> str:
                return str(provider())

        found["sasl_oauth_token_provider"] = Tokens()
    authority = found.pop("ssl_cafile", None)
    if found["security_protocol"].endswith("SSL"):
        found["ssl_context"] = ssl.create_default_context(cadata=authority)
    return found


async def _aio_producer(options: dict[str, Any]) -> None:
    producer = AIOKafkaProducer(**_of_aiokafka(options))
    try:
        await producer.start()
        await producer.send_and_wait("orders", b"v")
    finally:
        await producer.stop()


async def _aio_consumer(options: dict[str, Any]) -> None:
    consumer = AIOKafkaConsumer("orders", **_of_aiokafka(options))
    try:
        await consumer.start()
        await consumer.getone()
    finally:
        await consumer.stop()


async def _aio_admin(options: dict[str, Any]) -> None:
    admin = AIOKafkaAdminClient(**_of_aiokafka(options))
    try:
        await admin.start()
        await admin.list_topics()
    finally:
        await admin.close()


CLIENTS: dict[str, Callable[[dict[str, Any]], object]] = {
    "native producer": lambda options: trio.run(_native_producer, options),
    "native consumer": lambda options: trio.run(_native_consumer, options),
    "native admin": lambda options: trio.run(_native_admin, options),
    "blocking producer": _blocking_producer,
    "blocking consumer": _blocking_consumer,
    "blocking admin": _blocking_admin,
    "asyncio producer": lambda options: asyncio.run(_aio_producer(options)),
    "asyncio consumer": lambda options: asyncio.run(_aio_consumer(options)),
    "asyncio admin": lambda options: asyncio.run(_aio_admin(options)),
    "Spark": read_with_spark,
}


@pytest.mark.parametrize("case", CASES)
def test_every_client_names_a_refusal_at_once(brokers: Brokers, case: str) -> None:
    options, expected = CASES[case]
    for name, use in CLIENTS.items():
        began = time.monotonic()
        with pytest.raises(Exception) as raised:
            use(options(brokers))
        seconds = time.monotonic() - began
        print(f"{case}: {name}: {type(raised.value).__name__} after {seconds:.3f} s")
        assert seconds < PATIENCE / 2
        chain = [raised.value, raised.value.__cause__]
        assert any(isinstance(one, expected) for one in chain), (name, raised.value)


SENTENCES = {
    "wrong password": "Invalid username or password",
    "expired token": "expired",
    "expired certificate": "certificate has expired",
    "foreign certificate": "self-signed certificate in certificate chain",
    "wrong host name": "127.0.0.1",
    "plaintext to TLS": "SASL_SSL",
    "TLS to plaintext": "SASL_PLAINTEXT",
}


@pytest.mark.parametrize("case", CASES)
def test_command_ends_with_the_reason_of_the_refusal(brokers: Brokers, case: str) -> None:
    check_command(CASES[case][0](brokers), SENTENCES[case])


def test_mechanism_that_a_listener_does_not_offer_is_named_by_every_client() -> None:
    jaas = 'PlainLoginModule required user_alice="secret" username="alice" password="secret";'
    options: dict[str, Any] = {
        "listeners": ("SASL_PLAINTEXT://127.0.0.1:0",),
        "inter_broker_listener_name": "SASL_PLAINTEXT",
        "security": {
            "sasl.enabled.mechanisms": "PLAIN",
            "plain.sasl.jaas.config": jaas,
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
        },
    }
    with running_broker(**options) as broker:
        login = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "alice", "sasl_password": "secret"}
        given = {"bootstrap_servers": broker.bootstrap_servers, "security_protocol": "SASL_PLAINTEXT", **login}
        for name, use in CLIENTS.items():
            with pytest.raises(Exception) as raised:
                use(given)
            chain = [raised.value, raised.value.__cause__]
            assert any(isinstance(one, UnsupportedSaslMechanismError) for one in chain), (name, raised.value)
        check_command(given, "SCRAM-SHA-256")
