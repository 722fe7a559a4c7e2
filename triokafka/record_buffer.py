"""Records that have crossed from the loop thread to a program and were not returned to it yet. No I/O.

For the blocking and the asyncio consumer; used in one thread or loop.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from triokafka.records import ConsumerRecord
from triokafka.records.cursor import RecordCursor
from triokafka.structs import TopicPartition

Convert = Callable[[ConsumerRecord], Any]
Records = dict[TopicPartition, list[ConsumerRecord]]
_NOTHING: Final[list[ConsumerRecord]] = []
_offset: Final = operator.attrgetter("offset")


class Position:
    """The next offset to return of a partition. ``is_end``: everything that crossed over was returned."""

    __slots__ = ("is_end", "offset")

    def __init__(self, offset: int, is_end: bool) -> None:
        self.offset = offset
        self.is_end = is_end


class RecordBuffer:
    """Records by partition, in order.

    ``cursor`` has the run that is being returned record by record; the records it has left count as buffered. Nothing
    is returned of ``paused`` and ``withheld`` partitions. ``convert`` makes the record that is returned; without it,
    that is the record itself. ``released`` is called with a partition and a number of records when they have left the
    buffer.
    """

    def __init__(
        self, convert: Convert | None = None, released: Callable[[TopicPartition, int], object] | None = None
    ) -> None:
        self.cursor = RecordCursor()
        self.paused: set[TopicPartition] = set()
        self.withheld: set[TopicPartition] = set()
        self._run: tuple[TopicPartition, list[ConsumerRecord]] | None = None
        self._records: Records = {}
        self._begin: dict[TopicPartition, int] = {}
        self._cuts: dict[TopicPartition, deque[int]] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._convert = convert
        self._released = released or _ignore

    def __bool__(self) -> bool:
        """Whether there are records of partitions that are neither paused nor withheld."""
        return any(self._may_return(partition, ()) for partition in self._records)

    def add(self, partition: TopicPartition, records: list[ConsumerRecord], cuts: Iterable[int] = ()) -> None:
        """Append records behind the buffered ones. No `take` returns records from both sides of an offset of
        ``cuts``."""
        self._ends[partition] = records[-1].offset + 1
        if cuts:
            self._cuts.setdefault(partition, deque()).extend(cuts)
        known = self._records.get(partition)
        if known is None:
            self._records[partition] = records
            self._begin[partition] = 0
        else:
            known.extend(records)

    def next_run(self, limit: int | None = None, partitions: Collection[TopicPartition] = ()) -> bool:
        """Fill the cursor with records of the next partition, or of the next of ``partitions``; at most ``limit``.

        Return False if there are none.
        """
        self.put_back()
        for partition in self._records:
            if self._may_return(partition, partitions):
                raw, converted = self._take_of(partition, self._begin[partition], limit)
                self._run = (partition, raw)
                self.cursor.iterator = iter(converted)
                return True
        return False

    def _may_return(self, partition: TopicPartition, partitions: Collection[TopicPartition]) -> bool:
        if partition in self.paused or partition in self.withheld:
            return False
        return not partitions or partition in partitions

    def take(self, limit: int | None, partitions: Collection[TopicPartition] = ()) -> Records:
        """Return records, at most ``limit``, of all partitions or of ``partitions``; of each up to the next cut.

        Raises a deserializer's error if the first record causes it; otherwise returns the records before that one.
        """
        self.put_back()
        taken: Records = {}
        for partition in list(self._records):
            if limit is not None and limit <= 0:
                break
            if not self._may_return(partition, partitions):
                continue
            begin = self._begin[partition]
            try:
                records = self._take_of(partition, begin, self._within_cut(partition, begin, limit))[1]
            except Exception:
                if not taken:
                    raise
                break
            taken[partition] = records
            if limit is not None:
                limit -= len(records)
        return taken

    def _within_cut(self, partition: TopicPartition, begin: int, limit: int | None) -> int | None:
        """Return how many records `take` may return of the partition, whose first one has the index ``begin``."""
        cuts = self._cuts.get(partition)
        if cuts is None:
            return limit
        records = self._records[partition]
        while cuts and cuts[0] <= records[begin].offset:
            cuts.popleft()
        if not cuts:
            del self._cuts[partition]
            return limit
        most = bisect_left(records, cuts[0], lo=begin, key=_offset) - begin
        return most if limit is None else min(most, limit)

    def _take_of(
        self, partition: TopicPartition, begin: int, limit: int | None
    ) -> tuple[list[ConsumerRecord], list[ConsumerRecord]]:
        """Return the next records raw, and as the consumer returns them."""
        records = self._records[partition]
        left = len(records) - begin
        if begin == 0 and (limit is None or left <= limit):
            raw = records
        else:
            raw = records[begin:] if limit is None else records[begin : begin + limit]
        converted = raw
        if self._convert is not None:
            converted = []
            try:
                converted.extend(map(self._convert, raw))
            except Exception:
                if not converted:
                    raise
                raw = raw[: len(converted)]
        begin += len(raw)
        if begin >= len(records):
            del self._records[partition], self._begin[partition]
        else:
            self._begin[partition] = begin
            self._records[partition] = self._records.pop(partition)  # the next call begins with another partition
        self._released(partition, len(raw))
        return raw, converted

    def put_back(self) -> None:
        """Return the records that the cursor has left to the buffer."""
        run, self._run = self._run, None
        if run is None:
            return
        partition, raw = run
        left = operator.length_hint(self.cursor.iterator)
        self.cursor.iterator = iter(_NOTHING)
        if left:
            rest = raw[-left:]
            if partition in self._records:
                rest += self._records[partition][self._begin[partition] :]
            self._records = {partition: rest, **{one: all_ for one, all_ in self._records.items() if one != partition}}
            self._begin[partition] = 0
            self._released(partition, -left)

    def first_offset(self, partition: TopicPartition) -> int | None:
        """Return the offset of a partition's first record here; None without one."""
        if self._run is not None and self._run[0] == partition:
            left = operator.length_hint(self.cursor.iterator)
            if left:
                return self._run[1][-left].offset
        if partition not in self._records:
            return None
        return self._records[partition][self._begin[partition]].offset

    def position(self, partition: TopicPartition) -> Position | None:
        """Return a partition's position; None if none of its records has crossed over."""
        first = self.first_offset(partition)
        if first is not None:
            return Position(first, False)
        end = self._ends.get(partition)
        return None if end is None else Position(end, True)

    def positions(self) -> dict[TopicPartition, Position]:
        """Return the positions of all partitions of which records have crossed over."""
        found = {}
        for partition in self._ends:
            position = self.position(partition)
            assert position is not None
            found[partition] = position
        return found

    def partitions(self) -> set[TopicPartition]:
        """Return the partitions of which records have crossed over."""
        return set(self._ends)

    def drop(self, partition: TopicPartition) -> None:
        """Drop a partition's records and position."""
        self.put_back()
        records = self._records.pop(partition, None)
        if records is not None:
            self._released(partition, len(records) - self._begin.pop(partition))
        self._ends.pop(partition, None)
        self._cuts.pop(partition, None)

    def keep(self, partitions: Collection[TopicPartition]) -> None:
        """Drop all other partitions, and forget that they are paused."""
        self.put_back()
        for partition in self._ends.keys() - partitions:
            self.drop(partition)
        self.paused.intersection_update(partitions)

    def clear(self) -> None:
        """Drop all records and positions."""
        for partition in list(self._ends):
            self.drop(partition)

    @property
    def progress(self) -> tuple[int, int]:
        """A value that changes when the cursor advances. From any thread."""
        return id(self._run), operator.length_hint(self.cursor.iterator)


def _ignore(partition: TopicPartition, count: int) -> None:
    """For buffers whose owner does not count."""
