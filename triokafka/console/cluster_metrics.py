"""Charts of data that any Kafka broker serves over Kafka's protocol: rates from end offsets, sizes, lag, and partitions
out of sync."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from triokafka.client.admin.types import TopicDescription
from triokafka.console.limits import ConsoleLimits
from triokafka.console.series import CounterRates, SeriesHistory
from triokafka.structs import TopicPartition

TOTAL: Final = "all topics"
_MOST_TOPICS: Final = 10
_CHARTS: Final = (
    ("messages", "Messages in", "1/s"),
    ("lag", "Lag of groups", "records"),
    ("size", "Data on disk", "bytes"),
    ("problems", "Partitions with problems", ""),
)


class ClusterMetrics:
    """The history of one cluster as one user sees it. Pure."""

    def __init__(self, limits: ConsoleLimits) -> None:
        self._limits = limits
        self._history = SeriesHistory(limits.max_series, limits.max_samples)
        self._rates = CounterRates()
        self.left_out = 0
        """Partitions that are not sampled."""

    def to_sample(self, topics: Mapping[str, TopicDescription], seen: Iterable[str] = ()) -> list[TopicPartition]:
        """Return the partitions whose end offsets are wanted: of the topics in ``seen`` first, up to the limit."""
        order = dict.fromkeys([*(name for name in seen if name in topics), *topics])
        partitions = [
            TopicPartition(name, one.partition)
            for name in order
            for one in topics[name].partitions
            if one.leader is not None
        ]
        self.left_out = max(0, len(partitions) - self._limits.sampled_partitions)
        return partitions[: self._limits.sampled_partitions]

    def add_ends(self, now: float, now_ms: int, ends: Mapping[TopicPartition, int]) -> None:
        """Note end offsets. ``now`` is seconds on the monotonic clock."""
        by_topic: defaultdict[str, float] = defaultdict(float)
        rates = self._rates.next(now, ends)
        for partition, rate in rates.items():
            by_topic[partition.topic] += rate
        if not rates:
            return
        self._history.add("messages", TOTAL, now_ms, sum(by_topic.values()))
        for topic in sorted(by_topic, key=lambda name: -by_topic[name])[:_MOST_TOPICS]:
            if by_topic[topic]:
                self._history.add("messages", topic, now_ms, by_topic[topic])

    def add_lags(self, now_ms: int, lags: Mapping[str, int]) -> None:
        """Note the lag of groups, in records."""
        for group in sorted(lags, key=lambda name: -lags[name])[:_MOST_TOPICS]:
            self._history.add("lag", group, now_ms, lags[group])

    def add_sizes(self, now_ms: int, sizes: Mapping[int, int]) -> None:
        """Note the bytes in the data directories of brokers."""
        for node_id, size in sizes.items():
            self._history.add("size", f"broker {node_id}", now_ms, size)

    def add_partitions(self, now_ms: int, topics: Mapping[str, TopicDescription]) -> None:
        """Note how many partitions are under-replicated or have no leader."""
        partitions = [one for topic in topics.values() for one in topic.partitions]
        out_of_sync = sum(len(one.isr) < len(one.replicas) for one in partitions)
        self._history.add("problems", "under-replicated", now_ms, out_of_sync)
        self._history.add("problems", "without leader", now_ms, sum(one.leader is None for one in partitions))

    def charts(self, since_ms: int) -> list[dict[str, Any]]:
        """Return the charts with their points after a time; a chart without any line is left out."""
        made = [(*chart, self._history.of(chart[0], since_ms)) for chart in _CHARTS]
        return [
            {"key": key, "title": title, "unit": unit, "series": series} for key, title, unit, series in made if series
        ]
