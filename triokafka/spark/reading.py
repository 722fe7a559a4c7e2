"""The executor's half of every read: the ranges of one Spark task as Arrow record batches.

The records are fetched and decoded in the process's loop while the worker's main thread hands batches to Spark. The
connections and fetch sessions stay with the loop from one task to the next. A range is read to its end or fails; what
has become of lost records says the data loss policy.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from triokafka.client.range_session import RangeLostError, RangeSession
from triokafka.client.reader import RangeReader
from triokafka.errors import KafkaError, KafkaTimeoutError
from triokafka.loop_thread import loop_thread
from triokafka.records.kernel import time_beyond
from triokafka.spark.brokers import without_frames
from triokafka.spark.data_loss import report_loss
from triokafka.spark.kept import kept
from triokafka.spark.offsets import EARLIEST, LATEST, names
from triokafka.spark.options import ReadOptions
from triokafka.spark.plan import OffsetRange, Task
from triokafka.spark.schema import arrow_schema
from triokafka.spark.worker_memory import keep_freed_memory, keep_what_is_loaded
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_LOOK_AGAIN: Final = 5.0  # seconds for asking whether a log has become too short, after all patience with it
# Fetched of a partition at once, unless the user says otherwise: with a megabyte each a read took a sixth more work.
_FETCH_BYTES: Final = 4 << 20
# Arrow batches that are decoded in one go, and cut for Spark: handing one over to the other thread costs as much as a
# few hundred records, while Spark's side is a tenth faster with what fits a processor's cache.
_GATHERED: Final = 4
_PAUSE: Final = 0.1  # seconds before an offset is asked for again that the brokers have, and say that they have not
_PLACE: Final = ("topic", "partition", "offset")


class MalformedTimestampError(KafkaError):
    """A record has a time that Spark's timestamps do not reach. It names topic, partition and offset."""

    advice = "Have the producer set milliseconds since 1970, or leave the column out: option columns=value,offset,…"


def read_task(options: ReadOptions, task: Task) -> Iterator[pa.RecordBatch]:
    """The records of a task's ranges. Closing the iterator ends the fetching.

    Raises:
        KafkaDataLossError: some of them are not there any more, and ``failOnDataLoss`` says that this is an error.
        CorruptRecordError, DecodeError, MalformedTimestampError: names topic, partition and offset.
        TopicAuthorizationFailedError: the topic may not be read.
        KafkaTimeoutError: no progress within ``kafkaConsumer.pollTimeoutMs``; never a short result instead.
    """
    keep_freed_memory()
    schema = arrow_schema(options)
    ahead = -(-options.fetch_ahead // _GATHERED)  # of those that come out of the loop, which Spark gets in pieces
    try:
        for together in _rounds(task):
            for batch in loop_thread().iterate(partial(_open, options, together), ahead=ahead):
                _check_times(batch)
                # Spark compares types to the letter, and wants whatever may be null in Spark to be so in Arrow.
                decoded = options.decoding.apply(batch, options.columns)
                yield from _cut(decoded if decoded.schema == schema else decoded.cast(schema), options.batch_bytes)
    except KafkaTimeoutError as error:
        raise KafkaTimeoutError(f"{error} (option kafkaConsumer.pollTimeoutMs)") from error.__cause__
    except KafkaError as error:
        raise without_frames(error) from error.__cause__
    finally:
        keep_what_is_loaded()  # now, since Spark imports more with the first batch


def _rounds(task: Task) -> Iterator[list[OffsetRange]]:
    """The ranges in lists without two of one partition, which one reader can read at a time."""
    left = list(task)
    while left:
        first: dict[TopicPartition, OffsetRange] = {}
        for one in left:
            first.setdefault(one.topic_partition, one)
        left = [one for one in left if first[one.topic_partition] is not one]
        yield list(first.values())


@asynccontextmanager
async def _open(options: ReadOptions, ranges: list[OffsetRange]) -> AsyncIterator[AsyncIterator[pa.RecordBatch]]:
    settings = options.client.keywords()
    settings["default_api_timeout_ms"] = options.poll_timeout_ms
    settings.setdefault("max_partition_fetch_bytes", _FETCH_BYTES)

    def make() -> AbstractAsyncContextManager[RangeSession]:
        return RangeSession(**settings)

    async with kept().alone(("ranges", options.client.key, options.poll_timeout_ms), make) as session:
        bounds = {one.topic_partition: await _bounds(session, one) for one in ranges}
        reader = RangeReader(
            {partition: (start, max(start, end)) for partition, (start, end) in bounds.items()},
            columns=options.decoding.read_columns(options.columns),
            batch_rows=options.batch_rows,
            batch_bytes=_GATHERED * options.batch_bytes,
            session=session,
            topic_ids={one.topic: one.topic_id for one in ranges if one.topic_id is not None},
        )
        async with reader:
            yield _batches(reader, options, bounds)


async def _bounds(session: RangeSession, one: OffsetRange) -> tuple[int, int]:
    """The range's offsets; with late binding the beginning and the end of the log as they are now."""
    if one.start != EARLIEST and one.end != LATEST:
        return one.start, one.end
    earliest, latest = await session.log_bounds(one.topic_partition)
    return (
        earliest if one.start == EARLIEST else one.start,
        latest if one.end == LATEST else one.end,
    )


async def _batches(
    reader: RangeReader, options: ReadOptions, bounds: Mapping[TopicPartition, tuple[int, int]]
) -> AsyncIterator[pa.RecordBatch]:
    now = reader.session.world.now
    doubted: dict[tuple[TopicPartition, int], float] = {}  # since when, by position
    while True:
        try:
            async for batch in reader:
                yield batch
            return
        except RangeLostError as error:
            lost = error
        except KafkaTimeoutError:
            if not (_pass_over_deleted(reader, options) or await _pass_over_cut(reader, options)):
                raise
            continue
        assert lost.partition is not None
        try:
            is_there = await _pass_over(reader, options, lost, lost.partition, bounds[lost.partition])
        except KafkaTimeoutError:
            if not _pass_over_deleted(reader, options):
                raise
            continue
        if is_there:
            since = doubted.setdefault((lost.partition, lost.position), now())
            if now() - since >= options.poll_timeout_ms / 1000:
                raise KafkaTimeoutError(f"no progress for {now() - since:.0f} s: {lost}, though the log has it")
            await trio.sleep(_PAUSE)


async def _pass_over(
    reader: RangeReader,
    options: ReadOptions,
    lost: RangeLostError,
    partition: TopicPartition,
    bounds: tuple[int, int],
) -> bool:
    """Fail, or go on at the first offset of the range that is still there; never before what was read already.

    True when nothing is lost: the one who said so lagged behind.
    """
    start, end = bounds
    earliest, latest = await reader.session.log_bounds(partition)
    position = lost.position
    if position < earliest < end:
        report_loss(
            options.fail_on_data_loss,
            "START_OFFSET_RESET" if position == start else "COULD_NOT_READ_OFFSET_RANGE",
            f"Starting offset for {partition} was {position} but consumer reset to {earliest}: offset {position} of the"
            f" range [{start}, {end}) is not in the log, which starts at {earliest}",
        )
        reader.go_on_at(partition, earliest)
        return False
    if position < earliest or position > latest:
        report_loss(
            options.fail_on_data_loss,
            "COULD_NOT_READ_OFFSET_RANGE",
            f"Could not read records in offset [{position}, {end}) for topic partition {partition}: the log has offsets"
            f" from {earliest} to {latest}",
        )
        reader.go_on_at(partition, end)
        return False
    if lost.is_made_anew or lost.is_truncated:
        # With failOnDataLoss=false as the connector, which does not notice: no offset comes twice.
        kind = "PARTITIONS_DELETED" if lost.is_made_anew else "PARTITION_OFFSET_CHANGED"
        report_loss(options.fail_on_data_loss, kind, str(lost))
    reader.go_on_at(partition, position)
    return not (lost.is_made_anew or lost.is_truncated)


def _pass_over_deleted(reader: RangeReader, options: ReadOptions) -> bool:
    """Fail, or go on without topics of which the brokers know nothing after all the time that a task waits.

    False when there are none, and the task waits for something else.
    """
    gone = {one: end for one, end in reader.left.items() if reader.session.is_gone(one.topic)}
    if not gone:
        return False
    sentence = f"Partitions {names(gone)} have been deleted while they were read"
    report_loss(options.fail_on_data_loss, "PARTITIONS_DELETED", sentence)
    for partition, end in gone.items():
        reader.go_on_at(partition, end)
    return True


async def _pass_over_cut(reader: RangeReader, options: ReadOptions) -> bool:
    """Fail, or go on without what is left of ranges whose logs end before them: a topic that was made anew, say.

    At the end of a log nothing is out of range, so waiting is all that tells. False when no log is too short, or none
    can be asked.
    """
    cut: dict[TopicPartition, tuple[int, int]] = {}
    with trio.move_on_after(_LOOK_AGAIN) as scope:
        try:
            for partition in reader.left:
                bounds = await reader.session.log_bounds(partition)
                if bounds[1] <= reader.position(partition):
                    cut[partition] = bounds
        except KafkaError:
            return False
    if scope.cancelled_caught:
        return False
    for partition, (earliest, latest) in cut.items():
        end = reader.left[partition]
        report_loss(
            options.fail_on_data_loss,
            "COULD_NOT_READ_OFFSET_RANGE",
            f"Could not read records in offset [{reader.position(partition)}, {end}) for topic partition {partition}:"
            f" the log has offsets from {earliest} to {latest}",
        )
        reader.go_on_at(partition, end)
    return bool(cut)


def _check_times(batch: pa.RecordBatch) -> None:
    """Refuse times beyond microseconds (SPARK-56243), in whose place the column has the greatest or least there is."""
    place = batch.schema.get_field_index("timestamp")
    if place < 0:
        return
    column = batch.column(place)
    at = time_beyond(memoryview(column.buffers()[1])[8 * column.offset : 8 * (column.offset + len(column))])
    if at < 0:
        return
    row = batch.slice(at, 1).select([name for name in _PLACE if name in batch.schema.names])
    where = " ".join(f"{name} {value}" for name, (value,) in row.to_pydict().items())
    raise MalformedTimestampError(
        f"[KAFKA_MALFORMED_RECORD_TIMESTAMP] Record at {where} has a timestamp that overflows when converting to"
        " Spark's microsecond-precision TimestampType. Kafka record timestamps must be in milliseconds since"
        " epoch per the Kafka protocol: the producer may be writing microseconds or nanoseconds instead"
    )


def _cut(batch: pa.RecordBatch, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """The batch in pieces of about ``batch_bytes``, at most a quarter more if records are small."""
    pieces = min(batch.num_rows, 1 + int(batch.get_total_buffer_size() / (1.25 * batch_bytes)))
    rows = -(-batch.num_rows // pieces)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
