"""Which old segments a log may drop: by time, by size, and by log start offset."""

from __future__ import annotations

from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.log_segments import LogSegments


def count_expired(
    segments: LogSegments, config: LogConfig, *, log_start_offset: int, up_to_offset: int, now_ms: int
) -> int:
    """How many segments are to be dropped, from the oldest one on. The first that stays ends the search.

    Args:
        up_to_offset: nothing at or after it is dropped.
    """
    excess = segments.size - config.retention_bytes if config.retention_bytes >= 0 else -1
    count = 0
    for index, segment in enumerate(segments):
        end = segments.end_of(index)
        if end > up_to_offset or not (segment.size or index + 1 < len(segments)):
            break
        by_start = index + 1 < len(segments) and end <= log_start_offset
        by_size = config.deletes and excess >= segment.size
        # What compaction has emptied would only hold up what comes after it.
        by_time = (
            config.deletes
            and config.retention_ms >= 0
            and (not segment.size or config.retention_ms < now_ms - segment.age_counts_from_ms)
        )
        if not (by_start or by_size or by_time):
            break
        excess -= segment.size
        count += 1
    return count
