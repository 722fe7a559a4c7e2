"""Finding the batches of a ``.log`` file: a walk over batch headers that reads no records."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, Protocol

from triokafka.errors import CorruptRecordError
from triokafka.named_tuple import NamedTuple
from triokafka.records.batch import LOG_OVERHEAD
from triokafka.structs import Buffer

_OVERHEAD: Final = struct.Struct(">qi")
_HEADER: Final = struct.Struct(">qi4xB6xi")  # base offset, length, magic, last offset delta
_SMALLEST_ENTRY: Final = LOG_OVERHEAD + 14
_WINDOW: Final = 8192  # bytes read at once, with the headers of several batches
_HEADER_WINDOW: Final = 64  # after a batch larger than the window


class BatchPosition(NamedTuple):
    """The position, size and offset range of a batch."""

    position: int
    size: int
    base_offset: int
    last_offset: int


class TornBatchError(CorruptRecordError):
    """The batch at byte ``position`` extends past the end of the file: it is truncated, or its length is corrupt."""

    def __init__(self, position: int, message: str) -> None:
        super().__init__(message)
        self.position = position


class OffsetOrderError(CorruptRecordError):
    """The offsets of a batch do not follow those of the previous batch: one of the two is damaged."""


class ReadableFile(Protocol):
    """The part of `triokafka.world.File` that the walk needs."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Read up to ``size`` bytes from ``offset``; fewer at the end of the file."""


def scan_batches(file: ReadableFile, position: int, end: int, *, after: int = -1) -> Iterator[BatchPosition]:
    """Yield the complete batches of ``file`` from ``position``, which must be the start of a batch, up to byte ``end``.

    Args:
        after: an offset below all offsets of these batches.

    Raises:
        TornBatchError: the last bytes are not a complete batch.
        OffsetOrderError: offsets do not ascend.
        CorruptRecordError: the bytes are not a batch header.
        OSError: the disk failed.
    """
    window, start, previous = b"", position, after
    ahead = _WINDOW
    while position < end:
        at = position - start
        if not window or (len(window) - at < _HEADER.size and start + len(window) < end):
            window, start, at = file.read_at(position, min(ahead, end - position)), position, 0
        place = place_at(window, at, position)
        if place is None or position + place.size > end:
            raise TornBatchError(position, f"the batch at byte {position} extends past byte {end}")
        if not previous < place.base_offset <= place.last_offset:
            raise OffsetOrderError(
                f"the batch at byte {position} has offsets {place.base_offset} to {place.last_offset}, after {previous}"
            )
        yield place
        position, previous = position + place.size, place.last_offset
        ahead = _WINDOW if place.size < _WINDOW else _HEADER_WINDOW


def place_at(data: Buffer, at: int, position: int) -> BatchPosition | None:
    """Parse the batch header at index ``at`` of ``data``; the batch starts at ``position`` of its file.

    Returns None when the header is incomplete.

    Raises:
        CorruptRecordError: the bytes are not a batch header.
    """
    available = len(data) - at
    if available < _SMALLEST_ENTRY:
        return None
    if available >= _HEADER.size:
        base_offset, length, magic, last_offset_delta = _HEADER.unpack_from(data, at)
    else:
        base_offset, length = _OVERHEAD.unpack_from(data, at)
        magic, last_offset_delta = data[at + 16], None
    if length < _SMALLEST_ENTRY - LOG_OVERHEAD:
        raise CorruptRecordError(f"the batch at byte {position} has the invalid length {length}")
    if magic < 2:
        last_offset_delta = 0
    elif last_offset_delta is None:
        return None
    return BatchPosition(position, LOG_OVERHEAD + length, base_offset, base_offset + last_offset_delta)
