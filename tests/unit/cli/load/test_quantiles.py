"""Quantiles by nearest rank, and the summary of latencies."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triokafka.cli.load.quantiles import quantile, summarize


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1), (0.1, 1), (0.5, 5), (0.51, 6), (0.9, 9), (0.99, 10), (1.0, 10)]
)
def test_quantile_is_the_value_at_the_nearest_rank(share: float, expected: int) -> None:
    assert quantile(range(1, 11), share) == expected


@given(values=st.lists(st.floats(0, 1e6), min_size=1).map(sorted), share=st.floats(0, 1))
def test_quantile_is_the_smallest_value_that_enough_do_not_exceed(values: list[float], share: float) -> None:
    found = quantile(values, share)
    assert sum(value <= found for value in values) >= math.floor(share * len(values))
    assert found == values[0] or sum(value < found for value in values) <= share * len(values)


def test_nothing_measured_is_no_number() -> None:
    assert math.isnan(quantile([], 0.5))
    summary = summarize([])
    assert summary.measured == 0
    assert math.isnan(summary.p99)


def test_summary_is_in_milliseconds_and_needs_no_order() -> None:
    summary = summarize([0.003, 0.001, 0.002])
    assert summary.measured == 3
    assert summary.average == pytest.approx(2.0)
    assert (summary.p50, summary.p99, summary.worst) == pytest.approx((2.0, 3.0, 3.0))
