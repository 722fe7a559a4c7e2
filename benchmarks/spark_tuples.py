"""Python data sources for Spark that yield a tuple for each record, as most are written.

- ``tuples``: reads with our consumer's records.
- ``kafka-python tuples`` and ``confluent-kafka tuples``: these clients, one consumer for each partition, configured for
large fetches. All verify checksums, as ours does.
- ``ready tuples``: prepared tuples without fetching: the cost of Spark, as `ready` for batches.

Each ends with the last record of its range, closes its client when it is done or closed, and fails if the broker has no
more records before the end of the range.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from benchmarks.spark_readers import PARTITION_BYTES, ROWS, PartitionReader, Range, Source, made

if TYPE_CHECKING:
    import triokafka

Row = tuple[bytes | None, bytes | None, str, int, int, datetime, int]

PATIENCE: Final = 60.0
"""Seconds without a record after which a read fails."""
_READY: Final = 500


class _Tuples(PartitionReader):
    def read(self, partition: Range) -> Iterator[Row]:
        import triokafka
        from triokafka.loop_thread import loop_thread

        wanted = {triokafka.TopicPartition(self.topic, partition.partition): (0, partition.end)}

        @asynccontextmanager
        async def records() -> AsyncIterator[AsyncIterator[list[triokafka.ConsumerRecord]]]:
            async def lists() -> AsyncIterator[list[triokafka.ConsumerRecord]]:
                while found := await reader.next_records(ROWS):
                    yield found

            async with triokafka.RangeReader(wanted, bootstrap_servers=self.bootstrap) as reader:
                yield lists()

        for some in loop_thread().iterate(records):
            for one in some:
                at = datetime.fromtimestamp(one.timestamp / 1000, UTC)
                yield (one.key, one.value, one.topic, one.partition, one.offset, at, one.timestamp_type)


class _KafkaPython(PartitionReader):
    def read(self, partition: Range) -> Iterator[Row]:
        import kafka

        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=None,
            enable_auto_commit=False,
            max_partition_fetch_bytes=PARTITION_BYTES,
            max_poll_records=ROWS,
        )
        try:
            of = kafka.TopicPartition(self.topic, partition.partition)
            consumer.assign([of])
            consumer.seek(of, 0)
            after = 0
            while after < partition.end:
                found = consumer.poll(int(PATIENCE * 1000), max_records=min(ROWS, partition.end - after)).get(of)
                if not found:
                    raise _ended(self, partition, after)
                for one in found:
                    if one.offset >= partition.end:
                        return
                    at = datetime.fromtimestamp(one.timestamp / 1000, UTC)
                    yield (one.key, one.value, one.topic, one.partition, one.offset, at, one.timestamp_type)
                after = found[-1].offset + 1
        finally:
            consumer.close()


class _ConfluentKafka(PartitionReader):
    def read(self, partition: Range) -> Iterator[Row]:
        import confluent_kafka

        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "none",  # a group id is required; nothing is joined or committed
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "check.crcs": True,  # off by default, but all others verify
                "max.partition.fetch.bytes": PARTITION_BYTES,
                "fetch.queue.backoff.ms": 1,  # otherwise a full queue pauses the fetcher for a second
            }
        )
        try:
            consumer.assign([confluent_kafka.TopicPartition(self.topic, partition.partition, 0)])
            after = 0
            while after < partition.end:
                # consume() waits until it has this many messages, so it must not request more than remain.
                found: list[Any] = consumer.consume(min(ROWS, partition.end - after), PATIENCE)
                if not found:
                    raise _ended(self, partition, after)
                for one in found:
                    if (error := one.error()) is not None:
                        raise RuntimeError(f"partition {partition.partition} at offset {after}: {error}")
                    if one.offset() >= partition.end:
                        return
                    kind, at_ms = one.timestamp()
                    at = datetime.fromtimestamp(at_ms / 1000, UTC)
                    yield (one.key(), one.value(), one.topic(), one.partition(), one.offset(), at, kind - 1)
                after = found[-1].offset() + 1
        finally:
            consumer.close()


class _ReadyTuples(PartitionReader):
    def read(self, partition: Range) -> Iterator[Row]:
        # Few, since creating ten thousand for each partition takes longer than Spark takes for as many.
        batch = made(self.topic, partition.partition, self.size).slice(0, _READY)
        rows: list[Row] = [
            (one["key"], one["value"], one["topic"], one["partition"], one["offset"], one["timestamp"].astimezone(UTC),
             one["timestampType"])
            for one in batch.to_pylist()
        ]  # fmt: skip
        for begin in range(0, partition.end, len(rows)):
            yield from islice(rows, partition.end - begin)


class TupleSource(Source):
    """Yields a tuple for each record of our consumer."""

    reading = _Tuples
    called = "tuples"


class KafkaPythonSource(Source):
    """Yields a tuple for each record of kafka-python."""

    reading = _KafkaPython
    called = "kafka-python tuples"


class ConfluentKafkaSource(Source):
    """Yields a tuple for each record of confluent-kafka."""

    reading = _ConfluentKafka
    called = "confluent-kafka tuples"


class ReadyTupleSource(Source):
    """Yields prepared tuples and does not fetch."""

    reading = _ReadyTuples
    called = "ready tuples"


def _ended(reader: PartitionReader, partition: Range, offset: int) -> RuntimeError:
    return RuntimeError(
        f"{reader.topic}-{partition.partition} has had no record at offset {offset} for {PATIENCE:g} s,"
        f" and the range ends at {partition.end}"
    )
