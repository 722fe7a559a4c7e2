"""The checkpoint of high watermarks in a data directory (``replication-offset-checkpoint``)."""

from __future__ import annotations

from collections.abc import Mapping

from triokafka.broker_stub.log.checkpoints import HIGH_WATERMARK_CHECKPOINT
from triokafka.broker_stub.log.log_directory import LogDirectory
from triokafka.structs import TopicPartition


def checkpoint_high_watermarks(directory: LogDirectory, high_watermarks: Mapping[TopicPartition, int]) -> None:
    """Write the high watermarks of the logs in this directory. Raises `KafkaStorageError`."""
    here = {tp: high_watermarks[tp] for tp in directory.logs if tp in high_watermarks}
    if directory.offline and not directory.failure:
        known = directory.known_offsets(HIGH_WATERMARK_CHECKPOINT)
        here.update((tp, known[tp]) for tp in directory.offline if tp in known)
    directory.write_offsets(HIGH_WATERMARK_CHECKPOINT, here)


def note_high_watermark(directory: LogDirectory, topic_partition: TopicPartition, offset: int) -> None:
    """Add the high watermark of a log that is about to move here. Raises `KafkaStorageError`."""
    known = directory.known_offsets(HIGH_WATERMARK_CHECKPOINT)
    directory.write_offsets(HIGH_WATERMARK_CHECKPOINT, {**known, topic_partition: offset})


def lower_high_watermark(directory: LogDirectory, topic_partition: TopicPartition, offset: int) -> None:
    """Lower the checkpointed high watermark of a log to at most ``offset``. Raises `KafkaStorageError`."""
    known = directory.known_offsets(HIGH_WATERMARK_CHECKPOINT)
    if known.get(topic_partition, 0) > offset:
        directory.write_offsets(HIGH_WATERMARK_CHECKPOINT, {**known, topic_partition: offset})
