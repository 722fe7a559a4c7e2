"""The error of a sensor whose metric is outside of its quota."""

from __future__ import annotations

from triokafka.errors import KafkaError
from triokafka.metrics.metric import Metric


class QuotaViolationError(KafkaError):
    """A recorded value brought a metric outside of its quota; the value is recorded nevertheless.

    ``metric`` is the metric, ``value`` its value now, ``bound`` the bound of its quota.
    """

    advice = "Delay the caller by the throttle time of its quota."

    def __init__(self, metric: Metric, value: float, bound: float) -> None:
        super().__init__(f"{metric.name!r}: value {value:g} is outside of the quota of {bound:g}")
        self.metric = metric
        self.value = value
        self.bound = bound
