from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.support.logged import lines
from triokafka.broker_stub.config import DEFINITIONS, BrokerConfig, ListenerSpec, Secret, parse_properties
from triokafka.broker_stub.log import config as log_config
from triokafka.errors import ConfigurationError
from triokafka.security.secret import reveal


def test_defaults_are_kafkas() -> None:
    config = BrokerConfig()
    assert config.num_partitions == 1
    assert config.auto_create_topics_enable and config.delete_topic_enable
    assert config.socket_request_max_bytes == 104_857_600
    assert config.queued_max_requests == 500
    assert config.num_io_threads == 8
    assert config.message_max_bytes == 1_048_588
    assert config.offsets_topic_num_partitions == 50
    assert config.group_initial_rebalance_delay_ms == 3000
    assert (config.group_min_session_timeout_ms, config.group_max_session_timeout_ms) == (6000, 1_800_000)
    assert config.broker_listeners == (ListenerSpec("PLAINTEXT", "PLAINTEXT", "", 9092),)
    assert config.data_directories == ("/tmp/kafka-logs",)


def test_every_default_is_valid_and_survives_its_text() -> None:
    for definition in DEFINITIONS.values():
        definition.validate(definition.default)
        assert definition.documentation
        if definition.default_text is not None:
            assert definition.parse(definition.default_text) == definition.default


def test_server_properties_are_read() -> None:
    text = (
        "process.roles=broker,controller\n"
        "node.id=3\n"
        "controller.quorum.voters=3@localhost:9093\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\n"
        "inter.broker.listener.name=PLAINTEXT\n"
        "advertised.listeners=PLAINTEXT://broker:19092\n"
        "controller.listener.names=CONTROLLER\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL\n"
        "log.dirs=/a, /b\n"
        "num.partitions=2\n"
        "log.retention.hours=168\n"
    )
    config = BrokerConfig.from_properties(parse_properties(text), num_partitions=4)
    assert config.node_id == 3
    assert config.broker_listeners == (ListenerSpec("PLAINTEXT", "PLAINTEXT", "", 9092),)
    assert config.advertised == {"PLAINTEXT": ListenerSpec("PLAINTEXT", "PLAINTEXT", "broker", 19092)}
    assert config.data_directories == ("/a", "/b")
    assert config.metadata_directory == "/a"
    assert config.num_partitions == 4


def test_old_name_of_the_node_id_is_understood() -> None:
    assert BrokerConfig.from_properties({"broker.id": "5"}).node_id == 5
    assert BrokerConfig.from_properties({"broker.id": "-1"}).node_id == 1
    assert BrokerConfig.from_properties({"broker.id": "5", "node.id": "5"}).node_id == 5
    assert BrokerConfig.from_properties({"broker.id": "-1", "node.id": "6"}).node_id == 6
    for first, second in [("broker.id", "node.id"), ("node.id", "broker.id")]:
        with pytest.raises(ConfigurationError, match=r"^node\.id and broker\.id differ but are one option"):
            BrokerConfig.from_properties({first: "5", second: "6"})


def test_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ConfigurationError, match=r"'num\.partitons'; did you mean num\.partitions\?"):
        BrokerConfig.from_properties({"num.partitons": "3"})


def test_names_that_only_kafka_uses_are_kept_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config = BrokerConfig.from_properties(
            {
                "metric.reporters": "x",
                "remote.log.storage.system.enable": "true",
                "listener.name.internal.ssl.keystore.password": "hunter2",
                "ssl.key.password": "hunter2",
                "rsm.config.s3.secret.access.key": "hunter2",
            }
        )
    assert config.unused is not None and config.unused["metric.reporters"] == "x"
    assert len(lines(caplog, "triokafka.broker_stub.config")) == 1
    assert "hunter2" not in repr(config) + caplog.text


def test_names_that_kafka_had_before_are_skipped_with_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A file that began with Kafka 3 still starts."""
    with caplog.at_level(logging.WARNING):
        config = BrokerConfig.from_properties(
            {"zookeeper.connect": "zk:2181", "log.message.format.version": "3.0", "num.partitions": "2"}
        )
    assert config.num_partitions == 2 and config.unused is None
    (line,) = lines(caplog, "triokafka.broker_stub.config")
    assert "removed in Kafka 4.0, and have no effect: log.message.format.version, zookeeper.connect" in line


def test_file_that_comes_with_kafka_is_read(caplog: pytest.LogCaptureFixture) -> None:
    """The names and values of Kafka 4.3's own ``server.properties`` for one node."""
    text = """
        process.roles=broker,controller
        node.id=1
        controller.quorum.bootstrap.servers=localhost:9093
        listeners=PLAINTEXT://:9092,CONTROLLER://:9093
        inter.broker.listener.name=PLAINTEXT
        advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
        controller.listener.names=CONTROLLER
        listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
        num.network.threads=3
        num.io.threads=8
        socket.send.buffer.bytes=102400
        socket.receive.buffer.bytes=102400
        socket.request.max.bytes=104857600
        log.dirs=/tmp/kraft-combined-logs
        num.partitions=1
        num.recovery.threads.per.data.dir=1
        offsets.topic.replication.factor=1
        share.coordinator.state.topic.replication.factor=1
        share.coordinator.state.topic.min.isr=1
        transaction.state.log.replication.factor=1
        transaction.state.log.min.isr=1
        log.retention.hours=168
        log.segment.bytes=1073741824
        log.retention.check.interval.ms=300000
    """
    config = BrokerConfig.from_properties(parse_properties(text))
    assert [listener.name for listener in config.broker_listeners] == ["PLAINTEXT"]
    assert config.advertised["PLAINTEXT"].port == 9092
    assert config.data_directories == ("/tmp/kraft-combined-logs",)


def test_secret_shows_itself_only_when_asked() -> None:
    secret = Secret("hunter2")
    assert f"{secret} {secret!r} {[secret]}" == "[hidden] [hidden] [[hidden]]"
    assert secret.reveal() == "hunter2"


def test_configuration_with_secrets_does_not_show_them() -> None:
    """Neither its `repr` nor the warning about options without effect has them."""
    secrets = {
        "ssl.keystore.password": "hunter1",
        "sasl.jaas.config": "hunter2",
        "listener.name.external.scram-sha-256.sasl.jaas.config": "hunter3",
    }
    config = BrokerConfig.from_properties({"listeners": "PLAINTEXT://127.0.0.1:0", **secrets})
    assert "hunter" not in f"{config} {config!r} {config.security}"
    assert {
        name: value.reveal() for name, value in (config.security or {}).items() if isinstance(value, Secret)
    } == secrets


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sasl.oauthbearer.jwks.endpoint.url", "https://bob:hunter2@idp.example/keys"),
        ("listener.name.external.oauthbearer.sasl.oauthbearer.token.endpoint.url", "bob:hunter2@idp.example/token"),
        ("org.apache.kafka.sasl.oauthbearer.allowed.urls", "https://idp.example/, https://bob:hunter2@idp.example/"),
    ],
)
def test_credentials_in_a_url_are_refused_without_showing_them(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match="must not hold credentials") as raised:
        BrokerConfig.from_properties({"listeners": "PLAINTEXT://127.0.0.1:0", name: text})
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"num_partitions": 0}, "num.partitions=0: must be at least 1"),
        ({"node_id": -1}, "node.id"),
        ({"log_cleanup_policy": ("shred",)}, "log.cleanup.policy=shred"),
        ({"compression_type": "rar"}, "compression.type=rar"),
        ({"listeners": ()}, "at least one listener"),
        ({"listeners": ("CONTROLLER://:1",)}, "at least one listener"),
        ({"listeners": ("PLAINTEXT//x",)}, "not NAME://host:port"),
        ({"listeners": ("PLAINTEXT://x:99999",)}, "not NAME://host:port"),
        ({"listeners": ("MINE://x:1",)}, "MINE has no entry"),
        ({"listeners": ("PLAINTEXT://x:1", "PLAINTEXT://x:2")}, "two listeners have the name"),
        ({"listeners": ("PLAINTEXT://x:1", "SSL://x:1")}, "the same address"),
        ({"listener_security_protocol_map": ("A:B",)}, "not NAME:PROTOCOL"),
        ({"advertised_listeners": ("SSL://x:1",)}, "SSL is not one of listeners"),
        ({"advertised_listeners": ("PLAINTEXT://0.0.0.0:1",)}, "cannot connect to"),
        ({"inter_broker_listener_name": "SSL"}, "inter.broker.listener.name"),
        (
            {
                "inter_broker_listener_name": "PLAINTEXT",
                "security": {"security.inter.broker.protocol": "PLAINTEXT"},
            },
            "security.inter.broker.protocol is set, too",
        ),
        ({"group_min_session_timeout_ms": 10, "group_max_session_timeout_ms": 9}, "is above"),
        ({"group_consumer_session_timeout_ms": 44_999}, "group.consumer.session.timeout.ms=44999 is not within 45000"),
        ({"group_consumer_session_timeout_ms": 60_001}, "is not within 45000 to 60000"),
        ({"group_consumer_heartbeat_interval_ms": 200}, "group.consumer.heartbeat.interval.ms=200 is not within 5000"),
        ({"group_consumer_max_heartbeat_interval_ms": 4_000}, "is not within 5000 to 4000"),
        (
            {"group_consumer_max_heartbeat_interval_ms": 45_000, "group_consumer_heartbeat_interval_ms": 45_000},
            "must be below group.consumer.session.timeout.ms",
        ),
        ({"group_consumer_assignors": ()}, "group.consumer.assignors=: must not be empty"),
        ({"group_consumer_assignors": ("mine",)}, "unknown assignor mine"),
        ({"group_consumer_assignors": ("range", "range")}, "names an assignor twice"),
        ({"group_consumer_migration_policy": "never"}, "must be one of bidirectional, disabled, downgrade, upgrade"),
        ({"group_consumer_regex_refresh_interval_ms": 9_999}, "must be at least 10000"),
        ({"broker_session_timeout_ms": 3000}, "at least twice"),
        ({"process_roles": ()}, "process.roles"),
        ({"log_dir": ()}, "log.dirs"),
        ({"max_connections_per_ip": 0}, "max.connections.per.ip=0 refuses every connection"),
        ({"log_dirs": ("/a", "/a")}, "twice"),
    ],
)
def test_bad_values_are_refused_in_a_sentence_with_the_option(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words.replace(".", r"\.")):
        BrokerConfig(**options)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("num.partitions", "many"),
        ("num.partitions", "3000000000"),
        ("auto.create.topics.enable", "yes"),
        ("log.cleaner.min.cleanable.ratio", "half"),
        ("log.cleaner.min.cleanable.ratio", "2"),
    ],
)
def test_bad_texts_are_refused_with_name_and_text(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        BrokerConfig.from_properties({name: text})
    assert name in str(refused.value) and text in str(refused.value)


def test_listener_without_a_fixed_port_may_be_there_twice() -> None:
    config = BrokerConfig(listeners=("PLAINTEXT://127.0.0.1:0", "SSL://127.0.0.1:0"))
    assert [listener.port for listener in config.broker_listeners] == [0, 0]


def test_address_may_be_of_either_family() -> None:
    (listener,) = BrokerConfig(listeners=("PLAINTEXT://[::1]:9092",)).broker_listeners
    assert (listener.host, listener.port) == ("::1", 9092)


def test_every_topic_key_takes_its_default_from_an_option_that_exists() -> None:
    for definition in log_config.DEFINITIONS.values():
        for broker_key, _ in definition.broker_keys:
            assert broker_key in DEFINITIONS
    assert BrokerConfig().topic_defaults == log_config.LogConfig()


def test_dynamic_values_make_a_new_configuration() -> None:
    config = BrokerConfig()
    changed = config.with_properties({"log.retention.ms": "5"})
    assert (changed.log_retention_ms, config.log_retention_ms) == (5, None)
    assert changed.topic_defaults.retention_ms == 5
    with pytest.raises(ConfigurationError):
        config.with_properties({"log.retention.ms": "x"})


@pytest.mark.parametrize("name", ["log.retention.ms", "log.retention.minutes", "log.retention.hours"])
def test_negative_retention_time_is_no_limit_in_any_unit(name: str) -> None:
    """As in Apache Kafka 4.3."""
    assert BrokerConfig.from_properties({name: "-5"}).topic_defaults.retention_ms == -1
    with pytest.raises(ConfigurationError, match="unlimited"):
        BrokerConfig.from_properties({name: "0"})


def test_secret_key_of_tokens_is_hidden_however_it_is_given() -> None:
    for config in (
        BrokerConfig(delegation_token_secret_key="s3cret"),
        BrokerConfig.from_properties({"delegation.token.secret.key": "s3cret"}),
    ):
        assert "s3cret" not in repr(config)
        assert reveal(config.delegation_token_secret_key or "") == "s3cret"
