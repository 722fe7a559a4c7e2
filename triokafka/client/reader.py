"""Bounded reads: known ranges of offsets, several partitions at once, all of it or an error.

`RangeReader` is asynchronous and has no group. `read_topic` is for code without Trio. Both give Arrow record batches.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import trio

from triokafka.client.config import ConsumerOptions
from triokafka.client.consumer.fetch_buffer import FetchedData
from triokafka.client.consumer.fetcher import Fetcher
from triokafka.client.consumer.log_offsets import LogOffsets
from triokafka.client.consumer.subscription import EARLIEST, LATEST, SubscriptionState
from triokafka.client.consumer.trouble import Troubles
from triokafka.errors import ClosedError, ConfigurationError, KafkaError, KafkaTimeoutError, OffsetOutOfRangeError
from triokafka.network.cluster import NetworkClient
from triokafka.network.tasks import BackgroundTasks
from triokafka.records import ConsumerRecord
from triokafka.structs import TopicPartition
from triokafka.world import RealWorld, World

if TYPE_CHECKING:
    import pyarrow as pa

    from triokafka.records.arrow import ArrowBuilder

OffsetRange = tuple[int, int]
"""First offset, and the offset after the last."""
Bound = Literal["earliest", "latest"] | datetime | Mapping[TopicPartition, int]
"""Where a read starts or ends in each partition: its first or last offset as of now, a time, or given offsets (-2 and
-1 stand for the first and the last)."""

_ALL: Final = sys.maxsize


class RangeReader:
    """Reads offset ranges of partitions. Use it as ``async with RangeReader({partition: (start, end)}, …) as reader``.

    ``async for`` gives Arrow record batches of at most ``batch_rows`` rows, never empty ones; offsets rise within each
    partition. It ends when every partition has been read up to its end, which counts as reached also when the last
    offsets hold no record any more (compaction, transaction markers, aborted transactions).

    Options are those of `ConsumerOptions` about brokers and fetching (``bootstrap_servers``, ``isolation_level``,
    ``max_partition_fetch_bytes``, …). All partitions of one broker share one fetch session.

    Args:
        ranges: first offset and the offset after the last one, by partition. Both must exist in the log, or the end may
            be its end.
        columns: names of Arrow columns; see `Consumer.poll_arrow`.
        values: ``"view"`` for key and value as views into the fetched bytes.
        batch_rows: most rows of one batch.

    Iterating raises:
        OffsetOutOfRangeError: the first offsets were deleted, or the log is shorter than the range.
        CorruptRecordError: names topic, partition and offset.
        KafkaTimeoutError: no progress within ``default_api_timeout_ms``; says where it stands.
    """

    def __init__(
        self,
        ranges: Mapping[TopicPartition, OffsetRange],
        *,
        columns: Sequence[str] | None = None,
        values: Literal["binary", "view"] = "binary",
        batch_rows: int = 100_000,
        world: World | None = None,
        **options: Any,
    ) -> None:
        for partition, (start, end) in ranges.items():
            if not 0 <= start <= end:
                raise ValueError(f"the range {start} to {end} of {partition} cannot be read")
        if batch_rows < 1:
            raise ValueError("batch_rows must be at least 1")
        self.options = ConsumerOptions.parse(options)
        self._columns = columns
        self._values = values
        self._batch_rows = batch_rows
        self._world = world if world is not None else RealWorld()
        self._ranges = {TopicPartition(*partition): bounds for partition, bounds in ranges.items()}
        self._left = {partition: end for partition, (start, end) in self._ranges.items() if start < end}
        self._network = NetworkClient(
            self.options.network(client_id="triokafka-reader", allow_auto_create_topics=False), world=self._world
        )
        self._tasks = BackgroundTasks(self._fail)
        self._troubles = Troubles()
        self._subscription = SubscriptionState(None)
        self._fetcher = Fetcher(
            self.options, self._network, self._subscription, self._tasks, self._troubles, self._notify
        )
        self._changed = trio.Event()
        self._failure: Exception | None = None
        self._is_open = False

    async def __aenter__(self) -> Self:
        await self._network.__aenter__()
        await self._tasks.open()
        self._is_open = True
        self._subscription.assign(self._left)
        for partition, end in self._left.items():
            self._subscription.seek(partition, self._ranges[partition][0])
            self._subscription.state(partition).stop_at = end
        self._network.metadata.set_topics(dict.fromkeys(partition.topic for partition in self._ranges))
        self._network.metadata.add_listener(lambda cluster: self._fetcher.wake())
        self._network.request_metadata_update()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_open = False
        await self._tasks.close()
        await self._network.__aexit__(None, None, None)
        self._fetcher.buffer.clear()

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._notify()

    def _notify(self) -> None:
        self._changed.set()

    # ---------------------------------------------------------------- reading

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> pa.RecordBatch:
        """The next batch. If cancelled, nothing is lost."""
        from triokafka.records.arrow import ArrowBuilder

        builder = ArrowBuilder(self._columns, values=self._values)
        await self._wait_for(lambda: self._take_columns(builder))
        if not builder.rows:
            raise StopAsyncIteration
        return builder.finish()

    async def next_records(self, limit: int = 1_000) -> list[ConsumerRecord]:
        """The next records, at most ``limit``, all of one partition; an empty list when everything was read."""
        records: list[ConsumerRecord] = []
        await self._wait_for(lambda: self._take_records(records, limit))
        return records

    def position(self, partition: TopicPartition) -> int:
        """The next offset to be handed out of a partition; at least its end when it was read."""
        state = self._subscription.get(partition)
        if state is not None and state.position is not None:
            return state.position
        start, end = self._ranges[partition]
        return start if partition in self._left else end

    async def _wait_for(self, take: Any) -> None:
        await trio.lowlevel.checkpoint()
        patience = self.options.default_api_timeout_ms / 1000
        since = self._world.now()
        seen = self._progress()
        while self._left:
            self._changed = changed = trio.Event()
            self._check()
            if take():
                return
            self._drop_read()
            if not self._left:
                return
            now = self._world.now()
            if self._progress() != seen:
                seen, since = self._progress(), now
            elif now - since >= patience:
                self._raise_stalled(now - since)
            with trio.CancelScope(deadline=self._world.deadline(since + patience)):
                await changed.wait()

    def _check(self) -> None:
        if self._failure is not None:
            raise KafkaError(f"a background task of the reader failed: {self._failure!r}") from self._failure
        if not self._is_open:
            raise ClosedError("the reader is not open: use it inside its async with block")
        self._network.check_usable()

    def _progress(self) -> int:
        return sum(state.position or 0 for _, state in self._subscription) + self._fetcher.counters.bytes

    def _raise_stalled(self, waited: float) -> None:
        partition, end = next(iter(self._left.items()))
        failing = self._troubles.current
        error = self._network.metadata.error_for(partition.topic)
        why = f"; {failing[0].what} fails: {failing[0].error}" if failing else f"; {error}" if error is not None else ""
        raise KafkaTimeoutError(
            f"no progress for {waited:.0f} s: {len(self._left)} partitions are not read to the end, {partition} stands"
            f" at offset {self.position(partition)} of {end}{why}"
        )

    # ---------------------------------------------------------------- taking

    def _take_columns(self, builder: ArrowBuilder) -> bool:
        try:
            for data, limit in self._current():
                before = builder.rows
                data.take_columns(builder, min(limit, self._batch_rows - before))
                self._advance(data, reached=builder.rows - before == limit)
                if builder.rows >= self._batch_rows or not data.done:
                    break
        except KafkaError:
            # What was taken before is handed out first; the error stands where it is and comes again.
            if not builder.rows:
                raise
        return builder.rows > 0

    def _take_records(self, records: list[ConsumerRecord], limit: int) -> bool:
        for data, within in self._current():
            room = min(limit, within)
            if room > 0:
                records.extend(data.take(room))
                if not records:
                    data.end = data.position
            self._advance(data, reached=len(records) == within)
            if records:
                return True
        return False

    def _current(self) -> Iterator[tuple[FetchedData, int]]:
        """Data to take from, with the number of records that lie inside the range."""
        for data, _ in self._fetcher.buffer.current():
            if data.error is not None:
                self._explain(data)
            stop = self._left[data.partition]
            if data.end is not None and data.end <= stop:
                yield data, _ALL
                continue
            # The range ends inside this data; once per partition the records are looked at one by one.
            inside = 0
            decoder = data.decoder()
            while chunk := decoder.take(1_000):
                inside += sum(record.offset < stop for record in chunk)
                if chunk[-1].offset >= stop:
                    break
            if not inside:
                self._advance(data, reached=True)
                continue
            yield data, inside

    def _explain(self, data: FetchedData) -> None:
        error = data.error
        if isinstance(error, OffsetOutOfRangeError):
            start, end = self._ranges[data.partition]
            raise OffsetOutOfRangeError(
                f"{data.partition}: offset {data.position} of the range {start} to {end} is not in the log: it was"
                " deleted by retention, or the log was truncated"
            )
        if error is not None:
            raise error

    def _advance(self, data: FetchedData, *, reached: bool) -> None:
        stop = self._left[data.partition]
        position = max(data.position, stop) if reached else data.position
        self._subscription.hand_out(data.partition, position, data.leader_epoch)
        if reached or data.exhausted:
            self._fetcher.buffer.finished(data)
        self._drop_read()

    def _drop_read(self) -> None:
        """Let go of partitions that stand at their end."""
        for partition, end in list(self._left.items()):
            state = self._subscription.state(partition)
            if state.position is not None and state.position >= end:
                del self._left[partition]
                self._subscription.revoke([partition])


async def resolve_ranges(
    topics: Iterable[str], start: Bound, end: Bound, *, world: World | None = None, **options: Any
) -> dict[TopicPartition, OffsetRange]:
    """The offset ranges of all partitions of ``topics`` between two bounds, as the brokers say now.

    With a mapping only the partitions in it are read. A time stands for the first record at or after it, or for the
    end when there is none. An end before the start gives an empty range.

    Raises:
        UnknownTopicOrPartitionError: there is no such topic.
        KafkaTimeoutError: no answer within ``default_api_timeout_ms``.
    """
    parsed = ConsumerOptions.parse(options)
    actual = world if world is not None else RealWorld()
    network = NetworkClient(parsed.network(client_id="triokafka-reader", allow_auto_create_topics=False), world=actual)
    async with network:
        cluster = await network.metadata_for(topics, timeout_ms=parsed.default_api_timeout_ms)
        partitions = [TopicPartition(topic, number) for topic in topics for number in cluster.topics[topic].partitions]
        for bound in (start, end):
            if isinstance(bound, Mapping):
                partitions = [partition for partition in partitions if partition in bound]
        offsets = LogOffsets(parsed, network)
        deadline = actual.now() + parsed.default_api_timeout_ms / 1000
        first = await _resolve(offsets, partitions, start, "start", deadline)
        last = await _resolve(offsets, partitions, end, "end", deadline)
    return {partition: (first[partition], max(first[partition], last[partition])) for partition in partitions}


async def _resolve(
    offsets: LogOffsets, partitions: Sequence[TopicPartition], bound: Bound, name: str, deadline: float
) -> dict[TopicPartition, int]:
    asked: dict[TopicPartition, int]
    if isinstance(bound, datetime):
        asked = dict.fromkeys(partitions, int(bound.timestamp() * 1000))
    elif isinstance(bound, Mapping):
        asked = {partition: bound[partition] for partition in partitions if bound[partition] < 0}
    elif bound in ("earliest", "latest"):
        asked = dict.fromkeys(partitions, EARLIEST if bound == "earliest" else LATEST)
    else:
        raise ConfigurationError(f"{name}={bound!r}: use 'earliest', 'latest', a datetime, or offsets by partition")
    found = await offsets.list_offsets(asked, deadline=deadline) if asked else {}
    late = [partition for partition in asked if found[partition] is None]
    ends = await offsets.list_offsets(dict.fromkeys(late, LATEST), deadline=deadline) if late else {}
    resolved: dict[TopicPartition, int] = {}
    for partition in partitions:
        offset = found.get(partition) or ends.get(partition)
        if offset is not None:
            resolved[partition] = offset.offset
        elif isinstance(bound, Mapping):
            resolved[partition] = bound[partition]
        else:
            raise KafkaError(f"the leader of {partition} does not know its {name}")
    return resolved


def read_topic(
    topics: str | Sequence[str],
    *,
    start: Bound = "earliest",
    end: Bound = "latest",
    columns: Sequence[str] | None = None,
    values: Literal["binary", "view"] = "binary",
    batch_rows: int = 100_000,
    world: World | None = None,
    **options: Any,
) -> pa.RecordBatchReader:
    """Read a topic, or several, between two bounds as a stream of Arrow record batches. Blocks: for code without Trio.

    The bounds are resolved now; what is produced later is not read. Brokers are read in a thread of its own, a little
    ahead of the caller; it ends when everything was read, or when the reader is closed or garbage collected.

    Options are those of `ConsumerOptions`: ``bootstrap_servers``, ``isolation_level``, …

    Raises:
        As `resolve_ranges` here, as `RangeReader` while reading.
    """
    import pyarrow as pa

    from triokafka.client.threaded import ThreadedIteration
    from triokafka.records.arrow import arrow_schema

    names = [topics] if isinstance(topics, str) else list(topics)
    schema = arrow_schema(columns, values=values)

    async def open_reader() -> RangeReader:
        ranges = await resolve_ranges(names, start, end, world=world, **options)
        return RangeReader(ranges, columns=columns, values=values, batch_rows=batch_rows, world=world, **options)

    return pa.RecordBatchReader.from_batches(schema, ThreadedIteration(open_reader).items())
