"""From a record to its place in a batch: serialize, find the topic's partitions, choose one, find memory.

Everything that a send can wait for is here, in `Intake.learn` (metadata) and `Intake.open_batch` (memory). Cancelling
either leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import trio

from triokafka.client.config import ProducerOptions
from triokafka.client.producer.accumulator import Accumulator, AccumulatorSettings
from triokafka.client.producer.batch import ProducerBatch
from triokafka.client.producer.interceptors import ProducerRecord
from triokafka.client.producer.partition_queue import PartitionQueue
from triokafka.client.producer.partitioner import KeyHash
from triokafka.client.producer.topic_state import TopicState
from triokafka.client.serializers import Serializer
from triokafka.errors import (
    BufferFullError,
    KafkaError,
    MessageSizeTooLargeError,
    MetadataNotReadyError,
    SerializationError,
    UnknownTopicOrPartitionError,
)
from triokafka.network.cluster import Cluster, TopicMetadata
from triokafka.network.network_client import NetworkClient
from triokafka.structs import Buffer
from triokafka.topic_names import check_topic_name
from triokafka.world import World

Headers = Sequence[tuple[str, bytes | None]]

_BYTES_BETWEEN_YIELDS: Final = 1 << 20
_SECONDS_BETWEEN_YIELDS: Final = 0.001
"""How much memory new batches take, or how long it takes to fill them, before a sender yields to other tasks. A turn of
the event loop costs about as much as sending a batch; fewer ones would keep the others waiting. Nor are more batches
filled meanwhile than may be in flight at a time: the rest would only pile up."""
_LONGEST_PAUSE_SECONDS: Final = 0.005
"""How long a sender waits, when it is time to yield and more batches of the partition are ready than may be in flight,
for the network to catch up; never longer than ``max_block_ms`` leaves it. What is sent soon after it was filled is
still in the processor's caches; with a broker that is slow, the rest of the memory is filled nevertheless."""


class Intake:
    """The callers' half of a producer.

    ``check_usable`` raises when the producer is closed or has failed; ``wake`` and ``wake_by`` are the sender's.
    """

    def __init__(
        self,
        options: ProducerOptions,
        accumulator: Accumulator,
        client: NetworkClient,
        *,
        world: World,
        check_usable: Callable[[], None],
        wake: Callable[[], None],
        wake_by: Callable[[float, float], None],
    ) -> None:
        self.topics: dict[str, TopicState] = {}
        self.key_hash = KeyHash()
        self._options = options
        self._accumulator = accumulator
        self._pool = accumulator.pool
        self._client = client
        self._world = world
        self._check_usable = check_usable
        self._wake = wake
        self._wake_by = wake_by
        self._yielded_at = -_SECONDS_BETWEEN_YIELDS
        self._begun_bytes = 0
        self._filled = 0
        self._serializers_see_headers = any(
            isinstance(serializer, Serializer) for serializer in (options.key_serializer, options.value_serializer)
        )
        client.metadata.add_listener(self._metadata_changed)

    def give_up_at(self) -> float:
        """When a call that begins now must have what it waits for: one budget for all waits."""
        return self._world.now() + self._options.max_block_ms / 1000

    # ---------------------------------------------------------------- topics

    async def learn(self, topic: str, partition: int | None, give_up_at: float) -> TopicState:
        """The topic's state; waits for its metadata if need be.

        A partition that is not there is asked for again before it is refused: it may be new.
        """
        _check_address(topic, partition)
        known = self.topics.get(topic)
        if known is None:
            left = max(0.0, give_up_at - self._world.now())
            try:
                cluster = await self._client.metadata_for([topic], timeout_ms=left * 1000)
            except KafkaError:
                self._check_usable()  # the producer's own failure says more than the network client's
                raise
            self._check_usable()
            known = self._state_of(cluster.topics[topic])
        if partition is not None and partition not in known.partitions:
            left = max(0.0, give_up_at - self._world.now())
            cluster = await self._client.refresh_metadata(timeout_ms=left * 1000)
            self._check_usable()
            if topic not in cluster.topics:
                return await self.learn(topic, partition, give_up_at)  # deleted; it may be made anew
            known = self.known_now(topic, partition)
        return known

    def known_now(self, topic: str, partition: int | None = None) -> TopicState:
        """The topic's state, without waiting. Raises `MetadataNotReadyError` or `UnknownTopicOrPartitionError`."""
        _check_address(topic, partition)
        known = self.topics.get(topic)
        if known is None:
            found = self._client.cluster.topics.get(topic)
            if found is None:
                self._client.metadata.use_topic(topic, self._world.now())
                self._client.metadata.request_topics([topic])
                raise MetadataNotReadyError(f"the partitions of {topic!r} are not known yet; they are being asked for")
            known = self._state_of(found)
        if partition is not None and partition not in known.partitions:
            count = len(known.partitions)
            raise UnknownTopicOrPartitionError(
                f"topic {topic!r} has no partition {partition}: it has {count}, numbered from 0"
            )
        return known

    def _state_of(self, topic: TopicMetadata) -> TopicState:
        known = self.topics.get(topic.name)
        if known is None:
            known = self.topics[topic.name] = TopicState(topic, self._accumulator, self._world.random.random)
        return known

    def _metadata_changed(self, cluster: Cluster) -> None:
        for name in list(self.topics) if cluster.changed is None else cluster.changed:
            known = self.topics.get(name)
            topic = cluster.topics.get(name)
            if known is None or topic is known.described:
                continue
            if topic is None or len(topic.partitions) < len(known.partitions):
                del self.topics[name]  # deleted, made anew, or forgotten: the next send asks again
            else:
                known.update(topic)

    # ---------------------------------------------------------------- one record

    def prepared(self, record: ProducerRecord) -> ProducerRecord:
        """The record with headers that can be walked twice, and that serializers may add to."""
        headers: Any = record.headers
        if headers == () and not self._serializers_see_headers:
            return record
        if headers is None:
            headers = ()
        elif isinstance(headers, (str, Mapping)) or not isinstance(headers, Iterable):
            raise TypeError(f"headers are a list of pairs of name and bytes, not {headers!r}")
        return replace(record, headers=list(headers))

    def serialize(self, record: ProducerRecord) -> tuple[int, Buffer | None, Buffer | None]:
        """Timestamp, key and value for the wire, of a `prepared` record.

        Raises:
            SerializationError: key or value is not bytes and cannot be made bytes.
            TypeError, ValueError: headers or timestamp cannot be sent.
        """
        options = self._options
        key = _serialized("key", record.key, options.key_serializer, record)
        value = _serialized("value", record.value, options.value_serializer, record)
        if record.headers:
            _check_headers(record.headers)  # type: ignore[arg-type]
        timestamp = record.timestamp_ms
        if timestamp is None:
            timestamp = self._world.wall_ms()
        elif isinstance(timestamp, bool) or not isinstance(timestamp, int) or not 0 <= timestamp < 2**63:
            raise ValueError(f"timestamp_ms={timestamp!r} is not a number of milliseconds since the epoch")
        return timestamp, key, value

    def choose(
        self, known: TopicState, partition: int | None, key: Buffer | None, value: Buffer | None
    ) -> PartitionQueue:
        """The queue for a record: its own partition, the partitioner's, by key, or the sticky one."""
        if partition is not None:
            chosen = partition
        elif self._options.partitioner is not None:
            chosen = known.custom_partition(self._options.partitioner, key, value)
        elif key is None or self._options.partitioner_ignore_keys:
            chosen = known.switch_if_due()
        else:
            chosen = self.key_hash(key) % len(known.queues)
        return known.queues[chosen]

    # ---------------------------------------------------------------- memory

    def record_bytes(self, queue: PartitionQueue, key: Buffer | None, value: Buffer | None, headers: Headers) -> int:
        """The most bytes that this record can take in a batch. Raises `MessageSizeTooLargeError`."""
        size = AccumulatorSettings.record_bound(key, value, headers)
        if size > self._options.max_request_size:
            raise MessageSizeTooLargeError(
                f"a record of up to {size} bytes for {queue.topic_partition} is larger than"
                f" max_request_size={self._options.max_request_size}"
            )
        return size

    async def open_batch(self, queue: PartitionQueue, record_bytes: int, give_up_at: float | None = None) -> None:
        """Ensure that the queue has an open batch with room for ``record_bytes``; yield to other tasks first if due.

        Waits while there is no memory. Nothing is held meanwhile, so another task may open one first: if the record
        fits into that, the memory goes back. If not, it is closed and the new one opened behind it: who has waited for
        memory does not wait again, however many small records come in between. Without ``give_up_at`` it may take
        ``max_block_ms``.
        """
        if queue.batches:
            self._note_filled()  # the last one was just closed
        now = self._world.now()
        if give_up_at is None:
            give_up_at = now + self._options.max_block_ms / 1000
        if self._should_yield(now):
            now = await self._yield(queue, give_up_at - now)
        self._check_usable()
        if queue.open is not None and queue.open.room >= record_bytes:
            return
        size = self._accumulator.buffer_size_for(queue.topic_partition.topic, record_bytes)
        buffer = self._pool.try_allocate(size)
        if buffer is None:
            self._wake()  # by the time the sender runs, somebody waits for memory, and every batch is sendable
            waiting_since = now
            try:
                buffer = await self._pool.allocate(size, max(0.0, give_up_at - waiting_since))
            finally:
                self._pool.note_wait(self._world.now() - waiting_since)
            try:
                self._check_usable()
            except BaseException:
                self._pool.release(buffer, size)
                raise
            if queue.open is not None and queue.open.room >= record_bytes:
                self._pool.release(buffer, size)
                return
            now = self._world.now()
        self._begin(queue, buffer, now)

    def open_batch_nowait(self, queue: PartitionQueue, record_bytes: int) -> ProducerBatch:
        """As `open_batch`, but raises `BufferFullError` instead of waiting, and does not yield."""
        size = self._accumulator.buffer_size_for(queue.topic_partition.topic, record_bytes)
        buffer = self._pool.try_allocate(size)
        if buffer is None:
            raise BufferFullError(
                f"{self._pool.in_use} of buffer_memory={self._pool.total} bytes wait for acknowledgement;"
                " let the event loop run, or await send instead"
            )
        if queue.batches:
            self._note_filled()
        return self._begin(queue, buffer, self._world.now())

    def next_queue(
        self, full: PartitionQueue, known: TopicState | None, key: Buffer | None, value: Buffer | None, headers: Headers
    ) -> PartitionQueue | None:
        """The queue for a record that the open batch of ``full`` has no room for, with a new batch begun.

        With ``known`` it may be that of another partition of the topic: the sticky one, if it is due to change. None
        when there is something to wait for, or it is time to yield: then `open_batch` is to be asked. Raises what
        `record_bytes` does, or why nothing can be sent any more.
        """
        self._check_usable()
        if full.batches:
            full.close_open()
            self._note_filled()
        queue = full if known is None else known.queues[known.switch_if_due()]
        if queue.open is not None:
            return queue
        now = self._world.now()
        if self._should_yield(now):
            return None
        size = self.record_bytes(queue, key, value, headers)
        buffer = self._pool.try_allocate(self._accumulator.buffer_size_for(queue.topic_partition.topic, size))
        if buffer is None:
            return None
        self._begin(queue, buffer, now)
        return queue

    async def _yield(self, queue: PartitionQueue, patience: float) -> float:
        """Let other tasks have their turn, and the network catch up with what is ready for the partition.

        The latter takes ``patience`` seconds at most; who has none only lets the others pass. Returns the time, which
        has passed meanwhile.
        """
        pause = min(_LONGEST_PAUSE_SECONDS, patience)
        if pause > 0 and len(queue.batches) > self._options.max_in_flight_requests_per_connection:
            with trio.move_on_after(pause):
                await queue.wait_until_short()
        else:
            await trio.lowlevel.checkpoint()
        self._yielded_at = now = self._world.now()
        self._begun_bytes = self._filled = 0
        return now

    def _should_yield(self, now: float) -> bool:
        """Whether other tasks must get their turn before another batch is begun."""
        return (
            self._begun_bytes >= _BYTES_BETWEEN_YIELDS
            or self._filled >= self._options.max_in_flight_requests_per_connection
            or now - self._yielded_at >= _SECONDS_BETWEEN_YIELDS
        )

    def _note_filled(self) -> None:
        """A batch has no more room, and can go."""
        self._filled += 1
        self._wake()

    def _begin(self, queue: PartitionQueue, buffer: bytearray, now: float) -> ProducerBatch:
        accumulator = self._accumulator
        topic, partition = queue.topic_partition
        self._begun_bytes += len(buffer)
        is_only_one = not accumulator.active
        batch = accumulator.open_batch(queue, buffer, now)
        self._client.metadata.use_topic(topic, now)
        if self._options.partitioner is not None:
            self._options.partitioner.on_new_batch(topic, partition)
        if is_only_one or accumulator.in_hurry:
            self._wake()
        else:
            # One among many partitions needs no look at all of them.
            self._wake_by(now + accumulator.settings.linger, now)
        return batch


def _check_address(topic: Any, partition: Any) -> None:
    if not isinstance(topic, str):
        raise TypeError(f"topic={topic!r} is not the name of a topic")
    if not topic:
        raise ValueError("topic='' is not the name of a topic")
    check_topic_name(topic)
    if partition is None:
        return
    if isinstance(partition, bool) or not hasattr(partition, "__index__"):
        raise TypeError(f"partition={partition!r} is not the number of a partition")
    if partition < 0:
        raise ValueError(f"partition={partition!r} is not the number of a partition: they count from 0")


def _serialized(what: str, given: Any, serializer: Any, record: ProducerRecord) -> Buffer | None:
    if given is None:
        return None
    data = given
    if serializer is not None:
        try:
            if isinstance(serializer, Serializer):
                data = serializer.serialize(record.topic, given, record.headers)  # type: ignore[arg-type]
            else:
                data = serializer(given)
        except Exception as error:
            raise SerializationError(
                f"the {what}_serializer {serializer!r} failed on a {type(given).__name__} for topic {record.topic!r}:"
                f" {str(error) or repr(error)}"
            ) from error
    if data is None or isinstance(data, (bytes, bytearray)):
        return data
    if isinstance(data, memoryview):
        return _flat(data)
    if serializer is None:
        raise SerializationError(
            f"the {what} is a {type(data).__name__}, not bytes: encode it, or give a {what}_serializer"
        )
    raise SerializationError(
        f"the {what}_serializer {serializer!r} made a {type(data).__name__} of a {type(given).__name__}, not bytes"
    )


def _flat(view: memoryview) -> Buffer:
    return view.cast("B") if view.c_contiguous else view.tobytes()


def _check_headers(headers: list[Any]) -> None:
    for position, header in enumerate(headers):
        try:
            name, content = header
        except (TypeError, ValueError):
            raise TypeError(f"headers are pairs of name and bytes, not {header!r}") from None
        if not isinstance(name, str) or not (content is None or isinstance(content, (bytes, bytearray, memoryview))):
            raise TypeError(f"headers are pairs of a str and bytes (or None), not {header!r}")
        if isinstance(content, memoryview):
            headers[position] = (name, _flat(content))
        name.encode()  # lone surrogates are refused here, before a batch is begun
