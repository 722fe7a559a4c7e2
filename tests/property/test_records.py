"""Record batches, for any records and for any bytes: the kernels agree with the declaration and with each other."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

from construct import Container
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.records.stacks import STACKS, Stack
from tests.unit.records.test_legacy import message, wrapper
from triokafka.errors import CorruptRecordError
from triokafka.protocol.record_batch import RecordBatch
from triokafka.records import compress, decompress, encode_batch
from triokafka.records.compression import CODEC_NAMES
from triokafka.records.plain_columns import LARGEST_UNPACKED

int64 = st.integers(-(2**63), 2**63 - 1)
blobs = st.one_of(st.none(), st.binary(max_size=40), st.binary(min_size=60, max_size=300))
headers = st.lists(st.tuples(st.text(max_size=8), blobs), max_size=3)
times = st.one_of(st.integers(1_700_000_000_000, 1_700_000_100_000), int64)
records = st.lists(st.tuples(times, blobs, blobs, headers), min_size=1, max_size=12)
batches = st.fixed_dictionaries(
    {
        "base_offset": st.integers(0, 2**62),
        "producer_id": st.integers(-1, 2**63 - 1),
        "producer_epoch": st.integers(-1, 2**15 - 1),
        "base_sequence": st.integers(-1, 2**31 - 1),
        "leader_epoch": st.integers(-1, 2**31 - 1),
        "transactional": st.booleans(),
        "timestamp_type": st.sampled_from([0, 1]),
    }
)


def wrapped(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def declared(rows: list[tuple], settings: dict[str, Any]) -> Container:
    """Return the batch in the form of the declaration."""
    first = rows[0][0]
    return Container(
        base_offset=settings["base_offset"],
        content=Container(
            partition_leader_epoch=settings["leader_epoch"],
            covered=Container(
                attributes=Container(
                    delete_horizon=False,
                    control=False,
                    transactional=settings["transactional"],
                    timestamp_type=settings["timestamp_type"],
                    codec="none",
                ),
                last_offset_delta=len(rows) - 1,
                base_timestamp=first,
                max_timestamp=max(row[0] for row in rows),
                producer_id=settings["producer_id"],
                producer_epoch=settings["producer_epoch"],
                base_sequence=settings["base_sequence"],
                record_count=len(rows),
                records=[
                    Container(
                        attributes=0,
                        timestamp_delta=wrapped(time - first),
                        offset_delta=index,
                        key=key,
                        value=value,
                        headers=[Container(key=name, value=data) for name, data in own_headers],
                    )
                    for index, (time, key, value, own_headers) in enumerate(rows)
                ],
            ),
        ),
    )


@settings(deadline=None)
@given(rows=records, fields=batches)
def test_kernels_write_the_same_bytes_as_the_declaration(rows: list[tuple], fields: dict[str, Any]) -> None:
    expected = RecordBatch.build(declared(rows, fields))
    for stack in STACKS:
        assert stack.records.encode_batch(rows, **fields) == expected


@settings(deadline=None)
@given(rows=records, fields=batches)
def test_kernels_read_batches_of_the_declaration(rows: list[tuple], fields: dict[str, Any]) -> None:
    data = RecordBatch.build(declared(rows, fields))
    parsed = RecordBatch.parse(data)
    base, covered = parsed.base_offset, parsed.content.covered
    append_time = covered.max_timestamp if fields["timestamp_type"] else None
    expected = [
        (
            base + record.offset_delta,
            wrapped(covered.base_timestamp + record.timestamp_delta) if append_time is None else append_time,
            record.key,
            record.value,
            tuple((header.key, header.value) for header in record.headers),
        )
        for record in covered.records
    ]
    for stack in STACKS:
        decoded = stack.records.decode_records(data)
        assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in decoded] == expected


@given(
    rows=records,
    codec=st.sampled_from(CODEC_NAMES),
    sizes=st.lists(st.integers(1, 5), min_size=1),
    start=st.integers(0, 30),
)
def test_chunks_together_equal_the_whole_batch(rows: list[tuple], codec: str, sizes: list[int], start: int) -> None:
    data = encode_batch(rows, compression=codec) + encode_batch(rows, base_offset=20)
    for stack in STACKS:
        whole = stack.records.decode_records(data, topic="t", from_offset=start)
        decoder = stack.records.RecordDecoder(data, topic="t", from_offset=start)
        chunks: list = []
        while not decoder.exhausted:
            chunks += decoder.take(sizes[len(chunks) % len(sizes)])
            assert decoder.next_offset > chunks[-1].offset
        assert chunks == whole
        assert decoder.next_offset == max(start, 20 + len(rows))


def rows_of(stack: Stack, data: bytes) -> list[tuple]:
    decoded = stack.records.decode_records(data, check_crc=False, include_control=True, max_decompressed=1 << 20)
    return [tuple(record) for record in decoded]


def columns_of(values: str, names: list[str] | None) -> Callable[[Stack, bytes], object]:
    def decode(stack: Stack, data: bytes) -> object:
        batch = stack.records.to_arrow(
            [(data, "t", 0, 3)], columns=names, values=values, check_crc=False, max_decompressed=LARGEST_UNPACKED
        )
        batch.validate(full=True)
        # As text: a mutated timestamp may be beyond Python's datetime.
        return [
            batch.schema,
            *(column.cast("int64") if "timestamp" in str(column.type) else column for column in batch),
        ]

    return decode


DECODERS = [rows_of, columns_of("binary", None), columns_of("view", None), columns_of("binary", ["value", "offset"])]


def outcome(decode: Callable[[Stack, bytes], object], stack: Stack, data: bytes) -> object:
    """Return the decoded data; or, if the bytes are corrupt, the position in the error."""
    try:
        return decode(stack, data)
    except CorruptRecordError as error:
        return " ".join(["corrupt", *re.findall(r"record \d+|offset -?\d+|byte \d+|gzip|snappy|lz4|zstd", str(error))])


def mutated(source: random.Random, data: bytes) -> bytes:
    """Return ``data`` with some bytes changed, inserted or removed."""
    changed = bytearray(data)
    for _ in range(source.choice([1, 1, 1, 2, 5])):
        at = source.randrange(len(changed))
        kind = source.randrange(6)
        if kind < 3:
            changed[at] = source.choice([0, 1, 2, 3, 0x7F, 0x80, 0xFE, 0xFF, source.randrange(256)])
        elif kind == 3:
            changed[at] ^= 1 << source.randrange(8)
        elif kind == 4:
            changed[at:at] = source.randbytes(source.randrange(1, 12))
        else:
            del changed[at : at + source.randrange(1, 12)]
        if not changed:
            return b""
    return bytes(changed)


ROWS = [(1000 + n, b"k" * (n % 4) or None, b"v" * (n * 9), [("h", b"x"), ("", None)][: n % 3]) for n in range(12)]
INNER = b"".join(message(n, b"k", b"v" * 5 * n, timestamp=n) for n in range(6))
SEEDS = [
    encode_batch(ROWS),
    encode_batch(ROWS[:3], control=True) + encode_batch(ROWS, base_offset=5, timestamp_type=1),
    *[encode_batch(ROWS, compression=codec) for codec in CODEC_NAMES[1:]],
    INNER,
    message(3, None, b"v", magic=0) + wrapper(20, INNER, 2),
]


def test_mutated_batches_are_corrupt_or_decode_alike_with_both_kernels() -> None:
    """Only ``CorruptRecordError`` is raised; the kernels agree, also on the position (5,000 inputs)."""
    source = random.Random(20240229)
    seen = {"corrupt": 0, "decoded": 0}
    for number in range(5_000):
        data = mutated(source, SEEDS[number % len(SEEDS)])
        decode = DECODERS[source.randrange(len(DECODERS))]
        first, *others = [outcome(decode, stack, data) for stack in STACKS]
        for other in others:
            assert first == other, f"input {number}: {data!r}"
        seen["corrupt" if isinstance(first, str) else "decoded"] += 1
    assert min(seen.values()) > 1000, seen


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_corrupt_or_decode(data: bytes) -> None:
    for stack in STACKS:
        for decode in DECODERS:
            outcome(decode, stack, data)


def test_mutated_compressed_bytes_are_corrupt_or_within_the_bound() -> None:
    source = random.Random(7)
    text = b"some text that repeats, some text that repeats, " * 40
    for codec in CODEC_NAMES[1:]:
        packed = compress(codec, text)
        for _ in range(1500):
            try:
                assert len(decompress(codec, mutated(source, packed), max_size=4000)) <= 4000
            except CorruptRecordError:
                pass
