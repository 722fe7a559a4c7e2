"""Options of the clients: defaults, bounds, and error messages about wrong ones."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import triokafka
from triokafka.client.checks import bootstrap_addresses
from triokafka.client.config import AdminOptions, ConsumerOptions, ProducerOptions
from triokafka.client.keywords import AdminKeywords, ConsumerKeywords, ProducerKeywords
from triokafka.client.option_names import ABSENT, RENAMED
from triokafka.client.range_session import RangeSession
from triokafka.errors import ConfigurationError
from triokafka.security.java_names import python_options
from triokafka.security.secret import reveal

TABLES = [ProducerOptions, ConsumerOptions, AdminOptions]
KEYWORDS = {
    ProducerOptions: ProducerKeywords,
    ConsumerOptions: ConsumerKeywords,
    AdminOptions: AdminKeywords,
}


class _First(triokafka.Partitioner):
    def partition(self, topic: str, key: Any, value: Any, partitions: Any, available: Any) -> int:
        return 0


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
def test_bootstrap_servers_may_be_strings_lists_and_pairs(given: Any, expected: list[tuple[str, int]]) -> None:
    assert list(bootstrap_addresses("bootstrap_servers", given)) == expected


@pytest.mark.parametrize("given", ["", [], "h:port", "h:0", "h:70000", ":1", "kafka://h:1", 7, [None], [("h", "1")]])
def test_invalid_bootstrap_servers_are_refused(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="bootstrap_servers="):
        ProducerOptions.parse({"bootstrap_servers": given})


@pytest.mark.parametrize(
    ("name", "near"),
    [("linger.ms", "linger_ms"), ("lingerms", "linger_ms"), ("compresion_type", "compression_type"), ("ack", "acks")],
)
def test_unknown_option_is_refused_with_the_nearest_known_one(name: str, near: str) -> None:
    with pytest.raises(ConfigurationError, match=f"did you mean '{near}'"):
        ProducerOptions.parse({name: 1})


def test_option_of_another_client_is_named_as_such() -> None:
    with pytest.raises(
        ConfigurationError, match=r"'linger\.ms' is not an option of the consumer: it is an option of the producer"
    ):
        ConsumerOptions.parse({"linger.ms": 5})
    with pytest.raises(
        ConfigurationError, match=r"'key_deserializer' is not an option of the producer: it is .* consumer"
    ):
        ProducerOptions.parse({"key_deserializer": None})
    with pytest.raises(ConfigurationError, match="it is an option of the producer, under the name 'linger_ms'"):
        ConsumerOptions.parse({"queue.buffering.max.ms": 5})


def test_error_about_an_unrecognizable_option_lists_all_options() -> None:
    with pytest.raises(ConfigurationError, match="known options are acks, allow_auto_create_topics, batch_size"):
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
        ({"key_serializer": b"x"}, "a Serializer, a class of it, a function, or None"),
        ({"value_serializer": "nowhere"}, "expected 'module:Name'"),
        ({"value_serializer": "triokafka:Nothing"}, "cannot be imported.*Nothing"),
        ({"value_serializer": "triokafka.structs:__name__"}, "neither a Serializer nor a function"),
        ({"interceptors": "x"}, "interceptors='x' cannot be used: expected a list"),
        ({"allow_auto_create_topics": 1}, "True or False"),
        ({"client_id": 7}, "a string or None"),
        ({"delivery_timeout_ms": 10}, "must be at least linger_ms"),
        ({"enable_idempotence": True, "acks": 1}, r"acks=1 \(needs 'all'\)"),
        ({"enable_idempotence": True, "max_in_flight_requests_per_connection": 6}, "at most 5"),
        ({"enable_idempotence": True, "retries": 0}, "retries=0"),
        ({"compression_level": 3}, "compression_level=3 needs a compression_type"),
        ({"compression_level": 30, "compression_type": "gzip"}, "level"),
        ({"retry_backoff_ms": 9, "retry_backoff_max_ms": 8}, "retry_backoff_ms=9 is above retry_backoff_max_ms=8"),
        ({"reconnect_backoff_ms": 9, "reconnect_backoff_max_ms": 8}, "reconnect_backoff_ms=9 is above"),
        ({"buffer_memory": 1000}, "batch_size=16384 is more than buffer_memory=1000.*lower batch_size, or raise"),
        ({"buffer_memory": 20_000, "max_request_size": 30_000}, "max_request_size=30000 is more than buffer_memory"),
        ({"partitioner": _First, "partitioner_ignore_keys": True}, "partitioner_ignore_keys=True.*partitioner="),
        ({"defaults": "kafka-0.11"}, "did you mean 'kafka-0.10'"),
        ({"plugin_options": [1]}, "a mapping of names to values"),
        ({"interceptors": [object()]}, "is not a ProducerInterceptor"),
        ({"linger_ms": float("nan")}, "linger_ms=nan"),
        ({"request_timeout_ms": float("inf")}, "request_timeout_ms=inf"),
        ({"partitioner": len}, "is not a Partitioner"),
        ({"security_protocol": "SASL_SSL"}, "needs sasl_mechanism"),
    ],
)
def test_invalid_values_and_combinations_are_refused_at_construction(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        triokafka.Producer(**options)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("block.on.buffer.full", "max_block_ms"),
        ("metadata.fetch.timeout.ms", "max_block_ms"),
        ("timeout.ms", "request_timeout_ms"),
        ("interceptor.classes", "interceptors"),
        ("partitioner.class", "partitioner"),
        ("compression.zstd.level", "compression_level"),
        ("queue.buffering.max.ms", "linger_ms"),
        ("message.timeout.ms", "delivery_timeout_ms"),
        ("max_batch_size", "batch_size"),
        ("request.required.acks", "acks"),
    ],
)
def test_option_names_of_old_kafka_and_of_other_clients_are_refused_with_our_name(old: str, new: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{old!r} is not an option of the producer: use {new!r} instead"):
        ProducerOptions.parse({old: 1})


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("transaction.two.phase.commit.enable", "KIP-939"),
        ("metric.reporters", "did you mean 'metric_reporters'"),
        ("enable.metrics.push", "did you mean 'enable_metrics_push'"),
    ],
)
def test_refused_kafka_options_give_the_reason(name: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        ProducerOptions.parse({name: "x"})


KAFKA_4_PRODUCER = """
    acks batch.size bootstrap.servers buffer.memory client.dns.lookup client.id compression.gzip.level
    compression.lz4.level compression.type compression.zstd.level connections.max.idle.ms delivery.timeout.ms
    enable.idempotence enable.metrics.push interceptor.classes key.serializer linger.ms max.block.ms
    max.in.flight.requests.per.connection max.request.size metadata.max.age.ms metadata.max.idle.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys receive.buffer.bytes
    reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms
    sasl.client.callback.handler.class sasl.jaas.config sasl.mechanism sasl.oauthbearer.token.endpoint.url
    security.protocol security.providers send.buffer.bytes socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms ssl.cipher.suites ssl.keystore.location ssl.truststore.location
    transaction.timeout.ms transaction.two.phase.commit.enable transactional.id value.serializer
"""


@pytest.mark.parametrize("name", KAFKA_4_PRODUCER.split())
def test_every_producer_option_of_kafka_4_exists_or_is_refused_with_a_reason(name: str) -> None:
    known = {option for option, _, _ in ProducerOptions.describe()}
    with pytest.raises(ConfigurationError) as caught:
        ProducerOptions.parse({name if "." in name else name.upper(): None})
    reason = str(caught.value).partition(" is not an option of the producer: ")[2]
    if name.replace(".", "_") in known:
        assert reason == f"did you mean {name.replace('.', '_')!r}?"
    else:
        assert any(words in reason for words in ("use '", "supported yet", "not push", "hooks=", "begin with ssl_"))


def test_every_renamed_option_names_an_existing_one() -> None:
    known = {name for table in TABLES for name, _, _ in table.describe()}  # type: ignore[attr-defined]
    known |= {"send_buffer_bytes", "receive_buffer_bytes"}
    assert set(RENAMED.values()) <= known
    assert not {*RENAMED, *ABSENT} & known


def test_omitted_options_follow_the_given_ones() -> None:
    options = ProducerOptions.parse({"retry_backoff_ms": 5000, "reconnect_backoff_max_ms": 20, "linger_ms": 200_000})
    assert (options.retry_backoff_ms, options.retry_backoff_max_ms) == (5000, 5000)
    assert (options.reconnect_backoff_ms, options.reconnect_backoff_max_ms) == (20, 20)
    assert options.delivery_timeout_ms == 230_000


def test_options_keep_the_given_values() -> None:
    given = {"acks": "all", "bootstrap_servers": "h"}
    options = ProducerOptions.parse(given)
    assert options.given == given
    assert (options.acks, options.bootstrap_servers) == (-1, (("h", 9092),))


def test_the_profile_of_the_books_defaults_is_overridden_by_options() -> None:
    book = ProducerOptions.parse({"defaults": "kafka-0.10"})
    assert (book.acks, book.retries, book.linger_ms, book.idempotent) == (1, 0, 0, False)
    assert (book.batch_size, book.buffer_memory, book.max_request_size) == (16_384, 33_554_432, 1_048_576)
    assert (book.max_block_ms, book.request_timeout_ms, book.compression_type) == (60_000, 30_000, "none")
    assert (book.retry_backoff_ms, book.retry_backoff_max_ms) == (100, 100)
    assert (book.reconnect_backoff_ms, book.reconnect_backoff_max_ms) == (50, 50)
    assert (book.metadata_max_age_ms, book.connections_max_idle_ms) == (300_000, 540_000)
    assert book.max_in_flight_requests_per_connection == 5
    mixed = ProducerOptions.parse({"defaults": "kafka-0.10", "acks": "all", "retries": 3, "request_timeout_ms": 60_000})
    assert (mixed.acks, mixed.retries, mixed.linger_ms, mixed.delivery_timeout_ms) == (-1, 3, 0, 60_000)
    assert triokafka.Producer(defaults="kafka-0.10").options.acks == 1


def test_the_books_consumer_defaults_as_well() -> None:
    book = ConsumerOptions.parse({"defaults": "kafka-0.10"})
    assert (book.session_timeout_ms, book.request_timeout_ms, book.max_poll_records) == (30_000, 40_000, 2**31 - 1)
    assert book.partition_assignment_strategy == ("range",)


def test_profiles_hold_only_options_that_exist_with_values_that_pass() -> None:
    for table in (ProducerOptions, ConsumerOptions):
        for values in table.PROFILES.values():
            table.parse(values)


def test_idempotence_is_on_unless_other_options_exclude_it() -> None:
    assert ProducerOptions.parse({}).idempotent
    assert not ProducerOptions.parse({"enable_idempotence": False}).idempotent
    assert not ProducerOptions.parse({"acks": 1}).idempotent
    assert not ProducerOptions.parse({"retries": 0}).idempotent
    assert not ProducerOptions.parse({"max_in_flight_requests_per_connection": 8}).idempotent


def test_defaults_are_those_of_kafka_4() -> None:
    options = ProducerOptions.parse({})
    assert (options.acks, options.linger_ms, options.batch_size, options.buffer_memory) == (-1, 5, 16_384, 33_554_432)
    assert (options.delivery_timeout_ms, options.max_block_ms, options.request_timeout_ms) == (120_000, 60_000, 30_000)


@pytest.mark.parametrize("table", TABLES)
def test_every_option_is_described_and_its_default_is_valid(table: Any) -> None:
    described = table.describe()
    assert all(doc.endswith(".") or doc.endswith(")") for _, _, doc in described)
    assert table.parse({name: default for name, default, _ in described}) == table.parse({})


@pytest.mark.parametrize("table", TABLES)
def test_the_typed_options_are_exactly_the_options(table: Any) -> None:
    keywords = KEYWORDS[table]
    assert {*keywords.__optional_keys__} == {name for name, _, _ in table.describe()}  # type: ignore[attr-defined]
    assert not keywords.__required_keys__  # type: ignore[attr-defined]


@pytest.mark.parametrize("call", [triokafka.read_topic, triokafka.RangeReader.__init__, RangeSession.__init__])
def test_range_readers_have_the_names_and_types_of_the_consumers_options(call: Any) -> None:
    """A type checker therefore finds a misspelt option."""
    given = inspect.signature(call).parameters
    assert given["options"].annotation == "Unpack[ConsumerKeywords]"
    assert not ConsumerKeywords.__optional_keys__ & set(given)


JUNK: list[Any] = [
    *[None, True, False, -1, 0, 1, 7, 1.5, float("nan"), float("inf"), 10**30, -(10**30)],
    *[
        "",
        "x",
        "1",
        b"x",
        (),
        [],
        ["x"],
        [None],
        [object()],
        {},
        {"a": 1},
        {1: 2},
        set(),
        object(),
        int,
        len,
        Exception,
    ],
]


@pytest.mark.parametrize("option", [name for name, _, _ in ProducerOptions.describe()])
def test_any_bad_value_of_an_option_is_a_configuration_error_that_names_it(option: str) -> None:
    for value in JUNK:
        try:
            triokafka.Producer(**{option: value})
        except ConfigurationError as refused:
            assert option in str(refused), f"{option}={value!r}: {refused}"


def test_heartbeat_interval_must_be_shorter_than_the_session_timeout() -> None:
    with pytest.raises(ConfigurationError, match="must be less than"):
        ConsumerOptions.parse({"heartbeat_interval_ms": 50_000})


def test_share_groups_are_refused_with_the_supported_protocols() -> None:
    """Share groups (KIP-932) are not implemented."""
    with pytest.raises(ConfigurationError, match="one of 'classic', 'consumer'"):
        ConsumerOptions.parse({"group_protocol": "share"})


def test_javas_tls_properties_become_our_options() -> None:
    given = {
        "ssl_truststore_location": "/ca.pem",
        "ssl_truststore_type": "PEM",
        "ssl_keystore_location": "/me.p12",
        "ssl_keystore_password": "store",
        "ssl_key_password": "key",
        "ssl_endpoint_identification_algorithm": "",
        "ssl_cipher_suites": "A,B",
        "acks": 1,
    }
    options = python_options(given)
    assert {name: reveal(value) if isinstance(value, str) else value for name, value in options.items()} == {
        "ssl_cafile": "/ca.pem",
        "ssl_certfile": "/me.p12",
        "ssl_keystore_password": "store",
        "ssl_password": "key",
        "ssl_check_hostname": False,
        "ssl_ciphers": "A:B",
        "acks": 1,
    }
    assert "'key'" not in repr(options)
