"""Decoders refuse truncated, oversized or malformed data, and name the problem, the field and the position."""

from __future__ import annotations

import random
from typing import Any

import pytest
from construct import StringError

from tests.unit.protocol.fillings import name_of, rich, stored_messages, versions_of, wire_messages
from triokafka.errors import ProtocolError
from triokafka.protocol.api.api_versions import ApiVersionsResponse
from triokafka.protocol.api.fetch import FetchRequest, FetchResponse
from triokafka.protocol.api.heartbeat import HeartbeatRequest
from triokafka.protocol.api.metadata import MetadataRequest
from triokafka.protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from triokafka.protocol.message import Message
from triokafka.protocol.primitives import CompactString

CASES = versions_of([*wire_messages(), *stored_messages()])


def refusal(cls: type[Message], version: int, data: Any) -> ProtocolError | None:
    """The error that decoding raises; None if it succeeds."""
    try:
        cls.decode(data, version)
    except ProtocolError as error:
        return error
    return None


@pytest.mark.parametrize(("cls", "version"), CASES, ids=name_of)
def test_every_truncation_is_refused_with_path_and_offset(cls: type[Message], version: int) -> None:
    message = rich(cls, version, random.Random(f"{cls.__name__} {version}"), unknown_tags=True)
    data = message.encode(version)
    step = max(1, len(data) // 50)
    for end in range(0, len(data), step):
        for cut in (data[:end], bytearray(data[:end])):
            error = refusal(cls, version, cut)
            assert error is not None
            assert error.path.split(".")[0] == cls.__name__
            assert 0 <= error.offset <= end


@pytest.mark.parametrize(("cls", "version"), CASES, ids=name_of)
def test_bytes_after_the_message_are_refused(cls: type[Message], version: int) -> None:
    with pytest.raises(ProtocolError, match="1 bytes too many"):
        cls.decode(cls().encode(version) + b"\0", version)


@pytest.mark.parametrize(
    ("data", "message", "path", "offset"),
    [
        (b"", "the data ends early", "HeartbeatRequest.group_id", 0),
        (b"\x03ab\0\0\0", "the data ends early", "HeartbeatRequest.generation_id", 3),
        (b"\x03ab\0\0\0\0", "the data ends early", "HeartbeatRequest.member_id", 7),
        (b"\x09ab", "length 8 is more than the 2 bytes left", "HeartbeatRequest.group_id", 1),
        (b"\0\0\0\0\0\0\0\0", "null where it is not allowed", "HeartbeatRequest.group_id", 1),
        (b"\x80\x80\x80\x80\x80\x01", "varint is longer than 5 bytes", "HeartbeatRequest.group_id", 1),
        (b"\xff\xff\xff\xff\x7f", "varint does not fit 32 bits", "HeartbeatRequest.group_id", 1),
        (
            b"\x81\x80\x02" + b"x" * 32_768,
            "a string of 32768 bytes is longer than 32767",
            "HeartbeatRequest.group_id",
            1,
        ),
        (b"\1\0\0\0\0\1\0\1\0\x05", "tagged field of 5 bytes is more than what is left", "HeartbeatRequest", 8),
        (b"\1\0\0\0\0\1\0\0!", "1 bytes too many", "HeartbeatRequest", 8),
    ],
)
def test_decoding_error_names_the_problem_the_field_and_the_byte(
    data: bytes, message: str, path: str, offset: int
) -> None:
    for buffer in (data, bytearray(data), memoryview(data)):
        with pytest.raises(ProtocolError) as caught:
            HeartbeatRequest.decode(buffer, 4)
        assert (caught.value.message, caught.value.path, caught.value.offset) == (message, path, offset)


@pytest.mark.parametrize(
    "text",
    [
        b"caf\xe9",
        b"\xff\xff",
        b"\xc3",
        b"\xf0\x9f\x98",
        b"\xc0\x80",
        b"\xe2\x82A",
        b"\xf5\x80\x80\x80",
        b"\xed\xa0\x80",
    ],
)
def test_text_that_is_not_utf_8_is_read_with_replacement_characters(text: bytes) -> None:
    """As Java reads it, wherever it is, and by all decoders; what follows it is read as ever."""
    data = bytes([len(text) + 1]) + text + b"\0\0\0\7\4ok!\0\0"
    expected = HeartbeatRequest(group_id=text.decode("utf-8", "replace"), generation_id=7, member_id="ok!")
    for buffer in (data, bytearray(data), memoryview(data)):
        assert HeartbeatRequest.decode(buffer, 4) == HeartbeatRequest.decode_prefix(buffer, 4) == expected
    assert HeartbeatRequest.construct(4).parse(data).group_id == expected.group_id
    with pytest.raises(ProtocolError, match="1 bytes too many"):
        HeartbeatRequest.decode(data + b"!", 4)
    with pytest.raises(ProtocolError, match="the data ends early"):
        HeartbeatRequest.decode_prefix(data[:-1], 4)


def test_topic_that_is_not_utf_8_does_not_disturb_its_records() -> None:
    """The records are slices of the input, of any type of buffer."""
    name, records = b"caf\xe9", b"records!"
    data = ProduceRequest(topic_data=[topic_of("name", records)]).encode(9).replace(b"name", name)
    for buffer in (data, bytearray(data), memoryview(data)):
        (found,) = ProduceRequest.decode(buffer, 9).topic_data
        assert (found.name, bytes(found.partition_data[0].records or b"")) == ("caf\ufffd", records)


def topic_of(name: str, records: bytes) -> TopicProduceData:
    return TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=records)])


@pytest.mark.parametrize(
    ("cls", "version", "data", "message", "path"),
    [
        (MetadataRequest, 1, b"\xff\xff\xff\xfe", "negative length -2", "MetadataRequest.topics"),
        (MetadataRequest, 0, b"\xff\xff\xff\xff", "null where it is not allowed", "MetadataRequest.topics"),
        (MetadataRequest, 0, b"\0\0\0\1\xff\xff", "null where it is not allowed", "MetadataRequest.topics.name"),
        (MetadataRequest, 0, b"\0\0\0\1\xff\xfe", "negative length -2", "MetadataRequest.topics.name"),
        (MetadataRequest, 10, b"\x02" + bytes(15), "length 1 is more than the 15 bytes left", "MetadataRequest.topics"),
        (
            FetchRequest, 17, bytes(21) + b"\1\1\1" + b"\1\1\x0c" + bytes(12),
            "the data ends early", "FetchRequest.replica_state",
        ),
        (
            ApiVersionsResponse, 3, bytes(2) + b"\1" + bytes(4) + b"\1\1\x09" + bytes(9),
            "tagged field has another size than announced", "ApiVersionsResponse.finalized_features_epoch",
        ),
        (
            FetchResponse, 4, bytes(4) + b"\0\0\0\1\0\1a\0\0\0\1" + bytes(22) + bytes(4) + b"\0\0\0\x09",
            "length 9 is more than the 0 bytes left", "FetchResponse.responses.partitions.records",
        ),
    ],
)  # fmt: skip
def test_malformed_fields_are_named(cls: type[Message], version: int, data: bytes, message: str, path: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        cls.decode(data, version)
    assert (caught.value.message, caught.value.path) == (message, path)


def test_a_compact_string_is_no_longer_than_a_plain_one() -> None:
    """Otherwise a request could have a name that fits no record and no older version of a response."""
    longest = HeartbeatRequest(group_id="x" * 32_767)
    assert HeartbeatRequest.decode(longest.encode(4), 4) == longest
    for version in (3, 4):
        with pytest.raises(ProtocolError):
            HeartbeatRequest(group_id="x" * 32_768).encode(version)
    with pytest.raises(StringError):
        CompactString.build("x" * 32_768)
    with pytest.raises(StringError):
        CompactString.parse(b"\x81\x80\x02" + b"x" * 32_768)
