"""The interface of reporters, which the registry tells about added, changed and removed metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from triokafka.metrics.metric import Metric


class MetricsReporter(Protocol):
    """Something that shows metrics elsewhere. No method may wait. Read a value with `Metric.value`."""

    def init(self, metrics: Sequence[Metric]) -> None:
        """Receive the metrics that exist when the reporter is added."""

    def metric_change(self, metric: Metric) -> None:
        """A metric was added, or its configuration was replaced."""

    def metric_removal(self, metric: Metric) -> None:
        """A metric was removed."""

    def close(self) -> None:
        """The registry is closed, or the reporter was removed."""
