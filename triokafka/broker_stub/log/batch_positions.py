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
_LAST_OFFSET_DELTA: Final = struct.Struct(">i")
_WALK_BYTES: Final = 27  # up to and with the last offset delta
_SMALLEST_ENTRY: Final = LOG_OVERHEAD + 14
_WINDOW: Final = 8192  # bytes read at once


class BatchPosition(NamedTuple):
    """Where a batch lies, and which offsets it covers."""

    position: int
    size: int
    base_offset: int
    last_offset: int


class TornBatchError(CorruptRecordError):
    """The batch at the byte ``position`` does not end before its file does: it is cut, or its length is destroyed."""

    def __init__(self, position: int, message: str) -> None:
        super().__init__(message)
        self.position = position


class OffsetOrderError(CorruptRecordError):
    """The offsets of a batch do not follow those of the batch before: one of the two is damaged."""


class ReadableFile(Protocol):
    """As much of a `triokafka.world.File` as a walk needs."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``offset``; fewer at the end of the file."""


def scan_batches(file: ReadableFile, position: int, end: int, *, after: int = -1) -> Iterator[BatchPosition]:
    """The whole batches in ``file`` from ``position``, which must be the start of one, up to the byte ``end``.

    Args:
        after: an offset that all of theirs are above.

    Raises:
        TornBatchError: the last bytes are no whole batch.
        OffsetOrderError: offsets do not ascend.
        CorruptRecordError: what is there cannot be the header of a batch.
        OSError: the disk failed.
    """
    window, start, previous = b"", position, after
    while position < end:
        at = position - start
        if not window or (len(window) - at < _WALK_BYTES and start + len(window) < end):
            window, start, at = file.read_at(position, min(_WINDOW, end - position)), position, 0
        place = place_at(window, at, position)
        if place is None or position + place.size > end:
            raise TornBatchError(position, f"the batch at byte {position} does not end before byte {end}")
        if not previous < place.base_offset <= place.last_offset:
            raise OffsetOrderError(
                f"the batch at byte {position} has offsets {place.base_offset} to {place.last_offset}, after {previous}"
            )
        yield place
        position, previous = position + place.size, place.last_offset


def place_at(data: Buffer, at: int, position: int) -> BatchPosition | None:
    """The batch whose header is at ``at`` of ``data``, and which starts at ``position`` of its file.

    None when the header is not there completely.

    Raises:
        CorruptRecordError: what is there cannot be a batch.
    """
    if len(data) - at < _SMALLEST_ENTRY:
        return None
    base_offset, length = _OVERHEAD.unpack_from(data, at)
    if length < _SMALLEST_ENTRY - LOG_OVERHEAD:
        raise CorruptRecordError(f"the batch at byte {position} says that it has {length} bytes")
    last_offset = base_offset
    if data[at + 16] >= 2:
        if len(data) - at < _WALK_BYTES:
            return None
        last_offset += _LAST_OFFSET_DELTA.unpack_from(data, at + 23)[0]
    return BatchPosition(position, LOG_OVERHEAD + length, base_offset, last_offset)
