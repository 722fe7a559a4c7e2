"""Making the logs of new partitions: one at a time where it is asked for, or many ahead, in threads."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from uuid import UUID

import trio

from triokafka.broker_stub.log.checkpoints import (
    PARTITION_METADATA,
    CorruptCheckpointError,
    read_topic_id,
    write_topic_id,
)
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.hosted_logs import HostedLogs
from triokafka.broker_stub.log.log_directory import STRAY_SUFFIX, LogDirectory, OfflineLog, folder_name
from triokafka.broker_stub.log.log_loading import FoundLog
from triokafka.broker_stub.log.open_files import OpenFiles
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.broker_stub.log.prepared_log import PreparedLog, prepare_logs
from triokafka.errors import IllegalStateError, KafkaStorageError
from triokafka.structs import TopicPartition

logger = logging.getLogger(__name__)


class LogCreator(HostedLogs):
    """What `LogManager` has for partitions that get a log."""

    def create(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID | None = None,
        config: LogConfig | None = None,
        *,
        is_new: bool = True,
    ) -> PartitionLog:
        """The log of a partition, made in the directory with the fewest logs when there is none.

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
            self._move_former_away(topic_partition, hosted.topic_id)
            hosted = None
        if hosted is not None:
            if config is not None:
                hosted.log.update_config(config)
            return hosted.log
        for path, reason in self.offline_directories().items():
            if not is_new or not self._online():
                raise KafkaStorageError(f"there is no log of {topic_partition}, unless in {path}: {reason}")
        made = self._made.pop(topic_partition, None)
        if made is not None:
            log = made.take_over(self._files, topic_id, config)
            if log is not None:
                self._host(topic_partition, log, made.found.directory, topic_id)
                return log
            begun = made.found.directory
            if begun.failure:  # in another, there would be two of them when this is back
                begun.offline[topic_partition] = OfflineLog(begun.failure, 0, 0)
                raise KafkaStorageError(begun.failure)
        directory = self._directory_for(topic_partition)
        path = f"{directory.path}/{folder_name(topic_partition)}"
        self._written(directory, partial(directory.forget, {topic_partition}))
        found = FoundLog(directory, topic_partition, path, config or self.defaults, 0, 0)
        log = self._make(found, topic_id, self._files)
        self._host(topic_partition, log, directory, topic_id)
        return log

    def _directory_for(self, topic_partition: TopicPartition) -> LogDirectory:
        """Where to make a log: in the directory with the fewest, unless one has a folder of that name, from an attempt
        that failed: with two of them, no broker would start."""
        online = self._online()
        if len(online) > 1:
            name = folder_name(topic_partition)
            for directory in online:
                if self._world.storage.is_dir(f"{directory.path}/{name}"):
                    return directory
        return min(online, key=lambda candidate: len(candidate.logs) + len(candidate.offline))

    def _make(
        self,
        found: FoundLog,
        topic_id: UUID | None,
        files: OpenFiles,
        disk_failed: Callable[[OSError], None] | None = None,
    ) -> PartitionLog:
        """Make the log of a partition that has none. Raises `KafkaStorageError`."""
        if topic_id is not None:
            self._clear_remains(found.topic_partition, topic_id)
        log = self._open(found, files, clean=False, now_ms=self._world.wall_ms(), disk_failed=disk_failed)
        if topic_id is not None:
            self._write_topic_id(found.path, topic_id)
        return log

    def _clear_remains(self, topic_partition: TopicPartition, topic_id: UUID) -> None:
        """Move a log of an earlier topic out of the way that was deleted, but could not be renamed."""
        for directory in self._online():
            path = f"{directory.path}/{folder_name(topic_partition)}"
            try:
                known = read_topic_id(self._world.storage, f"{path}/{PARTITION_METADATA}")
            except (CorruptCheckpointError, OSError) as error:
                raise KafkaStorageError(f"{PARTITION_METADATA} in {path} cannot be read: {error}") from error
            if known not in (None, topic_id):
                renamed = self._rename_away(topic_partition, directory, path, STRAY_SUFFIX)
                self._note_stray(directory, path, known, renamed)

    def _write_topic_id(self, path: str, topic_id: UUID) -> None:
        try:
            write_topic_id(self._world.storage, f"{path}/{PARTITION_METADATA}", topic_id)
        except OSError as error:
            raise KafkaStorageError(f"{PARTITION_METADATA} in {path} cannot be written: {error}") from error

    # -- many at once

    async def prepare_new_logs(self, wanted: Mapping[TopicPartition, tuple[UUID, LogConfig]]) -> None:
        """Make logs of new partitions in threads, for `create` to take over; the partitions may not be there yet.

        What cannot be made is left to `create`, and nothing is made while a data directory is offline. Not cancelled.
        """
        # A log that is offline is there: making it anew would recover it as if nothing of it had been on the disk.
        here = self._logs.keys() | {tp for directory in self._directories for tp in directory.offline}
        missing = {tp: made for tp, made in wanted.items() if tp not in here}
        if not self._started or self.offline_directories():
            return
        shares: dict[LogDirectory, list[PreparedLog]] = {directory: [] for directory in self._directories}
        try:
            there = set[str]().union(*(self._world.storage.list_dir(d.path) for d in shares)) if len(shares) > 1 else ()
        except OSError as error:
            logger.error("logs cannot be made ahead: %s", error)
            return
        for topic_partition, (topic_id, config) in missing.items():
            if folder_name(topic_partition) in there:
                continue  # left by an attempt that failed
            directory = min(shares, key=lambda d: len(d.logs) + len(d.offline) + len(shares[d]))
            path = f"{directory.path}/{folder_name(topic_partition)}"
            found = FoundLog(directory, topic_partition, path, config, 0, 0)
            shares[directory].append(PreparedLog(found, topic_id, partial(self._fail, directory)))
        try:
            for directory, share in shares.items():
                self._written(directory, partial(directory.forget, {made.found.topic_partition for made in share}))
        except KafkaStorageError as error:
            logger.error("%s", error)
            return
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                for share in shares.values():
                    self._made.update((made.found.topic_partition, made) for made in share)
                    left = list(reversed(share))
                    for _ in range(min(self._config.recovery_threads_per_data_dir, len(left))):
                        files = OpenFiles(self._world.storage, max(1, self._config.max_open_files // 8))
                        nursery.start_soon(self._world.run_in_thread, prepare_logs, left, self._make, files)

    async def settle(self) -> None:
        """Finish changes of many partitions.

        Abandon the logs that `prepare_new_logs` made and `create` did not take over. Make deletions without a sync
        durable, in a thread. Not cancelled.
        """
        for made in self._made.values():
            made.give_up()
        self._made.clear()
        unsynced, self._unsynced = self._unsynced, set()
        with trio.CancelScope(shield=True):
            for directory in unsynced:
                try:
                    await self._world.run_in_thread(self._world.storage.sync_dir, directory.path)
                except OSError as error:
                    logger.error("%s cannot be synced: %s", directory.path, error)
