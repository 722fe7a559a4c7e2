"""The batch reader and Spark's own Kafka connector in one session: the same rows from the same topics.

The cases are every form of start and end, headers and nulls, transactions and compaction, on Apache Kafka and on our
broker.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.spark_jars import connector_jars
from tests.interop.jvm import apache_kafka
from tests.spark.written_logs import log_writer
from tests.support.broker_process import broker_process
from tests.support.spark_session import spark_session

pytestmark = pytest.mark.interop

FIRST, SECOND, THIRD = 1_600_000_000_000, 1_600_000_001_000, 1_600_000_002_000
TIMEOUT = 60.0


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session with both connectors."""
    jars = ",".join(str(jar) for jar in connector_jars())
    home = str(tmp_path_factory.mktemp("home"))
    with spark_session("triokafka beside the connector", home, jars=jars, driver_memory="1g") as session:
        yield session


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run Apache Kafka with a log cleaner that runs often."""
    hurry: dict[str, Any] = {"log_cleaner_backoff_ms": "100", "log_cleaner_min_cleanable_ratio": "0.01"}
    with apache_kafka(tmp_path_factory.mktemp("kafka"), **hurry) as address:
        yield address


@pytest.fixture(scope="module", params=["kafka", "triokafka"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each of the two brokers, with the plain topic."""
    if request.param == "kafka":
        found = request.getfixturevalue("kafka")
        write_plain(found)
        yield found
    else:
        with broker_process() as found:
            write_plain(found)
            yield found


def create(address: str, topic: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    topics = [NewTopic(topic, partitions, 1, config={name.replace("_", "."): value for name, value in config.items()})]
    for future in admin.create_topics(topics).values():
        future.result(TIMEOUT)


def write_plain(address: str) -> None:
    """Write 300 records in three partitions at three times, with nulls and headers of every kind."""
    create(address, "plain", 3, retention_ms="-1")
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5})
    for number in range(300):
        headers: list[tuple[str, bytes | None]] = [
            [],
            [("a", b"1")],
            [("a", b"1"), ("a", None), ("ü", b"")],
            [("empty", b""), ("b", b"\x00\xff")],
        ][number % 4]  # type: ignore[assignment]
        producer.produce(
            "plain",
            None if number % 7 == 0 else b"" if number % 7 == 1 else b"value %d" % number,
            None if number % 5 == 0 else b"key %d" % number,
            number % 3,
            timestamp=(FIRST, SECOND, THIRD)[number // 100],
            headers=headers,
        )
        if number % 10 == 9:
            producer.flush(TIMEOUT)
    assert producer.flush(TIMEOUT) == 0


def rows(spark: Any, form: str, options: Mapping[str, str]) -> list[dict[str, Any]]:
    frame = spark.read.format(form).options(**options).load()
    return [row.asDict(recursive=True) for row in frame.orderBy("topic", "partition", "offset").collect()]


def compare(spark: Any, address: str, **options: str) -> int:
    """Read with both, and compare row by row; return the number of rows."""
    given = {"kafka.bootstrap.servers": address, "includeHeaders": "true", **options}
    theirs = rows(spark, "kafka", given)
    ours = rows(spark, "triokafka", given)
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == other
    return len(ours)


def by_partition(topic: str, *values: int) -> str:
    return json.dumps({topic: {str(number): value for number, value in enumerate(values)}})


def test_the_schemas_are_the_same(spark: Any, address: str) -> None:
    for headers in ("false", "true"):
        given = {"kafka.bootstrap.servers": address, "subscribe": "plain", "includeHeaders": headers}
        ours, theirs = (spark.read.format(form).options(**given).load().schema for form in ("triokafka", "kafka"))
        assert ours == theirs


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"startingOffsets": "earliest", "endingOffsets": "latest"},
        {"startingOffsets": by_partition("plain", 10, -2, 99), "endingOffsets": by_partition("plain", 60, -1, 100)},
        {"startingOffsets": by_partition("plain", 0, 0, 0), "endingOffsets": by_partition("plain", 0, 1, 0)},
        {"startingTimestamp": str(SECOND)},
        {"startingTimestamp": str(SECOND), "endingTimestamp": str(THIRD)},
        {"endingTimestamp": str(SECOND)},
        {"endingTimestamp": str(THIRD + 1)},
        {"startingOffsetsByTimestamp": by_partition("plain", FIRST, SECOND, THIRD)},
        {
                "startingOffsetsByTimestamp": by_partition("plain", SECOND, SECOND, THIRD + 5),
                "startingOffsetsByTimestampStrategy": "latest",
            },
        {
                "startingOffsets": by_partition("plain", 3, -2, 0),
                "endingOffsetsByTimestamp": by_partition("plain", SECOND, THIRD, FIRST),
            },
        {"startingTimestamp": str(THIRD), "startingOffsets": "earliest"},
        {"startingTimestamp": str(THIRD + 10), "startingOffsetsByTimestampStrategy": "latest"},
        {
                "startingOffsetsByTimestamp": by_partition("plain", FIRST, SECOND, SECOND),
                "endingOffsets": by_partition("plain", 20, -1, 99),
            },
        {"startingOffsets": by_partition("plain", 7, 8, -2), "endingTimestamp": str(THIRD)},
        {"startingOffsets": "earliest", "endingOffsetsByTimestamp": by_partition("plain", SECOND, THIRD + 9, FIRST)},
        {"minPartitions": "5", "maxRecordsPerPartition": "40", "startingTimestamp": str(SECOND)},
        {"minPartitions": "8"},
        {"maxRecordsPerPartition": "30"},
        {"failOnDataLoss": "false"},
    ],
    ids=str,
)  # fmt: skip
def test_batches_have_the_same_rows(spark: Any, address: str, options: dict[str, str]) -> None:
    is_after_all = options.get("startingTimestamp") == str(THIRD + 10)
    assert bool(compare(spark, address, subscribe="plain", **options)) != is_after_all


# ---------------------------------------------------------------- contents of the records


@pytest.fixture(scope="module")
def many(address: str) -> str:
    """Create two more topics: one with the broker's timestamps, and one with a batch of every codec."""
    create(address, "appended", 2, message_timestamp_type="LogAppendTime")
    create(address, "codecs", 1, retention_ms="-1")
    producer = Producer({"bootstrap.servers": address})
    for number in range(50):
        producer.produce("appended", b"%d" % number, partition=number % 2, timestamp=FIRST)
    assert producer.flush(TIMEOUT) == 0
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        producer = Producer({"bootstrap.servers": address, "compression.type": codec, "linger.ms": 100})
        for place in range(100):
            value = None if place % 9 == 0 else b"" if place % 9 == 1 else b"%s %d " % (codec.encode(), place) * 30
            headers = [("n", b"%d" % place), ("n", None)] if place % 3 else []
            producer.produce("codecs", value, b"" if place % 2 else None, 0, timestamp=FIRST + number, headers=headers)
        assert producer.flush(TIMEOUT) == 0
    return address


def test_times_of_the_broker_and_every_codec_have_the_same_rows(spark: Any, many: str) -> None:
    assert compare(spark, many, subscribe="appended") == 50
    assert compare(spark, many, subscribe="codecs") == 500
    assert compare(spark, many, subscribe="plain,codecs,appended", minPartitions="20") == 850
    offsets = by_partition("codecs", 150)
    assert compare(spark, many, subscribe="codecs", startingOffsets=offsets, maxRecordsPerPartition="37") == 350


def test_both_connectors_write_the_same_records_to_the_same_partitions(spark: Any, address: str) -> None:
    """KafkaSinkSuite, compared with the connector: keys choose the same partitions as in Java, nulls and headers are
    equal.
    """
    frame = spark.sql(
        "SELECT IF(id % 4 = 0, NULL, CAST(CONCAT('value ', id) AS BINARY)) AS value, CONCAT('key ', id) AS key,"
        " IF(id % 3 = 0, NULL, array(named_struct('key', 'h', 'value', CAST(id AS STRING)),"
        " named_struct('key', 'h', 'value', NULL))) AS headers, IF(id % 5 = 0, 1, NULL) AS partition FROM range(400)"
    ).selectExpr(
        "value", "key", "CAST(partition AS INT) AS partition",
        "transform(headers, h -> named_struct('key', h.key, 'value', CAST(h.value AS BINARY))) AS headers",
    )  # fmt: skip
    found = {}
    for form in ("kafka", "triokafka"):
        topic = f"written-by-{form}"
        create(address, topic, 3)
        given = {"kafka.bootstrap.servers": address, "topic": topic}
        frame.write.format(form).options(**given).mode("append").save()
        read = rows(spark, "kafka", {**given, "subscribe": topic, "includeHeaders": "true"})
        found[form] = sorted(
            (row["partition"], row["key"], row["value"], json.dumps(row["headers"], default=bytes.hex)) for row in read
        )
    assert len(found["kafka"]) == 400
    assert found["triokafka"] == found["kafka"]


@pytest.mark.parametrize("fails", ["true", "false"])
def test_records_deleted_by_retention_are_the_same_loss_in_both_connectors(
    spark: Any, address: str, fails: str
) -> None:
    """Both fail, with the same class, or both return the remaining rows, and no row twice."""
    topic = f"cut-{fails}"
    create(address, topic, 1, retention_ms="-1")
    producer = Producer({"bootstrap.servers": address})
    for number in range(100):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(TIMEOUT) == 0
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.delete_records([TopicPartition(topic, 0, 60)]).values():
        future.result(TIMEOUT)
    given = {"subscribe": topic, "startingOffsets": by_partition(topic, 10), "failOnDataLoss": fails}
    if fails == "false":
        assert compare(spark, address, **given) == 40
        return
    for form in ("kafka", "triokafka"):
        with pytest.raises(Exception) as lost:
            rows(spark, form, {"kafka.bootstrap.servers": address, **given})
        assert "Some data may have been lost because they are not available in Kafka any more;" in str(lost.value), form
        assert "in offset [10, 100) for topic partition" in str(lost.value), form


# ---------------------------------------------------------------- choice of topics


def test_other_ways_to_choose_topics(spark: Any, address: str) -> None:
    assert compare(spark, address, subscribePattern="pl.in") == 300
    assert compare(spark, address, assign='{"plain": [0, 2]}') == 200
    assert compare(spark, address, subscribe=" plain, plain") == 300


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
        ({"startingOffsets": by_partition("plain", -1, 0, 0)}, "can't be latest for batch queries on Kafka"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries on Kafka"),
        ({"startingTimestamp": str(THIRD + 10)}, "No offset matched from request of topic-partition plain-"),
        ({"kafka.key.deserializer": "x"}, "Kafka option 'key.deserializer' is not supported as keys are deserialized"),
        ({"minPartitions": "0"}, "minPartitions must be positive"),
        ({"startingOffsets": "{"}, 'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got {'),
        ({"subscribePattern": "x"}, "Only one of the following options can be specified for Kafka source: "),
        (
            {"startingOffsets": by_partition("plain", 1, 1), "endingOffsets": by_partition("plain", 2, 2, 2)},
            "The specified start offset and end offset should have the same topic-partitions.",
        ),
        (
            {"startingOffsets": by_partition("plain", 5, 0, 0), "endingOffsets": by_partition("plain", 2, 2, 2)},
            "The specified start offset 5 is greater than the end offset 2 for topic plain partition 0.",
        ),
        ({"startingOffsets": by_partition("plain", 1, 1)}, "Use -1 for latest, -2 for earliest"),
    ],
    ids=str,
)
def test_both_connectors_refuse_with_the_same_words(
    spark: Any, kafka: str, address: str, options: dict[str, str], sentence: str
) -> None:
    for form in ("kafka", "triokafka"):
        with pytest.raises(Exception) as refused:
            rows(spark, form, {"kafka.bootstrap.servers": address, "subscribe": "plain", **options})
        assert sentence in str(refused.value), form


# ---------------------------------------------------------------- transactions


@pytest.fixture(scope="module")
def transactional(kafka: str) -> str:
    """Write committed, aborted and interleaved transactions in two partitions, and one that is open at the end."""
    create(kafka, "transactional", 2)
    producers = []
    for name in ("a", "b"):
        producer = Producer({"bootstrap.servers": kafka, "transactional.id": name, "compression.type": "lz4"})
        producer.init_transactions(TIMEOUT)
        producers.append(producer)
    number = 0
    for turn in range(12):
        for producer in producers:
            producer.begin_transaction()
        for step in range(6):
            for producer in producers:
                producer.produce("transactional", b"%d" % number, partition=(turn + step) % 2)
                producer.flush(TIMEOUT)
                number += 1
        for place, producer in enumerate(producers):
            if (turn + place) % 3:
                producer.commit_transaction(TIMEOUT)
            else:
                producer.abort_transaction(TIMEOUT)
    producers[0].begin_transaction()
    producers[0].produce("transactional", b"open", partition=0)
    producers[0].flush(TIMEOUT)
    outside = Producer({"bootstrap.servers": kafka})
    outside.produce("transactional", b"behind the open one", partition=0)
    assert outside.flush(TIMEOUT) == 0
    return kafka


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_transactional_topics_have_the_same_rows(spark: Any, transactional: str, level: str) -> None:
    given = {"subscribe": "transactional", "kafka.isolation.level": level, "kafkaConsumer.pollTimeoutMs": "5000"}
    whole = compare(spark, transactional, **given)
    assert whole == (96 if level == "read_committed" else 146)
    assert compare(spark, transactional, **given, minPartitions="9") == whole
    for start, end in (((0, 5), (20, 30)), ((33, 2), (34, 3))):
        compare(
            spark,
            transactional,
            **given,
            startingOffsets=by_partition("transactional", *start),
            endingOffsets=by_partition("transactional", *end),
        )


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_logs_written_by_hand_have_the_same_rows(spark: Any, level: str) -> None:
    """Markers, aborted transactions and gaps of compaction, batch by batch, on our broker."""
    with log_writer() as logs:
        topic = logs.topic(2)
        for partition in range(2):
            for turn in range(6):
                for producer in (1, 2):
                    values = range(turn * 10 + producer, turn * 10 + producer + 3)
                    topic.write(values, partition=partition, producer=producer, codec=("lz4", "none")[partition])
                topic.write([turn], partition=partition)
                (topic.commit if turn % 3 else topic.abort)(1, partition=partition)
                (topic.abort if turn % 2 else topic.commit)(2, partition=partition)
        topic.write_at(100, range(5), partition=1)
        topic.write_at(150, range(5), partition=1)
        more = {"kafka.isolation.level": level, "kafkaConsumer.pollTimeoutMs": "5000"}
        given = {"subscribe": topic.name, **more}
        whole = compare(spark, topic.bootstrap, **given)
        assert whole == (64 if level == "read_committed" else 94)
        assert compare(spark, topic.bootstrap, **given, minPartitions="11") == whole
        compare(spark, topic.bootstrap, **given, startingOffsets=by_partition(topic.name, 7, 54))


# ---------------------------------------------------------------- compaction


@pytest.fixture(scope="module")
def compacted(kafka: str) -> str:
    """Write ten keys a hundred times in segments of fifty records, and wait for the cleaner.

    Kafka rolls a segment by the timestamps of its records: with the present time, half of them could be in the active
    segment, which is not cleaned.
    """
    create(kafka, "compacted", 1, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.01")
    producer = Producer({"bootstrap.servers": kafka})
    for number in range(1_000):
        at_ms = 1_700_000_000_000 + 2 * number
        producer.produce("compacted", b"%d" % number * 100, b"key %d" % (number % 10), 0, timestamp=at_ms)
        producer.flush(TIMEOUT)
    deadline = time.monotonic() + TIMEOUT
    while count(kafka, "compacted", 1_000) > 500:
        assert time.monotonic() < deadline, "the log cleaner did nothing"
        time.sleep(0.5)
    return kafka


def count(address: str, topic: str, end: int) -> int:
    """Return the number of records that another client reads."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "count", "enable.partition.eof": "true"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = 0
    try:
        while (message := consumer.poll(TIMEOUT)) is not None and message.error() is None:
            found += 1
            if message.offset() >= end - 1:
                break
    finally:
        consumer.close()
    return found


def test_compacted_topics_have_the_same_rows(spark: Any, compacted: str) -> None:
    whole = compare(spark, compacted, subscribe="compacted")
    assert 10 <= whole < 1_000
    compare(spark, compacted, subscribe="compacted", minPartitions="5")
    for start, end in ((1, 1_000), (5, 600), (600, 990)):
        compare(
            spark,
            compacted,
            subscribe="compacted",
            startingOffsets=by_partition("compacted", start),
            endingOffsets=by_partition("compacted", end),
        )
