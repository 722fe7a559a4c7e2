"""The comparison of producers that ``triokafka perf produce --compare`` prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click
import trio

import triokafka
from benchmarks.clients.brokers import Broker, KafkaBroker, in_memory_broker, sink_broker
from benchmarks.clients.catalogue import PRODUCERS
from benchmarks.clients.comparison import COMPARED, Compared
from benchmarks.clients.comparison import compare as compare_clients
from benchmarks.clients.job import Job, Latency
from triokafka.cli.connection import timeout_ms
from triokafka.cli.counting import counted
from triokafka.cli.load.documents import json_text
from triokafka.cli.perf.produce_settings import Settings
from triokafka.cli.progress import say
from triokafka.cli.unreachable_brokers import hooked


def compare(bootstrap: str | None, against: str, settings: Settings, rounds: int) -> None:
    """Measure the installed clients ``rounds`` times in turn, and print medians.

    If ``bootstrap`` is None, start the broker that ``against`` names: "sink" or "memory".

    Raises:
        MeasurementError: a client failed, or the broker does not have the records that it sent.
    """
    with _broker(bootstrap, against) as broker:
        clients = []
        for name in COMPARED[settings.api]:
            if PRODUCERS[name].installed:
                clients.append(name)
            else:
                say(f"{name}: not installed (pip install {PRODUCERS[name].package})")
        job = Job(
            broker.bootstrap,
            settings.topic,
            settings.records,
            settings.size,
            settings.compression,
            batch_bytes=settings.batch_size,
            linger_ms=settings.linger_ms,
            acks=settings.acks,
            rate=settings.rate or 0,
            partition=settings.partition or 0,
            payload_file=settings.payload_file or "",
        )
        _create_topic(job)
        found = compare_clients(clients, job, broker, rounds=rounds, say=say)
    if settings.as_json:
        rows = [{**row._asdict(), "medians": row.medians._asdict()} for row in found]
        click.echo(json_text({"job": job._asdict(), "rounds": rounds, "clients": rows}))
    else:
        _print(found, rounds)


@contextmanager
def _broker(bootstrap: str | None, against: str) -> Iterator[Broker]:
    if bootstrap is not None:
        yield KafkaBroker(0, bootstrap)
        return
    with sink_broker() if against == "sink" else in_memory_broker() as broker:
        yield broker


def _create_topic(job: Job) -> None:
    """Have the broker create the topic if it creates topics; else raise a clear error before another client tries."""
    limit = timeout_ms(click.get_current_context())
    options: dict[str, Any] = {"bootstrap_servers": job.bootstrap, "max_block_ms": limit}
    reaching = hooked(options, limit)

    async def ask() -> None:
        async with triokafka.Producer(**options) as producer:
            await reaching.watch(lambda: producer.partitions_for(job.topic))

    trio.run(ask, restrict_keyboard_interrupt_to_checkpoints=True)


def _print(found: Sequence[Compared], rounds: int) -> None:
    first = found[0]
    click.echo(
        f"Medians of {counted(rounds, 'round')}, each client in a process of its own, all with the same settings:"
    )
    for row in found:
        if isinstance(row.medians, Latency):
            figures = (
                f"p50 {row.medians.p50_ms:8.2f} ms, p99 {row.medians.p99_ms:8.2f}, p99.9 {row.medians.p999_ms:8.2f},"
            )
        else:
            figures = (
                f"{row.medians.records_per_second:12,.0f} records/s, {row.medians.megabytes_per_second:8,.1f} MB/s,"
            )
        click.echo(
            f"  {row.client:24} {figures} processor {row.medians.cpu_seconds_per_million:8.2f} s/M,"
            f" memory {row.medians.peak_mib:5.0f} MiB"
        )
    for row in found[1:]:
        what = "the p99" if isinstance(row.medians, Latency) else "the speed"
        of = f"{first.client} and {row.client}"
        click.echo(f"{of}: {row.times_speed:.1f} times {what}, processor time {row.times_processor:.1f} times less")
