"""Cycles, in which records would be copied without end: a flow in the other direction, or within one cluster.

A name that `Naming.remote_topic` made shows a cycle itself (`Naming.is_cycle`).
"""

from __future__ import annotations

from typing import Final

from triokafka.errors import ProtocolError
from triokafka.mirror.cluster_side import ClusterSide
from triokafka.mirror.naming import HEARTBEATS, offset_syncs_topic
from triokafka.protocol.stored.mirror_maker import HeartbeatKey, HeartbeatValue, OffsetSyncKey

_FRESH_MS: Final = 60_000
"""A flow whose last heartbeat is older than this does not run. MirrorMaker writes one every second."""


async def topics_of_active_flow(source: ClusterSide, target: ClusterSide, now_ms: int) -> set[str]:
    """Return the topics that a running flow from our target to our source copies; empty if none runs.

    Such a flow writes heartbeats to our source, and offset syncs to either cluster. ``now_ms`` is the wall clock.
    """
    beats = await source.read_compacted_topic(HEARTBEATS)
    reverse = HeartbeatKey(source_cluster_alias=target.alias, target_cluster_alias=source.alias)
    beat = beats.get(reverse.encode(0))
    try:
        if beat is None or now_ms - HeartbeatValue.decode_versioned(beat).timestamp > _FRESH_MS:
            return set()
        syncs = await target.read_compacted_topic(offset_syncs_topic(source.alias))
        syncs |= await source.read_compacted_topic(offset_syncs_topic(target.alias))
        return {OffsetSyncKey.decode(key, 0).topic for key in syncs}
    except ProtocolError:
        return set()


async def are_one_cluster(source: ClusterSide, target: ClusterSide) -> bool:
    """Whether both sides have the same cluster id, and a broker's address or a topic's id in common.

    The cluster id alone does not tell: containers of one image often share it. Addresses alone do not tell either,
    because a broker has one for each listener.

    Raises:
        KafkaError: one of the clusters did not answer.
    """
    first, second = await target.admin.describe_cluster(), await source.admin.describe_cluster()
    if first.cluster_id != second.cluster_id:
        return False
    if {(node.host, node.port) for node in first.nodes} & {(node.host, node.port) for node in second.nodes}:
        return True
    # Brokers before 2.8 have no topic ids.
    ids = {topic.topic_id for topic in await source.admin.list_topics() if topic.topic_id.int}
    return any(topic.topic_id in ids for topic in await target.admin.list_topics())
