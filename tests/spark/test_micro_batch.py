"""The connector's suite for streaming queries, case by case (KafkaMicroBatchSourceSuite).

Each case runs with a stand-in that makes Spark's calls; in the long profile also in Spark.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import pyspark_triokafka
from tests.spark.changing_topics import Topic, committed
from tests.spark.engine import Query, SparkQuery, StandInQuery, offsets, rows, sizes, values
from tests.spark.frames import frame
from tests.spark.topics import Record
from triokafka.errors import KafkaError
from triokafka.spark.listener.offset_commit_listener import commit_to_group
from triokafka.structs import TopicPartition

Start = Callable[..., Query]
STRATEGIES = ("assign", "subscribe", "subscribePattern")
LOSS = ("true", "false")
EARLY, LATE = 1_500_000_000_000, 1_600_000_000_000


def strategy(kind: str, topic: Topic) -> dict[str, str]:
    """Return the option that selects the topics."""
    return {
        "assign": {"assign": json.dumps({topic.name: list(range(topic.partitions))})},
        "subscribe": {"subscribe": topic.name},
        "subscribePattern": {"subscribePattern": f"{topic.name[:-1]}[{topic.name[-1]}]"},
    }[kind]


@pytest.fixture(params=["calls", pytest.param("spark", marks=pytest.mark.long)])
def query(request: pytest.FixtureRequest, tmp_path: Path) -> Start:
    """Create a query that is not started yet; ``place`` distinguishes the queries of one test."""

    def make(topic: Topic, place: str = "checkpoint", **options: str) -> Query:
        given = {"kafka.bootstrap.servers": topic.bootstrap, **options}
        if not {"assign", "subscribe", "subscribePattern"} & set(options):
            given["subscribe"] = topic.name
        if request.param == "calls":
            return StandInQuery(tmp_path / place, given)
        return SparkQuery(request.getfixturevalue("spark"), tmp_path / place, given)

    return make


def stop_and_start_again(resumed: Query, topic: Topic) -> None:
    """Run the common part of all cases after their first values: data while the query is stopped, and more
    partitions.
    """
    before = values(resumed)
    resumed.stop()
    topic.add(range(31, 37))
    resumed.start()
    resumed.process_all()
    assert values(resumed) == sorted([*before, *range(31, 37)])
    topic.add(range(41, 47))
    resumed.process_all()
    if "assign" not in resumed.options:  # type: ignore[attr-defined]
        topic.grow(10)
        topic.add(range(51, 71))
        resumed.process_all()
        assert values(resumed) == sorted([*before, *range(31, 37), *range(41, 47), *range(51, 71)])
        # The start does not matter any more: startingOffsets names fewer partitions than exist.
        resumed.stop()
        topic.add(range(81, 91))
        resumed.start()
        resumed.process_all()
        assert values(resumed) == sorted([*before, *range(31, 37), *range(41, 47), *range(51, 71), *range(81, 91)])
    resumed.stop()


@pytest.mark.parametrize("fails", LOSS)
@pytest.mark.parametrize("kind", STRATEGIES)
def test_from_latest_offsets(query: Start, bootstrap: str, kind: str, fails: str) -> None:
    """assign, subscribing topic by name, by pattern: from latest offsets"""
    topic = Topic(bootstrap, 5)
    topic.add([-1])
    resumed = query(topic, **strategy(kind, topic), startingOffsets="latest", failOnDataLoss=fails)
    resumed.start()
    resumed.process_all()
    assert values(resumed) == []
    topic.add([1, 2, 3])
    resumed.process_all()
    assert values(resumed) == [1, 2, 3]
    stop_and_start_again(resumed, topic)


@pytest.mark.parametrize("fails", LOSS)
@pytest.mark.parametrize("kind", STRATEGIES)
def test_from_earliest_offsets(query: Start, bootstrap: str, kind: str, fails: str) -> None:
    """assign, subscribing topic by name, by pattern: from earliest offsets"""
    topic = Topic(bootstrap, 5)
    topic.add([1, 2, 3])
    asked = query(topic, **strategy(kind, topic), startingOffsets="earliest", failOnDataLoss=fails)
    asked.start()
    asked.process_all()
    assert values(asked) == [1, 2, 3]
    topic.add([4, 5, 6])
    asked.process_all()
    assert values(asked) == [1, 2, 3, 4, 5, 6]
    stop_and_start_again(asked, topic)


@pytest.mark.parametrize("fails", LOSS)
@pytest.mark.parametrize("kind", STRATEGIES)
def test_from_specific_offsets(query: Start, bootstrap: str, kind: str, fails: str) -> None:
    """assign, subscribing topic by name, by pattern: from specific offsets: -2, -1, 0, 1 and 2"""
    topic = Topic(bootstrap, 5)
    for partition, written in enumerate(([-20, -21, -22], [-10, -11, -12], [0, 1, 2], [10, 11, 12], [20, 21, 22])):
        topic.add_to(partition, written)
    starts = json.dumps({topic.name: {"0": -2, "1": -1, "2": 0, "3": 1, "4": 2}})
    asked = query(topic, **strategy(kind, topic), startingOffsets=starts, failOnDataLoss=fails)
    asked.start()
    asked.process_all()
    # Partition 0 from its beginning, 1 from its end, 2 whole, 3 without its first, 4 without its first two.
    assert values(asked) == [-22, -21, -20, 0, 1, 2, 11, 12, 22]
    topic.add_to(1, [-13])
    asked.process_all()
    assert values(asked) == [-22, -21, -20, -13, 0, 1, 2, 11, 12, 22]
    stop_and_start_again(asked, topic)


@pytest.mark.parametrize("fails", LOSS)
@pytest.mark.parametrize("kind", STRATEGIES)
@pytest.mark.parametrize("each", [True, False], ids=["per partition", "global"])
def test_from_specific_timestamps(query: Start, bootstrap: str, kind: str, fails: str, each: bool) -> None:
    """assign, subscribing topic by name, by pattern: from specific timestamps, and from a global timestamp"""
    topic = Topic(bootstrap, 5)
    write_at_two_times(topic)
    if not each:
        # Partition 4 has no record at the later time, and one time is for all.
        topic.write(Record(b"%d" % value, partition=4, timestamp_ms=LATE) for value in (23, 24))
    starts = times_by_partition(topic, LATE, LATE, LATE, LATE, EARLY) if each else {"startingTimestamp": str(EARLY + 1)}
    asked = query(topic, **strategy(kind, topic), **starts, failOnDataLoss=fails, startingOffsets="earliest")
    asked.start()
    asked.process_all()
    assert values(asked) == [-22, -21, -12, -11, 2, 12, *((20, 21, 22) if each else (23, 24))]
    stop_and_start_again(asked, topic)


def write_at_two_times(topic: Topic) -> None:
    """Write the suite's records: partition 4 has none at the later time."""
    earlier = ([-20], [-10], [0, 1], [10, 11], [20, 21, 22])
    later = ([-21, -22], [-11, -12], [2], [12], [])  # type: ignore[var-annotated]
    for time_ms, written in ((EARLY, earlier), (LATE, later)):
        topic.write(
            Record(b"%d" % value, partition=partition, timestamp_ms=time_ms)
            for partition, found in enumerate(written)
            for value in found
        )


def times_by_partition(topic: Topic, *times_ms: int) -> dict[str, str]:
    by_partition = {str(number): time_ms for number, time_ms in enumerate(times_ms)}
    return {"startingOffsetsByTimestamp": json.dumps({topic.name: by_partition})}


@pytest.mark.parametrize("kind", STRATEGIES)
@pytest.mark.parametrize("each", [True, False], ids=["per partition", "global"])
def test_from_timestamps_with_non_matching_starting_offset(query: Start, bootstrap: str, kind: str, each: bool) -> None:
    """subscribing topic by name, by pattern: from specific timestamps, and from a global timestamp, with non-matching
    starting offset: an error, unless the strategy is latest"""
    topic = Topic(bootstrap, 5)
    write_at_two_times(topic)
    starts = times_by_partition(topic, *[LATE] * 5) if each else {"startingTimestamp": str(LATE)}
    given = {**strategy(kind, topic), **starts}
    for place, strategy_option in (("unsaid", {}), ("error", {"startingOffsetsByTimestampStrategy": "error"})):
        failing = query(topic, place, **given, **strategy_option)
        with pytest.raises(Exception, match=rf"No offset matched from request of topic-partition {topic.name}-4"):
            failing.start()
            failing.process_all()
    asked = query(topic, **given, startingOffsetsByTimestampStrategy="latest")
    asked.start()
    asked.process_all()
    assert values(asked) == [-22, -21, -12, -11, 2, 12]
    topic.write(Record(b"%d" % value, partition=4, timestamp_ms=LATE) for value in (23, 24, 25))
    asked.process_all()
    assert values(asked) == [-22, -21, -12, -11, 2, 12, 23, 24, 25]
    stop_and_start_again(asked, topic)


def test_trigger_available_now(query: Start, bootstrap: str) -> None:
    """Trigger.AvailableNow: 15 records, at most 5 in a batch, are 3 batches; the next run reads what came since."""
    topic = Topic(bootstrap, 5)
    topic.add(range(15))
    asked = query(topic, startingOffsets="earliest", maxOffsetsPerTrigger="5")
    asked.start("available now")
    asked.process_all()
    assert sizes(asked) == [5, 5, 5]
    assert values(asked) == list(range(15))
    topic.add(range(15, 30))
    asked.start("available now")
    asked.process_all()
    assert sizes(asked) == [5] * 6
    assert values(asked) == list(range(30))


def test_trigger_available_now_leaves_fewer_records_than_the_minimum_to_the_next_run(
    query: Start, bootstrap: str
) -> None:
    """minOffsetsPerTrigger also applies to Trigger.AvailableNow, as in the connector; the first batch of a run always
    runs.
    """
    topic = Topic(bootstrap, 1)
    topic.add(range(25))
    limits = {"minOffsetsPerTrigger": "8", "maxOffsetsPerTrigger": "10", "maxTriggerDelay": "1h"}
    asked = query(topic, startingOffsets="earliest", **limits)
    for expected in ([10, 10], [10, 10, 5]):
        asked.start("available now")
        asked.process_all()
        assert sizes(asked) == expected
    assert values(asked) == list(range(25))


def test_trigger_available_now_with_new_topic_partitions(query: Start, bootstrap: str) -> None:
    """Trigger.AvailableNow with topic-partitions added while it runs"""
    topic = Topic(bootstrap, 5)
    topic.add(range(15))
    asked = query(topic, startingOffsets="earliest", maxOffsetsPerTrigger="5")

    def grow(number: int) -> None:
        if number == 1:
            topic.grow(6)
            topic.add_to(5, [100])
            topic.add_to(0, [101])

    asked.in_batch = grow  # type: ignore[attr-defined]
    asked.start("available now")
    asked.process_all()
    assert values(asked) == list(range(15)), "records after the start belong to the next run"
    asked.start("available now")
    asked.process_all()
    assert values(asked) == [*range(15), 100, 101]


def test_trigger_available_now_with_deleted_topic_partitions(query: Start, bootstrap: str) -> None:
    """Trigger.AvailableNow with topic-partitions deleted while it runs"""
    topic, other = Topic(bootstrap, 1), Topic(bootstrap, 1)
    topic.add(range(6))
    other.add(range(10, 13))
    asked = query(
        topic,
        subscribePattern=f"{topic.name}|{other.name}",
        startingOffsets="earliest",
        maxOffsetsPerTrigger="4",
        failOnDataLoss="false",
    )

    def delete(number: int) -> None:
        if number == 1:
            other.delete()

    asked.in_batch = delete  # type: ignore[attr-defined]
    with pytest.raises(Exception, match=r"LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW.* been lost"):
        asked.start("available now")
        asked.process_all()


@pytest.mark.parametrize("fails", LOSS)
@pytest.mark.parametrize(
    ("partitions", "records", "sentence"),
    [
        (3, 15, "Some of partitions in Kafka topic(s) have been lost during running query with Trigger.AvailableNow."),
        (5, 10, "report available offset which is less than end offset during running query with Trigger.AvailableNow"),
    ],
    ids=["topic partitions", "offset(s)"],
)
def test_trigger_available_now_fails_when_partitions_become_unavailable(
    query: Start, bootstrap: str, partitions: int, records: int, sentence: str, fails: str
) -> None:
    """Query with Trigger.AvailableNow should throw error when topic partitions, or offset(s) in planned topic
    partitions, got unavailable during subsequent batches: regardless of failOnDataLoss"""
    topic = Topic(bootstrap, 5)
    topic.add_to(0, range(15))
    asked = query(topic, startingOffsets="earliest", maxOffsetsPerTrigger="5", failOnDataLoss=fails)

    def make_anew(number: int) -> None:
        topic.delete()
        topic.partitions = partitions
        topic.create()
        # Before the third batch, which ends at 15.
        topic.add_to(0, range(records))

    asked.in_batch = make_anew  # type: ignore[attr-defined]
    with pytest.raises(Exception) as refused:
        asked.start("available now")
        asked.process_all()
    loss = fails == "true" and partitions == 5
    # Our source detects the recreated topic before any offset shows it.
    assert ("have been deleted and recreated" if loss else sentence) in str(refused.value)


def test_trigger_available_now_reads_a_planned_batch_again_though_partitions_came(query: Start, bootstrap: str) -> None:
    """Trigger.AvailableNow: the batch knows fewer partitions than the run that reads it again"""
    topic = Topic(bootstrap, 2)
    topic.add(range(6))
    asked = query(topic, startingOffsets="earliest")

    def fail(number: int) -> None:
        raise RuntimeError("the sink is full")

    asked.in_batch = fail  # type: ignore[attr-defined]
    with pytest.raises(Exception, match="the sink is full"):
        asked.start("available now")
        asked.process_all()
    topic.grow(3)
    topic.add_to(2, [6])
    asked.in_batch = lambda number: None  # type: ignore[attr-defined]
    asked.start("available now")
    asked.process_all()
    assert values(asked) == list(range(7))


def test_trigger_once_ignores_limits(query: Start, bootstrap: str) -> None:
    """maxOffsetsPerTrigger with Trigger.Once"""
    topic = Topic(bootstrap, 3)
    topic.add(range(50))
    asked = query(topic, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    asked.start("once")
    asked.process_all()
    assert sizes(asked) == [50]


def test_max_offsets_per_trigger(query: Start, bootstrap: str) -> None:
    """maxOffsetsPerTrigger: 10 over 101, 11 and 1 records: 8, 1 and 1, then 9 and 1"""
    topic = Topic(bootstrap, 3)
    for partition, written in enumerate((range(100, 201), range(10, 21), range(1, 2))):
        topic.add_to(partition, written)
    asked = query(topic, startingOffsets="earliest", maxOffsetsPerTrigger="10")
    asked.start()
    asked.process_all()
    batches = [sorted(int(row["value"]) for row in asked.batches[number]) for number in range(4)]
    assert batches == [
        [1, 10, *range(100, 108)],
        [11, *range(108, 117)],
        [12, *range(117, 126)],
        [13, *range(126, 135)],
    ]
    asked.stop()
    topic.add_to(0, [201])
    asked.start()
    asked.process_all()
    assert values(asked) == sorted([*range(100, 202), *range(10, 21), 1])
    assert max(sizes(asked)) <= 11


def test_rate_limit_set_to_long_max_should_not_overflow(query: Start, bootstrap: str) -> None:
    """SPARK-26718"""
    topic = Topic(bootstrap, 1)
    topic.add(range(5))
    starts = json.dumps({topic.name: {"0": 5}})  # so that it would be more than there are numbers
    asked = query(topic, startingOffsets=starts, maxOffsetsPerTrigger=str(2**63 - 1))
    asked.start()
    asked.process_all()
    topic.add(range(30, 35))
    asked.process_all()
    assert values(asked) == list(range(30, 35))
    asked.stop()


def test_min_offsets_per_trigger(query: Start, bootstrap: str) -> None:
    """minOffsetsPerTrigger: the first batch runs, the next waits for enough"""
    topic = Topic(bootstrap, 3)
    topic.add(range(3))
    asked = query(topic, startingOffsets="earliest", minOffsetsPerTrigger="8", maxTriggerDelay="1h")
    asked.start()
    asked.process_all()
    topic.add(range(3, 10))
    asked.process_all()
    assert sizes(asked) == [3], "seven records are too few"
    topic.add([10])
    asked.process_all()
    assert sizes(asked) == [3, 8]
    asked.stop()


def test_max_trigger_delay(query: Start, bootstrap: str) -> None:
    """minOffsetsPerTrigger with maxTriggerDelay: no batch waits longer"""
    topic = Topic(bootstrap, 1)
    topic.add(range(3))
    asked = query(topic, startingOffsets="earliest", minOffsetsPerTrigger="1000", maxTriggerDelay="1ms")
    asked.start()
    asked.process_all()
    topic.add(range(3, 5))
    asked.process_all()
    assert values(asked) == list(range(5))
    asked.stop()


def test_composite_read_limit(query: Start, bootstrap: str) -> None:
    """compositeReadLimit: at least 5 and at most 10"""
    topic = Topic(bootstrap, 1)
    topic.add(range(30))
    asked = query(
        topic,
        startingOffsets="earliest",
        minOffsetsPerTrigger="5",
        maxOffsetsPerTrigger="10",
        maxTriggerDelay="1h",
    )
    asked.start()
    asked.process_all()
    assert sizes(asked) == [10, 10, 10]
    topic.add(range(30, 34))
    asked.process_all()
    assert sizes(asked) == [10, 10, 10]
    topic.add(range(34, 42))
    asked.process_all()
    assert sizes(asked) == [10, 10, 10, 10], "two records are left for the next batch"
    asked.stop()


def test_current_offsets_are_set_when_no_new_data_comes_in(query: Start, bootstrap: str) -> None:
    """SPARK-22956: an exhausted source stays at its offset while another topic continues"""
    slow, fast = Topic(bootstrap, 2), Topic(bootstrap, 2)
    slow.add(range(4))
    fast.add(range(100, 140))
    asked = query(slow, subscribe=f"{slow.name},{fast.name}", startingOffsets="earliest", maxOffsetsPerTrigger="8")
    asked.start()
    asked.process_all()
    assert values(asked) == [*range(4), *range(100, 140)]
    slow.add(range(4, 8))
    asked.process_all()
    assert values(asked) == [*range(8), *range(100, 140)]
    asked.stop()


def test_subscribing_topic_by_pattern_with_topic_deletions(query: Start, bootstrap: str) -> None:
    """subscribing topic by pattern with topic deletions"""
    first = Topic(bootstrap, 5)
    second = Topic(bootstrap, 5, name=f"{first.name}-seen")
    first.add([1, 2, 3])
    asked = query(first, subscribePattern=f"{first.name}.*", startingOffsets="earliest", failOnDataLoss="false")
    asked.start()
    asked.process_all()
    second.add([4, 5, 6])
    asked.process_all()
    first.delete()
    second.add([7, 8, 9])
    asked.process_all()
    third = Topic(bootstrap, 1, name=f"{first.name}-third")
    third.add([10])
    asked.process_all()
    assert values(asked) == list(range(1, 11))
    asked.stop()


def test_a_topic_that_is_recreated_between_batches(query: Start, bootstrap: str) -> None:
    """subscribe topic by pattern with topic recreation between batches: was changed from 2 to 1"""
    topic = Topic(bootstrap, 1)
    topic.add([1, 2])
    asked = query(topic, subscribePattern=f"{topic.name}.*", startingOffsets="earliest")
    asked.start()
    asked.process_all()
    assert values(asked) == [1, 2]
    asked.stop()
    topic.delete()
    topic.create()
    topic.add([3])
    with pytest.raises(Exception, match="was changed from 2 to 1"):
        asked.start(**{"fetchOffset.retryIntervalMs": "10"})
        asked.process_all()


def test_a_recreated_topic_is_read_on_if_loss_is_allowed(query: Start, bootstrap: str) -> None:
    """the same with failOnDataLoss=false"""
    topic = Topic(bootstrap, 1)
    topic.add([1, 2])
    asked = query(topic, startingOffsets="earliest", failOnDataLoss="false", **{"fetchOffset.retryIntervalMs": "10"})
    asked.start()
    asked.process_all()
    topic.delete()
    topic.create()
    topic.add([3])
    asked.process_all()
    topic.add([4, 5])
    asked.process_all()
    assert values(asked) == [1, 2, 4, 5], "only records below the old offset are lost"
    asked.stop()


def test_delete_a_topic_when_a_job_is_running(query: Start, bootstrap: str) -> None:
    """delete a topic when a Spark job is running: the query continues without it"""
    rest, gone = Topic(bootstrap, 2), Topic(bootstrap, 2)
    rest.add(range(4))
    gone.add(range(100, 104))
    asked = query(
        rest,
        subscribe=f"{rest.name},{gone.name}",
        startingOffsets="earliest",
        failOnDataLoss="false",
        **{"kafkaConsumer.pollTimeoutMs": "3000", "fetchOffset.retryIntervalMs": "10"},
    )
    asked.start()
    asked.process_all()
    gone.delete()
    rest.add(range(4, 8))
    asked.process_all()
    assert values(asked) == [*range(8), *range(100, 104)]
    asked.stop()


@pytest.mark.parametrize("fails", LOSS)
def test_delete_a_topic_between_the_plan_and_its_tasks(bootstrap: str, fails: str) -> None:
    """delete a topic when a Spark job is running: its tasks exist, and the topic does not"""
    topic = Topic(bootstrap, 1)
    topic.add(range(5))
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic.name, "failOnDataLoss": fails}
    source = pyspark_triokafka.DefaultSource({**options, "kafkaConsumer.pollTimeoutMs": "1000"})
    reader = source.streamReader(source.schema())
    (task,) = reader.partitions({topic.name: {"0": 0}}, {topic.name: {"0": 5}})
    topic.delete()
    if fails == "false":
        assert list(reader.read(task)) == []
        return
    with pytest.raises(KafkaError, match=topic.name):
        list(reader.read(task))


@pytest.mark.parametrize("fails", LOSS)
def test_empty_partitions_should_not_record_to_latest_offset(
    query: Start, bootstrap: str, tmp_path: Path, fails: str
) -> None:
    """SPARK-41375: all topics of a pattern are deleted; the offsets reached in them are retained"""
    topic = Topic(bootstrap, 5)
    topic.add(range(3))
    own = {"failOnDataLoss": fails, "fetchOffset.retryIntervalMs": "10"}
    asked = query(topic, subscribePattern=f"{topic.name}.*", startingOffsets="earliest", **own)
    asked.start()
    asked.process_all()
    topic.delete()
    if fails == "true":
        with pytest.raises(Exception, match=r"KAFKA_DATA_LOSS\.PARTITIONS_DELETED"):
            asked.process_all()
    else:
        asked.process_all()
        topic.create()
        topic.add(range(10, 20))
        asked.process_all()
        # Behind the first record of each of three partitions, which is the offset reached in the former topic.
        assert values(asked) == [0, 1, 2, 13, 14, 15, 16, 17, 18, 19]
    logged = [json.loads(path.read_text().splitlines()[2]) for path in (tmp_path / "checkpoint/offsets").glob("[0-9]*")]
    assert logged and all(logged)
    asked.stop()


def test_a_deleted_topic_is_skipped_by_the_next_run_of_available_now(query: Start, bootstrap: str) -> None:
    """Trigger.AvailableNow with topic-partitions deleted before it begins"""
    rest, gone = Topic(bootstrap, 1), Topic(bootstrap, 1)
    rest.add(range(3))
    gone.add([100])
    asked = query(rest, subscribe=f"{rest.name},{gone.name}", startingOffsets="earliest", failOnDataLoss="false")
    asked.start("available now")
    asked.process_all()
    gone.delete()
    rest.add([3])
    asked.start("available now")
    asked.process_all()
    assert values(asked) == [0, 1, 2, 3, 100]


def test_a_deleted_topic_fails_the_query_if_loss_is_an_error(query: Start, bootstrap: str) -> None:
    """partitions that vanished, failOnDataLoss=true"""
    rest, gone = Topic(bootstrap, 1), Topic(bootstrap, 1)
    rest.add(range(4))
    gone.add(range(100, 104))
    asked = query(
        rest,
        subscribe=f"{rest.name},{gone.name}",
        startingOffsets="earliest",
        **{"fetchOffset.retryIntervalMs": "10"},
    )
    asked.start()
    asked.process_all()
    asked.stop()
    gone.delete()
    rest.add([5])
    with pytest.raises(Exception, match=r"KAFKA_DATA_LOSS\.PARTITIONS_DELETED"):
        asked.start()
        asked.process_all()


def test_a_new_partition_that_does_not_start_at_zero_fails_the_query(query: Start, bootstrap: str) -> None:
    """ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO"""
    topic = Topic(bootstrap, 1)
    topic.add([1])
    asked = query(topic, startingOffsets="earliest")
    asked.start()
    asked.process_all()
    asked.stop()
    topic.grow(2)
    topic.add_to(1, range(10, 15))
    topic.cut(3, partition=1)
    with pytest.raises(Exception, match="starts from 3 instead of 0"):
        asked.start()
        asked.process_all()
    asked.start(failOnDataLoss="false")
    asked.process_all()
    assert values(asked) == [1, 13, 14]
    asked.stop()


def test_null_keys_and_values(query: Start, bootstrap: str) -> None:
    """SPARK-27494: read kafka record containing null key/values."""
    topic = Topic(bootstrap, 1)
    topic.write([Record(None, None), Record(b"v", None), Record(None, b"k"), Record(b"", b"")])
    asked = query(topic, startingOffsets="earliest")
    asked.start()
    asked.process_all()
    assert [(row["key"], row["value"]) for row in rows(asked)] == [(None, None), (None, b"v"), (b"k", None), (b"", b"")]
    asked.stop()


def test_headers(query: Start, bootstrap: str) -> None:
    """Kafka column types: headers, also when a query had no headers before"""
    topic = Topic(bootstrap, 1)
    topic.write([Record(b"1", headers=(("a", b"x"), ("a", None)))])
    asked = query(topic, startingOffsets="earliest")
    asked.start()
    asked.process_all()
    asked.stop()
    topic.write([Record(b"2", headers=(("a", b"x"), ("a", None))), Record(b"3")])
    asked.start(includeHeaders="true")
    asked.process_all()
    assert "headers" not in asked.batches[0][0]
    assert [row["headers"] for row in asked.batches[1]] == [
        [{"key": "a", "value": b"x"}, {"key": "a", "value": None}],
        None,
    ]
    asked.stop()


def test_min_partitions(query: Start, bootstrap: str) -> None:
    """SPARK-30656: minPartitions: three partitions of which each is split"""
    topic = Topic(bootstrap, 3)
    for partition, written in enumerate((range(10), range(10, 20), [20])):
        topic.add_to(partition, written)
    asked = query(topic, startingOffsets="earliest", minPartitions="6")
    asked.start()
    asked.process_all()
    assert asked.tasks[0] >= 6  # type: ignore[attr-defined]
    assert values(asked) == list(range(21))
    asked.stop()


def test_max_partitions(query: Start, bootstrap: str) -> None:
    """Ours: small partitions share tasks (Promised: merge small partitions)"""
    topic = Topic(bootstrap, 12)
    topic.add(range(48))
    asked = query(topic, startingOffsets="earliest", maxPartitions="2")
    asked.start()
    asked.process_all()
    assert asked.tasks[0] == 2  # type: ignore[attr-defined]
    assert values(asked) == list(range(48))
    asked.stop()


def test_bytes_limit_batches(query: Start, bootstrap: str) -> None:
    """Ours: maxBytesPerTrigger, by samples (Promised: byte-based limits)"""
    topic = Topic(bootstrap, 2)
    topic.write(Record(b"%01000d" % number, partition=number % 2) for number in range(40))
    asked = query(topic, startingOffsets="earliest", maxBytesPerTrigger="10000")
    asked.start()
    asked.process_all()
    assert sizes(asked) == [10, 10, 10, 10]
    assert values(asked) == list(range(40))
    asked.stop()


def test_offsets_are_always_written_in_the_same_order(query: Start, bootstrap: str, tmp_path: Path) -> None:
    """KafkaSourceOffsetSuite: topics by name, partitions by number (Promised: offsets JSON)"""
    topic = Topic(bootstrap, 12)
    other = Topic(bootstrap, 1)
    topic.add([1])
    asked = query(topic, subscribe=f"{other.name},{topic.name}", startingOffsets="earliest")
    asked.start()
    asked.process_all()
    asked.stop()
    found = offsets(tmp_path / "checkpoint", 0)
    assert list(found) == sorted([topic.name, other.name])
    assert list(found[topic.name]) == [str(number) for number in range(12)]


def test_a_planned_batch_that_was_not_completed_is_read_again(query: Start, bootstrap: str, tmp_path: Path) -> None:
    """a query that failed in the middle of a batch reads the same rows in a batch of the same number"""
    topic = Topic(bootstrap, 2)
    topic.add(range(10))
    asked = query(topic, startingOffsets="earliest")

    def fail(number: int) -> None:
        raise RuntimeError("the sink is full")

    asked.in_batch = fail  # type: ignore[attr-defined]
    with pytest.raises(Exception, match="the sink is full"):
        asked.start()
        asked.process_all()
    topic.add(range(10, 20))
    asked.in_batch = lambda number: None  # type: ignore[attr-defined]
    asked.start()
    asked.process_all()
    assert sizes(asked) == [10, 10]
    assert values(asked) == list(range(20))
    asked.stop()


def test_latest_means_the_same_after_a_first_batch_that_failed(query: Start, bootstrap: str, tmp_path: Path) -> None:
    """initial offsets are stored (KafkaSourceInitialOffsetWriter): otherwise the first batch would be empty"""
    topic = Topic(bootstrap, 2)
    topic.add([-1, -2])
    initial_offsets = tmp_path / "checkpoint" / "sources" / "0" / "0"
    asked = query(topic, startingOffsets="latest", initialOffsetsPath=str(initial_offsets))

    def fail(number: int) -> None:
        raise RuntimeError("the sink is full")

    asked.in_batch = fail  # type: ignore[attr-defined]
    with pytest.raises(Exception, match="the sink is full"):
        asked.start()
        asked.process_all()
    topic.add([1, 2, 3])
    asked.in_batch = lambda number: None  # type: ignore[attr-defined]
    asked.start()
    asked.process_all()
    assert values(asked) == [1, 2, 3]
    assert initial_offsets.read_bytes() == b'\0v1\n{"%s":{"0":1,"1":1}}' % topic.name.encode()
    asked.stop()


def test_initial_offset_written_by_spark_2_1_0(query: Start, bootstrap: str, tmp_path: Path) -> None:
    """deserialization of initial offset written by Spark 2.1.0 (SPARK-19517): the query begins there, whatever
    startingOffsets says"""
    topic = Topic(bootstrap, 3)
    for partition, written in enumerate(([0, 1, 2], [0, 10, 20], [0, 100, 200])):
        topic.add_to(partition, written)
    initial_offsets = tmp_path / "checkpoint" / "sources" / "0" / "0"
    initial_offsets.parent.mkdir(parents=True)
    initial_offsets.write_text(f'2{{"{topic.name}":{{"2":2,"1":1,"0":0}}}}')
    asked = query(topic, startingOffsets="latest", initialOffsetsPath=str(initial_offsets))
    asked.start()
    asked.process_all()
    topic.add_to(0, [1000])
    asked.process_all()
    assert values(asked) == [0, 1, 2, 10, 20, 200, 1000]
    asked.stop()


def test_initial_offset_written_by_future_version(query: Start, bootstrap: str, tmp_path: Path) -> None:
    """deserialization of initial offset written by future version"""
    topic = Topic(bootstrap, 3)
    initial_offsets = tmp_path / "checkpoint" / "sources" / "0" / "0"
    initial_offsets.parent.mkdir(parents=True)
    initial_offsets.write_bytes(b'\0v99999\n{"%s":{"0":0}}' % topic.name.encode())
    asked = query(topic, initialOffsetsPath=str(initial_offsets))
    with pytest.raises(Exception) as refused:
        asked.start()
        asked.process_all()
    for words in ("maximum supported log version is v1, but encountered v99999", "produced by a newer version"):
        assert words in str(refused.value)


def test_a_record_timestamp_beyond_sparks_range(query: Start, bootstrap: str) -> None:
    """SPARK-56243: malformed record timestamp throws detailed error"""
    topic = Topic(bootstrap, 1)
    topic.write([Record(b"1"), Record(b"2", timestamp_ms=1_712_345_678_123_456_789)])
    asked = query(topic, startingOffsets="earliest")
    with pytest.raises(Exception, match=rf"KAFKA_MALFORMED_RECORD_TIMESTAMP.*topic {topic.name} partition 0 offset 1 "):
        asked.start()
        asked.process_all()


def test_ends_of_batches_are_committed_to_a_group_one_batch_late(query: Start, bootstrap: str) -> None:
    """Ours: commitGroupId (fact 8) (Promised: group commits for lag)"""
    topic = Topic(bootstrap, 2)
    topic.add(range(5))
    asked = query(topic, startingOffsets="earliest", commitGroupId=f"late-{topic.name}")
    asked.start()
    asked.process_all()
    assert committed(bootstrap, f"late-{topic.name}") == {}
    topic.add(range(5, 7))
    asked.process_all()
    assert committed(bootstrap, f"late-{topic.name}") == {
        TopicPartition(topic.name, 0): 3,
        TopicPartition(topic.name, 1): 2,
    }
    asked.stop()


def test_a_new_query_starts_at_the_committed_offsets_of_a_group(query: Start, bootstrap: str) -> None:
    """Ours: startingOffsets=group (SPARK-17937)"""
    topic = Topic(bootstrap, 1)
    topic.add(range(5))
    group = f"stands-{topic.name}"
    commit_to_group({"bootstrap_servers": bootstrap}, group, {TopicPartition(topic.name, 0): 3}, 10_000)
    asked = query(topic, startingOffsets="group", commitGroupId=group)
    asked.start()
    asked.process_all()
    assert values(asked) == [3, 4]
    asked.stop()


@pytest.mark.parametrize("given", ["a", "1.0", "0", "-1"])
def test_illegal_min_partitions(query: Start, bootstrap: str, given: str) -> None:
    """illegal minPartitions"""
    topic = Topic(bootstrap, 1)
    with pytest.raises(Exception, match=r"(?i)minpartitions"):
        query(topic, minPartitions=given).start()


def test_a_user_schema_is_refused(bootstrap: str) -> None:
    """the source has a fixed schema"""
    source = pyspark_triokafka.DefaultSource({"kafka.bootstrap.servers": bootstrap, "subscribe": "any"})
    with pytest.raises(Exception, match="fixed schema"):
        source.streamReader(frame(value="string")).initialOffset()
