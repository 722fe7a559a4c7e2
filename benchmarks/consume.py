"""Consuming: triokafka, kafka-python, aiokafka and confluent-kafka against the same broker.

Each measurement runs in its own process, so that no client's threads disturb another's. The clients take turns, round
after round, and the medians are compared, so that a slow moment of the machine affects all. One partition, no group;
every client verifies checksums. The default broker serves a prebuilt log.

``python -m benchmarks.consume --records 1000000 --rounds 3 --size 100 --compression none``
"""

from __future__ import annotations

import argparse
import asyncio

from benchmarks.clients.job import Job
from benchmarks.side_by_side import (
    Client,
    LoadMeter,
    Measurement,
    Row,
    answer_one,
    broker_process,
    measure,
    medians,
    print_table,
)

TARGETS = {
    ("triokafka poll", "confluent consume(1000)"): 2.0,
    ("triokafka poll", "kafka-python poll"): 22.0,
    ("triokafka poll", "aiokafka getmany"): 6.0,
    ("triokafka poll_arrow", "confluent consume(1000)"): 8.0,
    ("triokafka async for", "confluent poll"): 1.5,
    ("triokafka async for", "aiokafka async for"): 9.0,
}
"""Targets for uncompressed 100-byte records and the prebuilt log: the first client's rate over the second one's."""


def _ours(job: Job, how: str) -> Measurement:
    import trio

    import triokafka

    async def main() -> Measurement:
        tp = triokafka.TopicPartition(job.topic, 0)
        async with triokafka.Consumer(bootstrap_servers=job.bootstrap) as consumer:
            consumer.assign([tp])
            consumer.seek(tp, 0)
            if how.startswith("poll_arrow"):
                # Exclude the import of pyarrow and the creation of its first column from the measurement.
                got = (await consumer.poll_arrow(timeout_ms=30_000, max_records=1)).num_rows
            else:
                got = len((await consumer.poll(timeout_ms=30_000, max_records=1))[tp])
            meter = LoadMeter()
            meter.start()
            if how == "async for":
                async for record in consumer:
                    _ = record.value
                    got += 1
                    if got >= job.records:
                        break
            elif how == "batches":
                async for batch in consumer.batches():
                    got += len(batch.records())
                    if got >= job.records:
                        break
            elif how.startswith("poll_arrow"):
                values = "view" if how.endswith("view") else "binary"
                while got < job.records:
                    got += (await consumer.poll_arrow(timeout_ms=1_000, values=values)).num_rows  # type: ignore[arg-type]
            else:
                while got < job.records:
                    for records in (await consumer.poll(timeout_ms=1_000, max_records=10_000)).values():
                        for record in records:
                            _ = record.value
                        got += len(records)
            return meter.stop(got)

    return trio.run(main)


def _confluent(job: Job, how: str) -> Measurement:
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": job.bootstrap,
            "group.id": "none",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "check.crcs": True,
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition(job.topic, 0, 0)])
    message = consumer.poll(30)
    assert message is not None
    assert message.error() is None, message.error()
    meter = LoadMeter()
    meter.start()
    got = 1
    if how.startswith("consume"):
        while got < job.records:
            for message in consumer.consume(int(how[8:-1]), 1.0):
                message.value()
                got += 1
    else:
        while got < job.records:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                message.value()
                got += 1
    return meter.stop(got)


def _aiokafka(job: Job, how: str) -> Measurement:
    import aiokafka

    async def main() -> Measurement:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=job.bootstrap, enable_auto_commit=False, group_id=None, auto_offset_reset="earliest"
        )
        tp = aiokafka.TopicPartition(job.topic, 0)
        await consumer.start()
        consumer.assign([tp])
        consumer.seek(tp, 0)
        await consumer.getone()
        meter = LoadMeter()
        meter.start()
        got = 1
        if how == "async for":
            async for record in consumer:
                _ = record.value
                got += 1
                if got >= job.records:
                    break
        else:
            while got < job.records:
                for records in (await consumer.getmany(timeout_ms=1_000)).values():
                    for record in records:
                        _ = record.value
                    got += len(records)
        measured = meter.stop(got)
        await consumer.stop()
        return measured

    return asyncio.run(main())


def _kafka_python(job: Job, how: str) -> Measurement:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=job.bootstrap, enable_auto_commit=False, group_id=None)
    tp = TopicPartition(job.topic, 0)
    consumer.assign([tp])
    consumer.seek(tp, 0)
    got = 0
    while not got:
        got = sum(map(len, consumer.poll(1_000, max_records=1).values()))
    meter = LoadMeter()
    meter.start()
    while got < job.records:
        for records in consumer.poll(1_000).values():
            for record in records:
                _ = record.value
            got += len(records)
    return meter.stop(got)


CLIENTS: dict[str, Client] = {
    "triokafka async for": (_ours, "async for", 1.0),
    "triokafka poll": (_ours, "poll", 2.0),
    "triokafka batches": (_ours, "batches", 2.0),
    "triokafka poll_arrow": (_ours, "poll_arrow", 4.0),
    "triokafka poll_arrow view": (_ours, "poll_arrow view", 4.0),
    "confluent poll": (_confluent, "poll", 1.0),
    "confluent consume(1000)": (_confluent, "consume(1000)", 1.0),
    "aiokafka async for": (_aiokafka, "async for", 0.2),
    "aiokafka getmany": (_aiokafka, "getmany", 0.5),
    "kafka-python poll": (_kafka_python, "poll", 0.1),
}


def run(
    *,
    records: int = 1_000_000,
    rounds: int = 3,
    size: int = 100,
    compression: str = "none",
    clients: list[str] | None = None,
) -> list[Row]:
    """Run all clients, round after round. Return medians in the order of `CLIENTS`."""
    chosen = clients or list(CLIENTS)
    measured: dict[str, list[Measurement]] = {client: [] for client in chosen}
    most = int(records * max(CLIENTS[client][2] for client in chosen)) + 1
    with broker_process("benchmarks.source_broker", str(size), compression, str(most)) as bootstrap:
        for _ in range(rounds):
            for client in chosen:
                job = Job(bootstrap, "source", int(records * CLIENTS[client][2]), size, compression)
                measured[client].append(measure("benchmarks.consume", client, job))
    return medians(measured)


def show(rows: list[Row]) -> None:
    """Print the table."""
    print_table("Consuming: one partition, no group, checksums verified; medians, clients taking turns", rows, TARGETS)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--compression", default="none")
    parser.add_argument("--client", action="append", choices=list(CLIENTS))
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        answer_one(CLIENTS, *args.one)
    rows = run(
        records=args.records, rounds=args.rounds, size=args.size, compression=args.compression, clients=args.client
    )
    show(rows)


if __name__ == "__main__":
    main()
