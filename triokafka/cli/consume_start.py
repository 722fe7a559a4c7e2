"""Where ``triokafka consume`` starts: ``--partition`` and ``--offset``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from triokafka.cli.parameter_types import INT64, whole_number
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka import Consumer

_EARLIEST: Final = ("earliest", "beginning")
_LATEST: Final = ("latest", "end")
_TIME: Final = "s@"


class StartPosition(NamedTuple):
    """A position in a log: one of the ends, an offset, the last ``-offset`` records, or a time.

    Args:
        end: ``earliest`` or ``latest``; empty for the others.
        offset: an offset; below 0 it counts from the end.
        time_ms: the first record at or after this time, in milliseconds since 1970.
    """

    end: str
    offset: int | None = None
    time_ms: int | None = None


def parse_position(text: str) -> StartPosition:
    """Parse the value of ``--offset``, which kcat's ``-o`` also takes. Raises `click.UsageError`."""
    if text in _EARLIEST:
        return StartPosition("earliest")
    if text in _LATEST:
        return StartPosition("latest")
    offset = whole_number(text.removeprefix("-"), INT64)
    if offset is not None:
        return StartPosition("", offset=-offset if text.startswith("-") else offset)
    time_ms = whole_number(text.removeprefix(_TIME), INT64) if text.startswith(_TIME) else None
    if time_ms is not None:
        return StartPosition("", time_ms=time_ms)
    raise click.UsageError(
        f"--offset takes earliest, latest, an offset, -N for the last N records, or s@MS for a time, not {text!r}."
    )


async def seek(consumer: Consumer, partitions: Sequence[TopicPartition], position: StartPosition) -> None:
    """Move to a position in each partition. An offset that a log does not have becomes its nearest end, with a note."""
    if position.end == "earliest":
        consumer.seek_to_beginning(*partitions)
    elif position.end == "latest":
        consumer.seek_to_end(*partitions)
    elif position.time_ms is not None:
        await _seek_to_time(consumer, partitions, position.time_ms)
    else:
        assert position.offset is not None
        first, end = await consumer.beginning_offsets(partitions), await consumer.end_offsets(partitions)
        for partition in partitions:
            consumer.seek(partition, _offset_within(partition, position.offset, first, end))


async def _seek_to_time(consumer: Consumer, partitions: Sequence[TopicPartition], time_ms: int) -> None:
    found = await consumer.offsets_for_times(dict.fromkeys(partitions, time_ms))
    for partition in partitions:
        at = found[partition]
        if at is None:
            consumer.seek_to_end(partition)
        else:
            consumer.seek(partition, at.offset)


def _offset_within(
    partition: TopicPartition, offset: int, first: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]
) -> int:
    lowest, highest = first[partition], end[partition]
    if offset < 0:
        return max(lowest, highest + offset)
    if offset > highest:
        click.echo(
            f"offset {offset} is after the end of {partition}, {highest}: only new records are printed", err=True
        )
    elif offset < lowest:
        click.echo(
            f"offset {offset} of {partition} is deleted: printing starts at its first offset, {lowest}", err=True
        )
    return min(max(offset, lowest), highest)
