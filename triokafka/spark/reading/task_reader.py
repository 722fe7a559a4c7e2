"""Reading on executors: the ranges of one Spark task as Arrow record batches.

The process's Trio loop fetches and decodes records while the worker's main thread passes batches to Spark. Connections
and fetch sessions are reused by later tasks. A range is read to its end or fails; the data loss policy decides about
lost records.
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
from triokafka.spark.client_cache import client_cache
from triokafka.spark.planning.bounds import EARLIEST, LATEST, names
from triokafka.spark.planning.brokers import without_frames
from triokafka.spark.planning.data_loss import report_loss
from triokafka.spark.planning.read_options import ReadOptions
from triokafka.spark.planning.tasks import Task, TaskRange
from triokafka.spark.reading.worker_memory import keep_freed_memory, keep_what_is_loaded
from triokafka.spark.schema import arrow_schema
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_LOOK_AGAIN: Final = 5.0  # seconds for looking up the bounds of logs that may be truncated, after the poll timeout
# Default of max.partition.fetch.bytes: with one megabyte a read took a sixth more work.
_FETCH_BYTES: Final = 4 << 20
# Arrow batches that are decoded at once and then cut for Spark: passing one to the other thread costs as much as a few
# hundred records, while Spark's side is a tenth faster with batches that fit a processor's cache.
_GATHERED: Final = 4
_PAUSE: Final = 0.1  # seconds before a retry of an offset that is in the log but was reported as out of range
_PLACE: Final = ("topic", "partition", "offset")


class MalformedTimestampError(KafkaError):
    """A record has a timestamp outside the range of Spark's timestamps; the message names its position."""

    advice = "Have the producer set milliseconds since 1970, or leave the column out: option columns=value,offset,…"


def read_task(options: ReadOptions, task: Task) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task's ranges. Closing the iterator stops fetching.

    Raises:
        KafkaDataLossError: some records no longer exist, and ``failOnDataLoss`` is true.
        CorruptRecordError, DecodeError, MalformedTimestampError: the message names topic, partition and offset.
        TopicAuthorizationFailedError: the client may not read the topic.
        KafkaTimeoutError: no progress within ``kafkaConsumer.pollTimeoutMs``. The result is never silently shortened.
    """
    keep_freed_memory()
    schema = arrow_schema(options)
    ahead = -(-options.fetch_ahead // _GATHERED)  # in batches of the loop, which are cut for Spark
    try:
        for together in _rounds(task):
            for batch in loop_thread().iterate(partial(_open, options, together), ahead=ahead):
                _check_times(batch)
                # Spark requires equal types, including nullability.
                decoded = options.decoding.apply(batch, options.columns)
                yield from _cut(decoded if decoded.schema == schema else decoded.cast(schema), options.batch_bytes)
    except KafkaTimeoutError as error:
        raise KafkaTimeoutError(f"{error} (option kafkaConsumer.pollTimeoutMs)") from error.__cause__
    except KafkaError as error:
        raise without_frames(error) from error.__cause__
    finally:
        keep_what_is_loaded()  # at the end, since Spark imports more with the first batch


def _rounds(task: Task) -> Iterator[list[TaskRange]]:
    """Yield the ranges in lists with at most one per partition, which one reader can read together."""
    left = list(task)
    while left:
        first: dict[TopicPartition, TaskRange] = {}
        for one in left:
            first.setdefault(one.topic_partition, one)
        left = [one for one in left if first[one.topic_partition] is not one]
        yield list(first.values())


@asynccontextmanager
async def _open(options: ReadOptions, ranges: list[TaskRange]) -> AsyncIterator[AsyncIterator[pa.RecordBatch]]:
    settings = options.client.keywords()
    settings["default_api_timeout_ms"] = options.poll_timeout_ms
    settings.setdefault("max_partition_fetch_bytes", _FETCH_BYTES)

    def make() -> AbstractAsyncContextManager[RangeSession]:
        return RangeSession(**settings)

    async with client_cache().alone(("ranges", options.client.key, options.poll_timeout_ms), make) as session:
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


async def _bounds(session: RangeSession, one: TaskRange) -> tuple[int, int]:
    """Return the range's offsets; with late binding, the present beginning and end of the log."""
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
    doubted: dict[tuple[TopicPartition, int], float] = {}  # time of the first failure, by position
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
                raise KafkaTimeoutError(f"no progress for {now() - since:.0f} s: {lost}. The log has this offset")
            await trio.sleep(_PAUSE)


async def _pass_over(
    reader: RangeReader,
    options: ReadOptions,
    lost: RangeLostError,
    partition: TopicPartition,
    bounds: tuple[int, int],
) -> bool:
    """Handle a lost position: fail, or continue at the first available offset of the range, never before the position.

    Returns True when nothing is lost, because the broker that reported it lagged behind.
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
    if lost.is_recreated or lost.is_truncated:
        # With failOnDataLoss=false continue like the connector, which does not notice; no offset is read twice.
        kind = "PARTITIONS_DELETED" if lost.is_recreated else "PARTITION_OFFSET_CHANGED"
        report_loss(options.fail_on_data_loss, kind, str(lost))
    reader.go_on_at(partition, position)
    return not (lost.is_recreated or lost.is_truncated)


def _pass_over_deleted(reader: RangeReader, options: ReadOptions) -> bool:
    """Handle topics that the brokers do not know after the poll timeout: fail, or continue without them.

    Returns False when there are none, so that the timeout has another reason.
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
    """Handle ranges beyond the end of their logs, as after a topic was recreated: fail, or skip the rest of them.

    A position at the end of a log is not out of range, so only the timeout reveals it. Returns False when no log is too
    short, or when the bounds cannot be looked up.
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
    """Refuse timestamps that overflow microseconds (SPARK-56243); the column has the maximum or minimum in their
    place."""
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
    """Split the batch into pieces of about ``batch_bytes``, at most a quarter more if records are small."""
    pieces = min(batch.num_rows, 1 + int(batch.get_total_buffer_size() / (1.25 * batch_bytes)))
    rows = -(-batch.num_rows // pieces)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
