"""Record batches of other clients: each side reads the other's, and uncompressed batches have the same bytes."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record._crecords import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record._crecords import MemoryRecords as AiokafkaRecords
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from tests.unit.records.stacks import STACKS

CODECS = {"none": 0, "gzip": 1, "lz4": 3, "zstd": 4}
blobs = st.one_of(st.none(), st.binary(max_size=100))
rows = st.lists(
    st.tuples(
        st.integers(1_700_000_000_000, 1_700_000_100_000),
        blobs,
        blobs,
        st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=5)), max_size=2),
    ),
    min_size=1,
    max_size=20,
)


def built(builder: Any, records: list[tuple]) -> bytes:
    for index, (timestamp, key, value, headers) in enumerate(records):
        assert builder.append(index, timestamp, key, value, headers)
    return bytes(builder.build())


def read(reader: Any) -> list[tuple]:
    found = []
    while reader.has_next():
        batch = reader.next_batch()
        assert batch.validate_crc()
        found += [(r.timestamp, r.key, r.value, list(r.headers)) for r in batch]
    return found


@settings(deadline=None)
@given(records=rows)
def test_uncompressed_batches_equal_those_of_other_clients(records: list[tuple]) -> None:
    theirs = [
        bytearray(built(make(2, 0, True, 7, 2, 30, 1 << 20), records)) for make in (AiokafkaBuilder, KafkaPythonBuilder)
    ]
    for data in theirs:
        data[12:16] = b"\xff" * 4  # the leader epoch: aiokafka writes 0 where Java and kafka-python write "unknown"
    for stack in STACKS:
        ours = stack.records.encode_batch(
            records, transactional=True, producer_id=7, producer_epoch=2, base_sequence=30
        )
        assert [ours, ours] == theirs


@pytest.mark.parametrize("codec", CODECS)
@settings(deadline=None, max_examples=30)
@given(records=rows)
def test_compressed_batches_are_read_by_others(codec: str, records: list[tuple]) -> None:
    for stack in STACKS:
        data = stack.records.encode_batch(records, compression=codec)
        assert read(KafkaPythonRecords(data)) == records
        assert read(AiokafkaRecords(data)) == records


@pytest.mark.parametrize("codec", CODECS)
@settings(deadline=None, max_examples=30)
@given(records=rows)
def test_compressed_batches_of_others_are_read(codec: str, records: list[tuple]) -> None:
    for make in (KafkaPythonBuilder, AiokafkaBuilder):
        data = built(make(2, CODECS[codec], False, -1, -1, -1, 1 << 20), records)
        for stack in STACKS:
            decoded = stack.records.decode_records(data)
            assert [(r.timestamp, r.key, r.value, list(r.headers)) for r in decoded] == records


@pytest.mark.parametrize(("magic", "codec"), [(0, "none"), (0, "gzip"), (1, "none"), (1, "gzip"), (1, "lz4")])
@settings(deadline=None, max_examples=30)
@given(records=rows)
def test_message_sets_of_kafka_python_are_read(magic: int, codec: str, records: list[tuple]) -> None:
    builder = LegacyRecordBatchBuilder(magic, CODECS[codec], 1 << 20)
    for index, (timestamp, key, value, _) in enumerate(records):
        builder.append(index, timestamp, key, value)
    data = bytes(builder.build())
    for stack in STACKS:
        decoded = stack.records.decode_records(data)
        assert [(r.key, r.value) for r in decoded] == [(key, value) for _, key, value, _ in records]
        assert [r.offset for r in decoded] == list(range(len(records)))
        if magic == 1:
            assert [r.timestamp for r in decoded] == [timestamp for timestamp, *_ in records]
