"""How ranges become tasks: the connector's vectors as numbers, and merging, which is ours.

Partitions of the vectors are called t1, t2 and t3; a range is written as (partition, first offset, end).
"""

from __future__ import annotations

import random

import pytest

from triokafka.spark.planning.read_options import ReadOptions
from triokafka.spark.planning.tasks import TaskRange, merge, split, tasks

Vector = list[tuple[str, int, int]]


def ranges(vector: Vector) -> list[TaskRange]:
    return [TaskRange(topic, 1, start, end) for topic, start, end in vector]


# KafkaOffsetRangeCalculatorSuite: name, minPartitions, maxRecordsPerPartition, what there is, what comes out.
SUITE: list[tuple[str, int | None, int | None, Vector, Vector]] = [
    ("no minPartitions: N partitions to N ranges", None, None, [("t1", 1, 2)], [("t1", 1, 2)]),
    ("no minPartitions: empty ranges ignored", None, None, [("t1", 1, 2), ("t2", 1, 1)], [("t1", 1, 2)]),
    (
        "N partitions to N ranges",
        3,
        None,
        [("t1", 1, 2), ("t2", 1, 2), ("t3", 1, 2)],
        [("t1", 1, 2), ("t2", 1, 2), ("t3", 1, 2)],
    ),
    ("1 partition to N ranges", 4, None, [("t1", 1, 5)], [("t1", 1, 2), ("t1", 2, 3), ("t1", 3, 4), ("t1", 4, 5)]),
    (
        "N skewed partitions to M ranges",
        4,
        None,
        [("t1", 1, 5), ("t2", 1, 21)],
        [("t1", 1, 5), ("t2", 1, 7), ("t2", 7, 14), ("t2", 14, 21)],
    ),
    (
        "SPARK-30656: ignore empty ranges and split the rest",
        4,
        None,
        [("t1", 1, 1), ("t2", 1, 21)],
        [("t2", 1, 6), ("t2", 6, 11), ("t2", 11, 16), ("t2", 16, 21)],
    ),
    (
        "SPARK-30656: N very skewed partitions to M ranges",
        4,
        None,
        [("t1", 1, 2), ("t2", 1, 1001)],
        [("t1", 1, 2), ("t2", 1, 334), ("t2", 334, 667), ("t2", 667, 1001)],
    ),
    (
        "SPARK-30656: minPartitions less than the number of partitions",
        1,
        None,
        [("t1", 1, 5), ("t2", 1, 21)],
        [("t1", 1, 5), ("t2", 1, 21)],
    ),
    ("inexact multiple of minPartitions", 3, None, [("t1", 1, 11)], [("t1", 1, 4), ("t1", 4, 7), ("t1", 7, 11)]),
    (
        "empty ranges ignored",
        4,
        None,
        [("t1", 1, 5), ("t2", 1, 21), ("t3", 1, 1)],
        [("t1", 1, 5), ("t2", 1, 7), ("t2", 7, 14), ("t2", 14, 21)],
    ),
    (
        "SPARK-28489: never drop offsets",
        6,
        None,
        [("t1", 0, 10), ("t2", 0, 10), ("t3", 0, 1)],
        [("t1", 0, 3), ("t1", 3, 6), ("t1", 6, 10), ("t2", 0, 3), ("t2", 3, 6), ("t2", 6, 10), ("t3", 0, 1)],
    ),
    (
        "SPARK-36576: 0 small unsplit ranges and 3 large split ranges",
        9,
        None,
        [("t1", 0, 10_000), ("t2", 0, 15_000), ("t3", 0, 20_000)],
        [
            *(("t1", at, at + 5_000) for at in (0, 5_000)),
            *(("t2", at, at + 5_000) for at in (0, 5_000, 10_000)),
            *(("t3", at, at + 5_000) for at in (0, 5_000, 10_000, 15_000)),
        ],
    ),
    (
        "SPARK-36576: 1 small unsplit range and 2 large split ranges",
        6,
        None,
        [("t1", 0, 500), ("t2", 0, 12_000), ("t3", 0, 15_001)],
        [
            ("t1", 0, 500),
            ("t2", 0, 6_000),
            ("t2", 6_000, 12_000),
            ("t3", 0, 5_000),
            ("t3", 5_000, 10_000),
            ("t3", 10_000, 15_001),
        ],
    ),
    (
        "SPARK-36576: 2 small unsplit ranges and 1 large split range",
        6,
        None,
        [("t1", 0, 1), ("t2", 0, 1), ("t3", 0, 10_000)],
        [("t1", 0, 1), ("t2", 0, 1), *(("t3", at, at + 2_500) for at in (0, 2_500, 5_000, 7_500))],
    ),
    (
        "SPARK-46798: ranges unsplit",
        3,
        None,
        [("t1", 0, 1), ("t2", 0, 1), ("t3", 0, 1)],
        [("t1", 0, 1), ("t2", 0, 1), ("t3", 0, 1)],
    ),
    (
        "SPARK-46798: ranges split",
        4,
        None,
        [("t1", 0, 1), ("t2", 0, 1), ("t3", 0, 2)],
        [("t1", 0, 1), ("t2", 0, 1), ("t3", 0, 1), ("t3", 1, 2)],
    ),
    ("SPARK-49259: exactly maxRecordsPerPartition", None, 4, [("t1", 1, 5)], [("t1", 1, 5)]),
    ("SPARK-49259: fewer than maxRecordsPerPartition", None, 4, [("t1", 1, 2)], [("t1", 1, 2)]),
    ("SPARK-49259: 1 partition to N ranges", None, 4, [("t1", 1, 6)], [("t1", 1, 3), ("t1", 3, 6)]),
    (
        "SPARK-49259: N partitions to N ranges",
        None,
        20,
        [("t1", 1, 40), ("t2", 1, 50), ("t3", 1, 60)],
        [
            ("t1", 1, 20),
            ("t1", 20, 40),
            ("t2", 1, 17),
            ("t2", 17, 33),
            ("t2", 33, 50),
            ("t3", 1, 20),
            ("t3", 20, 40),
            ("t3", 40, 60),
        ],
    ),
    ("SPARK-49259: 1 partition, low minPartitions", 1, 20, [("t1", 1, 40)], [("t1", 1, 20), ("t1", 20, 40)]),
    (
        "SPARK-49259: 1 partition, high minPartitions",
        4,
        20,
        [("t1", 1, 40)],
        [("t1", 1, 10), ("t1", 10, 20), ("t1", 20, 30), ("t1", 30, 40)],
    ),
]


@pytest.mark.parametrize(
    ("fewest", "most", "there", "expected"), [case[1:] for case in SUITE], ids=[case[0] for case in SUITE]
)
def test_offset_range_calculator_suite(fewest: int | None, most: int | None, there: Vector, expected: Vector) -> None:
    assert split(ranges(there), min_partitions=fewest, max_records=most) == ranges(expected)


def test_pieces_are_without_gaps_whatever_the_numbers() -> None:
    random.seed(7)
    for _ in range(300):
        there = [
            TaskRange(f"t{n}", 0, start := random.randrange(1000), start + random.choice((0, 1, 5, 10**3, 10**12)))
            for n in range(4)
        ]
        found = split(there, min_partitions=random.randrange(1, 50), max_records=random.choice((None, 10**11)))
        for one in there:
            mine = [piece for piece in found if piece.topic == one.topic]
            assert [piece.start for piece in mine[1:]] == [piece.end for piece in mine[:-1]]
            assert all(piece.size > 0 for piece in mine)
            assert (one.size == 0) == (not mine)
            assert not mine or (mine[0].start, mine[-1].end) == (one.start, one.end)


def test_a_range_is_split_into_no_more_pieces_than_it_has_offsets() -> None:
    """A huge ``minPartitions`` costs neither time nor empty tasks."""
    found = split([TaskRange("orders", 0, 5, 8)], min_partitions=2**31 - 1)
    assert [(one.start, one.end) for one in found] == [(5, 6), (6, 7), (7, 8)]


def test_small_ranges_are_merged_into_tasks_of_similar_size() -> None:
    """A task costs Spark some 20 ms, so 40 small partitions cost most of a second."""
    there = [TaskRange("t", number, 0, 10) for number in range(40)]
    found = merge(there, 4)
    assert len(found) == 4
    assert {sum(one.size for one in task) for task in found} == {100}
    assert sorted(one for task in found for one in task) == there


def test_the_largest_range_stands_alone() -> None:
    there = [TaskRange("t", 0, 0, 1_000), *(TaskRange("t", number, 0, 3) for number in range(1, 6))]
    assert merge(there, 2) == [(there[0],), tuple(there[1:])]


def test_few_ranges_are_left_as_they_are() -> None:
    there = [TaskRange("t", 0, 0, 5), TaskRange("t", 1, 0, 5)]
    assert merge(there, 2) == merge(there, None) == [(there[0],), (there[1],)]


def test_pieces_of_one_partition_that_meet_again_become_one() -> None:
    there = [TaskRange("t", 0, 0, 5), TaskRange("t", 0, 5, 10), TaskRange("t", 0, 10, 15)]
    assert merge(there, 1) == [(TaskRange("t", 0, 0, 15),)]


def test_maximum_number_of_tasks_overrides_the_maximum_records_of_a_task() -> None:
    options = ReadOptions.parse(
        {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "maxPartitions": "2", "maxRecordsPerPartition": "10"}
    )
    found = tasks(options, [TaskRange("t", 0, 0, 100), TaskRange("t", 1, 7, 7)])
    assert len(found) == 2
    assert sum(one.size for task in found for one in task) == 100
