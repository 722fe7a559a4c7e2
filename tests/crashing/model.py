"""The expected content of a partition's log: plain lists, no files.

`PartitionModel` has every batch that was appended and not truncated, including those that retention has dropped: a
power cut may restore their segments. `allows` tells whether an opened log is possible.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import NamedTuple

SEQUENCES = 2**31


class Kept(NamedTuple):
    """A record as readers get it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


@dataclass(slots=True)
class Batch:
    """A batch as appended. ``records`` is empty for a marker, which readers do not get."""

    base_offset: int
    end: int
    records: list[Kept]
    leader_epoch: int
    max_timestamp: int
    producer_id: int = -1
    producer_epoch: int = -1
    first_sequence: int = -1
    transactional: bool = False
    committed: bool | None = None  # of a marker: the outcome of the transaction
    lost: bool = False  # lost with unsynced data, in the middle of a compacted log
    removed: bool = False  # by compaction, together with its header

    @property
    def key(self) -> tuple[int, int, int]:
        """The part that stays in the log with its header: the offsets, and the producer."""
        return self.base_offset, self.end, self.producer_id

    @property
    def last_sequence(self) -> int:
        """The epoch of its last record."""
        return (self.first_sequence + self.end - self.base_offset - 1) % SEQUENCES


@dataclass(slots=True)
class PartitionModel:
    """One log. Everything below ``durable_end`` must survive a power cut; ``start_floor`` is a guaranteed start offset.

    ``recovery_point`` is the highest possible one of the log, ``high_watermark`` the checkpointed one.
    """

    batches: list[Batch] = field(default_factory=list)
    start: int = 0
    origin: int = 0  # the end offset when it was opened or truncated
    durable_end: int = 0
    start_floor: int = 0
    lost_start: int = 0  # from a checkpoint that could not be read, but may be readable next time
    high_watermark: int = 0
    lossy: bool = False  # the power has failed
    latest_start: int = 0  # the highest value of `start` so far: leader epochs before it may be missing
    placeholders: list[range] = field(default_factory=list)
    """The offsets of each placeholder that the log has written for lost batches."""

    @property
    def end(self) -> int:
        """The offset of the next record."""
        return max(self.origin, self.batches[-1].end) if self.batches else self.origin

    def records(self, start: int, end: int) -> list[Kept]:
        """Return all records of batches in [start, end)."""
        return [
            r
            for batch in self.batches
            if batch.end > start and not batch.lost
            for r in batch.records
            if start <= r.offset < end
        ]

    def readable(self) -> list[Kept]:
        """Return the records that a reader gets."""
        return self.records(self.start, self.end)

    def cut(self, end: int) -> None:
        """Remove everything from ``end`` on."""
        while self.batches and self.batches[-1].end > end:
            self.batches.pop()
        self.placeholders = [offsets for offsets in self.placeholders if offsets.stop <= end]
        self.durable_end = min(self.durable_end, end)
        self.origin = end

    def batch_start(self, offset: int) -> int:
        """Return the start of the batch that has ``offset``, or of the next one if ``offset`` is in a gap.

        A placeholder is a batch, too: a truncation removes it as a whole.
        """
        for offsets in self.placeholders:
            if offset in offsets:
                return offsets.start
        return next((b.base_offset for b in self.batches if b.end > offset and not b.lost), offset)

    def batch_end(self, offset: int) -> int:
        """Return the end of a record's batch."""
        return self.batches[bisect_left(self.batches, offset + 1, key=lambda batch: batch.end)].end

    def is_aborted(self, offset: int) -> bool:
        """Return whether the record belongs to an aborted transaction."""
        index = bisect_left(self.batches, offset + 1, key=lambda batch: batch.end)
        batch = self.batches[index]
        if not batch.transactional:
            return False
        later = (b for b in self.batches[index:] if b.producer_id == batch.producer_id and b.committed is not None)
        return next((marker.committed is False for marker in later), False)

    def last_of(self, producer_id: int) -> Batch | None:
        """Return the newest batch of a producer, markers included."""
        return next((batch for batch in reversed(self.batches) if batch.producer_id == producer_id), None)
