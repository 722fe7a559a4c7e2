"""`triokafka.blocking` and kafka-python: the same program with one import changed.

Each measurement runs in its own process. The two programs take turns, round after round, against one broker process,
and the medians are compared. The sink only acknowledges and counts records; the source serves a prebuilt log. Values
have 100 bytes, topics one partition, and checksums are verified. A produce measurement ends when all records are
acknowledged. It runs with kafka-python's defaults, with batches of 128 KiB and 5 ms of linger, and with a callback for
each record.

``python -m benchmarks.blocking --quick``
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final, NamedTuple

from benchmarks.clients.brokers import sink_broker
from benchmarks.pictures import draw
from benchmarks.report import RESULTS, save
from benchmarks.side_by_side import broker_process

OURS: Final = "triokafka.blocking"
THEIRS: Final = "kafka"
_SIZE: Final = 100
_BIG_BATCHES: Final = {"batch_size": 128 << 10, "linger_ms": 5}


class Row(NamedTuple):
    """The medians of both libraries in one scenario. A ratio is our value over kafka-python's: more is better for
    us."""

    scenario: str
    records_per_second: float
    their_records_per_second: float
    cpu_seconds_per_million: float
    their_cpu_seconds_per_million: float
    speed_ratio: float
    cpu_ratio: float
    aimed_at: float


class Measured(NamedTuple):
    """One program in one round."""

    records_per_second: float
    cpu_seconds_per_million: float


def _timed(work: Callable[[], int]) -> Measured:
    wall, cpu = time.perf_counter(), time.process_time()
    records = work()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Measured(records / wall, cpu / records * 1e6)


def _produce(package: Any, bootstrap: str, records: int, how: str) -> Measured:
    options: dict[str, Any] = {} if how == "defaults" else _BIG_BATCHES
    producer = package.KafkaProducer(bootstrap_servers=bootstrap, **options)
    topic, value = f"bench-{os.getpid()}", b"x" * _SIZE
    producer.send(topic, value).get(timeout=30)
    called: list[int] = []

    def work() -> int:
        if how == "callbacks":
            for _ in range(records):
                producer.send(topic, value).add_callback(lambda metadata: called.append(metadata.offset))
        else:
            for _ in range(records):
                producer.send(topic, value)
        producer.flush()
        return records

    measured = _timed(work)
    assert how != "callbacks" or called == list(range(1, records + 1))
    return measured


def _consume(package: Any, bootstrap: str, records: int, how: str) -> Measured:
    consumer = package.KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    partition = package.TopicPartition("source", 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    while not consumer.poll(1_000, max_records=1):
        pass

    def poll() -> int:
        got = 0
        while got < records:
            for polled in consumer.poll(1_000).values():
                for record in polled:
                    _ = record.value
                got += len(polled)
        return got

    def iterate() -> int:
        got = 0
        for record in consumer:
            _ = record.value
            got += 1
            if got >= records:
                break
        return got

    return _timed(poll if how == "poll" else iterate)


class Scenario(NamedTuple):
    """A measurement. Ours gets ``records``, kafka-python a tenth of them."""

    kind: str
    how: str
    records: int
    aimed_at: float


SCENARIOS: Final[dict[str, Scenario]] = {
    "produce, defaults": Scenario("produce", "defaults", 500_000, 6.0),
    "produce, 128 KiB batches": Scenario("produce", "batches", 500_000, 6.0),
    "produce, callback each": Scenario("produce", "callbacks", 200_000, 6.0),
    "consume, poll": Scenario("consume", "poll", 1_000_000, 8.0),
    "consume, iteration": Scenario("consume", "iteration", 1_000_000, 8.0),
}
_THEIR_SHARE: Final = 10
_QUICK_SHARE: Final = 5


def _measure(package: str, scenario: Scenario, bootstrap: str, records: int) -> Measured:
    command = [sys.executable, "-m", "benchmarks.blocking", "--one", package, scenario.kind, scenario.how]
    done = subprocess.run(
        [*command, bootstrap, str(records)], stdout=subprocess.PIPE, text=True, check=True, timeout=600
    )
    return Measured(*json.loads(done.stdout.splitlines()[-1]))


def _answer_one(package: str, kind: str, how: str, bootstrap: str, records: str) -> None:
    function = _produce if kind == "produce" else _consume
    print(json.dumps(function(import_module(package), bootstrap, int(records), how)), flush=True)
    os._exit(0)  # kafka-python needs a while to exit


def run(*, rounds: int = 5, share: int = 1) -> list[Row]:
    """Run all scenarios with one ``share``-th of the records."""
    measured: dict[tuple[str, str], list[Measured]] = {}
    most = str(max(scenario.records for scenario in SCENARIOS.values()) + 1)
    with sink_broker() as sink, broker_process("benchmarks.source_broker", str(_SIZE), "none", most) as source:
        for number in range(rounds):
            for name, scenario in SCENARIOS.items():
                bootstrap = sink.bootstrap if scenario.kind == "produce" else source
                for package in (OURS, THEIRS) if number % 2 else (THEIRS, OURS):
                    records = scenario.records // share // (_THEIR_SHARE if package == THEIRS else 1)
                    found = _measure(package, scenario, bootstrap, records)
                    measured.setdefault((name, package), []).append(found)
    return [_row(name, measured[name, OURS], measured[name, THEIRS]) for name in SCENARIOS]


def _row(name: str, ours: list[Measured], theirs: list[Measured]) -> Row:
    speed, cpu = (statistics.median(column) for column in zip(*ours, strict=True))
    their_speed, their_cpu = (statistics.median(column) for column in zip(*theirs, strict=True))
    return Row(name, speed, their_speed, cpu, their_cpu, speed / their_speed, their_cpu / cpu, SCENARIOS[name].aimed_at)


def show(rows: list[Row]) -> None:
    """Print the table."""
    print("The same program with triokafka.blocking and with kafka-python: 100 B, one partition; medians, taking turns")
    print(f"{'':26} {'records/s':>11} {'kafka':>9} {'CPU s/M':>8} {'kafka':>7} {'speed':>7} {'CPU':>7}  aimed at")
    for row in rows:
        met = "met" if row.cpu_ratio >= row.aimed_at else "NOT MET"
        print(
            f"{row.scenario:26} {row.records_per_second:11,.0f} {row.their_records_per_second:9,.0f}"
            f" {row.cpu_seconds_per_million:8.3f} {row.their_cpu_seconds_per_million:7.2f}"
            f" {row.speed_ratio:6.1f}x {row.cpu_ratio:6.1f}x  {row.aimed_at:g}x {met}"
        )


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a fifth of the records, three rounds: under a minute")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        _answer_one(*args.one)
    rows = run(rounds=args.rounds or (3 if args.quick else 5), share=_QUICK_SHARE if args.quick else 1)
    show(rows)
    if not args.quick:
        save(
            "blocking",
            {"rows": [row._asdict() for row in rows]},
            draw("blocking", rows),
        )
        print(f"JSON and picture are in {RESULTS}")


if __name__ == "__main__":
    main()
