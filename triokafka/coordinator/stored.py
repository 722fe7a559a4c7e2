"""Keys and values of ``__consumer_offsets``, exactly as Kafka writes them.

A key starts with two bytes that say what kind of record it is; a value starts with two bytes of its version. Kinds that
are not known are for the caller to skip.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from triokafka.coordinator.consumer_group import changes as consumer_group_changes
from triokafka.coordinator.consumer_group.changes import ConsumerGroupChange
from triokafka.coordinator.turn import CoordinatorRecord, Turn
from triokafka.errors import ProtocolError
from triokafka.protocol.stored.group_metadata import GroupMetadataKey, GroupMetadataValue
from triokafka.protocol.stored.offset_commit import OffsetCommitKey, OffsetCommitValue
from triokafka.protocol.stored.versioned import stored_version

_LEGACY_OFFSET: Final = 0
_OFFSET: Final = 1
_GROUP: Final = 2
NO_TOPIC_ID: Final = UUID(int=0)


class OffsetKey(NamedTuple):
    """Whose position on which partition; the fields of `OffsetCommitKey`."""

    group_id: str
    topic: str
    partition: int


class CommittedOffset(NamedTuple):
    """A committed position; the fields of `OffsetCommitValue`. Timestamps are milliseconds; -1 for none.

    ``expire_timestamp`` is only there when the committing client asked for a retention time of its own (up to version 4
    of OffsetCommit). ``topic_id`` tells a topic from an older one of the same name; the zero id when unknown.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = -1
    topic_id: UUID = NO_TOPIC_ID


class OffsetChange(NamedTuple):
    """A position was committed, or (None) removed."""

    key: OffsetKey
    value: CommittedOffset | None


class GroupChange(NamedTuple):
    """A classic group's metadata is now this, or (None) the group is gone."""

    group_id: str
    value: GroupMetadataValue | None


Change: TypeAlias = OffsetChange | GroupChange | ConsumerGroupChange
"""What a record of ``__consumer_offsets`` says, decoded."""

GroupTurn: TypeAlias = Turn[Change]


def encode(change: Change) -> CoordinatorRecord:
    """The record of a change, in the newest version that brokers of all ages can read.

    A group's metadata is version 3, the last without tagged fields. A commit is version 3 too, but 4 when it has a
    topic id, and 1 when it has an expiry time, which no other version carries.
    """
    if not isinstance(change, (OffsetChange, GroupChange)):
        return consumer_group_changes.encode(change)
    if isinstance(change, GroupChange):
        key = GroupMetadataKey(group=change.group_id).encode_versioned(_GROUP)
        return CoordinatorRecord(key, None if change.value is None else change.value.encode_versioned(3))
    key = OffsetCommitKey.encode_values(change.key, _OFFSET)
    committed = change.value
    if committed is None:
        return CoordinatorRecord(key, None)
    # Its number, because comparing ids is a Python call.
    version = 1 if committed.expire_timestamp >= 0 else 4 if committed.topic_id.int else 3
    return CoordinatorRecord(key, OffsetCommitValue.encode_values(committed, version))


def decode(key: bytes | None, value: bytes | None) -> Change | None:
    """What a record says; None for kinds that this broker does not know, which a newer one may have written.

    Raises:
        ProtocolError: the record is of a known kind and cannot be read.
    """
    if key is None:
        raise ProtocolError("a record without a key", path="OffsetCommitKey", offset=0)
    kind = stored_version(key, "OffsetCommitKey")
    if kind in (_LEGACY_OFFSET, _OFFSET):
        return OffsetChange(
            OffsetKey._make(OffsetCommitKey.decode_values(key)),
            None if value is None else CommittedOffset._make(OffsetCommitValue.decode_values(value)),
        )
    if kind == _GROUP:
        group_id = GroupMetadataKey.decode_versioned(key).group
        return GroupChange(group_id, None if value is None else GroupMetadataValue.decode_versioned(value))
    if consumer_group_changes.is_of_consumer_group(key):
        return consumer_group_changes.decode(key, value)
    return None
