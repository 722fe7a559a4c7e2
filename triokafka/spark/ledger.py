"""What functions of ``foreachBatch`` have done, in a compacted topic: for each piece of work the last batch.

The topic is read whole once, and later on only what came since. It runs in the loop of the process, and blocks.
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
from triokafka.spark.client_settings import HiddenValues
from triokafka.structs import TopicPartition


class Ledger:
    """One topic of such entries.

    Args:
        topic: its name; it is made when it is not there, with one partition.
        options: of the clients, which fit `AdminClient`, `Producer` and `RangeReader`. Not shown in the repr.
    """

    def __init__(self, topic: str, options: Mapping[str, Any]) -> None:
        self.topic = topic
        self._options = HiddenValues(options)
        self._turn = trio.Lock()  # batches of two queries with one function may ask at the same time
        self._topic_id: UUID | None = None
        self._done: dict[bytes, int] = {}
        self._read: dict[TopicPartition, int] = {}  # up to where

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.topic!r})"

    def last_done(self, work: bytes) -> int | None:
        """The last batch for which ``work`` is known to be done; None for none.

        Raises:
            ConfigurationError: there is something else in the topic.
            KafkaError: it cannot be read, or made.
        """
        loop_thread().call(self._catch_up)
        return self._done.get(work)

    def note(self, work: bytes, batch_id: int) -> None:
        """Enter that ``work`` is done for a batch. Returns when all in-sync replicas have it.

        Raises:
            KafkaError: it cannot be written.
        """

        async def write() -> None:
            async with triokafka.Producer(**self._options) as producer:
                await (await producer.send(self.topic, json.dumps({"batch": batch_id}).encode(), key=work))

        loop_thread().call(write)

    async def _catch_up(self) -> None:
        async with self._turn:
            topic_id = await self._find_or_make()
            ranges, topic_ids = await resolve_ranges([self.topic], "earliest", "latest", **self._options)
            # The second is for brokers that give topics no ids.
            if topic_id != self._topic_id or any(end < self._read.get(one, 0) for one, (_, end) in ranges.items()):
                self._topic_id, self._read, self._done = topic_id, {}, {}  # the topic was made anew
            left = {one: (min(max(start, self._read.get(one, 0)), end), end) for one, (start, end) in ranges.items()}
            async with triokafka.RangeReader(left, topic_ids=topic_ids, **self._options) as reader:
                while records := await reader.next_records():
                    for record in records:
                        if record.key is not None and record.value is not None:
                            self._done[bytes(record.key)] = self._batch_of(record)
            self._read = {one: end for one, (_, end) in ranges.items()}

    async def _find_or_make(self) -> UUID | None:
        """The topic's id; None when it was made just now. It may go at any time: somebody may have deleted it."""
        async with triokafka.AdminClient(**self._options) as admin:
            found = await admin.describe_topics([self.topic])
            # Asked for first: who may write to a topic that is there need not be allowed to make one.
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
                f"topic {self.topic!r} has something else than what was done, at offset {record.offset} of partition"
                f" {record.partition}: give the ledger a topic of its own"
            ) from None
