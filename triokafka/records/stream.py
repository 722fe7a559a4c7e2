"""Decompression of a batch chunk by chunk, for readers that keep none of it."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Iterator
from typing import Any, Final

from triokafka.errors import CorruptRecordError
from triokafka.records.compression import (
    DEFAULT_MAX_DECOMPRESSED,
    check_codec,
    codec_name,
    snappy_blocks,
    too_large,
    zstd_module,
)
from triokafka.structs import Buffer

CHUNK_BYTES: Final = 64 << 10
"""The largest chunk of `decompressed_chunks`, in bytes."""

_INPUT_BYTES: Final = 16 << 10
"""The number of compressed bytes per call: some decompressors copy the unread rest at every call."""


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
        return _stream(name, data, max_size, lambda: zlib.decompressobj(31), zlib.error)
    if name == "snappy":
        return (chunk for block in snappy_blocks(memoryview(data), max_size) for chunk in _slices(block))
    if name == "lz4":
        frame = importlib.import_module("lz4.frame")
        return _stream(name, data, max_size, frame.LZ4FrameDecompressor, RuntimeError)
    module = zstd_module()
    return _stream(name, data, max_size, module.ZstdDecompressor, module.ZstdError)


def _slices(data: Buffer) -> Iterator[Buffer]:
    view = memoryview(data)
    return (view[start : start + CHUNK_BYTES] for start in range(0, len(view), CHUNK_BYTES))


def _stream(name: str, data: Buffer, max_size: int, new: Any, error: type[Exception]) -> Iterator[Buffer]:
    """Run a decompressor object over one or several concatenated streams."""
    view = memoryview(data)
    size = position = 0
    rest: Buffer = b""  # read from the data, but not decompressed yet
    try:
        stream = new()
        while True:
            if not rest and getattr(stream, "needs_input", True):
                rest = view[position : position + _INPUT_BYTES]
                position += len(rest)
            part = stream.decompress(rest, min(CHUNK_BYTES, max_size + 1 - size))
            size += len(part)
            if size > max_size:
                raise too_large(name, max_size)
            if part:
                yield part
            if stream.eof:
                rest = stream.unused_data or b""
                if not rest and position == len(view):
                    return
                stream = new()
                continue
            # zlib returns the input that it did not use; the others keep it.
            rest = getattr(stream, "unconsumed_tail", b"")
            if not part and not rest and position == len(view):
                raise CorruptRecordError(f"{name} data ends too early")
    except (error, EOFError, ValueError) as failure:
        raise CorruptRecordError(f"{name} data cannot be decompressed: {failure}") from failure
