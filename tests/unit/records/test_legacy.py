"""Message sets of format v0 and v1: read, never written."""

from __future__ import annotations

import gzip
import struct
import zlib

import pytest

from tests.unit.records.stacks import Stack
from triokafka.errors import CorruptRecordError
from triokafka.records.compression import compress


def message(
    offset: int, key: bytes | None, value: bytes | None, *, magic: int = 1, attributes: int = 0, timestamp: int = 0
) -> bytes:
    body = struct.pack(">bb", magic, attributes)
    if magic == 1:
        body += struct.pack(">q", timestamp)
    for field in (key, value):
        body += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(offset: int, inner: bytes, codec: int = 1, **fields: int) -> bytes:
    attributes = fields.pop("attributes", 0) | codec
    return message(offset, None, compress(codec, inner), attributes=attributes, **fields)


def decoded(stack: Stack, data: bytes, **settings: object) -> list[tuple]:
    records = stack.records.decode_records(data, **settings)
    return [(r.offset, r.timestamp, r.timestamp_type, r.key, r.value) for r in records]


def test_messages_of_both_formats(stack: Stack) -> None:
    data = message(4, b"k", None, magic=0) + message(5, None, b"v", timestamp=77) + message(9, b"", b"", timestamp=-1)
    assert decoded(stack, data) == [(4, -1, -1, b"k", None), (5, 77, 0, None, b"v"), (9, -1, 0, b"", b"")]


def test_formats_may_follow_each_other(stack: Stack) -> None:
    data = message(0, None, b"v0", magic=0) + message(1, None, b"v1")
    data += stack.records.encode_batch([(1, None, b"v2", [])], base_offset=2)
    assert [row[4] for row in decoded(stack, data)] == [b"v0", b"v1", b"v2"]


@pytest.mark.parametrize("codec", [1, 2, 3])
def test_v1_wrapper_has_the_offset_of_its_last_message(stack: Stack, codec: int) -> None:
    inner = (
        message(0, None, b"a", timestamp=1) + message(1, None, b"b", timestamp=2) + message(4, None, b"c", timestamp=3)
    )
    data = wrapper(104, inner, codec, timestamp=3)
    assert decoded(stack, data) == [(100, 1, 0, None, b"a"), (101, 2, 0, None, b"b"), (104, 3, 0, None, b"c")]


def test_v0_wrapper_holds_absolute_offsets(stack: Stack) -> None:
    """Only inner ones of version 1 are relative"""
    inner = message(7, None, b"a", magic=0) + message(9, None, b"b", magic=0)
    assert decoded(stack, wrapper(9, inner, magic=0)) == [(7, -1, -1, None, b"a"), (9, -1, -1, None, b"b")]


def test_wrapper_stamped_by_the_broker_stamps_all_its_messages(stack: Stack) -> None:
    inner = message(0, None, b"a", timestamp=1) + message(1, None, b"b", timestamp=2)
    data = wrapper(1, inner, attributes=8, timestamp=500)
    assert [row[1:3] for row in decoded(stack, data)] == [(500, 1), (500, 1)]


def test_position_inside_a_wrapper(stack: Stack) -> None:
    inner = b"".join(message(n, None, b"%d" % n) for n in range(5))
    decoder = stack.records.RecordDecoder(wrapper(14, inner) + message(15, None, b"x"), from_offset=12)
    assert [r.offset for r in decoder.take(2)] == [12, 13]
    assert decoder.next_offset == 14
    assert [r.offset for r in decoder.take(9)] == [14, 15]


def test_by_column(stack: Stack) -> None:
    inner = message(0, b"k", b"a" * 20, timestamp=1) + message(1, None, b"b", timestamp=2)
    data = message(3, None, None, magic=0) + wrapper(5, inner)
    for values in ("binary", "view"):
        table = stack.records.to_arrow([(data, "t", 1, 0)], values=values).to_pydict()
        assert (table["offset"], table["timestampType"]) == ([3, 4, 5], [-1, 0, 0])
        assert (table["key"], table["value"]) == ([None, b"k", None], [None, b"a" * 20, b"b"])


def test_partial_message_at_the_end_is_ignored(stack: Stack) -> None:
    whole = message(0, None, b"a")
    for cut in range(1, len(whole)):
        assert len(decoded(stack, whole + message(1, None, b"b")[:cut])) == 1


BAD_INNER = [
    pytest.param(b"", "no messages", id="empty"),
    pytest.param(message(0, None, b"a")[:-1], "cut short", id="cut"),
    pytest.param(message(0, None, b"a", magic=0), "wraps format version 0", id="other format"),
    pytest.param(wrapper(0, message(0, None, b"a")), "compressed itself", id="nested"),
    pytest.param(message(9, None, b"a"), "last inner message has offset 9", id="negative offset"),
]


@pytest.mark.parametrize(("inner", "reason"), BAD_INNER)
def test_wrapper_with_wrong_contents_is_corrupt(stack: Stack, inner: bytes, reason: str) -> None:
    with pytest.raises(CorruptRecordError, match=f"t-0 at offset 0: .*{reason}"):
        decoded(stack, wrapper(5, inner), topic="t")


def test_checksums_of_inner_and_outer_messages_are_verified(stack: Stack) -> None:
    bad = bytearray(message(0, None, b"abc"))
    bad[-1] ^= 1
    for data in (bytes(bad), wrapper(0, bytes(bad))):
        with pytest.raises(CorruptRecordError, match="checksum"):
            decoded(stack, data)
        assert decoded(stack, data, check_crc=False)[0][4] == b"abb"


def test_wrong_lengths_are_corrupt(stack: Stack) -> None:
    whole = message(0, b"key", b"value")
    for at, length in [(26, -2), (26, 1000), (26, 2), (33, 4), (33, 6), (33, -5)]:
        bad = bytearray(whole)
        struct.pack_into(">i", bad, at, length)
        with pytest.raises(CorruptRecordError):
            decoded(stack, bytes(bad), check_crc=False)


def test_gzip_of_a_foreign_writer(stack: Stack) -> None:
    data = message(0, None, gzip.compress(message(0, None, b"a")), attributes=1)
    assert [row[4] for row in decoded(stack, data)] == [b"a"]
