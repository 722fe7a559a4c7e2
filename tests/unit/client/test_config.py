"""Options of the clients: defaults, bounds, and sentences about wrong ones."""

from __future__ import annotations

from typing import Any

import pytest

import triokafka
from triokafka.client.checks import bootstrap_addresses
from triokafka.client.config import AdminOptions, ConsumerOptions, ProducerOptions
from triokafka.client.keywords import AdminKeywords, ConsumerKeywords, ProducerKeywords
from triokafka.errors import ConfigurationError

TABLES = [ProducerOptions, ConsumerOptions, AdminOptions]
KEYWORDS = {
    ProducerOptions: ProducerKeywords,
    ConsumerOptions: ConsumerKeywords,
    AdminOptions: AdminKeywords,
}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("h", [("h", 9092)]),
        ("h:1", [("h", 1)]),
        (" a:1 , b:2,a:1", [("a", 1), ("b", 2)]),
        (["a:1", ("b", 2)], [("a", 1), ("b", 2)]),
        ("[::1]:5", [("::1", 5)]),
        ("[::1]", [("::1", 9092)]),
        ("::1", [("::1", 9092)]),
    ],
)
def test_bootstrap_servers_are_texts_lists_and_pairs(given: Any, expected: list[tuple[str, int]]) -> None:
    assert list(bootstrap_addresses("bootstrap_servers", given)) == expected


@pytest.mark.parametrize("given", ["", [], "h:port", "h:0", "h:70000", ":1", "kafka://h:1", 7, [None], [("h", "1")]])
def test_bootstrap_servers_that_make_no_sense_are_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="bootstrap_servers="):
        ProducerOptions.parse({"bootstrap_servers": given})


@pytest.mark.parametrize(
    ("name", "near"),
    [("linger.ms", "linger_ms"), ("lingerms", "linger_ms"), ("compresion_type", "compression_type"), ("ack", "acks")],
)
def test_unknown_option_is_refused_with_the_nearest_known_one(name: str, near: str) -> None:
    with pytest.raises(ConfigurationError, match=f"did you mean '{near}'"):
        ProducerOptions.parse({name: 1})


def test_option_that_resembles_none_gets_the_list() -> None:
    with pytest.raises(ConfigurationError, match="known are acks, allow_auto_create_topics, batch_size"):
        ProducerOptions.parse({"xyzzy": 1})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"acks": 2}, "acks=2 cannot be used: expected 0, 1 or 'all'"),
        ({"acks": True}, "acks=True"),
        ({"linger_ms": "5"}, "linger_ms='5' cannot be used: expected a number from 0"),
        ({"linger_ms": -1}, "linger_ms=-1"),
        ({"batch_size": 1.5}, "batch_size=1.5 cannot be used: expected a whole number"),
        ({"compression_type": "zst"}, "did you mean 'zstd'"),
        ({"key_serializer": b"x"}, "a function or None"),
        ({"interceptors": "x"}, "interceptors='x' cannot be used: expected a list"),
        ({"allow_auto_create_topics": 1}, "True or False"),
        ({"client_id": 7}, "a string or None"),
        ({"delivery_timeout_ms": 10}, "must be at least linger_ms"),
        ({"enable_idempotence": True, "acks": 1}, r"acks=1 \(needs 'all'\)"),
        ({"enable_idempotence": True, "max_in_flight_requests_per_connection": 6}, "at most 5"),
        ({"enable_idempotence": True, "retries": 0}, "retries=0"),
        ({"compression_level": 3}, "compression_level needs a compression_type"),
        ({"partitioner": len}, "is not a Partitioner"),
        ({"security_protocol": "SSL"}, "only 'PLAINTEXT' is"),
    ],
)
def test_impossible_values_and_combinations_are_refused_when_the_producer_is_made(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        triokafka.Producer(**options)


def test_idempotence_is_on_unless_other_options_rule_it_out() -> None:
    """(`client/MOD-2`)"""
    assert ProducerOptions.parse({}).idempotent
    assert not ProducerOptions.parse({"enable_idempotence": False}).idempotent
    assert not ProducerOptions.parse({"acks": 1}).idempotent
    assert not ProducerOptions.parse({"retries": 0}).idempotent
    assert not ProducerOptions.parse({"max_in_flight_requests_per_connection": 8}).idempotent


def test_defaults_are_those_of_kafka_4() -> None:
    """(`client/MOD-26`)"""
    options = ProducerOptions.parse({})
    assert (options.acks, options.linger_ms, options.batch_size, options.buffer_memory) == (-1, 5, 16_384, 33_554_432)
    assert (options.delivery_timeout_ms, options.max_block_ms, options.request_timeout_ms) == (120_000, 60_000, 30_000)


@pytest.mark.parametrize("table", TABLES)
def test_every_option_says_what_it_means_and_its_default_passes_its_own_check(table: Any) -> None:
    described = table.describe()
    assert all(doc.endswith(".") or doc.endswith(")") for _, _, doc in described)
    assert table.parse({name: default for name, default, _ in described}) == table.parse({})


@pytest.mark.parametrize("table", TABLES)
def test_type_checkers_know_every_option_and_no_other(table: Any) -> None:
    keywords = KEYWORDS[table]
    assert {*keywords.__optional_keys__} == {name for name, _, _ in table.describe()}
    assert not keywords.__required_keys__


def test_heartbeats_must_come_within_the_session_timeout() -> None:
    with pytest.raises(ConfigurationError, match="must be less than"):
        ConsumerOptions.parse({"heartbeat_interval_ms": 50_000})
