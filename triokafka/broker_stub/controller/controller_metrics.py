"""The figures behind the metrics of a controller: elections counted from committed changes, and the times of the event
queue.

Every controller of the quorum counts, since each follows the metadata. Gauges are computed from the image on request.
"""

from __future__ import annotations

from collections import Counter

from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import NO_LEADER, MetadataImage
from triokafka.metrics.durations import Durations
from triokafka.named_tuple import NamedTuple


class PartitionCounts(NamedTuple):
    """Numbers of partitions: all, without a leader, and with a leader other than the preferred one."""

    total: int
    offline: int
    imbalanced: int


class ElectionCounts:
    """Counts the elections of leaders that were not in sync. Subscribes to the metadata publisher."""

    def __init__(self) -> None:
        self.unclean = 0
        self.from_eligible_replicas = 0

    def metadata_changed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Count the elections of a committed change."""
        for _, was, now in delta.changed_partitions():
            if was is None or now.leader in (NO_LEADER, was.leader) or now.leader in was.isr:
                continue
            if now.leader in was.eligible_leader_replicas:
                self.from_eligible_replicas += 1
            else:
                self.unclean += 1


class EventQueueMetrics:
    """The operations of an event queue: how long they waited, how long they ran, and how many ended by time."""

    def __init__(self) -> None:
        self.waited = Durations()
        self.processed = Durations()
        self.timed_out: Counter[str] = Counter()

    @property
    def timed_out_heartbeats(self) -> int:
        """Heartbeats of brokers that waited too long."""
        return self.timed_out["BrokerHeartbeat"]


def count_partitions(image: MetadataImage) -> PartitionCounts:
    """Count the partitions of an image."""
    total = offline = imbalanced = 0
    for _, partition in image.partitions():
        total += 1
        offline += partition.leader == NO_LEADER
        imbalanced += partition.leader != partition.preferred_leader
    return PartitionCounts(total, offline, imbalanced)
