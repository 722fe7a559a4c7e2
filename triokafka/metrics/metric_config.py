"""Configuration of statistics: the window, the quota, default tags, and the recording level. Times are seconds."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from enum import Enum, IntEnum
from typing import Final

from triokafka.metrics.quota import Quota

_ALL_EVENTS: Final = 2**63 - 1


class RecordingLevel(IntEnum):
    """How much is recorded (``metrics.recording.level``): a sensor records if the configured level is at least its."""

    INFO = 0
    DEBUG = 1
    TRACE = 2

    def records(self, sensor: RecordingLevel) -> bool:
        """Whether sensors of this level record when this is the configured level."""
        return sensor <= self


class TimeUnit(Enum):
    """The unit of time of a rate; the value is its length in seconds."""

    NANOSECONDS = 1e-9
    MICROSECONDS = 1e-6
    MILLISECONDS = 1e-3
    SECONDS = 1.0
    MINUTES = 60.0
    HOURS = 3600.0
    DAYS = 86400.0


class MetricConfig:
    """The configuration of a metric.

    Args:
        quota: the bound that a sensor checks after it recorded a value.
        samples: number of samples of the sliding window, at least 1 (``metrics.num.samples``).
        window_seconds: length of one sample (``metrics.sample.window.ms`` / 1000).
        event_window: number of events after which a sample is complete early.
        tags: tags of every metric name that the registry makes.
        level: see `RecordingLevel`.

    Raises:
        ValueError: fewer than one sample, or a window that is not longer than 0.
    """

    __slots__ = ("event_window", "level", "quota", "samples", "tags", "window_seconds")

    def __init__(
        self,
        *,
        quota: Quota | None = None,
        samples: int = 2,
        window_seconds: float = 30.0,
        event_window: int = _ALL_EVENTS,
        tags: Mapping[str, str] | None = None,
        level: RecordingLevel = RecordingLevel.INFO,
    ) -> None:
        if samples < 1:
            raise ValueError(f"samples: {samples} is below 1")
        if window_seconds <= 0:
            raise ValueError(f"window_seconds: {window_seconds} is not above 0")
        self.quota = quota
        self.samples = samples
        self.window_seconds = window_seconds
        self.event_window = event_window
        self.tags: Mapping[str, str] = dict(tags or {})
        self.level = level

    def with_quota(self, quota: Quota | None) -> MetricConfig:
        """Return the same configuration with another quota, for `Metric.config`."""
        config = copy(self)
        config.quota = quota
        return config
