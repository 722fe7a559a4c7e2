"""The comparison of the replicas of one partition, batch by batch or record by record. Pure.

`ReplicaEntries` turns the bytes read from one replica into entries; `ReplicaComparison` takes the next entries of all
replicas and finds the first difference. Batches of an append-only log are equal in all replicas. A compacted log is
compared by record: each replica compacts for itself, so that a record may be missing in some, but never differs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from triokafka.checksum import crc32c
from triokafka.records import decode_records, iter_batches
from triokafka.structs import Buffer


class ComparedEntry(NamedTuple):
    """A batch, or a record of a compacted log: its offsets, its leader epoch, and a checksum of its content."""

    offset: int
    last_offset: int
    leader_epoch: int
    checksum: int

    def __str__(self) -> str:
        span = f"{self.offset}" if self.offset == self.last_offset else f"{self.offset} to {self.last_offset}"
        return f"{span} (epoch {self.leader_epoch}, CRC-32C {self.checksum:08x})"


class Difference(NamedTuple):
    """The first difference: its offset, and the entry of each replica there, None for a replica without one."""

    offset: int
    entries: Mapping[int, ComparedEntry | None]


class ReplicaEntries:
    """The entries of one replica that were read and not compared yet.

    Args:
        start: the first offset to compare.
        end: the offset behind the last one to compare.
        by_record: whether the entries are records.
    """

    def __init__(self, start: int, end: int, *, by_record: bool) -> None:
        self.next_offset = start
        """From where to read on."""
        self._start = start
        self._end = end
        self._by_record = by_record
        self._entries: deque[ComparedEntry] = deque()

    @property
    def first(self) -> ComparedEntry | None:
        """The next entry; None if there is none, now or at all."""
        return self._entries[0] if self._entries else None

    @property
    def must_read(self) -> bool:
        """Whether more of the log has to be read before the next entry is known."""
        return not self._entries and self.next_offset < self._end

    def take(self) -> None:
        """Remove the next entry."""
        self._entries.popleft()

    def feed(self, records: Buffer) -> bool:
        """Add bytes that were read; return whether they had a complete batch.

        Raises:
            CorruptRecordError: a batch does not match its checksum.
        """
        added = False
        for batch in iter_batches(records, check_crc=True):
            if batch.next_offset <= self.next_offset:
                continue
            added = True
            self.next_offset = batch.next_offset
            if not self._by_record and batch.base_offset < self._end:
                epoch = batch.partition_leader_epoch
                self._entries.append(ComparedEntry(batch.base_offset, batch.last_offset, epoch, batch.crc))
        if added and self._by_record:
            known = self._entries[-1].offset if self._entries else self._start - 1
            self._entries.extend(one for one in _records(records) if known < one.offset < self._end)
        return added


def _records(records: Buffer) -> Iterator[ComparedEntry]:
    for record in decode_records(records, include_control=True):
        checksum = crc32c(record.timestamp.to_bytes(8, "big", signed=True))
        parts = [record.key, record.value]
        for name, value in record.headers:
            parts += [name.encode(), value]
        for part in parts:
            size = -1 if part is None else len(part)
            checksum = crc32c(size.to_bytes(4, "big", signed=True), checksum)
            checksum = crc32c(b"" if part is None else bytes(part), checksum)
        yield ComparedEntry(record.offset, record.offset, record.leader_epoch, checksum)


class ReplicaComparison:
    """Compares the next entries of all replicas, by broker id.

    ``by_record``: see `ReplicaEntries`. ``compared`` counts entries, ``checksum`` is over all of them.
    """

    def __init__(self, replicas: Mapping[int, ReplicaEntries], *, by_record: bool) -> None:
        self._replicas = replicas
        self._by_record = by_record
        self.compared = 0
        self.checksum = 0

    def missing(self) -> list[int]:
        """Return the replicas of which more has to be read before `step`."""
        return [broker for broker, replica in self._replicas.items() if replica.must_read]

    def step(self) -> Difference | bool:
        """Compare the next entries. Returns the difference if there is one, else whether there was anything left."""
        firsts = {broker: replica.first for broker, replica in self._replicas.items()}
        found = [entry for entry in firsts.values() if entry is not None]
        if not found:
            return False
        lowest = min(found, key=lambda entry: entry.offset)
        here = {broker: one for broker, one in firsts.items() if one is not None and one.offset == lowest.offset}
        if (not self._by_record and len(here) < len(firsts)) or any(entry != lowest for entry in here.values()):
            return Difference(lowest.offset, firsts)
        for broker in here:
            self._replicas[broker].take()
        self.compared += 1
        self.checksum = crc32c(lowest.checksum.to_bytes(4, "big"), self.checksum)
        return True
