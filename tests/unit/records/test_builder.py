"""Building a batch record by record."""

from __future__ import annotations

import mmap

import pytest

from tests.unit.records.stacks import Stack
from triokafka.errors import ConfigurationError, IllegalStateError, MessageSizeTooLargeError

HEADER_SIZE = 61


def values_of(stack: Stack, batch: bytes) -> list[bytes | None]:
    return [record.value for record in stack.records.decode_records(batch)]


def records(values: list[bytes]) -> list[tuple[int, None, bytes, tuple[()]]]:
    return [(5, None, value, ()) for value in values]


def test_append_tells_the_number_of_the_record_in_the_batch(stack: Stack) -> None:
    builder = stack.records.BatchBuilder(1000)
    assert [builder.append(5, None, b"x"), builder.append(6, b"k", None, [("h", b"")])] == [0, 1]
    assert builder.count == 2
    batch = builder.build(9, 1, 40, True)
    (info,) = stack.records.iter_batches(batch, check_crc=True)
    assert (info.producer_id, info.producer_epoch, info.base_sequence, info.is_transactional) == (9, 1, 40, True)
    assert (info.base_timestamp, info.max_timestamp, info.record_count) == (5, 6, 2)


def test_record_that_does_not_fit_changes_nothing(stack: Stack) -> None:
    builder = stack.records.BatchBuilder(200)
    assert builder.append(5, None, b"a" * 100) == 0
    before = (builder.size, builder.count, builder.max_timestamp)
    assert builder.append(9, None, b"b" * 100) == -1
    assert (builder.size, builder.count, builder.max_timestamp) == before
    assert builder.append(7, None, b"c") == 1, "a smaller one may still fit"
    assert values_of(stack, builder.build()) == [b"a" * 100, b"c"]


def test_batch_is_filled_to_the_last_byte(stack: Stack) -> None:
    record = 7 + 10
    builder = stack.records.BatchBuilder(HEADER_SIZE + 2 * record)
    assert [builder.append(5, None, b"0123456789") for _ in range(3)] == [0, 1, -1]
    assert builder.full
    assert len(builder.build()) == HEADER_SIZE + 2 * record == builder.estimated_size


def test_first_record_is_taken_however_large(stack: Stack) -> None:
    builder = stack.records.BatchBuilder(100)
    assert builder.append(5, None, b"x" * 100_000) == 0
    assert builder.append(5, None, b"y") == -1
    assert values_of(stack, builder.build()) == [b"x" * 100_000]


def test_built_batch_takes_no_more_and_is_built_once(stack: Stack) -> None:
    builder = stack.records.BatchBuilder(1000)
    builder.append(5, None, b"x")
    batch = builder.build(3, 0, 0)
    assert builder.append(5, None, b"y") == -1
    assert builder.build(4, 0, 0) is batch
    assert builder.full


def test_closed_batch_takes_no_more_and_can_be_built_later(stack: Stack) -> None:
    builder = stack.records.BatchBuilder(1000)
    builder.append(5, None, b"x")
    builder.close()
    assert (builder.append(5, None, b"y"), builder.append_records([(5, None, b"z", ())])) == (-1, 0)
    assert values_of(stack, builder.build()) == [b"x"]


def test_batch_without_records_is_refused(stack: Stack) -> None:
    with pytest.raises(IllegalStateError):
        stack.records.BatchBuilder(1000).build()
    with pytest.raises(IllegalStateError):
        stack.records.encode_batch([])


def test_pooled_buffer_is_written_to_in_place(stack: Stack) -> None:
    pooled = bytearray(1000)
    builder = stack.records.BatchBuilder(1000, buffer=pooled)
    builder.append(5, None, b"x")
    batch = builder.build()
    assert builder.buffer is pooled
    assert batch.obj is pooled
    assert len(pooled) == 1000


def test_pooled_buffer_that_is_too_small_is_left_alone(stack: Stack) -> None:
    """The pool gets its own buffer back at its own size."""
    pooled = bytearray(100)
    builder = stack.records.BatchBuilder(100, buffer=pooled)
    builder.append(5, None, b"x" * 500)
    assert builder.buffer is not pooled
    assert len(pooled) == 100
    assert values_of(stack, builder.build()) == [b"x" * 500]


def test_many_records_are_added_until_one_does_not_fit(stack: Stack) -> None:
    values = [bytes([n]) * 10 for n in range(20)]
    builder = stack.records.BatchBuilder(HEADER_SIZE + 5 * 17)
    assert builder.append_records(records(values)) == 5
    rest = stack.records.BatchBuilder(1000)
    assert rest.append_records(records(values[5:])) == 15
    assert values_of(stack, builder.build()) + values_of(stack, rest.build()) == values


def test_value_that_is_not_bytes_leaves_the_batch_as_it_was(stack: Stack) -> None:
    builder = stack.records.BatchBuilder(1000)
    builder.append(5, None, b"x")
    for bad in ("text", 7, object()):
        with pytest.raises(TypeError):
            builder.append(6, None, bad)
        with pytest.raises(TypeError):
            builder.append(6, bad, b"y")
    assert values_of(stack, builder.build()) == [b"x"]


def test_memory_that_is_not_contiguous_is_refused(stack: Stack) -> None:
    builder = stack.records.BatchBuilder(1000)
    with pytest.raises(BufferError):
        builder.append(5, None, memoryview(b"abcdef")[::2])
    assert builder.count == 0


class TestCompressed:
    """A compressed batch closes by an estimate of its size."""

    def test_limit_is_judged_by_the_expected_ratio(self, stack: Stack) -> None:
        plain = stack.records.BatchBuilder(1000, compression="gzip")
        halved = stack.records.BatchBuilder(1000, compression="gzip", expected_ratio=0.5)
        values = records([b"x" * 93] * 50)
        assert plain.append_records(values) == 8
        assert halved.append_records(values) == 17
        assert halved.estimated_size <= 1000

    def test_compression_ratio_is_known_after_the_build(self, stack: Stack) -> None:
        builder = stack.records.BatchBuilder(1000, compression="gzip")
        builder.append_records(records([b"x" * 93] * 8))
        batch = builder.build()
        assert builder.compression_ratio == (len(batch) - HEADER_SIZE) / (8 * 102) < 0.2
        assert builder.estimated_size == len(batch)
        assert values_of(stack, batch) == [b"x" * 93] * 8

    def test_batch_that_compression_makes_larger_is_whole(self, stack: Stack) -> None:
        incompressible = bytes(range(256))
        pooled = bytearray(300)
        builder = stack.records.BatchBuilder(10, compression="snappy", buffer=pooled)
        builder.append(5, None, incompressible[:230])
        assert values_of(stack, builder.build()) == [incompressible[:230]]
        assert len(pooled) == 300

    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"compression": "brotli"}, "brotli"),
            ({"compression": 9}, "9"),
            ({"compression": "gzip", "level": 10}, "level 10 of gzip"),
            ({"compression": "lz4", "level": 0}, "level 0 of lz4"),
            ({"compression": "zstd", "level": 23}, "level 23 of zstd"),
            ({"compression": "snappy", "level": 1}, "snappy has no levels"),
        ],
    )
    def test_wrong_codec_or_level_is_refused_at_once(self, stack: Stack, settings: dict, words: str) -> None:
        with pytest.raises(ConfigurationError, match=words):
            stack.records.BatchBuilder(1000, **settings)


def test_batch_larger_than_the_protocol_allows_is_refused(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    if stack.name == "plain":
        appender = stack.records.BatchBuilder.__base__
        monkeypatch.setitem(appender.append.__globals__, "MAX_BATCH_SIZE", 5000)
        builder = stack.records.BatchBuilder(100)
        with pytest.raises(MessageSizeTooLargeError, match="5000"):
            builder.append(5, None, b"x" * 6000)
    else:
        builder = stack.records.BatchBuilder(100)
        with mmap.mmap(-1, 2**31) as huge, pytest.raises(MessageSizeTooLargeError, match=str(2**31 - 65)):
            builder.append(5, None, huge)  # pages that are never touched
    assert builder.count == 0
