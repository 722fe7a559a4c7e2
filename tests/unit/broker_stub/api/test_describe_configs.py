from __future__ import annotations

import pytest

from tests.unit.broker_stub.clusters import cluster, topic
from triokafka import errors
from triokafka.broker_stub.api import describe_configs
from triokafka.broker_stub.api.describe_configs import describe_resources
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.metadata import MetadataImage
from triokafka.broker_stub.metadata.effective_configuration import EffectiveConfiguration
from triokafka.broker_stub.metadata.item_error import ItemError
from triokafka.protocol.api.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from triokafka.protocol.stored.cluster_metadata import ConfigRecord

TOPIC, BROKER = 2, 4
CONFIG = BrokerConfig.from_properties(
    {
        "log.retention.hours": "1",
        "ssl.keystore.password": "hunter2",
        "rsm.config.s3.secret.access.key": "hunter2",
        "metric.reporters": "none",
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "broker.id": "1",
        "min.insync.replicas": "1",
    }
)
IMAGE = cluster(
    topic("t", [1], configs={"retention.ms": "5"}),
    topic("u", [1], number=8),
    ConfigRecord(resource_type=BROKER, resource_name="", name="log.retention.ms", value="2"),
    ConfigRecord(resource_type=BROKER, resource_name="1", name="log.retention.ms", value="3"),
    ConfigRecord(resource_type=BROKER, resource_name="1", name="listener.name.x.ssl.key.password", value="hunter2"),
)


def described(
    resource_type: int,
    name: str,
    *keys: str,
    image: MetadataImage = IMAGE,
    synonyms: bool = True,
    documentation: bool = True,
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=resource_type, resource_name=name, configuration_keys=list(keys) or None
            )
        ],
        include_synonyms=synonyms,
        include_documentation=documentation,
    )
    (result,) = describe_resources(image, request, CONFIG)
    return result


def entry(result: DescribeConfigsResult, name: str) -> DescribeConfigsResourceResult:
    (found,) = [config for config in result.configs if config.name == name]
    return found


def test_topic_override_lists_the_synonyms_it_overrides() -> None:
    shown = entry(described(TOPIC, "t"), "retention.ms")
    assert (shown.value, shown.config_source, shown.read_only, shown.is_sensitive) == ("5", 1, False, False)
    assert [(s.name, s.value, s.source) for s in shown.synonyms] == [
        ("retention.ms", "5", 1),
        ("log.retention.ms", "3", 2),
        ("log.retention.ms", "2", 3),
        ("log.retention.hours", "1", 4),
        ("log.retention.hours", "168", 5),
    ]
    assert shown.config_type == 5 and shown.documentation


def test_option_of_the_broker_shows_those_in_other_units_that_would_apply_without_it() -> None:
    """As in Apache Kafka 4.3. For an option that is not set, the others are not shown."""
    shown = described(BROKER, "1")

    def synonyms(name: str) -> list[tuple[str, str | None, int]]:
        return [(s.name, s.value, s.source) for s in entry(shown, name).synonyms]

    assert synonyms("log.retention.ms") == [
        ("log.retention.ms", "3", 2),
        ("log.retention.ms", "2", 3),
        ("log.retention.hours", "1", 4),
        ("log.retention.hours", "168", 5),
    ]
    assert synonyms("log.retention.hours") == [("log.retention.hours", "1", 4), ("log.retention.hours", "168", 5)]
    assert synonyms("log.retention.minutes") == synonyms("log.roll.ms") == []


def test_broker_lists_its_id_under_both_names() -> None:
    """Apache Kafka derives either from the other; older tools look for the old name."""
    shown = described(BROKER, "1")
    node, broker = entry(shown, "node.id"), entry(shown, "broker.id")
    assert (broker.value, broker.config_source, broker.config_type, broker.read_only) == ("1", 4, 3, True)
    assert (node.value, node.config_source, node.config_type, node.read_only) == ("1", 4, 3, True)
    assert {synonym.name for synonym in broker.synonyms} == {"broker.id"}
    assert described(BROKER, "1", "broker.id").configs == [broker]


def test_option_in_another_unit_gives_its_value_in_the_topics_unit_and_only_when_it_was_given() -> None:
    """Apache Kafka 4.3 has the value, too, but calls it a default."""
    hours = entry(described(TOPIC, "t", image=cluster(topic("t", [1]))), "retention.ms")
    assert (hours.value, hours.config_source) == ("3600000", 4)
    assert [(s.name, s.value, s.source) for s in hours.synonyms] == [
        ("log.retention.hours", "1", 4),
        ("log.retention.hours", "168", 5),
    ]
    roll = entry(described(TOPIC, "t"), "segment.ms")
    assert (roll.value, roll.config_source, roll.synonyms) == ("604800000", 5, [])


def test_value_without_override_comes_from_the_broker_or_the_default() -> None:
    shown = described(TOPIC, "u")
    assert (entry(shown, "retention.ms").value, entry(shown, "retention.ms").config_source) == ("3", 2)
    assert (entry(shown, "max.message.bytes").value, entry(shown, "max.message.bytes").config_source) == ("1048588", 5)
    assert entry(shown, "cleanup.policy").config_type == 7
    assert not any(config.name.startswith("internal.") for config in shown.configs)


def test_described_values_are_the_effective_ones() -> None:
    control = EffectiveConfiguration(CONFIG)
    for name in ("t", "u"):
        effective = control.topic_config(IMAGE, name)
        for shown in described(TOPIC, name).configs:
            value = getattr(effective, shown.name.replace(".", "_"), None)
            if value is not None:
                text = ",".join(value) if isinstance(value, tuple) else str(value)
                assert (shown.name, (shown.value or "").lower()) == (shown.name, text.lower())


def test_unknown_option_is_hidden_read_only_and_undocumented() -> None:
    image = cluster(ConfigRecord(resource_type=BROKER, resource_name="", name="nonsense", value="hunter2"))
    for name in ("", "1"):
        shown = entry(described(BROKER, name, image=image), "nonsense")
        assert (shown.value, shown.config_source, shown.config_type, shown.documentation) == (None, 3, 0, None)
        assert (shown.is_sensitive, shown.read_only, [s.value for s in shown.synonyms]) == (True, True, [None])


def test_only_the_asked_keys_are_shown() -> None:
    result = described(TOPIC, "t", "retention.ms", "nope", synonyms=False, documentation=False)
    (shown,) = result.configs
    assert (shown.name, shown.synonyms, shown.documentation) == ("retention.ms", [], None)


def test_broker_shows_its_options_with_their_sources() -> None:
    shown = described(BROKER, "1")
    assert entry(shown, "log.retention.ms").config_source == 2
    assert entry(shown, "log.retention.hours").config_source == 4
    assert entry(shown, "num.partitions").config_source == 5
    assert entry(shown, "num.partitions").read_only
    assert not entry(shown, "log.retention.ms").read_only
    assert entry(shown, "metric.reporters").value == "none"
    names = [config.name for config in shown.configs]
    assert names == sorted(names) and len(set(names)) == len(names)


def test_option_in_the_file_is_static_although_it_has_the_default_value() -> None:
    result = described(BROKER, "1", "node.id", "min.insync.replicas", "num.partitions", synonyms=True)
    assert entry(result, "node.id").config_source == 4
    assert [(s.value, s.source) for s in entry(result, "min.insync.replicas").synonyms] == [("1", 4), ("1", 5)]
    assert entry(result, "num.partitions").config_source == 5
    assert entry(described(TOPIC, "u", "min.insync.replicas"), "min.insync.replicas").config_source == 4


def test_secrets_are_never_shown() -> None:
    for name in ("1", ""):
        assert "hunter2" not in repr(described(BROKER, name))
    shown = entry(described(BROKER, "1"), "ssl.keystore.password")
    assert (shown.value, shown.is_sensitive) == (None, True)
    assert entry(described(BROKER, "1"), "listener.name.x.ssl.key.password").is_sensitive
    # As in Kafka, an option without a definition may be a secret.
    assert entry(described(BROKER, "1"), "rsm.config.s3.secret.access.key").is_sensitive


def test_cluster_wide_default_shows_only_configured_values() -> None:
    assert [(config.name, config.value, config.config_source) for config in described(BROKER, "").configs] == [
        ("log.retention.ms", "2", 3)
    ]


@pytest.mark.parametrize(
    ("resource_type", "name", "error"),
    [
        (TOPIC, "nope", errors.UnknownTopicOrPartitionError),
        (TOPIC, "a b", errors.InvalidTopicError),
        (BROKER, "2", errors.InvalidRequestError),
        (BROKER, "x", errors.InvalidRequestError),
        (99, "g", errors.InvalidRequestError),
    ],
)
def test_each_error_has_its_code_and_words(
    resource_type: int, name: str, error: type[errors.BrokerResponseError]
) -> None:
    result = described(resource_type, name)
    assert result.error_code == error.code and result.error_message
    assert (result.resource_type, result.resource_name, result.configs) == (resource_type, name, [])


def test_denied_resource_is_answered_as_denied() -> None:
    request = DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=TOPIC, resource_name="t")])
    denied = {(TOPIC, "t"): ItemError(29, "no")}
    (result,) = describe_resources(IMAGE, request, CONFIG, denied=denied)
    assert (result.error_code, result.configs) == (29, [])


def test_group_and_client_metrics_show_every_key_with_its_source() -> None:
    """(KIP-848, KIP-714)"""
    image = cluster(
        ConfigRecord(resource_type=32, resource_name="g", name="consumer.session.timeout.ms", value="46000"),
        ConfigRecord(resource_type=16, resource_name="m", name="metrics", value="a,b"),
    )
    group = described(32, "g", image=image)
    timeout = entry(group, "consumer.session.timeout.ms")
    assert (timeout.value, timeout.config_source) == ("46000", 8)
    assert [(s.name, s.value, s.source) for s in timeout.synonyms] == [
        ("consumer.session.timeout.ms", "46000", 8),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]
    reset = entry(group, "share.auto.offset.reset")
    assert [(s.name, s.value, s.source) for s in reset.synonyms] == [("share.auto.offset.reset", "latest", 5)]
    metrics = described(16, "m", image=image)
    assert {c.name: (c.value, c.config_source) for c in metrics.configs} == {
        "interval.ms": ("300000", 5),
        "match": ("", 5),
        "metrics": ("a,b", 7),
    }
    for kind in (16, 32):
        assert described(kind, "", image=image).error_code == errors.InvalidRequestError.code


@pytest.mark.parametrize(("kind", "names"), [(32, ["a", "b"]), (4, ["1", "1"]), (8, ["1", "1"])])
def test_groups_and_repeated_brokers_share_the_objects_of_their_entries(kind: int, names: list[str]) -> None:
    """A request of a megabyte would otherwise take gigabytes."""
    resources = [DescribeConfigsResource(resource_type=kind, resource_name=name) for name in names]
    request = DescribeConfigsRequest(resources=resources, include_synonyms=True)
    first, second = describe_resources(cluster(), request, CONFIG)
    assert first.configs
    assert all(one is other for one, other in zip(first.configs, second.configs, strict=True))


def test_response_stops_growing_above_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka describes a resource as often as it is named: a request of kilobytes would take gigabytes."""
    monkeypatch.setattr(describe_configs, "MAX_BYTES", 100_000)
    named = DescribeConfigsResource(resource_type=BROKER, resource_name="1")
    request = DescribeConfigsRequest(resources=[named] * 100, include_documentation=True, include_synonyms=True)
    results = list(describe_resources(IMAGE, request, CONFIG))
    assert len(results) == 100
    assert results[0].error_code == 0 and results[0].configs
    assert results[-1].error_code == errors.PolicyViolationError.code and not results[-1].configs
    size = len(DescribeConfigsResponse(results=results).encode(4))
    assert 100_000 < size < 250_000


@pytest.mark.parametrize("name", ["5" * 5_000, "--1", "²"])
def test_name_that_is_no_broker_id_is_refused(name: str) -> None:
    assert described(BROKER, name).error_code == errors.InvalidRequestError.code
