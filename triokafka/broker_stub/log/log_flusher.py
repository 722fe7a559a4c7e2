"""Flushing one log: bringing appended records to the disk and moving the recovery point."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final

from triokafka.broker_stub.log.log_state import LogState
from triokafka.broker_stub.log.recovery_point import FlushJob
from triokafka.broker_stub.log.segment_names import LOG_SUFFIX
from triokafka.errors import KafkaStorageError

_SNAPSHOT_EVERY_BYTES: Final = 1 << 20
_SNAPSHOT_EVERY_BYTES_OF_PRODUCER: Final = 4_000
"""Bytes of records per known producer between two snapshots. An entry has up to 180 bytes, so snapshots stay small
compared with the records."""


class LogFlusher:
    """Flushes one log.

    Args:
        request_flush: called when ``flush.messages`` requires a flush; returns False when no task is running to
            do it, so that the append flushes before it returns. None to flush within every such append.
    """

    def __init__(self, state: LogState, request_flush: Callable[[LogFlusher], bool] | None = None) -> None:
        self.topic_partition = state.topic_partition
        self._state = state
        self._request_flush = request_flush

    def after_append(self, now_ms: int) -> None:
        """Settle the new records, or have them flushed first when ``flush.messages`` requires it."""
        state = self._state
        state.durability.appended(now_ms)
        end = state.segments.end_offset
        if end - state.durability.recovery_point < state.config.flush_messages:
            state.settled_offset = end
        elif self._request_flush is None or not self._request_flush(self):
            self.flush()

    def check_files(self) -> None:
        """Check that the active segment is still in its directory; otherwise take the log offline.

        A removed file stays writable as long as it is open, and its records are lost afterwards.

        Raises:
            KafkaStorageError: the file is missing, or the log is closed or offline already.
        """
        state = self._state
        state.guard.check()
        active = state.segments.active
        path = active.file.path(LOG_SUFFIX)
        if not state.storage.exists(path):
            error = FileNotFoundError(
                errno.ENOENT,
                f"the segment was removed while the broker was running, with offsets "
                f"{active.base_offset} to {state.segments.end_offset - 1}",
                path,
            )
            state.guard.failure = error
            raise KafkaStorageError(f"the log of {state.topic_partition} is offline: {error}") from error

    def flush(self) -> None:
        """Return once everything appended so far is on disk, and move the recovery point there.

        Raises:
            KafkaStorageError: the disk failed; the recovery point stays.
        """
        self.finish(self.begin_flush(), "flush")

    def finish(self, job: FlushJob | None, action: str) -> None:
        """Run a flush that `begin_flush` prepared, in this thread. Raises `KafkaStorageError`."""
        if job is not None:
            with self._state.guard.during(action):
                job.run()
            self.flushed(job)

    def begin_flush(self, *, sealed_only: bool = False) -> FlushJob | None:
        """Prepare a flush whose slow part may run in a thread while appends continue; None when everything is on disk.

        Args:
            sealed_only: leave out the active segment.

        Raises:
            KafkaStorageError: the disk failed.
        """
        self.check_files()
        state, segments = self._state, self._state.segments
        end = segments.active.base_offset if sealed_only else segments.end_offset
        if state.durability.recovery_point >= end:
            return None
        with state.guard.during("flush"):
            if not sealed_only and state.bytes_since_snapshot > max(
                _SNAPSHOT_EVERY_BYTES, _SNAPSHOT_EVERY_BYTES_OF_PRODUCER * len(state.producers)
            ):
                state.take_snapshot()  # so that recovery reads no more than the records that were not flushed
                state.snapshots.remove_strays({segment.base_offset for segment in segments})
            return state.durability.begin(end, segments, state.leader_epochs, sealed_only=sealed_only)

    def flushed(self, job: FlushJob) -> None:
        """Move the recovery point after ``job.run()`` has succeeded."""
        self._state.durability.finished(job)
        self._state.settle()

    def put_off(self, job: FlushJob) -> None:
        """Leave to the next flush a ``job`` that failed because too many files are open."""
        self._state.durability.put_off(job)

    def flush_due(self, now_ms: int) -> bool:
        """Whether the oldest record that is not on disk has waited for ``flush.ms``."""
        since = self._state.durability.unflushed_since_ms
        # The clock may have moved back.
        return since is not None and not 0 <= now_ms - since < self._state.config.flush_ms

    @property
    def flush_wanted(self) -> bool:
        """Whether ``flush.messages`` or more records are not on disk."""
        return self._state.flush_wanted

    @property
    def usable(self) -> bool:
        """Whether the log is neither closed nor offline."""
        return self._state.guard.usable
