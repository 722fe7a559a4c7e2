"""Tables: everything is shown, except where a terminal is too narrow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from triokafka.cli.groups.table import Column, table

COLUMNS = [Column("GROUP"), Column("CONSUMER-ID", may_be_cut=True), Column("HOST", may_be_cut=True), Column("LAG")]
ROW = ("billing", "console-consumer-32e5ca6a-95b8-4a38-9c52", "/127.0.0.1", None)


def test_columns_fit_their_values_and_empty_cells_are_hyphens() -> None:
    assert table(COLUMNS, [ROW]) == [
        "GROUP    CONSUMER-ID                               HOST        LAG",
        "billing  console-consumer-32e5ca6a-95b8-4a38-9c52  /127.0.0.1  -",
    ]


def test_widest_column_that_may_be_cut_gives_way_to_a_narrow_terminal() -> None:
    assert table(COLUMNS, [ROW], width=50) == [
        "GROUP    CONSUMER-ID               HOST        LAG",
        "billing  console-consumer-32e5ca…  /127.0.0.1  -",
    ]


def test_identifying_columns_are_never_cut() -> None:
    lines = table(COLUMNS, [("a-group-with-a-long-name", *ROW[1:])], width=54)
    assert lines == [
        "GROUP                    CONSUMER-      HOST       LAG",
        "                         ID",
        "a-group-with-a-long-name console-consu… /127.0.0.1 -",
    ]


def test_row_of_a_table_that_does_not_fit_at_all_is_a_block_of_lines() -> None:
    assert table(COLUMNS, [ROW, ROW], width=25) == [
        "GROUP       billing",
        "CONSUMER-ID console-consumer-32e5ca6a-95b8-4a38-9c52",
        "HOST        /127.0.0.1",
        "LAG         -",
        "",
        "GROUP       billing",
        "CONSUMER-ID console-consumer-32e5ca6a-95b8-4a38-9c52",
        "HOST        /127.0.0.1",
        "LAG         -",
    ]


@given(st.lists(st.tuples(*[st.text("abc", max_size=60)] * 4), min_size=1), st.integers(40, 200))
def test_lines_fit_or_one_value_alone_is_too_long(rows: list[tuple[str, ...]], width: int) -> None:
    lines = table(COLUMNS, rows, width)
    longest = len("CONSUMER-ID ") + max(len(text) for row in rows for text in row)
    assert max(map(len, lines)) <= max(width, longest)
