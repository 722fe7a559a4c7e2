"""Keys and values of ``__consumer_offsets``, byte for byte as Kafka writes them.

A key starts with two bytes for the kind of record; a value starts with two bytes for its version. The caller skips
unknown kinds.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from triokafka.coordinator.consumer_group import records as consumer_group_changes
from triokafka.coordinator.consumer_group.records import ConsumerGroupChange
from triokafka.coordinator.runtime.coordinator_log import CoordinatorRecord
from triokafka.coordinator.runtime.effects import Effects
from triokafka.errors import ProtocolError
from triokafka.protocol.stored.group_metadata import GroupMetadataKey, GroupMetadataValue
from triokafka.protocol.stored.offset_commit import OffsetCommitKey, OffsetCommitValue
from triokafka.protocol.stored.versioned import stored_version

_LEGACY_OFFSET: Final = 0
_OFFSET: Final = 1
_GROUP: Final = 2
NO_TOPIC_ID: Final = UUID(int=0)


class OffsetKey(NamedTuple):
    """The key of a committed offset; the fields of `OffsetCommitKey`."""

    group_id: str
    topic: str
    partition: int


class CommittedOffset(NamedTuple):
    """A committed offset; the fields of `OffsetCommitValue`. Timestamps are in milliseconds; -1 means none.

    ``expire_timestamp`` is set only when the client requested its own retention time (OffsetCommit up to v4).
    ``topic_id`` distinguishes a topic from a deleted topic of the same name; the zero id means unknown.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp: int
    expire_timestamp: int = -1
    topic_id: UUID = NO_TOPIC_ID


class OffsetChange(NamedTuple):
    """An offset commit, or (with value None) the removal of a committed offset."""

    key: OffsetKey
    value: CommittedOffset | None


class GroupChange(NamedTuple):
    """New metadata of a classic group, or (with value None) the removal of the group."""

    group_id: str
    value: GroupMetadataValue | None


Change: TypeAlias = OffsetChange | GroupChange | ConsumerGroupChange
"""A decoded record of ``__consumer_offsets``."""

GroupEffects: TypeAlias = Effects[Change]


def encode(change: Change) -> CoordinatorRecord:
    """Encode a change as a record, in the newest version that every broker can read.

    Group metadata uses version 3, the last without tagged fields. An offset commit uses version 3 too, version 4 with a
    topic id, and version 1 with an expiry time, which no other version carries.
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
    # ``.int``, because comparing UUIDs is a Python call.
    version = 1 if committed.expire_timestamp >= 0 else 4 if committed.topic_id.int else 3
    return CoordinatorRecord(key, OffsetCommitValue.encode_values(committed, version))


def decode(key: bytes | None, value: bytes | None) -> Change | None:
    """Decode a record; returns None for an unknown kind, which a newer broker may have written.

    Raises:
        ProtocolError: the record is of a known kind and malformed.
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
