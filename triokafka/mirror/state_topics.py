"""The topics with the state of a flow: created, kept compacted, and written again if records are lost."""

from __future__ import annotations

import logging
from uuid import UUID

from triokafka.client.admin.types import ConfigResource
from triokafka.errors import KafkaError
from triokafka.mirror.cluster_side import ClusterSide
from triokafka.mirror.naming import HEARTBEATS, checkpoints_topic, offset_syncs_topic, positions_topic
from triokafka.mirror.options import MirrorOptions
from triokafka.structs import TopicPartition

logger = logging.getLogger(__name__)


class StateTopics:
    """The state topics of one flow: ``positions``, ``checkpoints``, ``syncs``, and the heartbeats."""

    def __init__(self, options: MirrorOptions, source: ClusterSide, target: ClusterSide) -> None:
        self.positions = positions_topic(options.source_alias)
        self.checkpoints = checkpoints_topic(options.source_alias)
        self.syncs = offset_syncs_topic(
            options.target_alias if options.offset_syncs == "source" else options.source_alias
        )
        self._replication_factor = options.replication_factor
        self._target = target
        self._wanted = [(target, self.positions)]
        if options.checkpoints:
            self._wanted.append((target, self.checkpoints))
        self._read_again = [topic for _, topic in self._wanted]
        if options.heartbeats:
            self._wanted.append((target, HEARTBEATS))
        if options.offset_syncs != "none":
            self._wanted.append((source if options.offset_syncs == "source" else target, self.syncs))
        self._seen: dict[str, tuple[UUID | None, int]] = {}

    async def create(self) -> list[str]:
        """Create those that do not exist, and return their names.

        Raises:
            KafkaError: a cluster did not answer, or refused.
        """
        return [
            topic for side, topic in self._wanted if await side.ensure_compacted_topic(topic, self._replication_factor)
        ]

    async def keep_compacted(self) -> None:
        """Take the deletion of old records from topics of the target that are read again: they hold the only copy.

        A broker that creates topics on first use makes such topics.
        """
        resources = [ConfigResource.topic(topic) for topic in self._read_again]
        found = await self._target.admin.describe_configs(resources)
        for resource in resources:
            if resource in found.errors:
                continue  # not permitted, or deleted just now
            policy = found[resource]["cleanup.policy"].value
            if policy is None or "delete" not in policy:
                continue
            try:
                await self._target.admin.incremental_alter_configs({resource: {"cleanup.policy": "compact"}})
            except KafkaError as error:
                if error.retriable:
                    raise
                outcome = f"set cleanup.policy=compact; this process cannot: {error}"
            else:
                outcome = "now it has cleanup.policy=compact"
            logger.warning("topic %s had cleanup.policy=%s, which deletes progress: %s", resource.name, policy, outcome)

    async def look_for_losses(self) -> list[str]:
        """Return topics that are read again and are no longer those of the last look, or have lost their beginning."""
        described = await self._target.admin.describe_topics(self._read_again)
        starts = await self._target.admin.list_offsets(
            {TopicPartition(topic, 0): "earliest" for topic in self._read_again}
        )
        lost = []
        for topic in self._read_again:
            partition = TopicPartition(topic, 0)
            if topic in described.errors or partition in starts.errors:
                continue  # deleted just now, or not permitted: the next look shows it
            topic_id, start = described[topic].topic_id or None, starts[partition].offset
            known_id, known_start = self._seen.get(topic, (topic_id, start))
            self._seen[topic] = topic_id, start
            if known_id != topic_id:
                logger.warning("topic %s was deleted and created again: this process writes its state again", topic)
                lost.append(topic)
            elif start > known_start:
                logger.warning(
                    "topic %s: records before offset %d were deleted: this process writes its state again",
                    topic, start,
                )  # fmt: skip
                lost.append(topic)
        return lost
