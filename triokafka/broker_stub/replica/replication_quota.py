"""Limits of the traffic between replicas, for reassignments: ``leader.replication.throttled.rate`` and its siblings.

Pure. The limit is for the listed replicas of all partitions together, per broker and per side. Replicas in sync are
never held back, or a throttle would remove them from the in-sync set.

A rate over a sliding window is Kafka's measure, and alone it lets replicas catch up in jumps: a whole window's bytes at
once, then nothing until the window has forgotten them. A token bucket with the bytes of one window spreads them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from triokafka.broker_stub.metadata.image import ConfigResource, MetadataImage
from triokafka.broker_stub.quota_rate import QuotaRate
from triokafka.metrics.metric_config import MetricConfig
from triokafka.metrics.quota import Quota
from triokafka.metrics.token_bucket import TokenBucket
from triokafka.protocol.configuration import ConfigResourceType
from triokafka.structs import TopicPartition

_NO_LIMIT: Final = float("inf")


class ReplicationQuota:
    """The limit of one side, ``leader`` or ``follower``.

    ``rate`` is the limit in bytes per second.

    Args:
        side: ``leader`` or ``follower``.
        node_id: the id of this broker.
        windows: number of windows over which the rate is measured (``replication.quota.window.num``).
        window_seconds: length of a window (``replication.quota.window.size.seconds``); also the longest burst.
    """

    def __init__(self, side: str, node_id: int, *, windows: int = 11, window_seconds: float = 1) -> None:
        self.rate = _NO_LIMIT
        self._side = side
        self._node_id = node_id
        self._listed: dict[str, str] = {}
        self._topics: dict[str, frozenset[int] | None] = {}  # None: all partitions
        self._measured = QuotaRate(MetricConfig(samples=windows, window_seconds=window_seconds))
        self._bucket = TokenBucket()
        self._burst = MetricConfig(samples=1, window_seconds=window_seconds)

    def configure(self, image: MetadataImage, changed: Iterable[ConfigResource] | None = None) -> None:
        """Take the rate and the throttled replicas from the metadata.

        ``changed`` has the resources whose configuration may differ from that of the last call; by default, all have
        one now, and none had before.
        """
        name = f"{self._side}.replication.throttled."
        before, self.rate = self.rate, _NO_LIMIT
        for broker_id in (self._node_id, None):
            text = image.broker_configs(broker_id).get(f"{name}rate", "")
            if text.isdecimal():
                self.rate = float(text)
                break
        if self.rate != before:
            self._bucket = TokenBucket()
            self._burst = self._burst.with_quota(Quota.upper_bound(self.rate) if self.rate < _NO_LIMIT else None)
        for kind, topic in image.configs if changed is None else changed:
            if kind == ConfigResourceType.TOPIC:
                self._topics.pop(topic, None)
                text = image.topic_configs(topic).get(f"{name}replicas", "")
                if text.strip():
                    self._listed[topic] = text
                else:
                    self._listed.pop(topic, None)

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit for any partition."""
        return self.rate < _NO_LIMIT and bool(self._listed)

    def applies_to(self, topic_partition: TopicPartition) -> bool:
        """Whether this broker's replica is among the throttled ones."""
        topic = topic_partition.topic
        if not self.is_limited or topic not in self._listed:
            return False
        if topic not in self._topics:  # the list may be long: it is read at its first use
            self._topics[topic] = _partitions(self._listed[topic], self._node_id)
        partitions = self._topics[topic]
        return partitions is None or topic_partition.partition in partitions

    def record(self, topic_partition: TopicPartition, size: int, now: float) -> None:
        """Count the bytes of a partition, if the limit applies to it."""
        if size and self.applies_to(topic_partition):
            self._measured.record(size, now)
            self._bucket.update(self._burst, 1, size, size, size, now)

    def is_exceeded(self, now: float) -> bool:
        """Whether throttled replicas have to wait."""
        if self.rate == _NO_LIMIT:
            return False
        return self._bucket.measure(self._burst, now) < 0 or self._measured.measure(now) > self.rate

    def holds_back(self, topic_partition: TopicPartition, now: float) -> bool:
        """Whether a replica that is not in sync has to wait."""
        return self.is_limited and self.applies_to(topic_partition) and self.is_exceeded(now)


def _partitions(text: str, node_id: int) -> frozenset[int] | None:
    """Return the partitions of which this broker's replica is throttled; None for all."""
    found = set()
    for item in text.split(","):
        partition, _, broker_id = item.strip().partition(":")
        if partition == "*":
            return None
        if partition.isdigit() and broker_id in ("", str(node_id)):
            found.add(int(partition))
    return frozenset(found)
