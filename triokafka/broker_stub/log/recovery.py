"""Opening a log's directory: clearing leftovers, loading segments, and cutting what a crash has torn (I04–I11, Z15).

After a clean stop nothing is read but names and sizes. After a crash every segment from the recovery point on is read
to its end: its indexes are made anew, and at the first bad batch the log ends, whatever follows.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.leader_epochs import LeaderEpochs
from triokafka.broker_stub.log.leftovers import clear_leftovers
from triokafka.broker_stub.log.open_files import OpenFiles
from triokafka.broker_stub.log.producers import SNAPSHOT_SUFFIX, CorruptSnapshotError, ProducerStates, snapshot_offsets
from triokafka.broker_stub.log.segment import (
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    LogSegment,
    is_segment_file,
    offset_file_name,
)
from triokafka.errors import CorruptRecordError
from triokafka.records.batch import BatchInfo
from triokafka.structs import TopicPartition
from triokafka.world import Storage

logger = logging.getLogger(__name__)


class LoadedSegments(NamedTuple):
    """What a directory holds: at least one segment, ascending, and the bytes that recovery cut off."""

    segments: list[LogSegment]
    dropped_bytes: int


def load_segments(
    files: OpenFiles,
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    epochs: LeaderEpochs,
    *,
    recovery_point: int,
    clean: bool,
    log_start_offset: int,
    now_ms: int,
) -> LoadedSegments:
    """Load the segments of a log, and repair them unless the last stop was ``clean``.

    Args:
        epochs: learns the epochs of the batches that are read.
        recovery_point: below it everything is known to be on disk.
        log_start_offset: where an empty directory starts.

    Raises:
        OSError: the directory cannot be read, or not be repaired.
    """
    storage = files.storage
    clear_leftovers(storage, directory)
    names = storage.list_dir(directory)
    bases = sorted(int(name[:20]) for name in names if is_segment_file(name, LOG_SUFFIX))
    known = {offset_file_name(base, suffix) for base in bases for suffix in SEGMENT_SUFFIXES}
    for name in names:
        if name not in known and any(is_segment_file(name, suffix) for suffix in SEGMENT_SUFFIXES):
            storage.remove(f"{directory}/{name}")  # an index without its log (I05)
    segments = [LogSegment(files, directory, base, config, new=False, now_ms=now_ms) for base in bases]
    _remove_leftover_segments(storage, segments)
    if epochs.lost:
        recovery_point, clean = (segments[0].base_offset if segments else 0), False
    dropped = 0
    if segments and not clean:
        dropped = _recover(storage, directory, topic_partition, segments, epochs, recovery_point, gaps=config.compacts)
    if not segments:
        segments.append(LogSegment(files, directory, log_start_offset, config, new=True, now_ms=now_ms))
    return LoadedSegments(segments, dropped)


def _remove_leftover_segments(storage: Storage, segments: list[LogSegment]) -> None:
    """Remove what rolls that failed have left: empty files at offsets that the segment before goes past."""
    index = 1
    while index < len(segments):
        segment = segments[index]
        if segment.size or not _goes_past(segments[index - 1], segment.base_offset):
            index += 1
        else:
            _remove(storage, segment)
            del segments[index]


def _goes_past(segment: LogSegment, offset: int) -> bool:
    try:
        return segment.next_offset() > offset
    except CorruptRecordError:
        return False  # recovery will see


def _remove(storage: Storage, segment: LogSegment) -> None:
    segment.close()
    for suffix in SEGMENT_SUFFIXES:
        if storage.exists(segment.path(suffix)):
            storage.remove(segment.path(suffix))


def _recover(
    storage: Storage,
    directory: str,
    topic_partition: TopicPartition,
    segments: list[LogSegment],
    epochs: LeaderEpochs,
    recovery_point: int,
    *,
    gaps: bool,
) -> int:
    """Read the segments from the recovery point on; remove everything from the first bad batch on."""
    position = max((i for i, segment in enumerate(segments) if segment.base_offset <= recovery_point), default=0)
    if position and not segments[position].size:
        position -= 1  # whether the log has really come to the empty one, the one before says
    expected = segments[position].base_offset
    first = position
    dropped = 0

    def visit(batch: BatchInfo, data: memoryview) -> None:
        nonlocal expected
        epochs.assign(batch.partition_leader_epoch, batch.base_offset)
        expected = batch.next_offset

    while position < len(segments) and not dropped:
        segment = segments[position]
        # Only compaction leaves gaps; otherwise the end of the segment before was lost, and what follows is no
        # continuation of the log any more.
        if segment.base_offset < expected or (segment.base_offset > expected and position > first and not gaps):
            break
        expected = segment.base_offset
        dropped = segment.recover(visit)
        position += 1
    for segment in segments[position:]:
        dropped += segment.size
        _remove(storage, segment)
    if dropped:
        logger.warning(
            "%s: cut %d bytes behind offset %d that were not written completely", topic_partition, dropped, expected
        )
    if position < len(segments):
        storage.sync_dir(directory)  # else another crash could bring them back, behind what was appended meanwhile
    del segments[position:]
    return dropped


def load_producers(
    storage: Storage,
    directory: str,
    segments: Sequence[LogSegment],
    *,
    log_end_offset: int,
    now_ms: int,
    expiration_ms: int,
) -> ProducerStates:
    """The producer state at the end of the log: the newest snapshot that can be read, and the batches after it.

    Raises:
        OSError: the directory cannot be read.
        CorruptRecordError: a batch below the recovery point is damaged.
    """
    producers = ProducerStates()
    start = segments[0].base_offset
    for offset in reversed(snapshot_offsets(storage, directory)):
        path = f"{directory}/{offset_file_name(offset, SNAPSHOT_SUFFIX)}"
        if offset > log_end_offset:
            # Of records that the log has lost. Durably: others will get these offsets.
            storage.remove(path)
            storage.sync_dir(directory)
            continue
        try:
            producers.decode(storage.read_file(path), path)
            start = max(start, offset)
            break
        except CorruptSnapshotError as error:
            logger.warning("%s; going back to an older one", error)
            storage.remove(path)
    for index, segment in enumerate(segments):
        is_before = index + 1 < len(segments) and segments[index + 1].base_offset <= start
        if is_before or start >= log_end_offset:
            continue
        place = segment.find(start)
        for batch, data in segment.batches(place.position) if place is not None else ():
            producers.replay(batch, data)
    producers.expire(now_ms, expiration_ms)
    return producers
