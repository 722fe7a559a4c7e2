"""The samples of a sliding window: a ring of intervals that begin with a recorded value.

Kafka's rules: a sample is complete when its age reaches the window or its events reach the event window. The ring has
one sample more than configured, because a sample that began before the monitored time may overlap it: a sample counts
until its last event, not its start, is ``samples`` windows ago.
"""

from __future__ import annotations

from typing import Final

from triokafka.metrics.metric_config import MetricConfig

_INFINITY: Final = float("inf")


class WindowSample:
    """The values of one interval: number, sum, minimum and maximum, and, for histograms, counts by bin."""

    __slots__ = ("bins", "count", "last_event_at", "least", "most", "started_at", "total")

    def __init__(self, now: float, bins: int) -> None:
        self.bins = [0] * bins
        self.reset(now)

    def reset(self, now: float) -> None:
        """Forget all values and begin now."""
        self.count = 0
        self.total = 0.0
        self.least = _INFINITY
        self.most = -_INFINITY
        self.started_at = self.last_event_at = now
        if self.bins:
            self.bins = [0] * len(self.bins)


class SlidingSamples:
    """The samples of one statistic. ``bins`` is the number of bins of a histogram; 0 without one."""

    __slots__ = ("_bins", "_current", "_samples")

    def __init__(self, bins: int = 0) -> None:
        self._samples: list[WindowSample] = []
        self._current = 0
        self._bins = bins

    def update(
        self, config: MetricConfig, count: int, total: float, least: float, most: float, now: float
    ) -> WindowSample:
        """Record values in the current sample, or in the next one if that is complete, and return the sample."""
        samples = self._samples
        if not samples:
            samples.append(WindowSample(now, self._bins))
        sample = samples[self._current]
        if now - sample.started_at >= config.window_seconds or sample.count >= config.event_window:
            sample = self._advance(config, now)
        sample.count += count
        sample.total += total
        if least < sample.least:
            sample.least = least
        if most > sample.most:
            sample.most = most
        sample.last_event_at = now
        return sample

    def live(self, config: MetricConfig, now: float) -> list[WindowSample]:
        """Reset the samples whose last event is too old, and return all samples."""
        oldest = config.samples * config.window_seconds
        for sample in self._samples:
            if now - sample.last_event_at >= oldest:
                sample.reset(now)
        return self._samples

    def count(self, config: MetricConfig, now: float) -> int:
        """Return the number of values in the window."""
        return sum(sample.count for sample in self.live(config, now))

    def total(self, config: MetricConfig, now: float) -> float:
        """Return the sum of the values in the window."""
        return sum(sample.total for sample in self.live(config, now))

    def elapsed(self, config: MetricConfig, now: float) -> float:
        """Return the seconds since the start of the oldest sample in the window."""
        return now - min((sample.started_at for sample in self.live(config, now)), default=now)

    def _advance(self, config: MetricConfig, now: float) -> WindowSample:
        self._current = (self._current + 1) % (config.samples + 1)
        if self._current >= len(self._samples):
            self._current = len(self._samples)
            self._samples.append(WindowSample(now, self._bins))
        else:
            self._samples[self._current].reset(now)
        return self._samples[self._current]
