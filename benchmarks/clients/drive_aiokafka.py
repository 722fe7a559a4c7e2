"""Drives aiokafka's producer."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from aiokafka import AIOKafkaProducer

from benchmarks.clients.job import Acknowledgements, Job, Latency, Stall, Throughput
from benchmarks.clients.process import SENDING
from triokafka.cli.load.load_meter import LoadMeter, peak_mib
from triokafka.cli.load.open_loop import Schedule, Ticker

_LEAD: Final = 0.05
_STRETCH: Final = 10_000


def _producer(job: Job, how: str) -> Any:
    return AIOKafkaProducer(
        bootstrap_servers=job.bootstrap,
        acks=job.acks if job.acks == "all" else int(job.acks),
        max_batch_size=job.batch_bytes,
        linger_ms=job.linger_ms,
        compression_type=None if job.compression == "none" else job.compression,
        enable_idempotence=how.endswith(" idempotent"),
    )


def throughput(job: Job, how: str) -> Throughput:
    """Send all as fast as possible, and flush."""

    async def main() -> Throughput:
        async with _producer(job, how) as producer:
            data = job.values()
            await producer.send_and_wait(job.topic, data[0], partition=job.partition)
            meter = LoadMeter()
            if how == "send_batch":
                await _send_batches(producer, job, data)
            else:
                topic, partition, count = job.topic, job.partition, len(data)
                for i in range(job.records):
                    await producer.send(topic, data[i % count], partition=partition)
            await producer.flush()
            return Throughput.measured(meter, data, job.records)

    return asyncio.run(main())


async def _send_batches(producer: Any, job: Job, data: list[bytes]) -> None:
    """Fill batches explicitly, the library's API for speed."""
    sent, count = 0, len(data)
    while sent < job.records:
        batch = producer.create_batch()
        append = batch.append
        while sent < job.records and append(key=None, value=data[sent % count], timestamp=None) is not None:
            sent += 1
        await producer.send_batch(batch, job.topic, partition=job.partition)


def latency(job: Job, how: str) -> Latency:
    """Send on schedule; the future of each record reports its acknowledgement."""

    async def main() -> Latency:
        async with _producer(job, how) as producer:
            data = job.values()
            await producer.send_and_wait(job.topic, data[0], partition=job.partition)
            noted = Acknowledgements(job.records)
            schedule = Schedule(job.rate, job.records, start=time.perf_counter() + _LEAD)
            meter = LoadMeter()
            with Ticker(schedule) as ticker:
                while not schedule.ended:
                    await _wait(ticker, schedule)
                    for number in schedule.due():
                        future = await producer.send(job.topic, data[number % len(data)], partition=job.partition)
                        future.add_done_callback(_noting(noted, number, schedule.intended(number)))
            await producer.flush()
            await asyncio.sleep(0)  # run the callbacks of the last futures
            _, cpu = meter.stop()
            return noted.latency(schedule.given + 1, cpu, peak_mib())

    return asyncio.run(main())


async def _wait(ticker: Ticker, schedule: Schedule) -> None:
    """`Ticker.wait` on this event loop."""
    left = schedule.seconds_left()
    if ticker.fd is None or not left:
        await asyncio.sleep(left)
    else:
        loop = asyncio.get_running_loop()
        due: asyncio.Future[None] = loop.create_future()
        loop.add_reader(ticker.fd, _set, due)
        await due
        loop.remove_reader(ticker.fd)
    ticker.drain()


def _set(due: asyncio.Future[None]) -> None:
    if not due.done():
        due.set_result(None)


def _noting(noted: Acknowledgements, number: int, intended: float) -> Any:
    def settled(future: asyncio.Future[Any]) -> None:
        if future.exception() is None:
            noted.note(number, intended, time.perf_counter())

    return settled


def stall(job: Job, how: str) -> Stall:
    """Send as fast as possible for some seconds, during which the broker stops answering for a while."""

    async def main() -> Stall:
        async with _producer(job, how) as producer:
            data = job.values()
            await producer.send_and_wait(job.topic, data[0], partition=job.partition)
            print(SENDING, flush=True)
            before = peak_mib()
            sent = 1
            until = time.monotonic() + job.seconds
            while time.monotonic() < until:
                for i in range(_STRETCH):
                    await producer.send(job.topic, data[i % len(data)], partition=job.partition)
                sent += _STRETCH
            await producer.flush()
            return Stall(sent, before, peak_mib())

    return asyncio.run(main())
