"""Replacing a log by its complete copy in another data directory."""

from __future__ import annotations

import logging
from functools import partial

from triokafka.broker_stub.log.cleaner.cleaning_progress import CleaningProgress
from triokafka.broker_stub.log.high_watermark_checkpoint import note_high_watermark
from triokafka.broker_stub.log.log_deletion import LogDeletion
from triokafka.broker_stub.log.log_directories import HostedLog, LogDirectories
from triokafka.broker_stub.log.log_directory import (
    DELETE_SUFFIX,
    LogDirectory,
    OfflineLog,
    folder_name,
    renamed_folder,
)
from triokafka.broker_stub.log.log_discovery import FoundLog
from triokafka.broker_stub.log.log_disk_errors import is_temporary
from triokafka.broker_stub.log.log_listener import LogListener
from triokafka.broker_stub.log.log_opener import LogOpener
from triokafka.broker_stub.log.move_recovery import MoveOutcome, exchange
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.broker_stub.log.pending_moves import PendingMoves
from triokafka.errors import KafkaStorageError
from triokafka.structs import TopicPartition
from triokafka.world import World

logger = logging.getLogger(__name__)


class UnclearMoveError(KafkaStorageError):
    """The next start decides whether the log or its copy counts."""


class FutureLogPromotion:
    """Promotes copies of logs (``…-future``)."""

    def __init__(
        self,
        world: World,
        directories: LogDirectories,
        opener: LogOpener,
        deletion: LogDeletion,
        cleaning: CleaningProgress,
        moves: PendingMoves,
        listener: LogListener | None,
    ) -> None:
        self._world = world
        self._directories = directories
        self._opener = opener
        self._deletion = deletion
        self._cleaning = cleaning
        self._moves = moves
        self._listener = listener

    def promote(self, topic_partition: TopicPartition, copy: PartitionLog, target: LogDirectory) -> None:
        """Replace the log by a closed copy with all its records; the old files are deleted like those of a deleted log.

        Raises:
            KafkaStorageError: a disk failed; the log stays in its directory, unless that is offline now.
            UnclearMoveError: a disk failed, and only the next start can decide between log and copy; the copy must
                stay.
        """
        directories = self._directories
        hosted = directories.hosted[topic_partition]
        source, old, config = hosted.log, hosted.directory, hosted.log.config
        path = f"{target.path}/{folder_name(topic_partition)}"
        found = FoundLog(target, topic_partition, path, config, copy.log_end_offset, copy.log_start_offset)
        # The checkpoints of the target must have the log's offsets before the log is there.
        target.offline[topic_partition] = OfflineLog("it is moving here", found.recovery_point, found.log_start_offset)
        try:
            directories.write(target, target.checkpoint)
        finally:
            del target.offline[topic_partition]
        committed = self._listener.high_watermark_of(topic_partition) if self._listener is not None else None
        if committed is not None:  # otherwise a crash before the next checkpoint would lose it
            directories.write(target, partial(note_high_watermark, target, topic_partition, committed))
        gone = f"{old.path}/{renamed_folder(topic_partition, self._world.uuid().hex, DELETE_SUFFIX)}"
        outcome, problems = exchange(
            self._world.storage, topic_partition, log=source.directory, gone=gone, copy=copy.directory, path=path
        )
        if outcome is MoveOutcome.DONE:
            self._moves.ended(topic_partition)
            self._deletion.remove_later(gone, config.file_delete_delay_ms)
            self._host_moved(found, hosted)
        for problem in problems:
            if outcome is MoveOutcome.UNCLEAR or not is_temporary(problem.error):
                directories.fail(old if problem.path == source.directory else target, problem.error)
        if outcome is not MoveOutcome.DONE:
            kind = UnclearMoveError if outcome is MoveOutcome.UNCLEAR else KafkaStorageError
            raise kind(f"{topic_partition}: the move failed: {problems[0].error}")

    def _host_moved(self, found: FoundLog, hosted: HostedLog) -> None:
        """Open the log in its new directory and host it there."""
        directories, topic_partition, target = self._directories, found.topic_partition, found.directory
        directories.remove(topic_partition)
        self._cleaning.log_deleted(topic_partition, hosted.directory.path)
        try:
            log = self._opener.open(found, directories.files, clean=True)
        except KafkaStorageError as error:
            logger.error("%s is offline: %s", topic_partition, error)
            offline = OfflineLog(str(error), found.recovery_point, found.log_start_offset)
            directories.set_offline(topic_partition, target, offline)
            return
        directories.host(topic_partition, log, target, hosted.topic_id)
        if self._listener is not None:
            self._listener.log_moved(topic_partition, log)
