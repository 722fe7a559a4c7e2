"""Encoding and decoding batches of format v2, with both kernels."""

from __future__ import annotations

import pickle
import tracemalloc
from typing import Any

import pytest

from tests.unit.records.stacks import Stack
from triokafka.errors import CorruptRecordError

RECORDS: list[Any] = [
    (1_700_000_000_000, b"k", b"v", [("name", b"x"), ("none", None), ("", b"")]),
    (1_700_000_000_005, None, b"", []),
    (1_699_999_999_000, b"", None, []),
    (1_700_000_000_005, b"a" * 300, b"b" * 70_000, [("é", b"\xff" * 200)]),
]


def as_tuples(records: list) -> list:
    return [(r.timestamp, r.key, r.value, list(r.headers)) for r in records]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_encoded_records_are_decoded_again(stack: Stack, codec: str) -> None:
    batch = stack.records.encode_batch(RECORDS, base_offset=7, compression=codec, leader_epoch=3)
    decoded = stack.records.decode_records(batch, topic="t", partition=2)
    assert as_tuples(decoded) == RECORDS
    assert [r.offset for r in decoded] == [7, 8, 9, 10]
    assert {(r.topic, r.partition, r.leader_epoch, r.timestamp_type) for r in decoded} == {("t", 2, 3, 0)}


def test_known_bytes(stack: Stack) -> None:
    """Written down from the format: one record "k" -> "v" at time 1000, offset 0."""
    batch = stack.records.encode_batch([(1000, b"k", b"v", [])])
    record = bytes([16, 0, 0, 0, 2]) + b"k" + bytes([2]) + b"v" + bytes([0])
    assert batch[61:] == record
    assert batch[:12] == bytes(8) + (49 + len(record)).to_bytes(4, "big")
    assert batch[12:17] == b"\xff\xff\xff\xff\x02"
    assert batch[21:61] == bytes(6) + (1000).to_bytes(8, "big") * 2 + b"\xff" * 14 + (1).to_bytes(4, "big")


def test_both_kernels_encode_the_same_bytes() -> None:
    from tests.unit.records.stacks import STACKS

    assert len({stack.records.encode_batch(RECORDS, base_offset=1, producer_id=5) for stack in STACKS}) == 1


def test_log_append_time_is_the_time_of_every_record(stack: Stack) -> None:
    batch = bytearray(stack.records.encode_batch(RECORDS))
    stack.records.patch_batch(batch, 0, base_offset=40, leader_epoch=6, max_timestamp=123, timestamp_type=1)
    decoded = stack.records.decode_records(batch)
    assert {(r.timestamp, r.timestamp_type) for r in decoded} == {(123, 1)}
    assert [r.offset for r in decoded] == [40, 41, 42, 43]
    assert decoded[0].leader_epoch == 6


def test_assigning_offset_and_epoch_leaves_the_checksum_alone(stack: Stack) -> None:
    batch = bytearray(stack.records.encode_batch(RECORDS))
    checksum = batch[17:21]
    stack.records.patch_batch(memoryview(batch), 0, base_offset=1 << 40, leader_epoch=9)
    assert batch[17:21] == checksum
    (info,) = stack.records.iter_batches(batch, check_crc=True)
    assert (info.base_offset, info.partition_leader_epoch, info.last_offset) == (1 << 40, 9, (1 << 40) + 3)


def test_producer_state_is_written_with_a_new_checksum(stack: Stack) -> None:
    batch = b"?" + stack.records.encode_batch(RECORDS)
    buffer = bytearray(batch)
    stack.records.set_producer_state(buffer, 1, 77, 2, 2**31 - 2)
    (info,) = stack.records.iter_batches(memoryview(buffer)[1:], check_crc=True)
    assert (info.producer_id, info.producer_epoch, info.base_sequence) == (77, 2, 2**31 - 2)
    assert info.last_sequence == 1, "sequence numbers wrap to 0"


def test_control_batches_are_not_handed_out(stack: Stack) -> None:
    marker = stack.records.encode_batch([(5, b"\0\0\0\1", b"", [])], control=True, transactional=True, producer_id=1)
    data = stack.records.encode_batch(RECORDS[:1], base_offset=1)
    assert [r.offset for r in stack.records.decode_records(marker + data)] == [1]
    assert len(stack.records.decode_records(marker + data, include_control=True)) == 2


def test_wrong_checksum_is_detected_unless_the_check_is_off(stack: Stack) -> None:
    batch = bytearray(stack.records.encode_batch([(5, None, b"value", [])]))
    batch[-2] ^= 1
    with pytest.raises(CorruptRecordError, match=r"t-3 at offset 0.*checksum"):
        stack.records.decode_records(batch, topic="t", partition=3)
    assert stack.records.decode_records(batch, check_crc=False)[0].value == b"valud"


def test_timestamps_far_apart_and_negative(stack: Stack) -> None:
    times = [-1, 2**63 - 1, -(2**63), 0]
    batch = stack.records.encode_batch([(time, None, None, []) for time in times])
    assert [r.timestamp for r in stack.records.decode_records(batch)] == times


def test_timestamp_beyond_64_bits_is_refused(stack: Stack) -> None:
    with pytest.raises(OverflowError):
        stack.records.encode_batch([(2**63, None, None, [])])
    with pytest.raises(OverflowError):
        stack.records.encode_batch([(0, None, None, []), (2**64, None, None, [])])


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_keys_and_values_may_be_any_bytes_like_object(stack: Stack, kind: type) -> None:
    batch = stack.records.encode_batch([(1, kind(b"key"), kind(b"value"), [("h", kind(b"x"))])])
    assert as_tuples(stack.records.decode_records(batch)) == [(1, b"key", b"value", [("h", b"x")])]


@pytest.mark.parametrize("wrong", ["text", 5, 1.5])
def test_non_bytes_value_is_a_type_error(stack: Stack, wrong: object) -> None:
    for record in [(1, wrong, b"", []), (1, b"", wrong, []), (1, None, None, [("h", wrong)])]:
        with pytest.raises(TypeError):
            stack.records.encode_batch([record])


def test_header_name_that_is_not_utf8_is_read_as_java_reads_it(stack: Stack) -> None:
    batch = bytearray(stack.records.encode_batch([(1, None, None, [("ab", b"x")])]))
    at = batch.index(b"ab")
    batch[at] = 0xFF
    (record,) = stack.records.decode_records(batch, check_crc=False)
    assert record.headers == (("\ufffdb", b"x"),)


def test_headers_take_memory_once_they_are_read(stack: Stack) -> None:
    """A batch of few bytes may hold millions, which would occupy a consumer for seconds."""
    count = 20_000
    batch = stack.records.encode_batch([(0, None, b"v", [("", None)] * count)])
    stack.records.decode_records(batch)
    tracemalloc.start()
    try:
        (record,) = stack.records.decode_records(batch)
        assert tracemalloc.get_traced_memory()[1] < 20 * count
        assert record.headers == (("", None),) * count
        assert tracemalloc.get_traced_memory()[0] > 50 * count
        assert record.headers is record.headers
    finally:
        tracemalloc.stop()
    assert record.deserialized(None, None).headers == record.headers


@pytest.mark.parametrize(("at", "reason"), [(-4, "a header name"), (-2, "a header value")])
def test_damaged_header_after_many_good_ones_is_found_at_once(stack: Stack, at: int, reason: str) -> None:
    batch = bytearray(stack.records.encode_batch([(0, None, b"v", [("h", b"x")] * 1_500)]))
    batch[at] = 0x7E
    with pytest.raises(CorruptRecordError, match="header"):
        stack.records.decode_records(batch, check_crc=False)


class TestConsumerRecord:
    """One record, the same for both kernels."""

    def make(self, stack: Stack, **changes: object) -> Any:
        fields = {"timestamp": 5, "key": b"k", "value": b"value", "headers": (("h", b"12"),), "leader_epoch": 4}
        return stack.records.ConsumerRecord("t", 1, 9, **(fields | changes))

    def test_has_kafka_pythons_attributes_in_its_order(self, stack: Stack) -> None:
        record = self.make(stack)
        assert list(record) == ["t", 1, 4, 9, 5, 0, b"k", b"value", (("h", b"12"),), None, 1, 5, 3]
        assert (record[0], record[3], record[-1], record[6:8], len(record)) == ("t", 9, 3, (b"k", b"value"), 13)
        assert repr(record).startswith("ConsumerRecord(topic='t', partition=1, leader_epoch=4, offset=9, timestamp=5")

    def test_attributes_are_those_of_kafka_python(self, stack: Stack) -> None:
        fetcher = pytest.importorskip("kafka.consumer.fetcher")
        record = self.make(stack)
        assert record._fields == fetcher.ConsumerRecord._fields
        assert [getattr(record, name) for name in record._fields] == list(record)

    def test_is_taken_apart_and_changed_as_kafka_pythons_named_tuple(self, stack: Stack) -> None:
        record = self.make(stack)
        assert list(record._asdict().items()) == list(zip(record._fields, record, strict=True))
        changed = record._replace(value=b"longer value", offset=10)
        assert changed == self.make(stack)._replace(offset=10, value=b"longer value") != record
        assert changed._asdict() == record._asdict() | {"value": b"longer value", "offset": 10}
        for name in ("nothing", "checksum"):
            with pytest.raises(ValueError, match=name):
                record._replace(**{name: 1})

    def test_null_key_and_value_have_size_minus_one(self, stack: Stack) -> None:
        record = self.make(stack, key=None, value=None, headers=())
        assert (record.serialized_key_size, record.serialized_value_size, record.serialized_header_size) == (-1, -1, -1)

    def test_is_read_only(self, stack: Stack) -> None:
        record = self.make(stack)
        for name in ("offset", "key", "topic", "other"):
            with pytest.raises(AttributeError):
                setattr(record, name, 1)
        with pytest.raises(AttributeError):
            del record.value

    def test_is_compared_and_hashed_by_value(self, stack: Stack) -> None:
        assert self.make(stack) == self.make(stack)
        assert hash(self.make(stack)) == hash(self.make(stack))
        for changes in ({"key": b"x"}, {"timestamp": 6}, {"headers": ()}, {"timestamp_type": 1}, {"leader_epoch": 5}):
            assert self.make(stack) != self.make(stack, **changes)
        assert self.make(stack) != tuple(self.make(stack))

    def test_keeps_its_sizes_when_deserialized(self, stack: Stack) -> None:
        record = self.make(stack).deserialized("k", {"a": 1})
        assert (record.key, record.value, record.offset, record.topic) == ("k", {"a": 1}, 9, "t")
        assert (record.serialized_key_size, record.serialized_value_size) == (1, 5)


def test_record_that_was_pickled_is_the_same() -> None:
    from triokafka.records import ConsumerRecord, decode_records, encode_batch

    (record,) = decode_records(encode_batch(RECORDS[:1], leader_epoch=3), topic="t", partition=1)
    copy = pickle.loads(pickle.dumps(record.deserialized("key", 5)))
    assert isinstance(copy, ConsumerRecord)
    assert list(copy) == list(record.deserialized("key", 5))
