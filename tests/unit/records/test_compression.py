"""The codecs: compatible with Java, and bounded on hostile bytes."""

from __future__ import annotations

import gzip
import struct
import sys
import tracemalloc
import zlib
from typing import Any

import cramjam
import lz4.frame
import pytest

from triokafka.errors import ConfigurationError, CorruptRecordError, UnsupportedCodecError
from triokafka.records import compress, decompress
from triokafka.records.compression import CODEC_NAMES, _decompress_stream, compress_chunks, zstd_module

CODECS = CODEC_NAMES[1:]
TEXT = b"".join(b"flight %d of carrier %d; " % (n * 7919 % 100_000, n % 16) for n in range(10_000))


@pytest.mark.parametrize("codec", CODEC_NAMES)
@pytest.mark.parametrize("data", [b"", b"x", TEXT], ids=["empty", "one", "text"])
def test_compressed_data_is_decompressed_again(codec: str, data: bytes) -> None:
    packed = compress(codec, memoryview(data))
    assert decompress(codec, memoryview(packed)) == data
    assert decompress(CODEC_NAMES.index(codec), packed) == data


@pytest.mark.parametrize("codec", CODECS)
def test_text_becomes_smaller(codec: str) -> None:
    assert len(compress(codec, TEXT)) < len(TEXT) / 2


@pytest.mark.parametrize(
    ("codec", "level"), [("gzip", 1), ("gzip", 9), ("lz4", 1), ("lz4", 9), ("lz4", 17), ("zstd", -7), ("zstd", 19)]
)
def test_levels_of_kip_390(codec: str, level: int) -> None:
    assert decompress(codec, compress(codec, TEXT, level)) == TEXT


def test_higher_level_compresses_more() -> None:
    for codec, low, high in [("gzip", 1, 9), ("lz4", 9, 12), ("zstd", -50, 19)]:
        assert len(compress(codec, TEXT, high)) < len(compress(codec, TEXT, low))


@pytest.mark.parametrize("codec", CODEC_NAMES)
@pytest.mark.parametrize("sizes", [[], [0], [5], [70_000], [0, 1, 65_536, 100_000, 3], [32_768] * 5])
def test_chunks_are_compressed_into_one_stream(codec: str, sizes: list[int]) -> None:
    chunks = [(TEXT * 2)[:size] for size in sizes]
    packed = compress_chunks(codec, chunks, most=1 << 20)
    assert packed is not None
    assert decompress(codec, packed) == b"".join(chunks)
    assert compress_chunks(codec, chunks, most=len(packed)) == packed
    if packed:
        assert compress_chunks(codec, chunks, most=len(packed) - 1) is None
    assert packed.count(b"\x04\x22\x4d\x18") == (codec == "lz4")


def test_chunks_are_compressed_with_the_level_that_is_requested() -> None:
    for codec, low, high in [("gzip", 1, 9), ("lz4", 9, 12), ("zstd", -50, 19)]:
        chunks = [TEXT[:100_000], TEXT[100_000:]]
        packed = [compress_chunks(codec, chunks, level, most=1 << 20) for level in (low, high)]
        assert len(packed[1] or b"") < len(packed[0] or b"")


class TestSnappy:
    """Java frames snappy as the xerial stream; librdkafka and Sarama write raw blocks."""

    def test_writes_xerial_blocks_of_32_kib(self) -> None:
        packed = compress("snappy", TEXT)
        assert packed.startswith(b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1))
        position, sizes = 16, []
        while position < len(packed):
            (size,) = struct.unpack_from(">i", packed, position)
            sizes.append(len(cramjam.snappy.decompress_raw(packed[position + 4 : position + 4 + size])))
            position += 4 + size
        assert set(sizes[:-1]) == {32 * 1024}
        assert sum(sizes) == len(TEXT)

    def test_reads_raw_blocks(self) -> None:
        assert decompress("snappy", bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT

    def test_reads_streams_joined_together(self) -> None:
        assert decompress("snappy", compress("snappy", TEXT) + compress("snappy", b"more")) == TEXT + b"more"

    def test_length_that_no_block_can_hold_is_refused_before_it_is_allocated(self) -> None:
        with pytest.raises(CorruptRecordError, match="claims to hold"):
            decompress("snappy", b"\xff\xff\xff\x1f" + b"\0" * 20, max_size=1 << 30)


class TestLz4:
    """Java's reader wants independent blocks; v0 messages have Kafka's wrong header checksum."""

    def test_blocks_are_independent_64_kib_without_content_size(self) -> None:
        info = lz4.frame.get_frame_info(compress("lz4", TEXT))
        assert (info["block_linked"], info["block_size"], info["content_size"]) == (False, 65536, 0)

    def test_reads_linked_blocks_and_content_sizes(self) -> None:
        packed = lz4.frame.compress(TEXT, block_linked=True, store_size=True, content_checksum=True)
        assert decompress("lz4", packed) == TEXT

    @pytest.mark.parametrize("size", [False, True])
    def test_wrong_header_checksum_is_accepted_in_v0_only(self, size: bool) -> None:
        packed = bytearray(lz4.frame.compress(TEXT, store_size=size))
        packed[14 if size else 6] ^= 0x55
        assert decompress("lz4", packed, magic=0) == TEXT
        with pytest.raises(CorruptRecordError):
            decompress("lz4", packed)


class TestHostile:
    """Only ``CorruptRecordError``, and no more memory than allowed."""

    @pytest.mark.parametrize("codec", CODECS)
    def test_larger_than_allowed_is_refused_and_names_the_bound(self, codec: str) -> None:
        packed = compress(codec, TEXT)
        assert decompress(codec, packed, max_size=len(TEXT)) == TEXT
        with pytest.raises(CorruptRecordError, match=f"{codec} .*{len(TEXT) - 1} bytes"):
            decompress(codec, packed, max_size=len(TEXT) - 1)

    @pytest.mark.parametrize("codec", CODECS)
    def test_bomb_is_never_allocated(self, codec: str) -> None:
        bomb = compress(codec, bytes(64 << 20))
        tracemalloc.start()
        try:
            with pytest.raises(CorruptRecordError):
                decompress(codec, bomb, max_size=1 << 20)
            assert tracemalloc.get_traced_memory()[1] < 4 << 20
        finally:
            tracemalloc.stop()

    @pytest.mark.parametrize("codec", CODECS)
    def test_cut_short_is_corrupt(self, codec: str) -> None:
        packed = compress(codec, TEXT)
        for length in [0, 1, 5, 17, 20, len(packed) // 2, len(packed) - 1]:
            with pytest.raises(CorruptRecordError):
                decompress(codec, packed[:length])

    @pytest.mark.parametrize("codec", CODECS)
    def test_garbage_is_corrupt(self, codec: str) -> None:
        with pytest.raises(CorruptRecordError):
            decompress(codec, b"this is not compressed at all")

    @pytest.mark.parametrize("codec", [5, 7, -1, "brotli"])
    def test_unknown_codec_is_corrupt_when_reading_and_wrong_use_when_writing(self, codec: int | str) -> None:
        with pytest.raises(CorruptRecordError, match="unknown"):
            decompress(codec, b"")
        with pytest.raises(ConfigurationError, match="none, gzip, snappy, lz4, zstd"):
            compress(codec, b"")


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_very_many_streams_joined_together_take_linear_time(codec: str) -> None:
    """A decompressor copies the rest of its input at the end of each stream: not all of the data, or a small batch
    would keep a reader busy for minutes."""
    count = 20_000
    data = compress(codec, b"") * count + compress(codec, TEXT)
    copied = 0

    class Counting:
        """A decompressor that counts the bytes behind its stream."""

        def __init__(self, stream: Any) -> None:
            self._stream = stream

        def __getattr__(self, name: str) -> Any:
            nonlocal copied
            value = getattr(self._stream, name)
            if name == "unused_data":
                copied += len(value or b"")
            return value

    new, error = {
        "gzip": (lambda: zlib.decompressobj(31), zlib.error),
        "lz4": (lz4.frame.LZ4FrameDecompressor, RuntimeError),
        "zstd": (zstd_module().ZstdDecompressor, zstd_module().ZstdError),
    }[codec]
    assert _decompress_stream(codec, data, 1 << 20, lambda: Counting(new()), error) == TEXT
    assert copied < count * 16_384 + len(data)
    assert decompress(codec, data) == TEXT


def test_gzip_members_joined_together_are_one() -> None:
    assert decompress("gzip", gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"


@pytest.mark.parametrize(("codec", "module"), [("snappy", "cramjam"), ("lz4", "lz4.frame"), ("zstd", "backports.zstd")])
def test_missing_package_error_names_the_extra(codec: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = compress(codec, TEXT)
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    for use in (lambda: compress(codec, TEXT), lambda: decompress(codec, packed)):
        with pytest.raises(UnsupportedCodecError, match=rf"{codec} needs the package .*triokafka\[compression\]"):
            use()
