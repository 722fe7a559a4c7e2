"""Replicas that lost the end of their logs and are elected all the same: another eligible replica leads first.

A log may be cut while the broker is down, or damaged before it was flushed. The controller does not know, and elects
the replica if it is in sync or an eligible leader (KIP-966). The other replicas would drop the records that it lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from triokafka.broker_stub.metadata.image import MetadataImage, PartitionImage
from triokafka.broker_stub.replica.active_peers import any_active
from triokafka.broker_stub.replica.partition import Partition
from triokafka.structs import TopicPartition

logger = logging.getLogger(__name__)

_PATIENCE_SECONDS: Final = 30.0
"""How long this broker waits for a broker that may lead instead. All replicas may have lost their ends, as after a
power cut: then the partition must not stay without a leader."""


class LostEnds:
    """Decides whether this broker leads partitions of whose logs it lost the end.

    It does not lead such a partition at first. As soon as the broker of another eligible replica is up, this one gives
    up its leaderships; the controller then elects the other one, and this broker fetches what it lost. It leads after
    all if it is elected again, if no other replica is eligible, or if none comes up in time.

    Args:
        image: returns the metadata that this broker has applied.
        resign: see `BrokerLifecycle.resign`.
        now: returns the seconds on the world's clock.
    """

    def __init__(
        self,
        node_id: int,
        image: Callable[[], MetadataImage],
        resign: Callable[[], bool],
        now: Callable[[], float],
    ) -> None:
        self._node_id = node_id
        self._image = image
        self._resign = resign
        self._now = now
        self._missing: dict[TopicPartition, int] = {}
        self._waiting: dict[TopicPartition, float] = {}
        self._decided: set[TopicPartition] = set()

    def log_is_missing(self, topic_partition: TopicPartition, high_watermark: int) -> None:
        """Note that a partition begins with an empty log, although its records below this offset were committed."""
        self._missing[topic_partition] = high_watermark

    def yields(self, partition: Partition, state: PartitionImage) -> bool:
        """Whether this broker, which the controller elected, does not lead the partition for now."""
        topic_partition, end = partition.topic_partition, partition.log.log_end_offset
        lost_end = max(partition.log.lost_end, self._missing.get(topic_partition, -1))
        if end >= lost_end or len(state.replicas) < 2 or topic_partition in self._decided:
            return False
        until, others = self._waiting.get(topic_partition), self._others(state)
        if until is not None and others and self._now() < until:
            return True
        if until is None and others:
            logger.warning(
                "%s: the log of this replica ends at offset %d, but had records up to offset %d. Broker %d does not "
                "lead it: the replicas on the brokers %s are eligible, too, and may have the rest.",
                topic_partition, end, lost_end, self._node_id, others,
            )  # fmt: skip
            self._waiting[topic_partition] = self._now() + _PATIENCE_SECONDS
            return True
        logger.error(
            "%s: broker %d leads it although its log lost the offsets %d to %d: no other eligible replica is up. The "
            "other replicas drop these records.",
            topic_partition, self._node_id, end, lost_end - 1,
        )  # fmt: skip
        self._decide(topic_partition)
        return False

    def _others(self, state: PartitionImage) -> list[int]:
        return sorted({*state.isr, *state.eligible_leader_replicas} - {self._node_id})

    def _decide(self, topic_partition: TopicPartition) -> None:
        self._waiting.pop(topic_partition, None)
        self._decided.add(topic_partition)

    @property
    def waits(self) -> bool:
        """Whether `yields` is true for a partition."""
        return bool(self._waiting)

    def review(self, lead: Callable[[TopicPartition], None]) -> None:
        """Give up leaderships if another broker may lead. Call it repeatedly while `waits`.

        Args:
            lead: gives a partition its role again, after the wait is over.
        """
        image, now = self._image(), self._now()
        replaceable = False
        for topic_partition, until in list(self._waiting.items()):
            state = image.partition(*topic_partition)
            if state is None or state.leader != self._node_id:
                self._decide(topic_partition)  # it leads if it is elected again: nobody else was there
                continue
            others = self._others(state)
            if now >= until or not others:
                lead(topic_partition)
            else:
                replaceable |= any_active(image, others)
        if replaceable:
            self._resign()
