"""The partitions that a broker hosts: they and their logs follow the image, and whoever waits for one is told.

The image decides what exists and who leads. Reading and writing are in ``replica_manager``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Set
from typing import TYPE_CHECKING, Final
from uuid import UUID

import trio

from triokafka import errors
from triokafka.broker_stub.log.disk_guard import gets_better
from triokafka.broker_stub.metadata.delta import MetadataDelta
from triokafka.broker_stub.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionImage, ResourceType, TopicImage
from triokafka.broker_stub.purgatory.delayed_operation import PURGE_INTERVAL, Purgatory, monotonic_ms
from triokafka.broker_stub.replica.partition import Partition
from triokafka.broker_stub.replica.traffic import Traffic
from triokafka.broker_stub.work_budget import WorkBudget
from triokafka.named_tuple import NamedTuple
from triokafka.structs import TopicPartition, format_uuid
from triokafka.world import World

if TYPE_CHECKING:
    from triokafka.broker_stub.log.config import LogConfig
    from triokafka.broker_stub.log.log_manager import LogManager
    from triokafka.broker_stub.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

_NAMED: Final = 5  # partitions in one line of the log

HighWatermarkListener = Callable[[TopicPartition, int], None]
_FIRST_RETRY_SECONDS: Final = 0.5
_LAST_RETRY_SECONDS: Final = 5.0


class LeadershipChange(NamedTuple):
    """A partition whose role on this broker changed; ``leader_epoch`` is -1 when it is gone from here."""

    topic_partition: TopicPartition
    leads: bool
    leader_epoch: int


class HostedPartitions:
    """What `ReplicaManager` has besides reading and writing. See there for the arguments."""

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
        self._ahead: dict[TopicPartition, Partition] = {}  # opened, for a change that is about to be applied
        self._failed: dict[tuple[str, int], str] = {}
        self._retryable: set[tuple[str, int]] = set()  # of these, those whose next opening may succeed
        self._became_retryable = trio.Event()
        self._checkpointed: Mapping[TopicPartition, int] | None = None
        self._listeners: list[HighWatermarkListener] = []
        self.on_reopened: Callable[[LeadershipChange], None] | None = None
        """Called with the role of a partition that is online again after its log could not be opened."""
        self._image = EMPTY_IMAGE
        self._inherited: Set[tuple[UUID, int]] = frozenset()  # may have logs in directories that were never online
        self._gone_directories: tuple[UUID, ...] = ()  # that were there before

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
            if topic_partition in self._retryable:
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
        first = self._image is EMPTY_IMAGE
        if first:
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
                    if not isinstance(error, _MissedError):  # of those, all were named together
                        logger.error("%s is offline: its log cannot be opened: %s", topic_partition, error)
                    self._failed[topic_partition] = f"the log of {topic_partition} cannot be opened: {error}"
                    if _may_get_better(error):
                        self._retryable.add(topic_partition)
                        self._became_retryable.set()
                    continue
                if self._change_role(partition, state):
                    changes.append(LeadershipChange(topic_partition, leads, state.leader_epoch))
                self._after_role_change(partition)
        for resource_type, name in delta.changed_configs:
            if resource_type == ResourceType.TOPIC and name in image.topics:
                self._reconfigure(image.topics[name], image)
        if first:
            self.logs.removed_topics = frozenset()  # the folders of their logs are renamed by now
        return changes

    def _begin_with(self, image: MetadataImage) -> None:
        """Compare what is on the disks with the first image."""
        if self.logs.offline_directories():
            self._inherited = {(topic.topic_id, state.partition) for topic, state in image.partitions()}
        for topic_partition in self.logs.all():
            if image.partition(*topic_partition) is None:
                self.logs.put_aside(topic_partition)
        missing = [str(known) for known in image.replicas_on(self.node_id) if self.logs.get(known) is None]
        if not missing:
            return
        named = ", ".join(missing[:_NAMED])
        named += f" and {len(missing) - _NAMED} other partitions" if len(missing) > _NAMED else ""
        before = image.brokers.get(self.node_id)
        self._gone_directories = tuple(
            directory
            for directory in (before.directories if before is not None else ())
            if directory not in self.logs.directory_ids
        )
        if self._gone_directories:
            self._inherited = {(topic.topic_id, state.partition) for topic, state in image.partitions()}
            logger.error("no data directory has a log of %s; %s", named, self._way_out)
        elif not self._inherited:
            logger.warning("no data directory has a log that can be used of %s; what is not damaged begins anew", named)

    @property
    def missed_directories(self) -> tuple[UUID, ...]:
        """Data directories that were there before, as long as partitions are offline that may have their logs there."""
        return self._gone_directories if self._failed else ()

    @property
    def _way_out(self) -> str:
        gone = ", ".join(map(format_uuid, self._gone_directories))
        return (
            f"the data directory with the id {gone} (meta.properties) was there before, and is not among those of "
            f"log.dirs that can be used: put it back, or mend it; or, if it is lost, delete the topics, or let them "
            f"begin anew (unclean.leader.election.enable)"
        )

    async def open_ahead(self, topic_partitions: Iterable[TopicPartition], image: MetadataImage) -> None:
        """Open new partitions of ``image``, which is about to be applied; others have their turn in between.

        What cannot be opened is left to `apply`. If cancelled, so is the rest.
        """
        budget = WorkBudget()
        for topic_partition in topic_partitions:
            try:
                self._ahead[topic_partition] = self._new_partition(topic_partition, image)
            except (OSError, errors.KafkaError):
                continue  # it will say why
            await budget.spend()

    def _open(self, topic_partition: TopicPartition, image: MetadataImage) -> Partition:
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            return partition
        partition = self._ahead.pop(topic_partition, None)
        if partition is None or self.logs.get(topic_partition) is not partition.log:
            partition = self._new_partition(topic_partition, image)
        self._partitions[topic_partition] = partition
        self._failed.pop(topic_partition, None)
        self._retryable.discard(topic_partition)
        return partition

    def _new_partition(self, topic_partition: TopicPartition, image: MetadataImage) -> Partition:
        topic = image.topics[topic_partition.topic]
        config = self.logs.config_for(image.topic_configs(topic_partition.topic))
        self._check_not_missed(topic_partition, topic.topic_id, config)
        # Also for a log that is there: it was opened with the defaults, maybe for an earlier topic of that name.
        log = self.logs.create(
            topic_partition,
            topic.topic_id,
            config,
            is_new=(topic.topic_id, topic_partition.partition) not in self._inherited,
        )
        if self._checkpointed is None:
            self._checkpointed = self.logs.read_high_watermarks()
        return Partition(
            topic_partition,
            topic.topic_id,
            node_id=self.node_id,
            log=log,
            high_watermark=self._checkpointed.get(topic_partition, 0),
            shares_log=self._shares_logs,
        )

    def may_be_made(self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig) -> bool:
        """Whether a log may be made where there is none."""
        try:
            self._check_not_missed(topic_partition, topic_id, config)
        except _MissedError:
            return False
        return True

    def _check_not_missed(self, topic_partition: TopicPartition, topic_id: UUID, config: LogConfig) -> None:
        """Of the one replica that there is, an empty log would be the loss of all its records: as Kafka's controller
        does with replicas out of sync, nobody may lead that partition unless the topic allows it."""
        if not self._gone_directories or config.unclean_leader_election_enable:
            return
        here = self.logs.is_offline(topic_partition) or (
            self.logs.get(topic_partition) is not None and self.logs.topic_id_of(topic_partition) in (None, topic_id)
        )
        if not here and (topic_id, topic_partition.partition) in self._inherited:
            raise _MissedError(f"there is no log of {topic_partition}; {self._way_out}")

    async def retry_offline(self) -> None:
        """Open the logs again that could not be opened for want of disk space or files, until cancelled.

        Requests do the same for the partitions that they name; but a group coordinator gets no request before its
        partition of ``__consumer_offsets`` is online.
        """
        wait = _FIRST_RETRY_SECONDS
        while True:
            if not self._retryable:
                self._became_retryable = trio.Event()
                await self._became_retryable.wait()
                wait = _FIRST_RETRY_SECONDS
            await trio.sleep(wait)
            wait = min(2 * wait, _LAST_RETRY_SECONDS)
            budget = WorkBudget()
            for topic_partition in list(self._retryable):
                if topic_partition in self._retryable:
                    self._open_again(TopicPartition(*topic_partition))
                    await budget.spend()

    def _open_again(self, topic_partition: TopicPartition) -> Partition | None:
        """Open the log of an offline partition; None when it still cannot be opened."""
        state = self._image.partition(*topic_partition)
        if state is None:
            return None
        try:
            partition = self._open(topic_partition, self._image)
        except (OSError, errors.KafkaError) as error:
            self._failed[topic_partition] = f"the log of {topic_partition} cannot be opened: {error}"
            return None
        logger.info("%s is online: its log could be opened", topic_partition)
        changed = self._change_role(partition, state)
        self._after_role_change(partition)
        if changed and self.on_reopened is not None:
            leads = state.leader == self.node_id
            self.on_reopened(LeadershipChange(topic_partition, leads=leads, leader_epoch=state.leader_epoch))
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
        self._ahead.clear()  # opened with the former ones: once more, then
        for name in {partition.topic_partition.topic for partition in self._partitions.values()}:
            if name in image.topics:
                self._reconfigure(image.topics[name], image)

    def _drop(self, topic_partition: TopicPartition, topic_id: UUID) -> None:
        self._failed.pop(topic_partition, None)
        self._retryable.discard(topic_partition)
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
        """Return whether this broker should host a partition but cannot use its log. Opening it is tried again first:
        clients ask for nothing but metadata while a partition has no leader."""
        if topic_partition in self._retryable:
            self._open_again(TopicPartition(*topic_partition))
        return topic_partition in self._failed

    def check_online(self, topic_partition: tuple[str, int]) -> None:
        """Raise `KafkaStorageError` with the reason when this broker cannot use the log of a partition that it hosts.

        As in `is_offline`, opening the log is tried again first.
        """
        if self.is_offline(topic_partition):
            raise errors.KafkaStorageError(self._failed[topic_partition])

    def logs_offline(self, topic_partitions: Iterable[TopicPartition], reason: str) -> None:
        """Logs cannot be used any more: who asks for their partitions, or waits for them, gets that for an answer."""
        for topic_partition in topic_partitions:
            if self._partitions.pop(topic_partition, None) is not None:
                self._failed[topic_partition] = reason
                self._complete_waiting(topic_partition)

    def log_moved(self, topic_partition: TopicPartition, log: PartitionLog) -> None:
        """The log of a partition is in another data directory from now on, with the same records."""
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            partition.log = log
            self.flushed(topic_partition)

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


class _MissedError(errors.KafkaStorageError):
    """A log that may be in a data directory which is not in ``log.dirs`` any more."""


def _may_get_better(error: Exception) -> bool:
    """Whether opening the log may succeed later."""
    if isinstance(error, _MissedError):
        return True
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and gets_better(cause)
