"""Decompressing into buffers that are used again: the same bytes and errors as `decompress`, and never under a view."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import lz4.frame
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from triokafka.errors import CorruptRecordError, UnsupportedCodecError
from triokafka.records import RecordDecoder, compress, decompress, encode_batch
from triokafka.records import decompressor as module
from triokafka.records.compression import CODEC_IDS, CODEC_NAMES
from triokafka.records.decompressor import Decompressor

TEXT = b"".join(b"flight %d of carrier %d; " % (n * 7919 % 100_000, n % 16) for n in range(10_000))
NOISE = os.urandom(1000)
CODECS = CODEC_NAMES[1:]
FRAMES = {
    "linked": lz4.frame.compress(TEXT, block_linked=True),
    "one linked block": lz4.frame.compress(TEXT[:60_000], block_linked=True),
    "sizes and checksums": lz4.frame.compress(TEXT, store_size=True, content_checksum=True, block_checksum=True),
    "large blocks": lz4.frame.compress(TEXT, block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False),
    "two frames": compress("lz4", TEXT) + compress("lz4", b"more"),
    "stored": compress("lz4", os.urandom(200_000)),
}


def outcome(codec: int, data: bytes, decompressor: Decompressor | None = None, **options: int) -> object:
    try:
        return bytes((decompressor.decompress if decompressor is not None else decompress)(codec, data, **options))
    except CorruptRecordError as error:
        return str(error)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("data", [b"", b"x", NOISE, TEXT, TEXT * 40], ids=["empty", "one", "noise", "text", "much"])
def test_decompressor_equals_decompress(codec: str, data: bytes) -> None:
    decompressor = Decompressor()
    packed = compress(codec, data)
    for _ in range(2):
        assert bytes(decompressor.decompress(CODEC_IDS[codec], memoryview(packed))) == data


@pytest.mark.parametrize("form", FRAMES)
def test_every_form_of_lz4_frames(form: str) -> None:
    assert bytes(Decompressor().decompress(3, FRAMES[form])) == decompress("lz4", FRAMES[form])


def test_zstd_that_is_larger_than_any_before() -> None:
    decompressor = Decompressor()
    for size in (10, 300_000, 200_000, 3_000_000, 300_000):
        data = (TEXT * 20)[:size]
        assert bytes(decompressor.decompress(4, compress("zstd", data))) == data


@pytest.mark.parametrize("codec", CODECS)
def test_larger_than_allowed_is_refused_as_decompress_does(codec: str) -> None:
    packed = compress(codec, TEXT)
    decompressor = Decompressor()
    for most in (len(TEXT), len(TEXT) - 1, 1, 0):
        assert outcome(CODEC_IDS[codec], packed, decompressor, max_size=most) == outcome(
            CODEC_IDS[codec], packed, max_size=most
        )


@given(
    codec=st.sampled_from(["lz4", "zstd"]),
    size=st.integers(0, 3000),
    cut=st.integers(0, 400),
    changes=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=3),
    more=st.binary(max_size=12),
)
@example(codec="lz4", size=0, cut=0, changes=[], more=b"\0\0\0\0")
@example(codec="zstd", size=900, cut=3, changes=[], more=b"")
def test_damaged_data_gives_the_same_bytes_or_the_same_error(
    codec: str, size: int, cut: int, changes: list[tuple[int, int]], more: bytes
) -> None:
    packed = bytearray(compress(codec, TEXT[:size]))
    for position, byte in changes:
        packed[position % len(packed)] = byte
    data = bytes(packed[: len(packed) - cut]) + more if cut else bytes(packed) + more
    assert outcome(CODEC_IDS[codec], data, Decompressor()) == outcome(CODEC_IDS[codec], data)


@pytest.mark.parametrize("codec", [3, 4])
def test_buffer_with_views_is_not_overwritten(codec: int) -> None:
    decompressor = Decompressor()
    pieces = [bytes([65 + n % 26]) * (20_000 + n) for n in range(100)]
    held = [decompressor.decompress(codec, compress(codec, piece)) for piece in pieces]
    assert [bytes(view) for view in held] == pieces
    assert memoryview(held[0]).readonly


def test_buffers_without_views_are_reused() -> None:
    decompressor = Decompressor()
    packed = compress("lz4", TEXT)
    for _ in range(100):
        decompressor.decompress(3, packed)
    assert decompressor.kept_bytes == (1 << 20) + 1
    held = [decompressor.decompress(3, packed) for _ in range(20)]
    kept = decompressor.kept_bytes
    del held
    again = [decompressor.decompress(3, packed) for _ in range(20)]
    assert (len(again), decompressor.kept_bytes) == (20, kept)


def test_keeps_no_more_than_its_bound() -> None:
    decompressor = Decompressor()
    packed = compress("lz4", bytes(1 << 20))
    held = [decompressor.decompress(3, packed) for _ in range(100)]
    assert decompressor.kept_bytes <= 32 << 20
    assert all(len(view) == 1 << 20 for view in held)


def test_few_bytes_that_are_held_keep_no_large_buffers() -> None:
    decompressor = Decompressor()
    decompressor.decompress(4, compress("zstd", bytes(3 << 20)))
    packed = compress("zstd", b"few")
    held = [decompressor.decompress(4, packed) for _ in range(100)]
    buffers = {id(view.obj): memoryview(view.obj).nbytes for view in held if isinstance(view, memoryview)}
    assert 0 < sum(buffers.values()) <= 32 << 20, "each would keep the room of the largest batch before it"
    assert all(bytes(view) == b"few" for view in held)
    del held
    assert isinstance(decompressor.decompress(4, packed), memoryview)


def test_another_thread_does_not_wait_for_it() -> None:
    decompressor = Decompressor()
    packed = compress("lz4", TEXT)
    got: list[bytes] = []
    with decompressor._lock:
        thread = threading.Thread(target=lambda: got.append(bytes(decompressor.decompress(3, packed))))
        thread.start()
        thread.join(30)
    assert got == [TEXT]


@pytest.mark.parametrize("missing", ["cramjam", "lz4.frame"])
def test_does_without_a_package(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    module._cramjam.cache_clear()
    try:
        packed = compress("zstd", TEXT)
        assert bytes(Decompressor().decompress(4, packed)) == TEXT
        if missing == "lz4.frame":
            with pytest.raises(UnsupportedCodecError, match="lz4 needs the package"):
                Decompressor().decompress(3, FRAMES["stored"])
    finally:
        module._cramjam.cache_clear()


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_decoders_that_share_one_take_turns_in_the_middle_of_batches(codec: str) -> None:
    decompressor = Decompressor()
    rows: list[Any] = [[(n, None, b"%d of %d" % (n, log), []) for n in range(50)] for log in range(3)]
    decoders = [
        RecordDecoder(encode_batch(log, compression=codec), topic=f"t{number}", decompressor=decompressor)
        for number, log in enumerate(rows)
    ]
    got: list[list[bytes | None]] = [[], [], []]
    for _ in range(17):
        for number, decoder in enumerate(decoders):
            got[number] += [record.value for record in decoder.take(3)]
    assert got == [[value for _, _, value, _ in log] for log in rows]


def test_a_block_whose_bytes_are_damaged_is_refused() -> None:
    packed = bytearray(compress("lz4", TEXT))
    packed[12:40] = b"\xff" * 28
    with pytest.raises(CorruptRecordError, match="lz4 data cannot be decompressed"):
        Decompressor().decompress(3, bytes(packed))
