"""Failover of consumer groups to the target: the checkpoints of a flow, or of MirrorMaker 2, read and committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from triokafka.errors import KafkaError
from triokafka.mirror.cluster_side import ClusterSide
from triokafka.mirror.naming import checkpoints_topic
from triokafka.mirror.stored_positions import MirrorPositionsError
from triokafka.protocol.stored.mirror_maker import CheckpointKey, CheckpointValue
from triokafka.structs import OffsetAndMetadata, TopicPartition
from triokafka.world import World
from triokafka.world.system import RealWorld


class GroupCheckpoint(NamedTuple):
    """A translated position. ``topic`` is the topic in the target."""

    group: str
    topic: str
    partition: int
    upstream_offset: int
    offset: int
    metadata: str


async def read_checkpoints(
    target: Mapping[str, Any], source_alias: str, *, world: World | None = None
) -> list[GroupCheckpoint]:
    """Return the checkpoints of all groups of a source, by group, topic and partition.

    Raises:
        MirrorPositionsError: a checkpoint is damaged, or of a newer version.
        KafkaError: the cluster did not answer, or refused.
    """
    async with ClusterSide("target", target, world if world is not None else RealWorld()) as side:
        records = await side.read_compacted_topic(checkpoints_topic(source_alias))
    found = []
    for key, value in records.items():
        try:
            name, position = CheckpointKey.decode(key, 0), CheckpointValue.decode_versioned(value)
        except KafkaError as error:
            raise MirrorPositionsError(f"the checkpoint under key {key!r} cannot be read: {error}") from error
        found.append(
            GroupCheckpoint(
                name.group, name.topic, name.partition, position.upstream_offset, position.offset, position.metadata
            )
        )
    return sorted(found)


async def apply_checkpoints(
    target: Mapping[str, Any], checkpoints: Iterable[GroupCheckpoint], *, world: World | None = None
) -> dict[str, str]:
    """Commit positions in the target; return the groups that it refused, with the reason.

    Raises:
        KafkaError: the cluster did not answer.
    """
    positions: dict[str, dict[TopicPartition, OffsetAndMetadata]] = {}
    for one in checkpoints:
        of_group = positions.setdefault(one.group, {})
        of_group[TopicPartition(one.topic, one.partition)] = OffsetAndMetadata(one.offset, one.metadata)
    failed = {}
    async with ClusterSide("target", target, world if world is not None else RealWorld()) as side:
        for group, offsets in positions.items():
            try:
                await side.admin.alter_group_offsets(group, offsets)
            except KafkaError as error:
                if error.retriable:
                    raise
                failed[group] = str(error)
            except ExceptionGroup as errors:
                failed[group] = str(errors.exceptions[0])
    return failed
