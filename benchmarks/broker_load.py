"""librdkafka clients that load a broker, in their own process.

``python -m benchmarks.broker_load produce|consume JOB`` prints a `Moved` as JSON on its last line. ``connections`` is
the number of clients. Producers spread records over all partitions. Consumers share the partitions; if there are more
consumers than partitions, each reads a section of one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Final, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from triokafka.cli.load.brokers import MeasurementError
from triokafka.cli.load.payloads import json_values

_TIMEOUT: Final = 300
_FETCHED_AT_ONCE: Final = 1_000


STRETCH: Final = 100
"""Records for one partition before the producer continues with the next."""


class Load(NamedTuple):
    """The records to send or read, a multiple of `STRETCH` times the partitions."""

    bootstrap: str
    topic: str
    records: int
    size: int
    partitions: int
    connections: int
    compression: str = "none"


class Moved(NamedTuple):
    """The measured rate.

    The time to produce is from the first record to the last acknowledgement. The time to consume is from the assignment
    of positions to connected clients (a broker may answer the first fetch with everything) to the last record.
    """

    records: int
    """All records, including those before the clock started."""
    per_second: float


def produce(load: Load) -> Moved:
    """Produce all, acks=all, in batches as large as they get within 5 ms, and flush."""
    producers = [
        Producer(
            {
                "bootstrap.servers": load.bootstrap,
                "acks": "all",
                "linger.ms": 5,
                "batch.size": 1_000_000,
                "compression.type": load.compression,
                "queue.buffering.max.messages": 500_000,
                "queue.buffering.max.kbytes": 256 << 10,
            }
        )
        for _ in range(load.connections)
    ]
    batch = [{"value": value} for value in json_values(load.size)]
    for number, producer in enumerate(producers):
        producer.produce(load.topic, batch[0]["value"], partition=number % load.partitions)
        _flush(producer)
    began = time.perf_counter()
    # Every partition gets equally many records, so that consumers can share them evenly.
    for turn, first in enumerate(range(0, load.records, STRETCH)):
        producer, partition = producers[turn % load.connections], turn % load.partitions
        left = min(STRETCH, load.records - first)
        while left:
            added = producer.produce_batch(load.topic, batch[:left], partition=partition)
            left -= added
            producer.poll(0 if added else 0.005)
    for producer in producers:
        _flush(producer)
    return Moved(load.records + load.connections, load.records / (time.perf_counter() - began))


def _flush(producer: Producer) -> None:
    left = producer.flush(_TIMEOUT)
    if left:
        raise RuntimeError(f"{left} records are not acknowledged after {_TIMEOUT} s")


def consume(load: Load) -> Moved:
    """Read ``records`` records in all, from the beginning of the partitions or of a section of one."""
    consumers = [
        Consumer(
            {
                "bootstrap.servers": load.bootstrap,
                "group.id": f"load-{os.getpid()}-{number}",
                "enable.auto.commit": False,
                "enable.partition.eof": False,
                "check.crcs": True,
                "fetch.wait.max.ms": 100,
                "fetch.queue.backoff.ms": 1,  # otherwise a consumer with enough queued messages pauses for a second
                "receive.message.max.bytes": 1_000_000_000,  # one of the brokers answers with everything it has
                "queued.max.messages.kbytes": 64 << 10,
            }
        )
        for number in range(load.connections)
    ]
    for consumer in consumers:
        consumer.list_topics(load.topic, timeout=_TIMEOUT)
    began = time.perf_counter()
    due = []
    for consumer, assigned, count in zip(consumers, *_shares(load), strict=True):
        consumer.assign(assigned)
        due.append(count)
    give_up_at = began + _TIMEOUT
    moved = 0
    while any(left > 0 for left in due):
        if time.perf_counter() > give_up_at:
            raise RuntimeError(f"{sum(due)} of {load.records} records were not read after {_TIMEOUT} s")
        for number, consumer in enumerate(consumers):
            if due[number] > 0:
                messages = consumer.consume(min(_FETCHED_AT_ONCE, due[number]), 0.001 if len(due) > 1 else 0.1)
                if any(message.error() for message in messages):
                    raise RuntimeError(str(next(message.error() for message in messages if message.error())))
                due[number] -= len(messages)
                moved += len(messages)
    return Moved(moved, moved / (time.perf_counter() - began))


def _shares(load: Load) -> tuple[list[list[TopicPartition]], list[int]]:
    """Return for each consumer its partitions with start offsets, and its number of records."""
    if load.connections <= load.partitions:
        numbers = list(range(load.partitions))
        shares = [numbers[first :: load.connections] for first in range(load.connections)]
        each = load.records // load.partitions
        return (
            [[TopicPartition(load.topic, number, 0) for number in share] for share in shares],
            [each * len(share) for share in shares],
        )
    readers = load.connections // load.partitions
    each = load.records // load.connections
    assigned = [
        [TopicPartition(load.topic, number % load.partitions, (number // load.partitions % readers) * each)]
        for number in range(load.connections)
    ]
    return assigned, [each] * load.connections


def run(what: str, load: Load) -> Moved:
    """Run `produce` or `consume` in its own process. Raises `MeasurementError`."""
    command = [sys.executable, "-m", "benchmarks.broker_load", what, json.dumps(load._asdict())]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * _TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        raise MeasurementError(f"{what}: no result after {2 * _TIMEOUT} s") from None
    if done.returncode != 0 or not done.stdout.strip():
        words = done.stderr.strip().splitlines()
        raise MeasurementError(f"{what}: {words[-1] if words else f'exit status {done.returncode}'}")
    return Moved(*json.loads(done.stdout.splitlines()[-1]))


def _main(what: str, load: str) -> None:
    kinds = {"produce": produce, "consume": consume}
    print(json.dumps(kinds[what](Load(**json.loads(load)))), flush=True)
    os._exit(0)  # closing many clients takes long and is not measured


if __name__ == "__main__":
    _main(*sys.argv[1:])
