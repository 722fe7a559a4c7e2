"""A measurable with its name, as compound statistics give it to their sensor."""

from __future__ import annotations

from triokafka.metrics.metric import Measurable
from triokafka.metrics.metric_name import MetricName
from triokafka.named_tuple import NamedTuple


class Named(NamedTuple):
    """A metric of a compound statistic."""

    name: MetricName
    measurable: Measurable
