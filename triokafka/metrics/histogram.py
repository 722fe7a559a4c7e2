"""Histograms of the sliding window: percentiles, and the frequencies of values. Values outside of the range count as
the nearest value within it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from triokafka.metrics.metric import NamedMeasurable
from triokafka.metrics.metric_config import MetricConfig
from triokafka.metrics.metric_name import MetricName
from triokafka.metrics.sliding_samples import SlidingSamples
from triokafka.named_tuple import NamedTuple

_NAN: Final = float("nan")
_BYTES_PER_BUCKET: Final = 4


class BinScheme(Protocol):
    """Which bin holds a value, and which value a bin stands for."""

    @property
    def bins(self) -> int:
        """Number of bins."""

    def to_bin(self, value: float) -> int:
        """Return the bin of a value."""

    def from_bin(self, number: int) -> float:
        """Return the value at the start of a bin."""


class ConstantBins:
    """Bins of equal width between two values."""

    __slots__ = ("_least", "_width", "bins")

    def __init__(self, bins: int, least: float, most: float) -> None:
        if bins < 2:
            raise ValueError(f"bins: {bins} is below 2")
        self.bins = bins
        self._least = least
        self._width = (most - least) / bins

    def to_bin(self, value: float) -> int:
        """Return the bin of a value, from the first to the last."""
        return min(max(int((value - self._least) / self._width), 0), self.bins - 1)

    def from_bin(self, number: int) -> float:
        """Return the value at the start of a bin."""
        return self._least + number * self._width


class LinearBins:
    """Bins from 0 whose width grows linearly, so that small values are more exact."""

    __slots__ = ("_most", "_scale", "bins")

    def __init__(self, bins: int, most: float) -> None:
        if bins < 2:
            raise ValueError(f"bins: {bins} is below 2")
        self.bins = bins
        self._most = most
        self._scale = most / (bins * (bins - 1) / 2)

    def to_bin(self, value: float) -> int:
        """Return the bin of a value, from the first to the last."""
        if value >= self._most:
            return self.bins - 1
        return max(int(-0.5 + 0.5 * math.sqrt(1.0 + 8.0 * max(value, 0.0) / self._scale)), 0)

    def from_bin(self, number: int) -> float:
        """Return the value at the start of a bin."""
        return self._scale * (number * (number + 1.0)) / 2.0


class Percentile(NamedTuple):
    """A percentile, between 0 and 100, and the name of its metric."""

    name: MetricName
    percentile: float


class Percentiles:
    """Percentiles of the values in the window; NaN without values.

    Args:
        bins: the bins that count the values. The width of a bin is the precision of its values.
        percentiles: the metrics.
    """

    __slots__ = ("_bins", "_percentiles", "_samples")

    def __init__(self, bins: BinScheme, percentiles: Sequence[Percentile]) -> None:
        self._bins = bins
        self._percentiles = tuple(percentiles)
        self._samples = SlidingSamples(bins.bins)

    @classmethod
    def within(
        cls, size_in_bytes: int, least: float, most: float, percentiles: Sequence[Percentile], *, linear: bool = False
    ) -> Percentiles:
        """Make percentiles from Kafka's arguments: 4 bytes for each bin; linear bins need ``least`` 0.

        Raises:
            ValueError: linear bins with another minimum, or fewer than two bins.
        """
        bins = size_in_bytes // _BYTES_PER_BUCKET
        if linear and least != 0.0:
            raise ValueError("Linear bins require the minimum 0")
        return cls(LinearBins(bins, most) if linear else ConstantBins(bins, least, most), percentiles)

    def update(self, config: MetricConfig, count: int, total: float, least: float, most: float, now: float) -> None:
        """Record one value, or several equal ones."""
        sample = self._samples.update(config, count, total, least, most, now)
        sample.bins[self._bins.to_bin(most)] += count

    def value(self, config: MetricConfig, now: float, quantile: float) -> float:
        """Return the value below which this share, 0 to 1, of the values in the window is."""
        samples = self._samples.live(config, now)
        count = sum(sample.count for sample in samples)
        if not count:
            return _NAN
        below = 0
        for number in range(self._bins.bins):
            below += sum(sample.bins[number] for sample in samples)
            if below / count > quantile:
                return self._bins.from_bin(number)
        return math.inf

    def named_measurables(self) -> Iterator[NamedMeasurable]:
        """Yield every percentile."""
        for name, percentile in self._percentiles:
            yield NamedMeasurable(name, _Quantile(self, percentile / 100.0))


class _Quantile:
    __slots__ = ("_of", "_quantile")

    def __init__(self, of: Percentiles, quantile: float) -> None:
        self._of = of
        self._quantile = quantile

    def measure(self, config: MetricConfig, now: float) -> float:
        return self._of.value(config, now, self._quantile)


class Frequency(NamedTuple):
    """The value in the middle of a bin, and the name of the metric of its share."""

    name: MetricName
    center: float


class Frequencies:
    """The share, 0 to 1, of the values in the window that fall in the bin around a value; 0 without values.

    Raises:
        ValueError: fewer bins than frequencies, or a center outside of the range.
    """

    __slots__ = ("_bins", "_frequencies", "_samples")

    def __init__(self, bins: int, least: float, most: float, frequencies: Sequence[Frequency]) -> None:
        if most < least:
            raise ValueError(f"the maximum {most} is below the minimum {least}")
        if bins < max(2, len(frequencies)):
            raise ValueError(f"bins: {bins} is below {max(2, len(frequencies))}")
        for name, center in frequencies:
            if not least <= center <= most:
                raise ValueError(f"{name!r}: the center {center} is not between {least} and {most}")
        half = (most - least) / (bins - 1) / 2.0
        self._bins = ConstantBins(bins, least - half, most + half)
        self._frequencies = tuple(frequencies)
        self._samples = SlidingSamples(bins)

    def update(self, config: MetricConfig, count: int, total: float, least: float, most: float, now: float) -> None:
        """Record one value, or several equal ones."""
        sample = self._samples.update(config, count, total, least, most, now)
        sample.bins[self._bins.to_bin(most)] += count

    def frequency(self, config: MetricConfig, now: float, center: float) -> float:
        """Return the share of the bin around a value."""
        samples = self._samples.live(config, now)
        count = sum(sample.count for sample in samples)
        if not count:
            return 0.0
        number = self._bins.to_bin(center)
        return sum(sample.bins[number] for sample in samples) / count

    def named_measurables(self) -> Iterator[NamedMeasurable]:
        """Yield every frequency."""
        for name, center in self._frequencies:
            yield NamedMeasurable(name, _Share(self, center))


class _Share:
    __slots__ = ("_center", "_of")

    def __init__(self, of: Frequencies, center: float) -> None:
        self._of = of
        self._center = center

    def measure(self, config: MetricConfig, now: float) -> float:
        return self._of.frequency(config, now, self._center)
