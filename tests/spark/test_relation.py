"""The cases of KafkaRelationSuite, one test for each, by its name there.

Each is read as Spark's driver and workers do, without a JVM; in ``make long`` also in a real session.
"""

from __future__ import annotations

import gzip
import json
import random
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from tests.spark.topics import Record, delete_before, delete_topic, make_topic, options, write
from tests.spark.written_logs import LogWriter, log_writer
from tests.support.broker_process import BrokerProcess
from triokafka.errors import ConfigurationError, KafkaTimeoutError
from triokafka.spark.planning.data_loss import KafkaDataLossError
from triokafka.spark.planning.read_options import ReadOptions
from triokafka.spark.planning.tasks import TaskRange
from triokafka.spark.reading.topic_reader import RangePartition, TopicReader

LAST: Final = 2**63 - 1

Values = Callable[[Mapping[str, str]], "Frame"]


class Frame:
    """The result of ``load()``: planned once, and read repeatedly."""

    def __init__(self, given: Mapping[str, str], spark: Any = None) -> None:
        if spark is not None:
            self._frame = spark.read.format("triokafka").options(**given).load()
            self._reader = None
        else:
            self._reader = TopicReader(ReadOptions.parse(given))
            # Since Spark 4.1 the plan belongs to the frame.
            self._plan = self._reader.partitions()

    def values(self) -> list[str]:
        """Return the values of all records, sorted as numbers."""
        if self._reader is None:
            found = [bytes(row["value"]).decode() for row in self._frame.select("value").collect()]
        else:
            batches = [batch for task in self._plan for batch in self._reader.read(task)]
            found = [value.decode() for batch in batches for value in batch["value"].to_pylist()]
        return sorted(found, key=int)


@pytest.fixture(params=["worker", pytest.param("session", marks=pytest.mark.long)])
def load(request: pytest.FixtureRequest) -> Values:
    spark = request.getfixturevalue("spark") if request.param == "session" else None
    return lambda given: Frame(given, spark)


@pytest.fixture(scope="module")
def logs() -> Iterator[LogWriter]:
    with log_writer() as writer:
        yield writer


def numbers(*ranges: range) -> list[str]:
    return [str(number) for found in ranges for number in found]


def spread() -> list[Record]:
    """Return 0 to 9 in partition 0, 10 to 19 in partition 1, 20 in partition 2."""
    return [Record(b"%d" % n, partition=min(n // 10, 2)) for n in range(21)]


def by_partition(topic: str, *offsets: int) -> str:
    return json.dumps({topic: {str(number): offset for number, offset in enumerate(offsets)}})


# ---------------------------------------------------------------- offsets


def test_explicit_earliest_to_latest_offsets(bootstrap: str, load: Values) -> None:
    """The end "latest" binds late: with ``offsetsBinding=late`` a second action sees later records.

    Promised: late binding of latest
    """
    topic = make_topic(bootstrap, spread(), partitions=3)
    given = options(bootstrap, topic, startingOffsets="earliest", endingOffsets="latest")
    late, fixed = load({**given, "offsetsBinding": "late"}), load(given)
    assert late.values() == fixed.values() == numbers(range(21))
    write(bootstrap, topic, [Record(b"%d" % n, partition=2) for n in range(21, 30)])
    assert late.values() == numbers(range(30))
    assert fixed.values() == numbers(range(21)), "an earlier plan does not change, as in Spark itself since 4.1"
    assert load(given).values() == numbers(range(30))


def test_default_starting_and_ending_offsets(bootstrap: str, load: Values) -> None:
    topic = make_topic(bootstrap, spread(), partitions=3)
    assert load(options(bootstrap, topic)).values() == numbers(range(21))


def test_explicit_offsets(bootstrap: str, load: Values) -> None:
    topic = make_topic(bootstrap, spread(), partitions=3)
    given = options(
        bootstrap,
        topic,
        startingOffsets=by_partition(topic, -2, -2, 0),
        endingOffsets=by_partition(topic, -1, -1, 1),
    )
    assert load(given).values() == numbers(range(21))
    write(bootstrap, topic, [Record(b"%d" % n, partition=2) for n in range(31, 40)])
    assert load(given).values() == numbers(range(21)), "a static offset does not change"
    write(bootstrap, topic, [Record(b"%d" % n, partition=1) for n in range(21, 31)])
    assert load(given).values() == numbers(range(31)), "the latest offset changes"


def test_earliest_binds_late_too_when_retention_has_deleted_records(bootstrap: str, load: Values) -> None:
    topic = make_topic(bootstrap, [Record(b"%d" % n) for n in range(10)])
    frame = load(options(bootstrap, topic, offsetsBinding="late"))
    delete_before(bootstrap, topic, 4)
    assert frame.values() == numbers(range(4, 10))


def test_reuse_same_dataframe_in_query(bootstrap: str, spark: Any) -> None:
    topic = make_topic(bootstrap, [Record(b"%d" % n) for n in range(11)])
    frame = spark.read.format("triokafka").options(**options(bootstrap, topic)).load().selectExpr("string(value)")
    found = sorted(int(row[0]) for row in frame.union(frame).collect())
    assert found == sorted([*range(11), *range(11)])


def test_default_starting_and_ending_offsets_with_headers(bootstrap: str, spark: Any) -> None:
    topic = make_topic(
        bootstrap,
        [
            Record(b"1"),
            Record(b"2", partition=1, headers=(("a", b"b"), ("c", b"d"))),
            Record(b"3", partition=2, headers=(("e", b"f"), ("e", b"g"))),
        ],
        partitions=3,
    )
    frame = spark.read.format("triokafka").options(**options(bootstrap, topic, includeHeaders="true")).load()
    rows = frame.selectExpr("string(value) AS value", "headers").orderBy("value").collect()
    assert [(row["value"], row["headers"] and [tuple(one) for one in row["headers"]]) for row in rows] == [
        ("1", None),
        ("2", [("a", b"b"), ("c", b"d")]),
        ("3", [("e", b"f"), ("e", b"g")]),
    ]


# ---------------------------------------------------------------- times

FIRST, SECOND, THIRD, FINAL = (1_600_000_000_000 + step * 1_000 for step in range(4))


@pytest.fixture(scope="module")
def timed(bootstrap: str) -> str:
    """Write 0 to 9 at the first time, 10 to 19 at the second, 20 to 29 at the third, spread over three partitions."""
    return make_topic(
        bootstrap,
        [Record(b"%d" % n, partition=n % 3, timestamp_ms=(FIRST, SECOND, THIRD)[n // 10]) for n in range(30)],
        partitions=3,
    )


def times(topic: str, *times_ms: int) -> str:
    return by_partition(topic, *times_ms)


@pytest.mark.parametrize(
    ("case", "given", "expected"),
    [
        (
            "timestamp provided for starting and ending",
            {"startingOffsetsByTimestamp": (SECOND,) * 3, "endingOffsetsByTimestamp": (THIRD,) * 3},
            numbers(range(10, 20)),
        ),
        (
            "timestamp provided for starting, offset provided for ending",
            {"startingOffsetsByTimestamp": (FIRST,) * 3, "endingOffsets": (-1, -1, 1)},
            [str(n) for n in range(30) if n % 3 != 2 or n == 2],
        ),
        (
            "timestamp provided for ending, offset provided for starting",
            {"startingOffsets": (-2, -2, 0), "endingOffsetsByTimestamp": (THIRD,) * 3},
            numbers(range(20)),
        ),
        (
            "timestamp provided for starting, ending not provided",
            {"startingOffsetsByTimestamp": (SECOND,) * 3},
            numbers(range(10, 30)),
        ),
        (
            "timestamp provided for ending, starting not provided",
            {"endingOffsetsByTimestamp": (THIRD,) * 3},
            numbers(range(20)),
        ),
        (
            "global timestamp provided for starting and ending",
            {"startingTimestamp": SECOND, "endingTimestamp": THIRD},
            numbers(range(10, 20)),
        ),
        (
            "no matched offset for timestamp - endingOffsets",
            {"endingOffsetsByTimestamp": (SECOND, SECOND, LAST)},
            [str(n) for n in range(30) if n < 10 or n % 3 == 2],
        ),
        (
            "preferences on offset related options: the global time",
            {
                "startingTimestamp": THIRD,
                "startingOffsetsByTimestamp": (SECOND,) * 3,
                "startingOffsets": "earliest",
            },
            numbers(range(20, 30)),
        ),
        (
            "preferences on offset related options: times by partition",
            {"startingOffsetsByTimestamp": (SECOND,) * 3, "startingOffsets": "earliest"},
            numbers(range(10, 30)),
        ),
        (
            "a starting time beyond all records, with the strategy latest",
            {
                "startingOffsetsByTimestamp": (SECOND, SECOND, FINAL),
                "startingOffsetsByTimestampStrategy": "latest",
            },
            [str(n) for n in range(10, 30) if n % 3 != 2],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_times(bootstrap: str, timed: str, load: Values, case: str, given: dict[str, Any], expected: list[str]) -> None:
    """Promised: timestamps"""
    texts = {name: times(timed, *value) if isinstance(value, tuple) else str(value) for name, value in given.items()}
    assert load(options(bootstrap, timed, **texts)).values() == expected


def test_no_matched_offset_for_timestamp_starting_offsets(bootstrap: str, timed: str, load: Values) -> None:
    given = options(bootstrap, timed, startingOffsetsByTimestamp=times(timed, SECOND, SECOND, LAST))
    with pytest.raises(Exception, match="No offset matched from request"):
        load(given).values()


# ---------------------------------------------------------------- invalid combinations


def test_partitions_of_start_and_end_must_match(bootstrap: str) -> None:
    """specified start offset and end offset should have the same topic-partitions"""
    topic = make_topic(bootstrap, spread(), partitions=3)
    given = options(
        bootstrap, topic, startingOffsets=by_partition(topic, 0, 0), endingOffsets=by_partition(topic, 1, 1, 1)
    )
    with pytest.raises(ConfigurationError, match="MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET"):
        ReadOptions.parse(given)


def test_a_start_after_the_end_is_refused_resolved_and_unresolved(bootstrap: str, timed: str) -> None:
    given = options(bootstrap, timed, startingOffsets=by_partition(timed, 5, 5, 5))
    with pytest.raises(ConfigurationError, match="UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET"):
        ReadOptions.parse({**given, "endingOffsets": by_partition(timed, 4, 5, 5)})
    with pytest.raises(ConfigurationError, match=r"\[RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET"):
        TopicReader(ReadOptions.parse({**given, "endingTimestamp": str(SECOND)})).partitions()


# ---------------------------------------------------------------- topics


def test_assign_reads_those_partitions_and_a_pattern_all_matching_topics(bootstrap: str, load: Values) -> None:
    """Promised: assign, subscribe, pattern"""
    topic = make_topic(bootstrap, spread(), partitions=3)
    servers = {"kafka.bootstrap.servers": bootstrap}
    assert load({**servers, "assign": f'{{"{topic}": [2, 0]}}'}).values() == numbers(range(10), range(20, 21))
    assert load({**servers, "subscribePattern": f"{topic[:-1]}[{topic[-1]}]"}).values() == numbers(range(21))
    assert load({**servers, "subscribePattern": "no-such-.*"}).values() == []
    with pytest.raises(Exception, match=rf"option 'assign' names {topic}-3, but {topic} has 3 partitions"):
        load({**servers, "assign": f'{{"{topic}": [0, 3]}}', "fetchOffset.retryIntervalMs": "10"}).values()


def test_a_missing_topic_is_an_error_and_never_an_empty_frame(bootstrap: str, load: Values) -> None:
    with pytest.raises(Exception, match="topic 'nowhere' does not exist"):
        load(options(bootstrap, "nowhere", **{"fetchOffset.retryIntervalMs": "10"})).values()


# ---------------------------------------------------------------- tasks


def test_min_partitions_and_max_records_split_ranges_and_max_partitions_merges(bootstrap: str, load: Values) -> None:
    """minPartitions: every record once, however it is cut. (Promised: minPartitions, maxRecordsPerPartition)"""
    topic = make_topic(bootstrap, [Record(b"%d" % n, partition=n % 3) for n in range(3_000)], partitions=3)
    for cut, tasks in (
        ({"minPartitions": "7"}, 6),
        ({"maxRecordsPerPartition": "300"}, 12),
        ({"minPartitions": "20", "maxRecordsPerPartition": "300"}, 24),
        ({"maxPartitions": "2"}, 2),
        ({"maxPartitions": "1", "maxRecordsPerPartition": "100"}, 1),
    ):
        given = options(bootstrap, topic, **cut)
        assert len(TopicReader(ReadOptions.parse(given)).partitions()) == tasks, cut
        assert load(given).values() == numbers(range(3_000)), cut


def test_min_partitions(bootstrap: str, load: Values) -> None:
    """SPARK-30656: minPartitions: three partitions in six tasks and more; bound late, the same plan includes later
    records
    """
    topic = make_topic(bootstrap, spread(), partitions=3)
    given = options(bootstrap, topic, minPartitions="6", offsetsBinding="late")
    assert len(TopicReader(ReadOptions.parse(given)).partitions()) >= 6
    frame = load(given)
    assert frame.values() == numbers(range(21))
    write(bootstrap, topic, [Record(b"%d" % n, partition=n % 3) for n in range(21, 31)])
    assert frame.values() == numbers(range(31))


def test_resolved_start_offset_greater_than_end_offset(bootstrap: str) -> None:
    """resolved start offset greater than end offset: with latest, and without"""
    empty = make_topic(bootstrap, partitions=3)
    with pytest.raises(
        ConfigurationError, match="The resolved start offset 1 is greater than the resolved end offset 0"
    ):
        TopicReader(
            ReadOptions.parse(options(bootstrap, empty, startingOffsets=by_partition(empty, 1, 1, 1)))
        ).partitions()
    two = make_topic(
        bootstrap,
        [Record(b"0", partition=n % 3, timestamp_ms=FIRST if n < 3 else SECOND) for n in range(6)],
        partitions=3,
    )
    given = options(
        bootstrap,
        two,
        startingOffsets=by_partition(two, 3, 3, 3),
        endingOffsetsByTimestamp=by_partition(two, SECOND, SECOND, SECOND),
    )
    with pytest.raises(
        ConfigurationError, match="The resolved start offset 3 is greater than the resolved end offset 1"
    ):
        TopicReader(ReadOptions.parse(given)).partitions()


def test_one_partition_is_read_many_times_at_once_in_one_worker(bootstrap: str) -> None:
    """KafkaDataConsumerSuite: SPARK-23623: concurrent use; SPARK-25151: multiple tasks fetching the same partition"""
    topic = make_topic(bootstrap, [Record(b"%d" % n) for n in range(1_000)])
    made = TopicReader(ReadOptions.parse(options(bootstrap, topic, batchRows="50")))

    def whole(start: int, end: int) -> list[int]:
        task = RangePartition((TaskRange(topic, 0, start, end),))
        return [int(value) for batch in made.read(task) for value in batch["value"].to_pylist()]

    with ThreadPoolExecutor(8) as threads:
        asked = [(n * 7 % 500, 500 + n * 13 % 500) for n in range(40)]
        for (start, end), found in zip(asked, threads.map(lambda ends: whole(*ends), asked), strict=True):
            assert found == list(range(start, end))
    # One thread, and two tasks that alternate, the second at the position of the first.
    one, two = (iter(made.read(RangePartition((TaskRange(topic, 0, start, start + 300),)))) for start in (0, 50))
    pieces: dict[int, list[int]] = {1: [], 2: []}
    for _ in range(3):
        for number, batches in ((1, one), (2, two)):
            pieces[number] += next(batches)["offset"].to_pylist()
    for number, batches in ((1, one), (2, two)):
        pieces[number] += [offset for batch in batches for offset in batch["offset"].to_pylist()]
    assert pieces == {1: list(range(300)), 2: list(range(50, 350))}


def test_separate_ranges_of_a_partition_are_read_in_one_task(bootstrap: str) -> None:
    topic = make_topic(bootstrap, [Record(b"%d" % n) for n in range(100)])
    pieces = tuple(TaskRange(topic, 0, start, start + 10) for start in (60, 0, 30))
    batches = TopicReader(ReadOptions.parse(options(bootstrap, topic))).read(RangePartition(pieces))
    assert [offset for batch in batches for offset in batch["offset"].to_pylist()] == [
        *range(60, 70),
        *range(10),
        *range(30, 40),
    ]


def test_only_the_requested_columns_are_read(bootstrap: str, spark: Any) -> None:
    """Promised: pruning"""
    topic = make_topic(bootstrap, [Record(b"v%d" % n, b"k") for n in range(3)])
    frame = spark.read.format("triokafka").options(**options(bootstrap, topic, columns="offset,value")).load()
    assert frame.schema.simpleString() == "struct<value:binary,offset:bigint>"
    assert [tuple(row) for row in frame.collect()] == [(b"v0", 0), (b"v1", 1), (b"v2", 2)]


# ---------------------------------------------------------------- transactions

COMMITTED = {"kafka.isolation.level": "read_committed"}


def test_read_kafka_transactional_messages_read_committed(logs: LogWriter, load: Values) -> None:
    topic = logs.topic()
    given = topic.options(**COMMITTED)
    topic.write(range(1, 6), producer=7)
    assert load(given).values() == [], "records of an open transaction are not read"
    topic.commit(7)
    assert load(given).values() == numbers(range(1, 6))
    topic.write(range(6, 11), producer=7)
    assert load(given).values() == numbers(range(1, 6))
    topic.abort(7)
    assert load(given).values() == numbers(range(1, 6)), "records of an aborted transaction are not read"
    topic.write(range(11, 16), producer=7)
    topic.commit(7)
    assert load(given).values() == numbers(range(1, 6), range(11, 16))
    topic.write(range(16, 21), producer=8)
    topic.write(range(21, 26))
    assert load(given).values() == numbers(range(1, 6), range(11, 16)), "an open transaction hides later records"
    topic.commit(8)
    assert load(given).values() == numbers(range(1, 6), range(11, 26))


def test_read_kafka_transactional_messages_read_uncommitted(logs: LogWriter, load: Values) -> None:
    topic = logs.topic()
    given = topic.options(**{"kafka.isolation.level": "read_uncommitted"})
    topic.write(range(1, 6), producer=7)
    assert load(given).values() == numbers(range(1, 6))
    topic.commit(7)
    topic.write(range(6, 11), producer=7)
    topic.abort(7)
    assert load(given).values() == numbers(range(1, 11)), "aborted records are read as well"
    topic.write(range(11, 16), producer=7)
    topic.commit(7)
    assert load(given).values() == numbers(range(1, 16))


def test_ranges_without_a_visible_record_end_at_once(logs: LogWriter, load: Values) -> None:
    """The connector would wait for its whole poll timeout there. (Promised: read_committed)"""
    topic = logs.topic()
    topic.write([1], producer=7)
    topic.commit(7)  # offset 1
    topic.write(range(2, 5), producer=7, codec="lz4")  # 2 to 4
    topic.abort(7)  # 5
    topic.write(range(5, 7), producer=7)
    topic.commit(7)  # 8
    patient = {**COMMITTED, "kafkaConsumer.pollTimeoutMs": "100000000"}
    for start, end, expected in ((1, 2, []), (2, 6, []), (1, 6, []), (3, 5, []), (1, 7, ["5"]), (8, 9, [])):
        given = topic.options(
            startingOffsets=by_partition(topic.name, start), endingOffsets=by_partition(topic.name, end), **patient
        )
        assert load(given).values() == expected, (start, end)


def test_interleaved_transactions_are_separated_in_every_range(logs: LogWriter) -> None:
    topic = logs.topic()
    visible = {}
    offset = 0
    for turn in range(12):
        for producer in (1, 2, 3):
            topic.write([offset, offset + 1], producer=producer, codec=("none", "lz4", "zstd")[producer - 1])
            if producer != 1 + turn % 3:
                visible[offset] = producer
                visible[offset + 1] = producer
            offset += 2
        for producer in (1, 2, 3):
            (topic.abort if producer == 1 + turn % 3 else topic.commit)(producer)
            offset += 1
    for start, end in ((0, offset), (3, 40), (7, 8), (offset - 9, offset), (50, 50 + 9)):
        given = topic.options(
            startingOffsets=by_partition(topic.name, start), endingOffsets=by_partition(topic.name, end), **COMMITTED
        )
        assert Frame(given).values() == [str(at) for at in sorted(visible) if start <= at < end]


# ---------------------------------------------------------------- compaction


def test_gaps_of_compaction_are_no_loss_at_any_place(logs: LogWriter, load: Values) -> None:
    """The gaps are first, in the middle, last; one range has no record at all."""
    topic = logs.topic()
    topic.write_at(5, [5, 6])
    topic.write_at(10, [10])
    topic.write_at(50, [50, 51])
    for start, end, expected in (
        (0, 52, [5, 6, 10, 50, 51]),
        (0, 5, []),
        (3, 6, [5]),
        (7, 10, []),
        (8, 45, [10]),
        (11, 52, [50, 51]),
        (12, 40, []),
    ):
        given = topic.options(
            startingOffsets=by_partition(topic.name, start), endingOffsets=by_partition(topic.name, end)
        )
        assert load(given).values() == [str(value) for value in expected], (start, end)


@pytest.mark.parametrize("rows", ["1", "2", "10000"])
def test_committed_transaction_after_an_aborted_one_of_the_same_producer_is_read(logs: LogWriter, rows: str) -> None:
    """The size of the pieces in which a response is decoded does not matter."""
    topic = logs.topic()
    topic.write(range(4), producer=7)
    topic.abort(7)  # offset 4
    topic.write(range(5, 9), producer=7)
    topic.commit(7)  # 9
    for end, expected in ((8, range(5, 8)), (9, range(5, 9)), (10, range(5, 9))):
        given = topic.options(endingOffsets=by_partition(topic.name, end), batchRows=rows, **COMMITTED)
        assert Frame(given).values() == numbers(expected), end


def old_message(offset: int, value: bytes | None, *, magic: int, time_ms: int = 0, attributes: int = 0) -> bytes:
    """Return a message of format v0 or v1, as brokers before Kafka 0.11 wrote them and newer ones still serve them."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", time_ms) if magic else b"")
    body += struct.pack(">i", -1)  # no key
    body += struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    ("magic", "attributes", "expected"),
    [(0, 0, ([-1] * 4, -1)), (1, 0, ([1000, 1001, 1002, 1003], 0)), (1, 8, ([5555] * 4, 1))],
)
def test_records_in_the_formats_of_old_logs(
    logs: LogWriter, magic: int, attributes: int, expected: tuple[list[int], int], wrapped: bool
) -> None:
    """Timestamps and their types equal the connector's: -1 if a format has none."""
    if attributes and not wrapped:
        times = [5555] * 4
    else:
        # for messages in a wrapper that brokers stamped, the wrapper's timestamp counts
        times = [1000, 1001, 1002, 1003]
    values = [b"0", None, b"2", b"3"]
    inner = b"".join(
        old_message(n, values[n], magic=magic, time_ms=times[n], attributes=0 if wrapped else attributes)
        for n in range(4)
    )
    data = old_message(3, gzip.compress(inner), magic=magic, time_ms=5555, attributes=1 | attributes)
    log = logs.topic()
    log.write_bytes(data if wrapped else inner)
    offsets, found, stamps, kinds = [], [], [], []
    # From the middle as well: the wrapper starts before the range.
    for first in (0, 2):
        reader = TopicReader(ReadOptions.parse(log.options(startingOffsets=by_partition(log.name, first))))
        for batch in (batch for task in reader.partitions() for batch in reader.read(task)):
            offsets += batch["offset"].to_pylist()
            found += batch["value"].to_pylist()
            stamps += batch["timestamp"].cast("int64").to_pylist()
            kinds += batch["timestampType"].to_pylist()
    numbers_read = [0, 1, 2, 3, 2, 3]
    assert offsets == numbers_read
    assert found == [values[n] for n in numbers_read]
    assert stamps == [1000 * expected[0][n] for n in numbers_read]
    assert kinds == [expected[1]] * 6


def test_random_ranges_of_random_logs_have_exactly_their_records(logs: LogWriter) -> None:
    any_logs(logs, seed=1, count=15)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_random_ranges_of_many_random_logs_have_exactly_their_records(logs: LogWriter, seed: int) -> None:
    any_logs(logs, seed=seed, count=40)


def any_logs(logs: LogWriter, *, seed: int, count: int) -> None:
    """Read random logs of transactions, gaps and codecs in random ranges and tasks, and compare with the written
    records.
    """
    choices = random.Random(seed)
    for _ in range(count):
        topic = logs.topic()
        values: dict[int, int | None] = {}  # the producer of each record's transaction, by offset
        aborted: set[int] = set()
        unsettled: dict[int, list[int]] = {}
        end = 0
        for _ in range(choices.randrange(1, 25)):
            producer = choices.choice((-1, -1, 1, 2, 3))
            if producer in unsettled and choices.random() < 0.4:
                if choices.random() < 0.5:
                    aborted.update(unsettled.pop(producer))
                    topic.abort(producer)
                else:
                    del unsettled[producer]
                    topic.commit(producer)
                end += 1
            elif producer < 0 and choices.random() < 0.2:
                end += choices.randrange(1, 9)
                topic.write_at(end, [end])
                values[end] = None
                end += 1
            else:
                offsets = list(range(end, end + choices.choice((1, 2, 30))))
                topic.write(offsets, producer=producer, codec=choices.choice(("none", "lz4", "zstd", "gzip", "snappy")))
                values.update(dict.fromkeys(offsets, producer if producer > 0 else None))
                if producer > 0:
                    unsettled.setdefault(producer, []).extend(offsets)
                end += len(offsets)
        stable = min((offsets[0] for offsets in unsettled.values()), default=end)
        for level, last, hidden in (("read_committed", stable, aborted), ("read_uncommitted", end, set())):
            for _ in range(4):
                until = choices.randint(0, last)
                start = choices.randint(0, until)
                given = topic.options(
                    startingOffsets=by_partition(topic.name, start),
                    endingOffsets=by_partition(topic.name, until),
                    minPartitions=str(choices.randrange(1, 6)),
                    batchRows=str(choices.choice((1, 3, 10_000))),
                    **{
                        "kafka.isolation.level": level,
                        "kafka.max.partition.fetch.bytes": choices.choice(("100", "4096")),
                    },
                )
                expected = [str(at) for at in values if start <= at < until and at not in hidden]
                assert Frame(given).values() == expected, (seed, level, start, until)


# ---------------------------------------------------------------- data loss


def test_fail_on_data_loss_false_should_not_return_duplicated_records_batch(bootstrap: str, load: Values) -> None:
    """KafkaDontFailOnDataLossSuite"""
    topic = make_topic(bootstrap, [Record(b"%d" % n) for n in range(20)])
    delete_before(bootstrap, topic, 13)
    given = options(bootstrap, topic, failOnDataLoss="false", startingOffsets=by_partition(topic, 0))
    assert load(given).values() == numbers(range(13, 20))
    lost = {**given, "endingOffsets": by_partition(topic, 9)}
    assert load(lost).values() == []
    with pytest.raises(Exception, match=r"KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE"):
        load({**given, "failOnDataLoss": "true"}).values()


@pytest.mark.parametrize("fails", ["true", "false"])
def test_records_deleted_while_a_query_runs(bootstrap: str, fails: str) -> None:
    topic = make_topic(bootstrap, [Record(b"%d" % n, partition=n % 2) for n in range(20)], partitions=2)
    given = options(bootstrap, topic, failOnDataLoss=fails, maxPartitions="1")
    reader = TopicReader(ReadOptions.parse(given))
    (task,) = reader.partitions()
    delete_before(bootstrap, topic, 4, partition=1)
    if fails == "true":
        with pytest.raises(
            KafkaDataLossError, match=r"KAFKA_DATA_LOSS.START_OFFSET_RESET.* was 0 but consumer reset to 4"
        ):
            list(reader.read(task))
        return
    found = [int(value) for batch in reader.read(task) for value in batch["value"].to_pylist()]
    assert sorted(found) == [n for n in range(20) if n % 2 == 0 or n >= 8]


def test_a_wholly_deleted_range_is_skipped(bootstrap: str) -> None:
    topic = make_topic(bootstrap, [Record(b"%d" % n) for n in range(20)])
    reader = TopicReader(ReadOptions.parse(options(bootstrap, topic, failOnDataLoss="false")))
    delete_before(bootstrap, topic, 15)
    task = RangePartition((TaskRange(topic, 0, 2, 9), TaskRange(topic, 0, 12, 17)))
    assert [int(value) for batch in reader.read(task) for value in batch["value"].to_pylist()] == [15, 16]
    beyond = RangePartition((TaskRange(topic, 0, 30, 40),))
    assert list(reader.read(beyond)) == []
    strict = TopicReader(ReadOptions.parse(options(bootstrap, topic)))
    with pytest.raises(KafkaDataLossError, match=r"COULD_NOT_READ_OFFSET_RANGE.*\[30, 40\).* from 15 to 20"):
        list(strict.read(beyond))


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_topic_that_is_deleted_while_a_query_runs(bootstrap: str, fails: str) -> None:
    """KafkaMicroBatchSourceSuite: delete a topic when a Spark job is running"""
    remaining, gone = (make_topic(bootstrap, [Record(b"%d" % n) for n in range(5)]) for _ in range(2))
    given = options(bootstrap, f"{remaining},{gone}", failOnDataLoss=fails, maxPartitions="1")
    reader = TopicReader(ReadOptions.parse({**given, "kafkaConsumer.pollTimeoutMs": "700"}))
    (task,) = reader.partitions()
    delete_topic(bootstrap, gone)
    if fails == "true":
        with pytest.raises(KafkaDataLossError, match=rf"KAFKA_DATA_LOSS.PARTITIONS_DELETED.*{gone}-0"):
            list(reader.read(task))
        return
    assert sum(batch.num_rows for batch in reader.read(task)) == 5


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_log_that_ends_within_a_range_has_lost_the_rest_of_it(bootstrap: str, fails: str) -> None:
    """A topic is recreated with fewer records, under a planned batch: no offset is out of range, and the records never
    arrive.
    """
    topic = make_topic(bootstrap, [Record(b"%d" % n) for n in range(20)])
    asked = options(bootstrap, topic, failOnDataLoss=fails, **{"kafkaConsumer.pollTimeoutMs": "1500"})
    batches = TopicReader(ReadOptions.parse(asked)).read(RangePartition((TaskRange(topic, 0, 10, 25),)))
    assert next(batches).num_rows == 10
    if fails == "true":
        with pytest.raises(KafkaDataLossError, match=r"COULD_NOT_READ_OFFSET_RANGE.*\[20, 25\).* from 0 to 20"):
            next(batches)
        return
    assert list(batches) == []


def test_a_range_that_times_out_is_an_error_and_not_a_short_result() -> None:
    """Two well-known readers return a short result with a warning.

    Promised: bounded read on a slow broker
    """
    broker = BrokerProcess(None)
    try:
        bootstrap = broker.start()
        topic = make_topic(bootstrap, [Record(b"%d" % n) for n in range(20)])
        asked = options(bootstrap, topic, failOnDataLoss="false", **{"kafkaConsumer.pollTimeoutMs": "300"})
        reader = TopicReader(ReadOptions.parse(asked))
        (task,) = reader.partitions()
        broker.kill()
        with pytest.raises(
            KafkaTimeoutError, match=r"no progress .* is at offset 0 of 20.*kafkaConsumer.pollTimeoutMs"
        ):
            list(reader.read(task))
    finally:
        broker.close()
