"""Finding missing offsets between the segments of a log: a segment was removed or truncated.

After a clean stop, opening a log does not read older segments. Therefore this check runs afterwards, in a thread, on
the files. It reads the last index entry of each segment and the batch headers behind it.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from typing import Final

from triokafka.broker_stub.log.batch_positions import scan_batches
from triokafka.broker_stub.log.segment_names import INDEX_SUFFIX, LOG_SUFFIX, offset_file_name
from triokafka.errors import CorruptRecordError
from triokafka.named_tuple import NamedTuple
from triokafka.records.batch import HEADER, HEADER_SIZE
from triokafka.world import File, Storage

_ENTRY: Final = struct.Struct(">ii")  # relative offset, position


class OffsetGap(NamedTuple):
    """The missing offsets from ``start`` to ``end`` (exclusive) after the segment file ``path``, and the reason."""

    path: str
    start: int
    end: int
    reason: str


def find_gaps(storage: Storage, directory: str, bases: Sequence[int], *, compacted: bool = False) -> list[OffsetGap]:
    """Find the gaps between the segments of a log; ``bases`` are those of all segments.

    A compacted segment has gaps within itself. A gap at its end is then no loss, unless the segment is truncated.
    Segments that retention removes meanwhile are skipped.

    Args:
        compacted: the log's ``cleanup.policy`` includes ``compact``.

    Raises:
        OSError: a file cannot be read.
    """
    gaps = []
    for base, following in itertools.pairwise(bases):
        path = f"{directory}/{offset_file_name(base, LOG_SUFFIX)}"
        try:
            file = storage.open(path, read_only=True)
        except FileNotFoundError:
            continue
        try:
            end, reason = _end_of(storage, file, directory, base)
            if end < following and (reason or not (compacted or _was_compacted(file))):
                gaps.append(
                    OffsetGap(path, end, following, reason or "a segment is missing, or its last batches are missing")
                )
        finally:
            file.close()
    return gaps


def _end_of(storage: Storage, file: File, directory: str, base: int) -> tuple[int, str]:
    """Return the offset after the last complete batch of a segment, and the problem with the bytes behind it."""
    size = file.size()
    indexed = _last_indexed(storage, directory, base)
    for position in (indexed if indexed < size else 0, 0):
        end, reason = base, ""
        try:
            for place in scan_batches(file, position, size):
                end = place.last_offset + 1
        except CorruptRecordError as error:
            reason = str(error)
        if not reason or not position:
            break
    if not reason and indexed and indexed >= size:
        reason = f"its index reaches byte {indexed}, but the segment ends at byte {size}"
    return end, reason


def _last_indexed(storage: Storage, directory: str, base: int) -> int:
    """Return the position in the last entry of a segment's offset index; 0 when it is empty."""
    try:
        index = storage.open(f"{directory}/{offset_file_name(base, INDEX_SUFFIX)}", read_only=True)
    except FileNotFoundError:
        return 0
    try:
        entry = index.read_at(max(0, index.size() - _ENTRY.size), _ENTRY.size)
    finally:
        index.close()
    return max(0, int(_ENTRY.unpack(entry)[1])) if len(entry) == _ENTRY.size else 0


def _was_compacted(file: File) -> bool:
    """Whether offsets are missing within a segment; formats before v2 do not show it."""
    expected = -1
    try:
        for place in scan_batches(file, 0, file.size()):
            header = file.read_at(place.position, HEADER_SIZE)
            if len(header) < HEADER_SIZE or header[16] < 2:
                return True
            if expected >= 0 and place.base_offset != expected:
                return True
            if HEADER.unpack(header)[-1] != place.last_offset - place.base_offset + 1:
                return True
            expected = place.last_offset + 1
    except CorruptRecordError:
        pass
    return False
