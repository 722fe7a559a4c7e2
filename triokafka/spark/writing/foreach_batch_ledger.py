"""The ledger of ``foreachBatch`` functions: a compacted topic with the last completed batch of each piece of work.

The topic is read whole once, then incrementally. Runs in the process's Trio loop; the methods block.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import trio

import triokafka
from triokafka.client.range_bounds import resolve_ranges
from triokafka.errors import ConfigurationError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from triokafka.loop_thread import loop_thread
from triokafka.records import ConsumerRecord
from triokafka.spark.planning.client_settings import HiddenValues
from triokafka.structs import TopicPartition


class Ledger:
    """One ledger topic.

    Args:
        topic: its name; created with one partition if it does not exist.
        options: client options that `AdminClient`, `Producer` and `RangeReader` all accept. Omitted from the repr.
    """

    def __init__(self, topic: str, options: Mapping[str, Any]) -> None:
        self.topic = topic
        self._options = HiddenValues(options)
        self._turn = trio.Lock()  # two queries with one function may use the ledger at the same time
        self._topic_id: UUID | None = None
        self._done: dict[bytes, int] = {}
        self._read: dict[TopicPartition, int] = {}  # the next offset to read

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.topic!r})"

    def last_done(self, work: bytes) -> int | None:
        """Return the last batch for which ``work`` is recorded as done; None without any.

        Raises:
            ConfigurationError: the topic contains other records.
            KafkaError: the topic cannot be read or created.
        """
        loop_thread().call(self._catch_up)
        return self._done.get(work)

    def note(self, work: bytes, batch_id: int) -> None:
        """Record that ``work`` is done for a batch. Returns when all in-sync replicas have acknowledged it.

        Raises:
            KafkaError: the record cannot be written.
        """

        async def write() -> None:
            async with triokafka.Producer(**self._options) as producer:
                await (await producer.send(self.topic, json.dumps({"batch": batch_id}).encode(), key=work))

        loop_thread().call(write)

    async def _catch_up(self) -> None:
        async with self._turn:
            topic_id = await self._find_or_make()
            ranges, topic_ids = await resolve_ranges([self.topic], "earliest", "latest", **self._options)
            # The second condition serves brokers without topic ids.
            if topic_id != self._topic_id or any(end < self._read.get(one, 0) for one, (_, end) in ranges.items()):
                self._topic_id, self._read, self._done = topic_id, {}, {}  # the topic was recreated
            left = {one: (min(max(start, self._read.get(one, 0)), end), end) for one, (start, end) in ranges.items()}
            async with triokafka.RangeReader(left, topic_ids=topic_ids, **self._options) as reader:
                while records := await reader.next_records():
                    for record in records:
                        if record.key is not None and record.value is not None:
                            self._done[bytes(record.key)] = self._batch_of(record)
            self._read = {one: end for one, (_, end) in ranges.items()}

    async def _find_or_make(self) -> UUID | None:
        """Return the topic's id, or None if it was created just now. Called each time: the topic may be deleted."""
        async with triokafka.AdminClient(**self._options) as admin:
            found = await admin.describe_topics([self.topic])
            # Describe first: a user with write access to the topic may lack the right to create it.
            if not isinstance(found.errors.get(self.topic), UnknownTopicOrPartitionError):
                return found[self.topic].topic_id
            new = triokafka.NewTopic(self.topic, 1, configs={"cleanup.policy": "compact"})
            try:
                await admin.create_topics([new])
            except TopicAlreadyExistsError:
                pass
        return None

    def _batch_of(self, record: ConsumerRecord) -> int:
        try:
            return int(json.loads(bytes(record.value or b""))["batch"])
        except (ValueError, KeyError, TypeError):
            raise ConfigurationError(
                f"topic {self.topic!r} has a record that is not a ledger entry, at offset {record.offset} of partition"
                f" {record.partition}: give the ledger a topic of its own"
            ) from None
