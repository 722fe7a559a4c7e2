"""Deleting logs, and putting aside stray logs: renaming their folders now, removing them later."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID

import trio

from triokafka.broker_stub.log.cleaner.cleaning_progress import CleaningProgress
from triokafka.broker_stub.log.log_directories import LogDirectories
from triokafka.broker_stub.log.log_directory import (
    DELETE_SUFFIX,
    STRAY_SUFFIX,
    LogDirectory,
    folder_name,
    renamed_folder,
)
from triokafka.errors import KafkaStorageError
from triokafka.structs import TopicPartition
from triokafka.world import Storage, World

logger = logging.getLogger(__name__)

NO_TOPIC: Final = "belongs to no topic in the cluster"
"""A reason for `LogDeletion.put_aside`."""


class LogDeletion:
    """Deletes logs and counts stray logs.

    ``removed_topics`` are the ids of topics that the metadata log has deleted. Their logs are deleted at the start, not
    put aside.
    """

    def __init__(self, world: World, directories: LogDirectories, cleaning: CleaningProgress) -> None:
        self.removed_topics: frozenset[UUID] = frozenset()
        self._world = world
        self._directories = directories
        self._cleaning = cleaning
        self._strays: Counter[str] = Counter()  # by data directory
        self._unsynced: set[LogDirectory] = set()  # directories with unsynced renames
        self._due_removals: list[tuple[int, int, str]] = []  # since when, the delay, and the renamed folder

    def delete(self, topic_partition: TopicPartition, *, delete_delay_ms: int, sync: bool = True) -> None:
        """Delete the log of a partition, open or offline.

        The folder is renamed immediately, and removed ``file.delete.delay.ms`` later.

        Args:
            delete_delay_ms: the delay for an offline log, whose configuration is unknown.
            sync: False if the caller makes the deletion durable with `sync_deletions`.

        Raises:
            KafkaStorageError: the disk failed; the log is closed all the same.
        """
        for directory in self._directories.all():
            if directory.offline.pop(topic_partition, None) is not None:
                self._cleaning.log_deleted(topic_partition, directory.path)
                source = f"{directory.path}/{folder_name(topic_partition)}"
                path = self._rename(topic_partition, directory, source, DELETE_SUFFIX, sync=sync)
                self.remove_later(path, delete_delay_ms)
        hosted = self._directories.hosted.get(topic_partition)
        if hosted is not None:
            path = self._close_and_rename(topic_partition, DELETE_SUFFIX, sync=sync)
            self.remove_later(path, hosted.log.config.file_delete_delay_ms)

    def put_aside(self, topic_partition: TopicPartition, *, why: str = NO_TOPIC) -> None:
        """Close and rename a hosted log that is not this broker's. The WARNING gives the reason ``why``.

        The log of a topic whose deletion is committed is deleted: a crash came before its folder was renamed. Any other
        log is kept as ``…-stray``, as in Kafka, since no request deleted its records.

        Raises:
            KafkaStorageError: the disk failed; the log is closed all the same.
        """
        hosted = self._directories.hosted[topic_partition]
        path, topic_id = hosted.log.directory, hosted.topic_id
        if topic_id in self.removed_topics:
            logger.info("%s: the topic (id %s) was deleted earlier; the log is deleted now", path, topic_id)
            self.remove_later(self._close_and_rename(topic_partition, DELETE_SUFFIX), 0)
            return
        renamed = self._close_and_rename(topic_partition, STRAY_SUFFIX)
        self._note_stray(hosted.directory, path, topic_id, renamed, why)

    def put_folder_aside(
        self, topic_partition: TopicPartition, directory: LogDirectory, path: str, topic_id: UUID | None
    ) -> None:
        """Rename the folder of a log that is not open to ``…-stray``. Raises `KafkaStorageError`."""
        self._note_stray(directory, path, topic_id, self._rename(topic_partition, directory, path, STRAY_SUFFIX))

    def _note_stray(
        self, directory: LogDirectory, path: str, topic_id: UUID | None, renamed: str, why: str = NO_TOPIC
    ) -> None:
        self._strays[directory.path] += 1
        logger.warning(
            "%s %s (topic id %s); renamed to %s. Remove it when it is not needed.",
            path,
            why,
            topic_id,
            renamed,
        )

    def _close_and_rename(self, topic_partition: TopicPartition, suffix: str, *, sync: bool = True) -> str:
        hosted = self._directories.remove(topic_partition)
        self._cleaning.log_deleted(topic_partition, hosted.directory.path)
        return self._rename(topic_partition, hosted.directory, hosted.log.directory, suffix, sync=sync)

    def _rename(
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

    async def sync_deletions(self) -> None:
        """Make deletions without a sync durable, in a thread. A failure is logged. Shielded from cancellation."""
        unsynced, self._unsynced = self._unsynced, set()
        with trio.CancelScope(shield=True):
            for directory in unsynced:
                try:
                    await self._world.run_in_thread(self._world.storage.sync_dir, directory.path)
                except OSError as error:
                    logger.error(
                        "%s cannot be synced; after a power cut, a deleted log may be back: %s", directory.path, error
                    )

    # -- strays

    def count_strays(self, directory: LogDirectory) -> None:
        """Count and report the stray folders of a data directory. Raises `OSError`."""
        strays = directory.stray_folders()
        self._strays[directory.path] = len(strays)
        if strays:
            logger.warning(
                "%s has %d folders of logs that are not this broker's, such as %s. Remove those that are not needed.",
                directory.path,
                len(strays),
                strays[0],
            )

    def strays(self) -> Mapping[str, int]:
        """How many folders of stray logs each data directory has."""
        return {directory.path: self._strays[directory.path] for directory in self._directories.all()}

    # -- removing

    def remove_later(self, path: str, delay_ms: int) -> None:
        """Schedule the removal of a renamed folder in ``delay_ms``."""
        self._due_removals.append((self._world.wall_ms(), delay_ms, path))

    def take_due(self, now_ms: int) -> list[str]:
        """Return the renamed folders that are due; the caller removes them."""
        due, waiting = list[str](), []
        for since, delay_ms, path in self._due_removals:
            if 0 <= now_ms - since < delay_ms:  # the clock may have moved back
                waiting.append((since, delay_ms, path))
            else:
                due.append(path)
        self._due_removals = waiting
        return due


def remove(storage: Storage, folders: Sequence[str], files: Sequence[str] = ()) -> None:
    """Remove folders and files. Failures are logged; the next start tries again."""
    for path in folders:
        try:
            storage.remove_tree(path)
        except OSError as error:
            logger.error("%s cannot be removed; the next start tries again: %s", path, error)
    for path in files:
        try:
            storage.remove(path)
        except FileNotFoundError:
            pass  # two deleted segments had the same name, and one was renamed over the other
        except OSError as error:
            logger.error("%s cannot be removed; the next start tries again: %s", path, error)
