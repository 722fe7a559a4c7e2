"""Positions of consumer groups: translate them, write checkpoints, and commit them for groups that can continue.

A checkpoint is MirrorMaker 2's record of a group's position in both clusters. Our translation is exact wherever the
offset map reaches, where MirrorMaker goes back to the last offset sync.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from triokafka.client.producer.producer import Producer
from triokafka.errors import GroupIdNotFoundError, KafkaError, UnknownMemberIdError
from triokafka.mirror.cluster_side import ClusterSide
from triokafka.mirror.flow_state import FlowState
from triokafka.mirror.naming import checkpoints_topic
from triokafka.mirror.options import MirrorOptions
from triokafka.protocol.stored.mirror_maker import CheckpointKey, CheckpointValue
from triokafka.structs import OffsetAndMetadata, TopicPartition

logger = logging.getLogger(__name__)

_WITHOUT_MEMBERS = ("Empty", "Dead")


class GroupCheckpoints:
    """Looks at the groups of the source now and then. ``written`` counts checkpoints, ``committed`` positions."""

    def __init__(
        self,
        options: MirrorOptions,
        state: FlowState,
        source: ClusterSide,
        target: ClusterSide,
        producer: Producer,
    ) -> None:
        self._options = options
        self._state = state
        self._source = source
        self._target = target
        self._producer = producer
        self._filter = options.group_filter()
        self._last: dict[tuple[str, TopicPartition], tuple[int, int]] = {}
        self.written = 0
        self.committed = 0

    def write_all(self) -> None:
        """Let the next `update` write all checkpoints, because the stored ones are lost."""
        self._last.clear()

    async def update(self) -> None:
        """Translate the committed positions of all groups, and write those that changed.

        Raises:
            KafkaError: a cluster did not answer, or refused.
        """
        groups = [
            group.group_id
            for group in await self._source.admin.list_groups()
            if group.is_consumer_group and self._filter.accepts(group.group_id)
        ]
        if not groups:
            return
        found = await self._source.admin.list_offsets_of_groups(groups)
        for group, error in found.errors.items():
            logger.warning("group %s: its positions are not translated: %s", group, error)
        for group in groups:
            if group not in found.errors:
                await self._update_group(group, found[group])

    async def _update_group(self, group: str, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        translated: dict[TopicPartition, OffsetAndMetadata] = {}
        deliveries = []
        for source, position in positions.items():
            flow = self._state.flows.get(source)
            offset = None if flow is None else flow.offsets.translate(position.offset)
            if flow is None or offset is None:
                continue
            translated[flow.remote] = OffsetAndMetadata(offset, position.metadata)
            if self._last.get((group, flow.remote)) == (position.offset, offset):
                continue
            key = CheckpointKey(group=group, topic=flow.remote.topic, partition=flow.remote.partition)
            value = CheckpointValue(upstream_offset=position.offset, offset=offset, metadata=position.metadata)
            topic = checkpoints_topic(self._options.source_alias)
            deliveries.append(
                await self._producer.send(topic, value.encode_versioned(0), key=key.encode(0), partition=0)
            )
            self._last[group, flow.remote] = position.offset, offset
        for delivery in deliveries:
            await delivery
        self.written += len(deliveries)
        if self._options.sync_group_offsets and translated:
            await self._commit(group, translated)

    async def _commit(self, group: str, translated: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit positions that are ahead of those in the target, unless the group has members there."""
        try:
            if (await self._target.admin.describe_groups([group]))[group].state not in _WITHOUT_MEMBERS:
                return
        except GroupIdNotFoundError:
            pass
        present = await self._target.admin.list_group_offsets(group)
        ahead = {
            partition: position
            for partition, position in translated.items()
            if partition not in present or present[partition].offset < position.offset
        }
        if not ahead:
            return
        try:
            await self._target.admin.alter_group_offsets(group, ahead)
        except UnknownMemberIdError:
            return  # a member joined meanwhile: the group is in use
        except KafkaError as error:
            if error.retriable:
                raise
            logger.warning("group %s: positions cannot be committed in the target: %s", group, error)
            return
        self.committed += len(ahead)
