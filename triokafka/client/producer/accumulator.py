"""Queues of batches per partition, which callers fill at the end and the sender drains at the head.

Pure: no I/O, no waiting, time is an argument (seconds on the world's clock). Memory comes from the `BufferPool`, whose
bytes a batch holds until it is settled and off the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from triokafka.client.producer.accumulator_settings import BATCH_HEADER
from triokafka.client.producer.batch import Event, ProducerBatch
from triokafka.client.producer.incomplete_batches import IncompleteBatches
from triokafka.client.producer.partition_queue import CompressionRatio, Compressor, PartitionQueue, QueueRegister
from triokafka.client.producer.sequences import ProducerIdentity
from triokafka.network.cluster import Cluster
from triokafka.records import BatchBuilder
from triokafka.structs import TopicPartition

_NEVER: Final = float("inf")
_FEW_BATCHES: Final = 2
"""A sender that waits for the network to catch up goes on when so few batches of its partition are left."""
_PROMPT_ATTEMPTS: Final = 5
"""Attempts after which a batch backs off also when its partition has a new leader."""


class Ready(NamedTuple):
    """The result of `Accumulator.ready`. ``next_check`` is seconds until it may find more, infinity without batches.

    ``held`` are nodes that must answer for a partition's earlier batches before its next one may be sent.
    """

    nodes: list[int]
    held: list[int]
    next_check: float
    leaderless: bool


class Accumulator:
    """All partition queues, and the rules for when a batch is sent.

    ``batches`` tracks the outcome of every batch. ``slow_nodes`` have taken no batches for long (KIP-794).
    ``new_event`` makes the event on which callers wait for a batch.
    """

    def __init__(
        self, batches: IncompleteBatches, *, new_event: Callable[[], Event], compressor: Compressor | None = None
    ) -> None:
        self.batches = batches
        self.settings = batches.settings
        self.pool = batches.pool
        self.active = batches.active
        self.closing = False
        self.flushes = 0
        self.queues = QueueRegister(compressor)
        self.slow_nodes: frozenset[int] = frozenset()
        self._compressor = compressor
        self._new_event = new_event
        self._start_at: dict[int, TopicPartition] = {}
        self._refusing_since: dict[int, float] = {}

    # ---------------------------------------------------------------- appending

    def queue(self, topic_partition: TopicPartition) -> PartitionQueue:
        """Return the queue of a partition: the same one while it has batches or anything refers to it."""
        return self.queues.get(topic_partition)

    def buffer_size_for(self, topic: str, record_size: int) -> int:
        """Return the bytes to borrow for a batch that begins with a record of this size: the usual size, or more if the
        record needs it."""
        size = self.settings.batch_limit
        if self.settings.compression_type != "none":
            size = BATCH_HEADER + int((size - BATCH_HEADER) / self._expected_ratio(self.queues.ratio(topic)))
        return max(size, record_size + BATCH_HEADER)

    def _expected_ratio(self, of_topic: CompressionRatio) -> float:
        """Return the expected compression ratio, bounded so that a batch fits into the pool before compression."""
        if self.settings.compression_type == "none":
            return 1.0
        return max(
            of_topic.expected, (self.settings.batch_limit - BATCH_HEADER) / max(1, self.pool.total - BATCH_HEADER)
        )

    def open_batch(self, queue: PartitionQueue, buffer: bytearray, now: float) -> ProducerBatch:
        """Start a batch in a borrowed buffer at the end of a queue. The caller appends a record without waiting.

        If creating the batch fails, the buffer goes back to the pool.
        """
        settings = self.settings
        try:
            builder = BatchBuilder(
                settings.batch_limit,
                compression=settings.compression_type,
                level=settings.compression_level,
                expected_ratio=self._expected_ratio(queue.ratio),
                buffer=buffer,
            )
        except BaseException:
            self.pool.release(buffer, len(buffer))
            raise
        queue.close_open()
        batch = ProducerBatch(
            queue.topic_partition,
            queue.take_number(),
            builder,
            reserved=len(buffer),
            created_at=now,
            new_event=self._new_event,
            transactional=settings.transactional,
        )
        self.batches.admit(queue, batch)
        return batch

    def close_open_batches(self) -> None:
        """Close all open batches."""
        for queue in self.active.values():
            queue.close_open()

    # ---------------------------------------------------------------- readiness

    def start_compressing(self) -> None:
        """Let threads compress closed batches if there is enough work, also batches that cannot be sent yet."""
        if self._compressor is not None:
            self._compressor.hand_over()

    @property
    def has_work(self) -> bool:
        """Whether the sender may find work after a request has ended."""
        return bool(self.active or self.batches.has_disturbed or self._refusing_since)

    @property
    def in_hurry(self) -> bool:
        """Whether no batch lingers: a flush, closing, or a caller without memory waits for them."""
        return self.flushes > 0 or self.closing or self.pool.waiting > 0

    def waiting_topics(self) -> list[str]:
        """Topics with batches in a queue."""
        return list(dict.fromkeys(topic for topic, _ in self.active))

    def ready(self, cluster: Cluster, now: float) -> Ready:
        """Return the nodes with batches that can be sent; only the head of each queue counts."""
        settings = self.settings
        in_hurry = self.in_hurry
        nodes: dict[int, None] = {}
        held: dict[int, None] = {}
        next_check = _NEVER
        leaderless = False
        for topic_partition, queue in self.active.items():
            head = queue.batches[0]
            leader = cluster.leader_for(topic_partition)
            if settings.one_in_flight and queue.on_wire:
                held[leader] = None
                continue
            if leader < 0:
                leaderless = True
                continue
            if leader in nodes or head.in_thread:
                continue
            wait = self._back_off(head, cluster, now) if head.retry_at > now else 0.0
            if wait <= 0 and not (in_hurry or len(queue.batches) > 1 or head.attempts or head.full):
                wait = head.created_at + settings.linger - now
            if wait > 0:
                next_check = min(next_check, wait)
            elif self.batches.idempotent and not queue.sequences.may_send(head):
                held[leader] = None
            else:
                nodes[leader] = None
        return Ready(list(nodes), list(held), next_check, leaderless)

    def drain(
        self, cluster: Cluster, nodes: Iterable[int], now: float, identity: ProducerIdentity
    ) -> dict[int, list[ProducerBatch]]:
        """Take batches for one request per node: the head of each of its partitions, as many as fit a request.

        A lingering head is included. The next call for a node starts where this one stopped, so that no partition is
        always last.
        """
        by_node: dict[int, list[PartitionQueue]] = {node: [] for node in nodes}
        for topic_partition, queue in self.active.items():
            node = cluster.leader_for(topic_partition)
            if node in by_node:
                by_node[node].append(queue)
        compresses = self.settings.compression_type != "none"
        drained: dict[int, list[ProducerBatch]] = {}
        for node, queues in by_node.items():
            batches: list[ProducerBatch] = []
            size = 0
            first = self._start_at.pop(node, None)
            if first is not None:
                start = next((i for i, queue in enumerate(queues) if queue.topic_partition == first), 0)
                queues = [*queues[start:], *queues[:start]]
            if compresses:
                self._line_up(queues, cluster, now)
            for queue in queues:
                head = queue.batches[0]
                if not self._may_drain(queue, head, cluster, now):
                    continue
                if not head.count:
                    self.batches.discard(head)
                    continue
                if batches and size + head.size > self.settings.max_request_size:
                    self._start_at[node] = queue.topic_partition
                    break
                if compresses and not self._is_compressed(queue, head):
                    continue
                head.leader_epoch = cluster.leader_epoch_for(queue.topic_partition)
                size += self._take(queue, head, identity)
                batches.append(head)
            if batches:
                drained[node] = batches
        return drained

    def only_head(self, now: float) -> ProducerBatch | None:
        """Return the only batch in all queues, if it may be sent now without waiting for others.

        A shortcut with the result of `ready`, for `take_only`. None when the caller must use those.
        """
        settings, active = self.settings, self.active
        if len(active) > 1 or settings.compression_type != "none" or (settings.linger > 0 and not self.in_hurry):
            return None
        (queue,) = active.values()
        head = queue.batches[0]
        if len(queue.batches) > 1 or head.retry_at > now or not head.count:
            return None
        if settings.one_in_flight and queue.on_wire:
            return None
        may_go = not self.batches.idempotent or queue.sequences.may_send(head)
        return head if may_go else None

    def take_only(self, head: ProducerBatch, leader_epoch: int, identity: ProducerIdentity) -> None:
        """Take the batch that `only_head` returned."""
        head.leader_epoch = leader_epoch
        self._take(self.batches.queue_of(head), head, identity)

    def take_following(self, last: ProducerBatch, now: float, identity: ProducerIdentity) -> ProducerBatch | None:
        """Take the batch behind the one just sent, if no other partition has batches and it may be sent now.

        A shortcut with the result of `ready` and `drain`. None when the caller must use those.
        """
        queue = self.active.get(last.topic_partition)
        settings = self.settings
        if queue is None or len(self.active) > 1 or settings.one_in_flight or settings.compression_type != "none":
            return None
        batches = queue.batches
        head = batches[0]
        if head.retry_at > now or not head.count or not (len(batches) > 1 or head.full):
            return None
        if self.batches.idempotent and not queue.sequences.may_send(head):
            return None
        head.leader_epoch = last.leader_epoch
        self._take(queue, head, identity)
        return head

    def _back_off(self, head: ProducerBatch, cluster: Cluster, now: float) -> float:
        """Return the seconds until the batch's next attempt; 0 when the partition has a new leader.

        A broker that names another leader epoch with each refusal does not keep the producer busy.
        """
        wait = head.retry_at - now
        if head.attempts >= _PROMPT_ATTEMPTS:
            return wait
        if wait > 0 and cluster.leader_epoch_for(head.topic_partition) > head.leader_epoch:
            return 0.0
        return wait

    def _may_drain(self, queue: PartitionQueue, head: ProducerBatch, cluster: Cluster, now: float) -> bool:
        if head.in_thread or (self.settings.one_in_flight and queue.on_wire):
            return False
        if head.retry_at > now and self._back_off(head, cluster, now) > 0:
            return False
        return not self.batches.idempotent or queue.sequences.may_send(head)

    def _line_up(self, queues: list[PartitionQueue], cluster: Cluster, now: float) -> None:
        """Enqueue all batches of the next request at the compressor, before the first of them is needed."""
        compressor = self._compressor
        if compressor is None:
            return
        size = 0
        for queue in queues:
            head = queue.batches[0]
            if head.compressed or not self._may_drain(queue, head, cluster, now):
                continue
            size += head.size
            if size > self.settings.max_request_size:
                return
            if queue.open is head:
                queue.close_open()
            compressor.enqueue(head)

    def _is_compressed(self, queue: PartitionQueue, head: ProducerBatch) -> bool:
        """Return whether the batch can be sent now; compress it, unless threads do that."""
        if queue.open is head:
            queue.close_open()
        if head.compressed:
            return True
        compressor = self._compressor
        if compressor is not None:
            compressor.enqueue(head)
            if compressor.hand_over() or head.in_thread:
                return False
            compressor.withdraw(head)
        try:
            head.compress()
        except Exception as error:
            self.batches.fail_compression(head, error)
            return False
        return True

    def _take(self, queue: PartitionQueue, head: ProducerBatch, identity: ProducerIdentity) -> int:
        """Remove the head from its queue and prepare it for sending; return its size."""
        left = queue.batches
        left.popleft()
        if queue.shortened is not None and len(left) <= _FEW_BATCHES:
            queue.shortened.set()
            queue.shortened = None
        if queue.open is head:
            queue.close_open()
        else:
            head.close()
        if not left:
            del self.active[queue.topic_partition]
        if self.batches.idempotent:
            queue.sequences.assign(head, identity)
        built = head.build()
        if self.settings.compression_type != "none" and not head.attempts and head.builder is not None:
            queue.ratio.observe(head.builder.compression_ratio)
        head.on_wire = True
        head.attempts += 1
        queue.on_wire += 1
        return len(built)

    def note_refusals(self, nodes: Sequence[int], now: float) -> None:
        """Note the nodes that take no request now although batches are ready for them."""
        limit = self.settings.availability_timeout
        if not limit:
            return
        self._refusing_since = {node: self._refusing_since.get(node, now) for node in nodes}
        self.slow_nodes = frozenset(node for node, since in self._refusing_since.items() if now - since > limit)


__all__ = ["Accumulator", "Ready"]
