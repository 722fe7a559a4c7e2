"""Opening the logs of hosted partitions, with retries, and without creating a log in place of a missing one."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Final
from uuid import UUID

import trio

from triokafka import errors
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.log_deletion import NO_TOPIC
from triokafka.broker_stub.log.log_disk_errors import is_temporary
from triokafka.broker_stub.log.log_manager import LogManager
from triokafka.broker_stub.metadata.image import EMPTY_IMAGE, MetadataImage, PartitionImage, is_reserved_directory
from triokafka.broker_stub.replica.hosted_partitions import HostedPartitions
from triokafka.broker_stub.replica.lost_ends import LostEnds
from triokafka.broker_stub.replica.partition import NO_LEADER, Partition
from triokafka.broker_stub.replica.replica_listener import LeadershipChange, ReplicaListener
from triokafka.broker_stub.work_budget import WorkBudget
from triokafka.structs import TopicPartition, first_names, format_uuid

logger = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS: Final = 0.5
_LAST_RETRY_SECONDS: Final = 5.0
_REVIEW_SECONDS: Final = 0.2
"""The interval in which a broker that lost the end of a log looks for another one to lead the partition."""


class MissingLogError(errors.KafkaStorageError):
    """The log may be in a data directory that is no longer in ``log.dirs``."""


class PartitionOpener:
    """Opens partitions and sets their role from ``image``.

    Args:
        now: the world's monotonic clock in seconds.
        lag_seconds: see `Partition`.
        follow: starts to fetch partitions from their leaders.
        lost_ends: decides whether this broker leads a partition of whose log it lost the end.
    """

    def __init__(
        self,
        node_id: int,
        logs: LogManager,
        hosted: HostedPartitions,
        listener: ReplicaListener | None,
        *,
        now: Callable[[], float],
        lag_seconds: float,
        follow: Callable[[Iterable[Partition], MetadataImage], None],
        lost_ends: LostEnds,
    ) -> None:
        self.image = EMPTY_IMAGE
        self._node_id = node_id
        self._logs = logs
        self._hosted = hosted
        self._listener = listener
        self._now = now
        self._lag_seconds = lag_seconds
        self._follow = follow
        self._lost_ends = lost_ends
        self._yielded = trio.Event()
        self._ahead: dict[TopicPartition, Partition] = {}  # opened before their change is applied
        self._retryable: set[tuple[str, int]] = set()  # failed partitions whose next opening may succeed
        self._became_retryable = trio.Event()
        self._checkpointed: Mapping[TopicPartition, int] | None = None
        self._inherited: Set[tuple[UUID, int]] = frozenset()  # may have logs in directories that were never online

    # -- lookup

    def partition(self, topic_partition: tuple[str, int]) -> Partition:
        """Return a hosted partition; retry opening its log if that failed with a temporary error.

        Raises:
            UnknownTopicOrPartitionError: the partition does not exist.
            NotLeaderForPartitionError: only other brokers host it.
            KafkaStorageError: its log is offline.
        """
        found = self._hosted.online.get(topic_partition)
        if found is None:
            topic, number = topic_partition
            if topic_partition in self._retryable:
                again = self._open_again(TopicPartition(topic, number))
                if again is not None:
                    return again
            reason = self._hosted.failed.get(topic_partition)
            if reason is not None:
                raise errors.KafkaStorageError(reason)
            elsewhere = self.image.partition(topic, number)
            if elsewhere is not None:
                raise errors.NotLeaderForPartitionError(
                    f"{topic}-{number}: its replicas are on the brokers {list(elsewhere.replicas)}, not on this one"
                )
            raise errors.UnknownTopicOrPartitionError(f"this broker has no partition {topic}-{number}")
        return found

    def is_offline(self, topic_partition: tuple[str, int]) -> bool:
        """Return whether this broker hosts a partition whose log is offline.

        This retries opening the log first: clients only request metadata while a partition has no leader.
        """
        if topic_partition in self._retryable:
            self._open_again(TopicPartition(*topic_partition))
        return topic_partition in self._hosted.failed

    def check_online(self, topic_partition: tuple[str, int]) -> None:
        """Raise `KafkaStorageError` with the reason when `is_offline`."""
        if self.is_offline(topic_partition):
            raise errors.KafkaStorageError(self._hosted.failed[topic_partition])

    # -- the brokers of the cluster (`Registrations`)

    def broker_epoch(self, broker_id: int) -> int | None:
        """See `Registrations`."""
        broker = self.image.brokers.get(broker_id)
        return None if broker is None else broker.broker_epoch

    def is_active(self, broker_id: int) -> bool:
        """See `Registrations`."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and broker.active

    # -- opening

    def open(self, topic_partition: TopicPartition) -> Partition:
        """Return a partition of ``image``; open or create its log when needed. Raises `KafkaError`, `OSError`."""
        partition = self._hosted.online.get(topic_partition)
        if partition is not None:
            return partition
        partition = self._ahead.pop(topic_partition, None)
        if partition is None or self._logs.get(topic_partition) is not partition.log:
            partition = self._new_partition(topic_partition, self.image)
        self._hosted.online[topic_partition] = partition
        self.forget_failure(topic_partition)
        return partition

    def open_failed(self, topic_partition: TopicPartition, error: Exception) -> None:
        """Record why `open` failed, and whether to retry."""
        if not isinstance(error, MissingLogError):  # one log line names all of these partitions
            logger.error("%s: opening the log failed, and the partition is offline: %s", topic_partition, error)
        self._hosted.failed[topic_partition] = f"the log of {topic_partition} cannot be opened: {error}"
        if _may_succeed_later(error):
            self._retryable.add(topic_partition)
            self._became_retryable.set()

    def forget_failure(self, topic_partition: TopicPartition) -> None:
        """Forget the failure of a partition that is online or deleted."""
        self._hosted.failed.pop(topic_partition, None)
        self._retryable.discard(topic_partition)

    async def open_ahead(self, topic_partitions: Iterable[TopicPartition], image: MetadataImage) -> None:
        """Open new partitions of ``image`` before it is applied, with checkpoints in between.

        `open` retries a partition that fails here, and opens the rest after a cancellation.
        """
        budget = WorkBudget()
        for topic_partition in topic_partitions:
            try:
                self._ahead[topic_partition] = self._new_partition(topic_partition, image)
            except (OSError, errors.KafkaError):
                continue  # `open` reports it
            await budget.spend()

    def forget_opened_ahead(self) -> None:
        """Drop the partitions that `open_ahead` opened: the broker's defaults have changed."""
        self._ahead.clear()

    def _new_partition(self, topic_partition: TopicPartition, image: MetadataImage) -> Partition:
        topic = image.topics[topic_partition.topic]
        config = self._logs.config_for(image.topic_configs(topic_partition.topic))
        self._check_not_missing(topic_partition, topic.topic_id, topic.partitions[topic_partition.partition], config)
        # Also for an existing log: it was opened with the defaults, perhaps for an earlier topic with that name.
        log = self._logs.create(
            topic_partition,
            topic.topic_id,
            config,
            is_new=(topic.topic_id, topic_partition.partition) not in self._inherited,
        )
        return Partition(
            topic_partition,
            topic.topic_id,
            node_id=self._node_id,
            log=log,
            high_watermark=self._high_watermarks().get(topic_partition, 0),
            registrations=self,
            lag_seconds=self._lag_seconds,
        )

    def _high_watermarks(self) -> Mapping[TopicPartition, int]:
        if self._checkpointed is None:
            self._checkpointed = self._logs.read_high_watermarks()
        return self._checkpointed

    def change_role(self, partition: Partition, state: PartitionImage) -> bool:
        """Make the partition leader or follower according to ``state``; return whether its role or leader epoch is
        new.

        A replica that should lead, and lost the end of its log, follows nobody for now.
        """
        is_leader = state.leader == self._node_id
        yields = is_leader and self._lost_ends.yields(partition, state)
        if yields:
            self._yielded.set()
        if is_leader and not yields:
            changed = partition.make_leader(
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                replicas=state.replicas,
                in_sync_replicas=state.isr,
                adding_replicas=state.adding_replicas,
                now=self._now(),
            )
        else:
            changed = partition.make_follower(
                leader_id=NO_LEADER if is_leader else state.leader,
                leader_epoch=state.leader_epoch,
                partition_epoch=state.partition_epoch,
                replicas=state.replicas,
                adding_replicas=state.adding_replicas,
            )
        if changed:
            self._hosted.advance_high_watermark(partition)
        else:
            self._hosted.isr_changed(partition)
        return changed

    async def replace_lost_ends(self) -> None:
        """Let other replicas lead while this broker lost the ends of logs, until cancelled; see `LostEnds`."""
        while True:
            await self._yielded.wait()
            self._yielded = trio.Event()
            while self._lost_ends.waits:
                self._lost_ends.review(self._lead)
                await trio.sleep(_REVIEW_SECONDS)

    def _lead(self, topic_partition: TopicPartition) -> None:
        state, partition = self.image.partition(*topic_partition), self._hosted.online.get(topic_partition)
        if state is not None and partition is not None and self.change_role(partition, state):
            self._report_role(partition)

    def _report_role(self, partition: Partition) -> None:
        if self._listener is not None:
            change = LeadershipChange(partition.topic_partition, partition.is_leader, partition.leader_epoch)
            self._listener.reopened(change)

    # -- retries

    async def retry_offline(self) -> None:
        """Retry opening logs that failed because of a full disk or too many open files, until cancelled.

        Requests do the same for their partitions. But a group coordinator gets no requests before its partition of
        ``__consumer_offsets`` is online.
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
        """Retry opening the log of an offline partition; return None when it fails again."""
        state = self.image.partition(*topic_partition)
        if state is None:
            return None
        try:
            partition = self.open(topic_partition)
        except (OSError, errors.KafkaError) as error:
            self._hosted.failed[topic_partition] = f"the log of {topic_partition} cannot be opened: {error}"
            return None
        logger.info("%s: the log was opened, and the partition is online", topic_partition)
        if self.change_role(partition, state):
            if not partition.is_leader:
                self._follow([partition], self.image)
            self._report_role(partition)
        return partition

    # -- logs in missing directories

    def begin_with(self, image: MetadataImage) -> None:
        """Compare the logs on disk with the first image, and report missing logs."""
        if self._logs.offline_directories():
            self._inherited = {(topic.topic_id, state.partition) for topic, state in image.partitions()}
        for topic_partition in self._logs.all():
            state = image.partition(*topic_partition)
            if state is None:
                self._logs.put_aside(topic_partition, why=NO_TOPIC)
            elif self._node_id not in state.replicas:
                # It was reassigned while this broker was down, so no change of the metadata will delete it.
                self._logs.put_aside(topic_partition, why=f"is a partition of the brokers {list(state.replicas)} now")
        missing = [known for known in image.replicas_on(self._node_id) if self._logs.get(known) is None]
        if not missing:
            return
        committed = self._high_watermarks()
        for topic_partition in missing:
            state = image.partition(*topic_partition)
            if state is not None and self._counts_as_complete(state):
                self._lost_ends.log_is_missing(topic_partition, committed.get(topic_partition, 0))
        named = first_names(missing, 5)
        gone = {directory: None for known in missing if (directory := self._gone_directory(image.partition(*known)))}
        if gone:
            logger.error("no data directory has a log of %s; %s", named, _remedy(gone))
        elif not self._inherited:
            logger.warning("no data directory has a usable log of %s; they start empty unless a log is damaged", named)

    def _gone_directory(self, state: PartitionImage | None) -> UUID | None:
        """Return the data directory of a replica according to the metadata if this broker does not have it."""
        directory = None if state is None else state.directory_of(self._node_id)
        if directory is None or is_reserved_directory(directory) or directory in self._logs.directory_ids:
            return None
        return directory

    def _counts_as_complete(self, state: PartitionImage) -> bool:
        """Whether this broker may be elected without an unclean election."""
        return self._node_id in {*state.isr, *state.eligible_leader_replicas, *state.last_known_elr}

    def may_be_created(
        self, topic_partition: TopicPartition, topic_id: UUID, state: PartitionImage, config: LogConfig
    ) -> bool:
        """Whether a log may be created for a partition that has none."""
        try:
            self._check_not_missing(topic_partition, topic_id, state, config)
        except MissingLogError:
            return False
        return True

    def _check_not_missing(
        self, topic_partition: TopicPartition, topic_id: UUID, state: PartitionImage, config: LogConfig
    ) -> None:
        """Prevent an empty log in place of one that is in a missing directory, where it could be elected.

        The controller would count its records as present, and they may be the only ones. As with replicas out of sync,
        no broker may lead that partition unless the topic allows unclean elections. A replica that could not be
        elected anyway starts empty, and copies its leader.
        """
        directory = self._gone_directory(state)
        if directory is None or config.unclean_leader_election_enable:
            return
        if not self._counts_as_complete(state):
            return
        here = self._logs.is_offline(topic_partition) or (
            self._logs.get(topic_partition) is not None and self._logs.topic_id_of(topic_partition) in (None, topic_id)
        )
        if not here:
            raise MissingLogError(f"there is no log of {topic_partition}; {_remedy([directory])}")


def _remedy(gone: Iterable[UUID]) -> str:
    return (
        f"the data directory with the id {', '.join(map(format_uuid, gone))} (meta.properties) was there before, and "
        f"is not among those of log.dirs that can be used: restore or repair it; or, if it is lost, delete the topics, "
        f"or allow them to start empty (unclean.leader.election.enable)"
    )


def _may_succeed_later(error: Exception) -> bool:
    """Whether opening the log may succeed later."""
    if isinstance(error, MissingLogError):
        return True
    cause = error if isinstance(error, OSError) else error.__cause__
    return isinstance(cause, OSError) and is_temporary(cause)
