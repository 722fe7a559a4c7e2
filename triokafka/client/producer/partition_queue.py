"""The queue of one partition, and the register of all queues in use."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Final, Protocol

from triokafka.client.producer.batch import Event, ProducerBatch
from triokafka.client.producer.kernel import QueueTail
from triokafka.client.producer.route import Route
from triokafka.client.producer.sequences import PartitionSequences
from triokafka.structs import TopicPartition

_RATIO_STEPS: Final = (1.0, 0.75, 0.5, 0.35, 0.25)


class CompressionRatio:
    """The compression ratio of a topic's records, so that finished batches come near ``batch_size``."""

    __slots__ = ("__weakref__", "_observed")

    def __init__(self) -> None:
        self._observed = 1.0

    @property
    def expected(self) -> float:
        """The expected ratio, in steps, so that the pool lends buffers of few sizes."""
        return next((step for step in reversed(_RATIO_STEPS) if step >= self._observed), 1.0)

    def observe(self, ratio: float) -> None:
        """Learn from a finished batch: a worse ratio counts fully, a better one only gradually.

        A broker may refuse a batch that is too large; one that is too small only costs a little.
        """
        seen = min(max(ratio, 0.05), 1.0)
        self._observed = max(seen, 0.9 * self._observed + 0.1 * seen)

    def reset(self) -> None:
        """Expect no compression: a batch was too large."""
        self._observed = 1.0


class Compressor(Protocol):
    """Compresses closed batches in threads: `ThreadCompressor`, and for lz4 `Lz4Compressor`."""

    @property
    def waiting(self) -> int:
        """Number of batches that the compressor holds."""

    def enqueue(self, batch: ProducerBatch) -> None:
        """Add a closed batch, unless the compressor already holds it."""

    def withdraw(self, batch: ProducerBatch) -> None:
        """Remove a batch that no thread works on."""

    def hand_over(self) -> bool:
        """Let threads compress the enqueued batches. False if the event loop must compress the batch it needs."""


class PartitionQueue(QueueTail):
    """The unsent batches of one partition, the oldest first; the last may still be open.

    ``on_wire`` counts batches in unanswered requests, ``filled`` the bytes of all batches that were closed. The
    partitions of a topic share its ``ratio``. Closed batches go to the ``compressor``, if there is one. ``route`` is
    for single batches. A caller that waits until few batches are left puts its event into ``shortened``.
    """

    __slots__ = (
        "__weakref__",
        "_next_number",
        "batches",
        "compressor",
        "filled",
        "on_wire",
        "ratio",
        "route",
        "sequences",
        "shortened",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        ratio: CompressionRatio,
        compressor: Compressor | None = None,
    ) -> None:
        super().__init__()
        self.compressor = compressor
        self.topic_partition = topic_partition
        self.ratio = ratio
        self.batches: deque[ProducerBatch] = deque()
        self.on_wire = 0
        self.filled = 0
        self.sequences = PartitionSequences()
        self.route: Route | None = None
        self.shortened: Event | None = None
        self._next_number = 0

    def take_number(self) -> tuple[int, ...]:
        """The number of the next batch."""
        self._next_number += 1
        return (self._next_number,)

    def close_open(self) -> None:
        """Close the open batch: it takes no further records."""
        batch = self.open
        if batch is not None:
            self.filled += batch.size
            batch.close()
            if self.compressor is not None:
                self.compressor.enqueue(batch)
            self.open = None

    def put_back(self, batch: ProducerBatch) -> None:
        """Insert a batch at its old place: before all later ones."""
        position = 0
        for known in self.batches:
            if known.number > batch.number:
                break
            position += 1
        self.batches.insert(position, batch)


class _QueueReference(weakref.ref[PartitionQueue]):
    __slots__ = ("sequences", "topic_partition")

    topic_partition: TopicPartition
    sequences: PartitionSequences


class QueueRegister:
    """The queues by partition: each is created at its first use and dropped when no object refers to it.

    A topic's state, a bound stream and a waiting send refer to their queues, and so does the accumulator while a queue
    has batches. Therefore the queues of an unused topic are dropped, and no partition has two queues.
    """

    def __init__(self, compressor: Compressor | None = None) -> None:
        self._queues: dict[TopicPartition, _QueueReference] = {}
        self._ratios: weakref.WeakValueDictionary[str, CompressionRatio] = weakref.WeakValueDictionary()
        self._numbers_lost = False
        self.compressor = compressor

    def __len__(self) -> int:
        return len(self._queues)

    def get(self, topic_partition: TopicPartition) -> PartitionQueue:
        """Return the queue of a partition."""
        reference = self._queues.get(topic_partition)
        queue = reference() if reference is not None else None
        if queue is None:
            queue = PartitionQueue(topic_partition, self.ratio(topic_partition.topic), self.compressor)
            reference = self._queues[topic_partition] = _QueueReference(queue, self._forget)
            reference.topic_partition = topic_partition
            reference.sequences = queue.sequences
        return queue

    def ratio(self, topic: str) -> CompressionRatio:
        """Return the compression ratio of a topic."""
        ratio = self._ratios.get(topic)
        if ratio is None:
            ratio = self._ratios[topic] = CompressionRatio()
        return ratio

    def forget_routes(self) -> None:
        """Make every partition choose the version of its requests again."""
        for reference in self._queues.values():
            queue = reference()
            if queue is not None:
                queue.route = None

    def take_lost_numbers(self) -> bool:
        """Return whether, since the last call, a queue was dropped that had sent batches in the current epoch.

        If the partition is used again, its new queue numbers batches from 0, and the broker would treat the first ones
        as duplicates. The producer must therefore take a new epoch.
        """
        lost, self._numbers_lost = self._numbers_lost, False
        return lost

    def _forget(self, reference: weakref.ref[PartitionQueue]) -> None:
        assert isinstance(reference, _QueueReference)
        if self._queues.get(reference.topic_partition) is reference:
            del self._queues[reference.topic_partition]
        if reference.sequences.used:
            self._numbers_lost = True


__all__ = ["CompressionRatio", "PartitionQueue", "QueueRegister"]
