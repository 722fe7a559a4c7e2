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


def duration_samples(name: str, durations: Durations) -> Iterator[Sample]:
    """Yield the samples of a histogram, in milliseconds."""
    yield Sample(name, {}, durations.count, "Count")
    yield Sample(name, {}, durations.total * 1_000, "Sum")
    yield Sample(name, {}, durations.most * 1_000, "Max")
    for quantile, seconds in durations.quantiles().items():
        yield Sample(name, {}, seconds * 1_000, str(quantile))
