"""Opening all logs when the broker starts, several in parallel, with recovery after a crash."""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

import trio

from triokafka.broker_stub.log.clean_shutdown import forget_clean_stop
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.log_deletion import LogDeletion
from triokafka.broker_stub.log.log_directories import LogDirectories, cause_of
from triokafka.broker_stub.log.log_directory import OfflineLog
from triokafka.broker_stub.log.log_discovery import (
    FoundLog,
    TopicIds,
    find_logs,
    resolve_duplicates,
    topic_id_in,
)
from triokafka.broker_stub.log.log_mover import LogMover
from triokafka.broker_stub.log.log_opener import LogOpener
from triokafka.broker_stub.log.move_recovery import UnfinishedMove, UnsettledError, settle_moves
from triokafka.broker_stub.log.open_files import OpenFiles
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.errors import KafkaStorageError
from triokafka.named_tuple import NamedTuple
from triokafka.structs import TopicPartition
from triokafka.world import Storage, World

logger = logging.getLogger(__name__)

TopicConfigs = Callable[[str], LogConfig]


class LoadedLog(NamedTuple):
    """An opened log, or the reason why opening it failed."""

    found: FoundLog
    log: PartitionLog | OfflineLog
    topic_id: UUID | None = None


class LogStartup:
    """Loads the logs of all data directories.

    Args:
        threads: the number of logs that are opened in parallel per data directory.
        max_open_files: the limit of open files of each thread.
    """

    def __init__(
        self,
        world: World,
        directories: LogDirectories,
        opener: LogOpener,
        deletion: LogDeletion,
        mover: LogMover,
        *,
        threads: int,
        max_open_files: int,
    ) -> None:
        self._world = world
        self._directories = directories
        self._opener = opener
        self._deletion = deletion
        self._mover = mover
        self._threads = threads
        self._max_open_files = max_open_files
        self._moves_again: list[UnfinishedMove] = []  # moves that the last stop interrupted

    def load_now(self, config_of: TopicConfigs, topic_id_of: TopicIds | None) -> None:
        """Do the work of `load` in the calling thread."""
        try:
            left, loaded = self._find(config_of, topic_id_of), list[LoadedLog]()
            for logs in left:
                self._open_found(logs, loaded, lambda found: False, lambda count: None, sum(map(len, left)))
            self._take_over(loaded)
        except BaseException:
            self._directories.abandon()
            raise

    async def load(
        self,
        config_of: TopicConfigs,
        topic_id_of: TopicIds | None,
        is_replicated: Callable[[TopicPartition], bool],
        log_opened: Callable[[int], None],
    ) -> None:
        """See `LogManager.load`."""
        run = self._world.run_in_thread
        try:
            found, loaded = await run(self._find, config_of, topic_id_of), list[LoadedLog]()
            count = sum(map(len, found))
            async with trio.open_nursery() as watched:
                watched.start_soon(_empty_when_cancelled, found)
                async with trio.open_nursery() as nursery:
                    for left in found:
                        for _ in range(min(self._threads, len(left))):
                            nursery.start_soon(run, self._open_found, left, loaded, is_replicated, log_opened, count)
                watched.cancel_scope.cancel()
            await run(self._take_over, loaded)
        except BaseException:
            self._directories.abandon()
            raise

    def _find(self, config_of: TopicConfigs, topic_id_of: TopicIds | None) -> list[list[FoundLog]]:
        """Find the logs of each directory."""
        found: list[list[FoundLog]] = []
        self._settle_moves()
        for directory in self._directories.online():
            try:
                here = find_logs(directory, config_of)
                for path in directory.deleted_folders():
                    self._deletion.remove_later(path, 0)
                self._deletion.count_strays(directory)
            except OSError as error:
                self._directories.fail(directory, error)
                continue
            found.append(here)
        return resolve_duplicates(found, topic_id_of, self._world.storage, self._put_aside)

    def _put_aside(self, log: FoundLog) -> None:
        try:
            self._deletion.put_folder_aside(log.topic_partition, log.directory, log.path, None)
        except KafkaStorageError as error:
            self._directories.fail(log.directory, cause_of(error))

    def _settle_moves(self) -> None:
        """Complete or undo moves between data directories that a crash or a stop interrupted."""
        self._moves_again = []
        while True:
            try:
                settle_moves(
                    self._world.storage,
                    self._directories.online(),
                    self._moves_again,
                    all_there=not self._directories.offline(),
                    new_name=lambda: self._world.uuid().hex,
                )
                return
            except UnsettledError as unsettled:
                self._directories.fail(unsettled.directory, unsettled.error)

    def _open_found(
        self,
        left: list[FoundLog],
        loaded: list[LoadedLog],
        is_replicated: Callable[[TopicPartition], bool],
        log_opened: Callable[[int], None],
        count: int,
    ) -> None:
        def open_log(found: FoundLog, files: OpenFiles) -> PartitionLog:
            try:
                replicated = is_replicated(found.topic_partition)
                return self._opener.open(found, files, clean=found.directory.clean, replicated=replicated)
            finally:
                log_opened(count)

        _open_logs(self._world.storage, left, loaded, open_log, self._max_open_files)

    def _take_over(self, loaded: list[LoadedLog]) -> None:
        directories = self._directories
        for entry in sorted(loaded, key=lambda entry: entry.found.topic_partition):
            found, directory = entry.found, entry.found.directory
            if isinstance(entry.log, OfflineLog):
                directory.offline[found.topic_partition] = entry.log
            else:
                entry.log.adopt(directories.files)
                directories.host(found.topic_partition, entry.log, directory, entry.topic_id)
        changed = {
            entry.found.directory
            for entry in loaded
            if not isinstance(entry.log, OfflineLog)
            and (entry.log.recovery_point < entry.found.recovery_point or entry.log.lost_offsets)
        }
        for directory in directories.online():
            try:
                # Otherwise the checkpoint would cover records that are appended there next, or miss those behind a gap.
                if directory in changed:
                    directory.checkpoint_recovery_points()
                forget_clean_stop(self._world.storage, directory.path)
            except KafkaStorageError as error:
                directories.fail(directory, cause_of(error))
            except OSError as error:
                directories.fail(directory, error)
        directories.check_any_is_online()
        directories.started = True
        for again in self._moves_again:
            if again.topic_partition in directories.hosted and not again.target.failure:
                self._mover.move(again.topic_partition, again.target.path)


async def _empty_when_cancelled(left: list[list[FoundLog]]) -> None:
    """Empty the lists when the load is cancelled. Threads are not interrupted; they end when nothing is left."""
    try:
        await trio.sleep_forever()
    finally:
        for logs in left:
            logs.clear()


def _open_logs(
    storage: Storage,
    left: list[FoundLog],
    loaded: list[LoadedLog],
    open_log: Callable[[FoundLog, OpenFiles], PartitionLog],
    max_open_files: int,
) -> None:
    """Open the logs in ``left`` and move them to ``loaded``, until ``left`` is empty. Several threads may run this.

    A log that cannot be opened goes offline; the others are not affected.
    """
    files = OpenFiles(storage, max_open_files)
    while True:
        try:
            found = left.pop()
        except IndexError:
            return
        try:
            topic_id = topic_id_in(storage, found.path)
            log = open_log(found, files)
        except KafkaStorageError as error:
            logger.error("%s is offline: %s", found.topic_partition, error)
            reason = OfflineLog(str(error), found.recovery_point, found.log_start_offset)
            loaded.append(LoadedLog(found, reason))
        else:
            files.close_all()  # the broker's own `OpenFiles` opens them again when needed
            loaded.append(LoadedLog(found, log, topic_id))
