"""Resets of offsets in words and numbers: the accepted forms, and the errors about others."""

from __future__ import annotations

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triokafka.cli.groups.reset_arguments import (
    Scope,
    chosen_way,
    parse_datetime,
    parse_duration,
    parse_plan,
    parse_scope,
    plan_text,
    within_limits,
)
from triokafka.structs import TopicPartition

ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)


@pytest.mark.parametrize(
    ("text", "scope"),
    [
        ("orders", Scope("orders", None)),
        ("orders:0", Scope("orders", (0,))),
        ("orders:2, 0,2", Scope("orders", (2, 0))),
    ],
)
def test_topic_is_taken_with_or_without_partitions(text: str, scope: Scope) -> None:
    assert parse_scope(text) == scope


@pytest.mark.parametrize(
    "text", ["orders:", ":1", "orders:a", "orders:-1", "orders:1,", "orders:1:2", "orders:²", "orders:2147483648"]
)
def test_partitions_that_are_no_numbers_are_refused(text: str) -> None:
    with pytest.raises(click.UsageError, match="--topic takes a topic"):
        parse_scope(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:01.500", 1500),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T01:00:00.000+0100", 0),
        ("1970-01-01T01:00:00.000+01:00", 0),
        ("2026-11-21T10:00:00", 1795255200000),
    ],
)
def test_time_without_a_zone_is_utc(text: str, ms: int) -> None:
    assert parse_datetime(text) == ms


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-21", "2026-13-01T00:00:00.000", "T", "2026-11-21 10:00"])
def test_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError, match="--to-datetime takes"):
        parse_datetime(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("P1D", 86_400_000),
        ("PT1H30M", 5_400_000),
        ("P2DT0.25S", 172_800_250),
        ("pt5s", 5_000),
        ("PT-1M", -60_000),
        ("-PT1M", -60_000),
    ],
)
def test_duration_is_read_as_java_reads_it(text: str, ms: int) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1D", "P1W", "PT1D", "P1H", "P1.5D", "P999999999999D"])
def test_duration_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(click.UsageError, match="--by-duration"):
        parse_duration(text)


def test_plan_of_one_group_may_leave_its_name_out() -> None:
    assert parse_plan("orders,0,5\n\norders, 1 ,7\n", "f", ["g"]) == {"g": {ZERO: 5, ONE: 7}}
    assert parse_plan('g,"orders",0,5', "f", ["g"]) == {"g": {ZERO: 5}}
    assert parse_plan("g,orders,0,5\nh,orders,1,6", "f", None) == {"g": {ZERO: 5}, "h": {ONE: 6}}


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_of_a_plan_end_as_on_any_system(end: str) -> None:
    assert parse_plan(f"orders,0,5{end}orders,1,7{end}", "f", ["g"]) == {"g": {ZERO: 5, ONE: 7}}


@pytest.mark.parametrize(
    ("text", "groups", "words"),
    [
        ("orders,0,5", ["g", "h"], "f, line 1: a plan for several groups needs lines of"),
        ("orders,0,5", None, "needs lines of"),
        ("g,orders,0,5\norders,0", ["g"], "f, line 2: expected topic,partition,offset"),
        ("orders,zero,5", ["g"], "must be numbers"),
        ("orders,0,-5", ["g"], "must be numbers"),
        ("orders,2147483648,5", ["g"], "must be numbers"),
        ("orders,0,9223372036854775808", ["g"], "must be numbers"),
        pytest.param(
            f"orders,0,{'1' * 5_000}", ["g"], "f, line 1: partition and offset must be numbers", id="no int()"
        ),
        pytest.param(f"orders,0,1\norders,{'1' * 200_000},5", ["g"], "f, line 2: invalid CSV", id="csv's limit"),
        ("\n", ["g"], "f has no offsets"),
    ],
)
def test_invalid_line_of_a_plan_is_reported_with_its_number(text: str, groups: list[str] | None, words: str) -> None:
    with pytest.raises(click.UsageError, match=words):
        parse_plan(text, "f", groups)


_NAMES = st.text(st.characters(codec="ascii", categories=["L", "Nd"], include_characters="._-"), min_size=1, max_size=8)
_OFFSETS = st.dictionaries(
    st.builds(TopicPartition, _NAMES, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1), min_size=1, max_size=4
)
_GROUPS = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=8)


@given(st.dictionaries(_GROUPS, _OFFSETS, max_size=3))
def test_plan_that_was_exported_is_read_back(plan: dict[str, dict[TopicPartition, int]]) -> None:
    """Whatever the names of the groups are."""
    if plan:
        assert parse_plan(plan_text(plan, with_groups=True), "f", None) == plan
    if len(plan) == 1:
        assert parse_plan(plan_text(plan, with_groups=False), "f", list(plan)) == plan


def test_offsets_outside_a_log_are_clamped_and_reported() -> None:
    two = TopicPartition("orders", 2)
    taken, sentences = within_limits(
        {ZERO: 3, ONE: 99, two: 10}, dict.fromkeys([ZERO, ONE, two], 5), dict.fromkeys([ZERO, ONE, two], 10)
    )
    assert taken == {ZERO: 5, ONE: 10, two: 10}
    assert sentences == [
        "3 is before the beginning of orders-0: using 5.",
        "99 is after the end of orders-1: using 10.",
    ]


def test_exactly_one_way_must_be_given() -> None:
    ways = {"to_earliest": False, "to_offset": None, "shift_by": None}
    with pytest.raises(click.UsageError, match="one of --to-earliest, --to-offset, --shift-by"):
        chosen_way(ways)
    assert chosen_way({**ways, "to_offset": 0}) == "to_offset"
    with pytest.raises(click.UsageError, match="--to-earliest and --shift-by exclude each other"):
        chosen_way({**ways, "to_earliest": True, "shift_by": -1})
