"""All partitions of one broker: following the metadata, appending, reading."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import trio

from triokafka import errors
from triokafka.broker_stub.log.log_manager import LogManager
from triokafka.broker_stub.purgatory.delayed_operation import PURGE_INTERVAL, Purgatory, monotonic_ms
from triokafka.broker_stub.replica.alter_partition_sender import (
    AlterPartitionGateway,
    AlterPartitionSender,
    PendingProposals,
)
from triokafka.broker_stub.replica.delete_records import (
    DeleteOutcome,
    delete_records_before,
    deleted_everywhere,
)
from triokafka.broker_stub.replica.delta_applier import DeltaApplier
from triokafka.broker_stub.replica.fetcher.fetcher_manager import FetcherManager
from triokafka.broker_stub.replica.full_disks import FullDisks
from triokafka.broker_stub.replica.hosted_partitions import HostedPartitions
from triokafka.broker_stub.replica.lost_ends import LostEnds
from triokafka.broker_stub.replica.partition import Partition
from triokafka.broker_stub.replica.partition_opener import PartitionOpener
from triokafka.broker_stub.replica.partitions_operation import PartitionsOperation
from triokafka.broker_stub.replica.replica_appender import ReplicaAppender
from triokafka.broker_stub.replica.replica_listener import ReplicaListener
from triokafka.broker_stub.replica.replica_reader import ReplicaReader
from triokafka.broker_stub.replica.replica_selector import RACK_AWARE, RackAwareSelector
from triokafka.broker_stub.replica.replica_traffic import ReplicaTraffic
from triokafka.broker_stub.replica.replication_quota import ReplicationQuota
from triokafka.broker_stub.replica.unreadable_replicas import UnreadableReplicas
from triokafka.broker_stub.work_budget import WorkBudget
from triokafka.structs import TopicPartition
from triokafka.topic_names import INTERNAL_TOPICS
from triokafka.world import World


class ReplicaManager:
    """The partitions that this broker hosts.

    A facade: `DeltaApplier` follows the metadata, `PartitionOpener` opens logs and looks partitions up,
    `ReplicaAppender` and `ReplicaReader` do the work of Produce and Fetch requests, and `HostedPartitions` has the
    partitions and the requests that wait for them.

    Args:
        listener: receives new high watermarks, and partitions that are online again.
        produce_purge_interval, fetch_purge_interval: see `Purgatory` (``producer.purgatory.purge.interval.requests``
            and its sibling).
        delete_purge_interval: the same for DeleteRecords requests.
        lag_ms: ``replica.lag.time.max.ms``.
        quota_windows: ``replication.quota.window.num``.
        quota_window_seconds: ``replication.quota.window.size.seconds``.
        selector_class: ``replica.selector.class``.
        rack: ``broker.rack``.
        resign: gives up the leaderships of this broker; see `BrokerLifecycle.resign`.
    """

    def __init__(
        self,
        node_id: int,
        logs: LogManager,
        world: World,
        *,
        listener: ReplicaListener | None = None,
        produce_purge_interval: int = PURGE_INTERVAL,
        fetch_purge_interval: int = PURGE_INTERVAL,
        delete_purge_interval: int = 1,
        lag_ms: int = 30_000,
        quota_windows: int = 11,
        quota_window_seconds: float = 1,
        selector_class: str | None = None,
        rack: str | None = None,
        resign: Callable[[], bool] = lambda: False,
    ) -> None:
        now_ms = monotonic_ms(world)
        self.produce_purgatory = Purgatory("Produce", now_ms=now_ms, purge_interval=produce_purge_interval)
        self.fetch_purgatory = Purgatory("Fetch", now_ms=now_ms, purge_interval=fetch_purge_interval)
        self.delete_purgatory = Purgatory("DeleteRecords", now_ms=now_ms, purge_interval=delete_purge_interval)
        self.traffic = ReplicaTraffic()
        self._world = world
        full_disks = FullDisks(node_id, lambda: self._opener.image, resign)
        unreadable = UnreadableReplicas(node_id, lambda: self._opener.image, resign, world.now)
        self.reading_failed = unreadable.reading_failed
        self.proposals = PendingProposals(node_id)
        self._proposal_sender = AlterPartitionSender(self.proposals)
        self._hosted = hosted = HostedPartitions(
            self.produce_purgatory,
            self.fetch_purgatory,
            self.delete_purgatory,
            listener,
            world.now,
            self._proposal_sender.submit,
            full_disks.append_failed,
        )
        self.find = hosted.find
        self.high_watermarks = hosted.high_watermarks
        self.appended = hosted.appended
        self.flushed = hosted.flushed
        self.log_moved = hosted.log_moved
        self.shrink_interval = lag_ms / 2000
        leader_quota, follower_quota = (
            ReplicationQuota(side, node_id, windows=quota_windows, window_seconds=quota_window_seconds)
            for side in ("leader", "follower")
        )
        self.fetchers = fetchers = FetcherManager(node_id, world, hosted, self.traffic, follower_quota)
        self._opener = opener = PartitionOpener(
            node_id,
            logs,
            hosted,
            listener,
            now=world.now,
            lag_seconds=lag_ms / 1000,
            follow=fetchers.follow,
            lost_ends=LostEnds(node_id, lambda: self._opener.image, resign, world.now),
        )
        self.partition = opener.partition
        self.is_offline = opener.is_offline
        self.check_online = opener.check_online
        self.open_ahead = opener.open_ahead
        self.may_be_created = opener.may_be_created
        self.retry_offline = opener.retry_offline
        self.replace_lost_ends = opener.replace_lost_ends
        applier = DeltaApplier(node_id, logs, hosted, opener, fetchers, (leader_quota, follower_quota))
        self.apply = applier.apply
        self.reconfigure_all = applier.reconfigure_all
        appender = ReplicaAppender(world, hosted, opener.partition, self.produce_purgatory, self.traffic)
        self.batches_to_prevalidate = appender.batches_to_prevalidate
        self.append = appender.append
        self.append_internal = appender.append_internal
        self.delay_produce = appender.delay_produce
        self.reader = reader = ReplicaReader(
            world,
            hosted,
            opener.partition,
            lambda: opener.image,
            self.fetch_purgatory,
            self.traffic,
            leader_quota,
            RackAwareSelector(rack, self._rack_of) if selector_class == RACK_AWARE else None,
        )
        self.read = reader.read
        self.delay_fetch = reader.delay_fetch
        self.reads_as = reader.reads_as
        self.rest_of = reader.rest_of

    def __len__(self) -> int:
        return len(self._hosted.online)

    @property
    def offline(self) -> int:
        """The number of partitions whose logs are offline."""
        return len(self._hosted.failed)

    def partitions(self) -> Iterable[Partition]:
        """Every partition that is online."""
        return self._hosted.online.values()

    def _rack_of(self, broker_id: int) -> str | None:
        broker = self._opener.image.brokers.get(broker_id)
        return None if broker is None or broker.fenced else broker.rack

    def delete_records_before(self, topic_partition: TopicPartition, offset: int) -> int:
        """See `delete_records.delete_records_before`; completes fetches that wait on the partition.

        `delay_delete` then waits until the followers have deleted the records too.
        """
        if topic_partition.topic in INTERNAL_TOPICS:
            raise errors.InvalidTopicError(f"records of the internal topic {topic_partition.topic} cannot be deleted")
        target = delete_records_before(self.partition(topic_partition), offset)
        self.fetch_purgatory.check_and_complete(topic_partition)
        return target

    def delay_delete(
        self, outcomes: Mapping[TopicPartition, DeleteOutcome], timeout_ms: int
    ) -> PartitionsOperation[DeleteOutcome] | None:
        """Return an operation that waits until every replica has deleted the records; None when they have."""
        pending = [key for key, outcome in outcomes.items() if not outcome.error_code]
        if not pending:
            return None
        operation = PartitionsOperation(max(timeout_ms, 0), outcomes, self.partition, deleted_everywhere)
        self.delete_purgatory.try_complete_else_watch(operation, pending, monotonic_ms(self._world))
        return None if operation.completed else operation

    def logs_offline(self, topic_partitions: Sequence[TopicPartition], reason: str) -> None:
        """Stop using and replicating logs that are offline; see `HostedPartitions.logs_offline`."""
        self.fetchers.remove(topic_partitions)
        self._hosted.logs_offline(topic_partitions, reason)

    async def run_in_sync_sets(self, gateway: AlterPartitionGateway, broker_epoch: Callable[[], int]) -> None:
        """Send changes of in-sync sets to the controller, and remove lagging followers, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._proposal_sender.run, gateway, broker_epoch, self._hosted.isr_changed)
            nursery.start_soon(self._shrink_periodically)

    async def _shrink_periodically(self) -> None:
        while True:
            await trio.sleep(self.shrink_interval)
            budget = WorkBudget()
            for partition in list(self._hosted.online.values()):
                if partition.followers:
                    self._hosted.shrink_lagging(partition)
                await budget.spend()

    def clock_jumped(self) -> None:
        """Expire delayed operations after a jump of the world's clock."""
        now_ms = monotonic_ms(self._world)
        self.produce_purgatory.advance(now_ms)
        self.fetch_purgatory.advance(now_ms)
        self.delete_purgatory.advance(now_ms)

    def shut_down(self) -> None:
        """Complete all waiting requests, so that their handlers respond and end."""
        self.produce_purgatory.complete_all()
        self.fetch_purgatory.complete_all()
        self.delete_purgatory.complete_all()
