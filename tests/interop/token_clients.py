"""Clients that log in by OAUTHBEARER with an unsecured token, for the table of logins."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.interop import jvm
from triokafka.blocking import KafkaProducer
from triokafka.errors import SaslAuthenticationFailedError
from triokafka.security.sasl.oauthbearer import unsecured_token

_USER: Final = "alice"
_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_FUTURE: Final = 4_000_000_000


def token(password: str) -> str:
    """Return a token of the user. A wrong password is a token without a subject: brokers refuse it, not clients."""
    return unsecured_token({"iat": 1, "exp": _FUTURE} | ({} if password == "guess" else {"sub": _USER}))


def triokafka(listener: Any, authority: Path, mechanism: str, password: str) -> None:
    """Our blocking producer."""
    options = {**listener.client_options(), "sasl_mechanism": mechanism}
    try:
        producer = KafkaProducer(**options, sasl_oauth_token_provider=lambda: token(password))
        producer.send("orders", b"triokafka", partition=0).get(20)
        producer.close()
    except SaslAuthenticationFailedError as error:
        raise PermissionError(str(error)) from None


def confluent(listener: Any, authority: Path, mechanism: str, password: str) -> None:
    """confluent-kafka's producer."""
    from confluent_kafka import Producer

    failures: list[str] = []
    delivered: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": listener.bootstrap_servers,
            "security.protocol": listener.protocol,
            "ssl.ca.location": str(authority),
            "sasl.mechanisms": mechanism,
            "oauth_cb": lambda config: (token(password), float(_FUTURE)),
            "error_cb": lambda error: failures.append(error.name()),
            "log_level": 0,
        }
    )
    producer.produce("orders", b"confluent", partition=0, on_delivery=lambda error, message: delivered.append(error))
    for _ in range(300):
        if delivered or "_AUTHENTICATION" in failures:
            break
        producer.poll(0.1)
    if "_AUTHENTICATION" in failures:
        producer.purge()
        producer.poll(0)
        raise PermissionError("_AUTHENTICATION")
    assert delivered == [None], failures


def kafka_python(listener: Any, authority: Path, mechanism: str, password: str) -> None:
    """kafka-python's producer."""
    from kafka import KafkaProducer as Theirs
    from kafka.errors import KafkaTimeoutError
    from kafka.errors import SaslAuthenticationFailedError as Refused
    from kafka.net.sasl.oauth import AbstractTokenProvider

    class Tokens(AbstractTokenProvider):
        def token(self) -> str:
            return token(password)

    try:
        producer = Theirs(
            bootstrap_servers=listener.bootstrap_servers,
            security_protocol=listener.protocol,
            ssl_cafile=str(authority) if listener.protocol == "SASL_SSL" else None,
            sasl_mechanism=mechanism,
            sasl_oauth_token_provider=Tokens(),
            bootstrap_timeout_ms=1_000 if password == "guess" else 20_000,
        )
        producer.send("orders", b"kafka-python", partition=0).get(20)
        producer.close()
    except (Refused, KafkaTimeoutError) as error:
        raise PermissionError(str(error)) from None


def aiokafka(listener: Any, authority: Path, mechanism: str, password: str) -> None:
    """aiokafka's producer."""
    from aiokafka import AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider
    from aiokafka.errors import KafkaConnectionError

    class Tokens(AbstractTokenProvider):
        async def token(self) -> str:
            return token(password)

    async def produce() -> None:
        tls = listener.protocol == "SASL_SSL"
        producer = AIOKafkaProducer(
            bootstrap_servers=listener.bootstrap_servers,
            security_protocol=listener.protocol,
            ssl_context=ssl.create_default_context(cafile=str(authority)) if tls else None,
            sasl_mechanism=mechanism,
            sasl_oauth_token_provider=Tokens(),
        )
        try:
            await producer.start()
            await producer.send_and_wait("orders", b"aiokafka", partition=0)
        except KafkaConnectionError as error:
            raise PermissionError(str(error)) from None
        finally:
            await producer.stop()

    asyncio.run(produce())


def java(listener: Any, authority: Path, mechanism: str, password: str) -> None:
    """Kafka's tool for topics; a wrong token has its name in another claim than the subject."""
    from tests.interop.test_security import TOPICS, properties

    name = "" if password == "guess" else _USER
    good = f'unsecuredLoginStringClaim_sub="{name}"'
    claim = good if name else 'unsecuredLoginPrincipalClaimName="who" unsecuredLoginStringClaim_who="x"'
    config = properties(
        authority.with_name(f"{mechanism}-{listener.protocol}-{bool(name)}.properties"),
        security_protocol=listener.protocol,
        sasl_mechanism=mechanism,
        sasl_jaas_config=f"{_MODULE} required {claim};",
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(authority),
    )
    try:
        jvm.run_java(TOPICS, "--bootstrap-server", listener.bootstrap_servers, "--command-config", config, "--list")
    except AssertionError as error:
        if "SaslAuthenticationException" in str(error):
            raise PermissionError(str(error)) from None
        raise


CLIENTS: Final[Mapping[str, Callable[[Any, Path, str, str], None]]] = {
    "triokafka": triokafka,
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "Java": java,
}
