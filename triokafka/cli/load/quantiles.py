"""Quantiles of latencies, and the median for comparisons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class LatencySummary(NamedTuple):
    """Latencies in milliseconds; NaN if nothing was measured."""

    measured: int
    average: float
    p50: float
    p95: float
    p99: float
    p999: float
    worst: float


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the nearest-rank quantile: ``share`` of the ascending values do not exceed it. NaN without values."""
    if not ordered:
        return math.nan
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def summarize(seconds: Sequence[float]) -> LatencySummary:
    """Summarize latencies, given in seconds in any order, in milliseconds."""
    ordered = sorted(seconds)
    if not ordered:
        none = math.nan
        return LatencySummary(0, none, none, none, none, none, none)
    average = math.fsum(ordered) / len(ordered) * 1e3
    p50, p95, p99, p999 = (quantile(ordered, share) * 1e3 for share in (0.5, 0.95, 0.99, 0.999))
    return LatencySummary(len(ordered), average, p50, p95, p99, p999, ordered[-1] * 1e3)
