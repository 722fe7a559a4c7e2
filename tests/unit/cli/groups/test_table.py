"""Tables: everything is shown, except where a terminal is too narrow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from triokafka.cli.groups.table import Column, table

COLUMNS = [Column("GROUP"), Column("CONSUMER-ID", may_be_cut=True), Column("HOST", may_be_cut=True), Column("LAG")]
ROW = ("billing", "console-consumer-32e5ca6a-95b8-4a38-9c52", "/127.0.0.1", None)


def test_columns_are_as_wide_as_what_is_in_them_and_nothing_is_a_hyphen() -> None:
    assert table(COLUMNS, [ROW]) == [
        "GROUP    CONSUMER-ID                               HOST        LAG",
        "billing  console-consumer-32e5ca6a-95b8-4a38-9c52  /127.0.0.1  -",
    ]


def test_widest_column_that_may_be_cut_gives_way_to_a_narrow_terminal() -> None:
    assert table(COLUMNS, [ROW], width=50) == [
        "GROUP    CONSUMER-ID               HOST        LAG",
        "billing  console-consumer-32e5ca…  /127.0.0.1  -",
    ]


def test_what_identifies_a_row_is_never_cut() -> None:
    lines = table(COLUMNS, [("a-group-with-a-long-name", *ROW[1:])], width=20)
    assert lines[1] == "a-group-with-a-long-name  console-con…  /127.0.0.1  -"


@given(st.lists(st.tuples(*[st.text("abc", max_size=60)] * 4)), st.integers(60, 200))
def test_lines_fit_or_only_uncuttable_columns_are_left(rows: list[tuple[str, ...]], width: int) -> None:
    lines = table(COLUMNS, rows, width)
    fixed = max([5, *(len(row[0]) for row in rows)]) + max([3, *(len(row[3]) for row in rows)])
    assert max(map(len, lines)) <= max(width, fixed + 2 * 12 + 3 * 2)
    assert len(lines) == len(rows) + 1
