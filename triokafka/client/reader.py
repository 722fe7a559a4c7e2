"""Bounded reads: known ranges of offsets in several partitions, read completely or with an error.

`RangeReader` is asynchronous and has no group. `read_topic` is for code without Trio. Both return Arrow record batches.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Self, Unpack
from uuid import UUID

import trio

from triokafka import errors
from triokafka.client.consumer.completed_fetch import CompletedFetch
from triokafka.client.keywords import ConsumerKeywords
from triokafka.client.range_bounds import Bound, resolve_ranges
from triokafka.client.range_session import OffsetRange, RangeLostError, RangeSession
from triokafka.records import ConsumerRecord
from triokafka.structs import TopicPartition
from triokafka.trio_context import require_trio
from triokafka.world import World

if TYPE_CHECKING:
    import pyarrow as pa

    from triokafka.records.arrow import ArrowBuilder

_ALL: Final = sys.maxsize
_LOOK_AHEAD: Final = 10_000
_BATCH_BYTES: Final = 64 << 20


class RangeReader:
    """Reads offset ranges of partitions. Use it as ``async with RangeReader({partition: (start, end)}, …) as reader``.

    ``async for`` yields Arrow record batches of at most ``batch_rows`` rows, never empty ones; offsets ascend within
    each partition. It ends when every partition has been read up to its end, also if the last offsets have no record
    (compaction, transaction markers, aborted transactions).

    Options are those of `ConsumerOptions` about brokers and fetching (``bootstrap_servers``, ``isolation_level``,
    ``max_partition_fetch_bytes``, …). All partitions of one broker share one fetch session.

    Args:
        ranges: first offset and the offset after the last one, by partition. Both must exist in the log, or the end may
            be its end.
        columns: names of Arrow columns; see `Consumer.poll_arrow`.
        values: ``"view"`` for key and value as views into the fetched bytes.
        batch_rows: most rows of one batch.
        batch_bytes: a batch that has this many decompressed bytes is yielded, however few rows it has. Records that
            were compressed together stay together.
        session: an open `RangeSession` to use instead of separate connections; then options are not allowed.
        topic_ids: the ids that topics had when the ranges were chosen (KIP-516). Without an id, the reader accepts the
            topic that exists when it begins. Brokers before Kafka 3.1 fetch by topic name: they may return records of
            a recreated topic before the reader detects it, but the reader then raises before it ends. Brokers before
            2.8 return no ids; there only offsets show a recreated topic.

    Iterating raises:
        RangeLostError: the first offsets were deleted, the log is shorter than the range or was truncated below the
            position, or the topic was recreated.
        CorruptRecordError: a batch is damaged; the message has topic, partition and offset.
        TopicAuthorizationFailedError: the principal may not read a topic.
        KafkaTimeoutError: no progress within ``default_api_timeout_ms``; the message has the position.
    """

    def __init__(
        self,
        ranges: Mapping[TopicPartition, OffsetRange],
        *,
        columns: Sequence[str] | None = None,
        values: Literal["binary", "view"] = "binary",
        batch_rows: int = 100_000,
        batch_bytes: int = _BATCH_BYTES,
        session: RangeSession | None = None,
        topic_ids: Mapping[str, UUID] | None = None,
        world: World | None = None,
        **options: Unpack[ConsumerKeywords],
    ) -> None:
        for partition, (start, end) in ranges.items():
            if not 0 <= start <= end:
                raise ValueError(f"the range {start} to {end} of {partition} cannot be read")
        if batch_rows < 1 or batch_bytes < 1:
            raise ValueError("batch_rows and batch_bytes must be at least 1")
        if session is not None and (options or world is not None):
            raise ValueError("a reader with a session uses the session's world and options: leave them out")
        self._owns_session = session is None
        self.session = session if session is not None else RangeSession(world=world, **options)
        self.options = self.session.options
        self._columns = columns
        self._values = values
        self._batch_rows = batch_rows
        self._batch_bytes = batch_bytes
        self._topic_ids = topic_ids
        self._world = self.session.world
        self._ranges = {TopicPartition(*partition): bounds for partition, bounds in ranges.items()}
        self._left = {partition: end for partition, (start, end) in self._ranges.items() if start < end}
        self._unsure: dict[TopicPartition, int] = {}
        """Partitions that are read to their end, of topics that may have been recreated before."""
        self._subscription = self.session.subscription
        self._fetcher = self.session.fetcher
        self._is_open = False
        self._waiting: CompletedFetch | None = None

    async def __aenter__(self) -> Self:
        if self._owns_session:
            await self.session.__aenter__()
        self.session.begin(
            {partition: self._ranges[partition] for partition in self._left},
            [partition.topic for partition in self._ranges],
            self._topic_ids,
        )
        self._is_open = True
        return self

    async def __aexit__(self, *raised: object) -> None:
        self._is_open = False
        self.session.end()
        if self._owns_session:
            await self.session.__aexit__(*raised)

    # ---------------------------------------------------------------- reading

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        """Return the next batch. If cancelled, nothing is lost."""
        from triokafka.records.arrow import ArrowBuilder

        builder = ArrowBuilder(self._columns, values=self._values, most_bytes=self._batch_bytes)
        await self._wait_for(lambda: self._take_columns(builder))
        if not builder.rows:
            raise StopAsyncIteration
        return builder.finish()

    async def next_records(self, limit: int = 1_000) -> list[ConsumerRecord]:
        """Return the next records, at most ``limit``, all of one partition; an empty list at the end of all ranges."""
        records: list[ConsumerRecord] = []
        await self._wait_for(lambda: self._take_records(records, limit))
        return records

    def position(self, partition: TopicPartition) -> int:
        """Return a partition's position, the next offset to return; at least its end if the range was read."""
        state = self._subscription.get(partition)
        if state is not None and state.position is not None:
            return state.position
        start, end = self._ranges[partition]
        return start if partition in self._left else end

    @property
    def left(self) -> dict[TopicPartition, int]:
        """Partitions that are not read to the end yet, with their end offsets."""
        return dict(self._left)

    def go_on_at(self, partition: TopicPartition, offset: int) -> None:
        """Skip lost records and continue at ``offset``. The range's end ends the partition.

        Raises:
            ValueError: the position is already beyond that offset.
        """
        if offset < self.position(partition):
            raise ValueError(f"{partition} is at offset {self.position(partition)} and cannot go back to {offset}")
        if partition in self._unsure:
            self.session.watch.passed_over(partition)
            del self._unsure[partition]
            self._subscription.revoke([partition])
            return
        end = self._left[partition]
        # Data that was fetched after the recreation of the topic was detected belongs to the new topic.
        is_fetched = partition in self.session.watch.recreated and offset == self.position(partition)
        self.session.watch.passed_over(partition)
        if not is_fetched:
            self._subscription.seek(partition, min(offset, end))
        self._fetcher.wake()
        self._drop_read()

    async def _wait_for(self, take: Any) -> None:
        await trio.lowlevel.checkpoint()
        patience = self.options.default_api_timeout_ms / 1000
        since = self._world.now()
        seen = self._progress()
        while self._left:
            self.session.changed = changed = trio.Event()
            self._check()
            self._waiting = None
            if take():
                return
            if self._waiting is not None:
                await self._waiting.unpack(self._world)
                continue
            self._drop_read()
            if not self._left:
                break
            self._check_watch()
            now = self._world.now()
            if self._progress() != seen:
                seen, since = self._progress(), now
            elif now - since >= patience:
                self._raise_stalled(now - since)
            with trio.CancelScope(deadline=self._world.deadline(since + patience)):
                await changed.wait()
        if self._unsure:
            self._check()
            await self.session.look_again()
            self._check_watch()
            self._subscription.revoke(list(self._unsure))
            self._unsure.clear()

    def _check(self) -> None:
        if not self._is_open:
            require_trio("RangeReader", asyncio="", blocking="triokafka.read_topic")
            raise errors.ClosedError("the reader is not open: use it inside its async with block")
        self.session.check()
        metadata = self.session.network.metadata
        if metadata.cluster.topic_errors:
            for topic in {partition.topic for partition in self._left}:
                error = metadata.error_for(topic)
                if error is not None and not error.retriable:
                    raise type(error)(f"topic {topic!r}. {error.advice}".rstrip())

    def _progress(self) -> int:
        return sum(state.position or 0 for _, state in self._subscription) + self._fetcher.counters.bytes

    def _raise_stalled(self, waited: float) -> None:
        partition, end = next(iter(self._left.items()))
        failing = self.session.failure_tracker.current
        error = self.session.network.metadata.error_for(partition.topic)
        why = f"; {failing[0].what} fails: {failing[0].error}" if failing else f"; {error}" if error is not None else ""
        raise errors.KafkaTimeoutError(
            f"no progress for {waited:.0f} s: {len(self._left)} partitions are not read to the end, {partition} is"
            f" at offset {self.position(partition)} of {end}{why}"
        )

    # ---------------------------------------------------------------- taking

    def _take_columns(self, builder: ArrowBuilder) -> bool:
        try:
            for data, limit in self._current(_rows_below):
                before = builder.rows
                data.take_columns(builder, min(limit, self._batch_rows - before))
                if data.is_waiting:
                    self._waiting = data
                self._advance(data, reached=builder.rows - before == limit)
                if builder.rows >= self._batch_rows or builder.is_full or not data.done:
                    break
        except errors.KafkaError:
            # Records before the error are returned first; the next call finds the error again.
            if not builder.rows:
                raise
        return builder.rows > 0

    def _take_records(self, records: list[ConsumerRecord], limit: int) -> bool:
        for data, within in self._current(_records_below):
            room = min(limit, within)
            if room > 0:
                records.extend(data.take(room))
                if not records and data.is_waiting:
                    self._waiting = data
                    return False
                if not records:
                    data.end = data.position
            self._advance(data, reached=len(records) == within)
            if records:
                return True
        return False

    def _current(
        self, count: Callable[[CompletedFetch, int], tuple[int, bool]]
    ) -> Iterator[tuple[CompletedFetch, int]]:
        """Yield data to take from, with the number of records inside the range, as ``count`` finds it."""
        recreated = self.session.watch.recreated
        for data, _ in self._fetcher.buffer.current():
            if recreated and data.position >= recreated.get(data.partition, _ALL):
                self._check_watch()
            if data.error is not None:
                self._explain(data)
            stop = self._left[data.partition]
            if data.end is not None and data.end <= stop:
                yield data, _ALL
                continue
            # The range ends inside this data, which happens once per partition.
            inside, is_beyond = count(data, stop)
            if data.end is None and not is_beyond:
                yield data, _ALL  # its end was unknown before decoding, and is not behind the range
                continue
            if not inside:
                self._advance(data, reached=True)
                continue
            yield data, inside

    def _explain(self, data: CompletedFetch) -> None:
        error = data.error
        if isinstance(error, errors.OffsetOutOfRangeError):
            start, end = self._ranges[data.partition]
            raise RangeLostError(
                f"{data.partition}: offset {data.position} of the range {start} to {end} is not in the log: it was"
                " deleted by retention, or the log was truncated",
                data.partition,
                data.position,
            )
        if error is not None:
            raise error

    def _check_watch(self) -> None:
        """Raise if a log has other records than the range was chosen for, once the data fetched before is read."""
        for partition, first in self.session.watch.recreated.items():
            if (partition in self._left or partition in self._unsure) and self.position(partition) >= first:
                start, end = self._ranges[partition]
                raise RangeLostError(
                    f"{partition}: the topic was deleted and recreated after the range {start} to {end} was chosen,"
                    f" and offset {self.position(partition)} is another record now, if there is one",
                    partition,
                    self.position(partition),
                    is_recreated=True,
                )
        for partition, same in self.session.watch.truncated.items():
            if partition in self._left:
                start, end = self._ranges[partition]
                position = self.position(partition)
                where = f"offset {same}" if 0 <= same < position else "an unknown offset"
                raise RangeLostError(
                    f"{partition}: the log was truncated while the range {start} to {end} was read: from {where} on the"
                    f" new leader has other records than those read up to offset {position}",
                    partition,
                    position,
                    is_truncated=True,
                )

    def _advance(self, data: CompletedFetch, *, reached: bool) -> None:
        stop = self._left[data.partition]
        position = max(data.position, stop) if reached else data.position
        self._subscription.hand_out(data.partition, position, data.leader_epoch)
        if reached or data.exhausted:
            self._fetcher.buffer.remove(data)
        self._drop_read()

    def _drop_read(self) -> None:
        """Drop partitions that are read to their end."""
        for partition, end in list(self._left.items()):
            state = self._subscription.state(partition)
            if state.position is not None and state.position >= end:
                del self._left[partition]
                if self.session.is_unsure(partition.topic):
                    self._unsure[partition] = end
                else:
                    self._subscription.revoke([partition])


def _records_below(data: CompletedFetch, stop: int) -> tuple[int, bool]:
    """Return how many records have offsets below ``stop``, and whether others follow. Decodes them one by one.

    Records after ``stop`` may be corrupt, or need a missing package: that is no error here. If such a record is below
    ``stop``, the count covers the records before it.
    """
    inside = 0
    decoder = data.decoder()
    try:
        while decoder.next_offset < stop and (chunk := decoder.take(1_000)):
            inside += sum(record.offset < stop for record in chunk)
            if chunk[-1].offset >= stop:
                return inside, True
    except (errors.CorruptRecordError, errors.UnsupportedCodecError):
        # Batches without records, such as control batches, were skipped.
        return inside if decoder.next_offset >= stop else _ALL, True
    return inside, decoder.next_offset >= stop


def _rows_below(data: CompletedFetch, stop: int) -> tuple[int, bool]:
    """Do the same by columns: decode only the offsets into an array, and search it."""
    from triokafka.records.arrow import ArrowBuilder

    inside = 0
    decoder = data.decoder()
    while decoder.next_offset < stop:
        builder = ArrowBuilder(("offset",))
        try:
            rows = builder.add(decoder, _LOOK_AHEAD)
        except (errors.CorruptRecordError, errors.UnsupportedCodecError):
            return inside if decoder.next_offset >= stop else _ALL, True
        offsets = memoryview(builder.finish().column(0).buffers()[1]).cast("q")[:rows]
        below = bisect_left(offsets, stop)
        inside += below
        if below < rows:
            return inside, True
        if not rows:
            break
    return inside, decoder.next_offset >= stop


def read_topic(
    topics: str | Sequence[str],
    *,
    start: Bound = "earliest",
    end: Bound = "latest",
    columns: Sequence[str] | None = None,
    values: Literal["binary", "view"] = "binary",
    batch_rows: int = 100_000,
    batch_bytes: int = _BATCH_BYTES,
    world: World | None = None,
    **options: Unpack[ConsumerKeywords],
) -> pa.RecordBatchReader:
    """Read a topic, or several, between two bounds as a stream of Arrow record batches. Blocks: for code without Trio.

    The call resolves the bounds; records that are produced later are not read. A background task fetches a little ahead
    of the caller, until the end of all ranges, or until the reader is closed or garbage collected. Reading returns all
    records between the bounds or raises: the reader never ends early.

    Args:
        topics: one name, or several.
        start, end: where to start, and where to end (the record there is not read): ``"earliest"``, ``"latest"``, a
            datetime, milliseconds since the epoch, or one of these or an offset for each partition, which reads no
            others. A time stands for the first record at or after it.
        columns: some of key, value, topic, partition, offset, timestamp, timestampType, headers; all by default. Other
            columns are not decoded.
        values: ``"view"`` for key and value as views into the fetched bytes.
        batch_rows, batch_bytes: where a batch ends, whichever comes first; see `RangeReader`.

    Options are those of `ConsumerOptions`: ``bootstrap_servers``, ``isolation_level``, …

    Raises:
        UnknownTopicOrPartitionError, ConfigurationError, KafkaTimeoutError: the bounds cannot be resolved. Reading
            raises as `RangeReader` does, also if a topic was deleted and recreated after this call.
        IllegalStateError: called within Trio; or read in a process that was forked after this call.
    """
    import pyarrow as pa

    from triokafka.loop_thread import fork_count, loop_thread
    from triokafka.records.arrow import arrow_schema

    if trio.lowlevel.in_trio_run():
        raise errors.IllegalStateError("this call blocks, and would stop all Trio tasks: use RangeReader inside Trio")
    names = [topics] if isinstance(topics, str) else list(topics)
    schema = arrow_schema(columns, values=values)

    async def open_reader() -> RangeReader:
        ranges, topic_ids = await resolve_ranges(names, start, end, world=world, **options)
        return RangeReader(
            ranges,
            columns=columns,
            values=values,
            batch_rows=batch_rows,
            batch_bytes=batch_bytes,
            topic_ids=topic_ids,
            world=world,
            **options,
        )

    forks = fork_count()

    def own(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # A forked child process has no loop that would hand anything over.
        while fork_count() == forks:
            batch = next(batches, None)
            if batch is None:
                return
            yield batch
        raise errors.IllegalStateError(
            "the reader was opened before this process was forked: call read_topic again in this process"
        )

    loop = loop_thread()
    reader = loop.call(open_reader)
    return pa.RecordBatchReader.from_batches(schema, own(loop.iterate(lambda: reader, ahead=1)))
