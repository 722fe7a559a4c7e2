"""Rolling a log: when the active segment is full or old enough (``segment.bytes``, ``segment.ms``), and starting the
next one.
"""

from __future__ import annotations

from triokafka.broker_stub.log.log_segment import LogSegment
from triokafka.broker_stub.log.log_state import LogState


def should_roll(segment: LogSegment, incoming_bytes: int, max_timestamp: int, last_offset: int, now_ms: int) -> bool:
    """Whether the incoming batches need a new segment."""
    size = segment.file.size
    if size > segment.config.segment_bytes - incoming_bytes:
        return size > 0
    if last_offset - segment.base_offset > 2**31 - 1:
        return True
    if size == 0:
        return False
    first = segment.indexes.first_timestamp
    waited = max_timestamp - first if first >= 0 else now_ms - segment.created_ms
    return waited > segment.roll_after_ms or segment.indexes.is_full


def roll(state: LogState, base_offset: int, now_ms: int) -> None:
    """Start a new segment unless the active one starts at ``base_offset``. Raises `OSError`."""
    segments = state.segments
    if base_offset != segments.active.base_offset:
        state.take_snapshot()
        segments.active.seal()
        segments.add(base_offset, now_ms)
        state.durability.names_unsynced = True
