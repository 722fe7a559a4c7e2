"""The offsets of a batch, with brokers that respond from tables (KafkaOffsetReaderSuite)."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest

from triokafka.errors import ConfigurationError
from triokafka.spark.planning.batch_plan import plan_batch
from triokafka.spark.planning.bounds import EARLIEST, LATEST, Offsets
from triokafka.spark.planning.data_loss import KafkaDataLossError
from triokafka.spark.planning.read_options import ReadOptions
from triokafka.spark.planning.tasks import Task, TaskRange
from triokafka.structs import TopicPartition

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Tables:
    """Stands in for `Brokers`. ``times`` has the timestamps of records by offset, from each log's start."""

    def __init__(self, logs: dict[TopicPartition, tuple[int, int]], committed: Offsets | None = None) -> None:
        self.logs = logs
        self.group = committed or {}
        self.topic_ids: dict[str, UUID] = {}

    async def partitions(self) -> list[TopicPartition]:
        return sorted(self.logs)

    async def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {one: self.logs[one][0] for one in partitions}

    async def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {one: self.logs[one][1] for one in partitions}

    async def at_timestamps(self, times: Offsets) -> dict[TopicPartition, int | None]:
        """Return offsets by the rule that the record at offset n has time 1000 + n."""
        found: dict[TopicPartition, int | None] = {}
        for one, time_ms in times.items():
            offset = max(time_ms - 1000, self.logs[one][0])
            found[one] = offset if offset < self.logs[one][1] else None
        return found

    async def committed(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        assert group_id == "lag"
        return {one: self.group[one] for one in partitions if one in self.group}


LOGS = {A: (10, 20), B: (0, 7)}


async def planned(
    options: dict[str, str],
    logs: dict[TopicPartition, tuple[int, int]] | None = None,
    topic_id: UUID | None = None,
    **more: Any,
) -> list[Task]:
    given = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders", **options}
    tables = Tables(LOGS if logs is None else logs, **more)
    if topic_id is not None:
        tables.topic_ids["orders"] = topic_id
    return await plan_batch(tables, ReadOptions.parse(given))  # type: ignore[arg-type]


def task(partition: TopicPartition, start: int, end: int) -> Task:
    return (TaskRange(*partition, start, end),)


def by_partition(a: int, b: int) -> str:
    return f'{{"orders": {{"0": {a}, "1": {b}}}}}'


async def test_everything_is_one_task_for_each_partition_in_order() -> None:
    assert await planned({}) == [task(A, 10, 20), task(B, 0, 7)]


async def test_partitions_without_records_get_no_task() -> None:
    assert await planned({}, {A: (4, 4), B: (0, 1)}) == [task(B, 0, 1)]
    assert await planned({}, {A: (0, 0)}) == []


async def test_offsets_by_partition_are_taken_and_special_ones_resolved() -> None:
    found = await planned({"startingOffsets": by_partition(12, -2), "endingOffsets": by_partition(-1, 5)})
    assert found == [task(A, 12, 20), task(B, 0, 5)]


async def test_special_offsets_are_resolved_before_ranges_are_split() -> None:
    """SPARK-30656: minPartitions with offsets unresolved"""
    found = await planned({"startingOffsets": by_partition(-2, -2), "minPartitions": "4"})
    assert found == [task(A, 10, 15), task(A, 15, 20), task(B, 0, 3), task(B, 3, 7)]


async def test_specific_offsets_are_split() -> None:
    """SPARK-30656: getOffsetRangesFromUnresolvedOffsets - using specific offsets"""
    one = {A: (0, 10)}
    given = {"startingOffsets": '{"orders": {"0": 1}}', "endingOffsets": '{"orders": {"0": 4}}', "minPartitions": "3"}
    assert await planned(given, one) == [task(A, 1, 2), task(A, 2, 3), task(A, 3, 4)]
    special = {"offsetsBinding": "late", "minPartitions": "3"}
    assert await planned(special, {A: (0, 4)}) == [task(A, EARLIEST, 1), task(A, 1, 2), task(A, 2, LATEST)]


@pytest.mark.parametrize(("binding", "first", "last"), [("late", EARLIEST, LATEST), ("snapshot", 0, 100)])
async def test_multiple_topic_partitions_are_split(binding: str, first: int, last: int) -> None:
    """SPARK-30656: getOffsetRangesFromUnresolvedOffsets - multiple topic partitions; and FromResolvedOffsets"""
    given = {"startingOffsets": by_partition(-2, -2), "endingOffsets": by_partition(-1, 3), "minPartitions": "4"}
    found = await planned({**given, "offsetsBinding": binding}, {A: (0, 100), B: (0, 4)})
    assert found == [task(A, first, 33), task(A, 33, 66), task(A, 66, last), task(B, first, 3)]


async def test_late_binding_keeps_the_beginning_and_the_end_open() -> None:
    """SPARK-30656: the first and the last piece stay unresolved; an empty partition gets a task too."""
    found = await planned({"offsetsBinding": "late", "minPartitions": "4"})
    assert found == [task(A, EARLIEST, 15), task(A, 15, LATEST), task(B, EARLIEST, 3), task(B, 3, LATEST)]
    found = await planned({"offsetsBinding": "late", "endingOffsets": by_partition(-1, 5)}, {A: (4, 4), B: (0, 7)})
    assert found == [task(A, EARLIEST, LATEST), task(B, EARLIEST, 5)]
    assert await planned({"offsetsBinding": "late", "maxPartitions": "1"}) == [
        (TaskRange(*A, EARLIEST, LATEST), TaskRange(*B, EARLIEST, LATEST))
    ]


@pytest.mark.parametrize("starts", ["earliest", "offsets"])
async def test_late_bound_ranges_are_merged_by_their_present_sizes(starts: str) -> None:
    """The sentinels for earliest and latest are not sizes."""
    logs = {TopicPartition("orders", number): (0, size) for number, size in enumerate((100, 10, 50, 60, 0))}
    offsets = {"orders": {str(one.partition): 0 if one.partition else -2 for one in logs}}
    start = {"earliest": "earliest", "offsets": json.dumps(offsets)}[starts]
    found = await planned({"offsetsBinding": "late", "maxPartitions": "2", "startingOffsets": start}, logs)
    assert [[one.partition for one in each] for each in found] == [[0, 1, 4], [2, 3]]
    assert {one.end for each in found for one in each} == {LATEST}


@pytest.mark.parametrize("how", [{}, {"minPartitions": "5"}, {"maxPartitions": "1"}], ids=["whole", "split", "merged"])
async def test_tasks_know_the_topic_that_was_planned_with(how: dict[str, str]) -> None:
    """KIP-516: offsets alone do not show that the topic was deleted and recreated."""
    for topic_id in (UUID(int=7), None):
        found = await planned(how, topic_id=topic_id)
        assert {one.topic_id for each in found for one in each} == {topic_id}


async def test_range_without_offsets_accepts_any_topic_of_the_name() -> None:
    """An offset at one end belongs to the topic that existed when it was given."""
    late = {"offsetsBinding": "late", "minPartitions": "5"}
    found = await planned({**late, "startingOffsets": by_partition(-2, 3)}, topic_id=UUID(int=7))
    assert {one.partition: one.topic_id for each in found for one in each} == {0: None, 1: UUID(int=7)}


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
@pytest.mark.parametrize(
    ("offsets", "specified"),
    [
        ('{"orders": {"0": 12}}', "Specified: orders-0 Assigned: orders-0, orders-1"),
        ('{"orders": {"0": 12, "1": 3, "2": 0}}', "Specified: orders-0, orders-1, orders-2 Assigned:"),
    ],
)
async def test_offsets_must_name_exactly_the_existing_partitions(option: str, offsets: str, specified: str) -> None:
    with pytest.raises(ConfigurationError, match="you must specify all TopicPartitions") as refused:
        await planned({option: offsets})
    assert specified in str(refused.value)
    assert "[KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED]" in str(refused.value)


@pytest.mark.parametrize("specified", [2, 4])
async def test_times_must_name_exactly_the_existing_partitions(specified: int) -> None:
    """KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED error class - partitions assigned: 3, specified: 2, 4"""
    three = {TopicPartition("orders", number): (0, 9) for number in range(3)}
    times = json.dumps({"orders": {str(number): 1 for number in range(specified)}})
    with pytest.raises(ConfigurationError) as refused:
        await planned({"startingOffsetsByTimestamp": times, "endingOffsetsByTimestamp": times}, three)
    assert "[KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED]" in str(refused.value)
    assert "Partitions specified for Kafka timestamp based start offsets don't match" in str(refused.value)
    listed = ", ".join(f"orders-{number}" for number in range(specified))
    assert f"Specified: {listed} Assigned: orders-0, orders-1, orders-2" in str(refused.value)


async def test_partitions_left_out_may_stand_at_the_earliest_or_the_latest() -> None:
    """OnMissingPartitions"""
    start = {"startingOffsets": '{"orders": {"0": 12}}'}
    assert await planned({**start, "onMissingPartitions": "earliest"}) == [task(A, 12, 20), task(B, 0, 7)]
    assert await planned({**start, "onMissingPartitions": "latest"}) == [task(A, 12, 20)]
    end = {"endingOffsets": '{"orders": {"0": 12}}', "onMissingPartitions": "earliest"}
    assert await planned(end) == [task(A, 10, 12), task(B, 0, 7)]
    both = {**start, "endingOffsets": '{"orders": {"0": 15, "1": 3}}', "onMissingPartitions": "earliest"}
    assert await planned(both) == [task(A, 12, 15), task(B, 0, 3)], (
        "each side may name partitions that the other leaves out"
    )
    assert await planned({**end, "startingOffsets": by_partition(11, 3)}) == [task(A, 11, 12), task(B, 3, 7)]
    with pytest.raises(ConfigurationError, match="UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET"):
        await planned({**end, "startingOffsets": by_partition(13, 3)})
    with pytest.raises(ConfigurationError, match="Specified: orders-9"):
        await planned({"startingOffsets": '{"orders": {"9": 12}}', "onMissingPartitions": "earliest"})


async def test_times_stand_for_the_first_record_at_or_after_them() -> None:
    found = await planned({"startingTimestamp": "1005", "endingTimestamp": "1015"})
    assert found == [task(A, 10, 15), task(B, 5, 7)]
    found = await planned(
        {"startingOffsetsByTimestamp": by_partition(1012, 1003), "endingOffsetsByTimestamp": by_partition(9999, 1006)}
    )
    assert found == [task(A, 12, 20), task(B, 3, 6)]


async def test_a_start_without_a_record_as_late_is_an_error_or_the_latest() -> None:
    """timestamp provided for starting, no matching offset: strategies error and latest"""
    with pytest.raises(ConfigurationError, match="No offset matched from request of topic-partition orders-1 and time"):
        await planned({"startingTimestamp": "1015"})
    found = await planned({"startingTimestamp": "1015", "startingOffsetsByTimestampStrategy": "latest"})
    assert found == [task(A, 15, 20)]


async def test_a_batch_may_start_at_the_committed_offsets_of_a_group() -> None:
    """SPARK-17937."""
    options = {"startingOffsets": "group", "kafka.group.id": "lag"}
    assert await planned(options, committed={A: 13, B: 7}) == [task(A, 13, 20)]
    with pytest.raises(ConfigurationError, match="group 'lag' has no committed offset for orders-1"):
        await planned(options, committed={A: 13})
    missing = {**options, "onMissingPartitions": "earliest"}
    assert await planned(missing, committed={A: 13}) == [task(A, 13, 20), task(B, 0, 7)]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"startingOffsets": by_partition(3, 0)}, "startingOffsets asks for offset 3, and the log starts at 10"),
        ({"endingOffsets": by_partition(20, 9)}, "asks for offset 9, and the log starts at 0 and ends at 7"),
        (
            {"startingOffsets": by_partition(3, 0), "endingOffsets": by_partition(9, 7)},
            "in offset [3, 9) for topic partition orders-0",
        ),
    ],
)  # fmt: skip
async def test_offsets_that_are_not_in_the_log_are_an_error_and_no_short_read(
    options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(KafkaDataLossError) as lost:
        await planned(options)
    assert lost.value.error_class == "KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE"
    assert "[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE]" in str(lost.value)
    assert sentence in str(lost.value)


async def test_tolerated_losses_are_a_warning_and_the_remaining_records_are_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "triokafka.spark"):
        found = await planned({"startingOffsets": by_partition(3, 0), "failOnDataLoss": "false"})
    assert found == [task(A, 10, 20), task(B, 0, 7)]
    assert "offset 3, and the log starts at 10" in caplog.text
    lost = {"startingOffsets": by_partition(3, 0), "endingOffsets": by_partition(9, 9), "failOnDataLoss": "false"}
    assert await planned(lost) == [task(B, 0, 7)]


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": by_partition(15, 0), "endingTimestamp": "1012"},
        {"startingTimestamp": "1006", "endingOffsets": by_partition(20, 3)},
        {"startingOffsets": by_partition(10, 9)},
    ],
)
async def test_a_start_after_the_end_is_refused_once_both_are_known(options: dict[str, str]) -> None:
    """KafkaRelationSuite: start > end, resolved"""
    with pytest.raises(ConfigurationError, match="RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET"):
        await planned(options)


async def test_a_pattern_that_matches_nothing_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """The frame is empty, as with the connector. ``flights-*`` is a pattern too, but with another meaning."""
    given = {"kafka.bootstrap.servers": "localhost:9092", "subscribePattern": "flights-*"}
    assert await plan_batch(Tables({}), ReadOptions.parse(given)) == []  # type: ignore[arg-type]
    assert "no topic at localhost:9092 matches SubscribePattern[flights-*]" in caplog.text
