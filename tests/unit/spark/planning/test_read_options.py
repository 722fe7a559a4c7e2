"""The options of ``format("triokafka")``, and its error messages."""

from __future__ import annotations

import dataclasses
import pickle
import traceback
from pathlib import Path

import pytest

from triokafka.client.config import ClientOptions, ConsumerOptions, ProducerOptions
from triokafka.errors import ConfigurationError
from triokafka.spark.planning.bounds import EARLIEST, LATEST, AtGroup, AtOffsets, AtTimestamp, AtTimestamps, Everywhere
from triokafka.spark.planning.client_settings import in_option_names, settable
from triokafka.spark.planning.decoding import DecodingOptions
from triokafka.spark.planning.offsets_json import parse_offsets
from triokafka.spark.planning.read_options import NAMES, ReadOptions
from triokafka.spark.planning.topics import Assign, Subscribe, SubscribePattern
from triokafka.spark.planning.unknown_settings import OF_CONSUMERS, OF_PRODUCERS, WITHOUT_EFFECT
from triokafka.spark.writing.write_options import WriteOptions
from triokafka.structs import TopicPartition

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
ORDERS = [TopicPartition("orders", 0), TopicPartition("orders", 1)]


def parse(options: dict[str, str] | None = None, *, streaming: bool = False) -> ReadOptions:
    return ReadOptions.parse({**SERVERS, "subscribe": "orders", **(options or {})}, streaming=streaming)


def refusal(options: dict[str, str], *, streaming: bool = False) -> str:
    with pytest.raises(ConfigurationError) as refused:
        parse(options, streaming=streaming)
    return str(refused.value)


# ---------------------------------------------------------------- defaults


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("topics", Subscribe(("orders",))),
        ("ending", Everywhere(LATEST)),
        ("fail_on_data_loss", True),
        ("poll_timeout_ms", 120_000),
        ("fetch_offset_retries", 3),
        ("fetch_offset_retry_interval_ms", 1_000),
        ("max_offsets_per_trigger", None),
        ("min_offsets_per_trigger", None),
        ("max_trigger_delay_ms", 900_000),
        ("min_partitions", None),
        ("max_records_per_partition", None),
        ("include_headers", False),
        ("late_binding", False),
        ("max_partitions", None),
        ("max_bytes_per_trigger", None),
        ("max_bytes_per_partition", None),
        ("batch_rows", 20_000),
        ("batch_bytes", 1 << 20),
        ("fetch_ahead", 2),
        ("columns", ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")),
        ("commit_group_id", None),
        ("on_missing_partitions", None),
        ("latest_offset_regression_ms", None),
        ("initial_offsets_path", None),
        ("group_id", None),
        ("warnings", ()),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_defaults_equal_the_connectors(name: str, default: object, streaming: bool) -> None:
    """Promised: option names"""
    assert getattr(parse(streaming=streaming), name) == default


def test_batches_and_streams_differ_in_where_they_start_and_in_the_names_of_groups() -> None:
    assert (parse().starting, parse().group_id_prefix) == (Everywhere(EARLIEST), "spark-kafka-relation")
    stream = parse(streaming=True)
    assert (stream.starting, stream.group_id_prefix) == (Everywhere(LATEST), "spark-kafka-source")


# ---------------------------------------------------------------- values


@pytest.mark.parametrize(
    ("option", "text", "attribute", "value"),
    [
        ("failOnDataLoss", "FALSE", "fail_on_data_loss", False),
        ("dataLossPolicy", "skip", "fail_on_data_loss", False),
        ("dataLossPolicy", "fail", "fail_on_data_loss", True),
        ("dataLossPolicy", "fail-but-tolerate-compaction", "fail_on_data_loss", True),
        ("kafkaConsumer.pollTimeoutMs", "512", "poll_timeout_ms", 512),
        ("fetchOffset.numRetries", "7", "fetch_offset_retries", 7),
        ("fetchOffset.retryIntervalMs", "0", "fetch_offset_retry_interval_ms", 0),
        ("maxOffsetsPerTrigger", str(2**63 - 1), "max_offsets_per_trigger", 2**63 - 1),
        ("minOffsetsPerTrigger", "5", "min_offsets_per_trigger", 5),
        ("maxTriggerDelay", "5s", "max_trigger_delay_ms", 5_000),
        ("maxTriggerDelay", "0s", "max_trigger_delay_ms", 0),
        ("maxTriggerDelay", "2 min", "max_trigger_delay_ms", 120_000),
        ("maxTriggerDelay", "250", "max_trigger_delay_ms", 250),
        ("minPartitions", "6", "min_partitions", 6),
        ("maxRecordsPerPartition", "1000", "max_records_per_partition", 1_000),
        ("maxPartitions", "2", "max_partitions", 2),
        ("maxBytesPerTrigger", "1048576", "max_bytes_per_trigger", 1 << 20),
        ("maxBytesPerPartition", "1024", "max_bytes_per_partition", 1_024),
        ("groupIdPrefix", "mine", "group_id_prefix", "mine"),
        ("includeHeaders", "true", "include_headers", True),
        ("offsetsBinding", "late", "late_binding", True),
        ("batchRows", "500", "batch_rows", 500),
        ("batchBytes", "65536", "batch_bytes", 65_536),
        ("fetchAhead", "8", "fetch_ahead", 8),
        ("columns", "offset, VALUE", "columns", ("value", "offset")),
        ("commitGroupId", "lag", "commit_group_id", "lag"),
        ("onMissingPartitions", "earliest", "on_missing_partitions", EARLIEST),
        ("onMissingPartitions", "latest", "on_missing_partitions", LATEST),
        ("latestOffsetRegressionTimeout", "30s", "latest_offset_regression_ms", 30_000),
        ("initialOffsetsPath", "/tmp/offsets", "initial_offsets_path", "/tmp/offsets"),
        ("kafka.group.id", "g", "group_id", "g"),
    ],
)
def test_options_are_read(option: str, text: str, attribute: str, value: object) -> None:
    assert getattr(parse({option: text}, streaming=True), attribute) == value


def test_names_of_options_are_compared_without_regard_to_case() -> None:
    """KafkaSourceProviderSuite: case handling"""
    options = ReadOptions.parse(
        {
            "KAFKA.BOOTSTRAP.SERVERS": "a:1",
            "Subscribe": "t",
            "IncludeHeaders": "TRUE",
            "STARTINGOFFSETS": "Earliest",
            "KAFKACONSUMER.POLLTIMEOUTMS": "3",
            "fetchoffset.NUMRETRIES": "4",
            "FETCHOFFSET.retryintervalms": "5",
            "MAXOFFSETSPERTRIGGER": "6",
        },
        streaming=True,
    )
    assert options.client.bootstrap_servers == "a:1"
    assert (options.include_headers, options.starting) == (True, Everywhere(EARLIEST))
    assert (options.poll_timeout_ms, options.fetch_offset_retries) == (3, 4)
    assert (options.fetch_offset_retry_interval_ms, options.max_offsets_per_trigger) == (5, 6)


def test_topics_are_trimmed_and_each_is_read_once() -> None:
    assert parse({"subscribe": " orders, payments ,,orders"}).topics == Subscribe(("orders", "payments"))


def test_partitions_and_patterns_choose_topics_too() -> None:
    assigned = ReadOptions.parse({**SERVERS, "assign": '{"b":[1,0],"a":[2]}'}).topics
    assert assigned == Assign((TopicPartition("a", 2), TopicPartition("b", 0), TopicPartition("b", 1)))
    assert ReadOptions.parse({**SERVERS, "subscribePattern": " topic-.* "}).topics == SubscribePattern("topic-.*")


# ---------------------------------------------------------------- start and end


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("earliest", Everywhere(EARLIEST)),
        (" EARLIEST ", Everywhere(EARLIEST)),
        ("latest", Everywhere(LATEST)),
        (
            '{"orders": {"0": 23, "1": -2}}',
            AtOffsets({ORDERS[0]: 23, ORDERS[1]: EARLIEST}),
        ),
        ('{"orders": {"0": -1}}', AtOffsets({ORDERS[0]: LATEST})),
    ],
)
def test_starting_offsets_of_a_stream(text: str, bound: object) -> None:
    assert parse({"startingOffsets": text}, streaming=True).starting == bound


def test_a_stream_may_start_at_the_committed_offsets_of_a_group() -> None:
    options = {"startingOffsets": "group", "commitGroupId": "lag"}
    assert parse(options, streaming=True).starting == AtGroup("lag")
    assert parse({**options, "kafka.group.id": "old"}, streaming=True).starting == AtGroup("old")


def test_times_go_before_offsets_and_one_time_before_many() -> None:
    """KafkaRelationSuite: preferences on offset related options"""
    offsets = {"startingOffsets": "earliest", "endingOffsets": "latest"}
    many = {
        "startingOffsetsByTimestamp": '{"orders": {"0": 5}}',
        "endingOffsetsByTimestamp": '{"orders": {"0": 6}}',
    }
    one = {"startingTimestamp": " 7 ", "endingTimestamp": "8"}
    options = parse({**offsets, **many})
    assert options.starting == AtTimestamps({ORDERS[0]: 5})
    assert options.ending == AtTimestamps({ORDERS[0]: 6})
    options = parse({**offsets, **many, **one})
    assert (options.starting, options.ending) == (AtTimestamp(7), AtTimestamp(8))


def test_a_time_without_a_record_may_stand_for_the_latest() -> None:
    options = parse({"startingTimestamp": "7", "startingOffsetsByTimestampStrategy": "LATEST"})
    assert options.starting == AtTimestamp(7, otherwise_latest=True)


# ---------------------------------------------------------------- refusals

IN_BOTH = [
    # KafkaMicroBatchSourceSuite and KafkaRelationSuite: bad options
    ({"assign": '{"a":[0]}'}, "Only one of the following options can be specified for Kafka source"),
    ({"subscribePattern": "a.*"}, "Only one of the following options can be specified for Kafka source"),
    ({"subscribe": " , "}, "No topics to subscribe to as specified value for option 'subscribe' is ' , '"),
    ({"minPartitions": "a"}, "'minPartitions' must be a whole number"),
    ({"minPartitions": "1.0"}, "'minPartitions' must be a whole number"),
    ({"minPartitions": "0"}, "minPartitions must be positive"),
    ({"minPartitions": "-1"}, "minPartitions must be positive"),
    ({"maxRecordsPerPartition": "0"}, "maxRecordsPerPartition must be positive"),
    ({"maxRecordsPerPartition": "many"}, "'maxRecordsPerPartition' must be a whole number"),
    (
        {"minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "15"},
        "The value of minOffsetPerTrigger(20) is higher than the maxOffsetsPerTrigger(15).",
    ),
    ({"startingTimestamp": "soon"}, "Expected a single long value, got soon in option 'startingTimestamp'"),
    # In a ListOffsets request these would mean the end, the beginning, or an invalid number
    ({"startingTimestamp": "-1"}, "Expected milliseconds since 1970, got -1"),
    ({"startingTimestamp": "-2"}, "use startingOffsets and endingOffsets in option 'startingTimestamp'"),
    ({"startingTimestamp": str(2**63)}, f"Expected a single long value, got {2**63}"),
    ({"startingTimestamp": "9" * 5000}, "Expected a single long value, got 999"),
    ({"minPartitions": "9" * 5000}, "Option 'minPartitions' must be a whole number up to 2147483647, not '999"),
    ({"maxTriggerDelay": "9" * 5000}, "Option 'maxTriggerDelay' must be a time such as 15m"),
    ({"startingTimestamp": "1_000"}, "Expected a single long value, got 1_000"),
    ({"startingOffsetsByTimestamp": '{"o": {"0": 7, "1": -3}}'}, "Expected milliseconds since 1970, got -3"),
    ({"startingOffsetsByTimestamp": "{"}, 'Expected e.g. {"topicA": {"0": 123456789'),
    ({"startingOffsetsByTimestampStrategy": "newest"}, "must be 'error' or 'latest', not 'newest'"),
    ({"startingOffsets": "{"}, 'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got {'),
    ({"startingOffsets": '{"orders": {"0": -3}}'}, "startingOffsets for orders-0 is -3, which is not a valid offset"),
    ({"startingOffsets": "group"}, "name the group with 'kafka.group.id' or 'commitGroupId'"),
    ({"kafka.bootstrap.servers": " "}, "'kafka.bootstrap.servers' must be specified for configuring Kafka consumer"),
    # unsupported kafka.* configurations
    ({"kafka.auto.offset.reset": "latest"}, "Kafka option 'auto.offset.reset' is not supported"),
    ({"kafka.key.deserializer": "x"}, "Kafka option 'key.deserializer' is not supported as keys are deserialized"),
    ({"kafka.value.deserializer": "x"}, "Kafka option 'value.deserializer' is not supported as values are deserial"),
    ({"kafka.enable.auto.commit": "true"}, "Kafka option 'enable.auto.commit' is not supported"),
    ({"kafka.interceptor.classes": "x"}, "Kafka option 'interceptor.classes' is not supported"),
    # ours
    ({"includeHeaders": "yes"}, "'includeHeaders' must be 'true' or 'false', not 'yes'"),
    ({"failOnDataLoss": "true", "dataLossPolicy": "skip"}, "contradict each other"),
    ({"dataLossPolicy": "maybe"}, "must be 'fail', 'skip' or 'fail-but-tolerate-compaction', not 'maybe'"),
    ({"minPartitions": "5", "maxPartitions": "4"}, "minPartitions(5) is higher than the maxPartitions(4)"),
    ({"maxTriggerDelay": "soon"}, "'maxTriggerDelay' must be a time such as 15m"),
    ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger must be positive"),
    ({"columns": "value,size"}, "'columns' names 'size': there are key, value, topic"),
    ({"columns": ","}, "'columns' names no column"),
    ({"columns": "headers"}, "'headers', which exists only with includeHeaders"),
    ({"offsetsBinding": "never"}, "'offsetsBinding' must be 'snapshot' or 'late'"),
    ({"onMissingPartitions": "skip"}, "'onMissingPartitions' must be 'error', 'earliest' or 'latest'"),
    ({"startingOffset": "earliest"}, "Unknown option 'startingoffset'; did you mean 'startingOffsets'?"),
    ({"kafka.isolation.level": "committed"}, "A 'kafka.' option cannot be used: kafka.isolation.level='committed'"),
    ({"kafka.bootstrap.servers": "http://a:1"}, "'host:port' without a scheme"),
    ({"kafka.fetch.max.wait.ms": "long"}, "kafka.fetch.max.wait.ms='long' cannot be used"),
    (
        {"schemaRegistry": "http://me:hush@nowhere", "valueFormat": "avro"},
        "must hold no credentials: give them as 'schemaRegistry.user' and 'schemaRegistry.password'",
    ),
    ({"kafka.sasl.mechanism": "CRAM-MD5"}, "kafka.sasl.mechanism='CRAM-MD5' cannot be used"),
    ({"kafka.ssl.engine.factory.class": "x"}, "Kafka option 'ssl.engine.factory.class' is not supported"),
    ({"kafka.security.protocol": "SASL_SSL"}, "needs kafka.sasl.mechanism"),
]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(("options", "sentence"), IN_BOTH)
def test_bad_options_are_refused_with_a_clear_message(options: dict[str, str], sentence: str, streaming: bool) -> None:
    assert sentence in refusal(options, streaming=streaming)


INT, LONG = 2**31 - 1, 2**63 - 1
BOUNDS = [
    ("kafkaConsumer.pollTimeoutMs", "poll_timeout_ms", 1, LONG),
    ("fetchOffset.numRetries", "fetch_offset_retries", 1, INT),
    ("fetchOffset.retryIntervalMs", "fetch_offset_retry_interval_ms", 0, LONG),
    ("maxOffsetsPerTrigger", "max_offsets_per_trigger", 1, LONG),
    ("minOffsetsPerTrigger", "min_offsets_per_trigger", 1, LONG),
    ("minPartitions", "min_partitions", 1, INT),
    ("maxRecordsPerPartition", "max_records_per_partition", 1, LONG),
    ("maxPartitions", "max_partitions", 1, INT),
    ("maxBytesPerTrigger", "max_bytes_per_trigger", 1, LONG),
    ("maxBytesPerPartition", "max_bytes_per_partition", 1, LONG),
    ("batchRows", "batch_rows", 1, 1_000_000),
    ("batchBytes", "batch_bytes", 1_024, 1 << 30),
    ("fetchAhead", "fetch_ahead", 1, 1_000),
]


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(("name", "attribute", "least", "most"), BOUNDS, ids=lambda value: str(value))
def test_numbers_have_bounds(name: str, attribute: str, least: int, most: int, streaming: bool) -> None:
    """Both bounds are accepted, and values beyond them are refused by name."""
    for bound in (least, most):
        assert getattr(parse({name: str(bound)}, streaming=streaming), attribute) == bound
    for text in (str(least - 1), str(most + 1), "a", "1.0", "", "1e3", "-5"):
        assert name in refusal({name: text}, streaming=streaming), text


@pytest.mark.parametrize("text", ["15m ago", "-1s", "1 week", "", "s"])
@pytest.mark.parametrize("name", ["maxTriggerDelay", "latestOffsetRegressionTimeout"])
def test_times_have_units(name: str, text: str) -> None:
    assert f"'{name}' must be a time such as 15m" in refusal({name: text}, streaming=True)


@pytest.mark.parametrize("text", ["yes", "1", "", "truee"])
@pytest.mark.parametrize("name", ["failOnDataLoss", "includeHeaders"])
def test_flags_are_true_or_false(name: str, text: str) -> None:
    assert f"'{name}' must be 'true' or 'false'" in refusal({name: text})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
        (
            {"startingOffsets": '{"orders": {"0": -1}}'},
            "startingOffsets for orders-0 can't be latest for batch queries on Kafka",
        ),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries on Kafka"),
        (
            {"endingOffsets": '{"orders": {"0": -2}}'},
            "ending offset for orders-0 can't be earliest for batch queries on Kafka",
        ),
        ({"endingOffsets": "group"}, "Expected e.g."),
        (
            {"startingOffsets": '{"orders": {"0": 3}}', "endingOffsets": '{"orders": {"0": 4, "1": 4}}'},
            "MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET",
        ),
        (
            {"startingOffsets": '{"orders": {"0": 5}}', "endingOffsets": '{"orders": {"0": 4}}'},
            "UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET",
        ),
        (
            {"startingOffsetsByTimestamp": '{"o": {"0": 5}}', "endingOffsetsByTimestamp": '{"o": {"0": 4}}'},
            "The specified start timestamp 5 is greater than the end timestamp 4 for topic o partition 0",
        ),
        ({"endingTimestamp": "-1"}, "got -1: for the beginning or the end of partitions"),
        ({"endingOffsetsByTimestamp": '{"o": {"0": -2}}'}, "in option 'endingOffsetsByTimestamp'"),
        ({"startingTimestamp": "5", "endingTimestamp": "4"}, "start timestamp 5 is greater than the end timestamp 4"),
    ],
)
def test_bad_batch_options(options: dict[str, str], sentence: str) -> None:
    """KafkaRelationSuite: bad batch query options, start > end unresolved, partition sets that do not match"""
    assert sentence in refusal(options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"endingOffsets": "latest"}, "ending offset not valid in streaming queries"),
        ({"endingOffsetsByTimestamp": '{"orders": {"0": 4}}'}, "ending timestamp not valid in streaming queries"),
        ({"endingTimestamp": "4"}, "ending timestamp not valid in streaming queries"),
    ],
)
def test_a_stream_has_no_end(options: dict[str, str], sentence: str) -> None:
    assert refusal(options, streaming=True) == sentence


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "One of the following options must be specified for Kafka source"),
        ({"assign": ""}, "No topicpartitions to assign as specified value for option 'assign' is ''"),
        ({"assign": "{}"}, "No topicpartitions to assign"),
        ({"assign": '{"a": [-1]}'}, 'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}, got {"a": [-1]}'),
        ({"subscribe": ""}, "No topics to subscribe to as specified value for option 'subscribe' is ''"),
        ({"subscribePattern": " "}, "Pattern to subscribe is empty as specified value for option 'subscribePattern'"),
        ({"subscribePattern": "("}, "'subscribePattern' is not a pattern that can be used: '('"),
    ],
)
def test_topics_must_be_named_in_one_way(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        ReadOptions.parse({**SERVERS, **options})
    assert sentence in str(refused.value)


def test_without_brokers_there_is_nothing_to_read() -> None:
    with pytest.raises(ConfigurationError, match=r"'kafka\.bootstrap\.servers' must be specified"):
        ReadOptions.parse({"subscribe": "orders"})


def test_a_schema_can_be_requested_before_it_is_known_how_it_is_read() -> None:
    """Errors that apply in both cases are reported already then."""
    for given in ({"startingOffsets": "latest"}, {"endingOffsets": "latest"}):
        ReadOptions.parse_either({**SERVERS, "subscribe": "orders", **given})
    with pytest.raises(ConfigurationError, match="starting offset can't be latest"):
        ReadOptions.parse_either(
            {**SERVERS, "subscribe": "orders", "startingOffsets": "latest", "endingOffsets": "latest"}
        )


# ---------------------------------------------------------------- the client's settings


def test_client_settings_take_kafkas_names_and_become_numbers_and_flags() -> None:
    given = {"kafka.max.partition.fetch.bytes": "4096", "kafka.check.crcs": "false", "kafka.client.id": "7"}
    assert parse(given).client.values == {"max_partition_fetch_bytes": 4096, "check_crcs": False, "client_id": "7"}


@pytest.mark.parametrize("text", ["nan", "inf", "1_000", "1e3", "\uff11", "", "9" * 5000])
@pytest.mark.parametrize("name", ["kafka.default.api.timeout.ms", "kafka.request.timeout.ms"])
def test_numbers_of_clients_are_parsed_as_in_java(name: str, text: str) -> None:
    """Python accepts more texts as numbers, and infinity would cause an unclear error."""
    for take in (parse, parse_write):
        if take is parse or name == "kafka.request.timeout.ms":  # of both
            with pytest.raises(ConfigurationError, match=f"A 'kafka.' option cannot be used: {name}="):
                take({name: text})


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_isolation_levels(level: str) -> None:
    """KafkaOffsetReaderSuite: isolationLevel must give back what is set, and the default when not set"""
    assert parse({"kafka.isolation.level": level}).client.values == {"isolation_level": level}
    assert ConsumerOptions.parse({"bootstrap_servers": "a:1"}).isolation_level == "read_uncommitted"


def parse_write(given: dict[str, str]) -> WriteOptions:
    return WriteOptions.parse({"kafka.bootstrap.servers": "a:1", "topic": "t", **given})


@pytest.mark.parametrize("name", sorted(WITHOUT_EFFECT | OF_CONSUMERS | OF_PRODUCERS))
def test_every_option_of_java_is_accepted_or_refused_with_a_reason(name: str) -> None:
    """Options are moved from the connector unchanged. Both sides often get the same ones."""
    unknown = {"write": {"compression.gzip.level", "compression.lz4.level", "compression.zstd.level",
                      "transaction.two.phase.commit.enable"}}  # fmt: skip
    for side, take in (("read", parse), ("write", parse_write)):
        try:
            take({f"kafka.{name}": "1"})
        except ConfigurationError as refused:
            assert "Unknown option" not in str(refused) or name in unknown.get(side, ())


def test_settings_that_tune_javas_clients_or_belong_to_the_other_side_do_nothing() -> None:
    given = {"kafka.max.poll.records": "5", "kafka.acks": "all", "kafka.config.providers.file.class": "F"}
    options = parse({**given, "kafka.metrics.context.team": "a", "kafka.compression.level": "3", "verbose": "yes"})
    assert options.client.values == {}
    assert options.warnings == ("options that the source does not know are ignored: 'verbose'",)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("isolation.levl", "did you mean 'kafka.isolation.level'?"),
        ("isolation-level", "did you mean 'kafka.isolation.level'?"),
        ("max.poll.record", "did you mean 'kafka.max.poll.records'?"),
        ("fetch.message.max.bytes", "here it is 'kafka.max.partition.fetch.bytes'"),
        ("consumer.timeout.ms", "option kafkaConsumer.pollTimeoutMs says how long a task waits"),
        ("api.version", "the client negotiates versions with every broker"),
        ("security.providers", "no such option of TLS or SASL"),
    ],
)
def test_a_misspelt_setting_is_refused_on_both_sides(name: str, sentence: str) -> None:
    """Java's clients only log it, and then behave differently from the user's intent, for example read
    aborted records.
    """
    for side, take in (("read", parse), ("write", parse_write)):
        with pytest.raises(ConfigurationError) as refused:
            take({f"kafka.{name}": "hush"})
        assert f"of a {side}" in str(refused.value) or "is not supported" in str(refused.value)
        assert sentence in str(refused.value) or (side, name) == ("write", "fetch.message.max.bytes")
        assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "sides"),
    [
        ("isolation.level", ["read"]),
        ("isolation_level", ["read"]),
        ("max.partition.fetch.bytes", ["read"]),
        ("acks", ["write"]),
        ("linger-ms", ["write"]),
        ("client.id", ["read", "write"]),
        ("security.protocol", ["read", "write"]),
        ("sasl.mechanism", ["read", "write"]),
        ("ssl.truststore.location", ["read", "write"]),
    ],
)
def test_a_setting_without_its_prefix_is_refused_where_it_would_count(name: str, sides: list[str]) -> None:
    """Otherwise aborted records would be read, or data would be sent unencrypted."""
    for side, take in (("read", parse), ("write", parse_write)):
        if side in sides:
            meant = name.replace("_", ".").replace("-", ".")
            with pytest.raises(ConfigurationError, match=f"of a {side}; did you mean 'kafka.{meant}'") as refused:
                take({name: "hush"})
            assert "hush" not in str(refused.value)
        else:
            assert name in take({name: "hush"}).warnings[0]


def test_unknown_settings_are_ignored_with_one_warning_on_both_sides() -> None:
    """Java's clients pass such settings to plug-ins."""
    for take in (parse, parse_write):
        found = take({"kafka.foo.bar": "hush", "kafka.hooks": "x", "kafka.acme.tracing": "on"})
        assert found.warnings == (
            "options that no Kafka client knows are left out: 'kafka.acme.tracing', 'kafka.foo.bar', 'kafka.hooks'",
        )


@pytest.mark.parametrize("options", [ConsumerOptions, ProducerOptions])
def test_no_message_names_a_clients_own_option(options: type[ClientOptions]) -> None:
    """An option is named as the user gave it."""
    for name in settable(options):
        given = f"{name}=5 is odd"
        assert in_option_names(given) == f"kafka.{name.replace('_', '.')}=5 is odd"
    assert in_option_names("raise linger_ms, or buffer_memory.") == "raise kafka.linger.ms, or kafka.buffer.memory."


@pytest.mark.parametrize(
    "sentence",
    ["topic 'client_id' retries", "acks are late", 'of "linger_ms"', "/etc/linger_ms/x", "my_client_id", "linger_ms-3"],
)
def test_names_that_are_no_options_are_left_alone(sentence: str) -> None:
    assert in_option_names(sentence) == sentence


def test_a_group_id_is_taken_with_a_warning() -> None:
    (warning,) = parse({"kafka.group.id": "g", "groupIdPrefix": "p"}).warnings
    assert "'kafka.group.id' has been set on this query" in warning
    assert "groupIdPrefix will be ignored" in warning
    (warning,) = parse({"kafka.group.id": "g", "startingOffsets": "group", "startingTimestamp": "5"}).warnings
    assert "'kafka.group.id' has been set" in warning, "the timestamp is part of the message"


@pytest.mark.parametrize("streaming", [False, True])
def test_a_group_id_that_says_where_to_start_is_no_reason_to_warn(streaming: bool) -> None:
    given = {"kafka.group.id": "g", "startingOffsets": "group", "groupIdPrefix": "p"}
    options = parse(given, streaming=streaming)
    assert (options.starting, options.warnings) == (AtGroup("g"), ())


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"])
def test_limits_of_triggers_are_ignored_in_a_batch_with_a_warning(name: str) -> None:
    assert parse({name: "7"}).warnings == (f"{name} option ignored in batch queries",)
    assert parse({name: "7"}, streaming=True).warnings == ()


def test_client_settings_may_hold_passwords_and_are_not_shown() -> None:
    """Spark can print every local variable of a failed task."""
    options = parse({"kafka.client.id": "hush"})
    for shown in (repr(options), str(options), repr(options.client), f"{dataclasses.replace(options)}"):
        assert "hush" not in shown
    assert "hush" not in repr(options.client.key)
    assert options.client.key == parse({"kafka.client.id": "hush"}).client.key
    assert options.client.key != parse({"kafka.client.id": "hash"}).client.key


@pytest.mark.parametrize(
    "wrong",
    [
        {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": "user hush"},
        {"kafka.ssl.key.password": "hush", "startingOffsets": "{"},
        {"kafka.client.id": "hush", "kafka.fetch.max.bytes": "many"},
        {"kafka.client.id": "hush", "subscribePattern": "a"},
        {"kafka.client.id": "hush", "kafka.key.deserializer": "x"},
        {"schemaRegistry": "nowhere", "schemaRegistry.password": "hush", "valueFormat": "avro"},
        {"schemaRegistry": "http://me:hush@nowhere", "valueFormat": "avro"},
    ],
)
def test_no_local_variable_of_a_refusal_shows_a_password(wrong: dict[str, str]) -> None:
    """``spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled`` prints them all."""
    import pyspark_triokafka

    source = pyspark_triokafka.DefaultSource({**SERVERS, "subscribe": "orders", **wrong})
    with pytest.raises(ConfigurationError) as refused:
        ReadOptions.parse_either(source._options())  # which `schema` calls, and cuts the traceback off
    without_test = refused.value.with_traceback(refused.tb.tb_next)
    shown = "".join(traceback.TracebackException.from_exception(without_test, capture_locals=True).format())
    assert "given = <" in shown, "local variables are shown"
    assert "hush" not in shown


def test_options_are_frozen_and_small_when_pickled() -> None:
    options = parse({"kafka.client.id": "a"})
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.streaming = True  # type: ignore[misc]
    pickled = pickle.dumps(options)
    assert pickle.loads(pickled) == options
    assert len(pickled) < 2_000


def test_every_option_is_read_somewhere() -> None:
    """A name in the list that nothing reads would be an option without effect."""
    import inspect

    from triokafka.spark.planning import decoding, offset_options, option_values
    from triokafka.spark.planning import read_options as options

    sources = "".join(inspect.getsource(module) for module in (offset_options, option_values, options))
    sources = sources.replace(inspect.getsource(options).partition("NAMES: Final")[2].partition(")  # fmt")[0], "")
    composed = {f"{side}{kind}" for side in ("starting", "ending") for kind in ("Timestamp", "OffsetsByTimestamp")}
    composed |= {"startingOffsets", "endingOffsets", "maxOffsetsPerTrigger", "minOffsetsPerTrigger"}
    for name in set(NAMES) - composed - set(decoding.NAMES):
        assert f'"{name}"' in sources or f'"{name.lower()}"' in sources, name


def test_every_option_about_decoding_is_read_somewhere() -> None:
    from triokafka.spark.planning.decoding import NAMES as ABOUT_DECODING

    class Asked(dict[str, str]):
        def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
            seen.add(name)
            return super().get(name, default)

    seen: set[str] = set()
    given = {"schemaregistry": "http://x", "valueformat": "avro", "keyformat": "avro"}
    DecodingOptions.parse(Asked(given), Subscribe(("t",)), ("key", "value"))
    assert seen == {name.lower() for name in ABOUT_DECODING}


def test_every_option_is_documented() -> None:
    page = (Path(__file__).parents[4] / "docs" / "spark.md").read_text()
    assert [name for name in NAMES if f"`{name}`" not in page] == []


def test_json_offsets_do_not_name_a_partition_twice() -> None:
    with pytest.raises(ConfigurationError, match=r"Expected e\.g\."):
        parse_offsets('{"orders": {"0": 1, "0": 2}}')
