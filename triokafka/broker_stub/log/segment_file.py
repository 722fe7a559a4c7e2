"""The ``.log`` file of a segment: record batches one after another, and the paths of the segment's files.

Reads batch headers only, where it can, and never past ``size``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from triokafka.broker_stub.log.batch_positions import BatchPosition, TornBatchError, place_at, scan_batches
from triokafka.broker_stub.log.damage import find_valid_batches
from triokafka.broker_stub.log.open_files import OpenFiles
from triokafka.broker_stub.log.segment_names import LOG_SUFFIX, offset_file_name
from triokafka.errors import CorruptRecordError
from triokafka.records.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, BatchInfo, parse_batch
from triokafka.world import File

_OVERHEAD: Final = struct.Struct(">qi")
_CHUNK: Final = 262_144  # bytes per read of complete batches
_HEADERS: Final = 4096  # bytes per read of headers


class SegmentFile:
    """The batches of one segment on disk. Not thread-safe; disk errors are `OSError`.

    Args:
        directory: the directory of the log.
        new: create an empty file instead of using the existing one.
        suffix: the suffix of the segment's file names: empty, ``.cleaned`` or ``.swap``.
    """

    def __init__(self, files: OpenFiles, directory: str, base_offset: int, *, new: bool, suffix: str = "") -> None:
        self.base_offset = base_offset
        self.directory = directory
        self.storage = files.storage
        self.size = 0
        self.suffix = suffix
        self.log_path = self.path(LOG_SUFFIX)
        self._files = files
        self._torn_tail_at: int | None = None  # end of the complete batches, if a torn one follows
        if new:
            files.get(self.log_path, create=True).truncate(0)
        else:
            self.size = self.handle.size()

    @property
    def handle(self) -> File:
        """The open file, for immediate use."""
        return self._files.get(self.log_path)

    def path(self, suffix: str) -> str:
        """Return the path of the segment's file with ``suffix``."""
        return f"{self.directory}/{offset_file_name(self.base_offset, suffix)}{self.suffix}"

    def use(self, files: OpenFiles) -> None:
        """Use another set of open files from now on."""
        self.close()
        self._files = files

    def close(self) -> None:
        """Close the file without writing."""
        self._files.close(self.log_path)

    def cut_to(self, position: int) -> None:
        """Drop the bytes from ``position`` on, which is the start of a batch."""
        self.handle.truncate(position)
        self.size = position
        self._torn_tail_at = None

    # -- walks

    def places(self, position: int) -> Iterator[BatchPosition]:
        """Walk the headers from ``position``, which must be the start of a batch."""
        return scan_batches(self.handle, position, self.size)

    def batches(self, position: int = 0, *, check_crc: bool = False) -> Iterator[tuple[BatchInfo, memoryview]]:
        """Yield header and bytes of every batch from ``position`` on; ``BatchInfo.position`` is the file position.

        Raises:
            CorruptRecordError: the bytes are not a batch, or the batch is torn.
        """
        # The bytes already read of the batch at `position`, and the total bytes to read for it.
        rest, want = b"", _CHUNK
        while position < self.size:
            left = self.size - position
            view = memoryview(rest + self.handle.read_at(position + len(rest), min(want, left) - len(rest)))
            used = 0
            while (batch := parse_batch(view, used, check_crc=check_crc)) is not None:
                data = view[used : used + batch.size]
                used += batch.size
                yield batch._replace(position=position + used - batch.size), data
            rest, want = bytes(view[used:]), _CHUNK
            if not used:
                needed = LOG_OVERHEAD + _OVERHEAD.unpack(view[:LOG_OVERHEAD])[1] if len(view) >= LOG_OVERHEAD else 0
                if len(view) == left or needed > left or needed <= len(view):
                    raise CorruptRecordError(f"{self.log_path}: the batch at byte {position} is truncated")
                want = needed
            position += used

    def headers(self, position: int = 0) -> Iterator[BatchInfo]:
        """Yield the headers of `batches`; most of the records are not read."""
        window, start = b"", position
        while (left := self.size - position) >= LOG_OVERHEAD:
            at = position - start
            if len(window) - at < HEADER_SIZE:
                # Small batches are read together; for large ones, only the header is read.
                size = _HEADERS if at - len(window) < _HEADERS else HEADER_SIZE
                window, start, at = self.handle.read_at(position, min(size, left)), position, 0
            place = place_at(window, at, position)
            if place is None or place.size > left:
                return
            if window[at + 16] >= 2 and len(window) - at >= HEADER_SIZE:
                yield BatchInfo._make((position, *HEADER.unpack_from(window, at)))
            else:  # an older format, whose headers have different sizes
                batch = parse_batch(memoryview(self.handle.read_at(position, place.size)), 0)
                if batch is None:
                    return
                yield batch._replace(position=position)
            position += place.size

    def read_batch(self, batch: BatchInfo) -> bytes:
        """Return the bytes of a batch from `headers`."""
        return self.handle.read_at(batch.position, batch.size)

    # -- a torn end

    @property
    def ends_torn(self) -> bool:
        """Whether a read has found an incomplete batch at the end."""
        return self._torn_tail_at is not None

    def check_torn_tail(self, error: TornBatchError) -> None:
        """Raise ``error`` unless its batch is the last one and torn; the segment then ends before it.

        Otherwise a corrupt length would hide the batches behind it.
        """
        position = error.position
        if position != self._torn_tail_at:
            if find_valid_batches(self.handle, position + 1, self.size, self.base_offset, limit=1).batches:
                raise error
            self._torn_tail_at = position

    def batch_is_torn(self, position: int) -> None:
        """Note that the batch at ``position`` is cut. Raises `CorruptRecordError` unless it is the last one."""
        self.check_torn_tail(TornBatchError(position, f"{self.log_path}: the batch at byte {position} is truncated"))
