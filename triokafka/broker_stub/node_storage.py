"""The data directories of a node: its logs and the cleaner, for the broker that hosts partitions in them.

`NodeStorage` reports changes of logs to the broker, and creates logs ahead of a change of the metadata. It uses no
network.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol
from uuid import UUID

import trio

from triokafka.broker_stub.config import BrokerConfig
from triokafka.broker_stub.log.cleaner.log_cleaner import LogCleaner
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.log_manager import LogManager
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.broker_stub.log_options import cleaner_config, log_manager_config
from triokafka.broker_stub.metadata import MetadataDelta, MetadataImage
from triokafka.broker_stub.node_metadata import NodeMetadata
from triokafka.broker_stub.raft.metadata_log import PARTITION as METADATA_PARTITION
from triokafka.broker_stub.replica.replica_manager import ReplicaManager
from triokafka.broker_stub.work_budget import WorkBudget
from triokafka.errors import ConfigurationError, KafkaError
from triokafka.structs import TopicPartition
from triokafka.world import World

logger = logging.getLogger(__name__)

_CREATED_ON_LOOP: Final = 4
"""The most new logs that are created on the event loop; more are created in threads."""


StartTask = Callable[[Callable[[], Awaitable[object]]], object]


class PartitionHost(Protocol):
    """A broker that hosts partitions of these logs."""

    @property
    def node_id(self) -> int:
        """The node's id."""

    @property
    def replicas(self) -> ReplicaManager:
        """The partitions that the node hosts."""

    def logs_offline(self, topic_partitions: Sequence[TopicPartition], reason: str) -> None:
        """Stop using logs that are offline."""


class NodeStorage:
    """The logs in the data directories of one process, and the cleaner.

    Use: `open_metadata`, `load`, `start_tasks`, then set ``host`` while a broker runs; `close` or `abandon` when all
    tasks have ended.

    Args:
        log_opened: see `LogManager.load`.
    """

    def __init__(self, config: BrokerConfig, world: World, *, log_opened: Callable[[int], None]) -> None:
        self.config = config
        self._log_opened = log_opened
        self.logs = LogManager(
            world, config.data_directories, config.topic_defaults, log_manager_config(config), listener=self
        )
        self.cleaner = LogCleaner(world, self.logs, cleaner_config(config))
        self._world = world
        self.host: PartitionHost | None = None
        """The broker to which changes of the logs are reported; None while none runs."""
        self._is_open = False

    async def open_metadata(self, metadata: NodeMetadata) -> None:
        """Lock the directories, and open the metadata log of the node.

        Raises:
            ConfigurationError, KafkaStorageError: see `LogManager.lock` and `NodeMetadata.open`.
        """
        # Lock first: no other process may write the metadata log.
        await self._world.run_in_thread(self._lock)
        directory = self.logs.data_directory(self.config.metadata_directory)
        usable = directory is not None and not directory.failure
        committed = directory.read_metadata_end() if directory is not None and usable else 0
        await metadata.open(without=self.logs.offline_directories(), committed=committed)
        if directory is not None and usable:
            directory.checkpoint_metadata_end(lambda: metadata.metadata_end)

    async def load(self, metadata: NodeMetadata) -> None:
        """Open every log, once the committed metadata is known: the configuration of a topic decides how its logs are
        recovered.

        Raises:
            KafkaStorageError: see `LogManager.load`.
        """
        loader = metadata.loader
        removed_topics = loader.removed_topics or set()
        loader.forget_removed_topics()
        identity, image = metadata.identity, metadata.image
        self.logs.cannot_use(identity.failed)
        ids = identity.directory_ids

        def topic_id_of(topic_partition: TopicPartition) -> UUID | None:
            topic = image.topics.get(topic_partition.topic)
            return topic.topic_id if topic is not None and topic_partition.partition in topic.partitions else None

        def is_replicated(topic_partition: TopicPartition) -> bool:
            state = image.partition(*topic_partition)
            return state is not None and len(state.replicas) > 1

        await self.logs.load(
            image.topic_configs,
            topic_id_of,
            is_replicated,
            self._log_opened,
            directory_ids=[ids[path] for path in self.config.data_directories if path in ids],
            removed_topics=removed_topics,
        )
        self._is_open = True

    def _lock(self) -> None:
        """Lock the directories, and check that the metadata log is where the configuration says.

        Directories with logs of topics need their metadata log: a new one would know none of these topics. As in Apache
        Kafka, no other directory may have a metadata log: then log.dirs were reordered, or those of two brokers mixed,
        and the topics and configurations in the other metadata log would be lost.
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
                    f"name {other} as metadata.log.dir, or first in log.dirs; or, if it is no longer needed, move "
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

    def start_tasks(self, start: StartTask) -> None:
        """Start the work in the background, each part with ``start``."""
        start(self.logs.run)
        start(self.logs.run_until_all_offline)
        if self.config.log_cleaner_enable:
            start(self.cleaner.run)
        start(self._checkpoint_high_watermarks)

    async def close(self) -> None:
        """Write checkpoints and logs, and mark the directories as cleanly closed. Not cancelled."""
        with trio.CancelScope(shield=True):
            await self.logs.close()

    def abandon(self) -> None:
        """Leave the logs as a process that is killed does."""
        self.logs.abandon()

    def clock_jumped(self) -> None:
        """Process the deadlines that a jump of the world's clock has passed."""
        self.logs.clock_jumped()
        self.cleaner.clock_jumped()

    # The follower of the metadata (`MetadataFollower`)

    async def prepare(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Create the logs of new partitions in threads where they are many, before the change is published."""
        host = self.host
        if host is None:
            return
        wanted: dict[TopicPartition, tuple[UUID, LogConfig]] = {}
        budget = WorkBudget()
        try:
            local = delta.local_changes(host.node_id)
            for states in (local.leaders, local.followers):
                for topic_partition, (topic_id, state) in states.items():
                    if self.logs.get(topic_partition) is None:
                        config = self.logs.config_for(image.topic_configs(topic_partition.topic))
                        if host.replicas.may_be_created(topic_partition, topic_id, state, config):
                            wanted[topic_partition] = topic_id, config
                    await budget.spend()
        except KafkaError as error:
            logger.error("New logs cannot be created in advance; they are created one by one: %s", error)
            return
        if len(wanted) > _CREATED_ON_LOOP:
            await self.logs.prepare_new_logs(wanted)
            await host.replicas.open_ahead(wanted, image)

    async def settle(self) -> None:
        """See `LogManager.settle`."""
        await self.logs.settle()

    # The logs' listener (`LogListener`)

    def log_flushed(self, topic_partition: TopicPartition) -> None:
        """See `LogListener`."""
        if self.host is not None:
            self.host.replicas.flushed(topic_partition)

    def logs_offline(self, topic_partitions: Sequence[TopicPartition], reason: str) -> None:
        """See `LogListener`."""
        if self.host is not None:
            self.host.logs_offline(topic_partitions, reason)

    def log_moved(self, topic_partition: TopicPartition, log: PartitionLog) -> None:
        """See `LogListener`."""
        if self.host is not None:
            self.host.replicas.log_moved(topic_partition, log)

    def high_watermark_of(self, topic_partition: TopicPartition) -> int | None:
        """See `LogListener`."""
        partition = None if self.host is None else self.host.replicas.find(*topic_partition)
        return None if partition is None else partition.high_watermark

    async def _checkpoint_high_watermarks(self) -> None:
        interval = self.config.replica_high_watermark_checkpoint_interval_ms / 1000
        while True:
            await trio.sleep(interval)
            self.write_high_watermarks()

    def write_high_watermarks(self) -> None:
        """Write the checkpoints of high watermarks."""
        if not self._is_open:  # another broker may own the directories
            return
        try:
            self.logs.checkpoint_high_watermarks({} if self.host is None else self.host.replicas.high_watermarks())
        except KafkaError as error:
            logger.error("replication-offset-checkpoint cannot be written; the next checkpoint tries again: %s", error)
