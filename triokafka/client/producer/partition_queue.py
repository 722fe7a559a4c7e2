"""The queue of one partition, and the register of all queues that somebody still needs."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Final

import trio

from triokafka.client.producer.batch import ProducerBatch
from triokafka.client.producer.compressor import Compressor
from triokafka.client.producer.kernel import QueueTail
from triokafka.client.producer.lz4_compressor import Lz4Compressor
from triokafka.client.producer.request_sender import Route
from triokafka.client.producer.sequences import PartitionSequences
from triokafka.structs import TopicPartition

_RATIO_STEPS: Final = (1.0, 0.75, 0.5, 0.35, 0.25)


class CompressionRatio:
    """What compression makes of a topic's records, so that batches come out near ``batch_size``."""

    __slots__ = ("__weakref__", "_observed")

    def __init__(self) -> None:
        self._observed = 1.0

    @property
    def expected(self) -> float:
        """The ratio to count on: in steps, so that buffers of few sizes are lent."""
        return next((step for step in reversed(_RATIO_STEPS) if step >= self._observed), 1.0)

    def observe(self, ratio: float) -> None:
        """Learn from a finished batch: at once that records compress worse, little by little that they do better.

        Too large a batch may be refused, too small a one only costs a little.
        """
        seen = min(max(ratio, 0.05), 1.0)
        self._observed = max(seen, 0.9 * self._observed + 0.1 * seen)

    def reset(self) -> None:
        """Count on nothing: a batch came out too large."""
        self._observed = 1.0


class PartitionQueue(QueueTail):
    """The batches of one partition that are to be sent, the oldest first; the last may still be open.

    ``on_wire`` counts batches in unanswered requests; ``filled`` the bytes of all batches that were closed. ``ratio``
    is shared by the partitions of the topic. Closed batches join the line of the ``compressor``, if there is one.
    ``route`` is how the sender sends single batches of it. ``shortened`` is set when few batches are left to be sent.
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
        compressor: Compressor | Lz4Compressor | None = None,
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
        self.shortened: trio.Event | None = None
        self._next_number = 0

    def take_number(self) -> tuple[int, ...]:
        """The number of the next batch."""
        self._next_number += 1
        return (self._next_number,)

    def close_open(self) -> None:
        """Close the batch that is being filled; later records cannot slip into it."""
        batch = self.open
        if batch is not None:
            self.filled += batch.size
            batch.close()
            if self.compressor is not None:
                self.compressor.enqueue(batch)
            self.open = None

    async def wait_until_short(self) -> None:
        """Wait until few batches are left that were not sent."""
        if self.shortened is None:
            self.shortened = trio.Event()
        await self.shortened.wait()

    def note_shortened(self) -> None:
        """Wake who waits for it."""
        if self.shortened is not None:
            self.shortened.set()
            self.shortened = None

    def put_back(self, batch: ProducerBatch) -> None:
        """Insert a batch where it was: before all that were made later."""
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
    """The queues by partition, each made at first use and forgotten when nobody holds it any more.

    Who may put records into a queue holds it (a topic's state, a bound stream, a send that waits), and so does the
    accumulator while it has batches of it. So a topic that was used once does not stay for ever, and
    there are never two queues of one partition.
    """

    def __init__(self) -> None:
        self._queues: dict[TopicPartition, _QueueReference] = {}
        self._ratios: weakref.WeakValueDictionary[str, CompressionRatio] = weakref.WeakValueDictionary()
        self._numbers_lost = False
        self.compressor: Compressor | Lz4Compressor | None = None

    def __len__(self) -> int:
        return len(self._queues)

    def get(self, topic_partition: TopicPartition) -> PartitionQueue:
        """The queue of a partition."""
        reference = self._queues.get(topic_partition)
        queue = reference() if reference is not None else None
        if queue is None:
            queue = PartitionQueue(topic_partition, self.ratio(topic_partition.topic), self.compressor)
            reference = self._queues[topic_partition] = _QueueReference(queue, self._forget)
            reference.topic_partition = topic_partition
            reference.sequences = queue.sequences
        return queue

    def ratio(self, topic: str) -> CompressionRatio:
        """The compression ratio of a topic."""
        ratio = self._ratios.get(topic)
        if ratio is None:
            ratio = self._ratios[topic] = CompressionRatio()
        return ratio

    def take_lost_numbers(self) -> bool:
        """Whether a queue was forgotten, since the last call, under whose current numbers batches were sent.

        Should the partition be used again, its new queue counts from 0, and the broker would take its first batches for
        repeats; so all must go on under a new epoch.
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
