"""What is behind a broker, or behind several that share it in one process: controller, logs, cleaner.

A `Broker` makes its own. Several over one `Backend` are a cluster in small: one metadata image, one log of every
partition, which all of its replicas have in common, so that leadership moves without a copy. Nothing of the network is
here.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

import trio

from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.controller import Controller
from triokafka.broker_stub.controller.metadata_log_files import PARTITION as METADATA_PARTITION
from triokafka.broker_stub.log.cleaner.log_cleaner import CleanerConfig, LogCleaner
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.log_manager import LogManager
from triokafka.broker_stub.log.log_manager_config import LogManagerConfig
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.broker_stub.metadata import MetadataDelta, MetadataImage
from triokafka.errors import ConfigurationError, KafkaError
from triokafka.structs import TopicPartition
from triokafka.world import World

if TYPE_CHECKING:
    from triokafka.broker_stub.broker import Broker

logger = logging.getLogger(__name__)

_IN_SYNC_RETRY_SECONDS: Final = 1.0
_MOVE_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
_MADE_AT_ONCE: Final = 4
"""Logs that are made on the event loop; more, in threads."""

Guard = Callable[[Callable[[], Awaitable[object]]], Awaitable[None]]


class Backend:
    """Controller, logs and cleaner of one process.

    Use: `start`, `run_tasks`, then brokers `join` and `leave`; `close` or `abandon` when all tasks are gone.

    Args:
        config: that of the broker, or what the brokers have in common.
        shared: whether several brokers use it.
    """

    def __init__(self, config: BrokerConfig, world: World, *, shared: bool = False) -> None:
        self.config = config
        self.shared = shared
        self.controller = Controller(world, config, follower=self)
        self.logs = LogManager(
            world, config.data_directories, config.topic_defaults, log_manager_config(config), listener=self
        )
        self.cleaner = LogCleaner(world, self.logs, cleaner_config(config))
        self._world = world
        self._brokers: list[Broker] = []
        self._hosting = False
        self._behind = trio.Event()

    async def start(self) -> None:
        """Lock the directories, open the metadata log and then every log.

        Raises:
            ConfigurationError, KafkaStorageError: see `LogManager.load` and `Controller.start`.
        """
        # The locks come first, so that nobody else writes the metadata log either; then the metadata, for the
        # configuration of a topic says how its logs are recovered.
        await self._world.run_in_thread(self._lock)
        directory = self.logs.data_directory(self.config.metadata_directory)
        usable = directory is not None and not directory.failure
        committed = directory.read_metadata_end() if directory is not None and usable else 0
        removed = await self.controller.start(without=self.logs.offline_directories(), committed=committed)
        self.logs.removed_topics = removed
        if directory is not None and usable:
            directory.metadata_end = self._metadata_end
        self.logs.cannot_use(self.controller.identity.failed)
        ids = self.controller.identity.directory_ids
        self.logs.directory_ids = frozenset(ids[path] for path in self.config.data_directories if path in ids)
        await self.logs.load(self.controller.image.topic_configs, self._topic_id_of)
        self._hosting = True

    def _metadata_end(self) -> int:
        return self.controller.metadata_end

    def _lock(self) -> None:
        """Lock the directories. Where logs are, the metadata log must be, too: a new one would know none of them.

        Nor may another directory have one, as Apache Kafka has it: log.dirs were put in another order, or those of two
        brokers together, and all that the other one says of topics and configurations would be lost.
        """
        self.logs.lock()
        directory = self.config.metadata_directory.rstrip("/")
        unusable = self.logs.offline_directories()
        for path in self.config.data_directories:
            other = path.rstrip("/")
            if (
                other != directory
                and path not in unusable
                and self._world.storage.is_dir(f"{other}/{METADATA_PARTITION}")
            ):
                raise ConfigurationError(
                    f"{other} has {METADATA_PARTITION}, a metadata log, but that of this broker is in {directory}: "
                    f"name {other} as metadata.log.dir, or first in log.dirs; or, if it is not wanted any more, move "
                    f"{other}/{METADATA_PARTITION} away."
                )
        if self._world.storage.is_dir(f"{directory}/{METADATA_PARTITION}"):
            return
        found = self.logs.find_folders() if directory not in unusable else []
        if found:
            raise ConfigurationError(
                f"{directory} has no {METADATA_PARTITION}, the metadata log, but there are logs of topics, as in "
                f"{found[0]}: they would all be put aside. Put the data directory with the metadata log back, as the "
                f"first in log.dirs or as metadata.log.dir; or move the logs away, to begin without them."
            )

    def _topic_id_of(self, topic_partition: TopicPartition) -> UUID | None:
        topic = self.controller.image.topics.get(topic_partition.topic)
        return topic.topic_id if topic is not None and topic_partition.partition in topic.partitions else None

    def run_tasks(self, nursery: trio.Nursery, guard: Guard) -> None:
        """Start the work in the background, each part within ``guard``."""
        nursery.start_soon(guard, self.controller.run)
        nursery.start_soon(guard, self.logs.run)
        nursery.start_soon(guard, self.logs.run_until_all_offline)
        if self.config.log_cleaner_enable:
            nursery.start_soon(guard, self.cleaner.run)
        nursery.start_soon(guard, self._checkpoint_high_watermarks)
        if self.shared:
            self.controller.publisher.subscribe(self._followed)
            nursery.start_soon(guard, self._keep_in_sync)

    def join(self, broker: Broker) -> None:
        """A broker serves partitions of these logs from now on."""
        self._brokers.append(broker)

    def leave(self, broker: Broker) -> None:
        """A broker has stopped; one that never joined is fine."""
        if broker in self._brokers:
            self._brokers.remove(broker)

    async def close(self) -> None:
        """Write checkpoints and logs, and mark the directories as cleanly closed. Not cancelled."""
        with trio.CancelScope(shield=True):
            self._write_high_watermarks()
            await self.controller.close()
            await self.logs.close()  # last: with it go the locks of the directories

    async def abandon(self) -> None:
        """Leave everything as a process that is killed does."""
        with trio.CancelScope(shield=True):
            await self.controller.close()
            self.logs.abandon()

    def clock_jumped(self) -> None:
        """The world's clock was put forward: here and at every broker, look at once for what is due now.

        Groups' deadlines and waiting requests end, connections that were idle for too long are closed, retention,
        flushes and compaction that time decides happen soon. Brokers keep their registrations.
        """
        for broker in self._brokers:
            broker.look_at_clock()
        self.logs.clock_jumped()
        self.cleaner.clock_jumped()
        self.controller.clock_jumped()

    # What logs and controller tell

    def _followed(self, delta: MetadataDelta, image: MetadataImage) -> None:
        # The brokers that share this image have applied it when it was published: nobody need wait for their word.
        self.controller.state.cluster.all_follow(image.offset)
        if delta.changed_brokers or any(set(now.isr) < set(now.replicas) for _, _, now in delta.changed_partitions()):
            self._behind.set()

    async def _keep_in_sync(self) -> None:
        """Replicas that are one log are all in sync as soon as their brokers are up."""
        while True:
            await self._behind.wait()
            self._behind = trio.Event()
            try:
                await self.controller.expand_in_sync_sets()
            except KafkaError as error:
                logger.error("in-sync sets could not be changed, trying again: %s", error)
                # Nobody else says when it can be done: when there is room on the disk again, for instance.
                await trio.sleep(_IN_SYNC_RETRY_SECONDS)
                self._behind.set()

    async def prepare(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Make the logs of new partitions in threads, where they are more than a few, and have them opened in turns."""
        wanted: dict[TopicPartition, tuple[UUID, LogConfig]] = {}
        hosts: list[tuple[Broker, list[TopicPartition]]] = []
        try:
            for broker in self._brokers:
                local = delta.local_changes(broker.node_id)
                theirs: list[TopicPartition] = []
                hosts.append((broker, theirs))
                for states in (local.leaders, local.followers):
                    for topic_partition, (topic_id, _) in states.items():
                        if self.logs.get(topic_partition) is None:
                            config = self.logs.config_for(image.topic_configs(topic_partition.topic))
                            if not broker.replicas.may_be_made(topic_partition, topic_id, config):
                                continue
                            wanted[topic_partition] = topic_id, config
                            theirs.append(topic_partition)
        except KafkaError as error:
            logger.error("logs cannot be made ahead: %s", error)
            return
        if len(wanted) > _MADE_AT_ONCE:
            await self.logs.prepare_new_logs(wanted)
            for broker, theirs in hosts:
                await broker.replicas.open_ahead(theirs, image)

    async def settle(self) -> None:
        """See `LogManager.settle`."""
        await self.logs.settle()

    def log_flushed(self, topic_partition: TopicPartition) -> None:
        """See `LogListener`."""
        for broker in self._brokers:
            broker.replicas.flushed(topic_partition)

    def logs_offline(self, topic_partitions: Sequence[TopicPartition], reason: str) -> None:
        """See `LogListener`."""
        for broker in self._brokers:
            broker.follower.logs_offline(topic_partitions, reason)

    def log_moved(self, topic_partition: TopicPartition, log: PartitionLog) -> None:
        """See `LogListener`."""
        for broker in self._brokers:
            broker.replicas.log_moved(topic_partition, log)

    def high_watermark_of(self, topic_partition: TopicPartition) -> int | None:
        """See `LogListener`."""
        hosted = (broker.replicas.find(*topic_partition) for broker in self._brokers)
        return max((partition.high_watermark for partition in hosted if partition is not None), default=None)

    async def _checkpoint_high_watermarks(self) -> None:
        interval = self.config.replica_high_watermark_checkpoint_interval_ms / 1000
        while True:
            await trio.sleep(interval)
            self._write_high_watermarks()

    def _write_high_watermarks(self) -> None:
        if not self._hosting:  # the directories may be another broker's
            return
        found: dict[TopicPartition, int] = {}
        for broker in self._brokers:
            for topic_partition, offset in broker.replicas.high_watermarks().items():
                found[topic_partition] = max(offset, found.get(topic_partition, 0))
        try:
            self.logs.checkpoint_high_watermarks(found)
        except KafkaError as error:
            logger.error("high watermarks were not written: %s", error)


def move_rate(image: MetadataImage, node_id: int) -> float:
    """How many bytes a second may be moved between data directories, which is only configured while a broker runs."""
    for broker_id in (node_id, None):
        value = image.broker_configs(broker_id).get(_MOVE_RATE, "")
        if value.isdecimal():
            return float(value)
    return float("inf")


def cleaner_config(config: BrokerConfig) -> CleanerConfig:
    """The options of the cleaner."""
    return CleanerConfig(
        threads=config.log_cleaner_threads,
        backoff_ms=config.log_cleaner_backoff_ms,
        dedupe_buffer_size=config.log_cleaner_dedupe_buffer_size,
        io_buffer_size=config.log_cleaner_io_buffer_size,
        io_buffer_load_factor=config.log_cleaner_io_buffer_load_factor,
        io_max_bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
    )


def log_manager_config(config: BrokerConfig) -> LogManagerConfig:
    """The options of the logs' background work."""
    return LogManagerConfig(
        initial_task_delay_ms=config.log_initial_task_delay_ms,
        retention_check_interval_ms=config.log_retention_check_interval_ms,
        flush_scheduler_interval_ms=config.log_flush_scheduler_interval_ms,
        recovery_point_checkpoint_interval_ms=config.log_flush_offset_checkpoint_interval_ms,
        log_start_offset_checkpoint_interval_ms=config.log_flush_start_offset_checkpoint_interval_ms,
        producer_expiration_ms=config.producer_id_expiration_ms,
        producer_expiration_check_interval_ms=config.producer_id_expiration_check_interval_ms,
        recovery_threads_per_data_dir=config.num_recovery_threads_per_data_dir,
        moves_at_once=config.num_replica_alter_log_dirs_threads,
    )
