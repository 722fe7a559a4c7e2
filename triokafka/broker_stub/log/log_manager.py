"""All logs of a broker, over its data directories: opening, making, deleting, and the work in the background (G01–G16).

`LogManager` is told what to do by others and does it at once; only `LogManager.run` waits. Deleted logs are renamed and
removed later. A disk that fails fails the one call (`KafkaStorageError`), never the process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol
from uuid import UUID

import trio

from triokafka.broker_stub.log.checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    CorruptCheckpointError,
    read_topic_id,
    write_topic_id,
)
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.durability import FlushJob
from triokafka.broker_stub.log.log import PartitionLog
from triokafka.broker_stub.log.log_directory import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    LogDirectory,
    folder_name,
    renamed_folder,
)
from triokafka.broker_stub.log.open_files import DEFAULT_LIMIT, OpenFiles
from triokafka.errors import ConfigurationError, IllegalStateError, KafkaError, KafkaStorageError
from triokafka.structs import TopicPartition
from triokafka.world import World

logger = logging.getLogger(__name__)

_SYNCS_AT_ONCE: Final = 8
_FLUSH_TICK_MS: Final = 5_000  # how often flush.ms is looked at when the broker does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class LogManagerConfig:
    """Intervals of the background work, in milliseconds, with Kafka's defaults; and how many files of logs are open."""

    initial_task_delay_ms: int = 30_000
    retention_check_interval_ms: int = 300_000
    flush_scheduler_interval_ms: int = _FLUSH_TICK_MS
    recovery_point_checkpoint_interval_ms: int = 60_000
    log_start_offset_checkpoint_interval_ms: int = 60_000
    producer_expiration_ms: int = 86_400_000
    producer_expiration_check_interval_ms: int = 600_000
    max_open_files: int = DEFAULT_LIMIT


@dataclass(slots=True)
class _Hosted:
    """A log with the directory that it is in."""

    log: PartitionLog
    directory: LogDirectory
    topic_id: UUID | None


@dataclass(frozen=True, slots=True)
class _Offline:
    """A log that could not be opened, and what the checkpoints say of it."""

    reason: str
    directory: LogDirectory
    recovery_point: int
    log_start_offset: int


class LogWatcher(Protocol):
    """Somebody who works on logs in the background and must know what happens to them: the cleaner."""

    def in_progress(self, topic_partition: TopicPartition) -> bool:
        """Whether it works on a log, whose segments must not be dropped meanwhile."""

    def log_truncated(self, topic_partition: TopicPartition, directory: str, offset: int) -> None:
        """Records at and after ``offset``, or some before, are being given up."""

    def log_deleted(self, topic_partition: TopicPartition, directory: str) -> None:
        """A log is gone from a data directory."""


class LogManager:
    """The logs of one broker. ``watcher`` is told of truncations and deletions, when there is one.

    Args:
        directories: the data directories (``log.dirs``).
        defaults: what topics have when they say nothing.
        high_watermark_of: up to where records are committed, for retention; None for a partition that is not hosted.
            The end of the log when not given. May be set later.
    """

    def __init__(
        self,
        world: World,
        directories: Sequence[str],
        defaults: LogConfig | None = None,
        config: LogManagerConfig | None = None,
        *,
        high_watermark_of: Callable[[TopicPartition], int | None] | None = None,
    ) -> None:
        if not directories:
            raise ConfigurationError("log.dirs names no data directory")
        if len(set(directories)) != len(directories):
            raise ConfigurationError(f"log.dirs names a directory twice: {', '.join(directories)}")
        self.defaults = defaults or LogConfig()
        self.high_watermark_of = high_watermark_of
        self.watcher: LogWatcher | None = None
        self.broker_epoch = -1
        """The broker's registration, for the marker of a clean stop; the broker sets it."""
        self._world = world
        self._config = config or LogManagerConfig()
        self.producer_expiration_ms = self._config.producer_expiration_ms
        """How long a silent producer is known; may be changed at any time."""
        self._files = OpenFiles(world.storage, self._config.max_open_files)
        self._directories = [LogDirectory(world.storage, path.rstrip("/") or "/") for path in directories]
        self._logs: dict[TopicPartition, _Hosted] = {}
        self._offline: dict[TopicPartition, _Offline] = {}
        self._doomed: list[tuple[int, str]] = []  # when to remove which renamed folder
        self._started = False

    # -- start and stop

    def start(self, topic_configs: Callable[[str], Mapping[str, str | None]] | None = None) -> None:
        """Lock the directories and open every log in them, recovering those that a crash left behind (I01–I09).

        Args:
            topic_configs: the configuration of a topic, as far as it has one of its own.

        Raises:
            ConfigurationError: a directory cannot be used, or another broker uses it. Nothing stays locked.
            KafkaStorageError: a directory cannot be written. A log that cannot be opened is offline: `create` says why.
        """
        try:
            for directory in self._directories:
                directory.open()
            for directory in self._directories:
                self._load(directory, topic_configs)
        except BaseException:
            for hosted in self._logs.values():
                hosted.log.abandon()
            self._logs.clear()
            self._offline.clear()
            self._release()
            raise
        self._started = True

    def _load(self, directory: LogDirectory, topic_configs: Callable[[str], Mapping[str, str | None]] | None) -> None:
        recovery_points = directory.read_offsets(RECOVERY_POINT_CHECKPOINT)
        start_offsets = directory.read_offsets(LOG_START_CHECKPOINT)
        now_ms = self._world.wall_ms()
        folders = directory.log_folders()
        if folders and not directory.clean:
            logger.info("%s was not closed cleanly: its %d logs are checked", directory.path, len(folders))
        for topic_partition, path in folders.items():
            known = self._logs.get(topic_partition) or self._offline.get(topic_partition)
            if known is not None:
                other = known.directory.path
                raise ConfigurationError(
                    f"{topic_partition} is in two data directories, {other} and {directory.path}; remove one of them"
                )
            config = self.config_for(topic_configs(topic_partition.topic) if topic_configs is not None else {})
            recovery_point = recovery_points.get(topic_partition, 0)
            log_start_offset = start_offsets.get(topic_partition, 0)
            try:
                log = self._open(
                    directory,
                    topic_partition,
                    path,
                    config,
                    recovery_point=recovery_point,
                    log_start_offset=log_start_offset,
                    clean=directory.clean,
                    now_ms=now_ms,
                )
            except KafkaStorageError as error:
                logger.error("%s is offline: %s", topic_partition, error)
                self._offline[topic_partition] = _Offline(str(error), directory, recovery_point, log_start_offset)
                continue
            self._logs[topic_partition] = _Hosted(log, directory, self._read_topic_id(path))
        self._doomed += [(now_ms, path) for path in directory.deleted_folders()]
        try:
            directory.forget_clean_stop()
        except OSError as error:
            raise KafkaStorageError(f"{directory.path} cannot be written: {error}") from error

    def _open(
        self,
        directory: LogDirectory,
        topic_partition: TopicPartition,
        path: str,
        config: LogConfig,
        *,
        now_ms: int,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        clean: bool = False,
    ) -> PartitionLog:
        return PartitionLog.open(
            self._world.storage,
            path,
            topic_partition,
            config,
            now_ms=now_ms,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean=clean,
            producer_expiration_ms=self.producer_expiration_ms,
            before_cut=partial(self._before_cut, directory, topic_partition),
            files=self._files,
        )

    def _read_topic_id(self, path: str) -> UUID | None:
        try:
            return read_topic_id(self._world.storage, f"{path}/{PARTITION_METADATA}")
        except (CorruptCheckpointError, OSError) as error:
            logger.warning("%s; going on without", error)
            return None

    async def close(self) -> None:
        """Flush and close all logs, write the checkpoints, mark each directory as cleanly closed, and unlock (G13).

        A directory with a log that cannot be closed gets no mark: it is recovered at the next start. Not cancelled.
        """
        if not self._started:
            return
        self._started = False
        failed = {offline.directory for offline in self._offline.values()}
        # Logs are synced side by side, since the disk takes many requests at once.
        left = list(self._logs.items())
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                for _ in range(min(_SYNCS_AT_ONCE, len(left))):
                    nursery.start_soon(self._close_logs, left, failed)
            for directory in self._directories:
                try:
                    self._checkpoint_directory(directory)
                    if directory not in failed:
                        directory.mark_clean_stop(self.broker_epoch)
                except (KafkaError, OSError) as error:
                    logger.error("%s could not be closed cleanly: %s", directory.path, error)
        self._logs.clear()
        self._offline.clear()
        self._release()

    async def _close_logs(self, left: list[tuple[TopicPartition, _Hosted]], failed: set[LogDirectory]) -> None:
        while left:
            topic_partition, hosted = left.pop()
            try:
                job = hosted.log.begin_close()
                if job is not None:
                    await self._world.run_in_thread(job.run)
                    hosted.log.flushed(job)
            except (KafkaError, OSError) as error:
                logger.error("%s could not be closed: %s", topic_partition, error)
                failed.add(hosted.directory)
            hosted.log.abandon()

    def _release(self) -> None:
        for directory in self._directories:
            directory.release()

    # -- logs

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition, when there is one here (G15)."""
        hosted = self._logs.get(topic_partition)
        return hosted.log if hosted is not None else None

    def all(self) -> dict[TopicPartition, PartitionLog]:
        """All logs."""
        return {topic_partition: hosted.log for topic_partition, hosted in self._logs.items()}

    def topic_id(self, topic_partition: TopicPartition) -> UUID | None:
        """The topic id that the log was made for; None when its ``partition.metadata`` is lost."""
        return self._logs[topic_partition].topic_id

    def directory_of(self, topic_partition: TopicPartition) -> str:
        """The data directory that the log is in."""
        return self._logs[topic_partition].directory.path

    def config_for(self, topic_config: Mapping[str, str | None]) -> LogConfig:
        """The configuration of a log: the broker's defaults with a topic's own on top.

        Raises:
            InvalidConfigurationError: a key or value that cannot be.
        """
        return LogConfig.from_properties(topic_config, base=self.defaults) if topic_config else self.defaults

    def create(
        self, topic_partition: TopicPartition, topic_id: UUID | None = None, config: LogConfig | None = None
    ) -> PartitionLog:
        """The log of a partition, made in the directory with the fewest logs when there is none (G01, G14).

        A log of an earlier topic of the same name (its topic id differs) is moved out of the way, to ``…-stray``.

        Raises:
            KafkaStorageError: the disk failed.
        """
        if not self._started:
            raise IllegalStateError("the log manager is not started")
        if topic_partition in self._offline:
            raise KafkaStorageError(self._offline[topic_partition].reason)
        hosted = self._logs.get(topic_partition)
        if hosted is not None and topic_id is not None and hosted.topic_id is None:
            hosted.topic_id = topic_id
            self._write_topic_id(hosted.log.directory, topic_id)
        if hosted is not None and topic_id not in (None, hosted.topic_id):
            logger.warning("%s belongs to a topic that is gone (id %s)", hosted.log.directory, hosted.topic_id)
            self._move_away(topic_partition, STRAY_SUFFIX)
            hosted = None
        if hosted is not None:
            if config is not None:
                hosted.log.update_config(config)
            return hosted.log
        counts = {id(directory): 0 for directory in self._directories}
        for other in self._logs.values():
            counts[id(other.directory)] += 1
        directory = min(self._directories, key=lambda candidate: counts[id(candidate)])
        path = f"{directory.path}/{folder_name(topic_partition)}"
        now_ms = self._world.wall_ms()
        directory.forget(topic_partition)
        log = self._open(directory, topic_partition, path, config or self.defaults, now_ms=now_ms)
        if topic_id is not None:
            self._write_topic_id(path, topic_id)
        self._logs[topic_partition] = _Hosted(log, directory, topic_id)
        return log

    def _write_topic_id(self, path: str, topic_id: UUID) -> None:
        try:
            write_topic_id(self._world.storage, f"{path}/{PARTITION_METADATA}", topic_id)
        except OSError as error:
            raise KafkaStorageError(f"{PARTITION_METADATA} in {path} cannot be written: {error}") from error

    def delete(self, topic_partition: TopicPartition) -> None:
        """Give up a log. Its folder is renamed now and removed ``file.delete.delay.ms`` later (Z17).

        Raises:
            KafkaStorageError: the disk failed; the log is closed all the same.
        """
        offline = self._offline.pop(topic_partition, None)
        if offline is not None:
            source = f"{offline.directory.path}/{folder_name(topic_partition)}"
            path = self._rename_away(topic_partition, offline.directory, source, DELETE_SUFFIX)
            self._doomed.append((self._world.wall_ms() + self.defaults.file_delete_delay_ms, path))
        hosted = self._logs.get(topic_partition)
        if hosted is not None:
            path = self._move_away(topic_partition, DELETE_SUFFIX)
            self._doomed.append((self._world.wall_ms() + hosted.log.config.file_delete_delay_ms, path))

    def _move_away(self, topic_partition: TopicPartition, suffix: str) -> str:
        hosted = self._logs.pop(topic_partition)
        hosted.log.abandon()
        if self.watcher is not None:
            self.watcher.log_deleted(topic_partition, hosted.directory.path)
        return self._rename_away(topic_partition, hosted.directory, hosted.log.directory, suffix)

    def _rename_away(self, topic_partition: TopicPartition, directory: LogDirectory, source: str, suffix: str) -> str:
        target = f"{directory.path}/{renamed_folder(topic_partition, self._world.uuid().hex, suffix)}"
        try:
            self._world.storage.rename(source, target)
            self._world.storage.sync_dir(directory.path)
        except OSError as error:
            raise KafkaStorageError(f"{source} cannot be renamed: {error}") from error
        return target

    # -- checkpoints

    def checkpoint(self) -> None:
        """Write the recovery points and start offsets of all logs.

        Raises:
            KafkaStorageError: a disk failed.
        """
        for directory in self._directories:
            self._checkpoint_directory(directory)

    def _checkpoint_directory(self, directory: LogDirectory) -> None:
        self._checkpoint_recovery_points(directory)
        self._checkpoint_start_offsets(directory)

    def _before_cut(self, directory: LogDirectory, topic_partition: TopicPartition) -> None:
        """A log is about to lose records from its recovery point on, or from after it."""
        self._checkpoint_directory(directory)
        log = self.get(topic_partition)
        if self.watcher is not None and log is not None:
            self.watcher.log_truncated(topic_partition, directory.path, log.recovery_point)

    def _checkpoint_recovery_points(self, directory: LogDirectory) -> None:
        logs = self._logs_in(directory)
        points = {tp: log.recovery_point for tp, log in logs.items()}
        points.update((tp, log.recovery_point) for tp, log in self._offline.items() if log.directory is directory)
        directory.write_offsets(RECOVERY_POINT_CHECKPOINT, points)

    def _checkpoint_start_offsets(self, directory: LogDirectory) -> None:
        # Only what the names of the segments do not say.
        starts = {
            tp: log.log_start_offset
            for tp, log in self._logs_in(directory).items()
            if log.log_start_offset > log.segments[0].base_offset
        }
        starts.update((tp, log.log_start_offset) for tp, log in self._offline.items() if log.directory is directory)
        directory.write_offsets(LOG_START_CHECKPOINT, starts)

    def _logs_in(self, directory: LogDirectory) -> dict[TopicPartition, PartitionLog]:
        return {tp: hosted.log for tp, hosted in self._logs.items() if hosted.directory is directory}

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """The high watermarks that were checkpointed last."""
        merged: dict[TopicPartition, int] = {}
        for directory in self._directories:
            merged.update(directory.read_offsets(HIGH_WATERMARK_CHECKPOINT))
        return merged

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write the high watermarks of hosted partitions, each to its directory.

        Raises:
            KafkaStorageError: a disk failed.
        """
        for directory in self._directories:
            hosted = self._logs_in(directory)
            here = {tp: offset for tp, offset in high_watermarks.items() if tp in hosted}
            directory.write_offsets(HIGH_WATERMARK_CHECKPOINT, here)

    # -- background work

    async def run(self) -> None:
        """Retention, flushing and checkpoints, until cancelled. Failures are logged, and tried again next time."""
        config = self._config
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._every, config.retention_check_interval_ms, self.apply_retention)
            # Kafka's default, never, would make flush.ms of a topic mean nothing.
            nursery.start_soon(self._every, min(config.flush_scheduler_interval_ms, _FLUSH_TICK_MS), self.flush_due)
            nursery.start_soon(self._every, config.recovery_point_checkpoint_interval_ms, self.flush_sealed)
            nursery.start_soon(
                self._every, config.log_start_offset_checkpoint_interval_ms, self.checkpoint_start_offsets
            )
            nursery.start_soon(self._every, config.producer_expiration_check_interval_ms, self.expire_producers)

    async def _every(self, interval_ms: int, work: Callable[[], object]) -> None:
        await trio.sleep(self._config.initial_task_delay_ms / 1000)
        while True:
            result = work()
            if isinstance(result, list):
                await self._sync(result)
            await trio.sleep(interval_ms / 1000)

    def apply_retention(self) -> None:
        """Drop old segments of all logs, and the folders of deleted ones (G04)."""
        now_ms = self._world.wall_ms()
        self.remove_deleted(now_ms)
        for topic_partition in list(self._logs):
            # Whoever works on a log drops its old segments afterwards.
            if self.watcher is None or not self.watcher.in_progress(topic_partition):
                self.apply_retention_to(topic_partition)

    def apply_retention_to(self, topic_partition: TopicPartition) -> None:
        """Drop old segments of one log; a failure is logged."""
        committed = self.high_watermark_of(topic_partition) if self.high_watermark_of is not None else None
        try:
            self._logs[topic_partition].log.apply_retention(self._world.wall_ms(), up_to_offset=committed)
        except KafkaError as error:
            logger.error("retention of %s: %s", topic_partition, error)

    def expire_producers(self) -> None:
        """Forget producers that have been silent for too long, in all logs (Z11)."""
        now_ms = self._world.wall_ms()
        for log in self.all().values():
            log.expire_producers(now_ms, self.producer_expiration_ms)

    def remove_deleted(self, now_ms: int) -> None:
        """Remove the folders of deleted logs whose time has come."""
        due = [path for at, path in self._doomed if at <= now_ms]
        self._doomed = [entry for entry in self._doomed if entry[0] > now_ms]
        for path in due:
            try:
                self._world.storage.remove_tree(path)
            except OSError as error:
                logger.error("%s cannot be removed: %s", path, error)

    def flush_due(self) -> list[tuple[PartitionLog, FlushJob]]:
        """Begin to flush the logs whose ``flush.ms`` is over (G07)."""
        now_ms = self._world.wall_ms()
        return self._begin([log for log in self.all().values() if log.flush_due(now_ms)], sealed_only=False)

    def flush_sealed(self) -> list[tuple[PartitionLog, FlushJob]]:
        """Begin to flush segments that are not written to any more, so that recovery need not read them (F13, G08)."""
        return self._begin(list(self.all().values()), sealed_only=True)

    async def flush_sealed_of(self, topic_partition: TopicPartition) -> None:
        """`flush_sealed` for one log, from the beginning to the end. A failure is logged."""
        await self._sync(self._begin([self._logs[topic_partition].log], sealed_only=True))

    def _begin(self, logs: list[PartitionLog], *, sealed_only: bool) -> list[tuple[PartitionLog, FlushJob]]:
        jobs = []
        for log in logs:
            try:
                job = log.begin_flush(sealed_only=sealed_only)
            except KafkaError as error:
                logger.error("%s", error)
                continue
            if job is not None:
                jobs.append((log, job))
        return jobs

    async def _sync(self, jobs: list[tuple[PartitionLog, FlushJob]]) -> None:
        for log, job in jobs:
            try:
                await self._world.run_in_thread(job.run)
            except OSError as error:
                if self.get(log.topic_partition) is log:
                    logger.error("%s cannot be flushed: %s", log.topic_partition, error)
                continue
            log.flushed(job)
        for directory in self._directories:
            try:
                self._checkpoint_recovery_points(directory)
            except KafkaError as error:
                logger.error("%s", error)

    def checkpoint_start_offsets(self) -> None:
        """Write the start offsets of all logs (Z07)."""
        for directory in self._directories:
            try:
                self._checkpoint_start_offsets(directory)
            except KafkaError as error:
                logger.error("%s", error)
