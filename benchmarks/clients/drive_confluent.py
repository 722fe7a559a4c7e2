"""Drives confluent-kafka's producer (librdkafka)."""

from __future__ import annotations

import threading
import time
from typing import Any, Final

from confluent_kafka import Producer

from benchmarks.clients.job import Acknowledgements, Job, Latency, Stall, Throughput
from benchmarks.clients.process import SENDING
from triokafka.cli.load.load_meter import LoadMeter, peak_mib
from triokafka.cli.load.open_loop import Schedule, Ticker

_ROOMY_KIB: Final = 1 << 20
_POLL_EVERY: Final = 1_000
_FLUSH_SECONDS: Final = 120
_LEAD: Final = 0.05


def _producer(job: Job, how: str, **more: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": job.bootstrap,
            "acks": job.acks,
            "compression.type": job.compression,
            "linger.ms": job.linger_ms,
            "batch.size": job.batch_bytes,
            "enable.idempotence": how.endswith(" idempotent"),
            "socket.nagle.disable": True,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": job.buffer_bytes // 1024 or _ROOMY_KIB,
            **more,
        }
    )


def _warm(producer: Producer, job: Job, value: bytes, how: str = "produce") -> None:
    """Send one record with the measured API and wait for its acknowledgement."""
    if how == "produce_batch":
        producer.produce_batch(job.topic, [{"value": value}], partition=job.partition)
    else:
        producer.produce(job.topic, value, partition=job.partition)
    _flush(producer)


def _flush(producer: Producer) -> None:
    left = producer.flush(_FLUSH_SECONDS)
    if left:
        raise RuntimeError(f"{left} records are not acknowledged after {_FLUSH_SECONDS} s")


def throughput(job: Job, how: str) -> Throughput:
    """Produce all records as fast as possible, poll now and then as the library recommends, and flush."""
    producer = _producer(job, how)
    data = job.values()
    how = how.removesuffix(" idempotent")
    _warm(producer, job, data[0], how)
    sent, topic, partition, records, count = 0, job.topic, job.partition, job.records, len(data)
    if how == "produce_batch":
        batch = [{"value": value} for value in data]
        meter = LoadMeter()
        while sent < records:
            added = producer.produce_batch(
                topic, batch[sent % count : sent % count + records - sent], partition=partition
            )
            sent += added
            producer.poll(0 if added else 0.01)
        _flush(producer)
        return Throughput.measured(meter, data, records)
    delivered = 0

    def settled(error: object, _message: object) -> None:
        nonlocal delivered
        delivered += error is None

    more: dict[str, Any] = {"on_delivery": settled} if how == "on_delivery" else {}
    meter = LoadMeter()
    while sent < records:
        try:
            producer.produce(topic, data[sent % count], partition=partition, **more)
        except BufferError:
            producer.poll(0.01)
            continue
        sent += 1
        if sent % _POLL_EVERY == 0:
            producer.poll(0)
    _flush(producer)
    measured = Throughput.measured(meter, data, records)
    if more and delivered != records:
        raise RuntimeError(f"{delivered} of {records} records were delivered")
    return measured


def latency(job: Job, how: str) -> Latency:
    """Produce on schedule; a thread polls, so that delivery callbacks run without delay."""
    producer = _producer(job, how)
    data = job.values()
    _warm(producer, job, data[0])
    noted = Acknowledgements(job.records)
    ended = threading.Event()

    def serve() -> None:
        while not ended.is_set():
            producer.poll(0.1)

    poller = threading.Thread(target=serve, daemon=True)
    poller.start()
    schedule = Schedule(job.rate, job.records, start=time.perf_counter() + _LEAD)
    meter = LoadMeter()
    with Ticker(schedule) as ticker:
        while not schedule.ended:
            ticker.wait_blocking()
            for number in schedule.due():
                producer.produce(
                    job.topic,
                    data[number % len(data)],
                    partition=job.partition,
                    on_delivery=_noting(noted, number, schedule.intended(number)),
                )
    _flush(producer)
    _, cpu = meter.stop()
    ended.set()
    poller.join()
    return noted.latency(schedule.given + 1, cpu, peak_mib())


def _noting(noted: Acknowledgements, number: int, intended: float) -> Any:
    def settled(error: object, _message: object) -> None:
        if error is None:
            noted.note(number, intended, time.perf_counter())

    return settled


def stall(job: Job, how: str) -> Stall:
    """Produce as fast as possible for some seconds, during which the broker stops answering for a while."""
    producer = _producer(job, how)
    data = job.values()
    _warm(producer, job, data[0])
    print(SENDING, flush=True)
    before = peak_mib()
    sent = 0
    until = time.monotonic() + job.seconds
    while time.monotonic() < until:
        try:
            producer.produce(job.topic, data[sent % len(data)], partition=job.partition)
        except BufferError:
            producer.poll(0.01)
            continue
        sent += 1
        if sent % _POLL_EVERY == 0:
            producer.poll(0)
    _flush(producer)
    return Stall(sent + 1, before, peak_mib())
