"""Decompression into reused buffers.

The operating system takes back a new buffer after every batch and faults it in again, which costs more than the codec.
This module reads only the usual forms of a batch. `decompress` handles all others, damaged ones included, and reports
their errors.
"""

from __future__ import annotations

import importlib
import threading
from functools import cache
from typing import Any, Final

from triokafka.records.compression import (
    CODEC_IDS,
    DEFAULT_MAX_DECOMPRESSED,
    decompress,
    is_lz4_header,
)
from triokafka.structs import Buffer

_LZ4: Final = CODEC_IDS["lz4"]
_ZSTD: Final = CODEC_IDS["zstd"]
_LZ4_HEADER: Final = 7
_LZ4_STORED: Final = 1 << 31
_LZ4_BLOCK_SIZES: Final = {0x40: 64 << 10, 0x50: 256 << 10, 0x60: 1 << 20, 0x70: 4 << 20}
_LZ4_INDEPENDENT: Final = 0x60
"""Version 1, independent blocks, no checksums of blocks or content, no content size: the form that clients write,
Java's and librdkafka's included."""
_LZ4_LINKED: Final = 0x40
"""The same with linked blocks: a frame of one block needs no earlier block."""

_SMALLEST_BUFFER: Final = 1 << 20
_LARGEST_ROOM: Final = 4 << 20
"""The limit up to which a batch is decompressed into reused buffers; larger ones get separate memory."""
_MAX_KEPT: Final = 32 << 20


class Decompressor:
    """Decompresses batches into reused buffers of at most 32 MiB in total.

    A returned view stays valid as long as anything refers to it. A buffer is reused when no view of it exists, which
    CPython reveals: a `bytearray` with exported views cannot change its length. While all buffers have views, a batch
    gets separate memory of its exact size, so that a few referenced bytes do not keep a whole buffer. Several threads
    may share a decompressor: a thread that finds it busy does not wait, but uses separate memory.
    """

    __slots__ = ("_buffer", "_kept", "_lock", "_used", "_zstd_room")

    def __init__(self) -> None:
        self._kept: list[bytearray] = []
        self._buffer = bytearray()
        self._used = 0
        self._zstd_room = 64 << 10
        self._lock = threading.Lock()

    @property
    def kept_bytes(self) -> int:
        """Total size of the buffers in bytes, in use or not."""
        return sum(map(len, self._kept))

    def decompress(self, codec: int, data: Buffer, *, max_size: int = DEFAULT_MAX_DECOMPRESSED) -> Buffer:
        """Like the function `decompress`, for batches of format v2."""
        if codec in (_LZ4, _ZSTD) and _cramjam() is not None and self._lock.acquire(blocking=False):
            try:
                view = memoryview(data)
                unpacked = self._lz4(view, max_size) if codec == _LZ4 else self._zstd(view, max_size)
            finally:
                self._lock.release()
            if unpacked is not None:
                return unpacked
        plain = decompress(codec, data, max_size=max_size)
        if codec == _ZSTD and self._zstd_room < len(plain) <= _LARGEST_ROOM:
            self._zstd_room = 1 << (len(plain) - 1).bit_length()
        return plain

    def _lz4(self, data: memoryview, max_size: int) -> memoryview | None:
        if len(data) < _LZ4_HEADER + 4 or not is_lz4_header(bytes(data[:_LZ4_HEADER])):
            return None
        largest = _LZ4_BLOCK_SIZES.get(data[5])
        blocks = _lz4_blocks(data, largest) if largest is not None else None
        if not blocks or largest is None:
            return None
        most = len(blocks) * largest
        readable = data[4] == _LZ4_INDEPENDENT or (data[4] == _LZ4_LINKED and len(blocks) == 1)
        if not readable or most > min(max_size, _LARGEST_ROOM):
            return None
        room = self._room(most)
        if room is None:
            return None
        end = 0
        unpack = _cramjam().lz4.decompress_block_into
        try:
            for position, size, stored in blocks:
                block = data[position : position + size]
                if stored:
                    room[end : end + size] = block
                    end += size
                else:
                    end += unpack(block, room[end:], output_len=largest)
        except Exception:  # the package does not export the type of its error
            return None
        return self._taken(room, end)

    def _zstd(self, data: memoryview, max_size: int) -> memoryview | None:
        room = self._room(min(self._zstd_room, max_size))
        if room is None:
            return None
        try:
            end = _cramjam().zstd.decompress_into(data, room)
        except Exception:  # as above: the data is damaged, or larger than the room
            return None
        return self._taken(room, end)

    def _room(self, size: int) -> memoryview | None:
        """Return a writable view of ``size`` bytes, in the current buffer if they fit; None when all are in use."""
        if _has_no_views(self._buffer):
            self._used = 0
        if self._used + size >= len(self._buffer):
            other = self._other_buffer(size)
            if other is None:
                return None
            self._buffer = other
            self._used = 0
        return memoryview(self._buffer)[self._used : self._used + size]

    def _other_buffer(self, size: int) -> bytearray | None:
        for position, buffer in enumerate(self._kept):
            if len(buffer) > size and _has_no_views(buffer):
                # Move it to the end, so that the search starts with the least recently used buffers.
                self._kept.append(self._kept.pop(position))
                return buffer
        length = max(size, _SMALLEST_BUFFER) + 1
        if self.kept_bytes + length > _MAX_KEPT:
            return None
        buffer = bytearray(length)
        self._kept.append(buffer)
        return buffer

    def _taken(self, room: memoryview, size: int) -> memoryview:
        """Return the used part of ``room``; the next batch goes behind it."""
        self._used += size
        return room[:size].toreadonly()


def _lz4_blocks(data: memoryview, largest: int) -> list[tuple[int, int, bool]] | None:
    """Return position, size and the "stored" flag of each block of a frame; None for an unusual frame."""
    blocks: list[tuple[int, int, bool]] = []
    position = _LZ4_HEADER
    while header := int.from_bytes(data[position : position + 4], "little"):
        position += 4
        size = header & ~_LZ4_STORED
        blocks.append((position, size, header != size))
        position += size
        if size > largest or position + 4 > len(data):
            return None
    return blocks if position + 4 == len(data) else None


@cache
def _cramjam() -> Any:
    try:
        importlib.import_module("lz4.frame")  # raises the error for a missing package
        return importlib.import_module("cramjam")
    except ImportError:
        return None


def _has_no_views(buffer: bytearray) -> bool:
    if not buffer:
        return True
    try:
        buffer.append(buffer.pop())  # stays within the allocation, which is one byte larger than any returned view
    except BufferError:
        return False
    return True
