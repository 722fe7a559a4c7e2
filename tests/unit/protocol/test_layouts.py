"""The main messages of producers and consumers, field by field as in the protocol guide.

Written down by hand, and in the oldest version: newer ones are compared with other implementations.
"""

from __future__ import annotations

import struct

import pytest

from triokafka.protocol.api.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from triokafka.protocol.api.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from triokafka.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from triokafka.protocol.api.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from triokafka.protocol.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
from triokafka.protocol.api.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from triokafka.protocol.api.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from triokafka.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from triokafka.protocol.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from triokafka.protocol.api.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from triokafka.protocol.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from triokafka.protocol.consumer_protocol import AssignedTopic, ConsumerProtocolAssignment, ConsumerProtocolSubscription
from triokafka.protocol.message import Message


def h(number: int) -> bytes:
    """A 16-bit number."""
    return struct.pack(">h", number)


def i(number: int) -> bytes:
    """A 32-bit number."""
    return struct.pack(">i", number)


def q(number: int) -> bytes:
    """A 64-bit number."""
    return struct.pack(">q", number)


def s(text: str) -> bytes:
    """A string."""
    return h(len(text)) + text.encode()


def b(data: bytes) -> bytes:
    """Bytes, or records."""
    return i(len(data)) + data


NO_TEXT = h(-1)
NO_BYTES = i(-1)
GROUP_MEMBER = s("group") + i(3) + s("member")

LAYOUTS: dict[str, tuple[Message, int, bytes]] = {
    "ProduceRequest": (
        ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=2, records=b"batch")])],
        ),
        3,
        NO_TEXT + h(-1) + i(30_000) + i(1) + s("t") + i(1) + i(2) + b(b"batch"),
    ),
    "ProduceResponse": (
        ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name="t",
                    partition_responses=[
                        PartitionProduceResponse(index=2, error_code=6, base_offset=70, log_append_time_ms=-1)
                    ],
                )
            ],
            throttle_time_ms=9,
        ),
        3,
        i(1) + s("t") + i(1) + i(2) + h(6) + q(70) + q(-1) + i(9),
    ),
    "MetadataRequest": (MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 1, i(1) + s("t")),
    "MetadataRequest, all topics": (MetadataRequest(topics=None), 1, i(-1)),
    "MetadataResponse": (
        MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="a", port=9092, rack=None)],
            controller_id=1,
            topics=[
                MetadataResponseTopic(
                    error_code=5,
                    name="t",
                    is_internal=True,
                    partitions=[
                        MetadataResponsePartition(
                            error_code=9, partition_index=2, leader_id=1, replica_nodes=[1, 3], isr_nodes=[1]
                        )
                    ],
                )
            ],
        ),
        1,
        i(1) + i(1) + s("a") + i(9092) + NO_TEXT + i(1)
        + i(1) + h(5) + s("t") + b"\1" + i(1) + h(9) + i(2) + i(1) + i(2) + i(1) + i(3) + i(1) + i(1),
    ),
    "FindCoordinatorRequest": (FindCoordinatorRequest(key="group"), 0, s("group")),
    "FindCoordinatorResponse": (
        FindCoordinatorResponse(error_code=15, node_id=1, host="a", port=9092),
        0,
        h(15) + i(1) + s("a") + i(9092),
    ),
    "JoinGroupRequest": (
        JoinGroupRequest(
            group_id="group",
            session_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name="range", metadata=b"1"),
                JoinGroupRequestProtocol(name="roundrobin", metadata=b"2"),
            ],
        ),
        0,
        s("group") + i(10_000) + s("") + s("consumer") + i(2) + s("range") + b(b"1") + s("roundrobin") + b(b"2"),
    ),
    "JoinGroupResponse": (
        JoinGroupResponse(
            error_code=0,
            generation_id=3,
            protocol_name="range",
            leader="leader",
            member_id="member",
            members=[JoinGroupResponseMember(member_id="leader", metadata=b"1")],
        ),
        0,
        h(0) + i(3) + s("range") + s("leader") + s("member") + i(1) + s("leader") + b(b"1"),
    ),
    "SyncGroupRequest": (
        SyncGroupRequest(
            group_id="group",
            generation_id=3,
            member_id="member",
            assignments=[SyncGroupRequestAssignment(member_id="other", assignment=b"1")],
        ),
        0,
        GROUP_MEMBER + i(1) + s("other") + b(b"1"),
    ),
    "SyncGroupResponse": (SyncGroupResponse(error_code=27, assignment=b"1"), 0, h(27) + b(b"1")),
    "HeartbeatRequest": (
        HeartbeatRequest(group_id="group", generation_id=3, member_id="member"),
        0,
        GROUP_MEMBER,
    ),
    "HeartbeatResponse": (HeartbeatResponse(error_code=27), 0, h(27)),
    "LeaveGroupRequest": (
        LeaveGroupRequest(group_id="group", member_id="member"),
        0,
        s("group") + s("member"),
    ),
    "LeaveGroupResponse": (LeaveGroupResponse(error_code=25), 0, h(25)),
    "OffsetCommitRequest": (
        OffsetCommitRequest(
            group_id="group",
            generation_id_or_member_epoch=3,
            member_id="member",
            retention_time_ms=-1,
            topics=[
                OffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=2, committed_offset=70, committed_metadata="why")
                    ],
                )
            ],
        ),
        2,
        GROUP_MEMBER + q(-1) + i(1) + s("t") + i(1) + i(2) + q(70) + s("why"),
    ),
    "OffsetCommitResponse": (
        OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(
                    name="t",
                    partitions=[
                        OffsetCommitResponsePartition(partition_index=2, error_code=0),
                        OffsetCommitResponsePartition(partition_index=3, error_code=12),
                    ],
                )
            ]
        ),
        2,
        i(1) + s("t") + i(2) + i(2) + h(0) + i(3) + h(12),
    ),
    "OffsetFetchRequest": (
        OffsetFetchRequest(group_id="group", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[2, 3])]),
        1,
        s("group") + i(1) + s("t") + i(2) + i(2) + i(3),
    ),
    "OffsetFetchResponse": (
        OffsetFetchResponse(
            topics=[
                OffsetFetchResponseTopic(
                    name="t",
                    partitions=[
                        OffsetFetchResponsePartition(
                            partition_index=2, committed_offset=-1, metadata="why", error_code=3
                        )
                    ],
                )
            ]
        ),
        1,
        i(1) + s("t") + i(1) + i(2) + q(-1) + s("why") + h(3),
    ),
    "FetchRequest": (
        FetchRequest(
            replica_id=-1,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=1000,
            isolation_level=1,
            topics=[
                FetchTopic(topic="t", partitions=[FetchPartition(partition=2, fetch_offset=70, partition_max_bytes=99)])
            ],
        ),
        4,
        i(-1) + i(500) + i(1) + i(1000) + b"\1" + i(1) + s("t") + i(1) + i(2) + q(70) + i(99),
    ),
    "FetchResponse": (
        FetchResponse(
            throttle_time_ms=9,
            responses=[
                FetchableTopicResponse(
                    topic="t",
                    partitions=[
                        PartitionData(
                            partition_index=2,
                            error_code=1,
                            high_watermark=70,
                            last_stable_offset=60,
                            aborted_transactions=None,
                            records=b"batch",
                        )
                    ],
                )
            ],
        ),
        4,
        i(9) + i(1) + s("t") + i(1) + i(2) + h(1) + q(70) + q(60) + i(-1) + b(b"batch"),
    ),
    "ListOffsetsRequest": (
        ListOffsetsRequest(
            replica_id=-1,
            topics=[ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=2, timestamp=-2)])],
        ),
        1,
        i(-1) + i(1) + s("t") + i(1) + i(2) + q(-2),
    ),
    "ListOffsetsResponse": (
        ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name="t",
                    partitions=[ListOffsetsPartitionResponse(partition_index=2, error_code=6, timestamp=-1, offset=70)],
                )
            ]
        ),
        1,
        i(1) + s("t") + i(1) + i(2) + h(6) + q(-1) + q(70),
    ),
    "ConsumerProtocolSubscription": (
        ConsumerProtocolSubscription(topics=["t", "u"], user_data=b"1"),
        0,
        i(2) + s("t") + s("u") + b(b"1"),
    ),
    "ConsumerProtocolAssignment": (
        ConsumerProtocolAssignment(assigned_partitions=[AssignedTopic(topic="t", partitions=[2, 3])], user_data=None),
        0,
        i(1) + s("t") + i(2) + i(2) + i(3) + NO_BYTES,
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", LAYOUTS)
def test_message_has_the_fields_of_the_protocol_guide_in_its_order(row: str) -> None:
    message, version, layout = LAYOUTS[row]
    assert message.encode(version) == layout
    assert type(message).decode(layout, version) == message


def test_embedded_messages_begin_with_their_version_and_newer_ones_are_readable() -> None:
    subscription = ConsumerProtocolSubscription(topics=["t"], user_data=None)
    assert subscription.encode_versioned(0) == h(0) + i(1) + s("t") + NO_BYTES
    newer = h(9) + subscription.encode(3) + b"what version 9 brings"
    assert ConsumerProtocolSubscription.decode_versioned(newer) == subscription
