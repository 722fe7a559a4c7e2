"""Kerberos in both directions, with a real KDC: Java with our broker, our client with Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

import triokafka
from tests.interop import jvm
from tests.support.kdc import REALM, Kdc, running_kdc
from triokafka.cli.cluster.free_ports import free_ports
from triokafka.testing.blocking import running_broker

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
TOPICS = "org.apache.kafka.tools.TopicCommand"


@pytest.fixture
def kdc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kdc]:
    with running_kdc(tmp_path) as kdc:
        kdc.keytab("broker", "kafka/127.0.0.1", "kafka/localhost")
        kdc.keytab("alice", "alice")
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.krb5.conf={kdc.config}")
        yield kdc


def login(kdc: Kdc, keytab: str, principal: str) -> str:
    path = kdc.directory / f"{keytab}.keytab"
    return f'{MODULE} required useKeyTab=true storeKey=true keyTab="{path}" principal="{principal}@{REALM}";'


def test_java_logs_in_to_our_broker(kdc: Kdc, tmp_path: Path) -> None:
    config = tmp_path / "alice.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        f"sasl.jaas.config={login(kdc, 'alice', 'alice')}\n"
    )
    security = {
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        # Java resolves the name of 127.0.0.1.
        "gssapi.sasl.jaas.config": login(kdc, "broker", "kafka/localhost"),
    }
    listener = "SASL_PLAINTEXT"
    with running_broker(
        listeners=(f"{listener}://127.0.0.1:0",), inter_broker_listener_name=listener, security=security
    ) as broker:
        arguments = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", str(config))
        jvm.run_java(TOPICS, *arguments, "--create", "--topic", "by-kerberos")
        assert "by-kerberos" in jvm.run_java(TOPICS, *arguments, "--list")


def test_our_client_logs_in_to_apache_kafka(kdc: Kdc, tmp_path: Path) -> None:
    plaintext, sasl, controller = free_ports(3)
    listeners = f"PLAINTEXT://127.0.0.1:{plaintext},OPEN://127.0.0.1:{sasl}"
    settings = {
        "controller_quorum_voters": f"1@127.0.0.1:{controller}",
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
        "advertised_listeners": listeners,
        "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OPEN:SASL_PLAINTEXT",
        "inter_broker_listener_name": "PLAINTEXT",
        "sasl_enabled_mechanisms": "GSSAPI",
        "sasl_kerberos_service_name": "kafka",
        "listener_name_open_gssapi_sasl_jaas_config": login(kdc, "broker", "kafka/127.0.0.1"),
    }

    async def produce() -> None:
        async with triokafka.Producer(
            bootstrap_servers=f"127.0.0.1:{sasl}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="GSSAPI",
            sasl_jaas_config=login(kdc, "alice", "alice"),
        ) as producer:
            assert (await (await producer.send("orders", b"x", partition=0))).offset == 0

    with jvm.apache_kafka(tmp_path, port=plaintext, **settings):
        trio.run(produce)
