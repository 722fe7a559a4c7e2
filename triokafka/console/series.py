"""Values over time, for charts: bounded series, and rates of counters. Pure."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Mapping
from typing import Final, TypeVar

K = TypeVar("K", bound=Hashable)

LINES: Final = 8
"""Series that one chart shows: those with the highest newest values."""


class SeriesHistory:
    """Series by chart and name. The series that was longest without a value goes first.

    Times are milliseconds since 1970.
    """

    def __init__(self, most_series: int, most_samples: int) -> None:
        self._most_series = most_series
        self._most_samples = most_samples
        self._series: OrderedDict[tuple[str, str], deque[tuple[int, float]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._series)

    def add(self, chart: str, name: str, now_ms: int, value: float) -> None:
        """Append a value to a series."""
        key = chart, name
        known = self._series.setdefault(key, deque(maxlen=self._most_samples))
        known.append((now_ms, float(f"{value:.4g}")))
        self._series.move_to_end(key)
        if len(self._series) > self._most_series:
            self._series.popitem(last=False)

    def of(self, chart: str, since_ms: int = 0) -> dict[str, list[list[float]]]:
        """Return the points after ``since_ms`` of the chart's highest series, by name."""
        found = {name: points for (key, name), points in self._series.items() if key == chart}
        newest = max((points[-1][0] for points in found.values()), default=0)
        # A series without a new value (a quiet topic, a lost broker) comes after all that have one.
        order = sorted(found, key=lambda name: (found[name][-1][0] < newest, -found[name][-1][1], name))
        return {name: [list(point) for point in found[name] if point[0] > since_ms] for name in sorted(order[:LINES])}


class CounterRates:
    """Rates per second of counters, from two readings. A counter that shrank was reset, and has no rate yet."""

    def __init__(self) -> None:
        self._before: dict[Hashable, tuple[float, float]] = {}

    def next(self, now: float, values: Mapping[K, float]) -> dict[K, float]:
        """Return the rates since the reading before. Only the counters of this reading are remembered."""
        rates: dict[K, float] = {}
        for key, value in values.items():
            at, last = self._before.get(key, (now, value))
            if now > at and value >= last:
                rates[key] = (value - last) / (now - at)
        self._before = {key: (now, value) for key, value in values.items()}
        return rates
