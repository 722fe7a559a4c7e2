"""One load run with triokafka's producer: send records, report progress, and summarize.

Latency is sampled, because a callback per record would slow down the measurement. Without a rate it counts from the
call of send; with a rate, from the record's scheduled time (`open_loop`).
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import trio

import triokafka
from triokafka.cli.counting import counted
from triokafka.cli.load.load_meter import LoadMeter, peak_mib
from triokafka.cli.load.open_loop import Schedule, Ticker
from triokafka.cli.load.payloads import bytes_of
from triokafka.cli.load.quantiles import LatencySummary, summarize
from triokafka.cli.load.transactional import SendSome, TransactionalSender
from triokafka.errors import KafkaError, first_leaf
from triokafka.metrics import MetricName

Api = Literal["send", "send-many", "bound"]

_SAMPLES: Final = 20_000
_SAMPLED_RATE: Final = 20_000
_MANY: Final = 1_000
_LEAD: Final = 0.01
_MEGABYTE: Final = 1_000_000
_DRAWN_EVERY: Final = 0.2  # seconds


class Load(NamedTuple):
    """Parameters of a load run."""

    topic: str
    values: Sequence[bytes]
    records: int
    api: Api = "send"
    rate: float | None = None
    """Records a second; None for as fast as possible."""
    partition: int | None = None
    progress_seconds: float = 5.0
    transaction_seconds: float | None = None
    """Length of a transaction; None for records without transactions."""


class LoadSummary(NamedTuple):
    """Results of a run."""

    sent: int
    acknowledged: int
    failed: int
    first_error: str
    interrupted: bool
    seconds: float
    records_per_second: float
    megabytes_per_second: float
    latency: LatencySummary
    cpu_seconds_per_million: float
    peak_mib: float


class LoadRun:
    """One load run; call `perform` once. ``metrics`` are then those of the producer, under Kafka's names."""

    def __init__(
        self,
        load: Load,
        options: Mapping[str, Any],
        say: Callable[[str], None],
        advance: Callable[[float], None] | None = None,
    ) -> None:
        self._load = load
        self._producer = triokafka.Producer(**options)
        self._say = say
        self._advance = advance
        self._sent = 0
        self._samples: list[float] = []
        self._first_error = ""
        self._interrupted = False
        self._seconds = self._cpu = 0.0
        self._before: Mapping[str, float] = {}
        self.metrics: Mapping[MetricName, float] = {}

    async def perform(self) -> LoadSummary:
        """Send everything or until SIGINT; then wait for acknowledgements up to the producer's close timeout.

        Raises:
            KafkaError, OSError: a failure before the first record was sent; the summary contains later failures.
        """
        with trio.open_signal_receiver(signal.SIGINT) as interrupts:
            try:
                async with self._producer as producer:
                    await producer.partitions_for(self._load.topic)
                    self._before = producer.metrics()
                    await self._send_until_interrupted(producer, interrupts)
            except* KafkaError as failures:
                if not self._sent:
                    raise
                self._first_error = self._first_error or str(first_leaf(failures))
        self.metrics = self._producer.kafka_metrics()
        return self._summary()

    async def _send_until_interrupted(self, producer: triokafka.Producer, interrupts: AsyncIterator[int]) -> None:
        async with trio.open_nursery() as nursery:
            sending = trio.CancelScope()

            async def stop_on_interrupt() -> None:
                async for _ in interrupts:
                    self._interrupted = True
                    sending.cancel()

            nursery.start_soon(stop_on_interrupt)
            nursery.start_soon(self._report_progress, producer)
            if self._advance is not None:
                nursery.start_soon(self._draw_progress, producer, self._advance)
            meter = LoadMeter()
            try:
                with sending:
                    await self._send_in_transactions(producer, await self._way_to_send(producer))
                    await producer.flush()
            finally:
                self._seconds, self._cpu = meter.stop()
                nursery.cancel_scope.cancel()

    async def _send_in_transactions(self, producer: triokafka.Producer, send_some: SendSome) -> None:
        seconds = self._load.transaction_seconds
        if seconds is None:
            await self._send_all(send_some)
            return
        async with TransactionalSender(producer, send_some, seconds) as sender:
            await self._send_all(sender)

    async def _send_all(self, send_some: SendSome) -> None:
        load = self._load
        if load.rate is None:
            stretch = _MANY if load.api == "send-many" else max(1, load.records // _SAMPLES)
            for first in range(0, load.records, stretch):
                numbers = range(first, min(first + stretch, load.records))
                await send_some(numbers, time.perf_counter())
                self._sent = numbers.stop
            return
        stretch = max(1, int(load.rate // _SAMPLED_RATE))
        schedule = Schedule(load.rate, load.records, start=time.perf_counter() + _LEAD)
        with Ticker(schedule) as ticker:
            while not schedule.ended:
                await ticker.wait()
                due = schedule.due()
                for first in range(due.start, due.stop, stretch):
                    numbers = range(first, min(first + stretch, due.stop))
                    await send_some(numbers, schedule.intended(first))
                    self._sent = numbers.stop

    async def _way_to_send(self, producer: triokafka.Producer) -> SendSome:
        topic, partition, data = self._load.topic, self._load.partition, self._load.values
        count = len(data)

        async def by_send(numbers: range, since: float) -> None:
            await producer.send(
                topic, data[numbers.start % count], partition=partition, on_delivery=self._sampling(since)
            )
            for i in numbers[1:]:
                await producer.send(topic, data[i % count], partition=partition)

        async def by_send_many(numbers: range, since: float) -> None:
            values = [data[i % count] for i in numbers]
            deliveries = await producer.send_many(topic, values, partition=partition)
            next(iter(deliveries)).add_callback(self._sampling(since))

        if self._load.api == "send-many":
            return by_send_many
        if self._load.api == "send":
            return by_send
        stream = await producer.bind(topic, partition or 0)

        async def by_stream(numbers: range, since: float) -> None:
            delivery = await stream.send(data[numbers.start % count])
            delivery.add_callback(self._sampling(since))
            for i in numbers[1:]:
                await stream.send(data[i % count])

        return by_stream

    def _sampling(self, since: float) -> Callable[[object, Exception | None], None]:
        def settled(_metadata: object, error: Exception | None) -> None:
            if error is None:
                self._samples.append(time.perf_counter() - since)
            else:
                self._first_error = self._first_error or str(error)

        return settled

    def _settled(self, producer: triokafka.Producer) -> tuple[int, int]:
        """Return the numbers of acknowledged and failed records so far."""
        now = producer.metrics()
        acknowledged, failed = (
            int(now[name] - self._before[name]) for name in ("record_send_total", "record_error_total")
        )
        return acknowledged, failed

    async def _report_progress(self, producer: triokafka.Producer) -> None:
        """Print a line every few seconds, even if no broker responds."""
        load = self._load
        since, told, sampled = time.perf_counter(), 0, 0
        while True:
            await trio.sleep(load.progress_seconds)
            now = time.perf_counter()
            acknowledged, failed = self._settled(producer)
            line = f"{acknowledged:,} of {counted(load.records, 'record')} acknowledged"
            if acknowledged > told:
                speed = (acknowledged - told) / (now - since)
                line += f"; {speed:,.0f} records/s, {speed * self._average_size() / _MEGABYTE:,.1f} MB/s"
            else:
                line += f"; none for {now - since:.0f} s, {self._sent - acknowledged - failed:,} pending"
            window = self._samples[sampled:]
            if window:
                line += (
                    f"; latency {sum(window) / len(window) * 1e3:.1f} ms on average, {max(window) * 1e3:.1f} at most"
                )
            self._say(line + (f"; {failed:,} failed" if failed else ""))
            since, told, sampled = now, acknowledged, sampled + len(window)

    async def _draw_progress(self, producer: triokafka.Producer, advance: Callable[[float], None]) -> None:
        drawn = 0
        while True:
            await trio.sleep(_DRAWN_EVERY)
            acknowledged, _ = self._settled(producer)
            advance(acknowledged - drawn)
            drawn = acknowledged

    def _average_size(self) -> float:
        return bytes_of(self._load.values, self._sent) / self._sent if self._sent else 0.0

    def _summary(self) -> LoadSummary:
        acknowledged, failed = self._settled(self._producer)
        speed = acknowledged / self._seconds if self._seconds else 0.0
        return LoadSummary(
            sent=max(self._sent, acknowledged + failed),  # no counting inside a chunk
            acknowledged=acknowledged,
            failed=failed,
            first_error=self._first_error,
            interrupted=self._interrupted,
            seconds=self._seconds,
            records_per_second=speed,
            megabytes_per_second=speed * self._average_size() / _MEGABYTE,
            latency=summarize(self._samples),
            cpu_seconds_per_million=self._cpu / acknowledged * 1e6 if acknowledged else math.nan,
            peak_mib=peak_mib(),
        )
