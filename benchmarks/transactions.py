"""Transactions per second with 1, 100 and 10,000 records: triokafka, confluent-kafka and aiokafka in turn.

Each measurement runs in its own process, against one broker: ours in a process, or the one that ``--bootstrap`` names,
such as Apache Kafka. Values have 100 bytes, topics one partition; clients have their defaults except 0 ms of linger
where they have that option (a commit flushes anyway). A transaction is complete when the commit returns.

``python -m benchmarks.transactions --rounds 3 [--bootstrap HOST:PORT]``
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

SIZES: Final = (1, 100, 10_000)
CLIENTS: Final = ("triokafka", "triokafka.blocking", "confluent-kafka", "aiokafka")
_VALUE: Final = b"x" * 100
_SECONDS: Final = 3.0
_WARM_UP: Final = 3


class Row(NamedTuple):
    """The medians of one client: transactions of ``records`` records per second, and milliseconds for each."""

    client: str
    records: int
    transactions_per_second: float
    milliseconds: float


class _Clock:
    """Counts transactions for a few seconds, after a few for warm-up."""

    def __init__(self) -> None:
        self._count = 0
        self._began = 0.0

    def continues(self) -> bool:
        """Whether another transaction is wanted."""
        if self._count == _WARM_UP:
            self._began = time.perf_counter()
        self._count += 1
        return self._count <= _WARM_UP + 1 or time.perf_counter() - self._began < _SECONDS

    @property
    def rate(self) -> float:
        """Transactions per second."""
        return (self._count - 1 - _WARM_UP) / (time.perf_counter() - self._began)


def _triokafka(bootstrap: str, topic: str, records: int) -> float:
    import trio

    import triokafka

    async def main() -> float:
        clock = _Clock()
        async with triokafka.Producer(
            bootstrap_servers=bootstrap, transactional_id=uuid.uuid4().hex, linger_ms=0
        ) as producer:
            values = [_VALUE] * records
            while clock.continues():
                async with producer.transaction():
                    if records == 1:
                        await producer.send(topic, _VALUE)
                    else:
                        await producer.send_many(topic, values)
        return clock.rate

    return trio.run(main)


def _blocking(bootstrap: str, topic: str, records: int) -> float:
    from triokafka.blocking import KafkaProducer

    clock = _Clock()
    with KafkaProducer(bootstrap_servers=bootstrap, transactional_id=uuid.uuid4().hex) as producer:
        producer.init_transactions()
        while clock.continues():
            producer.begin_transaction()
            for _ in range(records):
                producer.send(topic, _VALUE)
            producer.commit_transaction()
        return clock.rate


def _confluent(bootstrap: str, topic: str, records: int) -> float:
    from confluent_kafka import Producer

    clock = _Clock()
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": uuid.uuid4().hex, "linger.ms": 0})
    producer.init_transactions(30)
    while clock.continues():
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(topic, _VALUE)
        producer.commit_transaction(30)
    return clock.rate


def _aiokafka(bootstrap: str, topic: str, records: int) -> float:
    from aiokafka import AIOKafkaProducer

    async def main() -> float:
        clock = _Clock()
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=uuid.uuid4().hex) as producer:
            while clock.continues():
                async with producer.transaction():
                    for _ in range(records):
                        await producer.send(topic, _VALUE)
        return clock.rate

    return asyncio.run(main())


_WORK: Final = {
    "triokafka": _triokafka,
    "triokafka.blocking": _blocking,
    "confluent-kafka": _confluent,
    "aiokafka": _aiokafka,
}


def _measure(client: str, bootstrap: str, records: int) -> float:
    """Run one client in its own process. Return transactions per second."""
    topic = f"bench-{uuid.uuid4().hex[:8]}"
    command = [sys.executable, "-m", "benchmarks.transactions", "--one", client, str(records), bootstrap, topic]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return float(json.loads(done.stdout))


@contextmanager
def _our_broker() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as data:
        command = [sys.executable, "-m", "triokafka", "broker", "--listen", "127.0.0.1:0", "--data-dir", data]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[1]
        finally:
            process.terminate()
            process.wait(30)


def run(rounds: int, bootstrap: str | None = None) -> list[Row]:
    """All clients and sizes, round after round."""
    if bootstrap is None:
        with _our_broker() as ours:
            return run(rounds, ours)
    rates: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds):
        for records in SIZES:
            for client in CLIENTS:
                rates.setdefault((client, records), []).append(_measure(client, bootstrap, records))
    medians = {key: statistics.median(found) for key, found in rates.items()}
    return [Row(client, records, rate, 1000 / rate) for (client, records), rate in medians.items()]


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transactions", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bootstrap", help="HOST:PORT of another broker; ours by default")
    parser.add_argument("--json", type=Path, help="write the rows there, too")
    parser.add_argument("--one", nargs=4, metavar=("CLIENT", "RECORDS", "BOOTSTRAP", "TOPIC"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        client, records, bootstrap, topic = given.one
        print(json.dumps(_WORK[client](bootstrap, topic, int(records))))
        return 0
    rows = run(given.rounds, given.bootstrap)
    print(f"{'client':20} {'records':>8} {'transactions/s':>15} {'ms each':>9}")
    for row in rows:
        print(f"{row.client:20} {row.records:8} {row.transactions_per_second:15.1f} {row.milliseconds:9.2f}")
    if given.json:
        given.json.write_text(json.dumps([row._asdict() for row in rows], indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
