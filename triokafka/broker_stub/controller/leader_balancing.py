"""Moving leadership back to preferred replicas (``auto.leader.rebalance.enable``)."""

from __future__ import annotations

import logging

import trio

from triokafka.broker_stub.controller import leader_changes
from triokafka.broker_stub.controller.controller_state import ControllerState
from triokafka.broker_stub.controller.event_queue import EventQueue
from triokafka.broker_stub.controller.outcome import Outcome
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.errors import KafkaError

logger = logging.getLogger(__name__)


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
            if not leader_changes.imbalanced_brokers(self._state.committed, self._percentage):
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
        records = leader_changes.preferred_leaders(image, topic_config, percentage=self._percentage)
        return Outcome(records, len(records))
