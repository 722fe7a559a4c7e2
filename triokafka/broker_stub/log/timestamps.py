"""Looking records up by time (Z04): which segment, which batch, which record."""

from __future__ import annotations

from collections.abc import Sequence

from triokafka.broker_stub.log.segment import LogSegment
from triokafka.records import decode_records


def first_at_or_after(
    segments: Sequence[LogSegment], timestamp: int, start_offset: int, end_offset: int
) -> tuple[int, int, int] | None:
    """Offset, timestamp and leader epoch of the first record at or after ``timestamp`` in [start, end)."""
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        if segment.max_timestamp < timestamp:
            continue
        position = segment.position_for_timestamp(timestamp, start_offset)
        for batch, data in segment.batches(position):
            if batch.base_offset >= end_offset:
                return None
            if batch.max_timestamp < timestamp or batch.last_offset < start_offset:
                continue
            for record in decode_records(data, from_offset=start_offset):
                if record.timestamp >= timestamp:
                    if record.offset >= end_offset:
                        return None
                    return record.offset, record.timestamp, batch.partition_leader_epoch
    return None


def first_with_largest(
    segments: Sequence[LogSegment], start_offset: int, end_offset: int
) -> tuple[int, int, int] | None:
    """Offset, timestamp and leader epoch of the first record with the largest timestamp in [start, end)."""
    largest = -1
    for index, segment in enumerate(segments):
        next_base = segments[index + 1].base_offset if index + 1 < len(segments) else None
        if next_base is not None and next_base <= start_offset:
            continue
        if segment.base_offset >= start_offset and next_base is not None and next_base <= end_offset:
            largest = max(largest, segment.max_timestamp)
            continue
        # Cut by one of the bounds: what the index knows about the whole segment may lie outside.
        for batch, data in segment.batches():
            if batch.base_offset >= end_offset:
                break
            if batch.max_timestamp > largest and batch.last_offset >= start_offset:
                inside = (r.timestamp for r in decode_records(data, from_offset=start_offset) if r.offset < end_offset)
                largest = max(largest, max(inside, default=-1))
    return first_at_or_after(segments, largest, start_offset, end_offset) if largest >= 0 else None
