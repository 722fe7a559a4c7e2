from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from tests.support.in_steps import done
from tests.unit.broker_stub.clusters import CONFIG, cluster, replayed, topic
from triokafka import errors
from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.controller.configuration_control import ConfigurationControl
from triokafka.broker_stub.metadata import MetadataImage
from triokafka.broker_stub.metadata.item_error import ItemError
from triokafka.protocol.api.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from triokafka.protocol.api.incremental_alter_configs import AlterableConfig as Change
from triokafka.protocol.api.incremental_alter_configs import (
    AlterConfigsResource as ChangedResource,
)
from triokafka.protocol.api.incremental_alter_configs import IncrementalAlterConfigsRequest
from triokafka.protocol.stored.cluster_metadata import ConfigRecord, FeatureLevelRecord, PartitionRecord

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
IMAGE = cluster(topic("t", [1], configs={"retention.ms": "5", "cleanup.policy": "compact"}))


def control(config: BrokerConfig = CONFIG) -> ConfigurationControl:
    return ConfigurationControl(config)


def replacing(
    values: Mapping[str, str | None], *, resource_type: int = TOPIC, name: str = "t", validate_only: bool = False
) -> AlterConfigsRequest:
    configs = [AlterableConfig(name=key, value=value) for key, value in values.items()]
    return AlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=configs)],
        validate_only=validate_only,
    )


def changing(
    *changes: tuple[int, str, str | None], resource_type: int = TOPIC, name: str = "t", validate_only: bool = False
) -> IncrementalAlterConfigsRequest:
    configs = [Change(name=key, config_operation=operation, value=value) for operation, key, value in changes]
    return IncrementalAlterConfigsRequest(
        resources=[ChangedResource(resource_type=resource_type, resource_name=name, configs=configs)],
        validate_only=validate_only,
    )


def after(request: IncrementalAlterConfigsRequest, image: MetadataImage = IMAGE) -> MetadataImage:
    outcome = done(control().incremental_alter_configs(image, request))
    assert [response.error_message for response in outcome.response.responses] == [None]
    return replayed(outcome.records, image)


@pytest.mark.parametrize("name", ["listener.name.x.ssl.key.password", "listener.name.x.scram-sha-256.sasl.jaas.config"])
def test_secrets_that_are_set_are_neither_logged_nor_answered(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """This holds for accepted and for refused values."""
    caplog.set_level(logging.DEBUG)
    answers = []
    for operation in (SET, APPEND):
        request = changing((operation, name, "hunter2"), resource_type=BROKER, name="1")
        answers.append(repr(done(control().incremental_alter_configs(IMAGE, request)).response))
    replaced = done(control().alter_configs(IMAGE, replacing({name: "hunter2"}, resource_type=BROKER, name="1")))
    for text in (caplog.text, *answers, repr(replaced.response)):
        assert "hunter2" not in text
    assert f"{name}=[hidden]" in caplog.text


def test_the_value_of_an_unknown_name_is_hidden_as_a_misspelt_secret(caplog: pytest.LogCaptureFixture) -> None:
    """(As in Kafka, where a name without a definition counts as sensitive.)"""
    caplog.set_level(logging.DEBUG)
    for name in ("listener.name.x.ssl.keystore.pasword", "listener.name.x.plugin.token"):
        after(changing((SET, name, "hunter2"), resource_type=BROKER, name="1"))
        assert f"{name}=[hidden]" in caplog.text
    after(changing((SET, "log.cleaner.threads", "2"), resource_type=BROKER, name="1"))
    assert "log.cleaner.threads=2" in caplog.text
    assert "hunter2" not in caplog.text


class TestIncrementalAlterConfigs:
    def test_keys_are_set_and_deleted_and_others_stay(self) -> None:
        image = after(changing((SET, "retention.bytes", "100"), (DELETE, "retention.ms", None)))
        assert image.topic_configs("t") == {"cleanup.policy": "compact", "retention.bytes": "100"}

    def test_lists_grow_and_shrink(self) -> None:
        image = after(changing((APPEND, "cleanup.policy", "delete,compact")))
        assert image.topic_configs("t")["cleanup.policy"] == "compact,delete"
        image = after(changing((SUBTRACT, "cleanup.policy", "compact")), image)
        assert image.topic_configs("t")["cleanup.policy"] == "delete"

    def test_appending_starts_from_the_default(self) -> None:
        image = cluster(topic("t", [1]))
        assert after(changing((APPEND, "cleanup.policy", "compact")), image).topic_configs("t") == {
            "cleanup.policy": "delete,compact"
        }

    def test_last_deletion_leaves_no_trace(self) -> None:
        image = after(changing((DELETE, "retention.ms", None), (DELETE, "cleanup.policy", None)))
        assert not image.configs

    def test_value_that_is_there_already_writes_nothing_for_a_topic_but_again_for_a_broker(self) -> None:
        same = done(control().incremental_alter_configs(IMAGE, changing((SET, "retention.ms", "5"))))
        assert same.records == []
        request = changing((SET, "log.retention.ms", "5"), resource_type=BROKER, name="1")
        image = replayed(done(control().incremental_alter_configs(IMAGE, request)).records, IMAGE)
        assert len(done(control().incremental_alter_configs(image, request)).records) == 1

    def test_validate_only_writes_nothing(self) -> None:
        outcome = done(
            control().incremental_alter_configs(IMAGE, changing((SET, "retention.ms", "9"), validate_only=True))
        )
        assert outcome.records == [] and outcome.response.responses[0].error_code == 0

    @pytest.mark.parametrize(
        ("request_", "error"),
        [
            (changing((SET, "retention.ms", "5"), name="nope"), errors.UnknownTopicOrPartitionError),
            (changing((SET, "retention.ms", "5"), name=""), errors.InvalidRequestError),
            (changing((SET, "retention.ms", "5"), name="a b"), errors.InvalidTopicError),
            (changing((SET, "retention.mss", "5")), errors.InvalidConfigurationError),
            (changing((SET, "retention.ms", "x")), errors.InvalidConfigurationError),
            (changing((SET, "retention.ms", "-2")), errors.InvalidConfigurationError),
            (changing((SET, "retention.ms", None)), errors.InvalidRequestError),
            (changing((APPEND, "retention.ms", "5")), errors.InvalidConfigurationError),
            (changing((APPEND, "nope", "5")), errors.InvalidConfigurationError),
            (changing((APPEND, "cleanup.policy", "none")), errors.InvalidConfigurationError),
            (changing((9, "retention.ms", "5")), errors.InvalidRequestError),
            (changing((SET, "retention.ms", "5"), (DELETE, "retention.ms", None)), errors.InvalidRequestError),
            (changing((SET, "retention.ms", "5"), resource_type=3), errors.InvalidRequestError),
            (changing((SET, "x", "5"), resource_type=8, name="1"), errors.InvalidRequestError),
            (changing((SET, "x", "5"), resource_type=32, name="g"), errors.InvalidConfigurationError),
            (
                changing((SET, "consumer.session.timeout.ms", "44999"), resource_type=32, name="g"),
                errors.InvalidConfigurationError,
            ),
            (
                changing((SET, "consumer.heartbeat.interval.ms", "15001"), resource_type=32, name="g"),
                errors.InvalidConfigurationError,
            ),
            (changing((SET, "nope", "1"), resource_type=16, name="m"), errors.InvalidRequestError),
            (
                changing((SET, "consumer.session.timeout.ms", "0"), resource_type=32, name="g"),
                errors.InvalidConfigurationError,
            ),
            (
                changing((SET, "consumer.session.timeout.ms", "5"), resource_type=32, name=""),
                errors.InvalidRequestError,
            ),
            (changing((SET, "interval.ms", "99"), resource_type=16, name="m"), errors.InvalidRequestError),
            (changing((SET, "match", "client_id=["), resource_type=16, name="m"), errors.InvalidConfigurationError),
            (changing((SET, "num.io.threads", "17"), resource_type=BROKER, name=""), errors.InvalidRequestError),
            (changing((SET, "num.io.threads", "3"), resource_type=BROKER, name=""), errors.InvalidRequestError),
            (changing((SET, "authorizer.class.name", "X"), resource_type=BROKER, name="1"), errors.InvalidRequestError),
            (changing((SET, "remote.storage.enable", "true")), errors.InvalidConfigurationError),
            (changing((SET, "log.retention.ms", "5"), resource_type=BROKER, name="two"), errors.InvalidRequestError),
            (changing((SET, "log.retention.ms", "5"), resource_type=BROKER, name="x"), errors.InvalidRequestError),
            (changing((SET, "log.retention.ms", "x"), resource_type=BROKER, name="1"), errors.InvalidRequestError),
            (changing((SET, "broker.id", "1"), resource_type=BROKER, name="1"), errors.InvalidRequestError),
            (
                changing((SET, "follower.replication.throttled.rate", "-1"), resource_type=BROKER, name=""),
                errors.InvalidRequestError,
            ),
            (changing((SET, "sasl.jaas.config", "x"), resource_type=BROKER, name=""), errors.InvalidRequestError),
            (changing((SET, "node.id", "5"), resource_type=BROKER, name="1"), errors.InvalidRequestError),
        ],
    )
    def test_each_error_has_its_code_and_words(
        self, request_: IncrementalAlterConfigsRequest, error: type[errors.BrokerResponseError]
    ) -> None:
        outcome = done(control().incremental_alter_configs(IMAGE, request_))
        (response,) = outcome.response.responses
        assert response.error_code == error.code and response.error_message
        assert outcome.records == []

    def test_unknown_key_names_the_nearest(self) -> None:
        outcome = done(control().incremental_alter_configs(IMAGE, changing((SET, "retention.mss", "5"))))
        assert "retention.ms" in (outcome.response.responses[0].error_message or "")

    def test_unknown_option_of_a_broker_is_kept_without_effect_as_by_apache_kafka(self) -> None:
        for name in ("log.retenton.ms", "zookeeper.connect", "listener.name.x.nonsense"):
            request = changing((SET, name, "5"), resource_type=BROKER, name="1")
            assert after(request).broker_configs(1)[name] == "5"

    def test_empty_name_is_refused_by_the_kind_of_its_resource(self) -> None:
        def error_of(kind: int, key: str, value: str) -> str | None:
            request = changing((SET, key, value), resource_type=kind, name="")
            return done(control().incremental_alter_configs(IMAGE, request)).response.responses[0].error_message

        assert error_of(32, "consumer.session.timeout.ms", "45000") == "Default group resources are not allowed."
        assert error_of(16, "interval.ms", "1000") == "Subscription name can't be empty"

    @pytest.mark.parametrize("value", ["99", "3600001", "-5"])
    def test_interval_of_client_metrics_out_of_bounds_has_the_words_of_apache_kafka(self, value: str) -> None:
        request = changing((SET, "interval.ms", value), resource_type=16, name="m")
        (response,) = done(control().incremental_alter_configs(IMAGE, request)).response.responses
        assert (response.error_code, response.error_message) == (
            errors.InvalidRequestError.code,
            f"Invalid value {value} for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        )

    @pytest.mark.parametrize("value", ["x", "1_000", "3000000000"])
    def test_interval_of_client_metrics_that_is_no_integer_is_an_invalid_configuration(self, value: str) -> None:
        request = changing((SET, "interval.ms", value), resource_type=16, name="m")
        (response,) = done(control().incremental_alter_configs(IMAGE, request)).response.responses
        assert response.error_code == errors.InvalidConfigurationError.code

    def test_one_bad_key_fails_its_resource_as_a_whole_and_no_other(self) -> None:
        image = cluster(topic("t", [1]), topic("u", [1], number=8))
        request = changing((SET, "retention.ms", "9"), (SET, "retention.bytes", "x"))
        request.resources += changing((SET, "retention.ms", "9"), name="u").resources
        outcome = done(control().incremental_alter_configs(image, request))
        assert [r.error_code for r in outcome.response.responses] == [errors.InvalidConfigurationError.code, 0]
        assert replayed(outcome.records, image).configs == {(TOPIC, "u"): {"retention.ms": "9"}}

    def test_resource_that_is_there_twice_is_refused_both_times(self) -> None:
        request = changing((SET, "retention.ms", "9"))
        request.resources *= 2
        outcome = done(control().incremental_alter_configs(IMAGE, request))
        assert [r.error_code for r in outcome.response.responses] == [errors.InvalidRequestError.code] * 2

    def test_denied_resource_is_answered_as_denied(self) -> None:
        denied = {(TOPIC, "t"): ItemError(29, "no")}
        outcome = done(control().incremental_alter_configs(IMAGE, changing((SET, "retention.ms", "9")), denied=denied))
        assert (outcome.response.responses[0].error_code, outcome.records) == (29, [])


class TestAlterConfigs:
    def test_keys_that_are_left_out_are_deleted(self) -> None:
        outcome = done(control().alter_configs(IMAGE, replacing({"retention.bytes": "7"})))
        assert replayed(outcome.records, IMAGE).topic_configs("t") == {"retention.bytes": "7"}

    def test_unchanged_values_yield_no_record(self) -> None:
        outcome = done(control().alter_configs(IMAGE, replacing({"retention.ms": "5", "cleanup.policy": "compact"})))
        assert outcome.records == []

    @pytest.mark.parametrize(
        ("request_", "error"),
        [
            (replacing({"retention.ms": "5"}, name="nope"), errors.UnknownTopicOrPartitionError),
            (replacing({"nope": "5"}), errors.InvalidConfigurationError),
            (replacing({"retention.ms": None}), errors.InvalidRequestError),
            (replacing({"x": "5"}, resource_type=77), errors.InvalidRequestError),
        ],
    )
    def test_each_error_has_its_code_and_words(
        self, request_: AlterConfigsRequest, error: type[errors.BrokerResponseError]
    ) -> None:
        outcome = done(control().alter_configs(IMAGE, request_))
        (response,) = outcome.response.responses
        assert response.error_code == error.code and response.error_message
        assert outcome.records == []

    def test_validate_only_writes_nothing(self) -> None:
        assert done(control().alter_configs(IMAGE, replacing({"retention.ms": "9"}, validate_only=True))).records == []


class TestEffectiveConfiguration:
    def test_topic_override_wins_over_broker_and_broker_over_cluster(self) -> None:
        static = control(BrokerConfig.for_tests(log_retention_ms=1, log_segment_bytes=2_000_000))
        image = cluster(
            topic("t", [1], configs={"retention.ms": "4"}),
            topic("u", [1], number=8),
            ConfigRecord(resource_type=BROKER, resource_name="", name="log.retention.ms", value="2"),
        )
        assert static.effective.topic_config(image, "t").retention_ms == 4
        assert static.effective.topic_config(image, "u").retention_ms == 2
        own = ConfigRecord(resource_type=BROKER, resource_name="1", name="log.retention.ms", value="3")
        image = replayed([own], image)
        assert static.effective.topic_config(image, "u").retention_ms == 3
        assert static.effective.topic_config(image, "u").segment_bytes == 2_000_000
        assert static.effective.broker_config(image).log_retention_ms == 3

    def test_hours_and_minutes_count_where_milliseconds_are_not_given(self) -> None:
        assert BrokerConfig.for_tests(log_retention_hours=2).topic_defaults.retention_ms == 7_200_000
        assert (
            BrokerConfig.for_tests(log_retention_hours=2, log_retention_minutes=1).topic_defaults.retention_ms == 60_000
        )
        assert BrokerConfig.for_tests(log_retention_hours=-1).topic_defaults.retention_ms == -1

    def test_key_that_only_kafka_knows_does_not_hide_the_others(self) -> None:
        image = cluster(topic("t", [1], configs={"retention.ms": "4", "from.the.future": "x"}))
        assert control().effective.topic_config(image, "t").retention_ms == 4

    def test_dynamic_value_that_the_static_options_rule_out_does_not_hide_the_others(self) -> None:
        """A log may be older than the options that the broker is started with."""
        image = cluster(
            ConfigRecord(resource_type=BROKER, resource_name="", name="log.retention.ms", value="9"),
            ConfigRecord(resource_type=BROKER, resource_name="1", name="num.io.threads", value="0"),
        )
        effective = control().effective.broker_config(image)
        assert (effective.log_retention_ms, effective.num_io_threads) == (9, 8)

    def test_lists_of_the_broker_grow_from_their_default(self) -> None:
        request = changing((APPEND, "log.cleanup.policy", "compact"), resource_type=BROKER, name="1")
        outcome = done(control().incremental_alter_configs(IMAGE, request))
        assert replayed(outcome.records, IMAGE).broker_configs(1) == {"log.cleanup.policy": "delete,compact"}


_NAME = "min.insync.replicas"
ELR_ON = FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1)
WITH_ELR = cluster(
    ELR_ON,
    ConfigRecord(resource_type=BROKER, resource_name="", name=_NAME, value="1"),
    topic("t", [1, 2], isr=[1]),
    brokers=(1, 2),
)


def refusal(request: IncrementalAlterConfigsRequest | AlterConfigsRequest, image: MetadataImage) -> tuple[int, str]:
    if isinstance(request, AlterConfigsRequest):
        (replaced,) = done(control().alter_configs(image, request)).response.responses
        return replaced.error_code, replaced.error_message or ""
    (changed,) = done(control().incremental_alter_configs(image, request)).response.responses
    return changed.error_code, changed.error_message or ""


@pytest.mark.parametrize("change", [(SET, _NAME, "1"), (DELETE, _NAME, None)])
def test_one_broker_has_no_min_insync_replicas_of_its_own_with_eligible_leaders(
    change: tuple[int, str, str | None],
) -> None:
    """All brokers must agree on the replicas that may lead (KIP-966)."""
    request = changing(change, resource_type=BROKER, name="1")
    code, message = refusal(request, WITH_ELR)
    assert code == errors.InvalidConfigurationError.code
    assert message == "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
    assert refusal(request, IMAGE) == (0, "")


def test_cluster_keeps_its_min_insync_replicas_with_eligible_leaders() -> None:
    for request in (
        changing((DELETE, _NAME, None), resource_type=BROKER, name=""),
        replacing({}, resource_type=BROKER, name=""),
    ):
        code, message = refusal(request, WITH_ELR)
        assert code == errors.InvalidConfigurationError.code
        assert message == "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
    assert refusal(changing((SET, _NAME, "2"), resource_type=BROKER, name=""), WITH_ELR) == (0, "")


@pytest.mark.parametrize(("kind", "name", "forgotten"), [(BROKER, "", True), (TOPIC, "t", True), (TOPIC, "u", False)])
@pytest.mark.parametrize("isr", [[1], []])
def test_another_min_insync_replicas_forgets_the_eligible_leaders_it_chose(
    kind: int, name: str, forgotten: bool, isr: list[int]
) -> None:
    """Without an in-sync replica they stay: otherwise the partition could never have a leader again."""
    records = topic("t", [1, 2], isr=[1])
    for record in records:
        if isinstance(record, PartitionRecord):
            record.isr, record.eligible_leader_replicas = isr, [2]
    image = cluster(ELR_ON, records, topic("u", [1], number=8), brokers=(1, 2))
    partition = after(changing((SET, _NAME, "2"), resource_type=kind, name=name), image).topics["t"].partitions[0]
    assert partition.eligible_leader_replicas == (() if forgotten and isr else (2,))


def test_large_request_suggests_no_names_for_unknown_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search takes milliseconds; thousands of them would occupy the controller."""
    searched: list[str] = []
    search = difflib.get_close_matches

    def counted(name: str, known: Iterable[str], *rest: Any, **options: Any) -> list[str]:
        if known:
            searched.append(name)
        return search(name, list(known), *rest, **options)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    few, many = (
        [
            ChangedResource(
                resource_type=TOPIC,
                resource_name=f"t{number}",
                configs=[Change(name="log.retention.hour", config_operation=SET, value="5")],
            )
            for number in range(count)
        ]
        for count in (1, 200)
    )
    for resources, hinted in ((few, True), (many, False)):
        request = IncrementalAlterConfigsRequest(resources=resources)
        responses = done(control().incremental_alter_configs(IMAGE, request)).response.responses
        assert all(response.error_code for response in responses)
        assert ["did you mean" in (response.error_message or "") for response in responses[:1]] == [hinted]
        assert len(searched) == 1
