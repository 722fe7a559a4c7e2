"""Unclean elections of partitions without a leader, as soon as their topics allow them.

``unclean.leader.election.enable`` may be set after the last in-sync replica is gone, so a task checks for such
partitions (``unclean.leader.election.interval.ms``).
"""

from __future__ import annotations

import logging
from typing import Final

import trio

from triokafka.broker_stub.controller.controller_state import ControllerState
from triokafka.broker_stub.controller.elections import Election
from triokafka.broker_stub.controller.event_queue import EventQueue
from triokafka.broker_stub.controller.outcome import Outcome
from triokafka.broker_stub.controller.partition_change import TopicConfig, partition_change
from triokafka.broker_stub.metadata.image import NO_LEADER, MetadataImage
from triokafka.errors import KafkaError
from triokafka.protocol.stored.cluster_metadata import PartitionChangeRecord

logger = logging.getLogger(__name__)

_MAX_ELECTIONS_AT_ONCE: Final = 1_000


class OfflinePartitionElections:
    """Checks every ``interval`` seconds for partitions without a leader whose topics allow unclean elections."""

    def __init__(self, state: ControllerState, queue: EventQueue, *, interval: float) -> None:
        self._state = state
        self._queue = queue
        self._interval = interval

    async def run(self) -> None:
        """Elect leaders until cancelled. A failure is logged."""
        while True:
            await trio.sleep(self._interval)
            if all(partition.leader != NO_LEADER for _, partition in self._state.committed.partitions()):
                continue
            try:
                elected = await self._queue.submit("ElectUncleanLeaders", self._elect)
            except KafkaError as error:
                logger.error(
                    "Controller: electing leaders for offline partitions failed; the next check tries again: %s", error
                )
            else:
                if elected:
                    logger.warning(
                        "Controller: unclean elections: in %d partitions a replica leads that may lack records",
                        elected,
                    )

    def _elect(self, image: MetadataImage) -> Outcome[int]:
        records = unclean_leaders(image, self._state.configuration.effective.topic_config_of(image))
        return Outcome(records, len(records))


def unclean_leaders(image: MetadataImage, topic_config: TopicConfig) -> list[PartitionChangeRecord]:
    """Return the changes that give partitions without a leader any live one, up to `_MAX_ELECTIONS_AT_ONCE`.

    Only partitions of topics with ``unclean.leader.election.enable``, which may have been set since they lost theirs.
    """
    records: list[PartitionChangeRecord] = []
    for topic, partition in image.partitions():
        if partition.leader == NO_LEADER and topic_config(topic.name).unclean_leader_election_enable:
            record = partition_change(image, topic, partition, topic_config, election=Election.UNCLEAN)
            if record is not None:
                records.append(record)
                if len(records) == _MAX_ELECTIONS_AT_ONCE:
                    break
    return records
