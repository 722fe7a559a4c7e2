"""How far a flow has mirrored each partition, and its lag behind the source, from the positions that it has stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from triokafka.mirror.cluster_side import ClusterSide
from triokafka.mirror.naming import positions_topic
from triokafka.mirror.stored_positions import StoredPosition, decode_positions
from triokafka.structs import TopicPartition
from triokafka.world import World
from triokafka.world.system import RealWorld


class PartitionProgress(NamedTuple):
    """How far a source partition is mirrored. ``end`` and ``lag`` are None if the partition is gone."""

    topic: str
    partition: int
    next_offset: int
    end: int | None
    lag: int | None


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
