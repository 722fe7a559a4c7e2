"""Creating the logs of new partitions: one on request, or many in threads before they are requested.

Creating a log takes a few files and a sync. That is cheap for one log, but a topic may have thousands of partitions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from uuid import UUID

import trio

from triokafka.broker_stub.log.checkpoints import CorruptCheckpointError
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.log_deletion import LogDeletion
from triokafka.broker_stub.log.log_directories import LogDirectories
from triokafka.broker_stub.log.log_directory import LogDirectory, OfflineLog, folder_name
from triokafka.broker_stub.log.log_discovery import FoundLog
from triokafka.broker_stub.log.log_opener import LogOpener
from triokafka.broker_stub.log.open_files import OpenFiles
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.broker_stub.log.partition_metadata import PARTITION_METADATA, read_topic_id, write_topic_id
from triokafka.broker_stub.log.prepared_log import PreparedLog, prepare_logs
from triokafka.errors import IllegalStateError, KafkaStorageError
from triokafka.structs import TopicPartition
from triokafka.world import World

logger = logging.getLogger(__name__)


class LogCreator:
    """Creates logs.

    Args:
        threads: the number of logs that are created in parallel per data directory.
        max_open_files: the limit of open files of each thread.
    """

    def __init__(
        self,
        world: World,
        directories: LogDirectories,
        opener: LogOpener,
        deletion: LogDeletion,
        *,
        threads: int,
        max_open_files: int,
    ) -> None:
        self._world = world
        self._directories = directories
        self._opener = opener
        self._deletion = deletion
        self._threads = threads
        self._max_open_files = max_open_files
        self._prepared: dict[TopicPartition, PreparedLog] = {}

    def create(
        self,
        topic_partition: TopicPartition,
        topic_id: UUID | None,
        config: LogConfig | None,
        *,
        defaults: LogConfig,
        is_new: bool,
    ) -> PartitionLog:
        """See `LogManager.create`."""
        directories = self._directories
        if not directories.started:
            raise IllegalStateError("the log manager is not started")
        for directory in directories.all():
            if topic_partition in directory.offline:
                raise KafkaStorageError(directory.offline[topic_partition].reason)
        hosted = directories.hosted.get(topic_partition)
        if hosted is not None and topic_id is not None and hosted.topic_id is None:
            # Opening the log may have moved its recovery point, so that no flush syncs the id with the records. Without
            # the id, a later topic of the same name could get them.
            self._write_topic_id(hosted.log.directory, topic_id, durably=hosted.log.recovery_point > 0)
            hosted.topic_id = topic_id
        if hosted is not None and topic_id not in (None, hosted.topic_id):
            self._deletion.put_aside(topic_partition)
            hosted = None
        if hosted is not None:
            if config is not None:
                hosted.log.update_config(config)
            return hosted.log
        for path, reason in directories.offline().items():
            if not is_new or not directories.online():
                raise KafkaStorageError(
                    f"{topic_partition}: no online data directory has the log; it may be in {path}: {reason}"
                )
        prepared = self._prepared.pop(topic_partition, None)
        if prepared is not None:
            log = prepared.take_over(directories.files, topic_id, config)
            if log is not None:
                directories.host(topic_partition, log, prepared.found.directory, topic_id)
                return log
            begun = prepared.found.directory
            if begun.failure:  # a log in another directory would be a duplicate once this directory is back
                begun.offline[topic_partition] = OfflineLog(begun.failure, 0, 0)
                raise KafkaStorageError(begun.failure)
        directory = directories.choose_for(topic_partition)
        path = f"{directory.path}/{folder_name(topic_partition)}"
        directories.write(directory, partial(directory.forget, {topic_partition}))
        found = FoundLog(directory, topic_partition, path, config or defaults, 0, 0)
        log = self._make(found, topic_id, directories.files)
        directories.host(topic_partition, log, directory, topic_id)
        return log

    def _make(
        self,
        found: FoundLog,
        topic_id: UUID | None,
        files: OpenFiles,
        disk_failed: Callable[[OSError], None] | None = None,
    ) -> PartitionLog:
        """Create the log of a partition that has none. Raises `KafkaStorageError`."""
        if topic_id is not None:
            self._clear_remains(found.topic_partition, topic_id)
        log = self._opener.open(found, files, clean=False, disk_failed=disk_failed)
        if topic_id is not None:
            self._write_topic_id(found.path, topic_id)
        return log

    def _clear_remains(self, topic_partition: TopicPartition, topic_id: UUID) -> None:
        """Put aside the log of an earlier, deleted topic whose folder could not be renamed."""
        for directory in self._directories.online():
            path = f"{directory.path}/{folder_name(topic_partition)}"
            try:
                known = read_topic_id(self._world.storage, f"{path}/{PARTITION_METADATA}")
            except (CorruptCheckpointError, OSError) as error:
                raise KafkaStorageError(f"{PARTITION_METADATA} in {path} cannot be read: {error}") from error
            if known not in (None, topic_id):
                self._deletion.put_folder_aside(topic_partition, directory, path, known)

    def _write_topic_id(self, path: str, topic_id: UUID, *, durably: bool = False) -> None:
        try:
            write_topic_id(self._world.storage, f"{path}/{PARTITION_METADATA}", topic_id, durably=durably)
        except OSError as error:
            raise KafkaStorageError(f"{PARTITION_METADATA} in {path} cannot be written: {error}") from error

    # -- many logs

    async def prepare_new_logs(self, wanted: Mapping[TopicPartition, tuple[UUID, LogConfig]]) -> None:
        """See `LogManager.prepare_new_logs`."""
        directories = self._directories
        # An offline log exists: creating it again would recover it as if none of its records had been on disk.
        here = directories.hosted.keys() | {tp for directory in directories.all() for tp in directory.offline}
        missing = {tp: new for tp, new in wanted.items() if tp not in here}
        if not directories.started or directories.offline():
            return
        shares: dict[LogDirectory, list[PreparedLog]] = {directory: [] for directory in directories.all()}
        try:
            there = set[str]().union(*(self._world.storage.list_dir(d.path) for d in shares)) if len(shares) > 1 else ()
        except OSError as error:
            logger.error("Creating logs in advance failed; they are created one by one: %s", error)
            return
        for topic_partition, (topic_id, config) in missing.items():
            if folder_name(topic_partition) in there:
                continue  # left by a failed attempt
            directory = min(shares, key=lambda d: len(d.logs) + len(d.offline) + len(shares[d]))
            path = f"{directory.path}/{folder_name(topic_partition)}"
            found = FoundLog(directory, topic_partition, path, config, 0, 0)
            shares[directory].append(PreparedLog(found, topic_id, partial(directories.fail, directory)))
        try:
            for directory, share in shares.items():
                names = {prepared.found.topic_partition for prepared in share}
                directories.write(directory, partial(directory.forget, names))
        except KafkaStorageError as error:
            logger.error("%s", error)
            return
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                for share in shares.values():
                    self._prepared.update((prepared.found.topic_partition, prepared) for prepared in share)
                    left = list(reversed(share))
                    for _ in range(min(self._threads, len(left))):
                        files = OpenFiles(self._world.storage, self._max_open_files)
                        nursery.start_soon(self._world.run_in_thread, prepare_logs, left, self._make, files)

    def abandon_prepared(self) -> None:
        """Close the prepared logs that `create` did not take over."""
        for prepared in self._prepared.values():
            prepared.give_up()
        self._prepared.clear()
