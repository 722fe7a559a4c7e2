"""The data directories of a broker and the logs in them: look-up, and handling of disk failures.

A disk failure takes the data directory offline with all logs in it (`KafkaStorageError`). It never ends the process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

import trio

from triokafka.broker_stub.log.log_directory import LogDirectory, OfflineLog, folder_name
from triokafka.broker_stub.log.log_disk_errors import is_temporary
from triokafka.broker_stub.log.log_flusher import LogFlusher
from triokafka.broker_stub.log.log_listener import LogListener
from triokafka.broker_stub.log.open_files import OpenFiles
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.broker_stub.log.pending_moves import PendingMoves
from triokafka.errors import ConfigurationError, KafkaStorageError
from triokafka.structs import TopicPartition
from triokafka.world import World

logger = logging.getLogger(__name__)

_REFUSALS_MS: Final = 60_000
"""The shortest interval between two log lines about the same full directory."""


@dataclass(slots=True)
class HostedLog:
    """A log with its data directory."""

    log: PartitionLog
    directory: LogDirectory
    topic_id: UUID | None


class LogDirectories:
    """The data directories (``log.dirs``) with their open logs.

    ``hosted`` has the usable logs, ``files`` their open files. ``started``: the logs are loaded and not closed.
    """

    def __init__(
        self,
        world: World,
        paths: Sequence[str],
        *,
        max_open_files: int,
        moves: PendingMoves,
        listener: LogListener | None,
    ) -> None:
        if not paths:
            raise ConfigurationError("log.dirs names no data directory")
        if len(set(paths)) != len(paths):
            raise ConfigurationError(f"log.dirs names a directory twice: {', '.join(paths)}")
        self._world = world
        self._moves = moves
        self._listener = listener
        self._all = [LogDirectory(world.storage, path.rstrip("/") or "/") for path in paths]
        self.hosted: dict[TopicPartition, HostedLog] = {}
        self.started = False
        self.cordoned: frozenset[str] = frozenset()
        """The paths of the directories that get no new logs (KIP-1066)."""
        self.files = OpenFiles(world.storage, max_open_files)
        self._unreported: list[tuple[list[TopicPartition], str]] = []  # logs that went offline
        self._went_offline = trio.Event()
        self._all_offline = trio.Event()

    # -- directories

    def all(self) -> list[LogDirectory]:
        """Every data directory, offline ones included."""
        return self._all

    def online(self) -> list[LogDirectory]:
        """The usable data directories."""
        return [directory for directory in self._all if not directory.failure]

    def offline(self) -> dict[str, str]:
        """The paths of the offline data directories, with the reasons."""
        return {directory.path: directory.failure for directory in self._all if directory.failure}

    def get(self, path: str) -> LogDirectory | None:
        """Return the data directory with that path, or None. A relative path equals its absolute one."""
        absolute = self._world.storage.absolute
        wanted = absolute(path)
        return next((directory for directory in self._all if absolute(directory.path) == wanted), None)

    def lock(self) -> None:
        """Lock the data directories. An unusable directory goes offline if another one is usable.

        Raises:
            ConfigurationError: no directory is usable, or another broker uses one. All locks are released.
        """
        try:
            for directory in self._all:
                try:
                    directory.open()
                except KafkaStorageError as error:
                    if len(self._all) == 1:
                        raise ConfigurationError(str(error)) from error
                    self.fail(directory, cause_of(error))
            self.check_any_is_online()
        except BaseException:
            self._release()
            raise

    def check_any_is_online(self) -> None:
        """Raise `ConfigurationError` when no data directory can be used."""
        if not self.online():
            raise ConfigurationError(f"no data directory can be used: {self._all[0].failure}")

    def find_folders(self) -> list[str]:
        """Return the folders of all logs in the data directories, including logs that are not open."""
        found: list[str] = []
        for directory in self.online():
            try:
                found += directory.log_folders().values()
            except OSError as error:
                self.fail(directory, error)
        return found

    def write(self, directory: LogDirectory, write: Callable[[], None]) -> None:
        """Write a checkpoint of ``directory``, which goes offline after a lasting disk failure.

        Raises:
            KafkaStorageError: the disk failed or is full.
        """
        try:
            write()
        except KafkaStorageError as error:
            if not is_temporary(cause_of(error)):
                self.fail(directory, cause_of(error))
            raise

    def abandon(self) -> None:
        """Close all logs without writing anything, and unlock the directories."""
        for hosted in self.hosted.values():
            hosted.log.abandon()
        self.hosted.clear()
        self.files.close_all()
        self._release()

    def _release(self) -> None:
        for directory in self._all:
            directory.logs.clear()
            directory.offline.clear()
            directory.failure = ""
            directory.release()

    # -- logs

    def choose_for(self, topic_partition: TopicPartition) -> LogDirectory:
        """Choose the data directory of a new log: the one with the fewest logs among those that are not cordoned.

        A directory with a folder of that name, left by a failed attempt, takes precedence: a broker does not start with
        two such folders.
        """
        online = self.online()
        open_ones = [directory for directory in online if directory.path not in self.cordoned] or online[:1]
        if len(online) > 1:
            name = folder_name(topic_partition)
            for directory in online:
                if self._world.storage.is_dir(f"{directory.path}/{name}"):
                    return directory
        return min(open_ones, key=lambda candidate: len(candidate.logs) + len(candidate.offline))

    def host(
        self, topic_partition: TopicPartition, log: PartitionLog, directory: LogDirectory, topic_id: UUID | None
    ) -> None:
        """Add an open log."""
        self.hosted[topic_partition] = HostedLog(log, directory, topic_id)
        directory.logs[topic_partition] = log

    def remove(self, topic_partition: TopicPartition) -> HostedLog:
        """Close a hosted log without writing, and forget it; its files stay. A move of the log is cancelled."""
        self._moves.give_up(topic_partition)
        hosted = self.hosted.pop(topic_partition)
        del hosted.directory.logs[topic_partition]
        hosted.log.abandon()
        return hosted

    def log(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """Return the log of a partition, or None when there is no usable log."""
        hosted = self.hosted.get(topic_partition)
        return hosted.log if hosted is not None else None

    def is_offline(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition has a log that is offline."""
        return any(topic_partition in directory.offline for directory in self._all)

    # -- failures

    def fail(self, directory: LogDirectory, error: OSError) -> None:
        """Take a directory offline. `report_offline` reports it later, since a call to one of its logs may be in
        progress.
        """
        if directory.failure:
            return
        gone = directory.fail(error)
        logger.critical("%s. Its %d logs are offline.", directory.failure, len(gone))
        self._moves.give_up_all_to(directory)
        for topic_partition in gone:
            self._moves.give_up(topic_partition)
            del self.hosted[topic_partition]
        self._report(gone, directory.failure)
        if not self.online():
            self._all_offline.set()

    def lose(self, topic_partition: TopicPartition, reason: str) -> None:
        """Take one log offline whose files another program changed; its data directory stays online."""
        hosted = self.remove(topic_partition)
        logger.error("%s", reason)
        offline = OfflineLog(reason, hosted.log.recovery_point, hosted.log.log_start_offset)
        self.set_offline(topic_partition, hosted.directory, offline)

    def set_offline(self, topic_partition: TopicPartition, directory: LogDirectory, offline: OfflineLog) -> None:
        """Record a log of ``directory`` as offline, and report it."""
        directory.offline[topic_partition] = offline
        self._report([topic_partition], offline.reason)

    def _report(self, gone: list[TopicPartition], reason: str) -> None:
        self._unreported.append((gone, reason))
        self._went_offline.set()

    async def report_offline(self) -> None:
        """Report offline logs to the listener, until cancelled."""
        while True:
            await self._went_offline.wait()
            self._went_offline = trio.Event()
            reports, self._unreported = self._unreported, []
            for gone, reason in reports:
                if self._listener is not None and gone:
                    self._listener.logs_offline(gone, reason)

    async def run_until_all_offline(self) -> None:
        """Wait until all data directories are offline. Safe to cancel.

        Raises:
            KafkaStorageError: all data directories are offline; the message has the reasons. Repair a disk and restart.
        """
        await self._all_offline.wait()
        why = "; ".join(self.offline().values())
        raise KafkaStorageError(f"all data directories are offline: {why}")

    def refused(self, directory: LogDirectory, error: OSError) -> None:
        """Log a full directory, not more often than once a minute. The client of each refused call gets the error."""
        now_ms = self._world.wall_ms()
        if not 0 <= now_ms - directory.refusal_logged_ms < _REFUSALS_MS:  # the clock may have moved back
            directory.refusal_logged_ms = now_ms
            where = f" ({error.filename})" if error.filename else ""
            reason = error.strerror or error
            logger.error("%s: writes fail: %s%s. Free space or file handles.", directory.path, reason, where)

    def log_flushed(self, flusher: LogFlusher) -> None:
        """Report a flush to the listener, unless the log was closed or replaced meanwhile."""
        hosted = self.hosted.get(flusher.topic_partition)
        if self._listener is not None and hosted is not None and hosted.log.flusher is flusher:
            self._listener.log_flushed(flusher.topic_partition)

    def flush_failed(self, flusher: LogFlusher, error: OSError) -> None:
        """Take the directory of a log offline after a failed flush, unless the log was closed or replaced meanwhile."""
        hosted = self.hosted.get(flusher.topic_partition)
        if hosted is not None and hosted.log.flusher is flusher:
            self.fail(hosted.directory, error)


def cause_of(error: KafkaStorageError) -> OSError:
    """Return the disk error that caused ``error``."""
    return error.__cause__ if isinstance(error.__cause__, OSError) else OSError(str(error))
