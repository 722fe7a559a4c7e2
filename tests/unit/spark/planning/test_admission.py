"""How much of the available data one micro-batch takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triokafka.spark.planning.admission import UNSAMPLED_OFFSETS, Admission, limit_bytes, prorate
from triokafka.spark.planning.bounds import MAX_OFFSET
from triokafka.structs import TopicPartition

A, B, C = (TopicPartition("orders", number) for number in range(3))


def taken(start: dict[TopicPartition, int], end: dict[TopicPartition, int]) -> tuple[int, ...]:
    return tuple(end[one] - start[one] for one in sorted(end))


def test_limit_of_ten_over_101_11_and_1_gives_8_1_and_1_and_then_9_and_1() -> None:
    """The vector comes from the connector's suite."""
    start, latest = {A: 100, B: 10, C: 1}, {A: 201, B: 21, C: 2}
    first = prorate(start, latest, 10)
    assert taken(start, first) == (8, 1, 1)
    second = prorate(first, latest, 10)
    assert taken(first, second) == (9, 1, 0)


@pytest.mark.parametrize(
    ("limit", "sizes", "shares"),
    [
        (100, (29, 71), (28, 71)),
        (100, (57, 43), (56, 43)),
        (100, (58, 29, 13), (57, 28, 13)),
        (10, (3, 7), (3, 7)),
        (49, (1, 48), (1, 48)),
        (500, (1_150, 870, 3), (284, 215, 1)),
        (10**16, (10**16 + 1, 10**16), (5 * 10**15, 5 * 10**15)),
    ],
)
def test_shares_are_rounded_where_the_connectors_doubles_are(
    limit: int, sizes: tuple[int, ...], shares: tuple[int, ...]
) -> None:
    """Limit * (size / total) in doubles, then ceil below one and otherwise floor, by the byte code of the connector of
    Spark 4.2. A value just below an integer is rounded down.
    """
    start = {one: 7 for one, _ in zip((A, B, C), sizes, strict=False)}
    latest = {one: 7 + size for one, size in zip((A, B, C), sizes, strict=False)}
    assert taken(start, prorate(start, latest, limit)) == shares


def test_a_limit_of_the_largest_number_takes_everything() -> None:
    """SPARK-26718: the connector once overflowed."""
    latest = {A: MAX_OFFSET, B: 7}
    assert prorate({A: 5, B: 0}, latest, MAX_OFFSET) == latest
    assert prorate({A: 7, B: 0}, latest, MAX_OFFSET) == latest
    assert prorate({A: 0}, {A: 12}, MAX_OFFSET) == {A: 12}


def test_partitions_that_are_not_behind_stay_where_they_are() -> None:
    assert prorate({A: 4, B: 9}, {A: 4, B: 12}, 2) == {A: 4, B: 11}


def test_a_partition_with_a_lower_end_is_left_to_the_checks_of_the_plan() -> None:
    assert prorate({A: 4, B: 0}, {A: 2, B: 10}, 5) == {A: 2, B: 5}


def test_nothing_to_read_is_the_end_itself() -> None:
    assert prorate({A: 4}, {A: 4}, 10) == {A: 4}


offsets = st.integers(min_value=0, max_value=MAX_OFFSET)
ranges = st.dictionaries(st.sampled_from([A, B, C]), st.tuples(offsets, offsets).map(sorted), min_size=1)


@given(ranges, st.integers(min_value=1, max_value=MAX_OFFSET))
def test_shares_stay_within_their_ranges_near_the_limit_and_starve_no_partition(
    found: dict[TopicPartition, list[int]], limit: int
) -> None:
    start = {one: bounds[0] for one, bounds in found.items()}
    latest = {one: bounds[1] for one, bounds in found.items()}
    ends = prorate(start, latest, limit)
    for one in found:
        assert start[one] <= ends[one] <= latest[one]
        assert ends[one] > start[one] or start[one] == latest[one]
    # A double has 53 bits.
    assert sum(taken(start, ends)) < limit + len(found) + (limit >> 50)
    if sum(taken(start, latest)) <= limit:
        assert all(latest[one] - ends[one] <= 1 + (latest[one] >> 50) for one in found)


@given(ranges, st.integers(min_value=1, max_value=10_000))
def test_batches_follow_each_other_to_the_end(found: dict[TopicPartition, list[int]], limit: int) -> None:
    """Halving the rest is the slowest progress of proration; every batch makes progress."""
    start = {one: bounds[0] for one, bounds in found.items()}
    latest = {one: min(bounds[1], bounds[0] + 50) for one, bounds in found.items()}
    for _ in range(200):
        start = prorate(start, latest, limit)
    assert start == latest


def test_the_first_batch_runs_however_small_and_the_next_waits_for_enough() -> None:
    """MinOffsetsPerTrigger, maxTriggerDelay."""
    admission = Admission(min_offsets=10, max_delay_ms=1_000)
    assert admission.admit({A: 0}, {A: 3}, now_ms=50) == {A: 3}
    assert admission.admit({A: 3}, {A: 12}, now_ms=60) == {A: 3}, "nine offsets are too few"
    assert admission.admit({A: 3}, {A: 13}, now_ms=70) == {A: 13}
    assert admission.admit({A: 13}, {A: 14}, now_ms=1_069) == {A: 13}
    assert admission.admit({A: 13}, {A: 14}, now_ms=1_070) == {A: 14}, "the maximum delay has passed"
    assert admission.admit({A: 14}, {A: 15}, now_ms=1_071) == {A: 14}, "the delay starts over"


def test_min_offsets_per_trigger_as_in_the_suite() -> None:
    """KafkaMicroBatchSourceSuite: minOffsetsPerTrigger: 15, or 5 seconds"""
    admission = Admission(min_offsets=15, max_delay_ms=5_000)
    start = {A: 0, B: 0, C: 0}
    there = {A: 10, B: 5, C: 1}
    assert admission.admit(start, there, now_ms=0) == there, "the first batch is always processed"
    assert admission.admit(there, {A: 10, B: 11, C: 1}, now_ms=100) == there
    more = {A: 21, B: 11, C: 2}
    assert admission.admit(there, more, now_ms=200) == more
    last = {A: 26, B: 16, C: 2}
    assert admission.admit(more, last, now_ms=300) == more
    assert admission.admit(more, last, now_ms=5_300) == last


def test_composite_read_limit_as_in_the_suite() -> None:
    """KafkaMicroBatchSourceSuite: compositeReadLimit: at least 15 or 5 seconds, at most 20"""
    admission = Admission(min_offsets=15, max_offsets=20, max_delay_ms=5_000)
    start, there = {A: 0, B: 0, C: 0}, {A: 21, B: 11, C: 1}
    first = admission.admit(start, there, now_ms=0)
    assert taken(start, first) == (12, 6, 1)
    assert admission.admit(first, there, now_ms=100) == first
    there = {A: 29, B: 21, C: 2}
    second = admission.admit(first, there, now_ms=200)
    assert taken(first, second) == (10, 9, 1)
    assert admission.admit(second, there, now_ms=300) == second
    assert admission.admit(second, there, now_ms=5_300) == there


def test_a_new_partition_counts_towards_the_least_number() -> None:
    admission = Admission(min_offsets=10, max_delay_ms=1_000)
    admission.admit({A: 0}, {A: 0}, now_ms=0)
    assert admission.admit({A: 0}, {A: 1, B: 9}, now_ms=1) == {A: 1, B: 9}


def test_least_and_most_work_together() -> None:
    admission = Admission(min_offsets=5, max_offsets=8, max_delay_ms=1_000)
    assert admission.admit({A: 0}, {A: 20}, now_ms=0) == {A: 8}
    assert admission.admit({A: 16}, {A: 20}, now_ms=10) == {A: 16}
    assert admission.admit({A: 16}, {A: 30}, now_ms=20) == {A: 24}


@pytest.mark.parametrize(
    ("total", "each", "expected"),
    [
        (None, None, {A: 100, B: 20}),
        (1_000, None, {A: 33, B: 6}),
        (None, 150, {A: 15, B: 1}),
        (1_000, 150, {A: 15, B: 1}),
        (1, None, {A: 1, B: 1}),
        (1 << 40, 1 << 40, {A: 100, B: 20}),
    ],
)
def test_bytes_are_shared_out_by_samples(
    total: int | None, each: int | None, expected: dict[TopicPartition, int]
) -> None:
    """There are 1000 bytes in the first partition, 2000 in the second."""
    sampled = {A: 10.0, B: 100.0}
    assert limit_bytes({A: 0, B: 0}, {A: 100, B: 20}, sampled, total=total, each=each) == expected


def test_few_records_are_taken_from_a_partition_without_a_sample() -> None:
    ends = {A: 100, B: 20, C: 5_000}
    assert limit_bytes(dict.fromkeys(ends, 0), ends, {A: 10.0}, total=100) == {A: 10, B: 20, C: UNSAMPLED_OFFSETS}
    assert limit_bytes(dict.fromkeys(ends, 0), ends, {A: 10.0, C: 0.0}, total=100)[C] == 5_000, "records without bytes"


def test_bytes_and_offsets_limit_together() -> None:
    admission = Admission(max_offsets=50, max_bytes=100)
    assert admission.limits_bytes
    assert admission.admit({A: 0}, {A: 1_000}, now_ms=0, bytes_per_offset={A: 1.0}) == {A: 50}
    assert admission.admit({A: 0}, {A: 1_000}, now_ms=0, bytes_per_offset={A: 10.0}) == {A: 10}
