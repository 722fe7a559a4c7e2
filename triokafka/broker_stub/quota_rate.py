"""The rate that all quotas of the broker measure: bytes, processor time, connections, replication. Pure."""

from __future__ import annotations

from triokafka.metrics.metric_config import MetricConfig
from triokafka.metrics.rates import Rate


class QuotaRate:
    """An amount per second over the last ``samples`` windows, the current one included: `Rate` with Kafka's rules.

    Args:
        config: the windows: ``quota.window.num`` and ``quota.window.size.seconds``, or their siblings of replication
            quotas. All rates of one kind may share it.
    """

    __slots__ = ("_config", "_rate", "_recorded_at")

    def __init__(self, config: MetricConfig) -> None:
        self._config = config
        self._rate = Rate()
        self._recorded_at: float | None = None

    def record(self, amount: float, now: float) -> None:
        """Add an amount; a negative amount undoes an earlier one. ``now`` is in seconds on the world's clock."""
        self._rate.update(self._config, 1, amount, amount, amount, now)
        self._recorded_at = now

    def measure(self, now: float) -> float:
        """Return the rate per second."""
        return self._rate.measure(self._config, now)

    def throttle_seconds(self, limit: float, now: float) -> float:
        """Return the seconds of silence after which the rate equals ``limit``; 0 if the rate is not above it.

        With rate O, limit T and covered time W, that is (O - T) / T * W. A limit of 0 is never reached: infinity.
        """
        observed = self._rate.measure(self._config, now)
        if observed <= limit:
            return 0.0
        return (observed - limit) / limit * self._rate.window_seconds(self._config, now) if limit > 0 else float("inf")

    def is_over(self, now: float) -> bool:
        """Whether all recorded amounts have expired."""
        config = self._config
        return self._recorded_at is None or now - self._recorded_at >= config.samples * config.window_seconds
