"""Records of ``__consumer_offsets`` that hold a committed position. Keys start with 0 or 1.

A null value is a tombstone: the position was deleted or expired.
"""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol import fields
from triokafka.protocol.message import field
from triokafka.protocol.primitives import Int32, Int64, String, Uuid
from triokafka.protocol.stored.versioned import VersionedMessage


class OffsetCommitKey(VersionedMessage, versions="0-1"):
    """The group and the partition of a position. Kafka writes version 1; version 0 is read for old logs."""

    group: str = field(String, doc="The group's id.")
    topic: str = field(String, doc="The topic's name.")
    partition: int = field(Int32, doc="The partition's number.")


class OffsetCommitValue(VersionedMessage, versions="0-4", flexible="4+"):
    """The position."""

    offset: int = field(Int64, doc="The next offset to read.")
    leader_epoch: int = fields.committed_leader_epoch(versions="3+")
    metadata: str = field(String, doc="The committer's own text.")
    commit_timestamp: int = field(Int64, doc="When it was committed, in milliseconds.")
    expire_timestamp: int = field(
        Int64,
        versions="1",
        ignorable=True,
        default=-1,
        doc="When it expires, in milliseconds; -1 for the broker's retention.",
    )
    topic_id: UUID = field(
        Uuid, versions="4+", tag=0, ignorable=True, doc="The topic's id; nil when it was committed by name."
    )
