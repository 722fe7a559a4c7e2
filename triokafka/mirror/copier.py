"""Copies records: reads partitions of the source, writes them to the target, and stores how far it came.

At least once: progress is stored after the target acknowledged the records, so a crash repeats the records in between.
With ``exactly_once`` records and progress are in one transaction. Either way a topic of the target has the progress,
and the source is only read.

A `Copier` lives for one session: from loading the progress to the first failure. The next session loads again.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import trio

from triokafka import errors
from triokafka.client.consumer.batches import Batches, FetchedBatch
from triokafka.client.consumer.consumer import Consumer
from triokafka.client.consumer.read_epochs import ReadEpochs
from triokafka.client.deliveries import Deliveries
from triokafka.client.producer.producer import Producer
from triokafka.mirror.cluster_side import ClusterSide
from triokafka.mirror.flow_state import FlowState, PartitionFlow
from triokafka.mirror.naming import positions_topic
from triokafka.mirror.options import MirrorOptions
from triokafka.mirror.stored_positions import decode_positions, encode_changes
from triokafka.mirror.topic_replication import MirroredPartition
from triokafka.records import ConsumerRecord
from triokafka.structs import OffsetAndMetadata, TopicPartition
from triokafka.world import World

logger = logging.getLogger(__name__)

_CONSUMER: Final = {"max_partition_fetch_bytes": 4 << 20, "fetch_min_bytes": 1}
_PRODUCER: Final = {"batch_size": 1 << 19, "linger_ms": 5, "max_request_size": 64 << 20, "buffer_memory": 64 << 20}
_TRANSACTION_RECORDS: Final = 100_000
"""Most records of one transaction."""


class _Sent(NamedTuple):
    """Records of one fetched batch that were sent to the target. Without deliveries the batch had no records."""

    flow: PartitionFlow
    runs: list[tuple[int, int]]
    """Source offset and number of records that are next to each other."""
    next_offset: int
    epochs: ReadEpochs
    """Before ``next_offset``."""
    deliveries: Deliveries | None


class Copier:
    """One session of copying. ``state`` has the partitions' progress, which checkpoints and status read."""

    def __init__(
        self, options: MirrorOptions, world: World, state: FlowState, source: ClusterSide, target: ClusterSide
    ) -> None:
        self._options = options
        self._world = world
        self._state = state
        self._source = source
        self._target = target
        self._sent: deque[_Sent] = deque()
        self._is_astray = False
        self._topic = positions_topic(options.source_alias)

    async def run(self) -> None:
        """Copy until cancelled, or until `FlowState.is_finished`; then the progress is stored.

        Raises:
            KafkaError: the session failed. Records that the target has are stored as progress, or will be repeated.
        """
        options = self._options
        writing = {"transactional_id": options.transactional_id} if options.exactly_once else {}
        reading = {"auto_offset_reset": "none", "isolation_level": options.isolation_level}
        async with (
            self._target.producer(_PRODUCER, options.producer_options, writing) as producer,
            self._source.consumer(_CONSUMER, options.consumer_options, reading) as consumer,
        ):
            if options.exactly_once:
                await producer.init_transactions()  # ends what an older process left open
            await self._load()
            step = self._copy_in_transaction if options.exactly_once else self._copy
            batches = consumer.batches()
            while not self._state.is_finished():
                if self._state.assigned is not self._state.wanted:
                    await self._assign(consumer)
                if not self._state.assigned:
                    await self._state.wait_changed()
                    continue
                try:
                    await step(producer, batches)
                    if self._is_astray:
                        self._is_astray = False
                        await self._seek(consumer)
                except errors.KafkaError:
                    fenced = producer.health().failure
                    if isinstance(fenced, errors.ProducerFencedError):
                        raise errors.raisable_copy(fenced) from None  # the reason of whatever failed first
                    raise
            await self._settle(wait=True)

    # ---------------------------------------------------------------- positions

    async def _load(self) -> None:
        """Load the progress of all partitions from the target."""
        self._state.restore(decode_positions(await self._target.read_compacted_topic(self._topic)))

    async def _assign(self, consumer: Consumer) -> None:
        """Read the wanted partitions; those that are new begin at their stored position."""
        wanted = self._state.wanted
        await self._settle(wait=True)
        positions = await self._positions(
            consumer, {partition: where for partition, where in wanted.items() if self._state.is_new(partition, where)}
        )
        self._state.assign(wanted)
        if not wanted:
            consumer.unsubscribe()
            return
        consumer.assign(wanted)
        for partition, offset in positions.items():
            consumer.seek(partition, offset)

    async def _seek(self, consumer: Consumer) -> None:
        """Seek to the nearest position of the source, which no longer has the present one or the records before it."""
        await self._settle(wait=True)
        for partition, offset in (await self._positions(consumer, self._state.assigned)).items():
            consumer.seek(partition, offset)

    async def _positions(
        self, consumer: Consumer, partitions: Mapping[TopicPartition, MirroredPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return where to read partitions; their flows begin."""
        if not partitions:
            return {}
        first = await self._source.admin.list_offsets(dict.fromkeys(partitions, "earliest"))
        last = await self._source.admin.list_offsets(
            dict.fromkeys(partitions, "latest"), isolation_level=self._options.isolation_level
        )
        await self._check_topics(partitions)
        await self._compare(consumer, partitions)
        await self._warn_of_repetition(partitions)
        return {
            partition: self._state.begin(
                partition, where, first[partition].offset, last[partition].offset, self._options.start
            )
            for partition, where in partitions.items()
        }

    async def _compare(self, consumer: Consumer, partitions: Mapping[TopicPartition, MirroredPartition]) -> None:
        """Move positions back where the source has lost mirrored records (KIP-320)."""
        while epochs := self._state.epochs_to_compare(partitions):
            try:
                ends = await consumer.epoch_ends(epochs)
            except errors.UnsupportedVersionError:
                self._state.forget_epochs(partitions)
                return
            await self._check_topics({partition: partitions[partition] for partition in ends})
            partitions = {
                partition: partitions[partition]
                for partition, end in ends.items()
                if self._state.compare(partition, end)
            }

    async def _check_topics(self, partitions: Mapping[TopicPartition, MirroredPartition]) -> None:
        """Raise if a topic is another one than at the last refresh: its offsets have nothing to do with the old ones.

        The next attempt begins with a refresh.
        """
        known = {partition.topic: where.topic_id for partition, where in partitions.items()}
        described = await self._source.admin.describe_topics(list(known))
        for topic, topic_id in known.items():
            if topic in described.errors or (described[topic].topic_id or None) != topic_id:
                raise errors.UnknownTopicIdError(f"topic {topic} was deleted or created again")

    async def _warn_of_repetition(self, partitions: Mapping[TopicPartition, MirroredPartition]) -> None:
        """Say which partitions have records in the target and no progress: they are copied from the beginning."""
        if self._options.start != "earliest":
            return
        remote = {
            TopicPartition(where.remote_topic, partition.partition): partition
            for partition, where in partitions.items()
            if not self._state.is_known(partition)
        }
        if not remote:
            return
        ends = await self._target.admin.list_offsets(dict.fromkeys(remote, "latest"))
        filled = [partition for partition in remote if partition not in ends.errors and ends[partition].offset > 0]
        if filled:
            shown = ", ".join(map(str, filled[:3])) + (f" and {len(filled) - 3} more" if len(filled) > 3 else "")
            logger.warning(
                "%s: the target has records, but topic %s has no progress of these partitions: the source is copied"
                " from its beginning, and records are repeated",
                shown, self._topic,
            )  # fmt: skip

    # ---------------------------------------------------------------- at least once

    async def _copy(self, producer: Producer, batches: Batches) -> None:
        """Copy batches for one commit interval, then store the progress."""
        deadline = self._deadline()
        while (batch := await self._next(batches, deadline)) is not None:
            await self._send(producer, batch)
            await self._settle()
        await self._settle()
        await self._store(producer)
        self._state.publish_syncs()

    # ---------------------------------------------------------------- exactly once

    async def _copy_in_transaction(self, producer: Producer, batches: Batches) -> None:
        """Copy batches for one commit interval, in one transaction with the progress."""
        deadline = self._deadline()
        batch = await self._next(batches, deadline)
        if batch is None and not self._state.has_changes():
            return
        async with producer.transaction():
            records = 0
            while batch is not None:
                records += await self._send(producer, batch)
                batch = await self._next(batches, deadline) if records < _TRANSACTION_RECORDS else None
            await self._settle(wait=True)
            await self._store(producer)
        self._state.publish_syncs()

    # ---------------------------------------------------------------- batches

    def _deadline(self) -> float:
        return self._world.now() + self._options.commit_interval_ms / 1000

    async def _next(self, batches: Batches, deadline: float) -> FetchedBatch | None:
        """Return the next batch; None at the deadline, or when other partitions are wanted, or when all is copied, or
        when the source has deleted the next records or lost the last ones. The caller then stores the progress of those
        read so far.

        Only this wait ends at the deadline: a batch that was taken is sent as a whole.
        """
        if self._state.assigned is self._state.wanted and not self._state.is_finished():
            with trio.CancelScope(deadline=self._world.deadline(deadline)):
                try:
                    return await anext(batches)
                except (errors.OffsetOutOfRangeError, errors.LogTruncationError):
                    self._is_astray = True
        return None

    # ---------------------------------------------------------------- records

    async def _send(self, producer: Producer, batch: FetchedBatch) -> int:
        """Put the records of a batch into the producer's buffer, in order; return their number."""
        flow = self._state.flows.get(batch.topic_partition)
        if flow is None:
            return 0  # no longer wanted
        records = batch.records()
        deliveries: Deliveries | None = None
        if records:
            headers = [record.headers for record in records] if any(record.headers for record in records) else ()
            deliveries = await producer.send_many(
                flow.remote.topic,
                [record.value for record in records],
                keys=[record.key for record in records],
                partition=flow.remote.partition,
                timestamp_ms=[record.timestamp if record.timestamp >= 0 else None for record in records],
                headers=headers,
            )
            flow.count(records)
        flow.read_epochs = _epochs_after(flow.read_epochs, records, batch)
        self._sent.append(_Sent(flow, _runs(records), batch.next_offset, flow.read_epochs, deliveries))
        flow.read_offset = batch.next_offset
        return len(records)

    async def _settle(self, *, wait: bool = False) -> None:
        """Note the records that the target acknowledged, in the order in which they were read."""
        while self._sent and (wait or self._sent[0].deliveries is None or self._sent[0].deliveries.done):
            sent = self._sent[0]
            if sent.deliveries is not None:
                await sent.deliveries
                sent.flow.note(sent.runs, sent.deliveries)
            sent.flow.offsets.advance(sent.next_offset)
            sent.flow.epochs = sent.epochs
            self._sent.popleft()

    async def _store(self, producer: Producer) -> None:
        """Write the progress that has changed. In a transaction it takes effect with the records."""
        deliveries = []
        for flow in self._state.take_changed():
            for key, value in encode_changes(flow.source, flow.topic_id, flow.offsets, flow.remote_id, flow.epochs):
                deliveries.append(await producer.send(self._topic, value, key=key, partition=0))
        for delivery in deliveries:
            await delivery


def _epochs_after(before: ReadEpochs, records: Sequence[ConsumerRecord], batch: FetchedBatch) -> ReadEpochs:
    """Return the epochs at the end of a batch that was read after ``before``."""
    last = batch.leader_epoch
    if last < 0 or last == before.last:
        return before if last >= 0 else ReadEpochs()
    # Epochs only grow. Markers are not records: the new epoch may begin right behind the last record of an older one.
    older = bisect_left(records, last, key=_leader_epoch)
    if older:
        return ReadEpochs(last, records[older - 1].offset + 1, records[older - 1].leader_epoch)
    return ReadEpochs(last, batch.start_offset, before.last)


def _leader_epoch(record: ConsumerRecord) -> int:
    return record.leader_epoch


def _runs(records: list[ConsumerRecord]) -> list[tuple[int, int]]:
    """Return first offset and length of the runs of records that are next to each other."""
    if not records:
        return []
    first, last = records[0].offset, records[-1].offset
    if last - first + 1 == len(records):
        return [(first, len(records))]
    found = []
    begin = 0
    for index in range(1, len(records) + 1):
        if index == len(records) or records[index].offset != records[index - 1].offset + 1:
            found.append((records[begin].offset, index - begin))
            begin = index
    return found
