"""The metrics of a client, built when they are first read, because the metrics of most short-lived clients never are.

A consumer has a hundred metrics, which cost more to make than its first second of work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from triokafka.metrics import MetricName
from triokafka.network.traffic import Traffic


class BuiltMetrics(Protocol):
    """The metrics of one kind of client."""

    def values(self) -> dict[MetricName, float]:
        """Return the present value of every metric."""
        ...

    def drain(self) -> None:
        """Take the collected values in."""
        ...

    def close(self) -> None:
        """Take the last values in, and close the reporters."""
        ...


class OnDemandMetrics:
    """Builds metrics when a caller reads them, or when collected values are due (`Traffic.drain_to`)."""

    def __init__(self, build: Callable[[], BuiltMetrics], traffic: Traffic, *, quiet_seconds: float) -> None:
        self._build = build
        self._built: BuiltMetrics | None = None
        traffic.drain_to(lambda: self.built().drain(), quiet_seconds=quiet_seconds, has_readers=False)

    def built(self) -> BuiltMetrics:
        """Return the metrics."""
        if self._built is None:
            self._built = self._build()
        return self._built

    def values(self) -> dict[MetricName, float]:
        """Return the present value of every metric."""
        return self.built().values()

    def close(self) -> None:
        """Close the reporters, if the metrics were built."""
        if self._built is not None:
            self._built.close()
