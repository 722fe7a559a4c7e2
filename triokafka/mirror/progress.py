"""Reads the state that a flow, or MirrorMaker 2, has stored: progress by partition, and translated positions of
groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from triokafka.errors import KafkaError
from triokafka.mirror.cluster_side import ClusterSide
from triokafka.mirror.naming import checkpoints_topic, positions_topic
from triokafka.mirror.positions import MirrorPositionsError, StoredPosition, decode_positions
from triokafka.protocol.stored.mirror_maker import CheckpointKey, CheckpointValue
from triokafka.structs import OffsetAndMetadata, TopicPartition
from triokafka.world import World
from triokafka.world.system import RealWorld


class PartitionProgress(NamedTuple):
    """How far a source partition is mirrored. ``end`` and ``lag`` are None if the partition is gone."""

    topic: str
    partition: int
    next_offset: int
    end: int | None
    lag: int | None


class GroupCheckpoint(NamedTuple):
    """A translated position. ``topic`` is the topic in the target."""

    group: str
    topic: str
    partition: int
    upstream_offset: int
    offset: int
    metadata: str


async def read_positions(
    target: Mapping[str, Any], source_alias: str, *, world: World | None = None
) -> dict[TopicPartition, StoredPosition]:
    """Return the positions that a flow has stored in the target. ``target`` has client options.

    Raises:
        MirrorPositionsError: the stored positions are damaged, or of a newer version.
        KafkaError: the cluster did not answer, or refused.
    """
    async with ClusterSide("target", target, world if world is not None else RealWorld()) as side:
        return decode_positions(await side.read_compacted_topic(positions_topic(source_alias)))


async def compare_with_source(
    source: Mapping[str, Any],
    source_alias: str,
    stored: Mapping[TopicPartition, StoredPosition],
    *,
    world: World | None = None,
) -> list[PartitionProgress]:
    """Return stored positions beside the ends of the source's logs, by topic and partition. Raises `KafkaError`."""
    async with ClusterSide(source_alias, source, world if world is not None else RealWorld()) as side:
        ends = await side.admin.list_offsets(dict.fromkeys(stored, "latest"))
    found = []
    for (topic, number), position in sorted(stored.items()):
        partition = TopicPartition(topic, number)
        end = None if partition in ends.errors else ends[partition].offset
        lag = None if end is None else max(0, end - position.next_offset)
        found.append(PartitionProgress(topic, number, position.next_offset, end, lag))
    return found


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
