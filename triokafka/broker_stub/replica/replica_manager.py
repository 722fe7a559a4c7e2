"""All partitions of one broker: acts on image changes, appends, reads, and completes what waits for either.

The image decides what exists and who leads; `ReplicaManager.apply` makes partitions and logs follow. Everything else
looks a partition up and lets it do the work, with an outcome per partition, so that one failure never spoils the
others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from triokafka import errors
from triokafka.broker_stub.controller.delta import MetadataDelta
from triokafka.broker_stub.controller.image import EMPTY_IMAGE, MetadataImage, PartitionImage, ResourceType, TopicImage
from triokafka.broker_stub.controller.topic_names import INTERNAL_TOPICS
from triokafka.broker_stub.log.check_ahead import Checked, is_work
from triokafka.broker_stub.log.disk_guard import gets_better
from triokafka.broker_stub.log.resident import ColdReadError
from triokafka.broker_stub.purgatory.delayed_operation import PURGE_INTERVAL, Purgatory, monotonic_ms
from triokafka.broker_stub.replica.delayed import AppendOutcome, Awaited, DelayedFetch, DelayedProduce
from triokafka.broker_stub.replica.partition import Partition
from triokafka.broker_stub.replica.read_result import LeaderHint, ReadOutcome
from triokafka.broker_stub.replica.traffic import Traffic
from triokafka.structs import Buffer, TopicPartition
from triokafka.world import World

if TYPE_CHECKING:
    from triokafka.broker_stub.log.config import LogConfig
    from triokafka.broker_stub.log.log_manager import LogManager
    from triokafka.broker_stub.replica.fetch_session import WantedPartition

logger = logging.getLogger(__name__)

_COLD_READS: Final = 8
"""How often a fetch goes to the disk for a part of what it needs before it waits for the rest of it at once."""

HighWatermarkListener = Callable[[TopicPartition, int], None]


class LeadershipChange(NamedTuple):
    """A partition whose role on this broker changed; ``leader_epoch`` is -1 when it is gone from here."""

    topic_partition: TopicPartition
    leads: bool
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class FetchParameters:
    """What holds for a whole fetch. ``replica_id`` is -1 for a consumer."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    read_committed: bool

    @property
    def follower(self) -> bool:
        """Whether another broker asks (0 is a valid id)."""
        return self.replica_id >= 0


class ReplicaManager:
    """The partitions that this broker hosts.

    Args:
        produce_purge_interval, fetch_purge_interval: see `Purgatory` (``producer.purgatory.purge.interval.requests``
            and its sibling).
        shares_logs: other brokers use the same logs. Every replica of a partition is then the one log, so that all are
            in sync, and a log goes with its topic, not with a replica.
    """

    def __init__(
        self,
        node_id: int,
        logs: LogManager,
        world: World,
        *,
        produce_purge_interval: int = PURGE_INTERVAL,
        fetch_purge_interval: int = PURGE_INTERVAL,
        shares_logs: bool = False,
    ) -> None:
        self.node_id = node_id
        self._shares_logs = shares_logs
        self.logs = logs
        now_ms = monotonic_ms(world)
        self.produce_purgatory = Purgatory("Produce", now_ms=now_ms, purge_interval=produce_purge_interval)
        self.fetch_purgatory = Purgatory("Fetch", now_ms=now_ms, purge_interval=fetch_purge_interval)
        self.traffic = Traffic()
        self._world = world
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._failed: dict[tuple[str, int], str] = {}
        self._unlucky: set[tuple[str, int]] = set()  # of these, what may be well by now
        self._checkpointed: Mapping[TopicPartition, int] | None = None
        self._listeners: list[HighWatermarkListener] = []
        self._image = EMPTY_IMAGE
        self._inherited: Set[tuple[UUID, int]] = frozenset()  # may have logs in directories that were never online

    # Partitions

    def __len__(self) -> int:
        return len(self._partitions)

    def partitions(self) -> Iterable[Partition]:
        """Every hosted partition."""
        return self._partitions.values()

    def find(self, topic: str, partition: int) -> Partition | None:
        """A hosted partition that is online, or None."""
        return self._partitions.get((topic, partition))

    def partition(self, topic_partition: tuple[str, int]) -> Partition:
        """A hosted partition.

        Raises:
            UnknownTopicOrPartitionError: there is none of that name.
            NotLeaderForPartitionError: it is on other brokers.
            KafkaStorageError: its log cannot be used.
        """
        found = self._partitions.get(topic_partition)
        if found is None:
            topic, number = topic_partition
            if topic_partition in self._unlucky:
                again = self._open_again(TopicPartition(topic, number))
                if again is not None:
                    return again
            reason = self._failed.get(topic_partition)
            if reason is not None:
                raise errors.KafkaStorageError(reason)
            elsewhere = self._image.partition(topic, number)
            if elsewhere is not None:
                raise errors.NotLeaderForPartitionError(
                    f"{topic}-{number} is on the brokers {elsewhere.replicas}, led by {elsewhere.leader}"
                )
            raise errors.UnknownTopicOrPartitionError(f"this broker has no partition {topic}-{number}")
        return found

    def on_high_watermark(self, listener: HighWatermarkListener) -> None:
        """Have ``listener`` called with a partition and its new high watermark, whenever one rises."""
        self._listeners.append(listener)

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> list[LeadershipChange]:
        """Make partitions and logs what the new image says. Returns whose role changed, deletions first.

        A log that cannot be made or opened leaves its partition offline; the others go on.
        """
        if self._image is EMPTY_IMAGE:
            self._begin_with(image)
        self._image = image
        changes: list[LeadershipChange] = []
        local = delta.local_changes(self.node_id)
        for topic_partition, topic_id in local.deleted.items():
            self._drop(topic_partition, topic_id)
            changes.append(LeadershipChange(topic_partition, leads=False, leader_epoch=-1))
        for leads, states in ((True, local.leaders), (False, local.followers)):
            for topic_partition, (_, state) in states.items():
                try:
                    partition = self._open(topic_partition, image)
                except (OSError, errors.KafkaError) as error:
                    logger.error("%s is offline: its log cannot be opened: %s", topic_partition, error)
                    self._failed[topic_partition] = f"the log of {topic_partition} cannot be opened: {error}"
                    if _may_get_better(topic_partition, error):
                        self._unlucky.add(topic_partition)
                    continue
                if self._change_role(partition, state):
                    changes.append(LeadershipChange(topic_partition, leads, state.leader_epoch))
                self._after_role_change(partition)
        for resource_type, name in delta.changed_configs:
            if resource_type == ResourceType.TOPIC and name in image.topics:
                self._reconfigure(image.topics[name], image)
        return changes

    def _begin_with(self, image: MetadataImage) -> None:
        """Compare what is on the disks with the first image."""
        if self.logs.offline_directories():
            self._inherited = {(topic.topic_id, state.partition) for topic, state in image.partitions()}
        for topic_partition in self.logs.all():
            if image.partition(*topic_partition) is None:
                self.logs.put_aside(topic_partition)

    def _open(self, topic_partition: TopicPartition, image: MetadataImage) -> Partition:
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            return partition
        topic = image.topics[topic_partition.topic]
        # Also for a log that is there: it was opened with the defaults, maybe for an earlier topic of that name.
        log = self.logs.create(
            topic_partition,
            topic.topic_id,
            self.logs.config_for(image.topic_configs(topic_partition.topic)),
            is_new=(topic.topic_id, topic_partition.partition) not in self._inherited,
        )
        if self._checkpointed is None:
            self._checkpointed = self.logs.read_high_watermarks()
        partition = Partition(
            topic_partition,
            topic.topic_id,
            node_id=self.node_id,
            log=log,
            high_watermark=self._checkpointed.get(topic_partition, 0),
            shares_log=self._shares_logs,
        )
        self._partitions[topic_partition] = partition
        self._failed.pop(topic_partition, None)
        self._unlucky.discard(topic_partition)
        return partition

    def _open_again(self, topic_partition: TopicPartition) -> Partition | None:
        """A partition whose log could not be opened for want of room or files, if there is some now."""
        state = self._image.partition(*topic_partition)
        if state is None:
            return None
        try:
            partition = self._open(topic_partition, self._image)
        except (OSError, errors.KafkaError) as error:
            self._failed[topic_partition] = f"the log of {topic_partition} cannot be opened: {error}"
            return None
        logger.info("%s is online: its log could be opened", topic_partition)
        self._change_role(partition, state)
        self._after_role_change(partition)
        return partition

    def _change_role(self, partition: Partition, state: PartitionImage) -> bool:
        if state.leader == self.node_id:
            return partition.make_leader(
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                replicas=state.replicas,
                in_sync_replicas=state.isr,
            )
        return partition.make_follower(
            leader_id=state.leader,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            replicas=state.replicas,
        )

    def _after_role_change(self, partition: Partition) -> None:
        if partition.advance_high_watermark():
            self._high_watermark_rose(partition)
        self._complete_waiting(partition.topic_partition)

    def _reconfigure(self, topic: TopicImage, image: MetadataImage) -> None:
        config = self.logs.config_for(image.topic_configs(topic.name))
        for number in topic.partitions:
            partition = self._partitions.get((topic.name, number))
            if partition is not None:
                partition.log.update_config(config)

    def reconfigure_all(self, image: MetadataImage) -> None:
        """The broker's defaults changed: every log is to work with its configuration as it is now."""
        for name in {partition.topic_partition.topic for partition in self._partitions.values()}:
            if name in image.topics:
                self._reconfigure(image.topics[name], image)

    def _drop(self, topic_partition: TopicPartition, topic_id: UUID) -> None:
        self._failed.pop(topic_partition, None)
        self._unlucky.discard(topic_partition)
        hosted = self._partitions.pop(topic_partition, None)
        if self._shares_logs and (
            topic_id in self._image.topics_by_id or self.logs.topic_id_of(topic_partition) != topic_id
        ):
            pass  # others have it, or have begun one for a new topic of that name
        elif hosted is not None or self.logs.get(topic_partition) is not None:
            try:
                self.logs.delete(topic_partition, sync=False)
            except errors.KafkaStorageError as error:
                logger.error("the log of %s cannot be removed: %s", topic_partition, error)
        self._complete_waiting(topic_partition)

    def is_offline(self, topic_partition: tuple[str, int]) -> bool:
        """Whether a partition should be here, but its log cannot be used."""
        return topic_partition in self._failed

    def logs_offline(self, topic_partitions: Iterable[TopicPartition], reason: str) -> None:
        """Logs cannot be used any more: who asks for their partitions, or waits for them, gets that for an answer."""
        for topic_partition in topic_partitions:
            if self._partitions.pop(topic_partition, None) is not None:
                self._failed[topic_partition] = reason
                self._complete_waiting(topic_partition)

    def flushed(self, topic_partition: TopicPartition) -> None:
        """More of a log is on disk, which records with ``flush.messages`` wait for."""
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            if partition.advance_high_watermark():
                self._high_watermark_rose(partition)
            self._complete_waiting(topic_partition)

    def _complete_waiting(self, topic_partition: TopicPartition) -> None:
        self.produce_purgatory.check_and_complete(topic_partition)
        self.fetch_purgatory.check_and_complete(topic_partition)

    def _high_watermark_rose(self, partition: Partition) -> None:
        for listener in self._listeners:
            listener(partition.topic_partition, partition.high_watermark)

    # Writing

    def work_ahead(
        self, entries: Mapping[TopicPartition, Buffer | Checked]
    ) -> dict[TopicPartition, tuple[Buffer, LogConfig]]:
        """Those of a client's batches that `check_ahead` should look at before they are appended."""
        found = {}
        for topic_partition, data in entries.items():
            partition = self._partitions.get(topic_partition)
            if partition is not None and not isinstance(data, Checked) and is_work(data, partition.log.config):
                found[topic_partition] = data, partition.log.config
        return found

    def append(
        self,
        entries: Mapping[TopicPartition, Buffer | Checked],
        *,
        required_acks: int,
    ) -> dict[TopicPartition, AppendOutcome]:
        """Append what a client sent to every partition as its leader; each has its own outcome.

        Clients may not write to internal topics (RM-24).
        """
        if required_acks not in (-1, 0, 1):
            code = errors.InvalidRequiredAcksError.code
            return {key: AppendOutcome(error_code=code) for key in entries}
        now_ms = self._world.wall_ms()
        outcomes: dict[TopicPartition, AppendOutcome] = {}
        for topic_partition, batches in entries.items():
            outcomes[topic_partition] = self._append_one(topic_partition, batches, required_acks, now_ms)
        return outcomes

    def _append_one(
        self, topic_partition: TopicPartition, batches: Buffer | Checked, required_acks: int, now_ms: int
    ) -> AppendOutcome:
        partition = self._partitions.get(topic_partition)
        try:
            if topic_partition.topic in INTERNAL_TOPICS:
                raise errors.InvalidTopicError(f"{topic_partition.topic} is internal: clients may not write to it")
            if partition is None:
                partition = self.partition(topic_partition)
            info = partition.append(batches, required_acks=required_acks, now_ms=now_ms)
        except errors.BrokerResponseError as error:
            self.traffic.refused()
            log_start_offset = partition.log.log_start_offset if partition is not None else -1
            return AppendOutcome(
                error_code=error.code,
                log_start_offset=log_start_offset,
                error_message=str(error) or None,
                record_errors=getattr(error, "record_errors", ()),
            )
        except OSError as error:
            logger.error("appending to %s failed: %s", topic_partition, error)
            self.traffic.refused()
            return AppendOutcome(error_code=errors.KafkaStorageError.code, error_message=f"the disk failed: {error}")
        size = len(batches.data if isinstance(batches, Checked) else batches)
        self.traffic.appended(size, info.last_offset - info.first_offset + 1)
        self.appended(partition)
        return AppendOutcome(
            base_offset=info.first_offset,
            last_offset=info.last_offset,
            log_append_time_ms=info.log_append_time,
            log_start_offset=info.log_start_offset,
            flushing=partition.log.settled_offset <= info.last_offset,
        )

    def append_internal(self, topic_partition: TopicPartition, batches: Buffer) -> int:
        """Append the broker's own records as with acks=all, and return the offset after the last one.

        Raises:
            BrokerResponseError: this broker does not lead the partition, or the log refuses; nothing was appended.
        """
        partition = self.partition(topic_partition)
        info = partition.append(batches, required_acks=-1, now_ms=self._world.wall_ms(), from_client=False)
        self.appended(partition)
        return info.last_offset + 1

    def appended(self, partition: Partition) -> None:
        """Tell those who wait that the log of ``partition`` grew, and raise its high watermark if that suffices."""
        topic_partition = partition.topic_partition
        if partition.advance_high_watermark():
            if self._listeners:
                self._high_watermark_rose(partition)
            self.produce_purgatory.check_and_complete(topic_partition)
        self.fetch_purgatory.check_and_complete(topic_partition)

    def delay_produce(
        self, outcomes: Mapping[TopicPartition, AppendOutcome], timeout_ms: int, *, required_acks: int = -1
    ) -> DelayedProduce | None:
        """Wait for the in-sync replicas of what was appended; None when nothing needs to be waited for (RM-25).

        With ``required_acks`` 1 it is the leader's own disk that is waited for.
        """
        pending = [key for key, outcome in outcomes.items() if not outcome.error_code]
        if required_acks == -1 and all(self._committed(key, outcomes[key]) for key in pending):
            return None
        operation = DelayedProduce(max(timeout_ms, 0), outcomes, self.partition, required_acks=required_acks)
        self.produce_purgatory.try_complete_else_watch(operation, pending, monotonic_ms(self._world))
        return None if operation.completed else operation

    def _committed(self, topic_partition: TopicPartition, outcome: AppendOutcome) -> bool:
        partition = self._partitions.get(topic_partition)
        return (
            partition is not None
            and partition.is_leader
            and partition.high_watermark >= outcome.required_offset
            and partition.enough_replicas
        )

    # Reading

    async def read(
        self,
        wanted: Sequence[tuple[TopicPartition, WantedPartition]],
        parameters: FetchParameters,
        *,
        before_waiting: Callable[[], None] = lambda: None,
    ) -> tuple[dict[TopicPartition, ReadOutcome], int, bool]:
        """Read partitions in order under one byte budget. Returns outcomes, bytes read, and whether to answer at once.

        The first partition with data may exceed the limits by its first batch, so that a reader always gets on (O12).
        Waits only where something must come from the disk first; a thread does that, and then all is read again.
        """
        for _ in range(_COLD_READS):
            try:
                return self._read(wanted, parameters, may_block=False)
            except ColdReadError as cold:
                before_waiting()
                await self._world.run_in_thread(cold.warm)
        return self._read(wanted, parameters, may_block=True)  # memory is too short to keep it for a moment

    def _read(
        self, wanted: Sequence[tuple[TopicPartition, WantedPartition]], parameters: FetchParameters, *, may_block: bool
    ) -> tuple[dict[TopicPartition, ReadOutcome], int, bool]:
        budget = parameters.max_bytes
        total = 0
        urgent = False
        cold: list[ColdReadError] = []
        failed = 0
        outcomes: dict[TopicPartition, ReadOutcome] = {}
        follower, read_committed = parameters.follower, parameters.read_committed
        for topic_partition, request in wanted:
            try:
                partition = self._partitions.get(topic_partition) or self.partition(topic_partition)
                if follower:
                    self._follower_fetches(partition, parameters.replica_id, request.fetch_offset)
                outcome = partition.read(
                    request.fetch_offset,
                    min(budget, request.max_bytes),
                    min_one_batch=not total,
                    follower=follower,
                    read_committed=read_committed,
                    current_leader_epoch=request.current_leader_epoch,
                    last_fetched_epoch=request.last_fetched_epoch,
                    may_block=may_block,
                )
            except ColdReadError as error:
                # The others are looked at, too: one visit to the disk for all that fits. How much this one has is not
                # known, so it counts in full.
                cold.append(error)
                budget -= request.max_bytes
                if budget <= 0:
                    break
                continue
            except errors.BrokerResponseError as error:
                outcomes[topic_partition] = self._failed_read(topic_partition, error)
                urgent = True
                failed += 1
                continue
            except OSError as error:
                logger.error("reading %s failed: %s", topic_partition, error)
                outcomes[topic_partition] = ReadOutcome(errors.KafkaStorageError.code)
                urgent = True
                failed += 1
                continue
            outcomes[topic_partition] = outcome
            size = len(outcome.records)
            total += size
            budget = max(budget - size, 0)
            if outcome.diverging_epoch is not None:
                urgent = True
        if cold:
            raise ColdReadError(partial(_warm, cold))
        self.traffic.fetches += len(outcomes)
        self.traffic.failed_fetches += failed
        return outcomes, total, urgent

    def delay_fetch(
        self, wanted: Sequence[tuple[TopicPartition, WantedPartition]], parameters: FetchParameters
    ) -> DelayedFetch | None:
        """Wait until a fetch has enough to answer; None when it has by now. The caller then reads again."""
        awaited = [
            Awaited(
                key,
                request.fetch_offset,
                request.max_bytes,
                request.current_leader_epoch,
                request.last_fetched_epoch,
            )
            for key, request in wanted
        ]
        operation = DelayedFetch(
            parameters.max_wait_ms,
            awaited,
            self.partition,
            min_bytes=parameters.min_bytes,
            follower=parameters.follower,
            read_committed=parameters.read_committed,
        )
        keys = [key for key, _ in wanted]
        self.fetch_purgatory.try_complete_else_watch(operation, keys, monotonic_ms(self._world))
        return None if operation.completed else operation

    def _follower_fetches(self, partition: Partition, replica_id: int, fetch_offset: int) -> None:
        if partition.follower_fetched(replica_id, fetch_offset, self._world.now()):
            self._high_watermark_rose(partition)
            self._complete_waiting(partition.topic_partition)

    def _failed_read(self, topic_partition: TopicPartition, error: errors.BrokerResponseError) -> ReadOutcome:
        outcome = ReadOutcome(error.code)
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            if isinstance(error, errors.NotLeaderForPartitionError | errors.FencedLeaderEpochError):
                outcome.leader_hint = partition.leader_hint
            elif isinstance(error, errors.OffsetOutOfRangeError):
                outcome.high_watermark = partition.high_watermark
                outcome.last_stable_offset = partition.last_stable_offset
                outcome.log_start_offset = partition.log.log_start_offset
        elif isinstance(error, errors.NotLeaderForPartitionError):
            known = self._image.partition(*topic_partition)
            if known is not None:
                outcome.leader_hint = LeaderHint(known.leader, known.leader_epoch)
        return outcome

    def delete_records_before(self, topic_partition: TopicPartition, offset: int) -> int:
        """See `Partition.delete_records_before`; completes what waits on the partition."""
        if topic_partition.topic in INTERNAL_TOPICS:
            raise errors.InvalidTopicError(f"records of the internal topic {topic_partition.topic} cannot be deleted")
        low_watermark = self.partition(topic_partition).delete_records_before(offset)
        self.fetch_purgatory.check_and_complete(topic_partition)
        return low_watermark

    # Housekeeping

    def high_watermarks(self) -> dict[TopicPartition, int]:
        """What belongs into the high watermark checkpoint."""
        return {partition.topic_partition: partition.high_watermark for partition in self._partitions.values()}

    def clock_jumped(self) -> None:
        """The world's clock was put forward: what waits until a time that has passed waits no longer."""
        now_ms = monotonic_ms(self._world)
        self.produce_purgatory.advance(now_ms)
        self.fetch_purgatory.advance(now_ms)

    def shut_down(self) -> None:
        """Complete whatever waits, so that its handlers answer and end."""
        self.produce_purgatory.complete_all()
        self.fetch_purgatory.complete_all()


def _may_get_better(topic_partition: TopicPartition, error: Exception) -> bool:
    """Whether opening the log may succeed later. Coordinators would have to be told, so not for their topics."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and gets_better(cause) and topic_partition.topic not in INTERNAL_TOPICS


def _warm(cold: Iterable[ColdReadError]) -> None:
    for error in cold:
        error.warm()
