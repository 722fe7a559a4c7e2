"""Decompression of a batch chunk by chunk, for readers that keep none of it."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Iterator

from triokafka.errors import CorruptRecordError
from triokafka.records.compression import (
    CHUNK_BYTES,
    DEFAULT_MAX_DECOMPRESSED,
    check_codec,
    codec_name,
    snappy_blocks,
    stream_chunks,
    too_large,
    zstd_module,
)
from triokafka.structs import Buffer


def decompressed_chunks(codec: int, data: Buffer, *, max_size: int = DEFAULT_MAX_DECOMPRESSED) -> Iterator[Buffer]:
    """Yield what `decompress` returns for a v2 batch, in chunks of at most `CHUNK_BYTES`.

    Memory holds one chunk and the codec's history: 32 KiB for gzip, two blocks for lz4, a frame's window for zstd. A
    block of snappy is decompressed as a whole.

    Raises:
        CorruptRecordError: as `decompress`, after the chunks before the fault.
        UnsupportedCodecError: the codec's package is missing.
    """
    name = codec_name(codec)
    if name == "none":
        if len(data) > max_size:
            raise too_large(name, max_size)
        return _slices(data)
    if name == "unknown":
        raise CorruptRecordError(f"compression codec {codec!r} is unknown")
    check_codec(codec)
    if name == "gzip":
        return stream_chunks(name, data, max_size, lambda: zlib.decompressobj(31), zlib.error)
    if name == "snappy":
        return (chunk for block in snappy_blocks(memoryview(data), max_size) for chunk in _slices(block))
    if name == "lz4":
        frame = importlib.import_module("lz4.frame")
        return stream_chunks(name, data, max_size, frame.LZ4FrameDecompressor, RuntimeError)
    module = zstd_module()
    return stream_chunks(name, data, max_size, module.ZstdDecompressor, module.ZstdError)


def _slices(data: Buffer) -> Iterator[Buffer]:
    view = memoryview(data)
    return (view[start : start + CHUNK_BYTES] for start in range(0, len(view), CHUNK_BYTES))
