"""Whether a reader gave every record, each once: what the Spark benchmark makes sure of before it measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from triokafka.cli.load.brokers import MeasurementError


class Read(NamedTuple):
    """What was read of a partition: rows, and of their offsets the least, the greatest and the sum."""

    rows: int
    first: int | None
    last: int | None
    total: int | None


_NOTHING: Final = Read(0, None, None, None)


def read_of(frame: Any) -> dict[int, Read]:
    """What a query over all rows of a batch frame finds in each partition."""
    from pyspark.sql import functions

    offset = functions.col("offset")
    about = [functions.count("*"), functions.min(offset), functions.max(offset), functions.sum(offset)]
    return {row[0]: Read(*row[1:]) for row in frame.groupBy("partition").agg(*about).collect()}


def check_read(read: Mapping[int, Read], ends: Sequence[int], *, offsets: bool) -> None:
    """That the offsets go from 0 to the end of each partition, and that none is there twice.

    Args:
        read: of each partition, by number.
        ends: where the partitions end.
        offsets: whether they are those of the topic; else only the numbers of rows are looked at.

    Raises:
        MeasurementError: says what was read of which partition.
    """
    for partition in sorted({*read, *range(len(ends))}):
        end = ends[partition] if partition < len(ends) else 0
        wanted = Read(end, 0, end - 1, end * (end - 1) // 2) if end else _NOTHING
        got = read.get(partition, _NOTHING)
        if got.rows != wanted.rows or (offsets and got != wanted):
            raise MeasurementError(f"of partition {partition} was read {tuple(got)} instead of {tuple(wanted)}")


def check_count(rows: int, wanted: int) -> None:
    """What an action counted.

    Raises:
        MeasurementError: it is another number.
    """
    if rows != wanted:
        raise MeasurementError(f"{rows} rows instead of {wanted}")
