"""Walking a buffer of batches."""

from __future__ import annotations

import pytest

from triokafka.errors import CorruptRecordError
from triokafka.records import encode_batch, iter_batches
from triokafka.records.batch import HEADER, BatchInfo, parse_batch

FIRST = encode_batch([(10, b"a", b"1", []), (30, b"b", b"2", [])], base_offset=5, producer_id=8, base_sequence=3)
SECOND = encode_batch([(20, None, b"x" * 500, [])], base_offset=7, compression="gzip", transactional=True)


def changed(**fields: int) -> bytes:
    info = next(iter_batches(FIRST))._replace(**fields)
    return HEADER.pack(*info[1:]) + FIRST[61:]


def test_every_header_field_is_decoded() -> None:
    first, second = iter_batches(FIRST + SECOND)
    assert first._replace(crc=0) == BatchInfo(0, 5, len(FIRST) - 12, -1, 2, 0, 0, 1, 10, 30, 8, -1, 3, 2)
    assert (first.size, first.end, first.last_offset, first.next_offset) == (len(FIRST), len(FIRST), 6, 7)
    assert (first.compression, first.timestamp_type, first.is_transactional, first.is_control) == (
        "none",
        0,
        False,
        False,
    )
    assert first.last_sequence == 4
    assert (second.position, second.compression, second.is_transactional) == (len(FIRST), "gzip", True)
    assert second.last_sequence == -1


@pytest.mark.parametrize("cut", [1, 12, 16, 17, 60, 61, len(SECOND) - 1])
def test_partial_batch_at_the_end_ends_the_walk(cut: int) -> None:
    """A fetch response may be cut anywhere."""
    assert [info.base_offset for info in iter_batches(FIRST + SECOND[:cut])] == [5]


def test_position_counts_from_the_start_of_the_buffer() -> None:
    info = parse_batch(memoryview(b"???" + SECOND), 3)
    assert info is not None and (info.position, info.end) == (3, 3 + len(SECOND))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"length": -1}, "length -1"),
        ({"length": 48}, "shorter than a batch header"),
        ({"magic": 3}, "format version 3"),
        ({"magic": -1}, "format version -1"),
        ({"record_count": -1}, "-1 records"),
        ({"record_count": 3}, "3 records, but the last offset delta is 1"),
        ({"last_offset_delta": -1, "record_count": 0}, "last offset delta is -1"),
        ({"base_offset": -1}, "base offset"),
        ({"base_offset": 2**63 - 2}, "base offset"),
    ],
)
def test_header_that_cannot_be_is_corrupt(fields: dict[str, int], reason: str) -> None:
    with pytest.raises(CorruptRecordError, match=reason):
        list(iter_batches(changed(**fields)))


def test_zeros_are_corrupt() -> None:
    """The tail of a preallocated segment."""
    with pytest.raises(CorruptRecordError):
        list(iter_batches(FIRST + bytes(100)))


def test_short_garbage_is_corrupt_as_soon_as_its_length_is_there() -> None:
    with pytest.raises(CorruptRecordError):
        list(iter_batches(bytes(12)))


def test_checksum_is_verified_when_asked() -> None:
    broken = bytearray(FIRST + SECOND)
    broken[-1] ^= 1
    assert len(list(iter_batches(broken))) == 2
    walk = iter_batches(broken, check_crc=True)
    assert next(walk).base_offset == 5
    with pytest.raises(CorruptRecordError, match=f"byte {len(FIRST)}, offset 7: checksum"):
        next(walk)


def test_batch_that_compaction_emptied_is_kept() -> None:
    """The cleaner keeps empty batches for the producer state."""
    info = next(iter_batches(FIRST))._replace(record_count=0, length=49)
    (empty,) = iter_batches(HEADER.pack(*info[1:]))
    assert (empty.record_count, empty.next_offset) == (0, 7)
