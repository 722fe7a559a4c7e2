"""Metrics with Kafka's semantics: sensors, statistics of sliding windows, quotas, reporters. Pure: no tasks, no clock.

Times are seconds on the clock of the registry's owner. One thread uses a registry.
"""

from triokafka.metrics.grouped import grouped
from triokafka.metrics.histogram import ConstantBins, Frequencies, Frequency, LinearBins, Percentile, Percentiles
from triokafka.metrics.metric import CompoundStat, Gauge, Measurable, Metric, Stat
from triokafka.metrics.metric_config import MetricConfig, RecordingLevel, TimeUnit
from triokafka.metrics.metric_name import MetricName
from triokafka.metrics.quota import Quota
from triokafka.metrics.quota_violation import QuotaViolationError
from triokafka.metrics.rates import Meter, Rate, SimpleRate
from triokafka.metrics.registry import Metrics
from triokafka.metrics.reporter import MetricsReporter
from triokafka.metrics.sensor import Sensor
from triokafka.metrics.stats import (
    Avg,
    CumulativeCount,
    CumulativeSum,
    Max,
    Min,
    Value,
    WindowedCount,
    WindowedSum,
)
from triokafka.metrics.token_bucket import TokenBucket

__all__ = [
    "Avg",
    "CompoundStat",
    "ConstantBins",
    "CumulativeCount",
    "CumulativeSum",
    "Frequencies",
    "Frequency",
    "Gauge",
    "LinearBins",
    "Max",
    "Measurable",
    "Meter",
    "Metric",
    "MetricConfig",
    "MetricName",
    "Metrics",
    "MetricsReporter",
    "Min",
    "Percentile",
    "Percentiles",
    "Quota",
    "QuotaViolationError",
    "Rate",
    "RecordingLevel",
    "Sensor",
    "SimpleRate",
    "Stat",
    "TimeUnit",
    "TokenBucket",
    "Value",
    "WindowedCount",
    "WindowedSum",
    "grouped",
]
