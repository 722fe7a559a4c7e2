"""Reading one log by offset and by timestamp, and its aborted transactions for read_committed consumers."""

from __future__ import annotations

import logging

from triokafka.broker_stub.log import timestamp_lookup
from triokafka.broker_stub.log.index import CorruptIndexError
from triokafka.broker_stub.log.log_state import LogState
from triokafka.broker_stub.log.producer_recovery import rebuild_transaction_index
from triokafka.broker_stub.log.segment_reader import SegmentRead
from triokafka.broker_stub.log.transaction_index import AbortedTransaction, aborted_between
from triokafka.errors import OffsetOutOfRangeError
from triokafka.named_tuple import NamedTuple
from triokafka.structs import Buffer
from triokafka.world import FileSlice

logger = logging.getLogger(__name__)


class ReadResult(NamedTuple):
    """Complete batches, the first of which contains the requested offset. All records are below ``end_offset``."""

    records: Buffer
    end_offset: int = -1


class SlicedResult(NamedTuple):
    """A `ReadResult` whose records may be a slice of the file, for sending only."""

    records: Buffer | FileSlice
    end_offset: int = -1


class LogReader:
    """Reads one log."""

    def __init__(self, state: LogState) -> None:
        self._state = state
        self._segments = state.segments
        self._guard = state.guard

    def read(
        self, offset: int, max_bytes: int, *, up_to_offset: int | None = None, min_one_batch: bool = True
    ) -> ReadResult:
        """Read complete batches of one segment, from the batch that contains ``offset``.

        Args:
            max_bytes: the limit of their total size; with ``min_one_batch``, the first batch may exceed it.
            up_to_offset: read only batches below it; the end of the log when None.

        Raises:
            OffsetOutOfRangeError: ``offset`` is before the log's start or after its end.
            KafkaStorageError: the disk failed.
        """
        found, bound = self._find(offset, max_bytes, up_to_offset, min_one_batch=min_one_batch, to_send=False)
        if found is None:
            return ReadResult(b"")
        end_offset = bound if found.next_offset is None else found.next_offset
        return ReadResult(found.data, end_offset)  # type: ignore[arg-type]  # no slice

    def read_to_send(
        self, offset: int, max_bytes: int, *, up_to_offset: int, min_one_batch: bool = True
    ) -> SlicedResult:
        """Read records for sending only, without copying them or waiting for the disk.

        Raises:
            ColdReadError: data needed to find the records is not in the page cache.
            OffsetOutOfRangeError, KafkaStorageError: as `read`.
        """
        found, bound = self._find(offset, max_bytes, up_to_offset, min_one_batch=min_one_batch, to_send=True)
        if found is None:
            return SlicedResult(b"")
        return SlicedResult(found.data, bound if found.next_offset is None else found.next_offset)

    def _find(
        self, offset: int, max_bytes: int, up_to_offset: int | None, *, min_one_batch: bool, to_send: bool
    ) -> tuple[SegmentRead | None, int]:
        self._guard.check()
        end = self._segments.end_offset
        if not self._state.log_start_offset <= offset <= end:
            raise OffsetOutOfRangeError(
                f"{self._state.topic_partition} has offsets {self._state.log_start_offset} to {end}, not {offset}"
            )
        bound = end if up_to_offset is None else min(up_to_offset, end)
        try:
            found = self._segments.read(
                offset, max_bytes, up_to_offset=bound, at_least_one=min_one_batch, to_send=to_send
            )
        except OSError as error:
            raise self._guard.error("read", error) from error
        return found, bound

    def in_one_segment(self, start_offset: int, end_offset: int) -> bool:
        """Whether two offsets are in the same segment, so that one read may return both."""
        return self._segments.in_one(start_offset, end_offset)

    def bytes_between(self, start_offset: int, end_offset: int, limit: int) -> int:
        """Estimate the bytes that a read from ``start_offset`` up to ``end_offset`` would return, at most ``limit``.

        Raises:
            KafkaStorageError: the disk failed.
        """
        if start_offset < self._state.log_start_offset:
            return 0
        with self._guard.during("read"):
            return self._segments.bytes_between(start_offset, min(end_offset, self._segments.end_offset), limit)

    def offset_for_timestamp(self, timestamp: int, up_to_offset: int | None = None) -> tuple[int, int, int] | None:
        """Return offset, timestamp and leader epoch of the first record at or after ``timestamp`` (ms), or None.

        Raises:
            KafkaStorageError: the disk failed.
            CorruptRecordError: the batch with that record is damaged.
        """
        self._guard.check()
        end = self._segments.end_offset if up_to_offset is None else min(up_to_offset, self._segments.end_offset)
        with self._guard.during("look-up by time"):
            return timestamp_lookup.first_at_or_after(
                tuple(self._segments), timestamp, self._state.log_start_offset, end
            )

    def offset_of_max_timestamp(self, up_to_offset: int | None = None) -> tuple[int, int, int] | None:
        """Return offset, timestamp and leader epoch of the first record with the largest timestamp, or None.

        Raises:
            KafkaStorageError: the disk failed.
            CorruptRecordError: the batch with that record is damaged.
        """
        self._guard.check()
        end = self._segments.end_offset if up_to_offset is None else min(up_to_offset, self._segments.end_offset)
        with self._guard.during("look-up by time"):
            return timestamp_lookup.first_with_largest(tuple(self._segments), self._state.log_start_offset, end)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in [start, end); ``end`` is at most the last stable offset.

        Raises:
            KafkaStorageError: the disk failed.
            CorruptRecordError: an index is damaged, and cannot be rebuilt because a batch is damaged too.
        """
        self._guard.check()
        with self._guard.during("look-up of transactions"):
            while True:
                try:
                    indexes = (segment.indexes.transactions for segment in self._segments.from_offset(start_offset))
                    return aborted_between(indexes, start_offset, end_offset)
                except CorruptIndexError as error:
                    logger.warning("%s; rebuilding it", error)
                    broken = next(s for s in self._segments if error.path == s.indexes.transactions.path)
                    rebuild_transaction_index(broken, self._state.snapshots, tuple(self._segments))
