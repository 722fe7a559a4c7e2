"""Deleting old segments of one log: by time, by size, and by log start offset."""

from __future__ import annotations

from collections.abc import Callable

from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.log_segments import LogSegments
from triokafka.broker_stub.log.log_state import LogState
from triokafka.broker_stub.log.segment_roll import roll
from triokafka.errors import OffsetOutOfRangeError


def count_expired(
    segments: LogSegments, config: LogConfig, *, log_start_offset: int, up_to_offset: int, now_ms: int
) -> int:
    """Return the number of segments that retention deletes, from the oldest up to the first one that it keeps.

    Args:
        up_to_offset: no segment with records at or after it is deleted.
    """
    excess = segments.size - config.retention_bytes if config.retention_bytes >= 0 else -1
    count = 0
    for index, segment in enumerate(segments):
        end = segments.end_of(index)
        if end > up_to_offset or not (segment.size or index + 1 < len(segments)):
            break
        by_start = index + 1 < len(segments) and end <= log_start_offset
        by_size = config.deletes and excess >= segment.size
        # An empty segment (after compaction) must not keep the segments after it from being deleted.
        by_time = (
            config.deletes
            and config.retention_ms >= 0
            and (not segment.size or config.retention_ms < now_ms - segment.indexes.age_counts_from_ms)
        )
        if not (by_start or by_size or by_time):
            break
        excess -= segment.size
        count += 1
    return count


class LogRetention:
    """Raises the log start offset of one log, and deletes the segments before it.

    Args:
        checkpoint_start: called before several segments are deleted together, to checkpoint the start offset.
    """

    def __init__(self, state: LogState, checkpoint_start: Callable[[], None] | None = None) -> None:
        self._state = state
        self._checkpoint_start = checkpoint_start

    def advance_log_start_offset(self, offset: int) -> None:
        """Hide the records before ``offset`` from readers. The next `apply_retention` deletes their segments.

        Raises:
            OffsetOutOfRangeError: ``offset`` is after the log's end.
        """
        state = self._state
        if offset > state.segments.end_offset:
            raise OffsetOutOfRangeError(
                f"{state.topic_partition} ends at {state.segments.end_offset}: it cannot start at {offset}"
            )
        state.advance_log_start_offset(offset)

    def apply_retention(self, now_ms: int, *, up_to_offset: int | None = None, remove_files: bool = True) -> int:
        """Delete old segments by time, size and log start offset; returns how many.

        Their files are renamed immediately. A later call removes them, after ``file.delete.delay.ms``.

        Args:
            up_to_offset: the high watermark; nothing at or after it is deleted. The log's end when None.
            remove_files: False to leave the files that are due to `take_files_to_delete`.

        Raises:
            KafkaStorageError: the disk failed.
        """
        state, segments, durability = self._state, self._state.segments, self._state.durability
        state.guard.check()
        with state.guard.during("retention"):
            if remove_files:
                segments.remove_files_to_delete(now_ms)
            end = segments.end_offset if up_to_offset is None else min(up_to_offset, segments.end_offset)
            count = count_expired(
                segments, state.config, log_start_offset=state.log_start_offset, up_to_offset=end, now_ms=now_ms
            )
            if not count:
                return 0
            if count == len(segments):
                roll(state, segments.end_offset, now_ms)
            if durability.names_unsynced:
                # Otherwise a power cut could take the remaining segment, and with it the log end offset.
                durability.sync_names()
            remove_at_ms = now_ms + state.config.file_delete_delay_ms
            durability.names_unsynced = True
            if count > 1:
                # A crash may bring back one deleted segment and not the next. The checkpoint must say that the missing
                # records were before the start; otherwise recovery would end the log at the gap.
                state.advance_log_start_offset(segments[count].base_offset)
                if self._checkpoint_start is not None:
                    self._checkpoint_start()
            try:
                for base_offset in segments.drop_oldest(
                    count, remove_at_ms=remove_at_ms, one_by_one=self._checkpoint_start is None
                ):
                    state.snapshots.remove(base_offset)
            finally:  # also after a disk failure part of the way
                state.advance_log_start_offset(segments[0].base_offset)
                # The first epoch records where the log begins, like the file names.
                state.leader_epochs.drop_before(segments[0].base_offset)
                state.leader_epochs.write()
            if remove_files:
                segments.remove_files_to_delete(now_ms)
        return count

    def take_files_to_delete(self, now_ms: int) -> list[str]:
        """Return the paths of deleted files that are due for removal.

        The caller removes them, in a thread: removing a large file takes long and needs nothing of the log.
        """
        return self._state.segments.take_files_to_delete(now_ms)
