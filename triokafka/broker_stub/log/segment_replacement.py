"""Replacing segments of one log by cleaned segments."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from triokafka.broker_stub.log.log_segment import LogSegment
from triokafka.broker_stub.log.log_state import LogState
from triokafka.broker_stub.log.open_files import OpenFiles


class SegmentReplacement:
    """Creates cleaned segments beside one log and replaces its segments by them."""

    def __init__(self, state: LogState) -> None:
        self._state = state

    def new_cleaned_segment(self, base_offset: int, files: OpenFiles, *, now_ms: int) -> LogSegment:
        """Create an empty segment beside the log, for the caller to fill and pass to `replace_segments`.

        Args:
            files: the open files of the thread that fills it, which may differ from the log's thread. No third thread
                may use the segment.

        Raises:
            OSError: the disk failed. The log does not report it, since this may run in another thread than the log's.
            KafkaStorageError: the log is closed or offline.
        """
        self._state.guard.check()
        return self._state.segments.new_cleaned(base_offset, files, now_ms)

    def replace_segments(self, old: Sequence[LogSegment], new: Sequence[LogSegment], *, now_ms: int) -> None:
        """Run `replacing` to its end in this thread."""
        steps = self.replacing(old, new, now_ms=now_ms)
        for sync in steps:
            try:
                sync()
            except BaseException as error:
                steps.throw(error)

    def replacing(
        self, old: Sequence[LogSegment], new: Sequence[LogSegment], *, now_ms: int
    ) -> Generator[Callable[[], None], None, None]:
        """Replace ``old`` by ``new``; the files of ``old`` are removed ``file.delete.delay.ms`` later.

        Yields functions that the caller must run in order, in a thread if the log is in use meanwhile. If one fails,
        the caller throws its `OSError` into the iterator. At any time, after a crash, and after closing the iterator
        early, the log has either the old records or the new ones.

        Args:
            old: adjacent segments of the log, without the active one.
            new: segments from `new_cleaned_segment`, ascending; the first has the base offset of the first of ``old``.
                The log owns them afterwards.

        Raises:
            IllegalStateError: ``old`` are not, or no longer, segments of the log; nothing has changed.
            KafkaStorageError: the disk failed. Reopening the log shows which segments it has.
        """
        state = self._state
        state.guard.check()
        with state.guard.during("compaction", or_offline=True):
            yield from state.segments.replacing(old, new, remove_at_ms=now_ms + state.config.file_delete_delay_ms)
            kept = {segment.base_offset for segment in new}
            for segment in old:
                if segment.base_offset not in kept:
                    state.snapshots.remove(segment.base_offset)
