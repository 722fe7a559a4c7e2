"""The logs that a broker has, and the data directories that they are in: making, finding, deleting, losing them.

A disk that fails takes its data directory offline with all logs in it (`KafkaStorageError`), never the process. Nothing
here waits.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol
from uuid import UUID

import trio

from triokafka.broker_stub.log.checkpoints import HIGH_WATERMARK_CHECKPOINT
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.disk_guard import gets_better
from triokafka.broker_stub.log.flush_scheduler import FlushScheduler
from triokafka.broker_stub.log.log_directory import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    LogDirectory,
    OfflineLog,
    folder_name,
    renamed_folder,
)
from triokafka.broker_stub.log.log_flusher import LogFlusher
from triokafka.broker_stub.log.log_loading import FoundLog
from triokafka.broker_stub.log.log_mover import LogMover, Place, UnclearMoveError
from triokafka.broker_stub.log.move_recovery import MoveOutcome, UnfinishedMove, exchange
from triokafka.broker_stub.log.open_files import DEFAULT_LIMIT, OpenFiles
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.broker_stub.log.prepared_log import PreparedLog
from triokafka.errors import ConfigurationError, KafkaStorageError
from triokafka.named_tuple import NamedTuple
from triokafka.structs import TopicPartition
from triokafka.world import World

logger = logging.getLogger(__name__)

FLUSH_TICK_MS: Final = 5_000
"""How often flush.ms is looked at, at the least: Kafka's default, never, would make that of a topic mean nothing."""
_REFUSALS_MS: Final = 60_000  # how often one hears of a disk that is full


class LogManagerConfig(NamedTuple):
    """Intervals of the background work, in milliseconds, with Kafka's defaults; how many files of logs are open, how
    many logs of a data directory are opened at once at the start, and how many are moved to another one at a time (as
    many as there are directories when None)."""

    initial_task_delay_ms: int = 30_000
    retention_check_interval_ms: int = 300_000
    flush_scheduler_interval_ms: int = FLUSH_TICK_MS
    recovery_point_checkpoint_interval_ms: int = 60_000
    log_start_offset_checkpoint_interval_ms: int = 60_000
    producer_expiration_ms: int = 86_400_000
    producer_expiration_check_interval_ms: int = 600_000
    max_open_files: int = DEFAULT_LIMIT
    recovery_threads_per_data_dir: int = 2
    moves_at_once: int | None = None


@dataclass(slots=True)
class Hosted:
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


class HostedLogs:
    """What `LogManager` has, without the work in the background. See there for the arguments."""

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
        self.on_moved: Callable[[TopicPartition, PartitionLog], None] | None = None
        self.on_log_opened: Callable[[int], None] | None = None
        self.broker_epoch = -1
        """The broker's registration, for the marker of a clean stop; the broker sets it."""
        self.directory_ids: frozenset[UUID] = frozenset()
        """The ids of the data directories that can be used, by ``meta.properties``; whoever reads that sets it."""
        self._world = world
        self._config = config or LogManagerConfig()
        self.producer_expiration_ms = self._config.producer_expiration_ms
        """How long a silent producer is known; may be changed at any time."""
        self._files = OpenFiles(world.storage, self._config.max_open_files)
        self._directories = [LogDirectory(world.storage, path.rstrip("/") or "/") for path in directories]
        self._logs: dict[TopicPartition, Hosted] = {}
        self.mover = LogMover(world, self, moves_at_once=self._config.moves_at_once or len(directories))
        self._moves_again: list[UnfinishedMove] = []  # those that the last stop has cut short
        self._made: dict[TopicPartition, PreparedLog] = {}  # ahead, for `create` to take over
        self.removed_topics: frozenset[UUID] = frozenset()
        """The ids of topics that the metadata log says were deleted; their logs are deleted, not put aside. For the
        start."""
        self._strays: Counter[str] = Counter()  # by data directory
        self._unsynced: set[LogDirectory] = set()  # where logs were deleted
        self._doomed: list[tuple[int, str]] = []  # when to remove which renamed folder
        self._flusher = FlushScheduler(world, flushed=self._log_flushed, failed=self._log_not_flushed)
        self._gone_offline: list[tuple[list[TopicPartition], str]] = []  # what `on_offline` is yet to be told
        self._went_offline = trio.Event()
        self._all_offline = trio.Event()
        self._clock_jumped = trio.Event()
        self.checked_for_gaps = trio.Event()
        """Set by `LogManager.run` once it has looked for offsets that are missing between segments."""
        self._started = False

    def _host(
        self, topic_partition: TopicPartition, log: PartitionLog, directory: LogDirectory, topic_id: UUID | None
    ) -> None:
        self._logs[topic_partition] = Hosted(log, directory, topic_id)
        directory.logs[topic_partition] = log
        log.on_refusal(partial(self._refused, directory))

    def _open(
        self,
        found: FoundLog,
        files: OpenFiles,
        *,
        clean: bool,
        now_ms: int,
        disk_failed: Callable[[OSError], None] | None = None,
    ) -> PartitionLog:
        return PartitionLog.open(
            self._world.storage,
            found.path,
            found.topic_partition,
            found.config,
            now_ms=now_ms,
            recovery_point=found.recovery_point,
            high_watermark=found.high_watermark,
            log_start_offset=found.log_start_offset,
            clean=clean,
            producer_expiration_ms=self.producer_expiration_ms,
            before_cut=partial(self._before_cut, found.directory, found.topic_partition),
            checkpoint_start=partial(self._written, found.directory, found.directory.checkpoint_start_offsets),
            request_flush=self._flusher.request,
            disk_failed=partial(self._fail, found.directory) if disk_failed is None else disk_failed,
            files=files,
        )

    # -- directories

    def _online(self) -> list[LogDirectory]:
        return [directory for directory in self._directories if not directory.failure]

    def _check_any_is_online(self) -> None:
        if not self._online():
            raise ConfigurationError(f"no data directory can be used: {self._directories[0].failure}")

    def offline_directories(self) -> dict[str, str]:
        """The data directories that cannot be used any more, and why."""
        return {directory.path: directory.failure for directory in self._directories if directory.failure}

    def _fail(self, directory: LogDirectory, error: OSError) -> None:
        """Take a directory offline. It may be in the middle of a call to one of its logs, so others hear later."""
        if directory.failure:
            return
        gone = directory.fail(error)
        logger.critical("%s; it has %d logs", directory.failure, len(gone))
        self.mover.give_up_all_to(directory)
        for topic_partition in gone:
            self.mover.give_up(topic_partition)
            del self._logs[topic_partition]
        self._gone_offline.append((gone, directory.failure))
        self._went_offline.set()
        if not self._online():
            self._all_offline.set()

    async def run_until_all_offline(self) -> None:
        """Wait until no data directory can be used any more; cancelling it leaves nothing behind.

        Raises:
            KafkaStorageError: that is so; says why the last one is offline. Repair a disk, and start again.
        """
        await self._all_offline.wait()
        why = "; ".join(self.offline_directories().values())
        raise KafkaStorageError(f"no data directory can be used any more: {why}")

    def lose(self, topic_partition: TopicPartition, reason: str) -> None:
        """Take one log offline whose files were changed from outside; its data directory goes on."""
        hosted = self._logs.pop(topic_partition)
        log, directory = hosted.log, hosted.directory
        del directory.logs[topic_partition]
        self.mover.give_up(topic_partition)
        log.abandon()
        logger.error("%s", reason)
        directory.offline[topic_partition] = OfflineLog(reason, log.recovery_point, log.log_start_offset)
        self._gone_offline.append(([topic_partition], reason))
        self._went_offline.set()

    def _refused(self, directory: LogDirectory, error: OSError) -> None:
        """Clients are told, each by itself; the administrator now and then, as long as it goes on."""
        now_ms = self._world.wall_ms()
        if not 0 <= now_ms - directory.refusal_told_ms < _REFUSALS_MS:  # the clock may have been put back
            directory.refusal_told_ms = now_ms
            logger.error("%s takes no records at the moment: %s", directory.path, error.strerror or error)

    def _written(self, directory: LogDirectory, write: Callable[[], None]) -> None:
        """Write a checkpoint. Raises `KafkaStorageError`; the directory is offline then, if it is not just full."""
        try:
            write()
        except KafkaStorageError as error:
            if not gets_better(cause_of(error)):
                self._fail(directory, cause_of(error))
            raise

    def find_folders(self) -> list[str]:
        """The folders of logs in the data directories, open or not."""
        found: list[str] = []
        for directory in self._online():
            try:
                found += directory.log_folders().values()
            except OSError as error:
                self._fail(directory, error)
        return found

    # -- logs

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition, when there is one here."""
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

    def topic_id_of(self, topic_partition: TopicPartition) -> UUID | None:
        """Of which topic a log is; None when there is no such log, or it does not say."""
        hosted = self._logs.get(topic_partition)
        return None if hosted is None else hosted.topic_id

    def is_offline(self, topic_partition: TopicPartition) -> bool:
        """Whether there is a log that cannot be used."""
        return any(topic_partition in directory.offline for directory in self._directories)

    def delete(self, topic_partition: TopicPartition, *, sync: bool = True) -> None:
        """Give up a log. Its folder is renamed now and removed ``file.delete.delay.ms`` later.

        Args:
            sync: False to leave it to `LogManager.settle` that this is on the disk.

        Raises:
            KafkaStorageError: the disk failed; the log is closed all the same.
        """
        for directory in self._directories:
            if directory.offline.pop(topic_partition, None) is not None:
                if self.watcher is not None:
                    self.watcher.log_deleted(topic_partition, directory.path)
                source = f"{directory.path}/{folder_name(topic_partition)}"
                path = self._rename_away(topic_partition, directory, source, DELETE_SUFFIX, sync=sync)
                self._doomed.append((self._world.wall_ms() + self.defaults.file_delete_delay_ms, path))
        hosted = self._logs.get(topic_partition)
        if hosted is not None:
            path = self._move_away(topic_partition, DELETE_SUFFIX, sync=sync)
            self._doomed.append((self._world.wall_ms() + hosted.log.config.file_delete_delay_ms, path))

    def put_aside(self, topic_partition: TopicPartition) -> None:
        """Give up a log of a partition that is not in the cluster. A failure is logged.

        The log of a topic whose deletion is committed is deleted: a crash came before its folder was renamed. Any other
        stays, renamed to ``…-stray``, as Kafka has it: nobody has decided to delete its records.
        """
        hosted = self._logs[topic_partition]
        try:
            self._move_former_away(topic_partition, hosted.topic_id)
        except KafkaStorageError as error:
            logger.error("%s", error)

    def _move_former_away(self, topic_partition: TopicPartition, topic_id: UUID | None) -> None:
        hosted = self._logs[topic_partition]
        path = hosted.log.directory
        if topic_id in self.removed_topics:
            logger.info("%s: its topic (id %s) was deleted; the log is deleted, too", path, topic_id)
            renamed = self._move_away(topic_partition, DELETE_SUFFIX)
            self._doomed.append((self._world.wall_ms(), renamed))
            return
        renamed = self._move_away(topic_partition, STRAY_SUFFIX)
        self._note_stray(hosted.directory, path, topic_id, renamed)

    def _note_stray(self, directory: LogDirectory, path: str, topic_id: UUID | None, renamed: str) -> None:
        self._strays[directory.path] += 1
        logger.warning(
            "%s belongs to no topic in the cluster (topic id %s): it is kept as %s. Remove it when it is not needed.",
            path,
            topic_id,
            renamed,
        )

    def strays(self) -> Mapping[str, int]:
        """How many folders of stray logs each data directory has."""
        return {directory.path: self._strays[directory.path] for directory in self._directories}

    def lost_offsets(self) -> Mapping[str, tuple[int, int]]:
        """For each data directory: how many logs are known to have lost records to damage, and how many offsets."""
        found = {}
        for directory in self._directories:
            lost = [log.lost_offsets for log in directory.logs.values() if log.lost_offsets]
            found[directory.path] = len(lost), sum(lost)
        return found

    def _move_away(self, topic_partition: TopicPartition, suffix: str, *, sync: bool = True) -> str:
        self.mover.give_up(topic_partition)
        hosted = self._logs.pop(topic_partition)
        del hosted.directory.logs[topic_partition]
        hosted.log.abandon()
        if self.watcher is not None:
            self.watcher.log_deleted(topic_partition, hosted.directory.path)
        return self._rename_away(topic_partition, hosted.directory, hosted.log.directory, suffix, sync=sync)

    def _rename_away(
        self, topic_partition: TopicPartition, directory: LogDirectory, source: str, suffix: str, *, sync: bool = True
    ) -> str:
        target = f"{directory.path}/{renamed_folder(topic_partition, self._world.uuid().hex, suffix)}"
        try:
            self._world.storage.rename(source, target)
            if sync:
                self._world.storage.sync_dir(directory.path)
            else:
                self._unsynced.add(directory)
        except OSError as error:
            raise KafkaStorageError(f"{source} cannot be renamed: {error}") from error
        return target

    # -- moving to another directory

    def place_of(self, topic_partition: TopicPartition) -> Place | None:
        """Where the log of a partition is; None when there is none that can be used."""
        hosted = self._logs.get(topic_partition)
        return None if hosted is None else Place(hosted.log, hosted.directory, hosted.topic_id)

    def data_directory(self, path: str) -> LogDirectory | None:
        """The data directory of that path; None when there is none."""
        wanted = path.rstrip("/") or "/"
        return next((directory for directory in self._directories if directory.path == wanted), None)

    def directory_failed(self, directory: LogDirectory, error: OSError) -> None:
        """The disk of a data directory has failed: it goes offline."""
        self._fail(directory, error)

    def put_in_place(self, topic_partition: TopicPartition, copy: PartitionLog, target: LogDirectory) -> None:
        """Let a closed copy, which has all that the log has, take its place; the log's old files go as if deleted.

        Raises:
            KafkaStorageError: a disk failed; the log goes on where it was, unless that is offline now.
            UnclearMoveError: a disk failed so that only the next start can tell; the copy must stay.
        """
        hosted = self._logs[topic_partition]
        source, old, config = hosted.log, hosted.directory, hosted.log.config
        path = f"{target.path}/{folder_name(topic_partition)}"
        found = FoundLog(target, topic_partition, path, config, copy.log_end_offset, copy.log_start_offset)
        target.offline[topic_partition] = OfflineLog("it is coming", found.recovery_point, found.log_start_offset)
        try:
            self._written(target, target.checkpoint)
        finally:
            del target.offline[topic_partition]
        committed = self.high_watermark_of(topic_partition) if self.high_watermark_of is not None else None
        if committed is not None:  # else it would be forgotten until it is checkpointed again
            self._written(target, partial(target.note_high_watermark, topic_partition, committed))
        gone = f"{old.path}/{renamed_folder(topic_partition, self._world.uuid().hex, DELETE_SUFFIX)}"
        outcome, problems = exchange(
            self._world.storage, topic_partition, log=source.directory, gone=gone, copy=copy.directory, path=path
        )
        if outcome is MoveOutcome.DONE:
            self.mover.moved(topic_partition)
            self._doomed.append((self._world.wall_ms() + config.file_delete_delay_ms, gone))
            self._host_moved(found, hosted)
        for problem in problems:
            if outcome is MoveOutcome.UNCLEAR or not gets_better(problem.error):
                self._fail(old if problem.path == source.directory else target, problem.error)
        if outcome is not MoveOutcome.DONE:
            kind = UnclearMoveError if outcome is MoveOutcome.UNCLEAR else KafkaStorageError
            raise kind(f"{topic_partition} could not be moved: {problems[0].error}")

    def _host_moved(self, found: FoundLog, hosted: Hosted) -> None:
        """Go on with a log where it is now."""
        topic_partition, target = found.topic_partition, found.directory
        del self._logs[topic_partition], hosted.directory.logs[topic_partition]
        hosted.log.abandon()
        if self.watcher is not None:
            self.watcher.log_deleted(topic_partition, hosted.directory.path)
        try:
            log = self._open(found, self._files, clean=True, now_ms=self._world.wall_ms())
        except KafkaStorageError as error:
            logger.error("%s is offline: %s", topic_partition, error)
            target.offline[topic_partition] = OfflineLog(str(error), found.recovery_point, found.log_start_offset)
            self._gone_offline.append(([topic_partition], str(error)))
            self._went_offline.set()
            return
        self._host(topic_partition, log, target, hosted.topic_id)
        if self.on_moved is not None:
            self.on_moved(topic_partition, log)

    # -- checkpoints

    def checkpoint(self) -> None:
        """Write the recovery points and start offsets of all logs.

        Raises:
            KafkaStorageError: a disk failed.
        """
        for directory in self._directories:
            self._written(directory, directory.checkpoint)

    def _before_cut(self, directory: LogDirectory, topic_partition: TopicPartition, offset: int) -> None:
        """Write checkpoints that promise nothing of a log at and after ``offset``, where it is about to be cut."""
        self._written(directory, directory.checkpoint)
        self._written(directory, partial(directory.lower_high_watermark, topic_partition, offset))
        log = self.get(topic_partition)
        if self.watcher is not None and log is not None:
            self.watcher.log_truncated(topic_partition, directory.path, log.recovery_point)

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """The high watermarks of the logs that were checkpointed last."""
        found: dict[TopicPartition, int] = {}
        for directory in self._online():
            # It may name logs that have moved away since.
            offsets = directory.read_offsets(HIGH_WATERMARK_CHECKPOINT)
            found.update((tp, offsets[tp]) for tp in (*directory.logs, *directory.offline) if tp in offsets)
        return found

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write the high watermarks of hosted partitions, each to its directory.

        Raises:
            KafkaStorageError: a disk failed.
        """
        for directory in self._directories:
            self._written(directory, partial(directory.checkpoint_high_watermarks, high_watermarks))

    def _log_flushed(self, flusher: LogFlusher) -> None:
        hosted = self._logs.get(flusher.topic_partition)
        if self.on_flushed is not None and hosted is not None and hosted.log.flusher is flusher:
            self.on_flushed(flusher.topic_partition)

    def _log_not_flushed(self, flusher: LogFlusher, error: OSError) -> None:
        hosted = self._logs.get(flusher.topic_partition)
        if hosted is not None and hosted.log.flusher is flusher:
            self._fail(hosted.directory, error)


def cause_of(error: KafkaStorageError) -> OSError:
    """The error of the disk behind ``error``."""
    return error.__cause__ if isinstance(error.__cause__, OSError) else OSError(str(error))
