"""Records on their way: a queue of batches per partition, which callers fill at the end and the sender empties.

Pure: no I/O, no waiting, time is an argument (seconds on the world's clock). Memory comes from the `BufferPool`, whose
bytes a batch holds until it is settled and off the wire.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from triokafka.client.producer.batch import ProducerBatch
from triokafka.client.producer.buffer_pool import BufferPool
from triokafka.client.producer.compressor import Compressor
from triokafka.client.producer.partition_queue import PartitionQueue, QueueRegister
from triokafka.client.producer.sequences import ProducerIdentity
from triokafka.errors import KafkaError, KafkaTimeoutError
from triokafka.network.backoff import Backoff
from triokafka.network.snapshot import Cluster
from triokafka.records import BatchBuilder
from triokafka.structs import Buffer, TopicPartition

_NEVER: Final = float("inf")
_BATCH_HEADER: Final = 61
_RECORD_OVERHEAD: Final = 26  # the most that lengths, deltas and attributes of a record without headers take


@dataclass(frozen=True, slots=True, kw_only=True)
class AccumulatorSettings:
    """What shapes batches. Times are seconds.

    A node that takes no batches for longer than ``availability_timeout`` counts as slow; 0 is no limit.
    """

    batch_size: int
    linger: float
    delivery_timeout: float
    retry_backoff: Backoff
    compression_type: str = "none"
    compression_level: int | None = None
    max_request_size: int = 1_048_576
    one_in_flight: bool = False
    idempotent: bool = False
    adaptive_partitioning: bool = True
    availability_timeout: float = 0.0

    @property
    def batch_limit(self) -> int:
        """Bytes that a finished batch should have at most; only a single large record makes one larger."""
        return max(min(self.batch_size, self.max_request_size), _BATCH_HEADER + 1)

    @staticmethod
    def record_bound(key: Buffer | None, value: Buffer | None, headers: Sequence[tuple[str, Buffer | None]]) -> int:
        """The most bytes that a record can take in a batch, before compression."""
        size = _RECORD_OVERHEAD + (len(key) if key is not None else 0) + (len(value) if value is not None else 0)
        for name, content in headers:
            size += 10 + 3 * len(name) + (len(content) if content is not None else 0)
        return size


class Ready(NamedTuple):
    """What `Accumulator.ready` found. ``next_check`` is seconds until it may find more, infinity when nothing waits.

    ``held`` are nodes that must answer for a partition's earlier batches before its next one may go.
    """

    nodes: list[int]
    held: list[int]
    next_check: float
    leaderless: bool


class Accumulator:
    """All partition queues, and the rules for when a batch goes out.

    ``on_failed`` is told of every batch that is given up; ``on_escaped`` gets what a callback raised that is no
    `Exception`, once the batch is dealt with. ``slow_nodes`` are those that have not taken their batches
    for long (KIP-794).
    """

    def __init__(
        self, settings: AccumulatorSettings, pool: BufferPool, on_failed: Callable[[ProducerBatch], None]
    ) -> None:
        self.settings = settings
        self.pool = pool
        self._failure_listeners = [on_failed]
        self.on_escaped: Callable[[BaseException], None] = _raise
        self.closing = False
        self.flushes = 0
        self.queues = QueueRegister()
        self._active: dict[TopicPartition, PartitionQueue] = {}
        self._incomplete: dict[ProducerBatch, None] = {}
        self._unreleased: dict[ProducerBatch, PartitionQueue] = {}
        self._start_at: dict[int, TopicPartition] = {}
        self.slow_nodes: frozenset[int] = frozenset()
        self._refusing_since: dict[int, float] = {}
        self._troubled: dict[TopicPartition, PartitionQueue] = {}

    def add_failure_listener(self, listener: Callable[[ProducerBatch], None]) -> None:
        """Have ``listener``, too, told of every batch that is given up. It must not block."""
        self._failure_listeners.append(listener)

    # ---------------------------------------------------------------- appending

    def queue(self, topic_partition: TopicPartition) -> PartitionQueue:
        """The queue of a partition. It stays the same as long as anybody holds it, and while it has batches."""
        return self.queues.get(topic_partition)

    def buffer_size_for(self, topic: str, record_size: int) -> int:
        """Bytes to borrow for a new batch that begins with a record of this size: what batches take, or what it
        does."""
        size = self.settings.batch_limit
        if self.settings.compression_type != "none":
            size = _BATCH_HEADER + int((size - _BATCH_HEADER) / self._expected_ratio(self.queues.ratio(topic).expected))
        return max(size, record_size + _BATCH_HEADER)

    def _expected_ratio(self, of_topic: float) -> float:
        """What compression is counted on to make of a batch: never so much that it would not fit into all memory."""
        return max(of_topic, (self.settings.batch_limit - _BATCH_HEADER) / max(1, self.pool.total - _BATCH_HEADER))

    def open_batch(self, queue: PartitionQueue, buffer: bytearray, now: float) -> ProducerBatch:
        """Start a batch in a borrowed buffer, at the end of a queue. The caller appends to it at once.

        Raises what making the batch raises; the buffer is back in the pool then.
        """
        settings = self.settings
        try:
            builder = BatchBuilder(
                settings.batch_limit,
                compression=settings.compression_type,
                level=settings.compression_level,
                expected_ratio=self._expected_ratio(queue.ratio.expected),
                buffer=buffer,
            )
        except BaseException:
            self.pool.release(buffer, len(buffer))
            raise
        queue.close_open()
        batch = ProducerBatch(queue.topic_partition, queue.take_number(), builder, reserved=len(buffer), created_at=now)
        queue.batches.append(batch)
        queue.open = batch
        self._active[queue.topic_partition] = queue
        self._incomplete[batch] = None
        self._unreleased[batch] = queue
        return batch

    def close_open_batches(self) -> None:
        """Take no more records into any batch there is."""
        for queue in self._active.values():
            queue.close_open()

    # ---------------------------------------------------------------- what is ready

    @property
    def has_incomplete(self) -> bool:
        """Whether any record is not settled yet."""
        return bool(self._incomplete)

    def incomplete(self) -> list[ProducerBatch]:
        """The batches that are not settled, the oldest first (`client/ACC-27`)."""
        return list(self._incomplete)

    def use_compressor(self, compressor: Compressor) -> None:
        """Have threads compress. To be called before there are queues."""
        self.queues.compressor = compressor

    def start_compressing(self) -> None:
        """Hand closed batches over to threads as soon as that pays, also those that cannot be sent yet."""
        if self.queues.compressor is not None:
            self.queues.compressor.hand_over()

    @property
    def queued(self) -> bool:
        """Whether any batch waits in a queue."""
        return bool(self._active)

    @property
    def has_work(self) -> bool:
        """Whether the sender may find something to do after a request has ended."""
        return bool(self._active or self._troubled or self._refusing_since)

    def waiting_topics(self) -> list[str]:
        """Topics with batches in a queue."""
        return list(dict.fromkeys(topic for topic, _ in self._active))

    def ready(self, cluster: Cluster, now: float) -> Ready:
        """The nodes that have something sendable, decided by the head of each queue alone (`client/ACC-9` to
        `ACC-20`)."""
        settings = self.settings
        hurry = self.flushes > 0 or self.closing or self.pool.waiting > 0
        nodes: dict[int, None] = {}
        held: dict[int, None] = {}
        next_check = _NEVER
        leaderless = False
        for topic_partition, queue in self._active.items():
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
            wait = self._back_off(head, cluster, now)
            if wait <= 0 and not head.in_retry and not (hurry or head.full or len(queue.batches) > 1):
                wait = head.created_at + settings.linger - now
            if wait > 0:
                next_check = min(next_check, wait)
            elif settings.idempotent and not queue.sequences.may_send(head):
                held[leader] = None
            else:
                nodes[leader] = None
        return Ready(list(nodes), list(held), next_check, leaderless)

    def drain(
        self, cluster: Cluster, nodes: Iterable[int], now: float, identity: ProducerIdentity
    ) -> dict[int, list[ProducerBatch]]:
        """Take batches for one request per node: the head of each of its partitions, as many as fit a request.

        Also of partitions whose head still lingers: they ride along (`client/ACC-20`). The next call for a node starts
        behind where this one stopped, so that no partition is always last (`client/ACC-24`).
        """
        by_node: dict[int, list[PartitionQueue]] = {node: [] for node in nodes}
        for topic_partition, queue in self._active.items():
            node = cluster.leader_for(topic_partition)
            if node in by_node:
                by_node[node].append(queue)
        drained: dict[int, list[ProducerBatch]] = {}
        for node, queues in by_node.items():
            batches: list[ProducerBatch] = []
            size = 0
            first = self._start_at.pop(node, None)
            start = next((i for i, queue in enumerate(queues) if queue.topic_partition == first), 0)
            for queue in (*queues[start:], *queues[:start]):
                head = queue.batches[0]
                if not self._may_drain(queue, head, cluster, now):
                    continue
                if not head.count:
                    self._discard(head)
                    continue
                if batches and size + head.size > self.settings.max_request_size:
                    self._start_at[node] = queue.topic_partition
                    break
                if not self._is_compressed(queue, head):
                    continue
                head.leader_epoch = cluster.leader_epoch_for(queue.topic_partition)
                self._take(queue, head, identity)
                size += head.size
                batches.append(head)
            if batches:
                drained[node] = batches
        return drained

    def _back_off(self, head: ProducerBatch, cluster: Cluster, now: float) -> float:
        """Seconds that the batch must still wait for its next attempt; none when the partition has a new leader."""
        wait = head.retry_at - now
        if wait > 0 and cluster.leader_epoch_for(head.topic_partition) > head.leader_epoch:
            return 0.0
        return wait

    def _may_drain(self, queue: PartitionQueue, head: ProducerBatch, cluster: Cluster, now: float) -> bool:
        if head.in_thread or (self.settings.one_in_flight and queue.on_wire):
            return False
        if self._back_off(head, cluster, now) > 0:
            return False
        return not self.settings.idempotent or queue.sequences.may_send(head)

    def _is_compressed(self, queue: PartitionQueue, head: ProducerBatch) -> bool:
        """Whether the batch can be sent now; compresses it, unless threads do that."""
        if queue.open is head:
            queue.close_open()
        if head.compressed:
            return True
        compressor = self.queues.compressor
        if compressor is not None:
            compressor.enqueue(head)
            if compressor.hand_over():
                return False
            compressor.withdraw(head)
        try:
            head.compress()
        except Exception as error:
            self._fail_compression(head, error)
            return False
        return True

    def out_of_thread(self, batch: ProducerBatch, error: Exception | None) -> None:
        """A thread has let go of a batch that it compressed, or on which it failed."""
        if batch.done:
            self._release(batch)  # given up meanwhile, when the thread still used the memory
        elif error is not None:
            self._fail_compression(batch, error)

    def _fail_compression(self, batch: ProducerBatch, reason: Exception) -> None:
        error = KafkaError(
            f"{batch.count} records for {batch.topic_partition} could not be compressed with"
            f" {self.settings.compression_type}: {reason!r}"
        )
        error.__cause__ = reason
        self._unqueue(batch)
        self.fail(batch, error)

    def _take(self, queue: PartitionQueue, head: ProducerBatch, identity: ProducerIdentity) -> None:
        queue.batches.popleft()
        if queue.open is head:
            queue.close_open()
        head.close()
        if not queue.batches:
            del self._active[queue.topic_partition]
        if self.settings.idempotent:
            queue.sequences.assign(head, identity)
        head.build()
        if self.settings.compression_type != "none" and not head.in_retry and head.builder is not None:
            queue.ratio.observe(head.builder.compression_ratio)
        head.on_wire = True
        head.attempts += 1
        queue.on_wire += 1

    def _discard(self, batch: ProducerBatch) -> None:
        """Drop a batch without records: its first one turned out to be no record while it was written."""
        self._unqueue(batch)
        batch.settle()
        self._settled(batch)
        self._release(batch)

    def note_refusals(self, nodes: Iterable[int], now: float) -> None:
        """These are the nodes, of those that something is ready for, that take no request now."""
        limit = self.settings.availability_timeout
        if not limit:
            return
        self._refusing_since = {node: self._refusing_since.get(node, now) for node in nodes}
        self.slow_nodes = frozenset(node for node, since in self._refusing_since.items() if now - since > limit)

    # ---------------------------------------------------------------- what came of it

    def off_wire(self, batch: ProducerBatch) -> PartitionQueue:
        """The request that carried the batch has ended, one way or the other."""
        queue = self._unreleased[batch]
        batch.on_wire = False
        queue.on_wire -= 1
        return queue

    def acknowledge(
        self, batch: ProducerBatch, base_offset: int, log_append_time: int, now: float | None = None
    ) -> None:
        """The broker has the batch: settle it and give back its memory."""
        queue = self._unreleased[batch]
        batch.settle(base_offset, log_append_time, now=now)
        if self.settings.idempotent:
            queue.sequences.acknowledged(batch)
        self._settled(batch)
        self._release(batch)
        self._let_escape(batch)

    def fail(
        self,
        batch: ProducerBatch,
        error: Exception,
        *,
        fate_known: bool = False,
        record_errors: dict[int, Exception] | None = None,
    ) -> bool:
        """Give the batch up. ``fate_known``: the broker refused it. False when it had been settled before."""
        queue = self._unreleased[batch]
        told = batch.settle(error=error, record_errors=record_errors)
        self._settled(batch)
        if not batch.on_wire:
            if self.settings.idempotent:
                queue.sequences.failed(batch, fate_known=fate_known)
                self.note_trouble(queue)
            self._release(batch)
        if told:
            for listener in self._failure_listeners:
                listener(batch)
        self._let_escape(batch)
        return told

    def late_answer(self, batch: ProducerBatch, *, written: bool) -> None:
        """The request of a batch that had been given up on the wire has ended: only now may its memory be lent
        again."""
        queue = self._unreleased[batch]
        if self.settings.idempotent:
            if written:
                queue.sequences.acknowledged(batch)
            else:
                queue.sequences.failed(batch, fate_known=False)
                self.note_trouble(queue)
        self._release(batch)

    def retry(self, batch: ProducerBatch, now: float, *, chance: float) -> None:
        """Queue the batch again, at its old place, for after a back-off; ``chance`` is uniform in [0, 1)."""
        queue = self._unreleased[batch]
        batch.retry_at = now + self.settings.retry_backoff.delay(batch.attempts, chance)
        queue.put_back(batch)
        self._active[batch.topic_partition] = queue

    def split(self, batch: ProducerBatch, pieces: list[ProducerBatch], starts: list[int]) -> None:
        """Replace a batch that was too large for the broker by smaller ones at its place (KIP-126)."""
        queue = self._unreleased[batch]
        if self.settings.idempotent:
            queue.sequences.replace(batch, pieces)
        queue.ratio.reset()
        batch.split_into(list(zip(starts, pieces, strict=True)))
        for piece in pieces:
            queue.put_back(piece)
            self._unreleased[piece] = queue
        self._active[batch.topic_partition] = queue
        # The pieces are as old as the batch was, and expire at its place in the line (`client/ACC-29`).
        line = list(self._incomplete)
        place = line.index(batch)
        line[place : place + 1] = pieces
        self._incomplete = dict.fromkeys(line)
        # They share what was lent for the batch, whose buffer is dropped.
        lent, batch.reserved = batch.reserved, 0
        for piece in pieces:
            piece.reserved = lent // len(pieces)
        pieces[-1].reserved += lent % len(pieces)
        self._release(batch)

    def take_expired(
        self, now: float, explain: Callable[[ProducerBatch], str] = lambda batch: ""
    ) -> list[ProducerBatch]:
        """Settle what is older than the delivery timeout, queued or on the wire; in the order of their making.

        ``explain`` ends the sentence about a batch: why it could not be delivered in time.
        """
        expired: list[ProducerBatch] = []
        for batch in self._incomplete:
            # Compared as `next_expiry` does, or rounding could make the sender wait for 0 seconds again and again.
            if batch.created_at + self.settings.delivery_timeout > now:
                break
            expired.append(batch)
        for batch in expired:
            if not batch.on_wire:
                self._unqueue(batch)
            waited = round((now - batch.created_at) * 1000)
            tried = f"after {batch.attempts} attempts" if batch.attempts else "never sent"
            error = KafkaTimeoutError(
                f"{batch.count} records for {batch.topic_partition} were not acknowledged within {waited} ms"
                f" (delivery_timeout_ms), {tried}{explain(batch)}"
            )
            error.__cause__ = batch.last_error
            self.fail(batch, error)
        return expired

    def next_expiry(self, now: float) -> float:
        """Seconds until the oldest batch expires; infinity without one."""
        for batch in self._incomplete:
            return max(0.0, batch.created_at + self.settings.delivery_timeout - now)
        return _NEVER

    def abort(self, make_error: Callable[[ProducerBatch], Exception]) -> None:
        """Fail everything that is not settled: the producer is closed, or broken."""
        for batch in list(self._incomplete):
            if not batch.on_wire:
                self._unqueue(batch)
            self.fail(batch, make_error(batch))

    def _unqueue(self, batch: ProducerBatch) -> None:
        queue = self._unreleased[batch]
        batch.close()
        if queue.compressor is not None:
            queue.compressor.withdraw(batch)
        if batch in queue.batches:
            queue.batches.remove(batch)
        if queue.open is batch:
            queue.open = None
        if not queue.batches:
            self._active.pop(batch.topic_partition, None)

    def _let_escape(self, batch: ProducerBatch) -> None:
        escaped, batch.escaped = batch.escaped, None
        if escaped is not None:
            self.on_escaped(escaped)

    def _settled(self, batch: ProducerBatch) -> None:
        self._incomplete.pop(batch, None)

    def _release(self, batch: ProducerBatch) -> None:
        if batch.in_thread:
            return  # its memory is in use; `out_of_thread` comes back here
        self._unreleased.pop(batch, None)
        buffer, reserved = batch.release()
        if reserved:
            self.pool.release(buffer, reserved)

    # ---------------------------------------------------------------- idempotence

    def disable_idempotence(self) -> None:
        """Go on without sequence numbers: the brokers do not know them."""
        self.settings = replace(self.settings, idempotent=False)

    def note_trouble(self, queue: PartitionQueue) -> None:
        """A partition's sequence was disturbed: `take_restarts` is to look at it."""
        self._troubled[queue.topic_partition] = queue

    def take_restarts(self) -> list[PartitionQueue]:
        """Partitions whose sequence must begin anew under a new epoch, and may now. The caller restarts them."""
        restarts: list[PartitionQueue] = []
        for topic_partition, queue in list(self._troubled.items()):
            sequences = queue.sequences
            sequences.resolve()
            if sequences.bump_due:
                restarts.append(queue)
            if not sequences.unresolved and (sequences.bump_due or not sequences.bump_wanted):
                del self._troubled[topic_partition]
        return restarts


def _raise(error: BaseException) -> None:
    raise error


__all__ = ["Accumulator", "AccumulatorSettings", "Ready"]
