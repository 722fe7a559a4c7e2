"""Checks that a reader returned every record exactly once. The Spark benchmark does this before it measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from triokafka.cli.load.brokers import MeasurementError


class Read(NamedTuple):
    """The rows that were read from a partition: their count, and the least, the greatest and the sum of their
    offsets."""

    rows: int
    first: int | None
    last: int | None
    total: int | None


_NOTHING: Final = Read(0, None, None, None)


def read_of(frame: Any) -> dict[int, Read]:
    """Return a `Read` for each partition of a batch frame, by a query over all rows."""
    from pyspark.sql import functions

    offset = functions.col("offset")
    about = [functions.count("*"), functions.min(offset), functions.max(offset), functions.sum(offset)]
    return {row[0]: Read(*row[1:]) for row in frame.groupBy("partition").agg(*about).collect()}


def check_read(read: Mapping[int, Read], ends: Sequence[int], *, offsets: bool) -> None:
    """Check that the offsets run from 0 to the end of each partition without duplicates.

    Args:
        read: a `Read` for each partition, by number.
        ends: the end offsets of the partitions.
        offsets: whether the offsets are those of the topic; otherwise only the counts are checked.

    Raises:
        MeasurementError: a partition's rows differ; the message names it.
    """
    for partition in sorted({*read, *range(len(ends))}):
        end = ends[partition] if partition < len(ends) else 0
        wanted = Read(end, 0, end - 1, end * (end - 1) // 2) if end else _NOTHING
        got = read.get(partition, _NOTHING)
        if got.rows != wanted.rows or (offsets and got != wanted):
            raise MeasurementError(f"of partition {partition} was read {tuple(got)} instead of {tuple(wanted)}")


def check_count(rows: int, wanted: int) -> None:
    """Check the result of a count.

    Raises:
        MeasurementError: it is another number.
    """
    if rows != wanted:
        raise MeasurementError(f"{rows} rows instead of {wanted}")
