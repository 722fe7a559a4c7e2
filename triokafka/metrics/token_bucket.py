"""A token bucket whose rate and size come from the quota of its metric (KIP-599)."""

from __future__ import annotations

import math

from triokafka.metrics.metric_config import MetricConfig, TimeUnit


class TokenBucket:
    """Tokens that recorded values use up and time brings back.

    Per unit of time ``quota.bound`` tokens come in, up to ``samples * window * bound``, so that a client that was quiet
    may use a burst. Values may bring the bucket below zero: a sensor reports a violation of the quota while it is. The
    bucket is full at first. Without a quota it is not used, and its value is infinite.
    """

    __slots__ = ("_tokens", "_unit", "_updated_at")

    def __init__(self, unit: TimeUnit = TimeUnit.SECONDS) -> None:
        self._unit = unit.value
        self._tokens = 0.0
        self._updated_at: float | None = None

    def update(self, config: MetricConfig, count: int, total: float, least: float, most: float, now: float) -> None:
        """Take tokens; a negative value returns them."""
        if config.quota is not None:
            burst = self._refill(config, config.quota.bound, now)
            self._tokens = min(burst, self._tokens - total)

    def measure(self, config: MetricConfig, now: float) -> float:
        """Return the number of tokens."""
        if config.quota is None:
            return math.inf
        self._refill(config, config.quota.bound, now)
        return self._tokens

    def _refill(self, config: MetricConfig, bound: float, now: float) -> float:
        burst = config.samples * (config.window_seconds / self._unit) * bound
        if self._updated_at is None:
            self._tokens = burst
        else:
            self._tokens = min(burst, self._tokens + bound * ((now - self._updated_at) / self._unit))
        self._updated_at = now
        return burst
