"""The records of groups and offsets, in every version that Kafka has written."""

from __future__ import annotations

import struct
import uuid

import pytest

from tests.unit.coordinator.rig import PARTITION, TOPIC_IDS, Rig
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.group.records import CommittedOffset, GroupChange, OffsetChange, OffsetKey, decode, encode
from triokafka.coordinator.runtime.coordinator_log import CoordinatorRecord
from triokafka.coordinator.runtime.shard_context import ShardState
from triokafka.errors import UnsupportedVersionError
from triokafka.protocol.stored.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from triokafka.protocol.stored.offset_commit import OffsetCommitKey, OffsetCommitValue

KEY = OffsetKey("g", "orders", 3)
NOW = 1_700_000_000_000


def version_of(data: bytes | None) -> int:
    assert data is not None
    return int(struct.unpack_from(">h", data)[0])


@pytest.mark.parametrize("key_version", [0, 1])
@pytest.mark.parametrize("version", range(5))
def test_offset_records_of_every_version_are_readable(version: int, key_version: int) -> None:
    """Version 1 has an expiry time, version 3 added the leader epoch, version 4 the topic id."""
    value = OffsetCommitValue(offset=42, metadata="mine", commit_timestamp=NOW)
    if version == 1:
        value.expire_timestamp = NOW + 5
    if version >= 3:
        value.leader_epoch = 7
    if version >= 4:
        value.topic_id = TOPIC_IDS["orders"]
    key = OffsetCommitKey(group="g", topic="orders", partition=3).encode_versioned(key_version)
    change = decode(key, value.encode_versioned(version))
    assert change == OffsetChange(
        KEY,
        CommittedOffset(
            42,
            7 if version >= 3 else -1,
            "mine",
            NOW,
            NOW + 5 if version == 1 else -1,
            TOPIC_IDS["orders"] if version >= 4 else uuid.UUID(int=0),
        ),
    )
    assert decode(key, None) == OffsetChange(KEY, None)


@pytest.mark.parametrize("version", range(5))
def test_group_records_of_every_version_are_readable(version: int) -> None:
    """Version 1 added the rebalance timeout, version 2 the state timestamp, version 3 the instance id."""
    member = MemberMetadata(
        member_id="m", client_id="c", client_host="/h", session_timeout=7_000, subscription=b"s", assignment=b"a"
    )
    if version >= 1:
        member.rebalance_timeout = 9_000
    if version >= 3:
        member.group_instance_id = "i"
    value = GroupMetadataValue(protocol_type="consumer", generation=4, protocol="range", leader="m", members=[member])
    if version >= 2:
        value.current_state_timestamp = NOW
    rig = Rig()
    key = GroupMetadataKey(group="old").encode_versioned(2)
    rig.log.append(PARTITION, [CoordinatorRecord(key, value.encode_versioned(version))], 0)
    rig.restart()
    group = rig.group("old")
    (loaded,) = group.members.values()
    assert (group.state, group.generation, group.leader_id) == (GroupState.STABLE, 4, "m")
    assert group.state_timestamp_ms == (NOW if version >= 2 else -1)
    assert loaded.rebalance_timeout_ms == (9_000 if version >= 1 else 7_000)
    assert loaded.instance_id == ("i" if version >= 3 else None)
    assert (loaded.metadata("range"), loaded.assignment) == (b"s", b"a")


def test_written_record_versions_are_those_of_kafka_4() -> None:
    """Group metadata is version 3; an offset is version 4, or version 1 with an expiry time."""
    group = encode(GroupChange("g", GroupMetadataValue(protocol_type="consumer", generation=1, protocol="range")))
    assert (version_of(group.key), version_of(group.value)) == (2, 3)
    position = encode(OffsetChange(KEY, CommittedOffset(1, -1, "", NOW, topic_id=TOPIC_IDS["orders"])))
    assert (version_of(position.key), version_of(position.value)) == (1, 4)
    expiring = encode(OffsetChange(KEY, CommittedOffset(1, -1, "", NOW, NOW + 1, TOPIC_IDS["orders"])))
    assert version_of(expiring.value) == 1
    assert encode(GroupChange("g", None)).value is None
    assert encode(OffsetChange(KEY, None)).value is None


@pytest.mark.parametrize("key_version", [99, 32_767, -1])
def test_unknown_record_kinds_are_skipped(key_version: int) -> None:
    """A newer broker may have written them."""
    assert decode(struct.pack(">h", key_version) + b"whatever", b"x") is None


@pytest.mark.parametrize("kind", ["group", "position"])
@pytest.mark.parametrize("version", [5, 99, -1])
def test_shard_with_an_unknown_value_version_fails_to_load(kind: str, version: int) -> None:
    """Skipping it would lose its content when the key is written again."""
    if kind == "group":
        key = GroupMetadataKey(group="g").encode_versioned(2)
    else:
        key = OffsetCommitKey(group="g", topic="orders", partition=3).encode_versioned(1)
    record = CoordinatorRecord(key, struct.pack(">h", version) + bytes(40))
    with pytest.raises(UnsupportedVersionError):
        decode(*record)
    rig = Rig()
    rig.log.append(PARTITION, [record], 0)
    rig.restart()
    assert rig.runtime.state(PARTITION) is ShardState.FAILED


def test_loaded_group_with_a_missing_leader_elects_another() -> None:
    members = [MemberMetadata(member_id=name, session_timeout=7_000) for name in ("x", "y")]
    value = GroupMetadataValue(protocol_type="t", generation=1, protocol="p", leader="gone", members=members)
    rig = Rig()
    rig.log.append(PARTITION, [encode(GroupChange("g", value))], 0)
    rig.restart()
    assert rig.group().leader_id == "x"
