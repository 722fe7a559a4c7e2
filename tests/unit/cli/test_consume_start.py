"""Where ``triokafka consume`` starts."""

from __future__ import annotations

import click
import pytest

from triokafka.cli.consume_start import StartPosition, parse_position


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", StartPosition("earliest")),
        ("beginning", StartPosition("earliest")),
        ("end", StartPosition("latest")),
        ("17", StartPosition("", offset=17)),
        ("-10", StartPosition("", offset=-10)),
        ("s@1700000000000", StartPosition("", time_ms=1_700_000_000_000)),
    ],
)
def test_positions_are_those_of_kafkas_tool_and_of_kcat(text: str, position: StartPosition) -> None:
    assert parse_position(text) == position


@pytest.mark.parametrize("text", ["", "first", "1.5", "--1", "s@", "s@-1", "99999999999999999999"])
def test_other_texts_are_usage_errors(text: str) -> None:
    with pytest.raises(click.UsageError, match="--offset takes"):
        parse_position(text)
