"""Writes the table of clients, mechanisms and brokers into ``docs/security.md``: accepted and refused logins.

``python -m tests.interop.security_table`` runs every combination against our broker and an Apache Kafka with the same
configuration: each client sends a record with the right login, and must be refused with a wrong one. Besides the JVM
peers it needs Go (franz-go), and for GSSAPI the output of `tests.support.kerberos_setup`.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from tests.interop import franz_client, java_client, jvm, kerberos_clients, token_clients
from tests.interop.test_security import MECHANISMS, MODULES, login
from tests.support.broker_process import BrokerProcess
from tests.support.kdc import running_kdc
from tests.support.login_clients import BY_PASSWORD, USER, WRONG_PASSWORD, Address, NotBuiltError, Use
from triokafka.blocking import KafkaAdminClient
from triokafka.blocking.admin import UserScramCredentialUpsertion
from triokafka.cli.cluster.free_ports import free_ports

_PASSWORD: Final = "secret"
_PAGE: Final = Path(__file__).parents[2] / "docs" / "security.md"
_BEGIN, _END = "<!-- logins: python -m tests.interop.security_table -->", "<!-- logins end -->"
_AT_ONCE: Final = 3
"""Clients that run at the same time, some of them JVMs."""
_OAUTH_MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def java(address: Address, mechanism: str, password: str) -> None:
    """Log in with Kafka's tool for topics, which uses the Java client."""
    java_client.list_topics(address, mechanism, password, sasl_jaas_config=login(mechanism, password))


_BY_PASSWORD: Final[Mapping[str, Use]] = {
    **BY_PASSWORD,
    "Java": java,
    "franz-go": franz_client.by_password,
}
_CLIENTS: Final[Mapping[str, Mapping[str, Use]]] = {
    **dict.fromkeys(MECHANISMS, _BY_PASSWORD),
    "OAUTHBEARER": {**token_clients.CLIENTS, "franz-go": franz_client.by_token},
    "GSSAPI": kerberos_clients.CLIENTS,
}


class Setting(NamedTuple):
    """The ports of a broker, and its properties, which both brokers accept."""

    plaintext: int
    sasl_plaintext: int
    sasl_tls: int
    properties: dict[str, str]
    authority: str

    def listeners(self, authority: Path) -> list[Address]:
        """Return the listeners with SASL."""
        return [
            Address(f"localhost:{self.sasl_plaintext}", "SASL_PLAINTEXT", authority),
            Address(f"localhost:{self.sasl_tls}", "SASL_SSL", authority),
        ]


def setting(directory: Path) -> Setting:
    """Create a certificate, choose free ports, and return a broker's properties with every mechanism."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)  # Kafka reads PKCS #8
    store = directory / "server.pem"
    store.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        + b"".join(one.bytes() for one in certificate.cert_chain_pems)
    )
    plaintext, sasl_plaintext, sasl_tls = free_ports(3)
    logins = {
        "plain": f'{MODULES["PLAIN"]} required user_{USER}="{_PASSWORD}";',
        "scram-sha-256": f"{MODULES['SCRAM-SHA-256']} required;",
        "scram-sha-512": f"{MODULES['SCRAM-SHA-512']} required;",
        "oauthbearer": f'{_OAUTH_MODULE} required unsecuredLoginStringClaim_sub="broker";',
        "gssapi": kerberos_clients.login(directory, "broker", "kafka/localhost"),
    }
    given = {
        "listeners": f"PLAINTEXT://127.0.0.1:{plaintext},OPEN://127.0.0.1:{sasl_plaintext},SECURE://127.0.0.1:{sasl_tls}",
        # The principal of the service has the host name to which clients connect.
        "advertised.listeners": (
            f"PLAINTEXT://127.0.0.1:{plaintext},OPEN://localhost:{sasl_plaintext},SECURE://localhost:{sasl_tls}"
        ),
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OPEN:SASL_PLAINTEXT,SECURE:SASL_SSL"
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "sasl.enabled.mechanisms": ",".join(_CLIENTS),
        "sasl.kerberos.service.name": "kafka",
        "auto.create.topics.enable": "true",
        **{
            f"listener.name.{listener}.{mechanism}.sasl.jaas.config": text
            for listener in ("open", "secure")
            for mechanism, text in logins.items()
        },
    }
    return Setting(plaintext, sasl_plaintext, sasl_tls, given, authority.cert_pem.bytes().decode())


@contextmanager
def _ours(directory: Path, given: Setting) -> Iterator[None]:
    config = directory / "ours.properties"
    config.write_text("".join(f"{name}={value}\n" for name, value in given.properties.items()))
    broker = BrokerProcess(None, config=config, logs_to=directory / "ours.log")
    try:
        broker.start()
        yield
    finally:
        broker.close()


@contextmanager
def _apache_kafka(directory: Path, given: Setting) -> Iterator[None]:
    (controller,) = free_ports(1)
    settings = {
        **given.properties,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": f"{given.properties['listeners']},CONTROLLER://127.0.0.1:{controller}",
    }
    with jvm.apache_kafka(directory, port=given.plaintext, **settings):
        yield


_BROKERS: Final = {"triokafka": _ours, "Apache Kafka 4.3": _apache_kafka}


def _outcome(use: Use, listener: Address, mechanism: str) -> str:
    try:
        use(listener, mechanism, _PASSWORD)
    except NotBuiltError:
        return "not built with it"
    except Exception as error:
        print(f"{mechanism} at {listener.protocol}: {use}: {error!r}", flush=True)
        return f"fails: {type(error).__name__}"
    try:
        use(listener, mechanism, WRONG_PASSWORD)
    except PermissionError:
        return "yes"
    except Exception as error:
        print(f"{mechanism} at {listener.protocol}: {use}: wrong login: {error!r}", flush=True)
        return f"yes; wrong login: {type(error).__name__}"
    return "accepts a wrong login"


def rows(directory: Path) -> list[list[str]]:
    """Run every combination; return the cells."""
    found: list[list[str]] = []
    authority = directory / "authority.pem"
    for name, run in _BROKERS.items():
        given = setting(directory)
        authority.write_text(given.authority)
        with run(directory, given):
            admin = KafkaAdminClient(bootstrap_servers=f"127.0.0.1:{given.plaintext}")
            for mechanism in MECHANISMS[1:]:
                admin.alter_user_scram_credentials([UserScramCredentialUpsertion(USER, mechanism, _PASSWORD)])
            admin.close()
            for listener in given.listeners(authority):
                tls = "yes" if listener.protocol == "SASL_SSL" else "no"
                with ThreadPoolExecutor(_AT_ONCE) as threads:
                    asked = {
                        mechanism: [threads.submit(_outcome, use, listener, mechanism) for use in clients.values()]
                        for mechanism, clients in _CLIENTS.items()
                    }
                for mechanism, outcomes in asked.items():
                    found.append([name, tls, mechanism, *(outcome.result() for outcome in outcomes)])
                    print(*found[-1], sep=" | ", flush=True)
    return found


def main() -> None:
    """Write the table into the page."""
    franz_client.program()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with running_kdc(directory) as kdc:
            kerberos_clients.prepare(kdc, directory)
            os.environ["JAVA_TOOL_OPTIONS"] = f"-Djava.security.krb5.conf={kdc.config}"
            found = rows(directory)
    head = ["broker", "TLS", "mechanism", *_BY_PASSWORD]
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *found)]
    text = _PAGE.read_text()
    table = "\n".join((_BEGIN, "", *lines, "", _END))
    _PAGE.write_text(re.sub(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", lambda _: table, text, flags=re.DOTALL))


if __name__ == "__main__":
    main()
