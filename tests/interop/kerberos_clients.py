"""Clients that log in by GSSAPI, for the table of logins.

The wrong login has a ticket for another service, whose key the broker has not. Clients in Python run in processes of
their own, because the environment names the tickets.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.interop import franz_client, jvm
from tests.support.kdc import REALM, Kdc

_SERVICE: Final = "kafka"
_REFUSED: Final = 3
_MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
_OTHER_SERVICE: Final = "other"
_USER: Final = "alice"


class NotBuiltError(Exception):
    """The client is built without GSSAPI."""


def prepare(kdc: Kdc, directory: Path) -> None:
    """Make the principals of a broker on ``localhost`` and of the clients, with their keytabs and tickets."""
    kdc.keytab("broker", f"{_SERVICE}/localhost")
    kdc.keytab("other", f"{_OTHER_SERVICE}/localhost")
    keytab = kdc.keytab(_USER, _USER)
    kdc.run("kinit", "-k", "-t", str(keytab), "-c", f"FILE:{directory / _USER}.cache", _USER)


def login(directory: Path, name: str, principal: str) -> str:
    """Return the login text for a keytab."""
    keytab = f'keyTab="{directory / name}.keytab" principal="{principal}@{REALM}"'
    return f"{_MODULE} required useKeyTab=true storeKey=true {keytab};"


def _service(password: str) -> str:
    return _OTHER_SERVICE if password == "guess" else _SERVICE


def _triokafka(servers: str, protocol: str, authority: str, service: str) -> None:
    from triokafka.blocking import KafkaProducer
    from triokafka.errors import SaslAuthenticationFailedError

    options: dict[str, Any] = {"ssl_cafile": authority} if protocol == "SASL_SSL" else {}
    try:
        producer = KafkaProducer(
            bootstrap_servers=servers,
            security_protocol=protocol,
            sasl_mechanism="GSSAPI",
            sasl_kerberos_service_name=service,
            **options,
        )
        producer.send("orders", b"triokafka", partition=0).get(20)
        producer.close()
    except SaslAuthenticationFailedError as error:
        raise PermissionError(str(error)) from None


def _confluent(servers: str, protocol: str, authority: str, service: str) -> None:
    from confluent_kafka import KafkaException, Producer

    settings = {"bootstrap.servers": servers, "security.protocol": protocol, "sasl.mechanisms": "GSSAPI"}
    try:
        Producer(settings)
    except KafkaException as error:
        raise NotBuiltError(str(error)) from None
    raise AssertionError("confluent-kafka has GSSAPI now: send a record with it")


def _kafka_python(servers: str, protocol: str, authority: str, service: str) -> None:
    from kafka import KafkaProducer
    from kafka.errors import KafkaTimeoutError, SaslAuthenticationFailedError

    try:
        producer = KafkaProducer(
            bootstrap_servers=servers,
            security_protocol=protocol,
            ssl_cafile=authority if protocol == "SASL_SSL" else None,
            sasl_mechanism="GSSAPI",
            sasl_kerberos_service_name=service,
            bootstrap_timeout_ms=20_000 if service == _SERVICE else 3_000,
        )
        producer.send("orders", b"kafka-python", partition=0).get(20)
        producer.close()
    except (SaslAuthenticationFailedError, KafkaTimeoutError) as error:
        raise PermissionError(str(error)) from None


def _aiokafka(servers: str, protocol: str, authority: str, service: str) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaConnectionError

    async def produce() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=servers,
            security_protocol=protocol,
            ssl_context=ssl.create_default_context(cafile=authority) if protocol == "SASL_SSL" else None,
            sasl_mechanism="GSSAPI",
            sasl_kerberos_service_name=service,
        )
        try:
            await producer.start()
            await producer.send_and_wait("orders", b"aiokafka", partition=0)
        except KafkaConnectionError as error:
            raise PermissionError(str(error)) from None
        finally:
            await producer.stop()

    asyncio.run(produce())


_PYTHON: Final[Mapping[str, Callable[[str, str, str, str], None]]] = {
    "triokafka": _triokafka,
    "confluent-kafka": _confluent,
    "kafka-python": _kafka_python,
    "aiokafka": _aiokafka,
}


def _process(name: str) -> Callable[[Any, Path, str, str], None]:
    """Return a function that runs a client in a process with the tickets of the login."""

    def use(listener: Any, authority: Path, mechanism: str, password: str) -> None:
        arguments = (listener.bootstrap_servers, listener.protocol, str(authority), _service(password))
        command = [sys.executable, "-m", __name__, name, *arguments]
        environment = {**os.environ, "KRB5CCNAME": f"FILE:{authority.with_name(_USER)}.cache"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        last = done.stderr.strip().rpartition("\n")[2]
        if done.returncode == _REFUSED:
            raise PermissionError(last)
        if done.returncode:
            raise NotBuiltError(last) if NotBuiltError.__name__ in last else RuntimeError(last)

    return use


def _java(listener: Any, authority: Path, mechanism: str, password: str) -> None:
    from tests.interop.test_security import TOPICS, properties

    service = _service(password)
    config = properties(
        authority.with_name(f"{mechanism}-{listener.protocol}-{service}.properties"),
        security_protocol=listener.protocol,
        sasl_mechanism=mechanism,
        sasl_kerberos_service_name=service,
        sasl_jaas_config=login(authority.parent, _USER, _USER),
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(authority),
    )
    try:
        jvm.run_java(TOPICS, "--bootstrap-server", listener.bootstrap_servers, "--command-config", config, "--list")
    except AssertionError as error:
        if "SaslAuthenticationException" in str(error):
            raise PermissionError(str(error)) from None
        raise


def _franz(listener: Any, authority: Path, mechanism: str, password: str) -> None:
    keytab = str(authority.with_name(f"{_USER}.keytab"))
    franz_client.send(listener, authority, mechanism, _USER, keytab, service=_service(password))


CLIENTS: Final[Mapping[str, Callable[[Any, Path, str, str], None]]] = {
    **{name: _process(name) for name in _PYTHON},
    "Java": _java,
    "franz-go": _franz,
}


def main(name: str, *arguments: str) -> int:
    """Run a client; return `_REFUSED` if the broker refuses it."""
    try:
        _PYTHON[name](*arguments)
    except PermissionError as error:
        print(error, file=sys.stderr)
        return _REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
