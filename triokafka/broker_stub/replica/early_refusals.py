"""Batches that were refused before this broker knew that it leads their partitions; see `log.refused_batches`."""

from __future__ import annotations

from typing import Final

from triokafka.errors import BrokerResponseError
from triokafka.records import iter_batches
from triokafka.records.batch import BatchInfo
from triokafka.structs import Buffer, TopicPartition
from triokafka.topic_names import MAX_LENGTH

_MOST: Final = 10_000  # batches


class EarlyRefusals:
    """The first refused batch of each idempotent producer and partition.

    A client may have newer metadata than the broker: a topic may be new, or its leader. If the broker learns of it
    between two batches of a producer, the second one must not be taken before the first one is sent again.
    ``by_partition`` is empty unless something was refused.
    """

    def __init__(self) -> None:
        self.by_partition: dict[TopicPartition, dict[int, BatchInfo]] = {}
        self._count = 0

    def note(self, topic_partition: TopicPartition, data: Buffer) -> None:
        """Note a refused batch of a client. A name that no topic can have is not kept: it may have 32 KB."""
        if len(topic_partition.topic) > MAX_LENGTH:
            return
        try:
            batch = next(iter_batches(data, check_crc=False), None)
        except BrokerResponseError:
            return
        if batch is None or batch.producer_id < 0:
            return
        known = self.by_partition.setdefault(topic_partition, {})
        before = known.get(batch.producer_id)
        if before is None:
            self._count += 1
        elif before.producer_epoch == batch.producer_epoch and before.base_sequence <= batch.base_sequence:
            return
        known[batch.producer_id] = batch
        if self._count > _MOST:
            self.take(next(iter(self.by_partition)))

    def take(self, topic_partition: TopicPartition) -> list[BatchInfo]:
        """Return the batches of one partition, and forget them."""
        batches = list(self.by_partition.pop(topic_partition, {}).values())
        self._count -= len(batches)
        return batches
