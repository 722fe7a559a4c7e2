"""Drives triokafka's producer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import trio

import triokafka
from benchmarks.clients.job import Acknowledgements, Job, Latency, Stall, Throughput
from benchmarks.clients.process import SENDING
from triokafka.cli.load.load_meter import LoadMeter, peak_mib
from triokafka.cli.load.open_loop import Schedule, Ticker

_ARROW_REPEATS = 10
_LEAD = 0.05
_STRETCH = 10_000


def _producer(job: Job, how: str, **more: Any) -> triokafka.Producer:
    options: dict[str, Any] = {
        "bootstrap_servers": job.bootstrap,
        "acks": job.acks if job.acks == "all" else int(job.acks),
        "batch_size": job.batch_bytes,
        "linger_ms": job.linger_ms,
        "compression_type": job.compression,
        "enable_idempotence": how.endswith(" idempotent"),
    }
    return triokafka.Producer(**{**options, **more})


def throughput(job: Job, how: str) -> Throughput:
    """Send all as fast as possible, and flush."""

    async def main() -> Throughput:
        async with _producer(job, how) as producer:
            data = job.values()
            api = how.removesuffix(" idempotent")
            await _warm(producer, job, api, data[:1])
            meter = await _send_all(producer, job, api, data)
            await producer.flush()
            return Throughput.measured(meter, data, job.records)

    return trio.run(main)


async def _warm(producer: triokafka.Producer, job: Job, how: str, values: Sequence[bytes]) -> None:
    """Send one record with the measured API and wait for its acknowledgement."""
    if how in ("arrow", "send_many"):
        column = _column(values) if how == "arrow" else values
        await (await producer.send_many(job.topic, column, partition=job.partition))
    else:
        await (await producer.send(job.topic, values[0], partition=job.partition))


def _column(values: Sequence[bytes]) -> Any:
    import pyarrow

    return pyarrow.array(values, pyarrow.binary())


async def _send_all(producer: triokafka.Producer, job: Job, how: str, data: Sequence[bytes]) -> LoadMeter:
    topic, partition, records, count = job.topic, job.partition, job.records, len(data)
    if how == "arrow":
        column = _column(list(data) * _ARROW_REPEATS)
        meter = LoadMeter()
        for start in range(0, records, len(column)):
            await producer.send_many(topic, column[: records - start], partition=partition)
    elif how == "send_many":
        meter = LoadMeter()
        for start in range(0, records, count):
            await producer.send_many(topic, data[: records - start], partition=partition)
    elif how == "bound":
        stream = await producer.bind(topic, partition)
        meter = LoadMeter()
        for i in range(records):
            await stream.send(data[i % count])
    elif how == "send_nowait":
        meter = LoadMeter()
        for i in range(records):
            try:
                producer.send_nowait(topic, data[i % count], partition=partition)
            except triokafka.errors.BufferFullError:
                await producer.send(topic, data[i % count], partition=partition)
    else:
        meter = LoadMeter()
        for i in range(records):
            await producer.send(topic, data[i % count], partition=partition)
    return meter


def latency(job: Job, how: str) -> Latency:
    """Send on schedule; the delivery callback reports each acknowledgement."""

    async def main() -> Latency:
        async with _producer(job, how) as producer:
            data = job.values()
            await (await producer.send(job.topic, data[0], partition=job.partition))
            noted = Acknowledgements(job.records)
            clock = time.perf_counter
            schedule = Schedule(job.rate, job.records, start=clock() + _LEAD)
            meter = LoadMeter()
            with Ticker(schedule) as ticker:
                while not schedule.ended:
                    await ticker.wait()
                    for number in schedule.due():
                        await producer.send(
                            job.topic,
                            data[number % len(data)],
                            partition=job.partition,
                            on_delivery=_noting(noted, number, schedule.intended(number)),
                        )
            await producer.flush()
            _, cpu = meter.stop()
            return noted.latency(schedule.given + 1, cpu, peak_mib())

    return trio.run(main)


def _noting(noted: Acknowledgements, number: int, intended: float) -> Any:
    def settled(_metadata: object, error: Exception | None) -> None:
        if error is None:
            noted.note(number, intended, time.perf_counter())

    return settled


def stall(job: Job, how: str) -> Stall:
    """Send as fast as possible for some seconds, during which the broker stops answering for a while."""

    async def main() -> Stall:
        more = {"buffer_memory": job.buffer_bytes} if job.buffer_bytes else {}
        async with _producer(job, how, **more) as producer:
            data = job.values()
            await (await producer.send(job.topic, data[0], partition=job.partition))
            print(SENDING, flush=True)
            sent = 1
            before = peak_mib()
            until = time.monotonic() + job.seconds
            while time.monotonic() < until:
                if how == "send_many":
                    await producer.send_many(job.topic, data, partition=job.partition)
                    sent += len(data)
                else:
                    for i in range(_STRETCH):
                        await producer.send(job.topic, data[i % len(data)], partition=job.partition)
                    sent += _STRETCH
            await producer.flush()
            return Stall(sent, before, peak_mib())

    return trio.run(main)
