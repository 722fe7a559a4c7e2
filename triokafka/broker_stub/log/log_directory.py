"""One data directory: its lock, its checkpoints, and the logs in it."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from triokafka.broker_stub.log.checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    CorruptCheckpointError,
    read_offsets,
    write_offsets,
)
from triokafka.broker_stub.log.clean_shutdown import clean_stop_epoch
from triokafka.errors import ConfigurationError, KafkaStorageError
from triokafka.named_tuple import NamedTuple
from triokafka.structs import TopicPartition
from triokafka.world import Storage

if TYPE_CHECKING:
    from triokafka.broker_stub.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

LOCK_FILE: Final = ".lock"
DELETE_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"
FUTURE_SUFFIX: Final = "-future"
_NO_LOG_SUFFIXES: Final = (DELETE_SUFFIX, STRAY_SUFFIX, FUTURE_SUFFIX)
_METADATA_PARTITION: Final = TopicPartition("__cluster_metadata", 0)
_METADATA_LOG: Final = str(_METADATA_PARTITION)  # opened by the controller
_MAX_NAME: Final = 255
_UNIQUE: Final = re.compile(r"\.[0-9a-f]{32}$")
_INSTEAD: Final = "Choose another directory in log.dirs (--data-dir), or give this user access to it."


class OfflineLog(NamedTuple):
    """An offline log: the reason, and its offsets in the checkpoints."""

    reason: str
    recovery_point: int
    log_start_offset: int


class LogDirectory:
    """A data directory in use by this broker.

    `open` takes the lock, which all other methods need. ``clean``: the last stop was clean; ``clean_broker_epoch`` is
    the broker epoch of that time, -1 if there was none. ``logs`` are the open logs,
    ``offline`` the unusable ones. ``failure`` is the reason why the whole directory is offline; then all its logs are
    offline, and the broker writes nothing to it.
    """

    def __init__(self, storage: Storage, path: str) -> None:
        self.path = path
        self.clean = False
        self.clean_broker_epoch = -1
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.offline: dict[TopicPartition, OfflineLog] = {}
        self.failure = ""
        self._metadata_end: Callable[[], int] | None = None
        self.refusal_logged_ms = -(2**63)  # wall clock of the last log line about a full disk
        self._storage = storage
        self._release: Callable[[], None] | None = None
        self._checkpointed: dict[str, Mapping[TopicPartition, int]] = {}  # by file name
        self._written: dict[str, Mapping[TopicPartition, int]] = {}  # by file name: written by this object, so durable
        self._doubtful: set[str] = set()  # files whose last write failed; their content may not be durable

    def open(self) -> None:
        """Create the directory if it is missing, and lock it.

        Raises:
            ConfigurationError: another broker uses it.
            KafkaStorageError: it cannot be used. Both messages name a remedy.
        """
        try:
            self._storage.make_dirs_durably(self.path)
            self._storage.list_dir(self.path)
        except OSError as error:
            raise KafkaStorageError(
                f"The data directory {self.path} cannot be used: {error.strerror or error}. {_INSTEAD}"
            ) from error
        try:
            self._release = self._storage.lock(f"{self.path}/{LOCK_FILE}")
        except BlockingIOError:
            raise ConfigurationError(
                f"The data directory {self.path} is in use by another broker, which holds {LOCK_FILE}. Stop that one, "
                f"or choose another directory in log.dirs."
            ) from None
        except OSError as error:
            raise KafkaStorageError(
                f"The data directory {self.path} cannot be locked: {error.strerror or error}. {_INSTEAD}"
            ) from error
        self._written.clear()
        epoch = clean_stop_epoch(self._storage, self.path)
        self.clean = epoch is not None
        self.clean_broker_epoch = -1 if epoch is None else epoch

    def fail(self, error: OSError) -> list[TopicPartition]:
        """Take the directory and all its logs offline; return the logs that were online. A second call does nothing."""
        if self.failure:
            return []
        self.failure = f"the data directory {self.path} is offline: {error}"
        taken = dict(self.logs)
        self.logs.clear()
        for topic_partition, log in taken.items():
            log.take_offline(error)
            self.offline[topic_partition] = OfflineLog(self.failure, log.recovery_point, log.log_start_offset)
        return list(taken)

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._release is not None:
            self._release()
            self._release = None

    def log_folders(self, *, warn: bool = False) -> dict[TopicPartition, str]:
        """Return the folders of logs by partition; ``warn`` logs a warning for each other folder.

        Topic names may begin with a dot, and so do hidden folders of other programs: those get no warning.
        """
        found = {}
        for name in self._storage.list_dir(self.path):
            path = f"{self.path}/{name}"
            if name == _METADATA_LOG or name.endswith(_NO_LOG_SUFFIXES):
                continue
            if not self._storage.is_dir(path):
                continue
            topic_partition = parse_folder(name)
            if topic_partition is not None:
                found[topic_partition] = path
            elif warn and not name.startswith("."):
                logger.warning("%s is not the folder of a partition; ignored", path)
        return found

    def deleted_folders(self) -> list[str]:
        """Return the folders of deleted logs that are not removed yet. Raises `OSError`."""
        return self._renamed_folders(DELETE_SUFFIX)

    def stray_folders(self) -> list[str]:
        """Return the folders of stray logs, which belong to no topic. Raises `OSError`."""
        return self._renamed_folders(STRAY_SUFFIX)

    def _renamed_folders(self, suffix: str) -> list[str]:
        """Return folders with ``suffix`` that `renamed_folder` or Kafka named; folders of other programs may end
        alike.
        """
        names = (name for name in self._storage.list_dir(self.path) if name.endswith(suffix))
        return [f"{self.path}/{name}" for name in names if _UNIQUE.search(name.removesuffix(suffix))]

    def future_folders(self) -> list[str]:
        """Return the folders of copies of logs that are being moved here, or were before a crash. Raises `OSError`."""
        paths = [f"{self.path}/{name}" for name in self._storage.list_dir(self.path) if name.endswith(FUTURE_SUFFIX)]
        return [path for path in paths if self._storage.is_dir(path)]

    def checkpoint(self) -> None:
        """Write recovery points and start offsets. Raises `KafkaStorageError`."""
        self.checkpoint_recovery_points()
        self.checkpoint_start_offsets()

    def checkpoint_recovery_points(self) -> None:
        """Write the recovery point of each log. Raises `KafkaStorageError`."""
        points = {tp: log.recovery_point for tp, log in self.logs.items()}
        points.update((tp, log.recovery_point) for tp, log in self.offline.items())
        if self._metadata_end is not None:  # Kafka does not write this entry, and ignores it
            points[_METADATA_PARTITION] = self._metadata_end()
        self.write_offsets(RECOVERY_POINT_CHECKPOINT, points)

    def checkpoint_metadata_end(self, metadata_end: Callable[[], int]) -> None:
        """Add the metadata log, which is open in this directory now, to the checkpoint of recovery points.

        Args:
            metadata_end: returns the offset up to which the metadata log is committed.
        """
        self._metadata_end = metadata_end

    def read_metadata_end(self) -> int:
        """Return the offset up to which the metadata log was committed at the last checkpoint; 0 when unknown."""
        return max(0, self.read_offsets(RECOVERY_POINT_CHECKPOINT).get(_METADATA_PARTITION, 0))

    def forget_metadata_end(self) -> None:
        """Remove the metadata log from the checkpoint after its repair. Raises `KafkaStorageError`."""
        points = self.read_offsets(RECOVERY_POINT_CHECKPOINT)
        if points.pop(_METADATA_PARTITION, None) is not None:
            self.write_offsets(RECOVERY_POINT_CHECKPOINT, points)

    def checkpoint_start_offsets(self) -> None:
        """Write the log start offsets that differ from the base offset of the first segment.

        Raises:
            KafkaStorageError: the disk failed.
        """
        starts = {
            tp: log.log_start_offset for tp, log in self.logs.items() if log.log_start_offset > log.named_start_offset
        }
        starts.update((tp, log.log_start_offset) for tp, log in self.offline.items())
        self.write_offsets(LOG_START_CHECKPOINT, starts)

    def read_offsets(self, checkpoint: str) -> dict[TopicPartition, int]:
        """Read a checkpoint of this directory; log a warning and return nothing when it cannot be read."""
        try:
            offsets = read_offsets(self._storage, f"{self.path}/{checkpoint}")
        except (CorruptCheckpointError, OSError) as error:
            logger.warning("%s. The checkpoint is ignored.", error)
            return {}
        self._checkpointed[checkpoint] = offsets
        return offsets

    def known_offsets(self, checkpoint: str) -> Mapping[TopicPartition, int]:
        """Return a checkpoint of this directory; read the file if it is not cached or its last write failed."""
        offsets = self._checkpointed.get(checkpoint)
        return self.read_offsets(checkpoint) if offsets is None else offsets

    def write_offsets(self, checkpoint: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace a checkpoint of this directory, unless it is unchanged or the directory is offline.

        Raises:
            KafkaStorageError: the disk failed.
        """
        if self.failure or self._written.get(checkpoint) == offsets:
            return
        self._written.pop(checkpoint, None)
        self._checkpointed.pop(checkpoint, None)  # unknown if the write fails
        self._doubtful.add(checkpoint)
        try:
            write_offsets(self._storage, f"{self.path}/{checkpoint}", offsets)
        except OSError as error:
            raise KafkaStorageError(f"{checkpoint} in {self.path} cannot be written: {error}") from error
        self._checkpointed[checkpoint] = self._written[checkpoint] = offsets
        self._doubtful.discard(checkpoint)

    def forget(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Remove logs from the checkpoints before new logs with these names are created, which must not inherit
        offsets.

        Raises:
            KafkaStorageError: the disk failed.
        """
        for checkpoint in CHECKPOINTS:
            offsets = self.known_offsets(checkpoint)
            gone = offsets.keys() & topic_partitions
            if gone or checkpoint in self._doubtful:
                self.write_offsets(checkpoint, {tp: at for tp, at in offsets.items() if tp not in gone})


def folder_name(topic_partition: TopicPartition) -> str:
    """Return the name of a log's folder."""
    return f"{topic_partition.topic}-{topic_partition.partition}"


def renamed_folder(topic_partition: TopicPartition, unique: str, suffix: str) -> str:
    """Return the name of a log's folder that is to be removed or put aside: partition, unique part and suffix."""
    end = f".{unique}{suffix}"
    return folder_name(topic_partition)[: _MAX_NAME - len(end)] + end


def parse_folder(name: str) -> TopicPartition | None:
    """Parse a folder name into topic and partition, split at the *last* hyphen; None if it is not one."""
    topic, hyphen, number = name.rpartition("-")
    if not hyphen or not topic or not (number.isascii() and number.isdigit()) or number != str(int(number)):
        return None  # a number with leading zeros would name another folder
    return TopicPartition(topic, int(number))


CHECKPOINTS: Final = (RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)
