"""Values of metrics by group and name, as kafka-python's ``metrics()`` returns them."""

from __future__ import annotations

from collections.abc import Mapping

from triokafka.metrics.metric_name import MetricName


def grouped(values: Mapping[MetricName, float]) -> dict[str, dict[str, float]]:
    """Return ``{group: {name: value}}``; the group of a topic, for example, is ``producer-topic-metrics.orders``."""
    found: dict[str, dict[str, float]] = {}
    for name, value in values.items():
        found.setdefault(name.group_in_python(), {})[name.name] = value
    return found
