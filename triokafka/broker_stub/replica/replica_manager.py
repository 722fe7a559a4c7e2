"""All partitions of one broker: following the metadata, appending, reading."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from triokafka import errors
from triokafka.broker_stub.log.log_manager import LogManager
from triokafka.broker_stub.purgatory.delayed_operation import PURGE_INTERVAL, Purgatory, monotonic_ms
from triokafka.broker_stub.replica.delta_applier import DeltaApplier
from triokafka.broker_stub.replica.hosted_partitions import HostedPartitions
from triokafka.broker_stub.replica.partition import Partition
from triokafka.broker_stub.replica.partition_opener import PartitionOpener
from triokafka.broker_stub.replica.replica_appender import ReplicaAppender
from triokafka.broker_stub.replica.replica_listener import ReplicaListener
from triokafka.broker_stub.replica.replica_reader import ReplicaReader
from triokafka.broker_stub.replica.traffic import Traffic
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
        shares_logs: other brokers use the same logs. Every replica of a partition is then the one log, so that all are
            in sync, and a log is deleted with its topic, not with a replica.
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
        shares_logs: bool = False,
    ) -> None:
        now_ms = monotonic_ms(world)
        self.produce_purgatory = Purgatory("Produce", now_ms=now_ms, purge_interval=produce_purge_interval)
        self.fetch_purgatory = Purgatory("Fetch", now_ms=now_ms, purge_interval=fetch_purge_interval)
        self.traffic = Traffic()
        self._world = world
        self._hosted = hosted = HostedPartitions(self.produce_purgatory, self.fetch_purgatory, listener)
        self.find = hosted.find
        self.high_watermarks = hosted.high_watermarks
        self.appended = hosted.appended
        self.flushed = hosted.flushed
        self.log_moved = hosted.log_moved
        self.logs_offline = hosted.logs_offline
        self._opener = opener = PartitionOpener(node_id, logs, hosted, listener, shares_logs=shares_logs)
        self.partition = opener.partition
        self.is_offline = opener.is_offline
        self.check_online = opener.check_online
        self.open_ahead = opener.open_ahead
        self.may_be_made = opener.may_be_made
        self.retry_offline = opener.retry_offline
        applier = DeltaApplier(node_id, logs, hosted, opener, shares_logs=shares_logs)
        self.apply = applier.apply
        self.reconfigure_all = applier.reconfigure_all
        appender = ReplicaAppender(world, hosted, opener.partition, self.produce_purgatory, self.traffic)
        self.batches_to_prevalidate = appender.batches_to_prevalidate
        self.append = appender.append
        self.append_internal = appender.append_internal
        self.delay_produce = appender.delay_produce
        reader = ReplicaReader(
            world, hosted, opener.partition, lambda: opener.image, self.fetch_purgatory, self.traffic
        )
        self.read = reader.read
        self.delay_fetch = reader.delay_fetch

    def __len__(self) -> int:
        return len(self._hosted.online)

    def partitions(self) -> Iterable[Partition]:
        """Every partition that is online."""
        return self._hosted.online.values()

    @property
    def missed_directories(self) -> tuple[UUID, ...]:
        """See `PartitionOpener.missed_directories`."""
        return self._opener.missed_directories

    def delete_records_before(self, topic_partition: TopicPartition, offset: int) -> int:
        """See `Partition.delete_records_before`; completes fetches that wait on the partition."""
        if topic_partition.topic in INTERNAL_TOPICS:
            raise errors.InvalidTopicError(f"records of the internal topic {topic_partition.topic} cannot be deleted")
        low_watermark = self.partition(topic_partition).delete_records_before(offset)
        self.fetch_purgatory.check_and_complete(topic_partition)
        return low_watermark

    def clock_jumped(self) -> None:
        """Expire delayed operations after a jump of the world's clock."""
        now_ms = monotonic_ms(self._world)
        self.produce_purgatory.advance(now_ms)
        self.fetch_purgatory.advance(now_ms)

    def shut_down(self) -> None:
        """Complete all waiting requests, so that their handlers respond and end."""
        self.produce_purgatory.complete_all()
        self.fetch_purgatory.complete_all()
