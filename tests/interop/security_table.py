"""Writes the table of clients, mechanisms and brokers into ``docs/security.md``: what logs in, and what is refused.

``python -m tests.interop.security_table`` runs every combination against a broker of ours and an Apache Kafka: each
client sends a record with the right password, and must be refused with a wrong one. OAUTHBEARER, with unsecured tokens,
runs against our broker only.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.integration.test_security_clients import aiokafka, confluent, kafka_python
from tests.interop import jvm, token_clients
from tests.interop.test_security import MECHANISMS, TOPICS, USER, login, properties, secured_kafka
from triokafka.blocking import KafkaProducer
from triokafka.errors import SaslAuthenticationFailedError
from triokafka.testing.blocking import running_broker

_PASSWORD: Final = "secret"
_PAGE: Final = Path(__file__).parents[2] / "docs" / "security.md"
_BEGIN, _END = "<!-- logins: python -m tests.interop.security_table -->", "<!-- logins end -->"


class Listener(NamedTuple):
    """A listener, with the attributes of a test's broker that the clients' functions use."""

    bootstrap_servers: str
    protocol: str
    authority: str

    def client_options(self) -> dict[str, Any]:
        """Return the options without a login."""
        found: dict[str, Any] = {"bootstrap_servers": self.bootstrap_servers, "security_protocol": self.protocol}
        return {**found, "ssl_cafile": self.authority} if self.protocol == "SASL_SSL" else found


def triokafka(listener: Any, authority: Path, mechanism: str, password: str) -> None:
    """Our blocking producer."""
    options = {**listener.client_options(), "sasl_mechanism": mechanism}
    try:
        producer = KafkaProducer(**options, sasl_plain_username=USER, sasl_plain_password=password)
        producer.send("orders", b"triokafka", partition=0).get(20)
        producer.close()
    except SaslAuthenticationFailedError as error:
        raise PermissionError(str(error)) from None


def java(listener: Any, authority: Path, mechanism: str, password: str) -> None:
    """Kafka's tool for topics, which uses the Java client."""
    config = properties(
        authority.with_name(f"{mechanism}.properties"),
        security_protocol=listener.protocol,
        sasl_mechanism=mechanism,
        sasl_jaas_config=login(mechanism, password),
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(authority),
    )
    try:
        jvm.run_java(TOPICS, "--bootstrap-server", listener.bootstrap_servers, "--command-config", config, "--list")
    except AssertionError as error:
        if "SaslAuthenticationException" in str(error):
            raise PermissionError(str(error)) from None
        raise


_CLIENTS: Final[Mapping[str, Callable[[Any, Path, str, str], None]]] = {
    "triokafka": triokafka,
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "Java": java,
}


@contextmanager
def _ours() -> Iterator[list[Listener]]:
    with (
        running_broker(tls=False, users={USER: _PASSWORD}) as plain,
        running_broker(tls=True, users={USER: _PASSWORD}) as tls,
    ):
        authority = tls.client_options()["ssl_cafile"]
        yield [
            Listener(plain.bootstrap_servers, "SASL_PLAINTEXT", authority),
            Listener(tls.bootstrap_servers, "SASL_SSL", authority),
        ]


@contextmanager
def _apache_kafka(directory: Path) -> Iterator[list[Listener]]:
    with secured_kafka(directory, password=_PASSWORD) as kafka:
        yield [
            Listener(kafka.sasl_plaintext, "SASL_PLAINTEXT", kafka.authority),
            Listener(kafka.sasl_tls, "SASL_SSL", kafka.authority),
        ]


def _outcome(use: Callable[[Any, Path, str, str], None], listener: Listener, mechanism: str, authority: Path) -> str:
    try:
        use(listener, authority, mechanism, _PASSWORD)
    except Exception as error:
        return f"fails: {type(error).__name__}"
    try:
        use(listener, authority, mechanism, "guess")
    except PermissionError:
        return "yes"
    except Exception as error:
        return f"yes; wrong password: {type(error).__name__}"
    return "accepts a wrong password"


def rows(directory: Path) -> list[list[str]]:
    """Run every combination; return the cells."""
    found: list[list[str]] = []
    for name, broker in (("triokafka", _ours()), ("Apache Kafka 4.3", _apache_kafka(directory))):
        with broker as listeners:
            for listener in listeners:
                authority = directory / "authority.pem"
                authority.write_text(listener.authority)
                tls = "yes" if listener.protocol == "SASL_SSL" else "no"
                uses = dict.fromkeys(MECHANISMS, _CLIENTS)
                if name == "triokafka":
                    uses["OAUTHBEARER"] = token_clients.CLIENTS
                with ThreadPoolExecutor(len(MECHANISMS) * len(_CLIENTS)) as threads:
                    asked = {
                        mechanism: [
                            threads.submit(_outcome, use, listener, mechanism, authority) for use in clients.values()
                        ]
                        for mechanism, clients in uses.items()
                    }
                for mechanism, outcomes in asked.items():
                    found.append([name, tls, mechanism, *(outcome.result() for outcome in outcomes)])
                    print(*found[-1], sep=" | ", flush=True)
    return found


def main() -> None:
    """Write the table into the page."""
    with tempfile.TemporaryDirectory() as directory:
        found = rows(Path(directory))
    head = ["broker", "TLS", "mechanism", *_CLIENTS]
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *found)]
    text = _PAGE.read_text()
    table = "\n".join((_BEGIN, "", *lines, "", _END))
    _PAGE.write_text(re.sub(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", lambda _: table, text, flags=re.DOTALL))


if __name__ == "__main__":
    main()
