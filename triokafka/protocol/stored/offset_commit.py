"""offset_commit."""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol.message import field
from triokafka.protocol.primitives import Int32, Int64, String, Uuid
from triokafka.protocol.stored.versioned import VersionedMessage


class OffsetCommitKey(VersionedMessage, versions="0-1"):
    """OffsetCommitKey."""

    group: str = field(String, doc="Group.")
    topic: str = field(String, doc="Topic.")
    partition: int = field(Int32, doc="Partition.")


class OffsetCommitValue(VersionedMessage, versions="0-4", flexible="4+"):
    """OffsetCommitValue."""

    offset: int = field(Int64, doc="Offset.")
    leader_epoch: int = field(Int32, versions="3+", ignorable=True, default=-1, doc="Leader epoch.")
    metadata: str = field(String, doc="Metadata.")
    commit_timestamp: int = field(Int64, doc="Commit timestamp.")
    expire_timestamp: int = field(Int64, versions="1", ignorable=True, default=-1, doc="Expire timestamp.")
    topic_id: UUID = field(Uuid, versions="4+", tag=0, tagged="4+", ignorable=True, doc="Topic id.")
