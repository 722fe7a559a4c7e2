"""Declared messages: construction, comparison, printing, encoding for a version, refusal to lose values."""

from __future__ import annotations

import copy
import linecache
import pickle
import subprocess
import sys
import threading
import traceback
from uuid import UUID

import pytest

from triokafka.errors import ProtocolError, UnsupportedVersionError
from triokafka.protocol import compiler
from triokafka.protocol.api.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest
from triokafka.protocol.api.fetch import FetchableTopicResponse, FetchResponse, LeaderIdAndEpoch, PartitionData
from triokafka.protocol.api.find_coordinator import FindCoordinatorRequest
from triokafka.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from triokafka.protocol.api.init_producer_id import InitProducerIdRequest
from triokafka.protocol.api.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from triokafka.protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from triokafka.protocol.frames import encode_request
from triokafka.protocol.message import VersionRange, version_range
from triokafka.protocol.primitives import NIL_UUID


def test_fields_not_given_have_their_declared_default() -> None:
    request = MetadataRequest()
    assert request.topics == []
    assert request.allow_auto_topic_creation is True
    assert MetadataResponse().cluster_id is None
    assert MetadataRequestTopic().topic_id is NIL_UUID


def test_default_lists_and_structures_belong_to_one_instance() -> None:
    MetadataResponse().brokers.append(None)  # type: ignore[arg-type]
    assert MetadataResponse().brokers == []
    first, second = PartitionData(), PartitionData()
    first.current_leader.leader_id = 4
    assert second.current_leader.leader_id == -1


def test_unknown_names_are_refused_by_constructor_and_attribute() -> None:
    with pytest.raises(TypeError, match="grup_id"):
        HeartbeatRequest(grup_id="g")  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        HeartbeatRequest().grup_id = "g"  # type: ignore[attr-defined]


def test_messages_compare_by_value_and_print_their_fields() -> None:
    assert HeartbeatRequest(group_id="g") == HeartbeatRequest(group_id="g")
    assert HeartbeatRequest(group_id="g") != HeartbeatRequest(group_id="h")
    assert HeartbeatRequest() != HeartbeatResponse()
    tagged = HeartbeatRequest()
    tagged.unknown_tags[3] = b"x"
    assert tagged != HeartbeatRequest()
    assert repr(HeartbeatResponse(error_code=27)) == "HeartbeatResponse(throttle_time_ms=0, error_code=27)"
    assert "unknown_tags={3: b'x'}" in repr(tagged)


def test_messages_copy_and_pickle() -> None:
    response = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(high_watermark=5)])])
    decoded = FetchResponse.decode(response.encode(16), 16)
    assert copy.deepcopy(decoded) == response
    assert pickle.loads(pickle.dumps(decoded)) == response
    copied = copy.deepcopy(decoded)
    copied.responses[0].partitions[0].current_leader.leader_id = 1


def test_absent_structure_of_a_decoded_message_is_shared_and_cannot_be_changed() -> None:
    data = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData()])]).encode(16)
    partition = FetchResponse.decode(data, 16).responses[0].partitions[0]
    assert partition.current_leader == LeaderIdAndEpoch()
    assert partition.current_leader.unknown_tags == {}
    with pytest.raises(AttributeError, match="assign a new one"):
        partition.current_leader.leader_id = 4
    partition.current_leader = LeaderIdAndEpoch(leader_id=4)


def test_value_that_the_version_cannot_carry_is_refused_by_name() -> None:
    request = HeartbeatRequest(group_id="g", group_instance_id="static")
    with pytest.raises(UnsupportedVersionError, match=r"HeartbeatRequest\.group_instance_id is set, but version 2"):
        request.encode(2)
    assert HeartbeatRequest.decode(request.encode(3), 3) == request


def test_ignorable_value_is_dropped_in_a_version_without_it() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t", topic_id=UUID(int=1))])
    assert MetadataRequest.decode(request.encode(4), 4).topics == [MetadataRequestTopic(name="t")]


def test_null_in_a_version_that_does_not_allow_it_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedVersionError, match=r"MetadataRequest\.topics is null, which version 0"):
        MetadataRequest(topics=None).encode(0)
    assert MetadataRequest.decode(MetadataRequest(topics=None).encode(1), 1).topics is None


@pytest.mark.parametrize(
    ("request_", "path"),
    [
        (HeartbeatRequest(generation_id=2**31), "HeartbeatRequest.generation_id"),
        (HeartbeatRequest(generation_id="7"), "HeartbeatRequest.generation_id"),  # type: ignore[arg-type]
        (HeartbeatRequest(member_id=None), "HeartbeatRequest.member_id"),  # type: ignore[arg-type]
        (HeartbeatRequest(member_id=b"m"), "HeartbeatRequest.member_id"),  # type: ignore[arg-type]
        (HeartbeatRequest(group_id="\ud800"), "HeartbeatRequest.group_id"),
        (HeartbeatRequest(group_id="g" * 40_000), "HeartbeatRequest.group_id"),
    ],
    ids=["too large", "text for a number", "null", "bytes for text", "surrogate", "too long"],
)
def test_value_that_does_not_fit_its_field_is_refused_with_the_path(request_: HeartbeatRequest, path: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        request_.encode(3)
    assert caught.value.path == path


def test_unknown_version_is_refused() -> None:
    for wrong in (-1, 5, 99):
        with pytest.raises(UnsupportedVersionError, match="HeartbeatRequest has versions 0-4"):
            HeartbeatRequest().encode(wrong)
        with pytest.raises(UnsupportedVersionError):
            HeartbeatRequest.decode(b"", wrong)


def test_unstable_version_works_but_is_not_among_those_to_negotiate() -> None:
    assert InitProducerIdRequest.versions == VersionRange(0, 5)
    assert 6 in InitProducerIdRequest.all_versions
    request = InitProducerIdRequest(enable2_pc=True)
    assert InitProducerIdRequest.decode(request.encode(6), 6) == request
    with pytest.raises(UnsupportedVersionError):
        request.encode(5)


def test_nullable_structure_is_one_byte_when_null() -> None:
    without = DescribeTopicPartitionsRequest().encode(0)
    request = DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="t", partition_index=3))
    assert without[-2:] == b"\xff\0"
    assert DescribeTopicPartitionsRequest.decode(without, 0).cursor is None
    assert DescribeTopicPartitionsRequest.decode(request.encode(0), 0) == request


def test_default_of_a_tagged_field_is_not_written() -> None:
    plain = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData()])]).encode(12)
    partition = PartitionData(current_leader=LeaderIdAndEpoch(leader_id=7, leader_epoch=2))
    tagged = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])]).encode(12)
    # Tag 1, nine bytes: two numbers and an empty section.
    assert len(tagged) - len(plain) == 2 + 9
    assert b"\x01\x01\x09\x00\x00\x00\x07\x00\x00\x00\x02\x00" in tagged


def test_tags_are_written_in_ascending_order_known_and_unknown_mixed() -> None:
    partition = PartitionData(current_leader=LeaderIdAndEpoch(leader_id=7))
    partition.unknown_tags = {9: b"nine", 0x4000: b"far", 5: b"five"}
    data = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])]).encode(12)
    assert data.index(b"\x01\x09\x00\x00\x00\x07") < data.index(b"\x05\x04five")
    assert data.index(b"\x05\x04five") < data.index(b"\x09\x04nine") < data.index(b"\x80\x80\x01\x03far")
    assert FetchResponse.decode(data, 12).responses[0].partitions[0] == partition


def test_records_are_slices_of_the_input() -> None:
    records = bytes(range(256)) * 20
    request = ProduceRequest(topic_data=[TopicProduceData(partition_data=[PartitionProduceData(records=records)])])
    data = request.encode(9)
    decoded = ProduceRequest.decode(data, 9).topic_data[0].partition_data[0].records
    assert isinstance(decoded, memoryview)
    assert decoded.obj is data
    frame = bytearray(data)
    writable = ProduceRequest.decode(frame, 9).topic_data[0].partition_data[0].records
    assert isinstance(writable, memoryview)
    writable[0] = 77
    assert frame.count(bytes(range(1, 256))) == 20
    assert ProduceRequest.decode(frame, 9) != request


def test_parts_hold_larger_records_uncopied_and_join_to_the_message() -> None:
    records: list[bytes | bytearray | memoryview] = [bytes(5000), b"short", bytearray(9000)]
    request = ProduceRequest(
        topic_data=[
            TopicProduceData(partition_data=[PartitionProduceData(index=i, records=r) for i, r in enumerate(records)])
        ]
    )
    parts = encode_request(request, version=9, correlation_id=1, client_id="c")
    assert [part is records[0] or part is records[2] for part in parts] == [False, True, False, True, False]
    assert b"".join(parts).endswith(request.encode(9))


def test_plain_values_make_the_same_message_again() -> None:
    request = DescribeTopicPartitionsRequest(cursor=Cursor(topic_name="t"))
    request.unknown_tags = {4: b"x"}
    plain = request.to_dict()
    assert plain["cursor"] == {"topic_name": "t", "partition_index": 0}
    assert plain["unknown_tags"] == {4: b"x"}
    assert DescribeTopicPartitionsRequest.from_dict(plain) == request
    text = "00000000-0000-0000-0000-000000000005"
    assert MetadataRequestTopic.from_dict({"topic_id": text}).topic_id == UUID(text)
    with pytest.raises(TypeError, match="has no field 'nope'"):
        FindCoordinatorRequest.from_dict({"nope": 1})


def test_version_ranges_read_and_print_like_kafka() -> None:
    for text in ("3", "0-4", "3+", "none"):
        assert str(version_range(text)) == text
    assert 4 in version_range("3+")
    assert 2 not in version_range("3+")
    assert 0 not in version_range("none")
    assert list(version_range("2-4").each()) == [2, 3, 4]


def test_generated_code_is_printed_in_tracebacks() -> None:
    HeartbeatRequest.decode(HeartbeatRequest().encode(4), 4)
    decoder = HeartbeatRequest._decoders[4]
    filename = decoder.__code__.co_filename
    assert linecache.getline(filename, 1) == "def decode(d, p):\n"
    linecache.checkcache()
    try:
        decoder(None, 0)  # type: ignore[arg-type]
    except TypeError:
        assert "end = len(d)" in traceback.format_exc()
    assert "def encode(o, out, marks):" in compiler.source_of(HeartbeatRequest, 4)


def test_codec_made_in_several_threads_at_once_works_in_all() -> None:
    version = 11
    MetadataResponse._encoders.pop(version, None)
    MetadataResponse._decoders.pop(version, None)
    start = threading.Barrier(8)
    results: list[bool] = []

    def work() -> None:
        start.wait()
        data = MetadataResponse(cluster_id="c").encode(version)
        results.append(MetadataResponse.decode(data, version).cluster_id == "c")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 8


def test_api_modules_load_when_first_used() -> None:
    code = (
        "import sys; from triokafka.protocol import api, frames\n"
        "loaded = [m for m in sys.modules if m.startswith('triokafka.protocol.api.')]\n"
        "assert loaded == [], loaded\n"
        "assert api.request_type(12).__name__ == 'HeartbeatRequest'\n"
        "assert 'triokafka.protocol.api.fetch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
