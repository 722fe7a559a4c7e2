"""The sink acknowledges exactly the records that a broker would."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from crc32c import crc32c

from triokafka.cli.load.sink import Sink
from triokafka.errors import (
    CorruptRecordError,
    OutOfOrderSequenceNumberError,
    UnsupportedForMessageFormatError,
)
from triokafka.protocol.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from triokafka.records import encode_batch, set_producer_state

COUNT_AT = 57
DELTA_AT = 23


def batch(*values: bytes, compression: str = "none") -> bytearray:
    return bytearray(encode_batch([(0, None, value, []) for value in values], compression=compression))


def resealed(made: bytearray) -> bytearray:
    """With the checksum that its changed header has."""
    made[17:21] = crc32c(bytes(made[21:])).to_bytes(4, "big")
    return made


def produce(sink: Sink, records: bytes | bytearray | None) -> Any:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=records)])],
    )
    return sink.produce(request).responses[0].partition_responses[0]


def seen(sink: Sink) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(sink.report("t"))
    return found


def test_offsets_go_up_by_the_records() -> None:
    sink = Sink()
    assert [produce(sink, batch(b"a", b"b")).base_offset for _ in range(3)] == [0, 2, 4]
    assert seen(sink)["records"] == 6
    assert seen(sink)["refused"] == 0


def test_a_wrong_checksum_is_refused() -> None:
    sink, made = Sink(), batch(b"a")
    made[-1] ^= 1
    assert produce(sink, made).error_code == CorruptRecordError.code
    assert seen(sink)["records"] == 0
    assert "checksum" in seen(sink)["reason"]


def test_more_records_in_the_header_than_in_the_batch_are_refused() -> None:
    made = batch(b"a", b"b")
    made[DELTA_AT : DELTA_AT + 4] = struct.pack(">i", 999)
    made[COUNT_AT : COUNT_AT + 4] = struct.pack(">i", 1000)
    assert produce(Sink(), resealed(made)).error_code == CorruptRecordError.code


def test_a_count_that_does_not_go_with_the_offsets_is_refused() -> None:
    made = batch(b"a", b"b")
    made[DELTA_AT : DELTA_AT + 4] = struct.pack(">i", 5)
    assert produce(Sink(), resealed(made)).error_code == CorruptRecordError.code


@pytest.mark.parametrize("garbage", [None, b"", b"x", b"garbage" * 20], ids=["null", "none", "short", "long"])
def test_invalid_batch_is_refused(garbage: bytes | None) -> None:
    assert produce(Sink(), garbage).error_code == CorruptRecordError.code


def test_half_a_batch_is_refused() -> None:
    made = batch(b"a")
    assert produce(Sink(), made + made[:-1]).error_code == CorruptRecordError.code


def test_messages_of_old_formats_are_refused() -> None:
    from kafka.record.legacy_records import LegacyRecordBatchBuilder

    builder = LegacyRecordBatchBuilder(magic=1, compression_type=0, batch_size=9999)
    builder.append(0, timestamp=0, key=None, value=b"a")
    assert produce(Sink(), bytes(builder.build())).error_code == UnsupportedForMessageFormatError.code


def test_a_sequence_number_that_is_not_the_next_is_refused() -> None:
    sink = Sink()

    def numbered(sequence: int) -> bytearray:
        made = batch(b"a", b"b")
        set_producer_state(made, 0, 7, 0, sequence)
        return made

    assert produce(sink, numbered(0)).base_offset == 0
    assert produce(sink, numbered(2)).base_offset == 2
    assert produce(sink, numbered(2)).error_code == OutOfOrderSequenceNumberError.code
    assert produce(sink, numbered(6)).error_code == OutOfOrderSequenceNumberError.code


def test_records_are_counted_by_codec() -> None:
    sink = Sink()
    produce(sink, batch(b"a" * 500, b"b" * 500, compression="gzip"))
    produce(sink, batch(b"c"))
    assert seen(sink)["codecs"] == {"gzip": 2, "none": 1}


def test_with_check_the_values_are_summed_up_in_their_order() -> None:
    sink = Sink(check_everything=True)
    produce(sink, batch(b"one", b"two"))
    produce(sink, batch(b"three", compression="gzip"))
    assert seen(sink)["values_crc"] == crc32c(b"onetwothree")
    assert seen(sink)["decoded"] == 2
