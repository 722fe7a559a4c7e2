"""TLS and SASL in both directions: Java's clients with our broker, our clients with Apache Kafka."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio
import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

import triokafka
from tests.interop import jvm
from tests.support.refusals import check_command, read_with_spark
from tests.support.waiting import until
from triokafka.blocking import KafkaAdminClient, KafkaConsumer, KafkaProducer
from triokafka.blocking.admin import UserScramCredentialUpsertion
from triokafka.cli.cluster.free_ports import free_ports
from triokafka.errors import (
    AuthenticationError,
    SaslAuthenticationFailedError,
    SecurityProtocolMismatchError,
    TlsAuthenticationError,
    UnsupportedSaslMechanismError,
)
from triokafka.security.sasl.oauthbearer import unsecured_token
from triokafka.testing.blocking import running_broker
from triokafka.world.system import RealWorld

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

USER, PASSWORD = "alice", "s3cret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"


class Secured(NamedTuple):
    """An Apache Kafka with a listener for each security protocol: addresses, and the authority's certificate.

    Two further listeners have TLS with a certificate that has expired, and with one for another host.
    """

    plaintext: str
    tls: str
    sasl_plaintext: str
    sasl_tls: str
    authority: str
    expired: str
    misnamed: str


def properties(path: Path, **values: str) -> str:
    """Write a file of properties for Java, with ``_`` for ``.``, and return its path."""
    path.write_text("".join(f"{name.replace('_', '.')}={value}\n" for name, value in values.items()))
    return str(path)


def login(mechanism: str, password: str) -> str:
    return f'{MODULES[mechanism]} required username="{USER}" password="{password}";'


@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
def test_java_logs_in_to_our_broker_with_every_mechanism(tls: bool, tmp_path: Path) -> None:
    with running_broker(tls=tls, users={USER: PASSWORD}) as broker:
        authority = tmp_path / "ca.pem"
        authority.write_text(broker.client_options().get("ssl_cafile", ""))

        def command(mechanism: str, password: str) -> str:
            return properties(
                tmp_path / f"{mechanism}.properties",
                security_protocol="SASL_SSL" if tls else "SASL_PLAINTEXT",
                sasl_mechanism=mechanism,
                sasl_jaas_config=login(mechanism, password),
                ssl_truststore_type="PEM",
                ssl_truststore_location=str(authority),
            )

        servers = ("--bootstrap-server", broker.bootstrap_servers)
        for mechanism in MECHANISMS:
            arguments = (*servers, "--command-config", command(mechanism, PASSWORD))
            jvm.run_java(TOPICS, *arguments, "--create", "--topic", mechanism.lower())
        listed = jvm.run_java(TOPICS, *servers, "--command-config", command("SCRAM-SHA-512", PASSWORD), "--list")
        assert listed.split() == sorted(mechanism.lower() for mechanism in MECHANISMS)
        with pytest.raises(AssertionError, match="SaslAuthenticationException"):
            jvm.run_java(TOPICS, *servers, "--command-config", command("SCRAM-SHA-256", "guess"), "--list")


def our_tokens(bootstrap: str, config: str, *arguments: str) -> str:
    """Run our command for tokens, and return its output."""
    base = ("--bootstrap-server", bootstrap, "--command-config", config, "--timeout", "60000")
    command = [sys.executable, "-m", "triokafka", "delegation-tokens", *arguments, *base]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done
    return done.stdout


def check_same_tokens(bootstrap: str, config: str) -> None:
    """Check that Kafka's tool and ours print the same for every token of alice: ids, secrets, principals and times."""

    def minute(ms: int) -> str:
        return datetime.fromtimestamp(ms / 1000).astimezone().strftime("%Y-%m-%dT%H:%M")

    owner = ("--owner-principal", f"User:{USER}")
    servers = ("--bootstrap-server", bootstrap, "--command-config", config)
    printed = jvm.run_java(TOKENS, *servers, "--describe", *owner)
    theirs = [line.split() for line in printed.splitlines() if line.count("User:") >= 2]
    times = ("issue_timestamp_ms", "expiry_timestamp_ms", "max_timestamp_ms")
    ours = [
        [one["token_id"], one["hmac"], one["owner"], one["requester"], f"[{', '.join(one['renewers'])}]"]
        + [minute(one[name]) for name in times]
        for one in json.loads(our_tokens(bootstrap, config, "describe", *owner, "--json"))
    ]
    assert theirs == ours and ours


def test_java_manages_tokens_of_our_broker_and_logs_in_with_them(tmp_path: Path) -> None:
    """KIP-48: kafka-delegation-tokens creates, describes, renews and expires; kafka-topics uses a token."""
    with running_broker(users={USER: PASSWORD}, delegation_token_secret_key="a key") as broker:
        servers = ("--bootstrap-server", broker.bootstrap_servers)
        security = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256"}

        def config(name: str, user: str, password: str, more: str = "") -> tuple[str, ...]:
            text = f'{MODULES["SCRAM-SHA-256"]} required username="{user}" password="{password}"{more};'
            path = properties(tmp_path / name, sasl_jaas_config=text, **security)
            return (*servers, "--command-config", path)

        alice = config("alice", USER, PASSWORD)
        created = jvm.run_java(
            TOKENS, *alice, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob"
        )
        token_id, hmac, owner, requester, renewers, *_ = created.splitlines()[-1].split()
        assert (owner, requester, renewers) == (f"User:{USER}", f"User:{USER}", "[User:bob]")
        check_same_tokens(broker.bootstrap_servers, alice[-1])
        with_token = config("token", token_id, hmac, ' tokenauth="true"')
        jvm.run_java(TOPICS, *with_token, "--create", "--topic", "by-token")
        with pytest.raises(AssertionError, match="UnsupportedByAuthenticationException"):
            jvm.run_java(TOKENS, *with_token, "--create", "--max-life-time-period", "-1")
        renewed = jvm.run_java(TOKENS, *alice, "--renew", "--hmac", hmac, "--renew-time-period", "1000000")
        assert "Completed renew operation" in renewed
        # Without an owner, the tool sends an empty list of owners, for which Apache Kafka returns no token either.
        describe = (*alice, "--describe", "--owner-principal", f"User:{USER}")
        assert "Total number of tokens : 1" in jvm.run_java(TOKENS, *describe)
        jvm.run_java(TOKENS, *alice, "--expire", "--hmac", hmac, "--expiry-time-period", "-1")
        assert "Total number of tokens : 0" in jvm.run_java(TOKENS, *describe)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_kafka(tmp_path_factory.mktemp("secured")) as running:
        yield running


def write_store(path: Path, certificate: trustme.LeafCert) -> str:
    """Write key and certificates as Kafka reads them, and return the path."""
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)  # Kafka reads PKCS #8
    content = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(content + b"".join(one.bytes() for one in certificate.cert_chain_pems))
    return str(path)


@contextmanager
def secured_kafka(directory: Path, *, password: str = PASSWORD) -> Iterator[Secured]:
    """Run an Apache Kafka with TLS and SASL, and the user ``alice`` for every mechanism."""
    authority = trustme.CA()
    yesterday = datetime.now(UTC) - timedelta(days=1)
    store = write_store(directory / "server.pem", authority.issue_cert("127.0.0.1"))
    expired_store = write_store(directory / "expired.pem", authority.issue_cert("127.0.0.1", not_after=yesterday))
    misnamed_store = write_store(directory / "misnamed.pem", authority.issue_cert("elsewhere.example"))
    plaintext, tls, sasl_plaintext, sasl_tls, expired, misnamed, controller = free_ports(7)
    addresses = {
        "PLAINTEXT": plaintext, "TLS": tls, "OPEN": sasl_plaintext, "SECURE": sasl_tls,
        "EXPIRED": expired, "MISNAMED": misnamed,
    }  # fmt: skip
    listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in addresses.items())
    settings: dict[str, Any] = {
        "controller_quorum_voters": f"1@127.0.0.1:{controller}",
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised_listeners": listeners,
        "listener_security_protocol_map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,TLS:SSL,OPEN:SASL_PLAINTEXT,SECURE:SASL_SSL,EXPIRED:SSL,MISNAMED:SSL"
        ),
        "inter_broker_listener_name": "PLAINTEXT",
        "ssl_keystore_type": "PEM",
        "ssl_keystore_location": store,
        "listener_name_expired_ssl_keystore_location": expired_store,
        "listener_name_misnamed_ssl_keystore_location": misnamed_store,
        "listener_name_open_sasl_enabled_mechanisms": ",".join((*MECHANISMS, "OAUTHBEARER")),
        "listener_name_open_oauthbearer_sasl_jaas_config": f"{OAUTH_MODULE} required;",
        "sasl_enabled_mechanisms": ",".join(MECHANISMS),
        "connections_max_reauth_ms": "2000",
        "delegation_token_secret_key": "a key",
    }
    for listener in ("open", "secure"):
        accounts = f'{MODULES["PLAIN"]} required user_{USER}="{password}";'
        settings[f"listener_name_{listener}_plain_sasl_jaas_config"] = accounts
        for mechanism in MECHANISMS[1:]:
            name = f"listener_name_{listener}_{mechanism.lower()}_sasl_jaas_config"
            settings[name] = f"{MODULES[mechanism]} required;"
    with jvm.apache_kafka(directory, port=plaintext, **settings) as bootstrap:
        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        for mechanism in MECHANISMS[1:]:
            admin.alter_user_scram_credentials([UserScramCredentialUpsertion(USER, mechanism, password)])
        admin.close()
        servers = {name: f"127.0.0.1:{port}" for name, port in addresses.items()}
        yield Secured(
            bootstrap,
            servers["TLS"],
            servers["OPEN"],
            servers["SECURE"],
            authority.cert_pem.bytes().decode(),
            servers["EXPIRED"],
            servers["MISNAMED"],
        )


def options(kafka: Secured, protocol: str, mechanism: str | None = None, password: str = PASSWORD) -> dict[str, Any]:
    servers = {"SSL": kafka.tls, "SASL_PLAINTEXT": kafka.sasl_plaintext, "SASL_SSL": kafka.sasl_tls}[protocol]
    found: dict[str, Any] = {"bootstrap_servers": servers, "security_protocol": protocol}
    if protocol.endswith("SSL"):
        found["ssl_cafile"] = kafka.authority
    if mechanism is not None:
        found |= {"sasl_mechanism": mechanism, "sasl_plain_username": USER, "sasl_plain_password": password}
    return found


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [("SSL", None), *((protocol, one) for protocol in ("SASL_PLAINTEXT", "SASL_SSL") for one in MECHANISMS)],
)
def test_our_clients_use_apache_kafka(kafka: Secured, protocol: str, mechanism: str | None) -> None:
    topic = f"used-{protocol}-{mechanism}".lower()
    producer = KafkaProducer(**options(kafka, protocol, mechanism))
    for number in range(10):
        producer.send(topic, b"%d" % number, partition=0)
    producer.close()
    consumer = KafkaConsumer(
        topic, auto_offset_reset="earliest", consumer_timeout_ms=60_000, **options(kafka, protocol, mechanism)
    )
    values = [next(consumer).value for _ in range(10)]
    consumer.close()
    assert values == [b"%d" % number for number in range(10)]


def test_our_producer_logs_in_again_before_its_session_ends(kafka: Secured) -> None:
    """``connections.max.reauth.ms`` is two seconds; Apache Kafka closes a connection that sends later without
    a login.
    """
    producer = KafkaProducer(**options(kafka, "SASL_SSL", "SCRAM-SHA-512"), retries=0)
    done = [producer.send("sessions", b"0", partition=0).get(30)]
    end = done[0].timestamp + 5_000
    while done[-1].timestamp < end:
        done.append(producer.send("sessions", b"%d" % len(done), partition=0).get(30))
    producer.close()
    assert [one.offset for one in done] == list(range(len(done)))


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"sasl_plain_password": "guess"}, SaslAuthenticationFailedError),
        (
            {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": lambda: "token"},
            UnsupportedSaslMechanismError,
        ),
        ({"ssl_cafile": None}, TlsAuthenticationError),
        ({"security_protocol": "SASL_PLAINTEXT"}, SecurityProtocolMismatchError),
    ],
    ids=["password", "mechanism", "authority", "protocol"],
)
def test_refusals_of_apache_kafka_are_named_at_once(
    kafka: Secured, changes: dict[str, Any], error: type[AuthenticationError]
) -> None:
    given = options(kafka, "SASL_SSL", "SCRAM-SHA-256") | changes
    with pytest.raises(error):  # the constructor connects to a broker, as in kafka-python
        KafkaProducer(**{name: value for name, value in given.items() if value is not None})


def refusals(kafka: Secured) -> dict[str, tuple[dict[str, Any], type[AuthenticationError], str]]:
    """Return logins refused by Apache Kafka or by our client: options, the error, and a part of the command's
    message.
    """
    secure = options(kafka, "SASL_SSL", "SCRAM-SHA-256")
    login = {"sasl_username": USER, "sasl_password": PASSWORD}
    secure = {name: value for name, value in secure.items() if not name.startswith("sasl_plain")} | login
    expired = unsecured_token({"sub": USER, "iat": 1, "exp": 2})
    valid = unsecured_token({"sub": USER, "iat": 1, "exp": 4_000_000_000})
    token = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": lambda: expired}
    foreign = trustme.CA().cert_pem.bytes().decode()
    tls = options(kafka, "SSL")
    return {
        "wrong password": (
            {**secure, "sasl_password": "guess"}, SaslAuthenticationFailedError, "invalid credentials"
        ),
        "expired token": ({**options(kafka, "SASL_PLAINTEXT"), **token}, SaslAuthenticationFailedError, "expired"),
        "expired certificate": (
            {**tls, "bootstrap_servers": kafka.expired}, TlsAuthenticationError, "certificate has expired"
        ),
        "foreign certificate": ({**tls, "ssl_cafile": foreign}, TlsAuthenticationError, "unable to get local issuer"),
        "wrong host name": ({**tls, "bootstrap_servers": kafka.misnamed}, TlsAuthenticationError, "127.0.0.1"),
        "mechanism": (
            {**secure, **token, "sasl_oauth_token_provider": lambda: valid},
            UnsupportedSaslMechanismError,
            "SCRAM-SHA-512",
        ),
        "plaintext to TLS": (
            {**secure, "security_protocol": "SASL_PLAINTEXT"}, SecurityProtocolMismatchError, "SASL_SSL"
        ),
        "TLS to plaintext": (
            {**secure, "bootstrap_servers": kafka.sasl_plaintext}, SecurityProtocolMismatchError, "SASL_PLAINTEXT"
        ),
    }  # fmt: skip


def test_command_and_spark_name_refusals_of_apache_kafka(kafka: Secured) -> None:
    for case, (given, error, words) in refusals(kafka).items():
        check_command(given, words)
        with pytest.raises(error):
            print(case)
            read_with_spark(given)


def test_our_command_manages_tokens_of_apache_kafka_and_our_clients_log_in_with_them(
    kafka: Secured, tmp_path: Path
) -> None:
    """KIP-48. A producer with a token acts as the token's owner until the token is removed."""
    given = options(kafka, "SASL_PLAINTEXT", "SCRAM-SHA-512")
    config = properties(
        tmp_path / "alice",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_jaas_config=login("SCRAM-SHA-512", PASSWORD),
    )

    tokens = partial(our_tokens, kafka.sasl_plaintext, config)

    (token,) = json.loads(tokens("create", "--renewer-principal", "User:bob", "--json"))
    assert (token["owner"], token["requester"], token["renewers"]) == (f"User:{USER}", f"User:{USER}", ["User:bob"])
    module = f'{MODULES["SCRAM-SHA-512"]} required username="{token["token_id"]}" password="{token["hmac"]}"'
    for name in ("sasl_plain_username", "sasl_plain_password"):
        del given[name]
    with_token = {**given, "sasl_jaas_config": f'{module} tokenauth="true";'}

    async def produce() -> None:
        async with triokafka.Producer(**with_token) as producer:
            await (await producer.send("tokens", b"x", partition=0))

    until(lambda: json.loads(tokens("describe", "--json")) == [token], "the broker does not learn of the token")
    check_same_tokens(kafka.sasl_plaintext, config)
    trio.run(produce)
    assert tokens("renew", "--hmac", token["hmac"], "--renew-time-period", "60000").startswith("The token expires at")
    assert tokens("expire", "--hmac", token["hmac"]) == "The token is removed.\n"
    until(lambda: json.loads(tokens("describe", "--json")) == [], "the broker does not forget the token")
    with pytest.raises(SaslAuthenticationFailedError):
        trio.run(produce)


def test_kafka_configs_changes_the_key_store_of_our_listener(tmp_path: Path) -> None:
    """KIP-226: the new store takes effect without a restart, and one for another subject is refused."""
    authority = trustme.CA()
    (tmp_path / "ca.pem").write_bytes(authority.cert_pem.bytes())

    def store(name: str, common_name: str) -> str:
        issued = authority.issue_cert(
            "127.0.0.1", "localhost", common_name=common_name, organization_name="o", organization_unit_name="u"
        )
        content = issued.private_key_pem.bytes() + b"".join(one.bytes() for one in issued.cert_chain_pems)
        (tmp_path / name).write_bytes(content)
        return str(tmp_path / name)

    def served(address: str) -> str:
        context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port))) as raw, context.wrap_socket(raw, server_hostname=host) as tls:
            return str(tls.getpeercert()["serialNumber"])  # type: ignore[index]

    trust = str(tmp_path / "ca.pem")
    security = {"ssl.keystore.location": store("first.pem", "broker"), "ssl.truststore.location": trust}
    with running_broker(
        world=RealWorld(),
        log_dirs=(str(tmp_path / "data"),),
        listeners=("SSL://127.0.0.1:0",),
        inter_broker_listener_name="SSL",
        security=security,
    ) as broker:
        config = properties(
            tmp_path / "client", security_protocol="SSL", ssl_truststore_type="PEM", ssl_truststore_location=trust
        )
        before = served(broker.bootstrap_servers)
        base = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", config)
        change = (*base, "--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config")
        location = "listener.name.ssl.ssl.keystore.location"
        with pytest.raises(AssertionError, match="DistinguishedName"):
            jvm.run_java(CONFIGS, *change, f"{location}={store('other.pem', 'other')}")
        assert served(broker.bootstrap_servers) == before
        jvm.run_java(CONFIGS, *change, f"{location}={store('second.pem', 'broker')}")
        assert served(broker.bootstrap_servers) != before
