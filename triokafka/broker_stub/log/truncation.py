"""Truncating one log: dropping the records at its end."""

from __future__ import annotations

from collections.abc import Callable

from triokafka.broker_stub.log.checkpoints import sync_path
from triokafka.broker_stub.log.log_state import LogState
from triokafka.broker_stub.log.producer_recovery import load_producers


class LogTruncation:
    """Truncates one log.

    Args:
        before_cut: called with an offset before the records at and after it are dropped, to lower the
            checkpoints first. None while the log is being opened.
    """

    def __init__(self, state: LogState, before_cut: Callable[[int], None] | None = None) -> None:
        self._state = state
        self._before_cut = before_cut

    def truncate_to(self, offset: int, *, now_ms: int | None = None) -> None:
        """Drop all records at or after ``offset``, and the whole batch that contains it.

        Raises:
            KafkaStorageError: the disk failed. Reopening the log shows how much was dropped.
            CorruptRecordError: a batch is damaged; the same.
        """
        state = self._state
        state.guard.check()
        if offset >= state.segments.end_offset:
            # An epoch in which this broker led and appended nothing: the leader of a newer epoch does not know it.
            state.leader_epochs.truncate_to(offset)
            state.segments.changes.notify()
            return
        if offset < state.log_start_offset:
            self.truncate_fully_and_start_at(offset, now_ms=now_ms)
            return
        now_ms = state.time(now_ms)
        with state.guard.during("truncation", or_offline=True):
            cut_at = state.segments.batch_start(offset)
            self._prepare_cut(cut_at)
            state.segments.truncate_to(offset, now_ms)
            self._after_cut(cut_at, now_ms)

    def truncate_fully_and_start_at(self, offset: int, *, now_ms: int | None = None) -> None:
        """Drop all records; the next one gets ``offset``.

        Raises:
            KafkaStorageError: the disk failed. Reopening the log shows how much was dropped.
        """
        self._state.guard.check()
        with self._state.guard.during("truncation", or_offline=True):
            self.start_empty(offset, self._state.time(now_ms))

    def start_empty(self, offset: int, now_ms: int) -> None:
        """`truncate_fully_and_start_at` without its checks. Raises `OSError`."""
        state = self._state
        self._prepare_cut(min(offset, state.log_start_offset))
        state.segments.start_empty(offset, now_ms)
        # Snapshots from before the new start go as well: the records that they summarise are gone.
        state.snapshots.remove_after(-1)
        state.leader_epochs.clear()
        state.start_at(offset)
        self._after_cut(offset, now_ms)
        state.durability.recovery_point = offset

    def _prepare_cut(self, offset: int) -> None:
        state = self._state
        state.durability.cut_at(offset)
        state.start_at(min(state.log_start_offset, offset))
        # On disk before the cut: otherwise recovery after a crash would trust the bytes that are written there next.
        if self._before_cut is not None:
            self._before_cut(offset)

    def _after_cut(self, cut_at: int, now_ms: int) -> None:
        """Bring checkpoints, snapshots, epochs and producers in line with the shorter log, durably."""
        state = self._state
        end = state.segments.end_offset
        # Compaction leaves gaps; a cut within one ends the log before it.
        if max(cut_at, state.log_start_offset, state.durability.recovery_point) > end:
            self._prepare_cut(end)
        state.snapshots.remove_after(end)
        epochs = state.leader_epochs
        epochs.truncate_to(end)
        epochs.write()
        if epochs.unsynced:
            sync_path(state.storage, epochs.path)
            epochs.unsynced = False
        state.durability.sync_names()
        state.producers = load_producers(state.snapshots, tuple(state.segments), end)
        state.producers.expire(now_ms, state.producer_expiration_ms)
        state.settle()
        state.segments.changes.notify()
