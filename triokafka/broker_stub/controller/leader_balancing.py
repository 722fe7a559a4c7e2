"""Moving leadership back to preferred replicas (``auto.leader.rebalance.enable``)."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

import trio

from triokafka.broker_stub.controller.controller_state import ControllerState
from triokafka.broker_stub.controller.elections import Election
from triokafka.broker_stub.controller.event_queue import EventQueue
from triokafka.broker_stub.controller.outcome import Outcome
from triokafka.broker_stub.controller.partition_change import TopicConfig, partition_change
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.errors import KafkaError
from triokafka.protocol.stored.cluster_metadata import PartitionChangeRecord

logger = logging.getLogger(__name__)

MAX_ELECTIONS_AT_ONCE: Final = 1_000
"""The most leaders that one run of the automatic balancing moves; the next run continues."""


class LeaderBalancing:
    """Checks every ``interval`` seconds for partitions whose preferred replica could lead but does not.

    Args:
        percentage: brokers of which at most this share of the partitions that prefer them have another leader are left
            alone (``leader.imbalance.per.broker.percentage``).
    """

    def __init__(self, state: ControllerState, queue: EventQueue, *, interval: float, percentage: int) -> None:
        self._state = state
        self._queue = queue
        self._interval = interval
        self._percentage = percentage

    async def run(self) -> None:
        """Elect preferred leaders until cancelled. A failure is logged."""
        while True:
            await trio.sleep(self._interval)
            if not imbalanced_brokers(self._state.committed, self._percentage):
                continue
            try:
                moved = await self._queue.submit("BalanceLeaders", self._elect)
            except KafkaError as error:
                logger.error("Controller: electing preferred leaders failed; the next check tries again: %s", error)
            else:
                if moved:
                    logger.info("Controller: the preferred replica leads again in %d partitions", moved)

    def _elect(self, image: MetadataImage) -> Outcome[int]:
        topic_config = self._state.configuration.effective.topic_config_of(image)
        records = preferred_leaders(image, topic_config, percentage=self._percentage)
        return Outcome(records, len(records))


def imbalanced_brokers(image: MetadataImage, percentage: int) -> frozenset[int]:
    """Return the brokers of which more than ``percentage`` of the partitions that prefer them have another leader."""
    preferring, displaced = Counter[int](), Counter[int]()
    for _, partition in image.partitions():
        preferring[partition.preferred_leader] += 1
        displaced[partition.preferred_leader] += partition.leader != partition.preferred_leader
    return frozenset(
        broker_id for broker_id, count in displaced.items() if 100 * count > percentage * preferring[broker_id]
    )


def preferred_leaders(
    image: MetadataImage, topic_config: TopicConfig, *, percentage: int = 0
) -> list[PartitionChangeRecord]:
    """Return the changes that make preferred replicas leaders again, up to `MAX_ELECTIONS_AT_ONCE`.

    Brokers of which at most ``percentage`` of their preferred partitions have another leader are balanced.
    """
    records: list[PartitionChangeRecord] = []
    brokers = imbalanced_brokers(image, percentage)
    for topic, partition in image.partitions():
        if partition.leader != partition.preferred_leader and partition.preferred_leader in brokers:
            record = partition_change(image, topic, partition, topic_config, election=Election.PREFERRED)
            if record is not None and record.leader == partition.preferred_leader:
                records.append(record)
                if len(records) == MAX_ELECTIONS_AT_ONCE:
                    break
    return records
