"""Exactly-once writes: each task writes its rows, and a note that it did, in one transaction (KIP-98, KIP-447).

The note is an offset: the committed offset of the group ``NAME`` is the number of the last micro-batch of which the
task's partition is written, plus one. ``NAME`` is the transactional id, too: the query (or the job, for a write that is
no stream) and the number of the task's partition. An attempt of a task

1. gets the producer id of ``NAME``. That fences every other attempt of the task, killed, lost or speculative, and ends
   its transaction;
2. reads the note, and writes nothing if the micro-batch is noted already;
3. writes its rows and the note in one transaction, and commits.

So whatever is killed, a partition of a micro-batch is written once. Partitions become visible one after the other, not
together. A retry must get the same rows: Spark's replayable sources and deterministic plans give that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import trio

import triokafka
from triokafka.errors import ConfigurationError
from triokafka.spark.writing.record_sink import RecordSink, Written
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_BATCH = "streaming.sql.batchId"
_QUERY = "sql.streaming.queryId"
_OF_EVERY_CLIENT = ("client_id", "request_timeout_ms", "retry_backoff_ms", "retry_backoff_max_ms")


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """Where a task stands: its ``name`` is the same in every attempt, and ``batch`` numbers the micro-batches."""

    name: str
    batch: int


def place_of_task(job: str) -> TaskPlace:
    """Return the place of the task that runs now. ``job`` names a write that is not a stream.

    Raises:
        ConfigurationError: there is no task.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise ConfigurationError("option 'transactional' needs a Spark task: there is none here")
    batch, query = context.getLocalProperty(_BATCH), context.getLocalProperty(_QUERY)
    if batch is None or query is None:
        return TaskPlace(f"triokafka-spark-{job}-{context.partitionId()}", 0)
    return TaskPlace(f"triokafka-spark-{query}-{context.partitionId()}", int(batch))


async def write_once(
    batches: trio.MemoryReceiveChannel[pa.RecordBatch],
    place: TaskPlace,
    topic: str | None,
    settings: Mapping[str, Any],
) -> Written:
    """Write the rows of one task in a transaction, unless an earlier attempt has done so; return the rows written now.

    Raises:
        ConfigurationError: a topic is null.
        ProducerFencedError: another attempt of the task has started since.
        KafkaError: a record or the commit failed. Nothing of this attempt is visible, unless the error is a
            `KafkaTimeoutError` of the commit: then the next attempt finds out.
    """
    first = None
    async for batch in batches:
        if batch.num_rows:
            first = batch
            break
    if first is None:
        return Written()  # no rows: nothing to write once
    async with triokafka.Producer(**settings, transactional_id=place.name) as producer:
        await producer.init_transactions()
        if await _last_batch(place, settings) >= place.batch:
            async for _ in batches:
                pass  # Spark expects that a task reads all of its rows
            return Written()
        async with producer.transaction() as transaction:
            sink = RecordSink(producer, topic)
            await sink.send(first)
            async for batch in batches:
                await sink.send(batch)
            written = await sink.finish()
            note = TopicPartition(min(written.ranges).topic, 0)
            await transaction.send_offsets(offsets={note: place.batch + 1}, group=place.name)
        return written


async def _last_batch(place: TaskPlace, settings: Mapping[str, Any]) -> int:
    """Return the last micro-batch of which the task's partition is written, -1 if there is none."""
    servers = settings["bootstrap_servers"]
    options = {name: settings[name] for name in _OF_EVERY_CLIENT if name in settings}
    async with triokafka.AdminClient(bootstrap_servers=servers, **options) as admin:
        found = await admin.list_group_offsets(place.name, require_stable=True)
    return max((offset.offset for offset in found.values()), default=0) - 1
