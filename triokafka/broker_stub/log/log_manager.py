"""All logs of a broker: opening, creating, moving, deleting and closing them, and their background work."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final
from uuid import UUID

import trio

from triokafka.broker_stub.log.checkpoints import HIGH_WATERMARK_CHECKPOINT
from triokafka.broker_stub.log.clean_shutdown import mark_clean_stop
from triokafka.broker_stub.log.cleaner.cleaning_progress import CleaningProgress
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.flush_threads import FlushThreads
from triokafka.broker_stub.log.future_log_promotion import FutureLogPromotion
from triokafka.broker_stub.log.high_watermark_checkpoint import checkpoint_high_watermarks
from triokafka.broker_stub.log.log_creator import LogCreator
from triokafka.broker_stub.log.log_deletion import LogDeletion
from triokafka.broker_stub.log.log_directories import HostedLog, LogDirectories
from triokafka.broker_stub.log.log_directory import LogDirectory
from triokafka.broker_stub.log.log_discovery import TopicIds
from triokafka.broker_stub.log.log_listener import LogListener
from triokafka.broker_stub.log.log_maintenance import LogMaintenance
from triokafka.broker_stub.log.log_manager_config import LogManagerConfig
from triokafka.broker_stub.log.log_mover import LogMover
from triokafka.broker_stub.log.log_opener import LogOpener
from triokafka.broker_stub.log.log_startup import LogStartup
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.broker_stub.log.pending_moves import PendingMoves
from triokafka.errors import KafkaError, KafkaStorageError
from triokafka.structs import TopicPartition
from triokafka.world import World

logger = logging.getLogger(__name__)

TopicConfigs = Callable[[str], Mapping[str, str | None]]

_CLOSED_AT_ONCE: Final = 8


class LogManager:
    """The logs of one broker.

    A facade: `LogDirectories` has the logs, `LogStartup` opens them at the start, `LogCreator` makes new ones,
    `LogDeletion` deletes them, `LogMover` moves them between data directories, and `LogMaintenance` does the background
    work. ``cleaning`` is the state that the log cleaner shares with them.

    Methods that are not coroutines never wait.

    Args:
        directories: the data directories (``log.dirs``).
        defaults: the configuration of topics without their own; `reconfigure` replaces it.
        listener: receives flushes, failures and moves, and returns the high watermarks up to which retention may
            delete. If None, retention may delete up to the end of a log.

    Raises:
        ConfigurationError: ``directories`` is empty or names a directory twice.
    """

    def __init__(
        self,
        world: World,
        directories: Sequence[str],
        defaults: LogConfig | None = None,
        config: LogManagerConfig | None = None,
        *,
        listener: LogListener | None = None,
    ) -> None:
        config = config or LogManagerConfig()
        threads = config.recovery_threads_per_data_dir
        files_per_thread = max(1, config.max_open_files // 8)
        self.defaults = defaults or LogConfig()
        self.listener = listener
        self._broker_epoch = -1
        self.directory_ids: frozenset[UUID] = frozenset()
        """The ids of the usable data directories in ``meta.properties``."""
        self._world = world
        moves = PendingMoves()
        self._directories = registry = LogDirectories(
            world, directories, max_open_files=config.max_open_files, moves=moves, listener=listener
        )
        self.cleaning = CleaningProgress(world.storage, registry)
        self._scheduler = FlushThreads(world, flushed=registry.log_flushed, failed=registry.flush_failed)
        self._opener = LogOpener(
            world,
            registry,
            self._scheduler,
            self.cleaning,
            producer_expiration_ms=config.producer_expiration_ms,
        )
        self._deletion = LogDeletion(world, registry, self.cleaning)
        promotion = FutureLogPromotion(world, registry, self._opener, self._deletion, self.cleaning, moves, listener)
        self.mover = LogMover(world, registry, moves, promotion, moves_at_once=config.moves_at_once or len(directories))
        self._startup = LogStartup(
            world,
            registry,
            self._opener,
            self._deletion,
            self.mover,
            threads=threads,
            max_open_files=files_per_thread,
        )
        self._creator = LogCreator(
            world, registry, self._opener, self._deletion, threads=threads, max_open_files=files_per_thread
        )
        self._maintenance = LogMaintenance(
            world, registry, self._opener, self._deletion, self._scheduler, self.cleaning, config, listener
        )
        self.checked_for_gaps = self._maintenance.checked_for_gaps
        """Set by `run` once it has checked for missing offsets between segments."""
        self.lock = registry.lock
        self.offline_directories = registry.offline
        self.flush_times = self._scheduler.durations
        self.data_directory = registry.get
        self.find_folders = registry.find_folders
        self.run_until_all_offline = registry.run_until_all_offline
        self.get = registry.log
        self.is_offline = registry.is_offline
        self.strays = self._deletion.strays
        self.clock_jumped = self._maintenance.clock_jumped
        self.apply_retention = self._maintenance.apply_retention
        self.apply_retention_to = self._maintenance.apply_retention_to
        self.remove_deleted = self._maintenance.remove_deleted
        self.flush_due = self._maintenance.flush_due
        self.flush_sealed = self._maintenance.flush_sealed
        self.flush_sealed_of = self._maintenance.flush_sealed_of

    @property
    def cordoned(self) -> frozenset[str]:
        """The paths of the directories that get no new logs, without trailing slashes (KIP-1066)."""
        return self._directories.cordoned

    @property
    def previous_broker_epoch(self) -> int:
        """The broker epoch at the last stop, if that was clean in every directory; otherwise -1 (KIP-966)."""
        epochs = {directory.clean_broker_epoch for directory in self._directories.online()}
        return epochs.pop() if len(epochs) == 1 else -1

    @property
    def producer_expiration_ms(self) -> int:
        """How long the state of an inactive producer is kept (``producer.id.expiration.ms``)."""
        return self._opener.producer_expiration_ms

    def reconfigure(self, *, defaults: LogConfig, producer_expiration_ms: int) -> None:
        """Use another configuration: of topics without their own, and of producers."""
        self.defaults = defaults
        self._opener.producer_expiration_ms = producer_expiration_ms

    def cordon(self, paths: Collection[str]) -> None:
        """Create new logs only in directories other than ``paths`` from now on (KIP-1066)."""
        self._directories.cordoned = frozenset(path.rstrip("/") or "/" for path in paths)

    def registered(self, broker_epoch: int) -> None:
        """Use the epoch of the broker's registration in the clean-shutdown marker."""
        self._broker_epoch = broker_epoch

    def forget_removed_topics(self) -> None:
        """Forget the removed topics after the first image: their logs are deleted."""
        self._deletion.removed_topics = frozenset()

    # -- start and stop

    def start(self, topic_configs: TopicConfigs | None = None, topic_id_of: TopicIds | None = None) -> None:
        """Run `lock` and `load` in the calling thread."""
        self.lock()
        self._startup.load_now(partial(self._config_of, topic_configs), topic_id_of)

    def cannot_use(self, failed: Mapping[str, OSError]) -> None:
        """Take offline, before `load`, the data directories in which a read or write failed."""
        for path, error in failed.items():
            directory = self.data_directory(path)
            if directory is not None:
                self._directories.fail(directory, error)

    async def load(
        self,
        topic_configs: TopicConfigs | None = None,
        topic_id_of: TopicIds | None = None,
        is_replicated: Callable[[TopicPartition], bool] = lambda topic_partition: False,
        log_opened: Callable[[int], None] = lambda count: None,
        *,
        directory_ids: Collection[UUID] = (),
        removed_topics: Collection[UUID] = (),
    ) -> None:
        """Open all logs in threads, several in parallel, with recovery after a crash.

        If cancelled, it waits for the logs that are being opened and opens no others.

        Args:
            topic_configs: returns the configuration overrides of a topic.
            topic_id_of: returns the topic id of a partition, None for an unknown partition. If a partition has two
                logs, the one of another topic is put aside.
            is_replicated: returns whether other brokers have replicas of a partition; see `PartitionLog.open`.
            log_opened: called for each log, in the thread that opened it, with the number of all logs.
            directory_ids: the ids of the usable data directories.
            removed_topics: the ids of deleted topics, until `forget_removed_topics`; see `LogDeletion`.

        Raises:
            ConfigurationError: a partition has logs in two directories, and the topic ids do not decide between them;
                or no directory is usable. All locks are released.
            KafkaStorageError: no directory is usable. A single log that cannot be opened goes offline; `create` raises
                the reason.
        """
        self.directory_ids = frozenset(directory_ids)
        self._deletion.removed_topics = frozenset(removed_topics)
        await self._startup.load(partial(self._config_of, topic_configs), topic_id_of, is_replicated, log_opened)

    def _config_of(self, topic_configs: TopicConfigs | None, topic: str) -> LogConfig:
        return self.config_for(topic_configs(topic) if topic_configs is not None else {})

    async def run(self) -> None:
        """Do the background work until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._scheduler.run)
            nursery.start_soon(self.mover.run)
            nursery.start_soon(self._directories.report_offline)
            nursery.start_soon(self._maintenance.run)

    async def close(self) -> None:
        """Flush and close all logs, write the checkpoints, mark each directory as cleanly closed, and unlock.

        A directory with a log that cannot be closed gets no marker and is recovered at the next start. Shielded from
        cancellation.
        """
        registry = self._directories
        if not registry.started:
            registry.abandon()  # only the locks are held
            return
        registry.started = False
        failed = {directory for directory in registry.all() if directory.offline or directory.failure}
        # Logs are synced in parallel, since disks process several requests in parallel.
        left = list(registry.hosted.items())
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                for _ in range(min(_CLOSED_AT_ONCE, len(left))):
                    nursery.start_soon(self._close_logs, left, failed)
            for directory in registry.online():
                try:
                    directory.checkpoint()
                    if directory not in failed:
                        mark_clean_stop(self._world.storage, directory.path, self._broker_epoch)
                except (KafkaError, OSError) as error:
                    logger.error(
                        "%s: clean shutdown failed, so its logs are recovered at the next start: %s",
                        directory.path,
                        error,
                    )
        registry.abandon()

    async def _close_logs(self, left: list[tuple[TopicPartition, HostedLog]], failed: set[LogDirectory]) -> None:
        while left:
            topic_partition, hosted = left.pop()
            try:
                hosted.log.check_files()
                job = hosted.log.begin_close()
                if job is not None:
                    await self._world.run_in_thread(job.run)
                    hosted.log.flushed(job)
            except (KafkaError, OSError) as error:
                logger.error("%s: closing the log failed; the next start recovers it: %s", topic_partition, error)
                failed.add(hosted.directory)
            hosted.log.abandon()

    def abandon(self) -> None:
        """Abandon all logs as in a crash: flush nothing, write no clean-shutdown marker, and release the locks."""
        self._directories.started = False
        self._directories.abandon()

    # -- logs

    def all(self) -> dict[TopicPartition, PartitionLog]:
        """All usable logs."""
        return {topic_partition: hosted.log for topic_partition, hosted in self._directories.hosted.items()}

    def topic_id_of(self, topic_partition: TopicPartition) -> UUID | None:
        """Return the topic id of a log; None when there is no such log or it has no ``partition.metadata``."""
        hosted = self._directories.hosted.get(topic_partition)
        return None if hosted is None else hosted.topic_id

    def directory_of(self, topic_partition: TopicPartition) -> str:
        """Return the path of the data directory of a log."""
        return self._directories.hosted[topic_partition].directory.path

    def config_for(self, topic_config: Mapping[str, str | None]) -> LogConfig:
        """Return the configuration of a log: the broker's defaults, overridden by the topic's configuration.

        Raises:
            InvalidConfigurationError: an unknown key or an invalid value.
        """
        return LogConfig.of_topic(topic_config, base=self.defaults) if topic_config else self.defaults

    def create(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID | None = None,
        config: LogConfig | None = None,
        *,
        is_new: bool = True,
    ) -> PartitionLog:
        """Return the log of a partition; create it in the directory with the fewest logs when it does not exist.

        A log of an earlier topic of the same name (its topic id differs) is renamed to ``…-stray``.

        Args:
            is_new: False for a partition that may have a log already. The log is not created while a directory that may
                have it is offline.

        Raises:
            KafkaStorageError: the disk failed, or the log is offline.
        """
        return self._creator.create(topic_partition, topic_id, config, defaults=self.defaults, is_new=is_new)

    async def prepare_new_logs(self, wanted: Mapping[TopicPartition, tuple[UUID, LogConfig]]) -> None:
        """Create logs of new partitions in threads, for `create` to take over; the partitions may not exist yet.

        `create` retries logs that fail here. While a data directory is offline, this creates none. Shielded from
        cancellation.
        """
        await self._creator.prepare_new_logs(wanted)

    async def settle(self) -> None:
        """Finish changes of many partitions.

        Close the logs that `prepare_new_logs` created and `create` did not take over. Make deletions without a sync
        durable, in a thread. Shielded from cancellation.
        """
        self._creator.abandon_prepared()
        await self._deletion.sync_deletions()

    def delete(self, topic_partition: TopicPartition, *, sync: bool = True) -> None:
        """Delete a log. Its folder is renamed immediately and removed ``file.delete.delay.ms`` later.

        Args:
            sync: False if the caller makes the deletion durable with `settle`.

        Raises:
            KafkaStorageError: the disk failed; the log is closed all the same.
        """
        self._deletion.delete(topic_partition, delete_delay_ms=self.defaults.file_delete_delay_ms, sync=sync)

    def put_aside(self, topic_partition: TopicPartition, *, why: str) -> None:
        """Run `LogDeletion.put_aside`; a failure is logged."""
        try:
            self._deletion.put_aside(topic_partition, why=why)
        except KafkaStorageError as error:
            logger.error("%s", error)

    def lost_offsets(self) -> Mapping[str, tuple[int, int]]:
        """For each data directory: the number of logs that lost records to damage, and the number of lost offsets."""
        found = {}
        for directory in self._directories.all():
            lost = [log.lost_offsets for log in directory.logs.values() if log.lost_offsets]
            found[directory.path] = len(lost), sum(lost)
        return found

    # -- checkpoints

    def checkpoint(self) -> None:
        """Write the recovery points and start offsets of all logs. Raises `KafkaStorageError`."""
        for directory in self._directories.all():
            self._directories.write(directory, directory.checkpoint)

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """Read the checkpointed high watermarks of the logs, and of those that are missing."""
        found: dict[TopicPartition, int] = {}
        known = {tp for directory in self._directories.online() for tp in (*directory.logs, *directory.offline)}
        for directory in self._directories.online():
            # The checkpoint may name logs that have moved to another directory.
            own = {*directory.logs, *directory.offline}
            offsets = directory.read_offsets(HIGH_WATERMARK_CHECKPOINT)
            found.update((tp, offset) for tp, offset in offsets.items() if tp in own or tp not in known)
        return found

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write the high watermarks of hosted partitions, each to its directory. Raises `KafkaStorageError`."""
        for directory in self._directories.all():
            self._directories.write(directory, partial(checkpoint_high_watermarks, directory, high_watermarks))
