"""One read run with triokafka's consumer: join, seek, count records, report progress, and summarize.

The measured time is from the first assignment to the last record. It excludes joining the group and the idle wait at
the end. Bytes are those of keys and values.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

import trio

import triokafka
from triokafka.cli.load.load_meter import peak_mib
from triokafka.errors import KafkaError, KafkaTimeoutError, UnknownTopicOrPartitionError
from triokafka.metrics import MetricName

Api = Literal["poll", "arrow"]
Take = Callable[[triokafka.Consumer, int, float], Awaitable[tuple[int, int]]]
"""Reads up to a number of records within a time in milliseconds; returns their number and their bytes."""

JOIN_MS: Final = 10_000
_AT_ONCE: Final = 10_000
_AT_ONCE_ARROW: Final = 100_000
_MEGABYTE: Final = 1_000_000


class Reading(NamedTuple):
    """Parameters of a read run."""

    topic: str
    records: int
    api: Api = "poll"
    from_latest: bool = False
    idle_ms: float = 10_000
    """How long to wait for the next record before giving up."""
    interval_ms: float = 5_000
    include: str | None = None
    """A regular expression for the names of the topics, instead of one topic."""


class Window(NamedTuple):
    """Counts between two reports, and in total; ``ended_at_ms`` is wall-clock time.

    ``join_seconds`` is what joining the group took before the first window, and 0 in all others.
    """

    ended_at_ms: int
    seconds: float
    records: int
    size: int
    all_records: int
    all_size: int
    join_seconds: float


class ReadSummary(NamedTuple):
    """Results of a run. Times of day are wall-clock milliseconds."""

    started_at_ms: int
    ended_at_ms: int
    records: int
    bytes: int
    interrupted: bool
    complete: bool
    join_seconds: float
    seconds: float
    records_per_second: float
    megabytes_per_second: float
    cpu_seconds_per_million: float
    peak_mib: float


class ReadRun:
    """One read run; call `perform` once.

    It calls ``report`` with the counts of every interval, even an empty one, and ``advance`` with the number of records
    read since the last call. After the run ``metrics`` are those of the consumer, under Kafka's names.
    """

    def __init__(
        self,
        reading: Reading,
        options: Mapping[str, Any],
        report: Callable[[Window], None],
        advance: Callable[[float], None] = lambda more: None,
    ) -> None:
        self._reading = reading
        self._consumer = triokafka.Consumer(**options)
        self._report = report
        self._advance = advance
        self._take = _arrow_taker() if reading.api == "arrow" else _take_records
        self.metrics: Mapping[MetricName, float] = {}
        self._records = self._bytes = 0
        self._interrupted = False
        self._join_seconds = self._seconds = self._cpu = 0.0
        self._started_at_ms = self._ended_at_ms = 0

    async def perform(self) -> ReadSummary:
        """Read until all records have arrived, none has arrived for too long, or SIGINT.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
            KafkaTimeoutError: the group gave this consumer no partition within ten seconds.
            KafkaError: reading failed.
        """
        failure: KafkaError | None = None
        with trio.open_signal_receiver(signal.SIGINT) as interrupts:
            async with self._consumer as consumer, trio.open_nursery() as nursery:
                reading = trio.CancelScope()
                nursery.start_soon(self._stop_on_interrupt, interrupts, reading)
                with reading:
                    try:
                        await self._join(consumer)
                        self._started_at_ms = self._ended_at_ms = _wall_ms()
                        nursery.start_soon(self._report_progress)
                        await self._read_all(consumer)
                    except KafkaError as error:
                        failure = error  # unwrapped, not in an exception group
                nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
        self.metrics = self._consumer.kafka_metrics()
        return self._summary()

    async def _stop_on_interrupt(self, interrupts: AsyncIterator[int], reading: trio.CancelScope) -> None:
        async for _ in interrupts:
            self._interrupted = True
            reading.cancel()

    async def _join(self, consumer: triokafka.Consumer) -> None:
        """Wait for the first assignment, and seek to the start position."""
        topic, include = self._reading.topic, self._reading.include
        if include is None and await consumer.partitions_for_topic(topic) is None:
            raise UnknownTopicOrPartitionError(f"topic {topic!r} does not exist")
        since = time.perf_counter()
        if include is None:
            consumer.subscribe([topic])
        else:
            consumer.subscribe(pattern=include)
        with trio.move_on_after(JOIN_MS / 1000):
            while not consumer.assignment():
                await consumer.poll(timeout_ms=100, max_records=1)
        if not consumer.assignment():
            raise KafkaTimeoutError(
                f"no partition of {include or topic!r} was assigned within {JOIN_MS} ms; does the group have other"
                " members?"
            )
        if self._reading.from_latest:
            consumer.seek_to_end()
        else:
            consumer.seek_to_beginning()
        self._join_seconds = time.perf_counter() - since

    async def _read_all(self, consumer: triokafka.Consumer) -> None:
        start, cpu_start = last, _ = time.perf_counter(), time.process_time()
        while (left := self._reading.records - self._records) > 0:
            waits_ms = self._reading.idle_ms - (time.perf_counter() - last) * 1000
            if waits_ms <= 0:
                return
            records, size = await self._take(consumer, left, waits_ms)
            if records:
                last = time.perf_counter()
                self._records += records
                self._bytes += size
                self._advance(records)
                self._seconds, self._cpu = last - start, time.process_time() - cpu_start
                self._ended_at_ms = _wall_ms()

    async def _report_progress(self) -> None:
        since, records, size, joined = time.perf_counter(), 0, 0, self._join_seconds
        while True:
            await trio.sleep(self._reading.interval_ms / 1000)
            now, told = time.perf_counter(), (self._records, self._bytes)
            self._report(Window(_wall_ms(), now - since, told[0] - records, told[1] - size, *told, joined))
            since, (records, size), joined = now, told, 0.0

    def _summary(self) -> ReadSummary:
        seconds = self._seconds
        return ReadSummary(
            started_at_ms=self._started_at_ms,
            ended_at_ms=self._ended_at_ms,
            records=self._records,
            bytes=self._bytes,
            interrupted=self._interrupted,
            complete=self._records >= self._reading.records,
            join_seconds=self._join_seconds,
            seconds=seconds,
            records_per_second=self._records / seconds if seconds else 0.0,
            megabytes_per_second=self._bytes / seconds / _MEGABYTE if seconds else 0.0,
            cpu_seconds_per_million=self._cpu / self._records * 1e6 if self._records else math.nan,
            peak_mib=peak_mib(),
        )


async def _take_records(consumer: triokafka.Consumer, left: int, timeout_ms: float) -> tuple[int, int]:
    found = await consumer.poll(timeout_ms=timeout_ms, max_records=min(left, _AT_ONCE))
    records = size = 0
    for some in found.values():
        records += len(some)
        for record in some:
            size += len(record.key or b"") + len(record.value or b"")
    return records, size


def _arrow_taker() -> Take:
    import pyarrow.compute as pc  # here, so that the run does not wait for it

    async def take(consumer: triokafka.Consumer, left: int, timeout_ms: float) -> tuple[int, int]:
        batch = await consumer.poll_arrow(
            timeout_ms=timeout_ms, max_records=min(left, _AT_ONCE_ARROW), columns=["key", "value"]
        )
        return batch.num_rows, sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in batch.columns)

    return take


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
