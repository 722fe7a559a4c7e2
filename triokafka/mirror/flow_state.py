"""The partitions of a flow, their progress, and the offset syncs that are due. No I/O."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

import trio

from triokafka.client.consumer.read_epochs import ReadEpochs
from triokafka.client.deliveries import Deliveries
from triokafka.mirror.offset_sync_rule import OffsetSyncRule
from triokafka.mirror.offset_translation import OffsetTranslation
from triokafka.mirror.stored_positions import StoredPosition
from triokafka.mirror.topic_replication import MirroredPartition
from triokafka.records import ConsumerRecord
from triokafka.structs import OffsetAndMetadata, TopicPartition

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Counts:
    """The counts of a flow since its process started."""

    records: int = 0
    bytes: int = 0
    lost: int = 0
    """Offsets that the source deleted before they were mirrored."""
    truncated: int = 0
    """Mirrored offsets that the source lost, in an unclean leader election for example."""


class PartitionFlow:
    """One partition that is being mirrored. ``offsets`` maps what the target acknowledged, up to ``epochs``;
    ``read_offset`` is read next, after ``read_epochs``.
    """

    def __init__(
        self,
        source: TopicPartition,
        where: MirroredPartition,
        offsets: OffsetTranslation,
        epochs: ReadEpochs,
        max_lag: int,
        counts: Counts,
    ) -> None:
        self.source = source
        self.remote = TopicPartition(where.remote_topic, source.partition)
        self.topic_id = where.topic_id
        self.remote_id = where.remote_id
        self.offsets = offsets
        self.epochs = self.read_epochs = epochs
        self.read_offset = offsets.next_offset
        self.stored_offset = -1
        self.committed_offset = -1
        """The last stored offset that takes effect: its transaction was committed."""
        self._counts = counts
        self.due_sync: tuple[int, int] | None = None
        self._rule = OffsetSyncRule(max_lag)

    def count(self, records: Sequence[ConsumerRecord]) -> None:
        """Count records that were read, for the status."""
        self._counts.records += len(records)
        self._counts.bytes += sum(len(record.key or b"") + len(record.value or b"") for record in records)

    def note(self, runs: Sequence[tuple[int, int]], deliveries: Deliveries) -> None:
        """Note that records were acknowledged: their source offsets as runs, and their deliveries in the same order."""
        for upstream, downstream, count in _paired(runs, _acknowledged(deliveries)):
            if downstream < 0:
                continue  # the first answer was lost, and the broker no longer remembers the offset of the batch
            self.offsets.add(upstream, downstream, count)
            last = (upstream + count - 1, downstream + count - 1)
            if self._rule.is_due((upstream, downstream), last):
                self.due_sync = last


class _Known(NamedTuple):
    """The progress of a partition, with the ids of its two topics. ``stored_offset`` is -1 if it has to be stored."""

    topic_id: UUID | None
    remote_id: UUID | None
    offsets: OffsetTranslation
    epochs: ReadEpochs
    stored_offset: int


class FlowState:
    """All partitions of one flow. The copier changes it; checkpoints and status read it."""

    def __init__(self, max_lag: int) -> None:
        self.wanted: Mapping[TopicPartition, MirroredPartition] = {}
        """The partitions to copy, by the last refresh of the topics."""
        self.assigned: Mapping[TopicPartition, MirroredPartition] = {}
        """The partitions that the copier reads; the same object as ``wanted`` when it is up to date."""
        self.flows: dict[TopicPartition, PartitionFlow] = {}
        self.counts = Counts()
        self._max_lag = max_lag
        # By partition the source topic's id, and the offset before which all is in the target or counted as lost.
        self._begun: dict[TopicPartition, tuple[UUID | None, int]] = {}
        self._stored: dict[TopicPartition, _Known] = {}
        self._reported: set[tuple[TopicPartition, int, int, int]] = set()
        """Truncations that are counted: partition, epoch and position before, position after."""
        self._ends: dict[TopicPartition, int] | None = None
        self._syncs: dict[TopicPartition, tuple[int, int]] = {}
        self._changed = trio.Event()

    def want(self, partitions: Mapping[TopicPartition, MirroredPartition]) -> None:
        """Replace the partitions to copy, if they differ."""
        if partitions != self.wanted:
            self.wanted = partitions
            self._wake()

    def finish_at(self, ends: Mapping[TopicPartition, int]) -> None:
        """End the flow when the source offsets before these are mirrored."""
        self._ends = dict(ends)
        self._wake()

    def is_finished(self) -> bool:
        """Whether everything up to the offsets of `finish_at` is in the target and stored."""
        return self._ends is not None and all(
            (flow := self.flows.get(partition)) is not None and flow.stored_offset >= end
            for partition, end in self._ends.items()
        )

    async def wait_changed(self) -> None:
        """Wait for the next `want` or `finish_at`."""
        await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    # ---------------------------------------------------------------- for the copier

    def restore(self, stored: Mapping[TopicPartition, StoredPosition]) -> None:
        """Begin a session with the target's progress, and with this process's where the target has lost it."""
        committed = {}
        for partition, flow in self.flows.items():
            if partition not in stored and flow.committed_offset >= 0:
                epochs = flow.epochs if flow.committed_offset >= flow.offsets.next_offset else ReadEpochs()
                flow.offsets.rewind(min(flow.committed_offset, flow.offsets.next_offset))
                flow.offsets.change_all()
                committed[partition] = _of(flow)._replace(epochs=epochs, stored_offset=-1)
        self._stored = committed | {
            partition: _Known(
                position.topic_id,
                position.remote_id,
                position.offset_translation(),
                position.epochs,
                position.next_offset,
            )
            for partition, position in stored.items()
        }
        self.flows.clear()
        self._syncs.clear()
        self.assigned = {}

    def is_new(self, partition: TopicPartition, where: MirroredPartition) -> bool:
        """Whether a partition has no position yet, or a topic was recreated, in the source or in the target."""
        flow = self.flows.get(partition)
        return flow is None or (flow.topic_id, flow.remote_id) != (where.topic_id, where.remote_id)

    def is_known(self, partition: TopicPartition) -> bool:
        """Whether there is progress of a partition, or this process has begun with it."""
        return partition in self.flows or partition in self._stored or partition in self._begun

    def store_all(self) -> None:
        """Let `take_changed` yield all partitions with all blocks of their maps, because the stored ones are lost."""
        for flow in self.flows.values():
            flow.stored_offset = -1
            flow.offsets.change_all()

    def assign(self, wanted: Mapping[TopicPartition, MirroredPartition]) -> None:
        """Use the wanted partitions. The state of removed ones is stored, since they may come back."""
        for partition in [partition for partition in self.flows if partition not in wanted]:
            flow = self.flows.pop(partition)
            self._stored[partition] = _of(flow)
        self.assigned = wanted

    # ---------------------------------------------------------------- a source that was truncated

    def _known(self, partition: TopicPartition) -> _Known | None:
        flow = self.flows.get(partition)
        return self._stored.get(partition) if flow is None else _of(flow)

    def _change(self, partition: TopicPartition, epochs: ReadEpochs, stored_offset: int) -> None:
        flow = self.flows.get(partition)
        if flow is None:
            self._stored[partition] = self._stored[partition]._replace(epochs=epochs, stored_offset=stored_offset)
        else:
            flow.epochs = flow.read_epochs = epochs
            flow.stored_offset = stored_offset

    def epochs_to_compare(self, partitions: Mapping[TopicPartition, MirroredPartition]) -> dict[TopicPartition, int]:
        """Return the leader epochs of the last mirrored records, where the topic is still the same and they are known.

        A leader's log that ends an epoch earlier was truncated (KIP-320).
        """
        known = {partition: self._known(partition) for partition in partitions}
        return {
            partition: found.epochs.last
            for partition, found in known.items()
            if found is not None and found.topic_id == partitions[partition].topic_id and found.epochs.last >= 0
        }

    def compare(self, partition: TopicPartition, end: OffsetAndMetadata | None) -> bool:
        """Go back to the last mirrored offset that the leader's log still has. Return whether to compare again from
        there.

        ``end`` is the leader's answer about the epoch of `epochs_to_compare`: the newest epoch up to it, and where that
        ends; None if the leader does not know.
        """
        found = self._known(partition)
        if found is None or found.epochs.last < 0:
            return False
        position = found.offsets.next_offset
        same = None if end is None else found.epochs.same_until(end.leader_epoch, end.offset)
        if same is None:
            logger.warning(
                "%s: the source does not know leader epoch %d, in which it had offset %d. If its log was truncated,"
                " the target lacks the records that the source wrote after the truncation.",
                partition, found.epochs.last, position - 1,
            )  # fmt: skip
            self._change(partition, ReadEpochs(), found.stored_offset)
            return False
        if same.offset >= position:
            return False
        self._rewind(partition, found.offsets, same.offset, found.epochs.last)
        self._change(partition, ReadEpochs(same.leader_epoch), -1)
        return True

    def _rewind(self, partition: TopicPartition, offsets: OffsetTranslation, to: int, epoch: int) -> None:
        """Go back to an offset, because the source lost the records after it. Log that once."""
        place = partition, epoch, offsets.next_offset, to
        if place not in self._reported:  # an attempt that stores nothing meets the same truncation again
            self._reported.add(place)
            self.counts.truncated += offsets.next_offset - to
            logger.warning(
                "%s: the source lost offsets %d to %d after they were mirrored. The target keeps these records, and"
                " mirroring continues at offset %d.",
                partition, to, offsets.next_offset - 1, to,
            )  # fmt: skip
        offsets.rewind(to)
        topic_id, counted = self._begun.get(partition, (None, -1))
        self._begun[partition] = topic_id, min(counted, to)
        self._syncs.pop(partition, None)
        if (flow := self.flows.get(partition)) is not None:
            flow.due_sync = None

    def forget_epochs(self, partitions: Iterable[TopicPartition]) -> None:
        """Compare none of these: their leaders are too old to know where epochs end."""
        for partition in partitions:
            found = self._known(partition)
            if found is not None:
                self._change(partition, ReadEpochs(), found.stored_offset)

    # ---------------------------------------------------------------- beginnings

    def begin(
        self, partition: TopicPartition, where: MirroredPartition, start: int, end: int, how: str
    ) -> OffsetAndMetadata:
        """Return the offset at which to read a partition whose log goes from ``start`` to ``end``, and the leader epoch
        before it.
        """
        topic_id, counted = self._begun.get(partition, (None, -1))
        if topic_id != where.topic_id:
            counted = -1
        flow = self.flows.get(partition)
        known = self._known(partition)
        epochs = ReadEpochs()
        if known is not None and known.topic_id == where.topic_id:
            offsets, epochs, stored_offset = known.offsets, known.epochs, known.stored_offset
            if None not in (known.remote_id, where.remote_id) and known.remote_id != where.remote_id:
                logger.warning(
                    "%s: topic %s of the target was deleted and created again: mirroring continues at offset %d, and"
                    " earlier records are not copied again. To copy them, delete the topic with the progress.",
                    partition, where.remote_topic, offsets.next_offset,
                )  # fmt: skip
                offsets.forget()
                stored_offset = -1
        else:
            if known is not None:
                logger.warning("topic %s was recreated: mirroring partition %s from its beginning", *partition)
            offsets, stored_offset = OffsetTranslation(start if how == "earliest" or known is not None else end), -1
            if counted >= 0:  # an attempt of this process has begun here, and stored nothing
                offsets = OffsetTranslation(counted)
        lost = start - max(offsets.next_offset, counted)
        if lost > 0:
            self.counts.lost += lost
            logger.warning("%s: the source deleted %d offsets before they were mirrored", partition, lost)
        if start > offsets.next_offset:
            offsets.advance(start)
            epochs = ReadEpochs()  # others may have ended in between
        elif offsets.next_offset > end and epochs.last < 0:  # with an epoch, the leader's log has been compared
            self._rewind(partition, offsets, end, epochs.last)
            stored_offset = -1
        if self._ends is not None and partition in self._ends:
            self._ends[partition] = min(self._ends[partition], max(end, offsets.next_offset))
        if flow is None or flow.offsets is not offsets or flow.remote_id != where.remote_id:
            flow = PartitionFlow(partition, where, offsets, epochs, self._max_lag, self.counts)
            self.flows[partition] = flow
        flow.stored_offset = stored_offset
        self._begun[partition] = where.topic_id, offsets.next_offset
        flow.read_offset = offsets.next_offset
        flow.epochs = flow.read_epochs = epochs
        return OffsetAndMetadata(flow.read_offset, "", epochs.last)

    def has_changes(self) -> bool:
        """Whether `take_changed` would yield a partition."""
        return any(flow.stored_offset != flow.offsets.next_offset for flow in self.flows.values())

    def take_changed(self) -> Iterator[PartitionFlow]:
        """Yield the partitions whose progress differs from the stored one; they count as stored."""
        for flow in self.flows.values():
            if flow.stored_offset != flow.offsets.next_offset:
                flow.stored_offset = flow.offsets.next_offset
                yield flow

    # ---------------------------------------------------------------- for the offset syncs

    def publish_syncs(self) -> None:
        """Make the stored progress effective, and its syncs visible to `take_syncs`."""
        for partition, flow in self.flows.items():
            flow.committed_offset = flow.stored_offset
            if flow.due_sync is not None:
                self._syncs[partition] = flow.due_sync
                flow.due_sync = None

    def take_syncs(self) -> dict[TopicPartition, tuple[int, int]]:
        """Return the newest due sync of each source partition: source offset and target offset of one record."""
        found, self._syncs = self._syncs, {}
        return found

    def return_syncs(self, syncs: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """Take back syncs that could not be written, unless there are newer ones."""
        self._syncs = {**syncs, **self._syncs}


def _of(flow: PartitionFlow) -> _Known:
    return _Known(flow.topic_id, flow.remote_id, flow.offsets, flow.epochs, flow.stored_offset)


def _acknowledged(deliveries: Deliveries) -> list[tuple[int, int]]:
    """Return (offset in the target, number of records) for the records of one partition, in order."""
    found = []
    for part in deliveries.parts():
        columns = part.acknowledged(0, len(part.positions))
        if columns is None:  # a batch that was split
            return [(delivery.result().offset, 1) for delivery in deliveries]
        found.append((next(iter(columns.offsets)), len(part.positions)))
    return found


def _paired(runs: Sequence[tuple[int, int]], acknowledged: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int, int]]:
    """Yield (source offset, target offset, count) for stretches that are contiguous in both."""
    upstream = iter(runs)
    offset, left = 0, 0
    for downstream, count in acknowledged:
        position = 0
        while position < count:
            if not left:
                offset, left = next(upstream)
            taken = min(left, count - position)
            yield offset, downstream + position if downstream >= 0 else -1, taken
            offset, left, position = offset + taken, left - taken, position + taken
