"""Which offsets one read covers: what the user asked for against what the topics have. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from triokafka.errors import ConfigurationError, OffsetOutOfRangeError
from triokafka.spark.options import EARLIEST, LATEST, OffsetBound, ReadOptions
from triokafka.structs import TopicPartition


class LogBounds(NamedTuple):
    """The first offset of a partition that is still there, and its end."""

    earliest: int
    latest: int


class OffsetRange(NamedTuple):
    """The offsets from ``start`` up to, and without, ``end`` of one partition."""

    topic: str
    partition: int
    start: int
    end: int


def plan(options: ReadOptions, logs: Mapping[TopicPartition, LogBounds]) -> list[OffsetRange]:
    """One range for each partition that has something to read, in the order of topics and partitions.

    Raises:
        ConfigurationError: offsets are given by partition, but not for exactly the partitions that there are; or a
            range ends before it starts.
        OffsetOutOfRangeError: offsets are asked for that were deleted, or that do not exist yet.
    """
    _check_partitions("startingOffsets", options.starting, logs)
    _check_partitions("endingOffsets", options.ending, logs)
    return [found for found in _ranges(options, logs) if found.start < found.end]


def _ranges(options: ReadOptions, logs: Mapping[TopicPartition, LogBounds]) -> Iterator[OffsetRange]:
    for partition, log in sorted(logs.items(), key=lambda item: (options.topics.index(item[0].topic), item[0])):
        start = _offset(options.starting, partition, log)
        end = _offset(options.ending, partition, log)
        for option, offset in (("startingOffsets", start), ("endingOffsets", end)):
            if offset < log.earliest:
                raise OffsetOutOfRangeError(
                    f"{option} asks for offset {offset} of {partition}, and the log starts at {log.earliest}: what was"
                    " before was deleted. Ask for offsets that are still there, or for -2 (earliest)"
                )
            if offset > log.latest:
                raise OffsetOutOfRangeError(
                    f"{option} asks for offset {offset} of {partition}, and the log ends at {log.latest}. Ask for"
                    " offsets up to there, or for -1 (latest) as the end"
                )
        if start > end:
            raise ConfigurationError(
                f"startingOffsets ({start}) is after endingOffsets ({end}) in {partition}: nothing lies between"
            )
        yield OffsetRange(partition.topic, partition.partition, start, end)


def _offset(bound: OffsetBound, partition: TopicPartition, log: LogBounds) -> int:
    offset = bound if isinstance(bound, int) else bound[partition.topic][partition.partition]
    return {EARLIEST: log.earliest, LATEST: log.latest}.get(offset, offset)


def _check_partitions(name: str, bound: OffsetBound, logs: Mapping[TopicPartition, LogBounds]) -> None:
    if isinstance(bound, int):
        return
    specified = {TopicPartition(topic, number) for topic, numbers in bound.items() for number in numbers}
    if specified != set(logs):
        word = "-2 for earliest" if name == "startingOffsets" else "-1 for latest"
        raise ConfigurationError(
            f"If {name} contains specific offsets, you must specify all TopicPartitions. Use {word}, if you don't care."
            f" Specified: {_names(specified)} Assigned: {_names(set(logs))}"
        )


def _names(partitions: set[TopicPartition]) -> str:
    return ", ".join(str(partition) for partition in sorted(partitions))
