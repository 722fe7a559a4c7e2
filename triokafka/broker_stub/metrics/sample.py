"""The value of one metric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from triokafka.metrics.durations import Durations


class Sample(NamedTuple):
    """The value of a metric. ``statistic`` distinguishes values of one name: Count, Sum, Max, or a quantile."""

    name: str
    tags: Mapping[str, str]
    value: float
    statistic: str = ""


def duration_samples(name: str, durations: Durations, *, unit: float = 1_000) -> Iterator[Sample]:
    """Yield the samples of a histogram, in milliseconds, or in ``unit`` per second."""
    yield Sample(name, {}, durations.count, "Count")
    yield Sample(name, {}, durations.total * unit, "Sum")
    yield Sample(name, {}, durations.most * unit, "Max")
    for quantile, seconds in durations.quantiles().items():
        yield Sample(name, {}, seconds * unit, str(quantile))
