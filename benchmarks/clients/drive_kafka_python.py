"""Drives kafka-python's producer."""

from __future__ import annotations

import time
from typing import Any, Final

from kafka import KafkaProducer

from benchmarks.clients.job import Acknowledgements, Job, Latency, Stall, Throughput
from benchmarks.clients.process import SENDING
from triokafka.cli.load.load_meter import LoadMeter, peak_mib
from triokafka.cli.load.open_loop import Schedule, Ticker

_LEAD: Final = 0.05
_STRETCH: Final = 1_000


def _producer(job: Job, how: str) -> Any:
    return KafkaProducer(
        bootstrap_servers=job.bootstrap,
        acks=job.acks if job.acks == "all" else int(job.acks),
        batch_size=job.batch_bytes,
        linger_ms=job.linger_ms,
        compression_type=None if job.compression == "none" else job.compression,
        enable_idempotence=how.endswith(" idempotent"),
    )


def throughput(job: Job, how: str) -> Throughput:
    """Send all as fast as possible, and flush."""
    producer = _producer(job, how)
    data = job.values()
    producer.send(job.topic, data[0], partition=job.partition).get(30)
    topic, partition, count = job.topic, job.partition, len(data)
    meter = LoadMeter()
    for i in range(job.records):
        producer.send(topic, data[i % count], partition=partition)
    producer.flush()
    return Throughput.measured(meter, data, job.records)


def latency(job: Job, how: str) -> Latency:
    """Send on schedule; the callback of each future reports its acknowledgement."""
    producer = _producer(job, how)
    data = job.values()
    producer.send(job.topic, data[0], partition=job.partition).get(30)
    noted = Acknowledgements(job.records)
    schedule = Schedule(job.rate, job.records, start=time.perf_counter() + _LEAD)
    meter = LoadMeter()
    with Ticker(schedule) as ticker:
        while not schedule.ended:
            ticker.wait_blocking()
            for number in schedule.due():
                future = producer.send(job.topic, data[number % len(data)], partition=job.partition)
                future.add_callback(_noting(noted, number, schedule.intended(number)))
    producer.flush()
    _, cpu = meter.stop()
    return noted.latency(schedule.given + 1, cpu, peak_mib())


def _noting(noted: Acknowledgements, number: int, intended: float) -> Any:
    def settled(_metadata: object) -> None:
        noted.note(number, intended, time.perf_counter())

    return settled


def stall(job: Job, how: str) -> Stall:
    """Send as fast as possible for some seconds, during which the broker stops answering for a while."""
    producer = _producer(job, how)
    data = job.values()
    producer.send(job.topic, data[0], partition=job.partition).get(30)
    print(SENDING, flush=True)
    before = peak_mib()
    sent = 1
    until = time.monotonic() + job.seconds
    while time.monotonic() < until:
        for i in range(_STRETCH):
            producer.send(job.topic, data[i % len(data)], partition=job.partition)
        sent += _STRETCH
    producer.flush()
    return Stall(sent, before, peak_mib())
