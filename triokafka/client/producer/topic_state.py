"""What the producer needs to know of one topic to place a record without asking: its queues and the sticky
partition."""

from __future__ import annotations

from collections.abc import Callable

from triokafka.client.producer.accumulator import Accumulator
from triokafka.client.producer.kernel import TopicQueues
from triokafka.client.producer.partition_queue import PartitionQueue
from triokafka.client.producer.partitioner import Partitioner, choose_sticky
from triokafka.network.cluster import TopicMetadata
from triokafka.structs import Buffer, TopicPartition


class TopicState(TopicQueues):
    """The queues of a topic's partitions by number, and the partition for records without key.

    ``sticky`` stays until a batch's worth of bytes went to it, in however many batches (KIP-794); `switch_if_due`
    decides when a batch is to be opened, never per record. What that is too late or too early by is made up for when
    the partition has its next turn, so that a turn is ``batch_size`` bytes in the long run, and partitions whose broker
    is slow, and whose batches therefore fill up, get no more than the others. ``chance`` gives uniform random numbers.
    ``described`` is the metadata that was taken in last.
    """

    __slots__ = (
        "_accumulator",
        "_chance",
        "_filled_before",
        "_leaders",
        "_surplus",
        "available",
        "described",
        "name",
        "partitions",
    )

    queues: list[PartitionQueue]

    def __init__(self, topic: TopicMetadata, accumulator: Accumulator, chance: Callable[[], float]) -> None:
        super().__init__()
        self.name = topic.name
        self.partitions = range(0)
        self.available: tuple[int, ...] = ()
        self._accumulator = accumulator
        self._chance = chance
        self._filled_before = 0
        self._leaders: list[int] = []
        self._surplus: list[int] = []
        self.update(topic)

    def update(self, topic: TopicMetadata) -> None:
        """Take in new metadata: more partitions, other leaders."""
        self.described = topic
        self.partitions = range(len(topic.partitions))
        self.available = topic.available
        self._leaders = [partition.leader for partition in topic.partitions.values()]
        for partition in self.partitions[len(self.queues) :]:
            self.queues.append(self._accumulator.queue(TopicPartition(self.name, partition)))
            self._surplus.append(0)
        if self.sticky < 0 or (self.available and self.sticky not in self.available):
            self._choose()

    def switch_if_due(self) -> int:
        """The partition for the next record without key; another one once a batch's worth of bytes went to the last."""
        limit = self._accumulator.settings.batch_limit
        produced = self._surplus[self.sticky] + self.queues[self.sticky].filled - self._filled_before
        # Batches end where they end: so the turn ends at the one that brings it nearest to the limit.
        if produced > limit // 2:
            # One record may be larger than a batch; the partition is not shunned for many turns because of it.
            self._surplus[self.sticky] = min(produced - limit, limit // 2)
            self._choose()
        return self.sticky

    def _choose(self) -> None:
        def length(partition: int) -> int:
            return len(self.queues[partition].batches) + self.queues[partition].on_wire

        accumulator = self._accumulator
        among = self.available
        if accumulator.slow_nodes:
            among = tuple(p for p in among if self._leaders[p] not in accumulator.slow_nodes) or among
        adaptive = accumulator.settings.adaptive_partitioning
        self.sticky = choose_sticky(among, self.partitions, length if adaptive else None, self._chance())
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
