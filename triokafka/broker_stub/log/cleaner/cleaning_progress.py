"""The progress of the cleaner: up to which offset each log is clean, with checkpoints, and the cleaning states."""

from __future__ import annotations

import logging

from triokafka.broker_stub.log.checkpoints import (
    CLEANER_CHECKPOINT,
    CorruptCheckpointError,
    read_offsets,
    write_offsets,
)
from triokafka.broker_stub.log.cleaner.cleaning_states import CleaningStates
from triokafka.broker_stub.log.log_directories import LogDirectories
from triokafka.structs import TopicPartition
from triokafka.world import Storage

logger = logging.getLogger(__name__)


class CleaningProgress:
    """The cleaner's checkpoints and the states of the logs.

    ``uncleanable`` maps each log that cannot be cleaned to the reason. ``not_before`` maps a log whose disk failed to
    the time of its next attempt, on the monotonic clock.
    """

    def __init__(self, storage: Storage, directories: LogDirectories) -> None:
        self.states = CleaningStates()
        self.uncleanable: dict[TopicPartition, str] = {}
        self.not_before: dict[TopicPartition, float] = {}
        self._storage = storage
        self._directories = directories
        self._cleaned: dict[str, dict[TopicPartition, int]] = {}  # by data directory

    def log_truncated(self, topic_partition: TopicPartition, directory: str, offset: int) -> None:
        """Stop cleaning a log before its truncation. Records at and after ``offset`` are no longer clean."""
        self.states.abort(topic_partition)
        self.uncleanable.pop(topic_partition, None)
        cleaned = self._cleaned_in(directory)
        if cleaned.get(topic_partition, -1) > offset:
            cleaned[topic_partition] = offset
            self._write_checkpoint(directory)

    def log_deleted(self, topic_partition: TopicPartition, directory: str) -> None:
        """Forget a log that was removed from ``directory``."""
        self.states.abort(topic_partition)
        self.uncleanable.pop(topic_partition, None)
        self.not_before.pop(topic_partition, None)
        if self._cleaned_in(directory).pop(topic_partition, None) is not None:
            self._write_checkpoint(directory)

    def cleaned_up_to(self, topic_partition: TopicPartition) -> int | None:
        """The offset below which a hosted log is clean; None when it was never cleaned."""
        return self._cleaned_in(self._directories.hosted[topic_partition].directory.path).get(topic_partition)

    def cleaned(self, topic_partition: TopicPartition, directory: str, offset: int) -> None:
        """Record that a pass cleaned a log of ``directory`` up to ``offset``."""
        self._cleaned_in(directory)[topic_partition] = offset
        self._write_checkpoint(directory)

    def start_over(self, topic_partition: TopicPartition) -> None:
        """Treat a hosted log as never cleaned; the checkpoint is written after the next pass."""
        self._cleaned_in(self._directories.hosted[topic_partition].directory.path).pop(topic_partition, None)

    def _cleaned_in(self, directory: str) -> dict[TopicPartition, int]:
        known = self._cleaned.get(directory)
        if known is None:
            path = f"{directory}/{CLEANER_CHECKPOINT}"
            try:
                known = read_offsets(self._storage, path)
            except (CorruptCheckpointError, OSError) as error:
                logger.warning("%s; all logs there count as not cleaned", error)
                known = {}
            self._cleaned[directory] = known
        return known

    def _write_checkpoint(self, directory: str) -> None:
        cleaned = self._cleaned_in(directory)
        for topic_partition in list(cleaned):
            hosted = self._directories.hosted.get(topic_partition)
            if hosted is None or hosted.directory.path != directory:
                del cleaned[topic_partition]
        try:
            write_offsets(self._storage, f"{directory}/{CLEANER_CHECKPOINT}", cleaned)
        except OSError as error:
            # Without the checkpoint, the records are cleaned again after a restart.
            logger.error("%s in %s cannot be written: %s", CLEANER_CHECKPOINT, directory, error)
