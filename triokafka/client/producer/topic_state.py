"""What the producer needs to know of one topic to place a record without asking: its queues and the sticky
partition."""

from __future__ import annotations

from collections.abc import Callable

from triokafka.client.producer.accumulator import Accumulator
from triokafka.client.producer.kernel import QueueEnds
from triokafka.client.producer.partition_queue import PartitionQueue
from triokafka.client.producer.partitioner import Partitioner, choose_sticky
from triokafka.network.metadata import TopicMetadata
from triokafka.structs import Buffer, TopicPartition


class TopicState(QueueEnds):
    """The queues of a topic's partitions by number, and the partition for records without key.

    ``sticky`` stays until about a batch's worth of bytes went to it (KIP-794); `switch_if_due` decides when a batch is
    to be opened, never per record. ``chance`` gives uniform random numbers.
    """

    __slots__ = ("_accumulator", "_chance", "_filled_before", "available", "name", "partitions")

    queues: list[PartitionQueue]

    def __init__(self, topic: TopicMetadata, accumulator: Accumulator, chance: Callable[[], float]) -> None:
        super().__init__()
        self.name = topic.name
        self.partitions = range(0)
        self.available: tuple[int, ...] = ()
        self._accumulator = accumulator
        self._chance = chance
        self._filled_before = 0
        self.update(topic)

    def update(self, topic: TopicMetadata) -> None:
        """Take in new metadata: more partitions, other leaders."""
        self.partitions = range(len(topic.partitions))
        self.available = topic.available
        for partition in self.partitions[len(self.queues) :]:
            self.queues.append(self._accumulator.queue(TopicPartition(self.name, partition)))
        if self.sticky < 0 or (self.available and self.sticky not in self.available):
            self._choose()

    def switch_if_due(self) -> int:
        """The partition for the next record without key; another one once a batch's worth of bytes went to the last."""
        queue = self.queues[self.sticky]
        # A closed batch is rarely full to the last byte.
        if queue.filled - self._filled_before >= self._accumulator.settings.batch_limit * 3 // 4:
            self._choose()
        return self.sticky

    def _choose(self) -> None:
        def length(partition: int) -> int:
            return len(self.queues[partition].batches) + self.queues[partition].on_wire

        self.sticky = choose_sticky(self.available, self.partitions, length, self._chance())
        self._filled_before = self.queues[self.sticky].filled

    def custom_partition(self, partitioner: Partitioner, key: Buffer | None, value: Buffer | None) -> int:
        """Ask the user's partitioner. Raises `ValueError` when it answers with a partition that does not exist."""
        chosen = partitioner.partition(self.name, key, value, self.partitions, self.available)
        if chosen not in self.partitions:
            raise ValueError(
                f"the partitioner {partitioner!r} chose partition {chosen!r} of {self.name!r},"
                f" which has {len(self.partitions)} partitions"
            )
        return chosen
