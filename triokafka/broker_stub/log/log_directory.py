"""One data directory: its lock, its clean-shutdown marker, its checkpoints, and the logs in it."""

from __future__ import annotations

import json
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
from triokafka.errors import ConfigurationError, KafkaStorageError
from triokafka.named_tuple import NamedTuple
from triokafka.structs import TopicPartition
from triokafka.world import Storage

if TYPE_CHECKING:
    from triokafka.broker_stub.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)

LOCK_FILE: Final = ".lock"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
DELETE_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"
FUTURE_SUFFIX: Final = "-future"
_NO_LOG_SUFFIXES: Final = (DELETE_SUFFIX, STRAY_SUFFIX, FUTURE_SUFFIX)
_METADATA_PARTITION: Final = TopicPartition("__cluster_metadata", 0)
_METADATA_LOG: Final = str(_METADATA_PARTITION)  # the controller's, which opens it itself
_MAX_NAME: Final = 255
_UNIQUE: Final = re.compile(r"\.[0-9a-f]{32}$")
_INSTEAD: Final = "Give another one in log.dirs (--data-dir), or its permissions to the user of this process."


class OfflineLog(NamedTuple):
    """A log that cannot be used, why, and what the checkpoints say of it."""

    reason: str
    recovery_point: int
    log_start_offset: int


class LogDirectory:
    """A data directory in use by this broker.

    `open` takes the lock; everything else needs it. ``clean`` says whether the last stop was clean. ``logs`` are those
    that are open, ``offline`` those that cannot be. ``failure`` is why the whole directory cannot be used any more; its
    logs are all offline then, and nothing is written to it.
    """

    def __init__(self, storage: Storage, path: str) -> None:
        self.path = path
        self.clean = False
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.offline: dict[TopicPartition, OfflineLog] = {}
        self.failure = ""
        self.metadata_end: Callable[[], int] | None = None
        """For the directory of the metadata log, once that is open: the offset before which everything is committed."""
        self.refusal_told_ms = -(2**63)  # when it was said last that it is full, by the wall clock
        self._storage = storage
        self._release: Callable[[], None] | None = None
        self._checkpointed: dict[str, Mapping[TopicPartition, int]] = {}  # by name of the file
        self._written: dict[str, Mapping[TopicPartition, int]] = {}  # those known to be durable: this object wrote them
        self._doubtful: set[str] = set()  # a write has failed: what is there may go with a power cut

    def open(self) -> None:
        """Make the directory if it is missing, and lock it.

        Raises:
            ConfigurationError: another broker uses it.
            KafkaStorageError: it cannot be used. Both say what to do.
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
                f"or give this one a directory of its own in log.dirs."
            ) from None
        except OSError as error:
            raise KafkaStorageError(
                f"The data directory {self.path} cannot be locked: {error.strerror or error}. {_INSTEAD}"
            ) from error
        self._written.clear()
        self.clean = self._storage.exists(self._marker)

    def fail(self, error: OSError) -> list[TopicPartition]:
        """Take the directory and all its logs offline; returns which were not yet. A second call does nothing."""
        if self.failure:
            return []
        self.failure = f"the data directory {self.path} is offline: {error}"
        taken = dict(self.logs)
        self.logs.clear()
        for topic_partition, log in taken.items():
            log.take_offline(error)
            self.offline[topic_partition] = OfflineLog(self.failure, log.recovery_point, log.log_start_offset)
        return list(taken)

    @property
    def _marker(self) -> str:
        return f"{self.path}/{CLEAN_SHUTDOWN_FILE}"

    def forget_clean_stop(self) -> None:
        """Remove the marker, durably, before anything is written: a crash from now on is a crash."""
        if self._storage.exists(self._marker):
            self._storage.remove(self._marker)
        # Also for what a dead process has renamed: else a power cut brings back checkpoints that it has replaced.
        self._storage.sync_dir(self.path)

    def mark_clean_stop(self, broker_epoch: int = -1) -> None:
        """Write the marker: all logs are closed and on disk.

        ``broker_epoch`` is the broker's registration that ends with this stop; Kafka takes a start whose marker names
        another for one after a crash. -1 for none.
        """
        self._storage.replace_file(self._marker, json.dumps({"version": 0, "brokerEpoch": broker_epoch}).encode())

    def release(self) -> None:
        """Give the lock back; a second call does nothing."""
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
                logger.warning("%s is not the folder of a partition; it is left alone", path)
        return found

    def deleted_folders(self) -> list[str]:
        """Return the folders of logs that were deleted, but whose files are still there. Raises `OSError`."""
        return self._renamed_folders(DELETE_SUFFIX)

    def stray_folders(self) -> list[str]:
        """Return the folders of logs that were put aside because they belong to no topic. Raises `OSError`."""
        return self._renamed_folders(STRAY_SUFFIX)

    def _renamed_folders(self, suffix: str) -> list[str]:
        """Only those that `renamed_folder`, or Kafka, has named: other programs' folders may end alike."""
        names = (name for name in self._storage.list_dir(self.path) if name.endswith(suffix))
        return [f"{self.path}/{name}" for name in names if _UNIQUE.search(name.removesuffix(suffix))]

    def future_folders(self) -> list[str]:
        """Folders of copies of logs that are, or were, being moved here. Raises `OSError`."""
        paths = [f"{self.path}/{name}" for name in self._storage.list_dir(self.path) if name.endswith(FUTURE_SUFFIX)]
        return [path for path in paths if self._storage.is_dir(path)]

    def checkpoint(self) -> None:
        """Write recovery points and start offsets. Raises `KafkaStorageError`."""
        self.checkpoint_recovery_points()
        self.checkpoint_start_offsets()

    def checkpoint_recovery_points(self) -> None:
        """Write up to where each log is on disk. Raises `KafkaStorageError`."""
        points = {tp: log.recovery_point for tp, log in self.logs.items()}
        points.update((tp, log.recovery_point) for tp, log in self.offline.items())
        if self.metadata_end is not None:  # Kafka does not write it, and passes over it
            points[_METADATA_PARTITION] = self.metadata_end()
        self.write_offsets(RECOVERY_POINT_CHECKPOINT, points)

    def read_metadata_end(self) -> int:
        """Return the offset before which the metadata log was committed at the last checkpoint; 0 when unknown."""
        return max(0, self.read_offsets(RECOVERY_POINT_CHECKPOINT).get(_METADATA_PARTITION, 0))

    def forget_metadata_end(self) -> None:
        """Take the metadata log out of the checkpoint: it was repaired. Raises `KafkaStorageError`."""
        points = self.read_offsets(RECOVERY_POINT_CHECKPOINT)
        if points.pop(_METADATA_PARTITION, None) is not None:
            self.write_offsets(RECOVERY_POINT_CHECKPOINT, points)

    def checkpoint_start_offsets(self) -> None:
        """Write where logs start, as far as the names of their segments do not say it.

        Raises:
            KafkaStorageError: the disk failed.
        """
        starts = {
            tp: log.log_start_offset for tp, log in self.logs.items() if log.log_start_offset > log.named_start_offset
        }
        starts.update((tp, log.log_start_offset) for tp, log in self.offline.items())
        self.write_offsets(LOG_START_CHECKPOINT, starts)

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write the high watermarks of those of the logs that are here. Raises `KafkaStorageError`."""
        here = {tp: high_watermarks[tp] for tp in self.logs if tp in high_watermarks}
        if self.offline and not self.failure:
            known = self._known(HIGH_WATERMARK_CHECKPOINT)
            here.update((tp, known[tp]) for tp in self.offline if tp in known)
        self.write_offsets(HIGH_WATERMARK_CHECKPOINT, here)

    def note_high_watermark(self, topic_partition: TopicPartition, offset: int) -> None:
        """Add that of a log which is about to come here. Raises `KafkaStorageError`."""
        known = self._known(HIGH_WATERMARK_CHECKPOINT)
        self.write_offsets(HIGH_WATERMARK_CHECKPOINT, {**known, topic_partition: offset})

    def lower_high_watermark(self, topic_partition: TopicPartition, offset: int) -> None:
        """Write that at most the records before ``offset`` are committed. Raises `KafkaStorageError`."""
        known = self._known(HIGH_WATERMARK_CHECKPOINT)
        if known.get(topic_partition, 0) > offset:
            self.write_offsets(HIGH_WATERMARK_CHECKPOINT, {**known, topic_partition: offset})

    def read_offsets(self, checkpoint: str) -> dict[TopicPartition, int]:
        """A checkpoint of this directory; nothing, with a warning, when it cannot be read."""
        try:
            offsets = read_offsets(self._storage, f"{self.path}/{checkpoint}")
        except (CorruptCheckpointError, OSError) as error:
            logger.warning("%s; going on without", error)
            return {}
        self._checkpointed[checkpoint] = offsets
        return offsets

    def _known(self, checkpoint: str) -> Mapping[TopicPartition, int]:
        """A checkpoint of this directory; it is read where that was not done yet, or a write has failed since."""
        offsets = self._checkpointed.get(checkpoint)
        return self.read_offsets(checkpoint) if offsets is None else offsets

    def write_offsets(self, checkpoint: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace a checkpoint of this directory, unless it says that already, or the directory has failed.

        Raises:
            KafkaStorageError: the disk failed.
        """
        if self.failure or self._written.get(checkpoint) == offsets:
            return
        self._written.pop(checkpoint, None)
        self._checkpointed.pop(checkpoint, None)  # when it fails, it is not known which are there
        self._doubtful.add(checkpoint)
        try:
            write_offsets(self._storage, f"{self.path}/{checkpoint}", offsets)
        except OSError as error:
            raise KafkaStorageError(f"{checkpoint} in {self.path} cannot be written: {error}") from error
        self._checkpointed[checkpoint] = self._written[checkpoint] = offsets
        self._doubtful.discard(checkpoint)

    def forget(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Take logs out of the checkpoints, before new ones of these names are made: they must not inherit offsets.

        Raises:
            KafkaStorageError: the disk failed.
        """
        for checkpoint in CHECKPOINTS:
            offsets = self._known(checkpoint)
            gone = offsets.keys() & topic_partitions
            if gone or checkpoint in self._doubtful:
                self.write_offsets(checkpoint, {tp: at for tp, at in offsets.items() if tp not in gone})


def folder_name(topic_partition: TopicPartition) -> str:
    """The name of a log's folder."""
    return f"{topic_partition.topic}-{topic_partition.partition}"


def renamed_folder(topic_partition: TopicPartition, unique: str, suffix: str) -> str:
    """A log's folder on its way out: the name, something unique, and why."""
    end = f".{unique}{suffix}"
    return folder_name(topic_partition)[: _MAX_NAME - len(end)] + end


def parse_folder(name: str) -> TopicPartition | None:
    """The partition whose folder has that name: topic and number at the *last* hyphen."""
    topic, hyphen, number = name.rpartition("-")
    if not hyphen or not topic or not (number.isascii() and number.isdigit()) or number != str(int(number)):
        return None  # with zeros in front it would pass for another folder's
    return TopicPartition(topic, int(number))


CHECKPOINTS: Final = (RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)
