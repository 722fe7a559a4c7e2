"""Third-party clients log in to the broker: every mechanism that they have, with and without TLS, and refusals."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from triokafka.testing.blocking import BlockingBroker, running_broker

USERS = {"alice": "secret"}
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def confluent(broker: BlockingBroker, authority: Path, mechanism: str, password: str) -> None:
    from confluent_kafka import KafkaException, Producer

    options = broker.client_options()
    failures: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": options["security_protocol"],
            "ssl.ca.location": str(authority),
            "sasl.mechanisms": mechanism,
            "sasl.username": "alice",
            "sasl.password": password,
            "error_cb": lambda error: failures.append(error.name()),
            "log_level": 0,
        }
    )
    delivered: list[Any] = []
    producer.produce("orders", b"confluent", partition=0, on_delivery=lambda error, message: delivered.append(error))
    for _ in range(300):
        if delivered or "_AUTHENTICATION" in failures:
            break
        producer.poll(0.1)
    if "_AUTHENTICATION" in failures:
        producer.purge()
        producer.poll(0)
        raise PermissionError("_AUTHENTICATION")
    assert delivered == [None], KafkaException


def kafka_python(broker: BlockingBroker, authority: Path, mechanism: str, password: str) -> None:
    from kafka import KafkaProducer
    from kafka.errors import KafkaTimeoutError, SaslAuthenticationFailedError

    options = broker.client_options()
    try:
        producer = KafkaProducer(
            bootstrap_servers=broker.bootstrap_servers,
            security_protocol=options["security_protocol"],
            ssl_cafile=str(authority) if "ssl_cafile" in options else None,
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password=password,
            bootstrap_timeout_ms=20_000 if password == "secret" else 1_000,
        )
        producer.send("orders", b"kafka-python", partition=0).get(20)
        producer.close()
    except (SaslAuthenticationFailedError, KafkaTimeoutError) as error:
        raise PermissionError(str(error)) from None


def aiokafka(broker: BlockingBroker, authority: Path, mechanism: str, password: str) -> None:
    import asyncio

    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaConnectionError

    options = broker.client_options()

    async def produce() -> None:
        context = ssl.create_default_context(cafile=str(authority)) if "ssl_cafile" in options else None
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers,
            security_protocol=options["security_protocol"],
            ssl_context=context,
            sasl_mechanism=mechanism,
            sasl_plain_username="alice",
            sasl_plain_password=password,
        )
        try:
            await producer.start()
            await producer.send_and_wait("orders", b"aiokafka", partition=0)
        except KafkaConnectionError as error:
            raise PermissionError(str(error)) from None
        finally:
            await producer.stop()

    asyncio.run(produce())


CLIENTS = [confluent, kafka_python, aiokafka]


@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
def test_clients_log_in_with_every_mechanism_and_are_refused_with_a_wrong_password(tls: bool, tmp_path: Path) -> None:
    with running_broker(tls=tls, users=USERS, auto_create_topics_enable=True) as broker:
        authority = tmp_path / "ca.pem"
        authority.write_text(broker.client_options().get("ssl_cafile", ""))
        for client in CLIENTS:
            for mechanism in MECHANISMS:
                client(broker, authority, mechanism, "secret")
            with pytest.raises(PermissionError):
                client(broker, authority, "SCRAM-SHA-256", "guess")
