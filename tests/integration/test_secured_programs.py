"""A broker with TLS and SASL from a properties file, used by the command line, the blocking client and
Spark's options.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.broker_process import BrokerProcess, free_port
from tests.support.tool import Tool
from tests.unit.security.test_key_stores import KEY_STORE, TRUST_STORE
from triokafka.blocking import KafkaConsumer, KafkaProducer
from triokafka.errors import ConfigurationError
from triokafka.spark.planning.client_settings import client_settings

PASSWORDS = {"STORE_PASSWORD": "changeit", "KEY_PASSWORD": "keypass", "ALICE_PASSWORD": "s3cret of alice"}
FROM_ENVIRONMENT = (
    "config.providers=env,directory\n"
    "config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
    "config.providers.directory.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider\n"
)
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


class Secured(NamedTuple):
    bootstrap: str
    directory: Path

    def client_properties(self, **changes: str) -> str:
        """Write the properties of a client, with the names and formats of Java's clients."""
        texts = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{MODULE} required username="alice" password="${{env:ALICE_PASSWORD}}";',
            "ssl.truststore.type": "JKS",
            "ssl.truststore.location": str(self.directory / "trust.jks"),
            "ssl.truststore.password": f"${{directory:{self.directory}:store-password}}",
            **{name.replace("_", "."): value for name, value in changes.items()},
        }
        file = self.directory / "client.properties"
        file.write_text(FROM_ENVIRONMENT + "".join(f"{name}={value}\n" for name, value in texts.items()))
        return str(file)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("secured")
    for name, content in (("own.jks", KEY_STORE), ("trust.jks", TRUST_STORE), ("store-password", b"changeit")):
        (directory / name).write_bytes(content)
    jaas = directory / "jaas.conf"
    jaas.write_text(
        f'KafkaServer {{ {MODULE} required username="broker" password="b" user_broker="b"'
        f' user_alice="{PASSWORDS["ALICE_PASSWORD"]}"; }};'
    )
    config = directory / "server.properties"
    config.write_text(
        FROM_ENVIRONMENT
        + f"listeners=SASL_SSL://127.0.0.1:{free_port()}\n"
        + "listener.security.protocol.map=SASL_SSL:SASL_SSL\ninter.broker.listener.name=SASL_SSL\n"
        + "sasl.enabled.mechanisms=PLAIN\nsasl.mechanism.inter.broker.protocol=PLAIN\n"
        + f"java.security.auth.login.config={jaas}\n"
        + f"ssl.keystore.type=JKS\nssl.keystore.location={directory / 'own.jks'}\n"
        + "ssl.keystore.password=${env:STORE_PASSWORD}\nssl.key.password=${env:KEY_PASSWORD}\n"
        + f"ssl.truststore.location={directory / 'trust.jks'}\nssl.truststore.password=${{env:STORE_PASSWORD}}\n"
        + "group.initial.rebalance.delay.ms=0\noffsets.topic.num.partitions=2\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        for name, value in PASSWORDS.items():
            patch.setenv(name, value)
        process = BrokerProcess(None, config=config)
        yield Secured(process.start(), directory)
        assert process.stop() == 0


@pytest.fixture
def tool(secured: Secured, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Tool:
    return Tool(secured.bootstrap, capfdbinary, monkeypatch)


def test_the_command_line_takes_javas_properties(secured: Secured, tool: Tool) -> None:
    config = secured.client_properties()
    tool.ok("topics", "create", "orders", "--command-config", config)
    assert tool("produce", "orders", "--command-config", config, stdin="one\ntwo\n").err == "2 records acknowledged\n"
    read = tool.ok("consume", "orders", "--from-beginning", "--max-messages", "2", "--command-config", config)
    assert read.split() == ["one", "two"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sasl_jaas_config": f'{MODULE} required username="alice" password="guess;'}, "line 1, column 92"),
        ({"sasl_jaas_config": f'{MODULE} required username="alice" password="guess";'}, "Invalid username or password"),
        ({"ssl_truststore_password": "guess"}, "password of the store (ssl_truststore_password) is wrong"),
        ({"ssl_truststore_password": "${env:GUESS}"}, "the variable ${env:GUESS} has no value"),
        ({"ssl_truststore_password": "${directory:/guess:x}"}, "the file /guess/x cannot be read"),
    ],
)
def test_command_line_names_the_wrong_security_option(
    secured: Secured, tool: Tool, changes: dict[str, str], words: str
) -> None:
    done = tool("topics", "list", "--command-config", secured.client_properties(**changes), "--timeout", "20000")
    assert done.status != 0 and words in done.err
    assert "s3cret" not in done.err and ("guess" not in done.err or "/guess" in done.err)


def test_blocking_clients_take_the_options_of_the_sdk(secured: Secured) -> None:
    jaas = secured.directory / "client-jaas.conf"
    jaas.write_text(f'KafkaClient {{ {MODULE} required username=alice password="{PASSWORDS["ALICE_PASSWORD"]}"; }};')
    options: dict[str, Any] = {
        "bootstrap_servers": secured.bootstrap,
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_jaas_file": str(jaas),
        "ssl_cafile": str(secured.directory / "trust.jks"),
        "ssl_truststore_password": lambda: PASSWORDS["STORE_PASSWORD"],
    }
    producer = KafkaProducer(**options)
    producer.send("of-blocking", b"value", partition=0).get(30)
    producer.close()
    del options["sasl_jaas_file"]
    options |= {"sasl_username": "alice", "sasl_password": lambda: PASSWORDS["ALICE_PASSWORD"]}
    consumer = KafkaConsumer("of-blocking", auto_offset_reset="earliest", consumer_timeout_ms=30_000, **options)
    assert next(consumer).value == b"value"
    consumer.close()
    with pytest.raises(ValueError, match="Unrecognized configs"):
        KafkaProducer(**options, sasl_usrname="alice")


def test_sparks_options_of_every_login_are_hidden(secured: Secured) -> None:
    secret = "hunter2"
    given = {
        "kafka.bootstrap.servers": secured.bootstrap,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.jaas.config": f'OAuthBearerLoginModule required clientId="a" clientSecret="{secret}";',
        "kafka.sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
        "kafka.sasl.oauthbearer.allowed.urls": "https://login.example/token",
        "kafka.sasl.oauthbearer.client.credentials.client.secret": secret,
        "kafka.sasl.login.refresh.buffer.seconds": "60",
        "kafka.ssl.truststore.location": str(secured.directory / "trust.jks"),
        "kafka.ssl.truststore.password": secret,
        "kafka.ssl.keystore.password": secret,
        "kafka.ssl.key.password": secret,
    }
    settings, warnings = client_settings(given)
    assert not warnings and settings.values["sasl_login_refresh_buffer_seconds"] == 60
    assert secret not in f"{settings!r} {settings.values!r} {dict(settings.values)!r}"
    given["kafka.sasl.oauthbearer.allowed.urls"] = "https://other.example"
    with pytest.raises(ConfigurationError, match=r"'?kafka\.sasl\.oauthbearer\.token\.endpoint\.url") as raised:
        client_settings(given)
    assert secret not in str(raised.value)
