"""Batches that are rewritten with only some of their records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triokafka.protocol.record_batch import RecordBatch
from triokafka.records import decode_records, encode_batch, iter_batches
from triokafka.records.batch import DELETE_HORIZON
from triokafka.records.rewritable_batch import RewritableBatch, empty_batch

TIME = 1_700_000_000_000
RECORDS = st.lists(
    st.tuples(
        st.one_of(st.integers(TIME - 10**6, TIME + 10**6), st.integers(-(2**62), 2**62)),
        st.one_of(st.none(), st.binary(max_size=100)),
        st.one_of(st.none(), st.binary(max_size=300)),
        st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=2),
    ),
    min_size=1,
    max_size=12,
)


def opened(data: bytes) -> RewritableBatch:
    (info,) = iter_batches(data)
    return RewritableBatch(data, info)


@given(RECORDS, st.data(), st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]), st.sampled_from([0, 1]))
def test_records_that_stay_keep_offset_timestamp_and_content(
    records: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
    choice: st.DataObject,
    codec: str,
    timestamp_type: int,
) -> None:
    """For any remaining records and any codec, with and without a delete horizon (KIP-534)."""
    data = encode_batch(
        records,
        base_offset=100,
        compression=codec,
        producer_id=5,
        producer_epoch=2,
        base_sequence=40,
        transactional=True,
        leader_epoch=9,
        timestamp_type=timestamp_type,
    )
    retained = sorted(choice.draw(st.sets(st.integers(0, len(records) - 1), min_size=1)))
    horizon = choice.draw(st.one_of(st.none(), st.integers(0, 2**50)))
    target = choice.draw(st.one_of(st.none(), st.sampled_from([0, 1, 4])))
    result = opened(data).with_only(retained, delete_horizon_ms=horizon, codec=target)

    before = decode_records(data)
    assert decode_records(result) == [before[index] for index in retained]
    (old,), (new,) = iter_batches(data), iter_batches(result, check_crc=True)
    assert new[1:2] + new[3:5] + new[7:8] + new[10:13] == old[1:2] + old[3:5] + old[7:8] + old[10:13]
    assert new.record_count == len(retained)
    assert new.codec == (old.codec if target is None else target)
    assert new.is_transactional
    assert new.timestamp_type == timestamp_type
    assert opened(result).delete_horizon_ms == horizon
    expected_newest = old.max_timestamp if timestamp_type else max(before[index].timestamp for index in retained)
    assert new.max_timestamp == expected_newest


def test_rewritten_batch_keeps_its_delete_horizon() -> None:
    data = encode_batch([(TIME + i, b"%d" % i, None, ()) for i in range(4)], base_offset=7)
    first = opened(data).with_only([0, 2, 3], delete_horizon_ms=TIME + 999)
    second = opened(first).with_only([1])
    assert opened(second).delete_horizon_ms == TIME + 999
    assert [(r.offset, r.timestamp, r.key) for r in decode_records(second)] == [(9, TIME + 2, b"2")]


def test_rewritten_batch_equals_the_declaration() -> None:
    data = encode_batch([(TIME + i, b"%d" % i, b"v", ()) for i in range(3)], base_offset=7)
    parsed = RecordBatch.parse(opened(data).with_only([0, 2], delete_horizon_ms=TIME - 5))
    covered = parsed.content.covered
    assert covered.attributes.delete_horizon
    assert (covered.base_timestamp, covered.last_offset_delta, covered.record_count) == (TIME - 5, 2, 2)
    assert [(r.offset_delta, r.timestamp_delta, r.key) for r in covered.records] == [(0, 5, b"0"), (2, 7, b"2")]


def test_empty_batch_keeps_offsets_and_producer() -> None:
    data = encode_batch(
        [(TIME, b"k", b"v", ()), (TIME + 1, b"k", b"v", ())],
        base_offset=50,
        producer_id=8,
        producer_epoch=3,
        base_sequence=2**31 - 1,
        transactional=True,
        leader_epoch=4,
        compression="gzip",
    )
    (old,) = iter_batches(data)
    (new,) = iter_batches(empty_batch(old), check_crc=True)
    assert decode_records(empty_batch(old)) == []
    assert (new.base_offset, new.last_offset, new.partition_leader_epoch) == (50, 51, 4)
    assert (new.producer_id, new.producer_epoch, new.base_sequence, new.last_sequence) == (8, 3, 2**31 - 1, 0)
    assert (new.record_count, new.codec, new.is_transactional, new.max_timestamp) == (0, 0, True, TIME + 1)
    assert not new.attributes & DELETE_HORIZON


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [None, "gzip"])
def test_old_formats_become_the_new_one_when_something_goes(magic: int, codec: str | None) -> None:
    builder_module = pytest.importorskip("kafka.record.legacy_records")
    builder = builder_module.LegacyRecordBatchBuilder(
        magic=magic, compression_type=1 if codec else 0, batch_size=1 << 20
    )
    for index in range(3 if codec else 1):
        builder.append(index, timestamp=TIME + index, key=b"k%d" % index, value=None if index == 0 else b"v")
    data = bytes(builder.build())
    if codec:
        data = (2).to_bytes(8, "big") + data[8:]  # a wrapper has the offset of its last message
    batch = opened(data)
    retained = [0, 2] if codec else [0]
    result = batch.with_only(retained, delete_horizon_ms=TIME)
    (info,) = iter_batches(result, check_crc=True)
    assert info.magic == 2
    assert info.last_offset == batch.info.last_offset
    before = [batch.records[index] for index in retained]
    after = decode_records(result)
    assert [(r.offset, r.timestamp, r.key, r.value) for r in after] == [
        (r.offset, r.timestamp, r.key, r.value) for r in before
    ]
