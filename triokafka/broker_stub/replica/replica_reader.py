"""Reading partitions of a broker for Fetch requests, and waiting until enough can be read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

from triokafka import errors
from triokafka.broker_stub.log.page_cache import ColdReadError
from triokafka.broker_stub.metadata.image import MetadataImage
from triokafka.broker_stub.purgatory.delayed_operation import Purgatory, monotonic_ms
from triokafka.broker_stub.replica.delayed_fetch import AwaitedPartition, DelayedFetch
from triokafka.broker_stub.replica.hosted_partitions import HostedPartitions, follower_key
from triokafka.broker_stub.replica.partition import Partition
from triokafka.broker_stub.replica.partition_rest import (
    PartitionRest,
    consumer_rests,
    follower_rests,
    idle_follower_fetched,
)
from triokafka.broker_stub.replica.read_result import LeaderHint, ReadOutcome
from triokafka.broker_stub.replica.replica_selector import ReplicaSelector
from triokafka.broker_stub.replica.replica_traffic import ReplicaTraffic
from triokafka.broker_stub.replica.replication_quota import ReplicationQuota
from triokafka.broker_stub.work_budget import BUDGET, WorkBudget
from triokafka.named_tuple import NamedTuple
from triokafka.structs import TopicPartition
from triokafka.world import World

if TYPE_CHECKING:  # imported with the first Fetch
    from triokafka.network.fetch_sessions.fetch_context import FetchContext
    from triokafka.network.fetch_sessions.fetch_session import WantedPartition

logger = logging.getLogger(__name__)

_COLD_READS: Final = 8
"""How many times a fetch loads data into the page cache before it blocks for the rest."""
_ALL_REST: Final = ("all partitions rest", -1)
"""The purgatory key of consumers' fetches whose partitions all rest. Nothing checks it."""
_DAMAGES_REPORTED: Final = 100
"""The most damaged positions of one log that are reported."""


class FetchParameters(NamedTuple):
    """Parameters of a whole fetch. ``replica_id`` is -1 for a consumer.

    ``replica_epoch`` is the follower's broker epoch, -1 when it does not say (KIP-903). ``leader_only``: the client may
    not read from followers. ``rack`` is that of a consumer that reads from the nearest replica (KIP-392).
    """

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    read_committed: bool
    replica_epoch: int = -1
    leader_only: bool = True
    rack: str = ""

    @property
    def follower(self) -> bool:
        """Whether another broker fetches (0 is a valid id)."""
        return self.replica_id >= 0


class ReplicaReader:
    """Reads partitions, with an outcome per partition, so that one failure does not affect the others.

    Args:
        partition: returns a hosted partition or raises; see `PartitionOpener.partition`.
        image: returns the newest metadata that was applied.
        quota: limits the bytes for followers that are not in sync.
        selector: chooses the replica that a consumer reads from; None for the leader always.
    """

    def __init__(
        self,
        world: World,
        hosted: HostedPartitions,
        partition: Callable[[tuple[str, int]], Partition],
        image: Callable[[], MetadataImage],
        purgatory: Purgatory,
        traffic: ReplicaTraffic,
        quota: ReplicationQuota,
        selector: ReplicaSelector | None,
    ) -> None:
        self._selector = selector
        self._quota = quota
        self._world = world
        self._hosted = hosted
        self._partition = partition
        self._image = image
        self._purgatory = purgatory
        self._traffic = traffic

    async def read(
        self,
        wanted: Sequence[tuple[TopicPartition, WantedPartition]],
        parameters: FetchParameters,
        *,
        before_waiting: Callable[[], None] = lambda: None,
        has_waited: bool = False,
    ) -> tuple[dict[TopicPartition, ReadOutcome], int, bool]:
        """Read partitions in order under one byte budget. Returns outcomes, bytes read, and whether to respond
        immediately.

        The first batch of the first partition with data may exceed the limits, so that a reader always advances. The
        call waits only for data outside of the page cache: a thread loads it, and then all partitions are read again.
        With many partitions, it runs checkpoints in between.

        A follower's fetch shows its progress, and that it is alive, at the time when it arrives. ``has_waited``: the
        fetch was read before it waited for data, so this is noted already.
        """
        for _ in range(_COLD_READS):
            try:
                return await self._read(wanted, parameters, may_block=False, has_waited=has_waited)
            except ColdReadError as cold:
                before_waiting()
                await self._world.run_in_thread(cold.warm)
        # The page cache evicts the data too fast.
        return await self._read(wanted, parameters, may_block=True, has_waited=has_waited)

    async def _read(
        self,
        wanted: Sequence[tuple[TopicPartition, WantedPartition]],
        parameters: FetchParameters,
        *,
        may_block: bool,
        has_waited: bool,
    ) -> tuple[dict[TopicPartition, ReadOutcome], int, bool]:
        budget = parameters.max_bytes
        total = 0
        urgent = False
        cold: list[ColdReadError] = []
        failed: list[str] = []
        outcomes: dict[TopicPartition, ReadOutcome] = {}
        replica_id, read_committed, leader_only = (
            parameters.replica_id,
            parameters.read_committed,
            parameters.leader_only,
        )
        follower = replica_id >= 0
        work = WorkBudget() if len(wanted) > BUDGET else None
        now = self._world.now() if follower and not has_waited else None
        is_registered = follower and self._is_registered(parameters)
        quota = self._quota if follower and self._quota.is_limited else None
        select = self._selector if parameters.rack and not follower else None
        for topic_partition, request in wanted:
            if work is not None and await work.spend() and now is not None:
                now = self._world.now()
            try:
                partition = self._hosted.online.get(topic_partition) or self._partition(topic_partition)
                if follower:
                    idle = (
                        idle_follower_fetched(partition, replica_id, request, parameters.replica_epoch, now)
                        if is_registered
                        else None
                    )
                    if idle is not None:
                        outcomes[topic_partition] = idle
                        continue
                    partition.require_follower(replica_id, request.current_leader_epoch)
                without_records = quota is not None and self._holds_back(partition, replica_id)
                preferred = None
                if select is not None and partition.is_leader:
                    preferred = select(partition, request.fetch_offset, parameters.rack)
                    without_records = preferred is not None
                outcome = partition.read(
                    request.fetch_offset,
                    0 if without_records else min(budget, request.max_bytes),
                    min_one_batch=not total and not without_records,
                    follower=follower,
                    read_committed=read_committed,
                    current_leader_epoch=request.current_leader_epoch,
                    last_fetched_epoch=request.last_fetched_epoch,
                    may_block=may_block,
                    leader_only=leader_only,
                )
                if preferred is not None:
                    outcome.preferred_read_replica = preferred
                    urgent = True
                if quota is not None:
                    quota.record(topic_partition, len(outcome.records), self._world.now())
                if now is not None and outcome.diverging_epoch is None:
                    # Only after the read: an offset outside of the log, or of a diverging record, does not show the
                    # follower's progress.
                    self._hosted.follower_fetched(
                        partition,
                        replica_id,
                        request.fetch_offset,
                        log_start_offset=request.log_start_offset,
                        broker_epoch=parameters.replica_epoch,
                    )
            except ColdReadError as error:
                # The other partitions are read too, so that one thread call loads all data that fits. The size of this
                # one is unknown, so it counts with its limit.
                cold.append(error)
                budget -= request.max_bytes
                if budget <= 0:
                    break
                continue
            except errors.BrokerResponseError as error:
                outcomes[topic_partition] = self._failed_read(topic_partition, error)
                urgent = True
                failed.append(topic_partition.topic)
                continue
            except OSError as error:
                logger.error("%s: read failed: %s", topic_partition, error)
                outcomes[topic_partition] = ReadOutcome(errors.KafkaStorageError.code)
                urgent = True
                failed.append(topic_partition.topic)
                continue
            outcomes[topic_partition] = outcome
            size = len(outcome.records)
            total += size
            budget = max(budget - size, 0)
            if outcome.diverging_epoch is not None:
                urgent = True
        if cold:
            raise ColdReadError(partial(_warm, cold))
        self._traffic.fetches += len(outcomes)
        for topic in failed:
            self._traffic.unreadable(topic)
        return outcomes, total, urgent

    def delay_fetch(
        self,
        wanted: Sequence[tuple[TopicPartition, WantedPartition]],
        parameters: FetchParameters,
        session: FetchContext[ReadOutcome] | None = None,
    ) -> DelayedFetch | None:
        """Return an operation that waits until a fetch has enough data; None when it has. The caller then reads
        again.

        Args:
            session: has partitions that rest, and which the operation waits for as well when they wake.
        """
        operation = DelayedFetch(
            parameters.max_wait_ms,
            [_awaited(key, request) for key, request in wanted],
            self._partition,
            min_bytes=parameters.min_bytes,
            follower=parameters.follower,
            read_committed=parameters.read_committed,
            leader_only=parameters.leader_only,
            interrupted=self._interruption(parameters.replica_id) if parameters.follower else None,
            held_back=partial(self._is_held_back, parameters.replica_id) if parameters.follower else None,
        )
        keys: list[Hashable] = [key for key, _ in wanted]
        if parameters.follower:
            keys.append(follower_key(parameters.replica_id))
        if session is not None and session.resting:
            keys = keys or [_ALL_REST]
            session.watch(partial(self._await_also, operation))
        self._purgatory.try_complete_else_watch(operation, keys, monotonic_ms(self._world), tried=True)
        return None if operation.completed else operation

    def _await_also(self, operation: DelayedFetch, topic_partition: TopicPartition, request: WantedPartition) -> None:
        operation.await_also(_awaited(topic_partition, request))
        self._purgatory.watch_also(operation, topic_partition)

    def reads_as(self, parameters: FetchParameters) -> Hashable:
        """Return what the result of a read depends on apart from the partition; None for what changes unnoticed.

        Permissions and faults are up to the caller. See the ``reader`` of `FetchSessionCache.context_for`.
        """
        if parameters.follower:
            return (parameters.replica_id, parameters.replica_epoch) if self._is_registered(parameters) else None
        if parameters.rack and self._selector is not None:
            return None
        return parameters.read_committed, parameters.leader_only

    def rest_of(
        self,
        parameters: FetchParameters,
        topic_partition: TopicPartition,
        wanted: WantedPartition,
        outcome: ReadOutcome,
        wake: Callable[[], None],
    ) -> PartitionRest | None:
        """Begin to watch a partition if another read would find the same as ``outcome``, which has no records; see
        `partition_rest`.
        """
        partition = self._hosted.online.get(topic_partition)
        if (
            partition is None
            or outcome.high_watermark != partition.high_watermark
            or outcome.log_start_offset != partition.log.log_start_offset
            or (isinstance(wanted.topic, UUID) and wanted.topic != partition.topic_id)
        ):
            return None
        if parameters.follower:
            replica_id = parameters.replica_id
            rests = follower_rests(partition, replica_id, wanted, parameters.replica_epoch)
            return PartitionRest(partition, partition.followers[replica_id], wake) if rests else None
        rests = consumer_rests(
            partition, wanted, read_committed=parameters.read_committed, leader_only=parameters.leader_only
        )
        return PartitionRest(partition, None, wake) if rests else None

    def _is_registered(self, parameters: FetchParameters) -> bool:
        """Whether a follower's fetch is of the process that is registered now."""
        broker = self._image().brokers.get(parameters.replica_id)
        return broker is not None and broker.broker_epoch == parameters.replica_epoch

    def _is_held_back(self, replica_id: int, partition: Partition) -> bool:
        return self._quota.is_limited and self._holds_back(partition, replica_id)

    def _holds_back(self, partition: Partition, replica_id: int) -> bool:
        """Whether the quota delays the records for a follower; a follower in sync always gets them."""
        return replica_id not in partition.in_sync_replicas and self._quota.holds_back(
            partition.topic_partition, self._world.now()
        )

    def _interruption(self, replica_id: int) -> Callable[[], bool]:
        hosted, before = self._hosted, self._hosted.interruptions(replica_id)
        return lambda: hosted.interruptions(replica_id) != before

    def _failed_read(self, topic_partition: TopicPartition, error: errors.BrokerResponseError) -> ReadOutcome:
        outcome = ReadOutcome(error.code)
        partition = self._hosted.online.get(topic_partition)
        if partition is not None:
            if isinstance(error, errors.CorruptRecordError):
                self._report_damage(partition, str(error))
            if isinstance(error, errors.NotLeaderForPartitionError | errors.FencedLeaderEpochError):
                outcome.leader_hint = partition.leader_hint
        elif isinstance(error, errors.NotLeaderForPartitionError):
            known = self._image().partition(*topic_partition)
            if known is not None:
                outcome.leader_hint = LeaderHint(known.leader, known.leader_epoch)
        return outcome

    @staticmethod
    def _report_damage(partition: Partition, damage: str) -> None:
        """Log damage that a read found, once per position, since consumers fetch it repeatedly."""
        reported = partition.log.reported_damage
        if damage not in reported and len(reported) < _DAMAGES_REPORTED:
            reported.add(damage)
            logger.error(
                "%s: the log is damaged, and consumers get CORRUPT_MESSAGE: %s", partition.topic_partition, damage
            )


def _awaited(topic_partition: TopicPartition, request: WantedPartition) -> AwaitedPartition:
    return AwaitedPartition(
        topic_partition,
        request.fetch_offset,
        request.max_bytes,
        request.current_leader_epoch,
        request.last_fetched_epoch,
    )


def _warm(cold: Iterable[ColdReadError]) -> None:
    for error in cold:
        error.warm()
