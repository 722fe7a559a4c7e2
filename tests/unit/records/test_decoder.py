"""Reading a fetch in chunks: positions, gaps, control batches, aborted transactions, corrupt bytes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.records.stacks import Stack
from triokafka.errors import CorruptRecordError
from triokafka.records import encode_batch
from triokafka.records.batch import HEADER, iter_batches

ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"


def batch(base_offset: int, count: int, **settings: Any) -> bytes:
    records: list[Any] = [(1000 + n, None, b"%d" % (base_offset + n), []) for n in range(count)]
    return encode_batch(records, base_offset=base_offset, **settings)


def marker(offset: int, key: bytes, producer_id: int) -> bytes:
    return encode_batch(
        [(0, key, b"", [])], base_offset=offset, control=True, transactional=True, producer_id=producer_id
    )


def without_last_records(data: bytes, kept: int) -> bytes:
    """A batch as the cleaner leaves it: fewer records, the same last offset delta."""
    (info,) = iter_batches(data)
    whole = encode_batch([(1000 + n, None, b"%d" % (info.base_offset + n), []) for n in range(kept)])
    changed = info._replace(record_count=kept, length=len(whole) - 12)
    return HEADER.pack(*changed[1:]) + whole[61:]


def raw_batch(payload: bytes, count: int = 1) -> bytes:
    """A batch with any bytes where the records should be."""
    (info,) = iter_batches(batch(0, 1))
    changed = info._replace(length=49 + len(payload), record_count=count, last_offset_delta=count - 1)
    return HEADER.pack(*changed[1:]) + payload


def offsets(records: list) -> list[int]:
    return [record.offset for record in records]


def test_takes_no_more_than_asked_for_and_continues(stack: Stack) -> None:
    decoder = stack.records.RecordDecoder(batch(0, 5) + batch(5, 3, compression="lz4"), topic="t", partition=1)
    seen = []
    for limit, position in [(2, 2), (2, 4), (2, 6), (10, 8)]:
        seen += offsets(decoder.take(limit))
        assert decoder.next_offset == position
    assert seen == list(range(8))
    assert decoder.take(1) == []
    assert decoder.exhausted


def test_end_is_known_once_every_byte_was_read(stack: Stack) -> None:
    """A partial batch behind the last one, as brokers send it, needs another check."""
    decoder = stack.records.RecordDecoder(batch(0, 5) + batch(5, 3))
    assert len(decoder.take(5)) == 5
    assert not decoder.at_end and not decoder.exhausted
    assert len(decoder.take(2)) == 2
    assert not decoder.at_end
    assert len(decoder.take(1)) == 1
    assert decoder.at_end and decoder.exhausted
    decoder = stack.records.RecordDecoder(batch(0, 5) + batch(5, 3)[:40])
    assert len(decoder.take(5)) == 5
    assert not decoder.at_end and decoder.exhausted


def test_values_are_those_of_the_offsets(stack: Stack) -> None:
    decoder = stack.records.RecordDecoder(batch(10, 7, compression="zstd") + batch(17, 2))
    records = decoder.take(3) + decoder.take(100)
    assert [record.value for record in records] == [b"%d" % offset for offset in range(10, 19)]


def test_records_before_the_position_are_skipped(stack: Stack) -> None:
    """A batch may begin before the offset that was asked for."""
    decoder = stack.records.RecordDecoder(batch(0, 5) + batch(5, 5), from_offset=7)
    assert offsets(decoder.take(2)) == [7, 8]
    assert offsets(decoder.take(2)) == [9]


def test_position_advances_past_compacted_offsets(stack: Stack) -> None:
    data = without_last_records(batch(0, 5), 2) + batch(9, 1)
    decoder = stack.records.RecordDecoder(data, check_crc=False)
    assert offsets(decoder.take(2)) == [0, 1]
    assert decoder.next_offset == 5
    assert offsets(decoder.take(2)) == [9]


def test_batch_that_compaction_emptied_moves_the_position(stack: Stack) -> None:
    decoder = stack.records.RecordDecoder(without_last_records(batch(0, 5), 1)[:12] + b"", from_offset=0)
    assert decoder.take(1) == []
    (info,) = iter_batches(batch(0, 5))
    empty = HEADER.pack(*info._replace(record_count=0, length=49)[1:])
    decoder = stack.records.RecordDecoder(empty, check_crc=False)
    assert decoder.take(1) == []
    assert decoder.next_offset == 5


def test_position_goes_past_control_batches(stack: Stack) -> None:
    decoder = stack.records.RecordDecoder(batch(0, 2) + marker(2, COMMIT, 1))
    assert offsets(decoder.take(10)) == [0, 1]
    assert decoder.next_offset == 3


def test_leader_epoch_is_that_of_the_batch(stack: Stack) -> None:
    decoder = stack.records.RecordDecoder(batch(0, 1, leader_epoch=4) + batch(1, 1, leader_epoch=7))
    assert [record.leader_epoch for record in decoder.take(10)] == [4, 7]
    assert decoder.leader_epoch == 7


class TestReadCommitted:
    """Aborted transactions are left out by whole batches, as the fetch response lists them."""

    DATA = (
        batch(0, 2, transactional=True, producer_id=1)
        + batch(2, 1, transactional=True, producer_id=2)
        + batch(3, 1, producer_id=3)
        + marker(4, ABORT, 1)
        + batch(5, 1, transactional=True, producer_id=1)
        + marker(6, COMMIT, 2)
        + marker(7, COMMIT, 1)
    )

    def test_aborted_records_are_left_out_up_to_the_marker(self, stack: Stack) -> None:
        decoder = stack.records.RecordDecoder(self.DATA, aborted=[(1, 0)])
        assert offsets(decoder.take(100)) == [2, 3, 5]
        assert decoder.next_offset == 8

    def test_one_producer_may_abort_twice(self, stack: Stack) -> None:
        decoder = stack.records.RecordDecoder(self.DATA, aborted=[(1, 5), (1, 0)])
        assert offsets(decoder.take(100)) == [2, 3]

    def test_read_uncommitted_has_everything(self, stack: Stack) -> None:
        assert offsets(stack.records.RecordDecoder(self.DATA).take(100)) == [0, 1, 2, 3, 5]

    def test_nothing_aborted_leaves_nothing_out(self, stack: Stack) -> None:
        assert offsets(stack.records.RecordDecoder(self.DATA, aborted=[]).take(100)) == [0, 1, 2, 3, 5]


class TestCorrupt:
    """Corrupt bytes stop the decoding with their position; the records before them are returned first."""

    def test_good_batches_before_come_first_then_the_error_every_time(self, stack: Stack) -> None:
        bad = bytearray(batch(3, 3))
        bad[-1] ^= 1
        decoder = stack.records.RecordDecoder(batch(0, 3) + bad, topic="orders", partition=2)
        assert offsets(decoder.take(100)) == [0, 1, 2]
        assert not decoder.exhausted
        for _ in range(2):
            with pytest.raises(CorruptRecordError, match="orders-2 at offset 3"):
                decoder.take(1)
        assert decoder.next_offset == 3

    @pytest.mark.parametrize("settings", [{}, {"compression": "lz4"}], ids=["plain", "lz4"])
    def test_an_error_that_was_not_raised_yet_is_left_too(self, stack: Stack, settings: dict[str, str]) -> None:
        """Asking for more does not raise: a caller that has just taken its limit must process those records first."""
        bad = bytearray(batch(3, 3, **settings))
        bad[-1] ^= 1
        decoder = stack.records.RecordDecoder(batch(0, 3) + bad)
        assert len(decoder.take(3)) == 3
        assert not decoder.exhausted
        assert decoder.next_offset == 3
        with pytest.raises(CorruptRecordError, match="offset 3"):
            decoder.take(1)
        assert not decoder.exhausted

    def test_good_records_of_the_bad_batch_come_first(self, stack: Stack) -> None:
        bad = bytearray(batch(0, 3))
        bad[61 + 2 * 8] = 100  # the length of the third record
        decoder = stack.records.RecordDecoder(bad, topic="orders", partition=2, check_crc=False)
        assert offsets(decoder.take(100)) == [0, 1]
        assert decoder.next_offset == 2
        with pytest.raises(CorruptRecordError, match=r"orders-2.*offset 0: record 2: its length"):
            decoder.take(1)

    def test_all_or_nothing_when_decoding_a_whole_buffer(self, stack: Stack) -> None:
        bad = bytearray(batch(3, 3))
        bad[-1] ^= 1
        with pytest.raises(CorruptRecordError):
            stack.records.decode_records(batch(0, 3) + bad)

    def test_bytes_behind_the_last_record(self, stack: Stack) -> None:
        (info,) = iter_batches(batch(0, 2))
        longer = HEADER.pack(*info._replace(length=info.length + 3)[1:]) + batch(0, 2)[61:] + b"???"
        with pytest.raises(CorruptRecordError, match="3 bytes follow its 2 records"):
            stack.records.decode_records(longer, check_crc=False)

    def test_fewer_records_than_the_count(self, stack: Stack) -> None:
        (info,) = iter_batches(batch(0, 2))
        header = HEADER.pack(*info._replace(record_count=2**31 - 1, last_offset_delta=2**31 - 1)[1:])
        with pytest.raises(CorruptRecordError, match="record 2"):
            stack.records.decode_records(header + batch(0, 2)[61:], check_crc=False)

    def test_offsets_that_do_not_grow(self, stack: Stack) -> None:
        bad = bytearray(batch(0, 2))
        bad[61 + 8 + 3] = 0
        with pytest.raises(CorruptRecordError, match="record 1: its offset is out of order"):
            stack.records.decode_records(bad, check_crc=False)

    def test_header_count_that_the_record_cannot_hold(self, stack: Stack) -> None:
        bad = bytearray(batch(0, 1))
        bad[-1] = 0x7E
        with pytest.raises(CorruptRecordError, match="header count"):
            stack.records.decode_records(bad, check_crc=False)

    def test_batch_that_decompresses_to_more_than_allowed(self, stack: Stack) -> None:
        bomb = encode_batch([(0, None, bytes(1_000_000), [])], compression="gzip")
        with pytest.raises(CorruptRecordError, match=r"t-0 at offset 0.*1000 bytes"):
            stack.records.decode_records(bomb, topic="t", max_decompressed=1000)

    def test_unknown_codec(self, stack: Stack) -> None:
        bad = bytearray(batch(0, 1))
        bad[22] |= 6
        with pytest.raises(CorruptRecordError, match="codec"):
            stack.records.decode_records(bad, check_crc=False)


RECORD = bytes([14, 0, 0, 0, 1, 2]) + b"v" + bytes([0])  # length 7: attributes, time, offset, no key, "v", no headers

WRONG = [
    pytest.param(RECORD[:1].replace(b"\x0e", b"\x10") + RECORD[1:] + b"?", id="longer than its fields"),
    pytest.param(bytes([12]) + RECORD[1:-1], id="no header count"),
    pytest.param(bytes([16]) + RECORD[1:], id="length too large"),
    pytest.param(bytes([13]) + RECORD[1:], id="negative length"),
    pytest.param(bytes([0]), id="nothing in it"),
    pytest.param(bytes([14, 0, 0, 0, 20, 2]) + b"v" + bytes([0]), id="key too long"),
    pytest.param(bytes([14, 0, 0, 0, 3, 2]) + b"v" + bytes([0]), id="negative key length"),
    pytest.param(bytes([14, 0, 0, 0, 1, 6]) + b"v" + bytes([0]), id="value too long"),
    pytest.param(bytes([14, 0, 0, 0, 1, 3]) + b"v" + bytes([0]), id="negative value length"),
    pytest.param(RECORD[:-1] + bytes([1]), id="negative header count"),
    pytest.param(RECORD[:-1] + bytes([8]), id="header count too large"),
    pytest.param(bytes([20]) + RECORD[1:-1] + bytes([2, 1, 0, 0]), id="header without a name"),
    pytest.param(bytes([22]) + RECORD[1:-1] + bytes([2, 2]) + b"h" + bytes([3, 0]), id="negative header length"),
    pytest.param(bytes([20]) + RECORD[1:-1] + bytes([2, 9]) + b"h" + bytes([1]), id="header name too long"),
    pytest.param(bytes([22]) + RECORD[1:-1] + bytes([2, 2]) + b"h" + bytes([8, 0]), id="header too long"),
    pytest.param(bytes([28, 0]) + b"\xff" * 9 + b"\x02" + bytes([0, 1, 1, 0]), id="timestamp of 65 bits"),
    pytest.param(bytes([22, 0, 0]) + b"\xff" * 4 + b"\x1f" + bytes([1, 1, 0, 0]), id="offset of 33 bits"),
]


@pytest.mark.parametrize("payload", WRONG)
def test_record_with_wrong_lengths_is_corrupt(stack: Stack, payload: bytes) -> None:
    """The same in a long payload as at its end: a kernel may read those in different ways."""
    right = raw_batch(RECORD)
    assert stack.records.decode_records(right, check_crc=False)[0].value == b"v"
    for data in (raw_batch(payload), raw_batch(payload + bytes([14, 0, 0, 2]) + RECORD[4:] + bytes(20), 2)):
        with pytest.raises(CorruptRecordError, match="record 0: "):
            stack.records.decode_records(data, check_crc=False)
        with pytest.raises(CorruptRecordError, match="record 0: "):
            stack.records.to_arrow([(data, "t", 0, 0)], check_crc=False)


def test_numbers_may_be_longer_than_they_need_to_be(stack: Stack) -> None:
    """Java reads them so, and so do we: 0x80 0x00 is a zero of two bytes."""
    longer = bytes([28, 0, 0x80, 0x80, 0, 0x80, 0, 0x81, 0x80, 0, 0x82, 0]) + b"v" + bytes([0x80, 0])
    data = raw_batch(longer)
    (record,) = stack.records.decode_records(data, check_crc=False)
    assert (record.offset, record.key, record.value, record.headers) == (0, None, b"v", ())
    assert stack.records.to_arrow([(data, "t", 0, 0)], check_crc=False).column("value").to_pylist() == [b"v"]
