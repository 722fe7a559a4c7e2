"""Producing, side by side with kafka-python, aiokafka and confluent-kafka against the same broker.

Every measurement is a process of its own, so that no client's threads disturb another's; the clients take turns, round
after round, and the medians are compared, so that a slow moment of the machine hits all. acks=all, linger 5 ms, batches
of 128 KiB, one partition, idempotence off (not all have it). The default broker only acknowledges.

``python -m benchmarks.produce --records 300000 --rounds 3 --size 100 --compression none``
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random

from benchmarks.side_by_side import (
    Client,
    Job,
    Measurement,
    Meter,
    Row,
    answer_one,
    broker_process,
    measure,
    medians,
    print_table,
)

BATCH_BYTES = 131_072
LINGER_MS = 5
DISTINCT = 1000
TARGETS = {
    ("triokafka send", "confluent produce"): 2.0,
    ("triokafka send", "kafka-python send"): 20.0,
    ("triokafka send", "aiokafka send"): 7.0,
    ("triokafka send_many", "confluent produce_batch"): 6.0,
    ("triokafka send_many arrow", "confluent produce_batch"): 6.0,
}
"""100-byte records, uncompressed, against the sink: our first is to be so many times the second."""


def values(size: int) -> list[bytes]:
    """JSON texts cut to ``size``; the same for everybody."""
    chance = random.Random(7)
    made = []
    for _ in range(DISTINCT):
        text = b""
        while len(text) < size:
            text += json.dumps(
                {
                    "id": chance.getrandbits(40),
                    "user": chance.randint(1, 10**6),
                    "type": chance.choice(["click", "view", "buy"]),
                    "page": f"/p/{chance.randint(1, 5000)}",
                    "amount": round(chance.random() * 500, 2),
                }
            ).encode()
        made.append(text[:size])
    return made


def _ours(job: Job, how: str) -> Measurement:
    import trio

    import triokafka

    async def main() -> Measurement:
        async with triokafka.Producer(
            bootstrap_servers=job.bootstrap,
            batch_size=BATCH_BYTES,
            linger_ms=LINGER_MS,
            compression_type=job.compression,
            enable_idempotence=how.endswith("idempotent"),
        ) as producer:
            data = values(job.size)
            count = len(data)
            await (await producer.send(job.topic, data[0], partition=0))
            stream = await producer.bind(job.topic, 0)
            meter = Meter()
            if how == "send_many arrow":
                import pyarrow

                column = pyarrow.array(data * 10, pyarrow.binary())
                meter.start()
                for _ in range(0, job.records, len(column)):
                    await producer.send_many(job.topic, column, partition=0)
            elif how == "send_many":
                meter.start()
                for _ in range(0, job.records, count):
                    await producer.send_many(job.topic, data, partition=0)
            elif how == "bound send":
                meter.start()
                for i in range(job.records):
                    await stream.send(data[i % count])
            else:
                meter.start()
                for i in range(job.records):
                    await producer.send(job.topic, data[i % count], partition=0)
            await producer.flush()
            return meter.stop(job.records)

    return trio.run(main)


def _confluent(job: Job, how: str) -> Measurement:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": job.bootstrap,
            "acks": "all",
            "compression.type": job.compression,
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
        }
    )
    data = values(job.size)
    producer.produce(job.topic, data[0], partition=0)
    producer.flush()
    meter = Meter()
    meter.start()
    sent = 0
    if how == "produce_batch":
        batch = [{"value": value} for value in data]
        while sent < job.records:
            try:
                sent += producer.produce_batch(job.topic, batch, partition=0)
            except BufferError:
                producer.poll(0.01)
    while sent < job.records:
        try:
            producer.produce(job.topic, data[sent % DISTINCT], partition=0)
            sent += 1
        except BufferError:
            producer.poll(0.01)
    producer.flush()
    return meter.stop(sent)


def _kafka_python(job: Job, how: str) -> Measurement:
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=job.bootstrap,
        acks="all",
        batch_size=BATCH_BYTES,
        linger_ms=LINGER_MS,
        compression_type=None if job.compression == "none" else job.compression,
        enable_idempotence=False,
    )
    data = values(job.size)
    producer.send(job.topic, data[0], partition=0).get(30)
    meter = Meter()
    meter.start()
    for i in range(job.records):
        producer.send(job.topic, data[i % DISTINCT], partition=0)
    producer.flush()
    return meter.stop(job.records)


def _aiokafka(job: Job, how: str) -> Measurement:
    from aiokafka import AIOKafkaProducer

    async def main() -> Measurement:
        producer = AIOKafkaProducer(
            bootstrap_servers=job.bootstrap,
            acks="all",
            max_batch_size=BATCH_BYTES,
            linger_ms=LINGER_MS,
            compression_type=None if job.compression == "none" else job.compression,
        )
        await producer.start()
        data = values(job.size)
        await producer.send_and_wait(job.topic, data[0], partition=0)
        meter = Meter()
        meter.start()
        for i in range(job.records):
            await producer.send(job.topic, data[i % DISTINCT], partition=0)
        await producer.flush()
        measured = meter.stop(job.records)
        await producer.stop()
        return measured

    return asyncio.run(main())


CLIENTS: dict[str, Client] = {
    "triokafka send": (_ours, "send", 1.0),
    "triokafka send idempotent": (_ours, "send idempotent", 1.0),
    "triokafka bound send": (_ours, "bound send", 1.0),
    "triokafka send_many": (_ours, "send_many", 5.0),
    "triokafka send_many arrow": (_ours, "send_many arrow", 5.0),
    "confluent produce": (_confluent, "produce", 1.0),
    "confluent produce_batch": (_confluent, "produce_batch", 1.0),
    "aiokafka send": (_aiokafka, "send", 0.3),
    "kafka-python send": (_kafka_python, "send", 0.1),
}


def run(
    *,
    records: int = 300_000,
    rounds: int = 3,
    size: int = 100,
    compression: str = "none",
    clients: list[str] | None = None,
    bootstrap: str | None = None,
) -> list[Row]:
    """All clients, round after round; medians in the order of `CLIENTS`."""
    chosen = clients or list(CLIENTS)
    measured: dict[str, list[Measurement]] = {client: [] for client in chosen}
    with broker_process("benchmarks.sink_broker") as own:
        for round_number in range(rounds):
            for client in chosen:
                count = max(DISTINCT * 10, int(records * CLIENTS[client][2]) // 10_000 * 10_000)
                job = Job(bootstrap or own, f"bench-{size}-{round_number}", count, size, compression)
                measured[client].append(measure("benchmarks.produce", client, job))
    return medians(measured)


def show(rows: list[Row]) -> None:
    """Print the table."""
    print_table(
        "Producing: acks=all, one partition, batches of 128 KiB, linger 5 ms; medians, clients taking turns",
        rows,
        TARGETS,
    )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--compression", default="none")
    parser.add_argument("--bootstrap", help="another broker than the sink")
    parser.add_argument("--client", action="append", choices=list(CLIENTS))
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        answer_one(CLIENTS, *args.one)
    rows = run(
        records=args.records,
        rounds=args.rounds,
        size=args.size,
        compression=args.compression,
        clients=args.client,
        bootstrap=args.bootstrap,
    )
    show(rows)


if __name__ == "__main__":
    main()
