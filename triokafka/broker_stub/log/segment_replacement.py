"""Replacing segments of one log by cleaned ones."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from triokafka.broker_stub.log.log_segment import LogSegment
from triokafka.broker_stub.log.log_state import LogState
from triokafka.broker_stub.log.open_files import OpenFiles


class SegmentReplacement:
    """Makes cleaned segments beside one log and lets them take the place of its segments."""

    def __init__(self, state: LogState) -> None:
        self._state = state

    def new_cleaned_segment(self, base_offset: int, files: OpenFiles, *, now_ms: int) -> LogSegment:
        """Make an empty segment beside the log, to be filled and then given to `replace_segments`.

        Args:
            files: of the thread that fills it. This may be another thread than the log's, as long as no third one
                uses the segment.

        Raises:
            OSError: the disk failed. The log does not report it, since another thread than the log's may call this.
            KafkaStorageError: the log is closed or offline.
        """
        self._state.guard.check()
        return self._state.segments.new_cleaned(base_offset, files, now_ms)

    def replace_segments(self, old: Sequence[LogSegment], new: Sequence[LogSegment], *, now_ms: int) -> None:
        """Run `replacing` from its beginning to its end."""
        steps = self.replacing(old, new, now_ms=now_ms)
        for sync in steps:
            try:
                sync()
            except BaseException as error:
                steps.throw(error)

    def replacing(
        self, old: Sequence[LogSegment], new: Sequence[LogSegment], *, now_ms: int
    ) -> Generator[Callable[[], None], None, None]:
        """Let ``new`` take the place of ``old``, whose files are removed ``file.delete.delay.ms`` later.

        Yields functions to be called one after the other, in a thread when the log is to go on meanwhile. When one of
        them fails, throw its `OSError` into the iterator. The log has the old records or the new ones at any time, and
        after a crash. Closing the iterator early leaves it with one or the other.

        Args:
            old: neighbours in the log, without the active segment.
            new: ascending, from `new_cleaned_segment`, the first with the base offset of the first of ``old``. They
                belong to the log afterwards.

        Raises:
            IllegalStateError: ``old`` are not, or no longer, segments of the log; nothing has changed.
            KafkaStorageError: the disk failed. Opening the log again shows which records are there.
        """
        state = self._state
        state.guard.check()
        with state.guard.during("compaction", or_offline=True):
            yield from state.segments.replacing(old, new, remove_at_ms=now_ms + state.config.file_delete_delay_ms)
            kept = {segment.base_offset for segment in new}
            for segment in old:
                if segment.base_offset not in kept:
                    state.snapshots.remove(segment.base_offset)
