"""Frames: size prefix, header versions, and what broken headers give."""

from __future__ import annotations

import tracemalloc

import pytest

from triokafka.errors import ProtocolError, UnsupportedVersionError
from triokafka.protocol import api, frames
from triokafka.protocol.api.api_versions import ApiVersionsRequest, ApiVersionsResponse
from triokafka.protocol.api.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from triokafka.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from triokafka.protocol.api.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic


def joined(parts: list[bytes | bytearray | memoryview]) -> bytes:
    """The bytes on the wire."""
    return b"".join(parts)


def test_request_header_of_a_plain_version_has_no_tagged_section() -> None:
    wire = joined(frames.encode_request(HeartbeatRequest(), version=3, correlation_id=7, client_id="me"))
    assert wire[:16] == bytes.fromhex("00000016 000c 0003 00000007 0002 6d65".replace(" ", ""))
    header, request = frames.decode_request(wire[4:])
    assert header == (12, 3, 7, "me", 12)
    assert request == HeartbeatRequest()


def test_request_header_of_a_flexible_version_keeps_the_plain_client_id_and_ends_in_tags() -> None:
    wire = joined(frames.encode_request(HeartbeatRequest(), version=4, correlation_id=7, client_id="me"))
    assert wire[4:17] == bytes.fromhex("000c 0004 00000007 0002 6d65 00".replace(" ", ""))
    assert frames.decode_request(wire[4:])[0].size == 13


@pytest.mark.parametrize("version", [3, 4])
def test_client_id_may_be_null(version: int) -> None:
    wire = joined(frames.encode_request(HeartbeatRequest(), version=version, correlation_id=1, client_id=None))
    assert int.from_bytes(wire[:4], "big") == len(wire) - 4
    assert frames.decode_request(wire[4:])[0].client_id is None


def test_client_id_may_be_in_any_encoding() -> None:
    """Kafka reads it the same way: text typed in an old terminal must not exclude a client."""
    header = frames.decode_request_header(bytes.fromhex("00120000 00000007 0004 636166e9"))
    assert header.client_id == "caf\ufffd"


def test_tagged_fields_of_a_header_are_stepped_over() -> None:
    frame = bytes.fromhex("000c 0004 00000007 ffff 02 00 02 6162 05 00".replace(" ", "")) + HeartbeatRequest().encode(4)
    header, request = frames.decode_request(frame)
    assert header.size == 17
    assert request == HeartbeatRequest()


@pytest.mark.parametrize(("version", "header"), [(3, b"\0\0\0\x09"), (4, b"\0\0\0\x09\0")])
def test_response_header_is_flexible_with_the_version(version: int, header: bytes) -> None:
    wire = joined(frames.encode_response(HeartbeatResponse(error_code=27), version=version, correlation_id=9))
    assert wire[4:].startswith(header)
    assert frames.decode_response(HeartbeatResponse, wire[4:], version=version) == (9, HeartbeatResponse(error_code=27))


@pytest.mark.parametrize("version", [0, 3, 4])
def test_response_header_of_api_versions_is_never_flexible(version: int) -> None:
    wire = joined(frames.encode_response(ApiVersionsResponse(), version=version, correlation_id=9))
    assert wire[4:] == b"\0\0\0\x09" + ApiVersionsResponse().encode(version)
    assert frames.decode_response(ApiVersionsResponse, wire[4:], version=version)[0] == 9


def test_unknown_version_still_gives_the_header_so_that_it_can_be_answered() -> None:
    frame = bytes.fromhex("0012 0063 00000007 0002 6d65 00 0102".replace(" ", ""))
    header = frames.decode_request_header(frame)
    assert (header.api_key, header.api_version, header.correlation_id, header.client_id) == (18, 99, 7, "me")
    with pytest.raises(UnsupportedVersionError):
        frames.decode_request(frame)


def test_unknown_api_still_gives_the_header() -> None:
    frame = bytes.fromhex("7fff 0000 00000007 ffff".replace(" ", ""))
    assert frames.decode_request_header(frame).api_key == 0x7FFF
    with pytest.raises(UnsupportedVersionError, match="32767"):
        frames.decode_request(frame)


@pytest.mark.parametrize(
    ("frame", "path"),
    [
        ("", "RequestHeader"),
        ("000c0004000000", "RequestHeader"),
        ("000c0004 00000007 0005 6d65", "RequestHeader.client_id"),
        ("000c0004 00000007 fffe", "RequestHeader.client_id"),
        ("000c0004 00000007 ffff", "RequestHeader"),
        ("000c0004 00000007 ffff 01 00 05", "RequestHeader"),
        ("000c0004 00000007 ffff ffffffffff", "RequestHeader"),
        ("000c0004 00000007 ffff ffffffff0f", "RequestHeader"),
    ],
)
def test_broken_request_header_is_a_protocol_error(frame: str, path: str) -> None:
    for buffer in (bytes.fromhex(frame), bytearray.fromhex(frame), memoryview(bytes.fromhex(frame))):
        with pytest.raises(ProtocolError) as caught:
            frames.decode_request(buffer)
        assert caught.value.path == path


@pytest.mark.parametrize("frame", [b"", b"\0\0\0", b"\0\0\0\7", b"\0\0\0\7\1\0\7"])
def test_broken_response_header_is_a_protocol_error(frame: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        frames.decode_response(HeartbeatResponse, frame, version=4)
    assert caught.value.path == "ResponseHeader"


def test_larger_records_go_into_a_response_uncopied() -> None:
    records = memoryview(bytes(100_000))
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[PartitionData(records=records)])])
    parts = frames.encode_response(response, version=12, correlation_id=1)
    assert any(part is records for part in parts)
    assert int.from_bytes(parts[0][:4], "big") == sum(map(len, parts)) - 4
    assert frames.decode_response(FetchResponse, joined(parts)[4:], version=12) == (1, response)


@pytest.mark.parametrize("key", api.API_NAMES)
def test_every_request_and_response_passes_through_a_frame(key: int) -> None:
    request_type, response_type = api.request_type(key), api.response_type(key)
    for version in request_type.versions.each():
        wire = joined(frames.encode_request(request_type(), version=version, correlation_id=version, client_id="x"))
        header, request = frames.decode_request(wire[4:])
        assert (header.api_key, header.api_version, request) == (key, version, request_type())
        wire = joined(frames.encode_response(response_type(), version=version, correlation_id=version))
        assert frames.decode_response(response_type, wire[4:], version=version) == (version, response_type())


def test_correlation_id_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ProtocolError):
        frames.encode_request(ApiVersionsRequest(), version=0, correlation_id=2**31, client_id=None)


_MANY = 4_000


@pytest.mark.parametrize("version", [1, 12])
def test_response_of_many_elements_takes_little_more_memory_than_its_bytes(version: int) -> None:
    partition = MetadataResponsePartition(leader_id=1, replica_nodes=[1], isr_nodes=[1])
    one_topic = MetadataResponseTopic(name="topic", partitions=[partition] * _MANY)
    small_topic = MetadataResponseTopic(name="topic", partitions=[partition])
    response = MetadataResponse(topics=[*[small_topic] * _MANY, one_topic])
    response.encode(version)  # generates the encoder
    tracemalloc.start()
    try:
        parts = frames.encode_response(response, version=version, correlation_id=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    size = sum(map(len, parts))
    assert size > 1 << 17
    assert peak < size + (1 << 20), "pieces that are not joined yet take at most some hundred KiB"
    wire = joined(parts)
    assert int.from_bytes(wire[:4], "big") == len(wire) - 4
    assert frames.decode_response(MetadataResponse, wire[4:], version=version) == (1, response)


def test_records_among_many_elements_keep_their_places() -> None:
    large = bytes(range(256)) * 5
    partitions = [
        PartitionData(partition_index=i, records=large if i % 1000 == 999 else b"small" if i % 7 else b"")
        for i in range(_MANY)
    ]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])
    parts = frames.encode_response(response, version=12, correlation_id=1)
    assert sum(part is large for part in parts) == 4, "large records are not copied"
    wire = joined(parts)
    assert int.from_bytes(wire[:4], "big") == len(wire) - 4
    assert frames.decode_response(FetchResponse, wire[4:], version=12) == (1, response)
