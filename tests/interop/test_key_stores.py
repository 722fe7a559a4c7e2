"""Key stores that Java's keytool makes, at both ends: our broker and client, and Java's client."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop import jvm
from tests.interop.test_security import TOPICS, properties
from tests.support.broker_process import BrokerProcess, free_port
from triokafka.blocking import KafkaAdminClient
from triokafka.errors import AuthenticationError

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

STORE, KEY = "store of changeit", "key of changeit"


@pytest.fixture
def keytool(tmp_path: Path) -> Callable[..., None]:
    if shutil.which("keytool") is None:
        pytest.fail("keytool was not found: install a JDK to run the tests against the JVM peers")

    def run(*arguments: str) -> None:
        quick = "-J-XX:TieredStopAtLevel=1"
        done = subprocess.run(
            ["keytool", quick, *arguments, "-storepass", STORE],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    return run


def test_stores_of_keytool_serve_brokers_and_clients(keytool: Callable[..., None], tmp_path: Path) -> None:
    """Mutual TLS: the broker has JKS stores with two passwords, our client PKCS #12, and Java's client JKS."""
    names = ("-dname", "CN=127.0.0.1,O=Müller & Söhne", "-ext", "san=ip:127.0.0.1", "-alias", "own")
    keytool("-genkeypair", "-keyalg", "RSA", "-storetype", "JKS", "-keystore", "broker.jks", "-keypass", KEY, *names)
    keytool("-genkeypair", "-keyalg", "EC", "-storetype", "PKCS12", "-keystore", "client.p12", *names)
    trusts = (
        ("client.p12", "brokers-trust.jks", "JKS"),
        ("broker.jks", "clients-trust.jks", "JKS"),
        ("broker.jks", "clients-trust.p12", "PKCS12"),
    )
    for store, trust, kind in trusts:
        keytool("-exportcert", "-rfc", "-alias", "own", "-keystore", store, "-file", f"{store}.pem")
        imported = ("-importcert", "-noprompt", "-alias", "ca", "-file", f"{store}.pem", "-storetype", kind)
        keytool(*imported, "-keystore", trust)
    config = tmp_path / "server.properties"
    config.write_text(
        f"listeners=SSL://127.0.0.1:{free_port()}\nlistener.security.protocol.map=SSL:SSL\n"
        f"inter.broker.listener.name=SSL\nssl.client.auth=required\n"
        f"ssl.keystore.type=JKS\nssl.keystore.location={tmp_path / 'broker.jks'}\n"
        f"ssl.keystore.password={STORE}\nssl.key.password={KEY}\n"
        f"ssl.truststore.type=JKS\nssl.truststore.location={tmp_path / 'brokers-trust.jks'}\n"
        f"ssl.truststore.password={STORE}\n"
    )
    process = BrokerProcess(None, config=config)
    try:
        servers = process.start()
        java = properties(
            tmp_path / "client.properties",
            security_protocol="SSL",
            ssl_keystore_type="PKCS12",
            ssl_keystore_location=str(tmp_path / "client.p12"),
            ssl_keystore_password=STORE,
            ssl_truststore_type="JKS",
            ssl_truststore_location=str(tmp_path / "clients-trust.jks"),
            ssl_truststore_password=STORE,
        )
        jvm.run_java(TOPICS, "--bootstrap-server", servers, "--command-config", java, "--create", "--topic", "of-java")
        options = {
            "bootstrap_servers": servers,
            "security_protocol": "SSL",
            "ssl_certfile": str(tmp_path / "client.p12"),
            "ssl_password": STORE,
            "ssl_cafile": str(tmp_path / "clients-trust.p12"),
            "ssl_truststore_password": STORE,
        }
        admin = KafkaAdminClient(**options)
        assert list(admin.list_topics()) == ["of-java"]
        admin.close()
        del options["ssl_certfile"], options["ssl_password"]
        with pytest.raises(AuthenticationError):
            KafkaAdminClient(**options)
    finally:
        process.stop()
