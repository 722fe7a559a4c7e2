"""Finding the logs in the data directories when the broker starts, and the one log of each partition."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from uuid import UUID

from triokafka.broker_stub.log.checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    CorruptCheckpointError,
)
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.log_directory import LogDirectory
from triokafka.broker_stub.log.partition_metadata import PARTITION_METADATA, read_topic_id
from triokafka.errors import ConfigurationError, KafkaStorageError
from triokafka.named_tuple import NamedTuple
from triokafka.structs import TopicPartition
from triokafka.world import Storage

logger = logging.getLogger(__name__)

TopicIds = Callable[[TopicPartition], UUID | None]


class FoundLog(NamedTuple):
    """A log's folder, with its configuration and its offsets from the checkpoints."""

    directory: LogDirectory
    topic_partition: TopicPartition
    path: str
    config: LogConfig
    recovery_point: int
    log_start_offset: int
    high_watermark: int = 0


def find_logs(directory: LogDirectory, config_of: Callable[[str], LogConfig]) -> list[FoundLog]:
    """Find the logs in a directory, with their offsets from its checkpoints. Raises `OSError`.

    Args:
        config_of: returns the configuration of a topic.
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
        logger.info("%s was not closed cleanly; recovering its %d logs", directory.path, len(found))
    return found


def resolve_duplicates(
    found: list[list[FoundLog]],
    topic_id_of: TopicIds | None,
    storage: Storage,
    put_aside: Callable[[FoundLog], None],
) -> list[list[FoundLog]]:
    """Reduce ``found``, the logs of each directory, to one log per partition.

    A partition has two logs when its topic was deleted and created again while one directory was missing, or before the
    deletion was on disk. The log of the other topic is put aside.

    Args:
        topic_id_of: returns the topic id of a partition, None for an unknown partition; None when topic ids are
            unknown.
        put_aside: called with each log to put aside. If it fails, the whole directory goes offline.

    Raises:
        ConfigurationError: the topic ids do not decide between two logs.
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
    """Return the logs known to belong to a topic other than ``topic_id``; with None (a deleted topic), all but one."""
    ids = []
    for log in twins:
        try:
            ids.append(topic_id_in(storage, log.path))
        except KafkaStorageError:
            ids.append(None)
    if topic_id is None:
        return list(twins[1:]) if None not in ids else []
    return [log for log, known in zip(twins, ids, strict=True) if known not in (None, topic_id)]


def topic_id_in(storage: Storage, path: str) -> UUID | None:
    """Return the topic id in a log's folder, None if there is none. Raises `KafkaStorageError`."""
    try:
        return read_topic_id(storage, f"{path}/{PARTITION_METADATA}")
    except CorruptCheckpointError as error:
        logger.warning("%s. The file is ignored.", error)
        return None
    except OSError as error:
        # Without its id, the log could be assigned to a later topic with the same name.
        raise KafkaStorageError(f"{PARTITION_METADATA} in {path} cannot be read: {error}") from error
