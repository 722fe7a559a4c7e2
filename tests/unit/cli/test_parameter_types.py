"""Values of options: accepted numbers, and their bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triokafka.cli.parameter_types import INT32, whole_number


@given(st.integers(0, 2 * INT32), st.integers(0, 3))
def test_number_within_the_limit_is_read(number: int, zeros: int) -> None:
    found = whole_number(f" {'0' * zeros}{number} ", INT32)
    assert found == (number if number <= INT32 else None)


@pytest.mark.parametrize(
    "text", ["", " ", "-1", "+1", "1.0", "1_000", "²", "٣", "x", pytest.param("1" * 5_000, id="long")]
)
def test_any_other_text_is_none(text: str) -> None:
    assert whole_number(text, INT32) is None
