"""Records by column: the columns equal the records."""

from __future__ import annotations

import datetime
import os
import random
import struct
from typing import Any

import lz4.frame
import pyarrow as pa
import pytest
from crc32c import crc32c

from tests.unit.records.stacks import STACKS, Stack
from triokafka.errors import ConfigurationError, CorruptRecordError
from triokafka.records import ARROW_COLUMNS, encode_batch
from triokafka.records.plain_columns import HEADERS

RECORDS: list[Any] = [
    (1_700_000_000_000 + n, b"k%d" % n if n % 3 else None, b"v" * (n % 30) if n % 5 else None, headers)
    for n, headers in enumerate([[], [("a", b"x" * 20), ("é", None)], [], [("a", b"")], []] * 20)
]
PLAIN = encode_batch(RECORDS, base_offset=100, leader_epoch=2)
PACKED = encode_batch(RECORDS, base_offset=200, compression="zstd", timestamp_type=1)


def as_rows(stack: Stack, data: bytes, topic: str, partition: int, from_offset: int) -> list[dict]:
    return [
        {
            "key": r.key,
            "value": r.value,
            "topic": r.topic,
            "partition": r.partition,
            "offset": r.offset,
            "timestamp": datetime.datetime.fromtimestamp(r.timestamp / 1000, datetime.UTC),
            "timestampType": r.timestamp_type,
            "headers": [{"key": key, "value": value} for key, value in r.headers] or None,
        }
        for r in stack.records.decode_records(data, topic=topic, partition=partition, from_offset=from_offset)
    ]


@pytest.mark.parametrize("values", ["binary", "view"])
def test_columns_equal_the_records(stack: Stack, values: str) -> None:
    fetched = [(PLAIN + PACKED, "t", 3, 150), (PACKED, "u", 0, 0), (b"", "u", 1, 0)]
    batch = stack.records.to_arrow(fetched, values=values)
    batch.validate(full=True)
    assert batch.to_pylist() == [row for one in fetched for row in as_rows(stack, *one)]
    assert batch.schema == stack.records.arrow_schema(values=values)


def test_types_are_those_of_sparks_kafka_source(stack: Stack) -> None:
    schema = stack.records.to_arrow([(PLAIN, "t", 0, 0)]).schema
    assert tuple(schema.names) == ARROW_COLUMNS
    header = pa.struct([pa.field("key", pa.string(), nullable=False), ("value", pa.binary())])
    assert schema.types == [
        pa.binary(),
        pa.binary(),
        pa.string(),
        pa.int32(),
        pa.int64(),
        pa.timestamp("us", "UTC"),
        pa.int32(),
        pa.list_(pa.field("element", header, nullable=False)),
    ]


@pytest.mark.parametrize("timestamp_type", [0, 1])
def test_time_that_arrow_has_no_microseconds_for_is_the_greatest_or_least_there_is(
    stack: Stack, timestamp_type: int
) -> None:
    """Brokers before 3.6 take any number: nanoseconds, say, given as milliseconds."""
    most = (2**63 - 1) // 1000
    for given, found in ((most, most * 1000), (most + 1, 2**63 - 1), (2**63 - 1, 2**63 - 1), (-(2**62), -(2**63))):
        data = encode_batch([(given, None, b"v", [])], timestamp_type=timestamp_type)
        column = stack.records.to_arrow([(data, "t", 0, 0)], columns=["timestamp"]).column(0)
        assert column.cast(pa.int64()).to_pylist() == [found]


def test_the_first_clamped_time_is_found(stack: Stack) -> None:
    least, greatest = -(2**63), 2**63 - 1
    for times, row in (
        ([], -1),
        ([0, greatest - 1, least + 1], -1),
        ([1, 2, least, greatest], 2),
        ([greatest], 0),
        ([-1, greatest], 1),
        ([0x7FFF_FFFF, -1, 0, -(2**31)], -1),  # parts of two times
    ):
        packed = struct.pack(f"={len(times)}q", *times)
        assert stack.kernel.time_beyond(packed) == row
        assert stack.kernel.time_beyond(memoryview(b"12345678" + packed)[8:]) == row


@pytest.mark.parametrize("lengths", [(100, 99, 127, 128, 3), (20_000, 19_999, 1)])
def test_constant_columns_are_correct_for_batches_of_any_length(stack: Stack, lengths: tuple[int, ...]) -> None:
    for partition, length in enumerate(lengths):
        data = encode_batch([(1, None, None, [])] * length, timestamp_type=partition % 2)
        batch = stack.records.to_arrow([(data, "a topic", partition, 0)])
        batch.validate(full=True)
        assert batch.column("topic").to_pylist() == ["a topic"] * length
        assert batch.column("partition").to_pylist() == [partition] * length
        assert batch.column("timestampType").to_pylist() == [partition % 2] * length


def test_constant_columns_are_shared_by_batches_and_bounded(stack: Stack) -> None:
    def places(topic: str, rows: int) -> list[int]:
        data = encode_batch([(1, None, None, [])] * rows)
        batch = stack.records.to_arrow([(data, topic, 5, 0)], columns=["topic", "partition"])
        batches_alive.append(batch)
        return [column.buffers()[-1].address for column in batch.columns]

    batches_alive: list[pa.RecordBatch] = []
    assert places("shared", 1_000) == places("shared", 900)
    assert places("shared", 1_000)[0] != places("other", 1_000)[0]
    # A long column of a long name has megabytes, which are nobody's any more when the batch has gone.
    assert set(places("shared", 16_385)).isdisjoint(places("shared", 16_385))


def test_chosen_columns_come_in_the_order_asked_for(stack: Stack) -> None:
    batch = stack.records.to_arrow([(PLAIN, "t", 0, 0)], columns=["offset", "value"])
    assert batch.schema.names == ["offset", "value"]
    assert batch.column("value").to_pylist() == [value for _, _, value, _ in RECORDS]


def test_unrequested_columns_are_not_decoded(stack: Stack) -> None:
    bad = bytearray(encode_batch([(1, None, b"v", [("ab", b"x")])]))
    bad[bad.index(b"ab") - 1] = 0x7E  # the length of the header's name
    with pytest.raises(CorruptRecordError):
        stack.records.to_arrow([(bad, "t", 0, 0)], check_crc=False)
    batch = stack.records.to_arrow([(bad, "t", 0, 0)], columns=["value"], check_crc=False)
    assert batch.to_pydict() == {"value": [b"v"]}


def test_no_records_make_an_empty_batch(stack: Stack) -> None:
    for values in ("binary", "view"):
        batch = stack.records.to_arrow([], values=values)
        batch.validate(full=True)
        assert (batch.num_rows, batch.schema) == (0, stack.records.arrow_schema(values=values))


def test_views_point_into_the_fetched_bytes(stack: Stack) -> None:
    """Zero copy: a view's data buffer is the fetch buffer itself, and it lives as long as the batch."""
    fetched = bytearray(encode_batch([(1, None, b"a long value that does not fit a view", [])]))
    batch = stack.records.to_arrow([(memoryview(fetched), "t", 0, 0)], columns=["value"], values="view")
    fetched[fetched.index(b"long")] = ord("L")
    assert batch.column("value").to_pylist() == [b"a Long value that does not fit a view"]
    with pytest.raises(BufferError):
        fetched.clear()


def test_every_data_buffer_is_held_once(stack: Stack) -> None:
    fetched = [(bytearray(PLAIN + PACKED + PLAIN), "t", 0, 0) for _ in range(3)]
    batch = stack.records.to_arrow(fetched, columns=["value"], values="view")
    buffers = batch.column("value").buffers()[2:]
    assert len({buffer.address for buffer in buffers}) == len(buffers)


def test_builder_takes_as_many_as_asked_for_and_continues_in_the_next_batch(stack: Stack) -> None:
    decoder = stack.records.RecordDecoder(PLAIN + PACKED, topic="t", partition=3)
    offsets = []
    for limit, position in [(30, 130), (100, 230), (1000, 300)]:
        builder = stack.records.ArrowBuilder(["offset", "timestampType"])
        taken = builder.add(decoder, limit)
        assert (taken, builder.rows, decoder.next_offset) == (min(limit, 300 - position + taken), taken, position)
        batch = builder.finish()
        offsets += batch.column("offset").to_pylist()
    assert offsets == list(range(100, 300))
    assert batch.column("timestampType").to_pylist() == [1] * 70


@pytest.mark.parametrize("values", ["binary", "view"])
@pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
def test_builder_is_full_behind_the_batch_that_reaches_its_bytes(stack: Stack, codec: str, values: str) -> None:
    rows: list[Any] = [(1, b"key", bytes(97), [])] * 50
    data = b"".join(encode_batch(rows, base_offset=50 * n, compression=codec) for n in range(7))
    decoder = stack.records.RecordDecoder(data, topic="t")
    taken = []
    while not decoder.exhausted:
        builder = stack.records.ArrowBuilder(["key", "value"], values=values, most_bytes=2 * 50 * 109 + 1)
        assert not builder.is_full
        builder.add(decoder)
        assert builder.is_full or decoder.exhausted
        assert builder.add(decoder) == 0
        taken.append(builder.finish().num_rows)
    assert taken == [150, 150, 50]


def with_frame(frame: bytes, count: int, base_offset: int = 0, timestamp_type: int = 0) -> bytes:
    """A batch of so many records that are in an lz4 frame."""
    head = bytearray(
        encode_batch([(1_700_000_000_000, None, b"", [])], base_offset=base_offset, timestamp_type=timestamp_type)[:61]
    )
    struct.pack_into(">i", head, 8, 49 + len(frame))
    head[22] |= 3
    struct.pack_into(">i", head, 23, count - 1)
    struct.pack_into(">i", head, 57, count)
    struct.pack_into(">I", head, 17, crc32c(bytes(head[21:]) + frame))
    return bytes(head) + frame


# Larger than a compression block. Some of the content cannot be compressed, and is stored.
PAYLOADS: list[Any] = [
    [(1_700_000_000_000 + n, b"%d" % n, b"text %d " % n * 40, []) for n in range(700)],
    [(1_700_000_000_000 + n, None, os.urandom(900), []) for n in range(200)],
    [(1_700_000_000_000, b"", b"", [("h", b"v")])],
]
LZ4 = {
    "as clients do": {"block_linked": False},
    "large blocks": {"block_linked": False, "block_size": lz4.frame.BLOCKSIZE_MAX4MB},
    "blocks of 256 KiB": {"block_linked": False, "block_size": lz4.frame.BLOCKSIZE_MAX256KB},
    "linked blocks": {"block_linked": True},
    "one linked block": {"block_linked": True, "block_size": lz4.frame.BLOCKSIZE_MAX1MB},
    "sizes": {"block_linked": False, "store_size": True},
    "checksums": {"block_linked": False, "block_checksum": True, "content_checksum": True},
}


@pytest.mark.parametrize("form", LZ4)
@pytest.mark.parametrize("values", ["binary", "view"])
def test_every_form_of_lz4_frames(stack: Stack, form: str, values: str) -> None:
    data, plain, offset = b"", b"", 0
    for number, rows in enumerate(PAYLOADS):
        batch = encode_batch(rows, base_offset=offset, timestamp_type=number % 2)
        plain += batch
        data += with_frame(
            lz4.frame.compress(batch[61:], **{"store_size": False, **LZ4[form]}), len(rows), offset, number % 2
        )
        offset += len(rows)
    # With the broker's time of all records each batch has one of its own.
    chosen = ["key", "value", "offset", "timestampType", "headers"]
    found, expected = (
        stack.records.to_arrow([(each, "t", 0, 3)], columns=chosen, values=values) for each in (data, plain)
    )
    found.validate(full=True)
    assert found == expected


def test_usual_lz4_is_decompressed_within_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    (stack, *_) = STACKS
    if stack.name == "plain":
        return
    monkeypatch.setattr(stack.decoder, "parse_batch", None)
    first, second, _ = PAYLOADS
    data = encode_batch(first, compression="lz4") + encode_batch(second, base_offset=len(first), compression="lz4")
    assert stack.records.to_arrow([(data, "t", 0, 0)]).num_rows == len(first) + len(second)


def mixed(count: int, seed: int) -> list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
    """Records with and without keys, values and headers, of no bytes to some kilobytes, which lz4 makes smaller."""
    chance = random.Random(seed)

    def text(longest: int) -> bytes | None:
        return chance.choice([None, b"", b"%d " % chance.randrange(99) * chance.randrange(longest)])

    return [
        (1_700_000_000_000 + n, text(9), text(900), [("name", text(20)) for _ in range(chance.choice([0, 0, 1, 3]))])
        for n in range(count)
    ]


@pytest.mark.parametrize("columns", [ARROW_COLUMNS, ("offset", "value"), ("key", "headers")], ids="-".join)
def test_lz4_batches_equal_uncompressed_ones(stack: Stack, columns: tuple[str, ...]) -> None:
    """Behind the first one, blocks are decompressed where their values go, and keys and headers lie between these."""
    batches = [mixed(count, seed) for seed, count in enumerate((50, 1, 300, 7, 7, 60, 1, 1, 90))]
    data, plain, offset = b"", b"", 0
    for rows in batches:
        data += encode_batch(rows, base_offset=offset, compression="lz4")
        plain += encode_batch(rows, base_offset=offset)
        offset += len(rows)
    found, expected = (stack.records.to_arrow([(each, "t", 0, 3)], columns=columns) for each in (data, plain))
    found.validate(full=True)
    assert found.num_rows == offset - 3
    assert found == expected


def test_damaged_lz4_batch_does_not_change_earlier_rows(stack: Stack) -> None:
    good = [mixed(40, seed) for seed in range(3)]
    data = b"".join(encode_batch(rows, base_offset=40 * n, compression="lz4") for n, rows in enumerate(good))
    whole = encode_batch(mixed(40, 3))[61:]
    bad = data + with_frame(lz4.frame.compress(whole + b"!", block_linked=False, store_size=False), 40, 120)
    decoder, right = (stack.records.RecordDecoder(each, topic="t") for each in (bad, data))
    builder, expected = stack.records.ArrowBuilder(), stack.records.ArrowBuilder()
    expected.add(right)
    with pytest.raises(CorruptRecordError, match="offset 120"):
        while True:
            builder.add(decoder)
    assert builder.finish().slice(0, 120) == expected.finish()


def test_lz4_that_is_more_than_is_allowed_is_refused(stack: Stack) -> None:
    data = encode_batch(PAYLOADS[0], compression="lz4")
    with pytest.raises(CorruptRecordError, match="more than the 1000 bytes"):
        stack.records.to_arrow([(data, "t", 0, 0)], max_decompressed=1000)


def test_lz4_blocks_of_nothing_are_corrupt_where_there_should_be_records(stack: Stack) -> None:
    empty = lz4.frame.compress(b"", block_linked=False, store_size=False)
    one_of_nothing = empty[:7] + b"\x01\0\0\0\0" + bytes(4)
    for frame in (empty, one_of_nothing, lz4.frame.compress(bytes(5), block_linked=False, store_size=False)):
        with pytest.raises(CorruptRecordError):
            stack.records.to_arrow([(with_frame(frame, 1), "t", 0, 0)])


def test_lz4_batches_that_claim_too_many_records_are_corrupt_and_no_room_is_made_for_these(stack: Stack) -> None:
    frame = lz4.frame.compress(encode_batch(RECORDS)[61:], block_linked=False, store_size=False)
    data = with_frame(frame, 2**31 - 1) * 5_000
    with pytest.raises(CorruptRecordError, match="record 100"):
        stack.records.to_arrow([(data, "t", 0, 0)], columns=["offset"])


@pytest.mark.parametrize("header", [("n", b""), ("", b"v"), ("", None)], ids=["name", "value", "number"])
def test_room_is_counted_for_names_values_and_numbers_of_headers(
    stack: Stack, header: tuple[str, bytes | None]
) -> None:
    """Each has 32-bit offsets of its own, and of a byte of records a name may get three."""
    most = (2**31 - 1) // 3
    data = encode_batch([(1, None, None, [header] * 2)])
    appender = stack.kernel.ColumnAppender(HEADERS, False)
    assert appender.has_room(most) and not appender.has_room(most + 1)
    stack.records.RecordDecoder(data).take_columns(appender, 1, lambda _: 0)
    assert not appender.has_room(most)
    assert appender.has_room(most - 2)


def test_a_full_builder_takes_no_other_batch(stack: Stack) -> None:
    """Skipped records count as well, but a builder without any record continues."""
    aborted = encode_batch(RECORDS, transactional=True, producer_id=5)
    more = encode_batch(RECORDS, base_offset=300, compression="zstd")
    decoder = stack.records.RecordDecoder(aborted + PACKED + more, from_offset=0, aborted=[(5, 0)])
    taken = []
    for _ in range(3):
        builder = stack.records.ArrowBuilder(["offset"], most_bytes=1)
        taken.append(builder.add(decoder))
        assert builder.is_full == (builder.rows > 0)
    assert taken == [100, 100, 0]


def test_rows_and_columns_may_take_turns(stack: Stack) -> None:
    decoder = stack.records.RecordDecoder(PLAIN)
    assert len(decoder.take(10)) == 10
    builder = stack.records.ArrowBuilder(["offset"])
    builder.add(decoder, 10)
    assert builder.finish().column("offset").to_pylist() == list(range(110, 120))
    assert decoder.take(1)[0].offset == 120


def test_aborted_transactions_are_left_out(stack: Stack) -> None:
    data = encode_batch(RECORDS[:2], transactional=True, producer_id=5) + encode_batch(RECORDS[:1], base_offset=2)
    builder = stack.records.ArrowBuilder(["offset"])
    builder.add(stack.records.RecordDecoder(data, aborted=[(5, 0)]))
    assert builder.finish().column("offset").to_pylist() == [2]


def test_corrupt_batch_stops_behind_the_good_ones(stack: Stack) -> None:
    bad = bytearray(PACKED)
    bad[-1] ^= 1
    decoder = stack.records.RecordDecoder(PLAIN + bad, topic="t", partition=3)
    builder = stack.records.ArrowBuilder()
    assert builder.add(decoder) == 100
    with pytest.raises(CorruptRecordError, match="t-3 at offset 200"):
        builder.add(decoder)
    assert builder.finish().num_rows == 100
    with pytest.raises(CorruptRecordError, match="t-3 at offset 200"):
        stack.records.to_arrow([(PLAIN + bad, "t", 3, 0)])


@pytest.mark.parametrize("rest", [b"", b"\0"], ids=["record", "bytes behind"])
def test_nothing_of_a_batch_is_handed_out_when_its_last_record_is_bad(stack: Stack, rest: bytes) -> None:
    """The next position is before this batch with both kernels: otherwise its first records would be returned twice."""
    bad = bytearray(PLAIN + rest)
    struct.pack_into(">i", bad, 8, len(bad) - 12)
    if not rest:
        bad[-1] = 2  # headers that are not there
    decoder = stack.records.RecordDecoder(PLAIN + bad.replace(PLAIN[:8], struct.pack(">q", 200)), check_crc=False)
    builder = stack.records.ArrowBuilder()
    assert builder.add(decoder) == 100
    with pytest.raises(CorruptRecordError):
        builder.add(decoder)
    assert (builder.rows, decoder.next_offset) == (100, 200)


def test_header_names_are_valid_utf8_whatever_was_sent(stack: Stack) -> None:
    data = bytearray(encode_batch([(1, None, None, [("abc", None)])]))
    data[data.index(b"abc")] = 0xFF
    batch = stack.records.to_arrow([(data, "t", 0, 0)], check_crc=False, columns=["headers"])
    batch.validate(full=True)
    assert batch.to_pylist() == [{"headers": [{"key": "\ufffdbc", "value": None}]}]


@pytest.mark.parametrize(
    ("columns", "words"), [(["ofset"], "did you mean 'offset'"), (["xyz"], "key, value"), (["key", "key"], "twice")]
)
def test_wrong_columns_are_refused(stack: Stack, columns: list[str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        stack.records.ArrowBuilder(columns)


def test_wrong_kind_of_values_is_refused(stack: Stack) -> None:
    with pytest.raises(ConfigurationError, match="'binary' or 'view'"):
        stack.records.ArrowBuilder(values="text")
