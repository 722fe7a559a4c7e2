"""Configurations that kafka-python does not have reach the SDK's clients."""

from __future__ import annotations

import gc
import sys
from typing import Any, Final

import pytest

from triokafka.blocking import KafkaAdminClient, KafkaConsumer, KafkaProducer
from triokafka.blocking.consumer.configuration import CONSUMER_DEFAULTS
from triokafka.blocking.consumer.configuration import sdk_options as consumer_options
from triokafka.blocking.errors import KafkaConfigurationError, NoBrokersAvailable
from triokafka.blocking.options import admin_options, take
from triokafka.blocking.producer.configuration import PRODUCER_DEFAULTS
from triokafka.blocking.producer.configuration import sdk_options as producer_options
from triokafka.client.config import AdminOptions, ConsumerOptions, ProducerOptions

DEFAULTS: Final[dict[str, Any]] = {
    "connections_max_silence_ms": 9_000,
    "max_poll_bytes": 64 << 20,
    "max_decompressed_batch_bytes": 128 << 20,
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_are_those_of_the_sdk(name: str) -> None:
    assert ConsumerOptions.parse(consumer_options(take(CONSUMER_DEFAULTS, {}))) is not None
    assert CONSUMER_DEFAULTS[name] == DEFAULTS[name] == getattr(ConsumerOptions(bootstrap_servers=["h:1"]), name)  # type: ignore[arg-type]


def test_consumer_passes_limits_to_the_sdk() -> None:
    given = {"connections_max_silence_ms": 700, "max_poll_bytes": 1_000, "max_decompressed_batch_bytes": 2_000}
    options = ConsumerOptions.parse(consumer_options(take(CONSUMER_DEFAULTS, given)))
    assert {name: getattr(options, name) for name in given} == given


def test_producer_and_admin_client_pass_the_limit_on_silence_to_the_sdk() -> None:
    given = {"connections_max_silence_ms": 700}
    config = take(PRODUCER_DEFAULTS, given)
    assert ProducerOptions.parse(producer_options(config, given)).connections_max_silence_ms == 700
    config = take(KafkaAdminClient.DEFAULT_CONFIG, given)
    assert AdminOptions.parse(admin_options(config)).connections_max_silence_ms == 700


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (KafkaConsumer, "max_poll_bytes", 0),
        (KafkaConsumer, "max_decompressed_batch_bytes", "much"),
        (KafkaConsumer, "connections_max_silence_ms", -2),
        (KafkaProducer, "connections_max_silence_ms", "soon"),
        (KafkaProducer, "request_timeout_ms", "30000"),
        (KafkaConsumer, "request_timeout_ms", "30000"),
        (KafkaConsumer, "consumer_timeout_ms", True),
        (KafkaAdminClient, "connections_max_silence_ms", -2),
    ],
)
def test_wrong_values_are_refused_with_the_name(kind: Any, name: str, value: Any) -> None:
    with pytest.raises(KafkaConfigurationError, match=name):
        kind(bootstrap_servers="127.0.0.1:1", api_version=(3, 0), bootstrap_timeout_ms=100, **{name: value})


@pytest.mark.parametrize("kind", [KafkaProducer, KafkaAdminClient])
def test_wrong_arguments_raise_one_error_and_print_nothing(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    unraisable: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    with pytest.raises(TypeError, match="positional argument"):
        kind("127.0.0.1:1")
    gc.collect()
    assert unraisable == []


@pytest.mark.parametrize("kind", [KafkaConsumer, KafkaProducer, KafkaAdminClient])
def test_programs_for_kafka_python_2_catch_the_error_of_a_missing_broker(kind: Any) -> None:
    with pytest.raises(NoBrokersAvailable, match="Unable to bootstrap from"):
        kind(bootstrap_servers="127.0.0.1:1", bootstrap_timeout_ms=100)
