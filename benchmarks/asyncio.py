"""`triokafka.asyncio` and aiokafka under asyncio and uvloop: the same program with one import changed.

Each measurement runs in its own process. The four programs take turns, round after round, against one broker process,
and the medians are compared. The sink only acknowledges; the source serves a prebuilt log. Values have 100 bytes,
topics one partition, both libraries their defaults, and checksums are verified. The clients of ``200 consumers`` share
one loop and read the same partition. Throughput is compared by processor time per record; ``one send at a time`` by the
time from `send` to the acknowledgement.

``python -m benchmarks.asyncio --quick``
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from importlib import import_module
from typing import Any, Final, NamedTuple

from benchmarks.clients.brokers import sink_broker
from benchmarks.pictures import draw
from benchmarks.report import RESULTS, save
from benchmarks.side_by_side import broker_process

OURS: Final = "triokafka.asyncio"
THEIRS: Final = "aiokafka"
LOOPS: Final = ("asyncio", "uvloop")
_SIZE: Final = 100
_AT_ONCE: Final = 1_000
_CONSUMERS: Final = 200
_UNSETTLED: Final = 20_000


class Row(NamedTuple):
    """The medians of both libraries in one scenario under one loop. A ratio is aiokafka's value over ours: above 1 we
    win."""

    scenario: str
    loop: str
    unit: str
    ours: float
    theirs: float
    records_per_second: float
    their_records_per_second: float
    ratio: float
    aimed_at: float


class Measured(NamedTuple):
    """One program in one round: ``cost`` is CPU seconds for a million records, or a latency in microseconds."""

    records_per_second: float
    cost: float


async def _timed(work: Callable[[], Awaitable[int]]) -> list[Measured]:
    wall, cpu = time.perf_counter(), time.process_time()
    records = await work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return [Measured(records / wall, cpu / records * 1e6)]


async def _send(package: Any, bootstrap: str, records: int) -> list[Measured]:
    """Send without waiting, and await the futures later."""
    async with package.AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        value = b"x" * _SIZE
        await producer.send_and_wait("bench", value)

        async def work() -> int:
            for begin in range(0, records, _UNSETTLED):
                futures = [await producer.send("bench", value) for _ in range(min(_UNSETTLED, records - begin))]
                for future in futures:
                    await future
            return records

        return await _timed(work)


async def _send_and_wait(package: Any, bootstrap: str, records: int) -> list[Measured]:
    """1,000 tasks, each of which sends and waits."""
    async with package.AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        value = b"x" * _SIZE
        await producer.send_and_wait("bench", value)

        async def sender() -> None:
            for _ in range(records // _AT_ONCE):
                await producer.send_and_wait("bench", value)

        async def work() -> int:
            await asyncio.gather(*(sender() for _ in range(_AT_ONCE)))
            return records // _AT_ONCE * _AT_ONCE

        return await _timed(work)


async def _latency(package: Any, bootstrap: str, records: int) -> list[Measured]:
    """Send one record after the other: the median and the 99th percentile."""
    async with package.AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        value = b"x" * _SIZE
        for _ in range(100):
            await producer.send_and_wait("bench", value)
        taken = []
        for _ in range(records):
            begun = time.perf_counter()
            await producer.send_and_wait("bench", value)
            taken.append(time.perf_counter() - begun)
    taken.sort()
    rate = records / sum(taken)
    return [Measured(rate, taken[len(taken) * percent // 100] * 1e6) for percent in (50, 99)]


async def _consumer(package: Any, bootstrap: str) -> Any:
    consumer = package.AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    consumer.assign([package.TopicPartition("source", 0)])
    return consumer


async def _getmany(package: Any, bootstrap: str, records: int) -> list[Measured]:
    """Call `getmany` and read the value of every record."""
    consumer = await _consumer(package, bootstrap)
    await consumer.getone()

    async def work() -> int:
        got = 0
        while got < records:
            for polled in (await consumer.getmany(timeout_ms=1_000)).values():
                for record in polled:
                    _ = record.value
                got += len(polled)
        return got

    try:
        return await _timed(work)
    finally:
        await consumer.stop()


async def _async_for(package: Any, bootstrap: str, records: int) -> list[Measured]:
    """Iterate with ``async for`` and read the value of every record."""
    consumer = await _consumer(package, bootstrap)
    await consumer.getone()

    async def work() -> int:
        got = 0
        async for record in consumer:
            _ = record.value
            got += 1
            if got >= records:
                break
        return got

    try:
        return await _timed(work)
    finally:
        await consumer.stop()


async def _many_consumers(package: Any, bootstrap: str, records: int) -> list[Measured]:
    """Run 200 consumers in one loop, from construction to stop."""

    async def reader() -> None:
        consumer = await _consumer(package, bootstrap)
        got = 0
        async for _ in consumer:
            got += 1
            if got >= records // _CONSUMERS:
                break
        await consumer.stop()

    async def work() -> int:
        await asyncio.gather(*(reader() for _ in range(_CONSUMERS)))
        return records

    return await _timed(work)


class Scenario(NamedTuple):
    """A measurement. Ours gets ``records``, aiokafka one ``their_share``-th of them. ``rows`` names the results."""

    measure: Callable[[Any, str, int], Coroutine[Any, Any, list[Measured]]]
    broker: str
    records: int
    their_share: int
    rows: dict[str, float]
    unit: str = "CPU s a million"


SCENARIOS: Final[dict[str, Scenario]] = {
    "send": Scenario(_send, "sink", 400_000, 5, {"send, awaited later": 6.0}),
    "send_and_wait": Scenario(_send_and_wait, "sink", 200_000, 5, {"send_and_wait, 1,000 in flight": 6.0}),
    "latency": Scenario(
        _latency, "sink", 3_000, 1, {"one send at a time, p50": 1.0, "one send at a time, p99": 1.0}, "microseconds"
    ),
    "getmany": Scenario(_getmany, "source", 2_000_000, 10, {"getmany": 6.0}),
    "async_for": Scenario(_async_for, "source", 1_000_000, 10, {"async for": 6.0}),
    "many": Scenario(_many_consumers, "source", 400_000, 1, {"200 consumers in one loop": 1.0}),
}
_QUICK_SHARE: Final = 5


def _measure(package: str, loop: str, name: str, bootstrap: str, records: int) -> list[Measured]:
    command = [sys.executable, "-m", "benchmarks.asyncio", "--one", package, loop, name, bootstrap, str(records)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=600)
    return [Measured(*one) for one in json.loads(done.stdout.splitlines()[-1])]


def _answer_one(package: str, loop: str, name: str, bootstrap: str, records: str) -> None:
    work = SCENARIOS[name].measure(import_module(package), bootstrap, int(records))
    found = asyncio.run(work) if loop == "asyncio" else import_module("uvloop").run(work)
    print(json.dumps(found), flush=True)
    os._exit(0)


def run(*, rounds: int = 5, share: int = 1, names: list[str] | None = None) -> list[Row]:
    """Run all scenarios, or the named ones, with one ``share``-th of the records."""
    chosen = {name: SCENARIOS[name] for name in names or SCENARIOS}
    measured: dict[tuple[str, str, str], list[Measured]] = {}
    most = str(max(scenario.records for scenario in SCENARIOS.values()) + 1)
    with sink_broker() as sink, broker_process("benchmarks.source_broker", str(_SIZE), "none", most) as source:
        for number in range(rounds):
            for name, scenario in chosen.items():
                bootstrap = sink.bootstrap if scenario.broker == "sink" else source
                turns = [(package, loop) for loop in LOOPS for package in (OURS, THEIRS)]
                for package, loop in turns if number % 2 else reversed(turns):
                    records = scenario.records // share // (scenario.their_share if package == THEIRS else 1)
                    found = _measure(package, loop, name, bootstrap, records)
                    for row, one in zip(scenario.rows, found, strict=True):
                        measured.setdefault((row, loop, package), []).append(one)
    return [
        _row(row, loop, scenario.unit, aimed_at, measured[row, loop, OURS], measured[row, loop, THEIRS])
        for scenario in chosen.values()
        for row, aimed_at in scenario.rows.items()
        for loop in LOOPS
    ]


def _row(
    name: str, loop: str, unit: str, aimed_at: float, our_rounds: list[Measured], their_rounds: list[Measured]
) -> Row:
    speed, cost = (statistics.median(column) for column in zip(*our_rounds, strict=True))
    their_speed, their_cost = (statistics.median(column) for column in zip(*their_rounds, strict=True))
    return Row(name, loop, unit, cost, their_cost, speed, their_speed, their_cost / cost, aimed_at)


def show(rows: list[Row]) -> None:
    """Print the table."""
    print("The same program with triokafka.asyncio and with aiokafka: 100 B, one partition; medians, taking turns")
    print(f"{'':32} {'loop':8} {'':15} {'ours':>8} {'aiokafka':>9} {'records/s':>11} {'aiokafka':>9} {'ratio':>7}")
    for row in rows:
        met = "met" if row.ratio >= row.aimed_at else "NOT MET"
        print(
            f"{row.scenario:32} {row.loop:8} {row.unit:15} {row.ours:8.2f} {row.theirs:9.2f}"
            f" {row.records_per_second:11,.0f} {row.their_records_per_second:9,.0f} {row.ratio:6.1f}x"
            f"  {row.aimed_at:g}x {met}"
        )


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", help=f"of {', '.join(SCENARIOS)}; all when left out")
    parser.add_argument("--quick", action="store_true", help="a fifth of the records, three rounds")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        _answer_one(*args.one)
    unknown = [name for name in args.scenarios if name not in SCENARIOS]
    if unknown:
        parser.error(f"there is no scenario {unknown[0]!r}")
    rows = run(
        rounds=args.rounds or (3 if args.quick else 5), share=_QUICK_SHARE if args.quick else 1, names=args.scenarios
    )
    show(rows)
    if not args.quick and not args.scenarios:
        save(
            "asyncio",
            {"rows": [row._asdict() for row in rows]},
            draw("asyncio", rows),
        )
        print(f"JSON and picture are in {RESULTS}")


if __name__ == "__main__":
    main()
