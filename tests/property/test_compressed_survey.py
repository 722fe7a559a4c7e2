"""A survey of records during decompression finds the same as a survey of the whole decompressed batch."""

from __future__ import annotations

import gzip
import random
import re
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.test_records import mutated
from tests.unit.records.stacks import STACKS
from triokafka.errors import CorruptRecordError
from triokafka.records import encode_batch, iter_batches
from triokafka.records.batch import HEADER_SIZE
from triokafka.records.compression import CODEC_IDS, compress, decompress, zstd_module

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MOST = 8 << 20
INT64 = (1 << 63) - 1

_lengths = st.one_of(st.integers(0, 40), st.integers(32_700, 32_800), st.integers(65_400, 70_000), st.just(300_000))
_values = st.one_of(st.none(), st.builds(lambda size, byte: bytes([byte]) * size, _lengths, st.integers(0, 255)))
_headers = st.lists(st.tuples(st.text(max_size=8), _values), max_size=2)
_rows = st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), _values, _values, _headers), min_size=1, max_size=6)


def reference(codec: str, data: bytes, count: int, base_timestamp: int, most: int = MOST) -> Any:
    """Return the survey of the whole batch: it is decompressed first, and then surveyed."""
    try:
        plain = decompress(codec, data, max_size=most)
        return STACKS[0].kernel.survey_records(plain, 0, len(plain), count, base_timestamp, "t", 3)
    except CorruptRecordError as error:
        return message(error)


def surveyed(stack: Any, codec: str, data: bytes, count: int, base_timestamp: int, most: int = MOST) -> Any:
    try:
        found = stack.kernel.survey_compressed(
            data, 0, len(data), CODEC_IDS[codec], count, base_timestamp, "t", 3, most, -INT64 - 1, INT64, False
        )
    except CorruptRecordError as error:
        return message(error)
    assert found.refused == 0
    return tuple(found[:3])


def message(error: CorruptRecordError) -> Any:
    """Return the message; for a bad record only its position, because the plain implementation words the error
    differently.
    """
    if STACKS[0].name == "compiled":
        return str(error)
    return re.findall(r"record \d+|bytes follow", str(error)) or str(error)


def check(codec: str, data: bytes, count: int, base_timestamp: int, most: int = MOST) -> Any:
    expected = reference(codec, data, count, base_timestamp, most)
    for stack in STACKS:
        assert surveyed(stack, codec, data, count, base_timestamp, most) == expected, stack
    return expected


def records_of(rows: list[tuple]) -> tuple[bytes, int, int]:
    data = bytes(encode_batch(rows))
    info = next(iter_batches(data))
    return data[HEADER_SIZE:], info.record_count, info.base_timestamp


def seed_rows(chance: random.Random, largest: int) -> list[tuple]:
    def blob() -> bytes | None:
        size = chance.choice([0, 3, 40, 300, chance.randrange(largest)])
        return None if chance.random() < 0.1 else chance.randbytes(size // 2) + b"x" * (size - size // 2)

    return [
        (1_700_000_000_000 + chance.randrange(1000), blob(), blob(), [("h", blob())] * chance.choice([0, 0, 0, 2]))
        for _ in range(chance.randrange(1, 12))
    ]


@settings(deadline=None, max_examples=60)
@given(rows=_rows, codec=st.sampled_from(CODECS))
def test_survey_of_chunks_equals_the_survey_of_the_batch(rows: list[tuple], codec: str) -> None:
    plain, count, base = records_of(rows)
    assert isinstance(check(codec, compress(codec, plain), count, base), tuple)


@settings(deadline=None, max_examples=400)
@given(seed=st.integers(0, 2**32), codec=st.sampled_from(CODECS))
def test_broken_records_are_refused_with_the_same_message(seed: int, codec: str) -> None:
    chance = random.Random(seed)
    plain, count, base = records_of(seed_rows(chance, chance.choice([100, 200_000])))
    if chance.random() < 0.3:
        at = chance.randrange(min(len(plain), 12))  # the first record's numbers
        plain = plain[:at] + bytes([chance.randrange(256)]) + plain[at + 1 :]
    else:
        plain = mutated(chance, plain)
    check(codec, compress(codec, plain), count + chance.choice([0, 0, 1, -1]), base)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_every_flipped_bit_is_accepted_or_refused_as_in_the_whole_batch(codec: str) -> None:
    plain, count, base = records_of([(7, b"key", b"value" * 9, [("h", b"x")]), (9, None, None, []), (8, b"", b"v", [])])
    data = compress(codec, plain)
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        check(codec, bytes(flipped), count, base)


@pytest.mark.parametrize("codec", CODECS)
def test_every_truncated_batch_is_refused_as_the_whole_batch_is(codec: str) -> None:
    plain, count, base = records_of([(7, b"key", b"value" * 9, [("h", b"x")]), (9, None, b"ab" * 99, [])])
    data = compress(codec, plain)
    for size in range(len(data)):
        assert isinstance(check(codec, data[:size], count, base), (str, list))
    for size in range(len(plain)):
        assert isinstance(check(codec, compress(codec, plain[:size]), count, base), (str, list))


@settings(deadline=None, max_examples=200)
@given(seed=st.integers(0, 2**32), codec=st.sampled_from(CODECS[1:]))
def test_broken_compressed_data_is_refused_with_the_same_message(seed: int, codec: str) -> None:
    chance = random.Random(seed)
    plain, count, base = records_of(seed_rows(chance, 150_000))
    check(codec, mutated(chance, compress(codec, plain)), count, base)


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**32), codec=st.sampled_from(CODECS))
def test_the_limit_of_decompressed_bytes_is_exact(seed: int, codec: str) -> None:
    chance = random.Random(seed)
    plain, count, base = records_of(seed_rows(chance, 150_000))
    data = compress(codec, plain)
    assert isinstance(check(codec, data, count, base, len(plain)), tuple)
    assert "more than the" in str(check(codec, data, count, base, len(plain) - 1))
    check(codec, data, count + 1, base, max(0, len(plain) - chance.randrange(1, 70_000)))


def lz4_frame(plain: bytes, **options: Any) -> bytes:
    frame = pytest.importorskip("lz4.frame")
    return bytes(frame.compress(plain, **options))


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
@pytest.mark.parametrize("checksums", [False, True])
def test_frames_of_lz4_of_every_kind_are_read(linked: bool, block_size: int, checksums: bool) -> None:
    chance = random.Random(block_size)
    plain, count, base = records_of([(1, b"k", chance.randbytes(300) * 3, [])] * 3000)
    data = lz4_frame(
        plain, block_linked=linked, block_size=block_size, content_checksum=checksums, block_checksum=checksums
    )
    assert check("lz4", data, count, base) == (1, 1, 0)


def test_concatenated_streams_are_read_as_one() -> None:
    plain, count, base = records_of([(1, b"k", b"v" * 50_000, [])] * 5)
    half = len(plain) // 2
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        data = compress(codec, plain[:half]) + compress(codec, plain[half:])
        assert check(codec, data, count, base) == (1, 1, 0)
        assert isinstance(check(codec, data + b"\0", count, base), (str, list))
    assert check("gzip", gzip.compress(plain, compresslevel=9), count, base) == (1, 1, 0)


def bare_snappy(*elements: bytes, size: int) -> bytes:
    length = bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([*length, size]) + b"".join(elements)


def literal(data: bytes) -> bytes:
    return bytes([62 << 2]) + (len(data) - 1).to_bytes(3, "little") + data


def copy(offset: int, length: int) -> bytes:
    return bytes([(length - 1) << 2 | 3]) + offset.to_bytes(4, "little")


@pytest.mark.parametrize("offset", [1, 3, 8, 15, 16, 65_535, 65_536, 65_537, 150_000, 299_999, 300_000])
def test_a_bare_block_of_snappy_may_refer_to_anything_in_it(offset: int) -> None:
    """Writers refer to the preceding 64 KiB; the format allows more."""
    value = random.Random(3).randbytes(300_000)
    head, count, base = records_of([(1, b"k", value + bytes(64), [])])
    start = head.index(value)
    head, tail = head[:start], head[start + len(value) + 64 :]
    data = bare_snappy(
        literal(head), literal(value), copy(offset, 64), literal(tail), size=len(head) + len(value) + 64 + len(tail)
    )
    assert check("snappy", data, count, base) == (1, 1, 0)
    short = bare_snappy(literal(head), literal(value), copy(offset, 64), size=len(head) + len(value) + 65)
    assert isinstance(check("snappy", short, count, base), (str, list))


def test_reference_before_a_block_of_snappy_is_refused() -> None:
    for offset in (0, 11, 1 << 31):
        assert "snappy" in str(check("snappy", bare_snappy(literal(b"x" * 10), copy(offset, 4), size=14), 1, 0))


def test_survey_names_the_first_refused_records() -> None:
    """Of 150 records with timestamps out of bounds, the first hundred are named, and all are counted."""
    rows: list[tuple] = [(1000 + index, None if index % 2 else b"k", b"v", []) for index in range(300)]
    plain, count, base = records_of(rows)
    for codec in CODECS:
        data = compress(codec, plain)
        for stack in STACKS:
            found = stack.kernel.survey_compressed(
                data, 0, len(data), CODEC_IDS[codec], count, base, "t", 3, MOST, 1000, 1149, False
            )
            assert (found.oldest, found.newest, found.keyless) == (1000, 1299, 150)
            assert (found.refused, found.untimely, len(found.blamed)) == (150, True, 100)
            assert found.blamed[0] == (150, 1150, False)
            found = stack.kernel.survey_compressed(
                data, 0, len(data), CODEC_IDS[codec], count, base, "t", 3, MOST, 0, 10_000, True
            )
            assert (found.refused, found.untimely) == (150, False)
            assert found.blamed[:2] == [(1, 1001, True), (3, 1003, True)]


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak of memory is read from /proc")
@pytest.mark.parametrize("codec", CODECS[1:])
def test_memory_does_not_grow_with_the_size_of_a_batch(codec: str) -> None:
    """Decompressing 20 MB to 100 MB and more would show in the peak memory of the process."""
    plain, count, base = records_of([(1, b"k", bytes(20_000), [])] * 5000)
    data = compress(codec, plain)
    most = 2 * len(plain)
    del plain
    for stack in STACKS:
        assert surveyed(stack, codec, data, count, base, most) == (1, 1, 0)
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak
        before = resident("VmRSS")
        assert surveyed(stack, codec, data, count, base, most) == (1, 1, 0)
        assert resident("VmHWM") - before < 16 << 20, stack


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak of memory is read from /proc")
def test_frames_of_zstd_with_much_history_are_read_one_at_a_time() -> None:
    """Each frame may need up to 128 MiB of history."""
    zstd = zstd_module()
    plain, count, base = records_of([(1, b"k", bytes(20_000), [])] * 3000)
    parameter = zstd.CompressionParameter
    data = zstd.compress(plain, options={parameter.window_log: 27, parameter.content_size_flag: 0})
    most = len(plain)
    del plain
    found = []

    def survey() -> None:
        found.append(surveyed(STACKS[0], "zstd", data, count, base, most))

    survey()
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    threads = [threading.Thread(target=survey) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [(1, 1, 0)] * 6
    if STACKS[0].name == "compiled":
        assert resident("VmHWM") - before < 2 * most


def resident(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) << 10


def test_payload_outside_of_the_buffer_is_an_error() -> None:
    for stack in STACKS:
        for start, end in ((-1, 2), (2, 1), (0, 4)):
            with pytest.raises(ValueError, match="outside of the buffer"):
                stack.kernel.survey_compressed(b"abc", start, end, 3, 1, 0, "t", 3, MOST, 0, 0, False)


def test_no_reference_to_the_data_remains() -> None:
    for codec in CODECS:
        data = bytearray(compress(codec, records_of([(1, b"k", b"v" * 100, [])])[0]))
        for stack in STACKS:
            before = sys.getrefcount(data)
            for broken in (data, bytearray(data[:-1])):
                surveyed(stack, codec, broken, 1, 1)  # type: ignore[arg-type]
            assert sys.getrefcount(data) == before
            data.append(data.pop())  # raises BufferError while the data are exported
