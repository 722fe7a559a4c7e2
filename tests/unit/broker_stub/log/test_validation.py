"""The batches that a leader refuses, and the fields that it changes."""

from __future__ import annotations

import gzip
import random
import struct
import sys
import tracemalloc

import pytest
from crc32c import crc32c

from tests.unit.broker_stub.log.builders import NOW, append, batch, config, open_log
from triokafka.broker_stub.log import LogConfig, PartitionLog
from triokafka.broker_stub.log.validation import RejectedRecordsError, RejectedTimestampsError
from triokafka.errors import (
    BrokerResponseError,
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    UnsupportedCompressionTypeError,
)
from triokafka.records import decode_records, encode_batch, iter_batches
from triokafka.records.batch import HEADER_SIZE
from triokafka.records.compression import CODEC_IDS, compress
from triokafka.world.memory import MemoryStorage


def new_log(**values: object) -> PartitionLog:
    return open_log(MemoryStorage(), config(**values))


def refused(log: PartitionLog, data: bytes | bytearray, **options: object) -> BrokerResponseError:
    with pytest.raises(BrokerResponseError) as caught:
        append(log, data, **options)  # type: ignore[arg-type]
    assert log.log_end_offset == 0
    return caught.value


def resealed(data: bytearray) -> bytearray:
    """The batch with a checksum that fits."""
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return data


def test_a_wrong_checksum_is_refused() -> None:
    data = batch(b"a")
    data[-2] ^= 1
    assert isinstance(refused(new_log(), data), CorruptRecordError)


def test_the_beginning_of_a_batch_behind_the_batch_is_left_out() -> None:
    whole = batch(b"a")
    for rest in (b"123", whole[:-1]):
        log = new_log()
        append(log, whole + rest)
        assert len(log.read(0, 10_000).records) == len(whole)


def test_garbage_behind_the_batch_is_refused() -> None:
    assert isinstance(refused(new_log(), batch(b"a") + b"\xff" * 100), CorruptRecordError)


def test_a_batch_that_is_cut_is_none() -> None:
    data = batch(b"a")
    for size in (3, 16, 30, len(data) - 1):
        assert isinstance(refused(new_log(), data[:size]), InvalidRecordError)


@pytest.mark.parametrize("count", [0, 2])
def test_a_request_has_exactly_one_batch(count: int) -> None:
    assert isinstance(refused(new_log(), batch(b"a") * count), InvalidRecordError)


def test_the_brokers_own_appends_may_have_several_batches() -> None:
    log = new_log()
    info = append(log, batch(b"a") + batch(b"b", b"c"), from_client=False)
    assert (info.first_offset, info.last_offset) == (0, 2)
    assert [b.base_offset for b in iter_batches(log.read(0, 1000).records)] == [0, 1]


def test_a_base_offset_is_for_the_broker_to_give() -> None:
    assert isinstance(refused(new_log(), batch(b"a", base_offset=1)), InvalidRecordError)


def test_control_batches_are_for_the_broker_to_write() -> None:
    data = batch(b"a", control=True)
    assert isinstance(refused(new_log(), bytes(data)), InvalidRecordError)
    append(new_log(), data, from_client=False)


def test_old_message_formats_are_not_written() -> None:
    message = struct.pack(">bbiii", 0, 0, -1, 1, 0)[:-4] + b"x"
    data = struct.pack(">qiI", 0, len(message) + 4, __import__("zlib").crc32(message)) + message
    assert isinstance(refused(new_log(), data), InvalidRecordError)


@pytest.mark.parametrize(
    ("position", "code", "value"),
    [(23, ">i", 2), (23, ">i", 0), (23, ">i", -1), (57, ">i", 1), (57, ">i", 3), (57, ">i", 0)],
)
def test_counts_must_agree(position: int, code: str, value: int) -> None:
    data = batch(b"a", b"b")
    struct.pack_into(code, data, position, value)
    assert isinstance(refused(new_log(), resealed(data)), InvalidRecordError)


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_record_count_must_match_the_header(compression: str) -> None:
    data = batch(b"a", b"b", compression=compression)
    struct.pack_into(">i", data, 23, 2)
    struct.pack_into(">i", data, 57, 3)
    assert isinstance(refused(new_log(), resealed(data)), InvalidRecordError)


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_number_themselves_without_gaps(compression: str) -> None:
    """Else readers would get the same offset twice, or never the next one."""
    for deltas in ((0, 0), (0, 2), (1, 2), (1, 0)):
        data = batch(b"a", b"b")
        records = data[HEADER_SIZE:]
        size = len(records) // 2
        for index, delta in enumerate(deltas):
            records[index * size + 3] = 2 * delta
        data[HEADER_SIZE:] = compress(compression, records)
        struct.pack_into(">i", data, 8, len(data) - 12)
        data[22] |= CODEC_IDS[compression]
        assert isinstance(refused(new_log(), resealed(data)), InvalidRecordError)


def test_compressed_garbage_is_refused() -> None:
    data = batch(b"a", compression="gzip")
    data[65:] = b"\0" * (len(data) - 65)
    assert isinstance(refused(new_log(), resealed(data)), InvalidRecordError)


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_codec_that_there_is_not_is_refused(codec: int) -> None:
    data = batch(b"a")
    data[22] |= codec
    assert isinstance(refused(new_log(), resealed(data)), UnsupportedCompressionTypeError)


def test_the_records_and_not_the_header_say_which_timestamp_is_the_newest() -> None:
    """Look-ups by time and retention go by the header."""
    for claimed in (NOW + 10**9, NOW - 5):
        data = batch(b"a", b"b")
        struct.pack_into(">q", data, 35, claimed)
        log = new_log()
        append(log, resealed(data))
        (info,) = iter_batches(log.read(0, 1000).records, check_crc=True)
        assert info.max_timestamp == NOW + 1


def test_a_record_may_have_both_faults_and_is_named_once() -> None:
    """A missing key comes first; a single record with a bad timestamp makes it a timestamp error."""
    limits = {"message_timestamp_before_max_ms": 1000, "cleanup_policy": ("compact",)}
    error = refused(new_log(**limits), batch(b"a", b"b", key=None, timestamp=5))
    assert isinstance(error, RejectedRecordsError)
    assert [index for index, _ in error.record_errors] == [0, 1]
    records = [(NOW, None, b"a", ()), (5, b"k", b"b", ()), (NOW, b"k", b"c", ())]
    mixed = refused(new_log(**limits), bytearray(encode_batch(records)))
    assert isinstance(mixed, RejectedTimestampsError)
    assert [index for index, _ in mixed.record_errors] == [0, 1]


def test_the_wrong_things_are_found_in_kafkas_order() -> None:
    """The checksum of a batch that is too large is not computed; a wrong checksum hides all other faults."""
    data = batch(b"x" * 200, base_offset=1)
    data[-1] ^= 1
    limits = {"max_message_bytes": 100}
    assert isinstance(refused(new_log(**limits), data), InvalidRecordError)
    struct.pack_into(">q", data, 0, 0)
    struct.pack_into(">i", data, 57, 9)
    assert isinstance(refused(new_log(**limits), data), MessageSizeTooLargeError)
    assert isinstance(refused(new_log(), data), CorruptRecordError)
    assert isinstance(refused(new_log(), resealed(data)), InvalidRecordError)


def test_a_batch_above_max_message_bytes_is_refused() -> None:
    size = len(batch(b"x" * 100))
    append(new_log(max_message_bytes=size), batch(b"x" * 100))
    assert isinstance(refused(new_log(max_message_bytes=size - 1), batch(b"x" * 100)), MessageSizeTooLargeError)


def test_more_than_a_segment_is_refused() -> None:
    assert isinstance(refused(new_log(segment_bytes=100), batch(b"x" * 100)), RecordListTooLargeError)


def test_a_compacted_topic_needs_keys_and_names_the_records_without() -> None:
    error = refused(new_log(cleanup_policy=("compact",)), batch(b"a", b"b", key=None))
    assert isinstance(error, RejectedRecordsError)
    assert [index for index, _ in error.record_errors] == [0, 1]
    append(new_log(cleanup_policy=("compact",)), batch(b"a"))


def test_timestamps_must_be_in_bounds() -> None:
    limits = {"message_timestamp_before_max_ms": 1000, "message_timestamp_after_max_ms": 500}
    append(new_log(**limits), batch(b"a", timestamp=NOW - 1000))
    append(new_log(**limits), batch(b"a", timestamp=NOW + 500))
    append(new_log(**limits), batch(b"a", timestamp=-1))
    early = refused(new_log(**limits), batch(b"a", b"b", timestamp=NOW - 1001))
    assert isinstance(early, RejectedTimestampsError)
    assert [index for index, _ in early.record_errors] == [0]
    assert isinstance(refused(new_log(**limits), batch(b"a", timestamp=NOW + 501)), RejectedTimestampsError)


def test_a_topic_with_append_time_does_not_look_at_timestamps() -> None:
    append(new_log(message_timestamp_type="LogAppendTime"), batch(b"a", timestamp=NOW + 10**10))


def test_a_producer_cannot_claim_append_time() -> None:
    for timestamp_type in ("CreateTime", "LogAppendTime"):
        log = new_log(message_timestamp_type=timestamp_type)
        assert isinstance(refused(log, batch(b"a", timestamp_type=1)), InvalidTimestampError)


@pytest.mark.parametrize(("wanted", "came"), [("gzip", "none"), ("uncompressed", "gzip"), ("snappy", "gzip")])
def test_a_topic_with_a_codec_of_its_own_converts(wanted: str, came: str) -> None:
    log = new_log(compression_type=wanted)
    data = batch(b"a", b"b", compression=came, producer_id=4, producer_epoch=1, base_sequence=0)
    append(log, data, epoch=6)
    stored = log.read(0, 1000).records
    (info,) = iter_batches(stored, check_crc=True)
    assert info.compression == ("none" if wanted == "uncompressed" else wanted)
    assert (info.producer_id, info.producer_epoch, info.base_sequence) == (4, 1, 0)
    assert info.partition_leader_epoch == 6
    assert [(r.timestamp, r.key, r.value) for r in decode_records(stored)] == [(NOW, b"k", b"a"), (NOW + 1, b"k", b"b")]


def test_a_codec_that_the_topic_wants_and_is_not_installed_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the client of this topic gets the error, which is that of a codec that Kafka does not have."""
    log = new_log(compression_type="zstd")
    monkeypatch.setitem(sys.modules, "backports.zstd", None)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    assert isinstance(refused(log, batch(b"a")), UnsupportedCompressionTypeError)


@pytest.mark.parametrize(("topic", "from_client"), [("producer", True), ("gzip", True), ("producer", False)])
def test_compressed_batch_is_stored_unchanged(topic: str, from_client: bool) -> None:
    """The batch is stored and served unchanged, except for the fields outside of the checksum."""
    data = batch(b"a" * 100, b"b" * 100)
    packed = gzip.compress(data[HEADER_SIZE:], compresslevel=1, mtime=4711)  # as no compressor of the broker does
    data[HEADER_SIZE:] = packed
    struct.pack_into(">i", data, 8, len(data) - 12)
    data[22] |= CODEC_IDS["gzip"]
    sent = bytes(resealed(data))
    log = new_log(compression_type=topic)
    append(log, batch(b"before", compression="gzip"))
    append(log, sent, epoch=3, from_client=from_client)
    stored = bytes(log.read(1, 10_000).records)
    assert struct.unpack_from(">qii", stored) == (1, len(sent) - 12, 3)
    assert stored[16:] == sent[16:]


def test_a_batch_in_the_right_format_is_not_encoded_again() -> None:
    log = open_log(MemoryStorage(), LogConfig(compression_type="gzip"))
    data = batch(b"a", b"b", compression="gzip")
    append(log, data)
    assert bytes(log.read(0, 1000).records) == bytes(data)


@pytest.mark.parametrize("wanted", ["uncompressed", "snappy"])
def test_batch_that_is_too_large_in_the_codec_of_the_topic_is_refused_before_all_of_it_is_there(wanted: str) -> None:
    """30 MB of zeros take 4 KB of zstd, and 1.4 MB of snappy."""
    log = open_log(MemoryStorage(), LogConfig(compression_type=wanted))
    data = batch(bytes(30_000_000), compression="zstd")
    tracemalloc.start()
    try:
        error = refused(log, data)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()
    assert isinstance(error, MessageSizeTooLargeError)
    assert f"compression.type={wanted}" in str(error)


@pytest.mark.parametrize("wanted", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
@pytest.mark.parametrize("came", ["none", "zstd"])
def test_batch_of_many_chunks_is_converted_as_one_stream(wanted: str, came: str) -> None:
    values = [random.Random(number).randbytes(30_000).hex().encode() for number in range(10)]
    log = open_log(MemoryStorage(), LogConfig(compression_type=wanted))
    append(log, batch(*values, compression=came))
    assert [record.value for record in decode_records(log.read(0, 10_000_000).records)] == values
