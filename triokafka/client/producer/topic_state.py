"""The producer's state of a topic: the queues of its partitions, and the partition for records without key."""

from __future__ import annotations

from collections.abc import Callable

from triokafka.client.producer.accumulator import Accumulator
from triokafka.client.producer.kernel import TopicQueues
from triokafka.client.producer.partition_queue import PartitionQueue
from triokafka.client.producer.partitioner import RecordPartitioner, StickyPartitioner
from triokafka.network.cluster import TopicMetadata
from triokafka.structs import Buffer, TopicPartition


class TopicState(TopicQueues):
    """The queues of a topic's partitions by number, and the ``sticky`` partition, which the fast path reads.

    It derives from the kernel's class so that compiled code reads its fields without Python. ``described`` is the
    metadata of the last `update`.
    """

    __slots__ = ("_accumulator", "_partitioner", "_sticky_partitioner", "available", "described", "name", "partitions")

    queues: list[PartitionQueue]

    def __init__(
        self,
        topic: TopicMetadata,
        accumulator: Accumulator,
        partitioner: RecordPartitioner,
        chance: Callable[[], float],
    ) -> None:
        super().__init__()
        self.name = topic.name
        self.partitions = range(0)
        self.available: tuple[int, ...] = ()
        self._accumulator = accumulator
        self._partitioner = partitioner
        self._sticky_partitioner = StickyPartitioner(self.queues, accumulator, chance)
        self.update(topic)

    def update(self, topic: TopicMetadata) -> None:
        """Apply new metadata: more partitions, other leaders."""
        self.described = topic
        self.partitions = range(len(topic.partitions))
        self.available = topic.available
        for partition in self.partitions[len(self.queues) :]:
            self.queues.append(self._accumulator.queue(TopicPartition(self.name, partition)))
        leaders = [partition.leader for partition in topic.partitions.values()]
        self.sticky = self._sticky_partitioner.update(leaders, topic.available)

    def switch_if_due(self) -> int:
        """Return the partition for the next record without key; it changes after a batch's worth of bytes."""
        self.sticky = self._sticky_partitioner.switch_if_due()
        return self.sticky

    def queue_for(self, partition: int | None, key: Buffer | None, value: Buffer | None) -> PartitionQueue:
        """Return the queue for a record: by its partition, the partitioner, its key, or the sticky partition."""
        if partition is None:
            partition = self._partitioner.choose(self.name, key, value, self.partitions, self.available)
        return self.queues[self.switch_if_due() if partition is None else partition]
