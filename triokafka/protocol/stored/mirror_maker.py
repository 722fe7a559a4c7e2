"""Records that MirrorMaker 2 keeps about a flow from one cluster to another (KIP-382): offset syncs, checkpoints and
heartbeats. Their keys have no version in front."""

from __future__ import annotations

from triokafka.protocol.message import Message, field
from triokafka.protocol.primitives import Int32, Int64, String
from triokafka.protocol.stored.versioned import VersionedMessage


class OffsetSyncKey(Message, versions="0"):
    """The partition of the source cluster that an offset sync is about."""

    topic: str = field(String, doc="The topic's name in the source cluster.")
    partition: int = field(Int32, doc="The partition's number.")


class OffsetSyncValue(Message, versions="0"):
    """One record in both clusters. The topic is ``mm2-offset-syncs.TARGET.internal``."""

    upstream_offset: int = field(Int64, doc="The record's offset in the source cluster.")
    offset: int = field(Int64, doc="The record's offset in the target cluster.")


class CheckpointKey(Message, versions="0"):
    """The group and the partition of the target cluster that a checkpoint is about."""

    group: str = field(String, doc="The consumer group's id.")
    topic: str = field(String, doc="The topic's name in the target cluster.")
    partition: int = field(Int32, doc="The partition's number.")


class CheckpointValue(VersionedMessage, versions="0"):
    """A group's committed offset in both clusters. The topic is ``SOURCE.checkpoints.internal``."""

    upstream_offset: int = field(Int64, doc="The committed offset in the source cluster.")
    offset: int = field(Int64, doc="The offset in the target cluster from which the group may continue.")
    metadata: str = field(String, doc="The metadata that the group committed.")


class HeartbeatKey(Message, versions="0"):
    """The flow that a heartbeat is about."""

    source_cluster_alias: str = field(String, doc="The name of the source cluster.")
    target_cluster_alias: str = field(String, doc="The name of the target cluster.")


class HeartbeatValue(VersionedMessage, versions="0"):
    """A sign of life of a flow. The topic is ``heartbeats`` in the target cluster."""

    timestamp: int = field(Int64, doc="When the heartbeat was written, in milliseconds since 1970.")
