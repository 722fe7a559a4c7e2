"""Opening the logs of a data directory when the broker starts: several at once, each in a thread.

Nothing here belongs to a `LogManager`, so that the threads share no more than the list of what is left to do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from uuid import UUID

from triokafka.broker_stub.log.checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    CorruptCheckpointError,
    read_topic_id,
)
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.log_directory import LogDirectory, OfflineLog
from triokafka.broker_stub.log.open_files import OpenFiles
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.errors import ConfigurationError, KafkaStorageError
from triokafka.named_tuple import NamedTuple
from triokafka.structs import TopicPartition
from triokafka.world import Storage

logger = logging.getLogger(__name__)

TopicIds = Callable[[TopicPartition], UUID | None]


class FoundLog(NamedTuple):
    """A folder with a log, and what is known before it is opened."""

    directory: LogDirectory
    topic_partition: TopicPartition
    path: str
    config: LogConfig
    recovery_point: int
    log_start_offset: int
    high_watermark: int = 0


class LoadedLog(NamedTuple):
    """A log that was opened, or why it could not be."""

    found: FoundLog
    log: PartitionLog | OfflineLog
    topic_id: UUID | None = None


def find_logs(directory: LogDirectory, config_of: Callable[[str], LogConfig]) -> list[FoundLog]:
    """The logs in a directory, with what its checkpoints say of them. Raises `OSError`.

    Args:
        config_of: the configuration of a topic.
    """
    recovery_points = directory.read_offsets(RECOVERY_POINT_CHECKPOINT)
    start_offsets = directory.read_offsets(LOG_START_CHECKPOINT)
    high_watermarks = directory.read_offsets(HIGH_WATERMARK_CHECKPOINT)
    found = [
        FoundLog(
            directory,
            tp,
            path,
            config_of(tp.topic),
            max(0, recovery_points.get(tp, 0)),
            max(0, start_offsets.get(tp, 0)),
            max(0, high_watermarks.get(tp, 0)),
        )
        for tp, path in directory.log_folders(warn=True).items()
    ]
    if found and not directory.clean:
        logger.info("%s was not closed cleanly: its %d logs are checked", directory.path, len(found))
    return found


def settle_twins(
    found: list[list[FoundLog]],
    topic_id_of: TopicIds | None,
    storage: Storage,
    put_aside: Callable[[FoundLog], None],
) -> list[list[FoundLog]]:
    """``found``, the logs of each directory, with one log of each partition.

    There are two when a topic was deleted and made anew while one directory was missing, or before its deletion was on
    the disk. The one of another topic goes.

    Args:
        topic_id_of: the id of the topic that a partition is of, None when there is no such partition; or nobody knows.
        put_aside: called with what goes. When it fails, the whole directory is offline.

    Raises:
        ConfigurationError: it is not known which of two logs is the right one.
    """
    places: dict[TopicPartition, list[FoundLog]] = {}
    for here in found:
        for log in here:
            places.setdefault(log.topic_partition, []).append(log)
    for topic_partition, twins in places.items():
        if len(twins) > 1 and topic_id_of is not None:
            for log in _foreign(storage, twins, topic_id_of(topic_partition)):
                put_aside(log)
                twins.remove(log)
        if len(twins) > 1:
            first, second, *_ = (log.directory.path for log in twins)
            raise ConfigurationError(
                f"{topic_partition} is in two data directories, {first} and {second}; remove one of them"
            )
    left = {id(log) for twins in places.values() for log in twins if not log.directory.failure}
    return [[log for log in here if id(log) in left] for here in found]


def _foreign(storage: Storage, twins: Sequence[FoundLog], topic_id: UUID | None) -> list[FoundLog]:
    """Those known to be of another topic than ``topic_id``; with None, of a topic that is gone, all but one."""
    ids = []
    for log in twins:
        try:
            ids.append(_topic_id(storage, log.path))
        except KafkaStorageError:
            ids.append(None)
    if topic_id is None:
        return list(twins[1:]) if None not in ids else []
    return [log for log, known in zip(twins, ids, strict=True) if known not in (None, topic_id)]


def open_logs(
    storage: Storage,
    left: list[FoundLog],
    loaded: list[LoadedLog],
    open_log: Callable[[FoundLog, OpenFiles], PartitionLog],
    max_open_files: int,
) -> None:
    """Open logs, and take them from ``left`` to ``loaded``, until none is left. Several threads may do it.

    A log that cannot be opened is offline, and the others go on.
    """
    files = OpenFiles(storage, max_open_files)
    while True:
        try:
            found = left.pop()
        except IndexError:
            return
        try:
            topic_id = _topic_id(storage, found.path)
            log = open_log(found, files)
        except KafkaStorageError as error:
            logger.error("%s is offline: %s", found.topic_partition, error)
            reason = OfflineLog(str(error), found.recovery_point, found.log_start_offset)
            loaded.append(LoadedLog(found, reason))
        else:
            files.close_all()  # they are opened again, by the broker's own, when they are needed
            loaded.append(LoadedLog(found, log, topic_id))


def _topic_id(storage: Storage, path: str) -> UUID | None:
    try:
        return read_topic_id(storage, f"{path}/{PARTITION_METADATA}")
    except CorruptCheckpointError as error:
        logger.warning("%s; going on without", error)
        return None
    except OSError as error:
        # Without its id the log would pass for that of a later topic of the same name.
        raise KafkaStorageError(f"{PARTITION_METADATA} in {path} cannot be read: {error}") from error
