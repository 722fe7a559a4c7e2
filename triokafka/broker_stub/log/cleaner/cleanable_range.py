"""Which part of a log is to be cleaned, and which log first.

Below the first dirty offset a log was cleaned before; from the first uncleanable offset on it must not be cleaned yet:
that is the active segment, what is not committed or belongs to an open transaction, and what is younger than
``min.compaction.lag.ms``. In between lies what is worth cleaning.
"""

from __future__ import annotations

from typing import Final

from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.named_tuple import NamedTuple

_NEVER: Final = 2**63 - 1


class CleanableRange(NamedTuple):
    """How much of a log is clean, and what could be cleaned.

    ``end_offset`` is the base offset of a segment. ``overdue_ms``: for how long something dirty is older than
    ``max.compaction.lag.ms``; 0 when nothing is. ``checkpoint_was_wrong``: the offset that was cleaned up to is not in
    the log, so that all of it counts as dirty.
    """

    first_dirty: int
    end_offset: int
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int
    checkpoint_was_wrong: bool

    @property
    def dirty_ratio(self) -> float:
        """The share of what could be cleaned in all but the active segment."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, min_dirty_ratio: float) -> bool:
        """Whether it is time to clean: enough is dirty, or something has been dirty for long enough."""
        return self.cleanable_bytes > 0 and (self.overdue_ms > 0 or self.dirty_ratio > min_dirty_ratio)


def cleanable_range(log: PartitionLog, cleaned_up_to: int | None, *, committed: int, now_ms: int) -> CleanableRange:
    """What of ``log`` is clean and what could be cleaned.

    Args:
        cleaned_up_to: from the cleaner's checkpoint; None when the log was never cleaned.
        committed: the last stable offset: from there on transactions are open or records not replicated.

    Raises:
        OSError, CorruptRecordError: the log cannot be read.
    """
    start, config = log.log_start_offset, log.config
    first_dirty = start if cleaned_up_to is None else cleaned_up_to
    wrong = not start <= first_dirty <= log.log_end_offset
    if wrong:
        first_dirty = start
    sealed = log.segments[:-1]
    ends = [segment.base_offset for segment in log.segments[1:]]
    end_offset = log.active_segment.base_offset
    clean_bytes = cleanable_bytes = 0
    oldest = _NEVER
    for segment, end in zip(sealed, ends, strict=True):
        if end <= first_dirty:
            clean_bytes += segment.size
            continue
        if end > committed or (
            config.min_compaction_lag_ms > 0 and segment.max_timestamp > now_ms - config.min_compaction_lag_ms
        ):
            end_offset = segment.base_offset
            break
        # The one that a pass has ended in counts as dirty: it will be read once more.
        cleanable_bytes += segment.size
        if config.max_compaction_lag_ms < _NEVER and segment.first_timestamp > 0:
            oldest = min(oldest, segment.first_timestamp)
    overdue_ms = max(0, now_ms - config.max_compaction_lag_ms - oldest)
    return CleanableRange(first_dirty, end_offset, clean_bytes, cleanable_bytes, overdue_ms, wrong)
