"""Look-up of records by timestamp: segment, then batch, then record.

As in Kafka, transaction markers count as records: a consumer that starts at a marker skips it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from triokafka.broker_stub.log.log_segment import LogSegment
from triokafka.records import ConsumerRecord, RecordDecoder
from triokafka.structs import Buffer

_AT_ONCE: Final = 1_000
"""Records decoded at a time: a batch of a megabyte may have millions."""


def first_at_or_after(
    segments: Sequence[LogSegment], timestamp: int, start_offset: int, end_offset: int
) -> tuple[int, int, int] | None:
    """Return offset, timestamp and leader epoch of the first record at or after ``timestamp`` in [start, end)."""
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        if segment.indexes.max_timestamp < timestamp:
            continue
        position = segment.reader.position_for_timestamp(timestamp, start_offset)
        for batch, data in segment.file.batches(position):
            if batch.base_offset >= end_offset:
                return None
            if batch.max_timestamp < timestamp or batch.last_offset < start_offset:
                continue
            for record in _records(data, start_offset):
                if record.timestamp >= timestamp:
                    if record.offset >= end_offset:
                        return None
                    return record.offset, record.timestamp, batch.partition_leader_epoch
    return None


def _records(data: Buffer, start_offset: int) -> Iterator[ConsumerRecord]:
    """Yield the records of a batch from an offset on, holding only a few in memory."""
    decoder = RecordDecoder(data, from_offset=start_offset, include_control=True)
    while records := decoder.take(_AT_ONCE):
        yield from records


def first_with_largest(
    segments: Sequence[LogSegment], start_offset: int, end_offset: int
) -> tuple[int, int, int] | None:
    """Return offset, timestamp and leader epoch of the first record with the largest timestamp in [start, end)."""
    largest = -1
    # Newest first: the known largest timestamp of a segment then makes reading most older ones unnecessary.
    for index in range(len(segments) - 1, -1, -1):
        segment = segments[index]
        ends_at = segments[index + 1].base_offset if index + 1 < len(segments) else end_offset
        if segment.base_offset < end_offset and ends_at > start_offset and segment.indexes.max_timestamp > largest:
            largest = max(largest, _largest_in(segment, start_offset, end_offset))
    return first_at_or_after(segments, largest, start_offset, end_offset) if largest >= 0 else None


def _largest_in(segment: LogSegment, start_offset: int, end_offset: int) -> int:
    """Return the largest timestamp of a segment's records in [start, end); -1 if there is none."""
    place = segment.reader.find(segment.indexes.offset_of_max_timestamp)
    newest = next(segment.file.headers(place.position), None) if place is not None else None
    if newest is not None and start_offset <= newest.base_offset < newest.next_offset <= end_offset:
        return newest.max_timestamp
    largest = -1
    for batch in segment.file.headers():
        if batch.base_offset >= end_offset:
            break
        if batch.max_timestamp <= largest or batch.last_offset < start_offset:
            continue
        if start_offset <= batch.base_offset and batch.last_offset < end_offset:
            largest = batch.max_timestamp
        else:  # crosses a bound: the largest timestamp in its header may belong to a record outside
            data = segment.file.read_batch(batch)
            records = _records(data, start_offset)
            largest = max(largest, max((r.timestamp for r in records if r.offset < end_offset), default=-1))
    return largest
