"""The part of a log that compaction may clean, and the dirty ratio that orders the logs.

Records below the first dirty offset were cleaned before. Records from the first uncleanable offset on must not be
cleaned yet: the active segment, records that are uncommitted or belong to an open transaction, and records younger than
``min.compaction.lag.ms``. The cleanable range lies between the two offsets.
"""

from __future__ import annotations

from typing import Final

from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.named_tuple import NamedTuple

_NEVER: Final = 2**63 - 1


class CleanableRange(NamedTuple):
    """The clean part of a log and its cleanable range.

    ``end_offset`` is the base offset of a segment. ``overdue_ms`` is the time since the oldest dirty record exceeded
    ``max.compaction.lag.ms``; 0 if none has. ``checkpoint_was_wrong``: the checkpointed offset is not in the log, so
    the whole log counts as dirty.
    """

    first_dirty: int
    end_offset: int
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int
    checkpoint_was_wrong: bool

    @property
    def dirty_ratio(self) -> float:
        """The dirty bytes as a share of the clean and cleanable bytes."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, min_dirty_ratio: float) -> bool:
        """Whether the log needs cleaning: the dirty ratio is reached, or ``max.compaction.lag.ms`` is exceeded."""
        return self.cleanable_bytes > 0 and (self.overdue_ms > 0 or self.dirty_ratio > min_dirty_ratio)


def cleanable_range(log: PartitionLog, cleaned_up_to: int | None, *, committed: int, now_ms: int) -> CleanableRange:
    """Determine the clean part and the cleanable range of ``log``.

    Args:
        cleaned_up_to: the offset in the cleaner's checkpoint; None when the log was never cleaned.
        committed: the last stable offset; records from there on belong to open transactions or are not replicated.

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
            config.min_compaction_lag_ms > 0 and segment.indexes.max_timestamp > now_ms - config.min_compaction_lag_ms
        ):
            end_offset = segment.base_offset
            break
        # The segment in which the last pass ended counts as dirty: the next pass reads it again.
        cleanable_bytes += segment.size
        if config.max_compaction_lag_ms < _NEVER and segment.indexes.first_timestamp > 0:
            oldest = min(oldest, segment.indexes.first_timestamp)
    overdue_ms = max(0, now_ms - config.max_compaction_lag_ms - oldest)
    return CleanableRange(first_dirty, end_offset, clean_bytes, cleanable_bytes, overdue_ms, wrong)
