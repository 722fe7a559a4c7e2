"""Planning of Spark tasks from offset ranges: drop empty ranges, split large ones, merge small ones. No I/O.

Splitting equals the connector's: first by ``maxRecordsPerPartition``, then by ``minPartitions`` if that gives too few
tasks. Merging (``maxPartitions``) is an addition: a task costs Spark about 20 ms however little it reads.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple
from uuid import UUID

from triokafka.spark.planning.read_options import ReadOptions
from triokafka.structs import TopicPartition


class TaskRange(NamedTuple):
    """The offsets of one partition from ``start`` (inclusive) to ``end`` (exclusive)."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: UUID | None = None
    """The id of the offsets' topic (KIP-516); None where brokers have no ids, or where any topic of that name will
    do."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The range's partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        """The number of offsets; compaction and transactions may leave fewer records."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"[{self.start}, {self.end}) of {self.topic_partition}"


OffsetRange = TaskRange
"""The class's former name, which pickled plans of version 0.1.0 contain."""

Task = tuple[TaskRange, ...]
"""The ranges that one Spark task reads."""


def tasks(options: ReadOptions, ranges: Iterable[TaskRange]) -> list[Task]:
    """Return the tasks for the given ranges; empty ranges get none."""
    return merge(
        split(ranges, min_partitions=options.min_partitions, max_records=options.max_records_per_partition),
        options.max_partitions,
    )


def split(
    ranges: Iterable[TaskRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[TaskRange]:
    """Split ranges of more than ``max_records`` offsets, and large ones until there are about ``min_partitions``."""
    found = [one for one in ranges if one.size > 0]
    if max_records is not None:
        found = [piece for one in found for piece in _cut(one, -(-one.size // max_records))]
    if min_partitions is None or len(found) >= min_partitions:
        return found
    return [piece for one, parts in _parts(found, min_partitions) for piece in _cut(one, parts)]


def _parts(ranges: Sequence[TaskRange], min_partitions: int) -> Iterator[tuple[TaskRange, int]]:
    """Yield each range with its number of pieces: in proportion to its size; small ranges stay whole."""
    total = sum(one.size for one in ranges)
    # Ranges that stay whole are left out of the proportion, so that they do not reduce the pieces of large ones.
    whole = {one for one in ranges if _share(one.size, total, min_partitions) == 1}
    left = total - sum(one.size for one in whole)
    wanted = max(min_partitions - len(whole), 1)
    for one in ranges:
        yield one, 1 if one in whole else _share(one.size, left, wanted)


def _share(size: int, total: int, parts: int) -> int:
    # Java rounds halves up; Python's round() rounds them to even.
    return max(math.floor(size / total * parts + 0.5), 1)


def _cut(one: TaskRange, parts: int) -> Iterator[TaskRange]:
    """Yield pieces of about equal size; the last ones get the remainder."""
    start, parts = one.start, min(parts, one.size)  # at most one piece per offset
    for part in range(parts):
        end = start + (one.end - start) // (parts - part)
        if end > start:
            yield one._replace(start=start, end=end)
        start = end


def merge(ranges: Sequence[TaskRange], max_tasks: int | None) -> list[Task]:
    """Merge ranges until there are at most ``max_tasks`` tasks of about equal size.

    Assigns the largest range first, each to the smallest task. Adjacent pieces of one partition in a task are joined.
    """
    if max_tasks is None or len(ranges) <= max_tasks:
        return [(one,) for one in ranges]
    bins: list[list[TaskRange]] = [[] for _ in range(max_tasks)]
    emptiest = [(0, number) for number in range(max_tasks)]
    for one in sorted(ranges, key=lambda found: (-found.size, found)):
        size, number = heapq.heappop(emptiest)
        bins[number].append(one)
        heapq.heappush(emptiest, (size + one.size, number))
    return sorted(tuple(_joined(sorted(found))) for found in bins)


def _joined(ranges: Iterable[TaskRange]) -> Iterator[TaskRange]:
    before: TaskRange | None = None
    for one in ranges:
        if before is not None and before.topic_partition == one.topic_partition and before.end == one.start:
            before = before._replace(end=one.end)
            continue
        if before is not None:
            yield before
        before = one
    if before is not None:
        yield before
