"""Stored and embedded messages: their prefixes and frames, byte by byte."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from triokafka.errors import ProtocolError, UnsupportedVersionError
from triokafka.protocol.consumer_protocol import (
    AssignedTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedTopic,
)
from triokafka.protocol.stored import cluster_metadata
from triokafka.protocol.stored.control_records import (
    ControlRecordType,
    EndTxnMarker,
    LeaderChangeMessage,
    decode_control_key,
    encode_control_key,
)
from triokafka.protocol.stored.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from triokafka.protocol.stored.metadata_record import MetadataRecord, decode_record
from triokafka.protocol.stored.offset_commit import OffsetCommitKey, OffsetCommitValue
from triokafka.protocol.stored.versioned import stored_version


def test_keys_start_with_the_kind_of_record() -> None:
    offset_key = OffsetCommitKey(group="g", topic="t", partition=3).encode_versioned(1)
    group_key = GroupMetadataKey(group="g").encode_versioned(2)
    assert offset_key == b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x03"
    assert group_key == b"\x00\x02\x00\x01g"
    assert (stored_version(offset_key), stored_version(group_key)) == (1, 2)
    assert OffsetCommitKey.decode_versioned(offset_key) == OffsetCommitKey(group="g", topic="t", partition=3)
    assert GroupMetadataKey.decode_versioned(group_key) == GroupMetadataKey(group="g")


def test_a_key_of_another_kind_is_refused() -> None:
    with pytest.raises(UnsupportedVersionError):
        OffsetCommitKey.decode_versioned(GroupMetadataKey(group="g").encode_versioned(2))
    with pytest.raises(ProtocolError):
        OffsetCommitKey.decode_versioned(b"\0")


@pytest.mark.parametrize("version", range(5))
def test_committed_position_keeps_what_its_version_can_hold(version: int) -> None:
    value = OffsetCommitValue(offset=9, leader_epoch=4, metadata="m", commit_timestamp=7, topic_id=UUID(int=8))
    read = OffsetCommitValue.decode_versioned(value.encode_versioned(version))
    assert (read.offset, read.metadata, read.commit_timestamp) == (9, "m", 7)
    assert read.leader_epoch == (4 if version >= 3 else -1)
    assert read.topic_id.int == (8 if version >= 4 else 0)


@pytest.mark.parametrize("version", range(5))
def test_group_metadata_keeps_its_members_in_every_version(version: int) -> None:
    member = MemberMetadata(member_id="m", client_id="c", client_host="/h", session_timeout=10, subscription=b"s")
    value = GroupMetadataValue(protocol_type="consumer", generation=2, protocol="range", leader="m", members=[member])
    assert GroupMetadataValue.decode_versioned(value.encode_versioned(version)).members == [member]


def test_metadata_records_stand_in_a_frame_of_three_varints() -> None:
    record = cluster_metadata.TopicRecord(name="orders", topic_id=UUID(int=1))
    data = record.encode_record(0)
    assert data == b"\x01\x02\x00\x07orders" + bytes(15) + b"\x01\x00"
    assert decode_record(data) == record


def test_every_metadata_record_type_has_its_own_number() -> None:
    declared = {
        cls.__name__: key for key, cls in MetadataRecord.types.items() if cls.__module__ == cluster_metadata.__name__
    }
    assert declared["RegisterBrokerRecord"] == 0
    assert declared["AbortTransactionRecord"] == 25
    assert len(declared) == 26


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", ProtocolError),
        (b"\x01\x02", ProtocolError),
        (b"\x01\x02\x00", ProtocolError),
        (b"\x01\x14\x00\x00!", ProtocolError),
        (b"\x01\xff\xff\xff\xff\xff\xff", ProtocolError),
        (b"\x02\x14\x00\x00", UnsupportedVersionError),
        (b"\x01\x7f\x00\x00", UnsupportedVersionError),
        (b"\x01\x14\x07\x00", UnsupportedVersionError),
    ],
)
def test_broken_metadata_records_are_refused(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        decode_record(data)


def test_partition_change_has_only_changed_fields() -> None:
    record = cluster_metadata.PartitionChangeRecord(partition_id=2, topic_id=UUID(int=1), leader=5, isr=[5, 6])
    data = record.encode_record(2)
    assert data.endswith(b"\x02\x00\x09\x03\x00\x00\x00\x05\x00\x00\x00\x06\x01\x04\x00\x00\x00\x05")
    assert decode_record(data) == record


POSITIONS = [
    (3, 9, metadata, 4, 5, topic_id) for metadata in ("", "m", "é" * 70) for topic_id in (UUID(int=0), UUID(int=7))
]


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("values", POSITIONS)
def test_positions_by_value_are_those_of_the_object(values: tuple[object, ...], version: int) -> None:
    names = [f.name for f in OffsetCommitValue.__fields__]
    fields: dict[str, Any] = dict(zip(names, values, strict=True))
    as_object = OffsetCommitValue(**fields)
    data = as_object.encode_versioned(version)
    assert OffsetCommitValue.encode_values(values, version) == data
    read = OffsetCommitValue.decode_versioned(data)
    assert OffsetCommitValue.decode_values(data) == tuple(getattr(read, name) for name in names)


def test_unknown_tags_are_dropped_by_decode_values() -> None:
    position = OffsetCommitValue(offset=3, metadata="", commit_timestamp=4, topic_id=UUID(int=7))
    position.unknown_tags = {9: b"new"}
    assert OffsetCommitValue.decode_values(position.encode_versioned(4)) == (3, -1, "", 4, -1, UUID(int=7))


@pytest.mark.parametrize("size", range(2, 43))
def test_positions_that_end_early_are_refused_by_value(size: int) -> None:
    data = OffsetCommitValue.encode_values((3, 9, "m", 4, -1, UUID(int=7)), 4)
    assert len(data) == 43
    with pytest.raises(ProtocolError):
        OffsetCommitValue.decode_values(data[:size])


def test_values_that_do_not_fit_their_field_are_named() -> None:
    with pytest.raises(ProtocolError, match="partition"):
        OffsetCommitKey.encode_values(("g", "t", 1 << 40), 1)


def test_subscription_of_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    subscription = ConsumerProtocolSubscription(
        topics=["t"], owned_partitions=[OwnedTopic(topic="t", partitions=[0, 1])], generation_id=4, rack_id="r"
    )
    data = subscription.encode_versioned()
    assert data[:2] == b"\x00\x03"
    assert ConsumerProtocolSubscription.decode_versioned(data) == subscription
    assert ConsumerProtocolSubscription.decode_versioned(b"\x00\x09" + data[2:] + b"new fields") == subscription


def test_subscription_of_version_0_has_topics_and_user_data_only() -> None:
    data = bytes.fromhex("0000 00000001 0001 74 00000002 7578".replace(" ", ""))
    assert ConsumerProtocolSubscription.decode_versioned(data) == ConsumerProtocolSubscription(
        topics=["t"], user_data=b"ux"
    )


def test_assignment_round_trips_in_every_version() -> None:
    assignment = ConsumerProtocolAssignment(assigned_partitions=[AssignedTopic(topic="t", partitions=[2])])
    for version in range(4):
        assert ConsumerProtocolAssignment.decode_versioned(assignment.encode_versioned(version)) == assignment


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff", b"\x00\x00\x7f\xff\xff\xff", b"\x00\x01\x00\x00\x00\x00"])
def test_broken_subscriptions_are_protocol_errors(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        ConsumerProtocolSubscription.decode_versioned(data)


def test_control_records_have_a_key_of_version_and_type() -> None:
    assert encode_control_key(ControlRecordType.COMMIT) == b"\0\0\0\1"
    assert decode_control_key(b"\0\0\0\2") == ControlRecordType.LEADER_CHANGE
    assert decode_control_key(b"\0\1\0\x63more") == 99
    for broken in (b"\0\0\0", b"\xff\xff\0\0"):
        with pytest.raises(ProtocolError):
            decode_control_key(broken)


def test_control_record_values_are_kafkas() -> None:
    assert EndTxnMarker(coordinator_epoch=3).encode_versioned(0) == b"\0\0\0\0\0\3"
    leader = LeaderChangeMessage(leader_id=1)
    assert leader.encode(0) == b"\0\0\0\0\0\1\1\1\0"
