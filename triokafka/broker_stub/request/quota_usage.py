"""The usage of one client quota by the clients that share it. Pure.

A rate over a sliding window is Kafka's measure of a client quota (KIP-13), and alone it lets many clients exceed the
quota: each may send one more request when the rate is low enough again, and the window forgets the excess after
ten seconds. With N clients and requests of S bytes, the rate R at a quota of T over W seconds settles where
R (R - T) = N S T / W, which for ten producers of 16 KiB at 100 kB/s is 13 % too much. A token bucket forgets
nothing, so the throttle time is the longer one of both. For a single client they are equal.
"""

from __future__ import annotations

import math
from typing import Final

from triokafka.broker_stub.quota_rate import QuotaRate
from triokafka.metrics.metric_config import MetricConfig
from triokafka.metrics.quota import Quota
from triokafka.metrics.stats import Avg
from triokafka.metrics.token_bucket import TokenBucket

_LONGEST_DEBT: Final = 10
"""Limit of the debt, as a multiple of the burst: clients wait for what others used, but not for hours."""


class QuotaUsage:
    """Amounts that clients used of one quota.

    Args:
        config: the windows of the quota. All windows but one are the burst: the amount that an idle client may use at
            once, without a throttle time.
        limit: the quota, per second; it may change.
    """

    __slots__ = ("_bucket", "_burst", "_config", "_rate", "_throttled")

    def __init__(self, config: MetricConfig, limit: float) -> None:
        self._config = config
        self._rate = QuotaRate(config)
        self._throttled = Avg()
        self._bucket = TokenBucket()
        windows = max(config.samples - 1, 1)
        self._burst = MetricConfig(
            quota=Quota.upper_bound(limit), samples=windows, window_seconds=config.window_seconds
        )

    def set_limit(self, limit: float) -> None:
        """Change the quota. Keep the measured rate, and drop the debt under the old quota."""
        if self._limit != limit:
            self._burst = self._burst.with_quota(Quota.upper_bound(limit))
            self._bucket = TokenBucket()

    def record(self, amount: float, now: float) -> float:
        """Count an amount and return the throttle time in seconds; 0 below the quota."""
        limit = self._limit
        self._rate.record(amount, now)
        self._bucket.update(self._burst, 1, amount, amount, amount, now)
        tokens = self._bucket.measure(self._burst, now)
        lowest = -_LONGEST_DEBT * self._burst.samples * self._burst.window_seconds * limit
        if tokens < lowest:
            back = tokens - lowest
            self._bucket.update(self._burst, 1, back, back, back, now)
            tokens = lowest
        seconds = max(self._rate.throttle_seconds(limit, now), -tokens / limit, 0.0)
        if seconds:
            self._throttled.update(self._config, 1, seconds, seconds, seconds, now)
        return seconds

    def take_back(self, amount: float, now: float) -> None:
        """Undo a counted amount."""
        self._rate.record(-amount, now)
        self._bucket.update(self._burst, 1, -amount, -amount, -amount, now)

    def rate(self, now: float) -> float:
        """Return the rate per second."""
        return self._rate.measure(now)

    def throttle_time(self, now: float) -> float:
        """Return the average of the throttle times within the windows, in seconds; 0 without any."""
        average = self._throttled.measure(self._config, now)
        return 0.0 if math.isnan(average) else average

    def is_over(self, now: float) -> bool:
        """Whether the counted usage no longer matters."""
        full = self._burst.samples * self._burst.window_seconds * self._limit
        return self._rate.is_over(now) and self._bucket.measure(self._burst, now) >= full

    @property
    def _limit(self) -> float:
        assert self._burst.quota is not None
        return self._burst.quota.bound
