"""Planning of a batch read on the driver: the offset ranges, checked against the logs. Its only I/O is to brokers.

With ``offsetsBinding=late`` the plan omits the beginning and end of partitions; the tasks look them up.
"""

from __future__ import annotations

from collections.abc import Iterator

from triokafka.errors import ConfigurationError
from triokafka.spark.planning.bounds import EARLIEST, LATEST, Offsets
from triokafka.spark.planning.brokers import Brokers
from triokafka.spark.planning.data_loss import report_loss
from triokafka.spark.planning.offset_resolution import resolve, settle
from triokafka.spark.planning.read_options import ReadOptions
from triokafka.spark.planning.tasks import Task, TaskRange, merge, split, tasks
from triokafka.structs import TopicPartition


async def plan_batch(brokers: Brokers, options: ReadOptions) -> list[Task]:
    """Plan the tasks of a batch read, with ranges in the order of topics and partitions.

    Raises:
        ConfigurationError: offsets or times are given by partition and do not match the existing partitions; or a
            range ends before it starts.
        KafkaDataLossError: the requested offsets were deleted, or do not exist yet.
    """
    partitions = await brokers.partitions()
    starts = await resolve(brokers, options, options.starting, partitions, side="start")
    ends = await resolve(brokers, options, options.ending, partitions, side="end")
    # Beginnings first: an end that is read later is never before them, even while records are written and deleted.
    earliest = await brokers.earliest(partitions)
    latest = await brokers.latest(partitions)
    first = await settle(brokers, starts, earliest=earliest, latest=latest)
    last = await settle(brokers, ends, earliest=earliest, latest=latest)
    ranges = _checked(options, first, last, earliest, latest)
    found = [one._replace(topic_id=brokers.topic_ids.get(one.topic)) for one in ranges]
    if not options.late_binding:
        return tasks(options, found)
    return _late(options, found, starts, ends)


def _checked(
    options: ReadOptions, first: Offsets, last: Offsets, earliest: Offsets, latest: Offsets
) -> Iterator[TaskRange]:
    """Yield the ranges; with ``failOnDataLoss=false``, cut to the offsets that the logs have."""
    for one, start in first.items():
        end = last[one]
        if start > end:
            raise ConfigurationError(
                f"[RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET] The resolved start offset {start} is greater than the"
                f" resolved end offset {end} for topic {one.topic} partition {one.partition}: the start is set too"
                " high, or the partition was recreated"
            )
        for option, offset in (("startingOffsets", start), ("endingOffsets", end)):
            if not earliest[one] <= offset <= latest[one]:
                report_loss(
                    options.fail_on_data_loss,
                    "COULD_NOT_READ_OFFSET_RANGE",
                    f"Could not read records in offset [{start}, {end}) for topic partition {one}: {option} asks for"
                    f" offset {offset}, and the log starts at {earliest[one]} and ends at {latest[one]}",
                )
        yield TaskRange(one.topic, one.partition, max(start, earliest[one]), min(end, latest[one]))


def _late(options: ReadOptions, found: list[TaskRange], starts: Offsets, ends: Offsets) -> list[Task]:
    """Return late-bound tasks, sized by the present offsets, whose outer bounds stay `EARLIEST` and `LATEST`."""
    whole = {one.topic_partition: one for one in found}
    pieces = split(found, min_partitions=options.min_partitions, max_records=options.max_records_per_partition)
    # An empty range gets a task as well: records may arrive before the task runs.
    pieces += [
        one
        for partition, one in whole.items()
        if one.size <= 0 and (starts[partition] == EARLIEST or ends[partition] == LATEST)
    ]

    def opened(piece: TaskRange) -> TaskRange:
        one = whole[piece.topic_partition]
        start, end = starts[piece.topic_partition], ends[piece.topic_partition]
        if (start, end) == (EARLIEST, LATEST):
            # The task reads the whole topic of that name, even if it was deleted and created again since planning.
            piece = piece._replace(topic_id=None)
        return piece._replace(
            start=EARLIEST if start == EARLIEST and piece.start == one.start else piece.start,
            end=LATEST if end == LATEST and piece.end == one.end else piece.end,
        )

    return [tuple(map(opened, task)) for task in merge(sorted(pieces, key=_place), options.max_partitions)]


def _place(one: TaskRange) -> tuple[TopicPartition, int]:
    return one.topic_partition, one.start
