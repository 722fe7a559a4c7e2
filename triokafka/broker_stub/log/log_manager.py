"""All logs of a broker, over its data directories: opening, making, deleting, and the work in the background (G01–G16).

`LogManager` is told what to do by others and does it at once; only `LogManager.load`, `LogManager.run` and
`LogManager.close` wait. Deleted logs are renamed and removed later. A disk that fails takes its data directory offline
with all logs in it (`KafkaStorageError`), never the process.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol
from uuid import UUID

import trio

from triokafka.broker_stub.log.checkpoints import HIGH_WATERMARK_CHECKPOINT, PARTITION_METADATA, write_topic_id
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.disk_guard import gets_better
from triokafka.broker_stub.log.flusher import LogFlusher
from triokafka.broker_stub.log.log import PartitionLog
from triokafka.broker_stub.log.log_directory import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    LogDirectory,
    OfflineLog,
    folder_name,
    renamed_folder,
)
from triokafka.broker_stub.log.log_loading import FoundLog, LoadedLog, find_logs, open_logs
from triokafka.broker_stub.log.open_files import DEFAULT_LIMIT, OpenFiles
from triokafka.errors import ConfigurationError, IllegalStateError, KafkaError, KafkaStorageError
from triokafka.structs import TopicPartition
from triokafka.world import World

logger = logging.getLogger(__name__)

TopicConfigs = Callable[[str], Mapping[str, str | None]]

_CLOSED_AT_ONCE: Final = 8
_FLUSH_TICK_MS: Final = 5_000  # how often flush.ms is looked at when the broker does not say


@dataclass(frozen=True, slots=True, kw_only=True)
class LogManagerConfig:
    """Intervals of the background work, in milliseconds, with Kafka's defaults; how many files of logs are open, and
    how many logs of a data directory are opened at once at the start."""

    initial_task_delay_ms: int = 30_000
    retention_check_interval_ms: int = 300_000
    flush_scheduler_interval_ms: int = _FLUSH_TICK_MS
    recovery_point_checkpoint_interval_ms: int = 60_000
    log_start_offset_checkpoint_interval_ms: int = 60_000
    producer_expiration_ms: int = 86_400_000
    producer_expiration_check_interval_ms: int = 600_000
    max_open_files: int = DEFAULT_LIMIT
    recovery_threads_per_data_dir: int = 2


@dataclass(slots=True)
class _Hosted:
    """A log with the directory that it is in."""

    log: PartitionLog
    directory: LogDirectory
    topic_id: UUID | None


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

    While `run` runs, ``on_flushed`` is called with a partition when more of its log is on disk, and ``on_offline`` with
    partitions whose logs cannot be used any more, and why.

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
        self.on_flushed: Callable[[TopicPartition], None] | None = None
        self.on_offline: Callable[[list[TopicPartition], str], None] | None = None
        self.broker_epoch = -1
        """The broker's registration, for the marker of a clean stop; the broker sets it."""
        self._world = world
        self._config = config or LogManagerConfig()
        self.producer_expiration_ms = self._config.producer_expiration_ms
        """How long a silent producer is known; may be changed at any time."""
        self._files = OpenFiles(world.storage, self._config.max_open_files)
        self._directories = [LogDirectory(world.storage, path.rstrip("/") or "/") for path in directories]
        self._logs: dict[TopicPartition, _Hosted] = {}
        self._doomed: list[tuple[int, str]] = []  # when to remove which renamed folder
        self._flusher = LogFlusher(world, flushed=self._log_flushed, failed=self._log_not_flushed)
        self._gone_offline: list[tuple[list[TopicPartition], str]] = []  # what `on_offline` is yet to be told
        self._went_offline = trio.Event()
        self._started = False

    # -- start and stop

    def start(self, topic_configs: TopicConfigs | None = None) -> None:
        """`lock` and `load` in one, all in this thread."""
        self.lock()
        try:
            left, loaded = self._find(topic_configs), list[LoadedLog]()
            for logs in left:
                self._open_found(logs, loaded)
            self._take_over(loaded)
        except BaseException:
            self._give_up()
            raise

    def lock(self) -> None:
        """Lock the data directories. One of several that cannot be used is offline.

        Raises:
            ConfigurationError: none can be used, or another broker uses one. Nothing stays locked.
        """
        try:
            for directory in self._directories:
                try:
                    directory.open()
                except KafkaStorageError as error:
                    if len(self._directories) == 1:
                        raise ConfigurationError(str(error)) from error
                    self._fail(
                        directory, error.__cause__ if isinstance(error.__cause__, OSError) else OSError(str(error))
                    )
            self._check_any_is_online()
        except BaseException:
            self._release()
            raise

    async def load(self, topic_configs: TopicConfigs | None = None) -> None:
        """Open every log, recovering those that a crash left behind (I01–I09): several at once, each in a thread.

        Args:
            topic_configs: the configuration of a topic, as far as it has one of its own.

        Raises:
            ConfigurationError: a partition is in two directories, or no directory can be used. Nothing stays locked.
            KafkaStorageError: as above. A single log that cannot be opened is offline: `create` says why.
        """
        run = self._world.run_in_thread
        try:
            found, loaded = await run(self._find, topic_configs), list[LoadedLog]()
            async with trio.open_nursery() as nursery:
                for left in found:
                    for _ in range(min(self._config.recovery_threads_per_data_dir, len(left))):
                        nursery.start_soon(run, self._open_found, left, loaded)
            await run(self._take_over, loaded)
        except BaseException:
            self._give_up()
            raise

    def _find(self, topic_configs: TopicConfigs | None) -> list[list[FoundLog]]:
        """The logs of each directory."""

        def config_of(topic: str) -> LogConfig:
            return self.config_for(topic_configs(topic) if topic_configs is not None else {})

        where: dict[TopicPartition, str] = {}
        found: list[list[FoundLog]] = []
        for directory in self._online():
            try:
                here = find_logs(directory, config_of)
                self._doomed += [(self._world.wall_ms(), path) for path in directory.deleted_folders()]
            except OSError as error:
                self._fail(directory, error)
                continue
            for log in here:
                other = where.setdefault(log.topic_partition, directory.path)
                if other != directory.path:
                    raise ConfigurationError(
                        f"{log.topic_partition} is in two data directories, {other} and {directory.path}; "
                        f"remove one of them"
                    )
            found.append(here)
        return found

    def _open_found(self, left: list[FoundLog], loaded: list[LoadedLog]) -> None:
        now_ms = self._world.wall_ms()

        def open_log(found: FoundLog, files: OpenFiles) -> PartitionLog:
            return self._open(found, files, clean=found.directory.clean, now_ms=now_ms)

        open_logs(self._world.storage, left, loaded, open_log, max(1, self._config.max_open_files // 8))

    def _take_over(self, loaded: list[LoadedLog]) -> None:
        for entry in sorted(loaded, key=lambda entry: entry.found.topic_partition):
            found, directory = entry.found, entry.found.directory
            if isinstance(entry.log, OfflineLog):
                directory.offline[found.topic_partition] = entry.log
            else:
                entry.log.adopt(self._files)
                self._host(found.topic_partition, entry.log, directory, entry.topic_id)
        for directory in self._online():
            try:
                directory.forget_clean_stop()
            except OSError as error:
                self._fail(directory, error)
        self._check_any_is_online()
        self._started = True

    def _host(
        self, topic_partition: TopicPartition, log: PartitionLog, directory: LogDirectory, topic_id: UUID | None
    ) -> None:
        self._logs[topic_partition] = _Hosted(log, directory, topic_id)
        directory.logs[topic_partition] = log

    def _open(self, found: FoundLog, files: OpenFiles, *, clean: bool, now_ms: int) -> PartitionLog:
        return PartitionLog.open(
            self._world.storage,
            found.path,
            found.topic_partition,
            found.config,
            now_ms=now_ms,
            recovery_point=found.recovery_point,
            log_start_offset=found.log_start_offset,
            clean=clean,
            producer_expiration_ms=self.producer_expiration_ms,
            before_cut=partial(self._before_cut, found.directory, found.topic_partition),
            request_flush=self._flusher.request,
            disk_failed=partial(self._fail, found.directory),
            files=files,
        )

    async def close(self) -> None:
        """Flush and close all logs, write the checkpoints, mark each directory as cleanly closed, and unlock (G13).

        A directory with a log that cannot be closed gets no mark: it is recovered at the next start. Not cancelled.
        """
        if not self._started:
            self._give_up()  # the locks alone
            return
        self._started = False
        failed = {directory for directory in self._directories if directory.offline or directory.failure}
        # Logs are synced side by side, since the disk takes many requests at once.
        left = list(self._logs.items())
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                for _ in range(min(_CLOSED_AT_ONCE, len(left))):
                    nursery.start_soon(self._close_logs, left, failed)
            for directory in self._online():
                try:
                    directory.checkpoint()
                    if directory not in failed:
                        directory.mark_clean_stop(self.broker_epoch)
                except (KafkaError, OSError) as error:
                    logger.error("%s could not be closed cleanly: %s", directory.path, error)
        self._give_up()

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

    def _give_up(self) -> None:
        for hosted in self._logs.values():
            hosted.log.abandon()
        self._logs.clear()
        self._files.close_all()
        self._release()

    def _release(self) -> None:
        for directory in self._directories:
            directory.logs.clear()
            directory.offline.clear()
            directory.failure = ""
            directory.release()

    # -- directories

    def _online(self) -> list[LogDirectory]:
        return [directory for directory in self._directories if not directory.failure]

    def _check_any_is_online(self) -> None:
        if not self._online():
            raise ConfigurationError(f"no data directory can be used: {self._directories[0].failure}")

    def offline_directories(self) -> dict[str, str]:
        """The data directories that cannot be used any more, and why (Z16)."""
        return {directory.path: directory.failure for directory in self._directories if directory.failure}

    def _fail(self, directory: LogDirectory, error: OSError) -> None:
        """Take a directory offline. It may be in the middle of a call to one of its logs, so others hear later."""
        if directory.failure:
            return
        gone = directory.fail(error)
        logger.critical("%s; it has %d logs", directory.failure, len(gone))
        for topic_partition in gone:
            del self._logs[topic_partition]
        self._gone_offline.append((gone, directory.failure))
        self._went_offline.set()

    async def _report_offline(self) -> None:
        while True:
            await self._went_offline.wait()
            self._went_offline = trio.Event()
            reports, self._gone_offline = self._gone_offline, []
            for gone, reason in reports:
                if self.on_offline is not None and gone:
                    self.on_offline(gone, reason)

    def _written(self, directory: LogDirectory, write: Callable[[], None]) -> None:
        """Write a checkpoint. Raises `KafkaStorageError`; the directory is offline then, if it is not just full."""
        try:
            write()
        except KafkaStorageError as error:
            if not gets_better(_cause(error)):
                self._fail(directory, _cause(error))
            raise

    # -- logs

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition, when there is one here (G15)."""
        hosted = self._logs.get(topic_partition)
        return hosted.log if hosted is not None else None

    def all(self) -> dict[TopicPartition, PartitionLog]:
        """All logs that can be used."""
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
        self,
        topic_partition: TopicPartition,
        topic_id: UUID | None = None,
        config: LogConfig | None = None,
        *,
        is_new: bool = True,
    ) -> PartitionLog:
        """The log of a partition, made in the directory with the fewest logs when there is none (G01, G14).

        A log of an earlier topic of the same name (its topic id differs) is moved out of the way, to ``…-stray``.

        Args:
            is_new: False for a partition that may have a log already. It is not made anew while a directory is offline,
                for it may be there.

        Raises:
            KafkaStorageError: the disk failed, or the log is offline.
        """
        if not self._started:
            raise IllegalStateError("the log manager is not started")
        for directory in self._directories:
            if topic_partition in directory.offline:
                raise KafkaStorageError(directory.offline[topic_partition].reason)
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
        for path, reason in self.offline_directories().items():
            if not is_new or not self._online():
                raise KafkaStorageError(f"there is no log of {topic_partition}, unless in {path}: {reason}")
        directory = min(self._online(), key=lambda candidate: len(candidate.logs) + len(candidate.offline))
        path = f"{directory.path}/{folder_name(topic_partition)}"
        self._written(directory, partial(directory.forget, topic_partition))
        found = FoundLog(directory, topic_partition, path, config or self.defaults, 0, 0)
        log = self._open(found, self._files, clean=False, now_ms=self._world.wall_ms())
        if topic_id is not None:
            self._write_topic_id(path, topic_id)
        self._host(topic_partition, log, directory, topic_id)
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
        for directory in self._directories:
            if directory.offline.pop(topic_partition, None) is not None:
                source = f"{directory.path}/{folder_name(topic_partition)}"
                path = self._rename_away(topic_partition, directory, source, DELETE_SUFFIX)
                self._doomed.append((self._world.wall_ms() + self.defaults.file_delete_delay_ms, path))
        hosted = self._logs.get(topic_partition)
        if hosted is not None:
            path = self._move_away(topic_partition, DELETE_SUFFIX)
            self._doomed.append((self._world.wall_ms() + hosted.log.config.file_delete_delay_ms, path))

    def _move_away(self, topic_partition: TopicPartition, suffix: str) -> str:
        hosted = self._logs.pop(topic_partition)
        del hosted.directory.logs[topic_partition]
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
            self._written(directory, directory.checkpoint)

    def _before_cut(self, directory: LogDirectory, topic_partition: TopicPartition) -> None:
        """A log is about to lose records from its recovery point on, or from after it."""
        self._written(directory, directory.checkpoint)
        log = self.get(topic_partition)
        if self.watcher is not None and log is not None:
            self.watcher.log_truncated(topic_partition, directory.path, log.recovery_point)

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """The high watermarks that were checkpointed last."""
        merged: dict[TopicPartition, int] = {}
        for directory in self._online():
            merged.update(directory.read_offsets(HIGH_WATERMARK_CHECKPOINT))
        return merged

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write the high watermarks of hosted partitions, each to its directory.

        Raises:
            KafkaStorageError: a disk failed.
        """
        for directory in self._directories:
            self._written(directory, partial(directory.checkpoint_high_watermarks, high_watermarks))

    # -- background work

    async def run(self) -> None:
        """Retention, flushing and checkpoints, until cancelled. Failures are logged, and tried again next time."""
        config = self._config
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._flusher.run)
            nursery.start_soon(self._report_offline)
            nursery.start_soon(self._every, config.retention_check_interval_ms, self._apply_retention)
            # Kafka's default, never, would make flush.ms of a topic mean nothing.
            nursery.start_soon(self._every, min(config.flush_scheduler_interval_ms, _FLUSH_TICK_MS), self.flush_due)
            nursery.start_soon(self._every, config.recovery_point_checkpoint_interval_ms, self.flush_sealed)
            nursery.start_soon(self._every, config.log_start_offset_checkpoint_interval_ms, self._checkpoint_starts)
            nursery.start_soon(self._every, config.producer_expiration_check_interval_ms, self._expire_producers)

    async def _every(self, interval_ms: int, work: Callable[[], Awaitable[None]]) -> None:
        await trio.sleep(self._config.initial_task_delay_ms / 1000)
        while True:
            await work()
            await trio.sleep(interval_ms / 1000)

    async def _apply_retention(self) -> None:
        self.apply_retention()

    def apply_retention(self) -> None:
        """Drop old segments of all logs, and the folders of deleted ones (G04)."""
        self.remove_deleted(self._world.wall_ms())
        for topic_partition in list(self._logs):
            # Whoever works on a log drops its old segments afterwards.
            if self.watcher is None or not self.watcher.in_progress(topic_partition):
                self.apply_retention_to(topic_partition)

    def apply_retention_to(self, topic_partition: TopicPartition) -> None:
        """Drop old segments of one log; a failure is logged."""
        committed = self.high_watermark_of(topic_partition) if self.high_watermark_of is not None else None
        hosted = self._logs.get(topic_partition)
        if hosted is None:
            return
        try:
            hosted.log.apply_retention(self._world.wall_ms(), up_to_offset=committed)
        except KafkaError as error:
            logger.error("retention of %s: %s", topic_partition, error)

    async def _expire_producers(self) -> None:
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

    async def flush_due(self) -> None:
        """Flush the logs whose ``flush.ms`` is over (G07)."""
        now_ms = self._world.wall_ms()
        await self._flush([log for log in self.all().values() if log.flush_due(now_ms)])

    async def flush_sealed(self) -> None:
        """Flush segments that are not written to any more, so that recovery need not read them (F13, G08)."""
        await self._flush(list(self.all().values()), sealed_only=True)

    async def flush_sealed_of(self, topic_partition: TopicPartition) -> None:
        """`flush_sealed` for one log. A failure is logged."""
        log = self.get(topic_partition)
        await self._flush([log] if log is not None else [], sealed_only=True)

    async def _flush(self, logs: list[PartitionLog], *, sealed_only: bool = False) -> None:
        await self._flusher.flush(logs, sealed_only=sealed_only)
        for directory in self._online():
            try:
                self._written(directory, directory.checkpoint_recovery_points)
            except KafkaError as error:
                logger.error("%s", error)

    def _log_flushed(self, log: PartitionLog) -> None:
        if self.on_flushed is not None and self.get(log.topic_partition) is log:
            self.on_flushed(log.topic_partition)

    def _log_not_flushed(self, log: PartitionLog, error: OSError) -> None:
        hosted = self._logs.get(log.topic_partition)
        if hosted is not None and hosted.log is log:
            self._fail(hosted.directory, error)

    async def _checkpoint_starts(self) -> None:
        for directory in self._online():
            try:
                self._written(directory, directory.checkpoint_start_offsets)
            except KafkaError as error:
                logger.error("%s", error)


def _cause(error: KafkaStorageError) -> OSError:
    return error.__cause__ if isinstance(error.__cause__, OSError) else OSError(str(error))
