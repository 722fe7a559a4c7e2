"""The clients of the transaction benchmark. Each runs in its own process.

``python -m benchmarks.transaction_clients rate JOB`` prints transactions, or flushes, per second as JSON.
``python -m benchmarks.transaction_clients copy JOB`` copies a topic in transactions until it is killed. A `RateJob` or
a `CopyJob` is passed as JSON. The Java client's programs are ``TransactionRate.java`` and ``TransactionalCopier.java``.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

_VALUE: Final = b"x" * 100


class RateJob(NamedTuple):
    """``records`` records to a topic, again and again: in transactions if ``commits``, else sent and flushed."""

    client: str
    bootstrap: str
    topic: str
    records: int
    commits: bool
    warm_up: int
    seconds: float

    @property
    def settings(self) -> dict[str, str]:
        """The producer's transactional id, or nothing."""
        return {"transactional_id": uuid.uuid4().hex} if self.commits else {}


class CopyJob(NamedTuple):
    """Copy each record of ``source`` to ``target``."""

    client: str
    bootstrap: str
    source: str
    target: str
    group: str

    @property
    def reading(self) -> dict[str, Any]:
        """The consumer's options in Python."""
        return {
            "bootstrap_servers": self.bootstrap,
            "group_id": self.group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "isolation_level": "read_committed",
        }

    @property
    def writing(self) -> dict[str, Any]:
        """The producer's options in Python."""
        return {"bootstrap_servers": self.bootstrap, "transactional_id": uuid.uuid4().hex}


class Clock:
    """Counts rounds for some seconds, after a few for warm-up."""

    def __init__(self, job: RateJob) -> None:
        self._warm_up, self._seconds = job.warm_up, job.seconds
        self._count = 0
        self._began = 0.0

    def continues(self) -> bool:
        """Whether another round is to follow."""
        if self._count == self._warm_up:
            self._began = time.perf_counter()
        self._count += 1
        return self._count <= self._warm_up + 1 or time.perf_counter() - self._began < self._seconds

    @property
    def rate(self) -> float:
        """Rounds per second."""
        return (self._count - 1 - self._warm_up) / (time.perf_counter() - self._began)


# -------------------------------------------------------------------- rates


def _triokafka_rate(job: RateJob) -> float:
    import trio

    import triokafka

    async def main() -> float:
        clock = Clock(job)
        options: dict[str, Any] = {"bootstrap_servers": job.bootstrap, "linger_ms": 0, **job.settings}
        values = [_VALUE] * job.records
        async with triokafka.Producer(**options) as producer:

            async def send() -> None:
                if job.records == 1:
                    await producer.send(job.topic, _VALUE)
                else:
                    await producer.send_many(job.topic, values)

            while clock.continues():
                if job.commits:
                    async with producer.transaction():
                        await send()
                else:
                    await send()
                    await producer.flush()
        return clock.rate

    return trio.run(main)


def _blocking_rate(producer_class: Callable[..., Any]) -> Callable[[RateJob], float]:
    def rate(job: RateJob) -> float:
        clock = Clock(job)
        producer = producer_class(bootstrap_servers=job.bootstrap, acks="all", **job.settings)
        if job.commits:
            producer.init_transactions()
        while clock.continues():
            if job.commits:
                producer.begin_transaction()
            for _ in range(job.records):
                producer.send(job.topic, _VALUE)
            if job.commits:
                producer.commit_transaction()
            else:
                producer.flush()
        found = clock.rate
        producer.close()
        return found

    return rate


def _asyncio_rate(producer_class: Callable[..., Any]) -> Callable[[RateJob], float]:
    async def main(job: RateJob) -> float:
        clock = Clock(job)
        options = {"bootstrap_servers": job.bootstrap, "enable_idempotence": True, **job.settings}
        async with producer_class(**options) as producer:
            while clock.continues():
                if job.commits:
                    async with producer.transaction():
                        for _ in range(job.records):
                            await producer.send(job.topic, _VALUE)
                else:
                    for _ in range(job.records):
                        await producer.send(job.topic, _VALUE)
                    await producer.flush()
        return clock.rate

    return lambda job: asyncio.run(main(job))


def _confluent_rate(job: RateJob) -> float:
    from confluent_kafka import Producer

    clock = Clock(job)
    options = {"bootstrap.servers": job.bootstrap, "linger.ms": 0, "enable.idempotence": True}
    producer = Producer(options | {name.replace("_", "."): value for name, value in job.settings.items()})
    if job.commits:
        producer.init_transactions(30)
    while clock.continues():
        if job.commits:
            producer.begin_transaction()
        for _ in range(job.records):
            producer.produce(job.topic, _VALUE)
        if job.commits:
            producer.commit_transaction(30)
        elif producer.flush(30):
            raise RuntimeError("some records were not acknowledged within 30 s")
    return clock.rate


# -------------------------------------------------------------------- copies


def _triokafka_copy(job: CopyJob) -> None:
    import trio

    import triokafka

    async def main() -> None:
        async with (
            triokafka.Producer(**job.writing, linger_ms=0) as producer,
            triokafka.Consumer(job.source, **job.reading) as consumer,
        ):

            async def copy(records: Mapping[Any, Sequence[Any]], _transaction: object) -> None:
                for found in records.values():
                    for record in found:
                        await producer.send(job.target, record.value)

            await triokafka.process_transactions(consumer, producer, copy)

    trio.run(main)


def _blocking_copy(module: Callable[[], Any]) -> Callable[[CopyJob], None]:
    def copy(job: CopyJob) -> None:
        kafka = module()
        producer = kafka.KafkaProducer(acks="all", **job.writing)
        producer.init_transactions()
        consumer = kafka.KafkaConsumer(job.source, **job.reading)
        while True:
            batches = consumer.poll(timeout_ms=200)
            if not batches:
                continue
            producer.begin_transaction()
            for found in batches.values():
                for record in found:
                    producer.send(job.target, record.value)
            positions = {
                partition: kafka.OffsetAndMetadata(found[-1].offset + 1, "", -1) for partition, found in batches.items()
            }
            producer.send_offsets_to_transaction(positions, consumer.group_metadata())
            producer.commit_transaction()

    return copy


def _asyncio_copy(module: Callable[[], Any]) -> Callable[[CopyJob], None]:
    async def main(job: CopyJob) -> None:
        kafka = module()
        async with (
            kafka.AIOKafkaProducer(**job.writing) as producer,
            kafka.AIOKafkaConsumer(job.source, **job.reading) as consumer,
        ):
            while True:
                batches = await consumer.getmany(timeout_ms=200)
                if not batches:
                    continue
                async with producer.transaction():
                    for found in batches.values():
                        for record in found:
                            await producer.send(job.target, record.value)
                    positions = {partition: found[-1].offset + 1 for partition, found in batches.items()}
                    await producer.send_offsets_to_transaction(positions, job.group)

    return lambda job: asyncio.run(main(job))


def _confluent_copy(job: CopyJob) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    reading = {name.replace("_", "."): value for name, value in job.reading.items() if name != "bootstrap_servers"}
    writing = {"transactional.id": uuid.uuid4().hex, "linger.ms": 0, "bootstrap.servers": job.bootstrap}
    producer = Producer(writing)
    producer.init_transactions(30)
    consumer = Consumer({**reading, "bootstrap.servers": job.bootstrap})
    consumer.subscribe([job.source])
    while True:
        messages = [message for message in consumer.consume(500, 0.005) if message.error() is None]
        if not messages:
            continue
        producer.begin_transaction()
        ends = {}
        for message in messages:
            producer.produce(job.target, message.value())
            ends[message.partition()] = message.offset() + 1
        positions = [TopicPartition(job.source, partition, end) for partition, end in ends.items()]
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 30)
        producer.commit_transaction(30)


# -------------------------------------------------------------------- by name


def _import_kafka_python() -> Any:
    import kafka

    return kafka


def _import_blocking() -> Any:
    import triokafka.blocking

    return triokafka.blocking


def _import_aiokafka() -> Any:
    import aiokafka

    return aiokafka


def _import_asyncio() -> Any:
    import triokafka.asyncio

    return triokafka.asyncio


RATES: Final[dict[str, Callable[[RateJob], float]]] = {
    "triokafka": _triokafka_rate,
    "triokafka.blocking": _blocking_rate(lambda **options: _import_blocking().KafkaProducer(**options)),
    "triokafka.asyncio": _asyncio_rate(lambda **options: _import_asyncio().AIOKafkaProducer(**options)),
    "confluent-kafka": _confluent_rate,
    "aiokafka": _asyncio_rate(lambda **options: _import_aiokafka().AIOKafkaProducer(**options)),
    "kafka-python": _blocking_rate(lambda **options: _import_kafka_python().KafkaProducer(**options)),
}
COPIES: Final[dict[str, Callable[[CopyJob], None]]] = {
    "triokafka": _triokafka_copy,
    "triokafka.blocking": _blocking_copy(_import_blocking),
    "triokafka.asyncio": _asyncio_copy(_import_asyncio),
    "confluent-kafka": _confluent_copy,
    "aiokafka": _asyncio_copy(_import_aiokafka),
    "kafka-python": _blocking_copy(_import_kafka_python),
}


def main() -> None:
    """Run the job of the command line."""
    work, document = sys.argv[1:]
    if work == "copy":
        copy_job = CopyJob(**json.loads(document))
        COPIES[copy_job.client](copy_job)
    else:
        rate_job = RateJob(**json.loads(document))
        print(json.dumps(RATES[rate_job.client](rate_job)))


if __name__ == "__main__":
    main()
