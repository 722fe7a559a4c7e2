"""Producers of ours and of other Python libraries that log in and send one record, for tests of logins.

Each takes an `Address`, the mechanism, and the credentials under the option names of its own library. A refused login
raises `PermissionError`, whatever the library's own exception is.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

USER: Final = "alice"
WRONG_PASSWORD: Final = "guess"
TOPIC: Final = "orders"
_SECONDS: Final = 20
_PATIENCE_MS: Final = 20_000


class NotBuiltError(Exception):
    """The client is built without the mechanism."""


class Address(NamedTuple):
    """A listener with SASL, and the file with the authority that signed its certificate."""

    bootstrap_servers: str
    protocol: str
    authority: Path

    @property
    def tls(self) -> bool:
        """Whether the listener uses TLS."""
        return self.protocol == "SASL_SSL"


Use = Callable[[Address, str, str], None]
"""Logs in at an address with a mechanism and a password, and sends a record or asks something."""


def triokafka(address: Address, mechanism: str, **login: Any) -> None:
    """Send with our blocking producer."""
    from triokafka.blocking import KafkaProducer
    from triokafka.errors import SaslAuthenticationFailedError

    options: dict[str, Any] = {"ssl_cafile": str(address.authority)} if address.tls else {}
    try:
        producer = KafkaProducer(
            bootstrap_servers=address.bootstrap_servers,
            security_protocol=address.protocol,
            sasl_mechanism=mechanism,
            **options,
            **login,
        )
        producer.send(TOPIC, b"triokafka", partition=0).get(_SECONDS)
        producer.close()
    except SaslAuthenticationFailedError as error:
        raise PermissionError(str(error)) from None


def confluent(address: Address, mechanism: str, **login: Any) -> None:
    """Send with confluent-kafka's producer."""
    from confluent_kafka import KafkaException, Producer

    failures: list[str] = []
    delivered: list[Any] = []
    settings = {
        "bootstrap.servers": address.bootstrap_servers,
        "security.protocol": address.protocol,
        "sasl.mechanisms": mechanism,
        "error_cb": lambda error: failures.append(error.name()),
        "log_level": 0,
        **({"ssl.ca.location": str(address.authority)} if address.tls else {}),
        **login,
    }
    try:
        producer = Producer(settings)
    except KafkaException as error:
        raise NotBuiltError(str(error)) from None
    producer.produce(TOPIC, b"confluent", partition=0, on_delivery=lambda error, message: delivered.append(error))
    for _ in range(10 * (_SECONDS + 10)):
        if delivered or "_AUTHENTICATION" in failures:
            break
        producer.poll(0.1)
    if "_AUTHENTICATION" in failures:
        producer.purge()
        producer.poll(0)
        raise PermissionError("_AUTHENTICATION")
    assert delivered == [None], failures


def kafka_python(address: Address, mechanism: str, *, patience_ms: int = _PATIENCE_MS, **login: Any) -> None:
    """Send with kafka-python's producer. If it still retries after ``patience_ms``, the login counts as refused."""
    from kafka import KafkaProducer
    from kafka.errors import KafkaTimeoutError, SaslAuthenticationFailedError

    try:
        producer = KafkaProducer(
            bootstrap_servers=address.bootstrap_servers,
            security_protocol=address.protocol,
            ssl_cafile=str(address.authority) if address.tls else None,
            sasl_mechanism=mechanism,
            bootstrap_timeout_ms=patience_ms,
            **login,
        )
        producer.send(TOPIC, b"kafka-python", partition=0).get(_SECONDS)
        producer.close()
    except (SaslAuthenticationFailedError, KafkaTimeoutError) as error:
        raise PermissionError(str(error)) from None


def aiokafka(address: Address, mechanism: str, **login: Any) -> None:
    """Send with aiokafka's producer."""
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaConnectionError

    async def produce() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=address.bootstrap_servers,
            security_protocol=address.protocol,
            ssl_context=ssl.create_default_context(cafile=str(address.authority)) if address.tls else None,
            sasl_mechanism=mechanism,
            **login,
        )
        try:
            await producer.start()
            await producer.send_and_wait(TOPIC, b"aiokafka", partition=0)
        except KafkaConnectionError as error:
            raise PermissionError(str(error)) from None
        finally:
            await producer.stop()

    asyncio.run(produce())


def _confluent_by_password(address: Address, mechanism: str, password: str) -> None:
    confluent(address, mechanism, **{"sasl.username": USER, "sasl.password": password})


def _kafka_python_by_password(address: Address, mechanism: str, password: str) -> None:
    patience_ms = 1_000 if password == WRONG_PASSWORD else _PATIENCE_MS
    kafka_python(address, mechanism, patience_ms=patience_ms, sasl_plain_username=USER, sasl_plain_password=password)


def _by_password(send: Callable[..., None]) -> Use:
    return lambda address, mechanism, password: send(
        address, mechanism, sasl_plain_username=USER, sasl_plain_password=password
    )


BY_PASSWORD: Final[Mapping[str, Use]] = {
    "triokafka": _by_password(triokafka),
    "confluent-kafka": _confluent_by_password,
    "kafka-python": _kafka_python_by_password,
    "aiokafka": _by_password(aiokafka),
}
"""The clients with PLAIN and SCRAM, as the user `USER`."""
