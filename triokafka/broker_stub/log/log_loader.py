"""Opening one log: loading or recovering its directory, and comparing the result with the checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Callable

from triokafka.broker_stub.log.appender import LogAppender
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.damage import MAX_JUMP, DamagedLogError
from triokafka.broker_stub.log.leader_epochs import LeaderEpochs
from triokafka.broker_stub.log.log_disk_errors import LogDiskErrors
from triokafka.broker_stub.log.log_flusher import LogFlusher
from triokafka.broker_stub.log.log_segments import LogSegments
from triokafka.broker_stub.log.log_state import LogState
from triokafka.broker_stub.log.open_files import OpenFiles
from triokafka.broker_stub.log.producer_snapshots import ProducerSnapshots
from triokafka.broker_stub.log.recovery import KnownOffsets, load_log
from triokafka.broker_stub.log.recovery_point import Durability
from triokafka.broker_stub.log.truncation import LogTruncation
from triokafka.records.batch import HEADER_SIZE, LOG_OVERHEAD, BatchInfo
from triokafka.records.rewritable_batch import empty_batch
from triokafka.structs import TopicPartition

logger = logging.getLogger(__name__)


def open_log(
    files: OpenFiles,
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    *,
    known: KnownOffsets,
    clean: bool,
    refuse_damage: bool,
    replicated: bool,
    producer_expiration_ms: int,
    disk_failed: Callable[[OSError], None] | None,
    disk_refused: Callable[[OSError], None] | None,
    now_ms: int,
) -> LogState:
    """Open or make the log in ``directory``; recover it unless the last stop was ``clean``.

    The arguments are those of `PartitionLog.open`, with the offsets of the checkpoints in ``known``.

    Raises:
        OSError: the directory cannot be read or written.
        CorruptRecordError, CorruptIndexError: a file is damaged below the recovery point.
        DamagedLogError: with ``refuse_damage``; nothing was cut.
    """
    storage = files.storage
    guard = LogDiskErrors(topic_partition, disk_failed, disk_refused)
    durability = Durability(storage, directory, guard)
    is_new = not storage.is_dir(directory)
    if is_new:
        storage.make_dirs(directory)
    epochs = LeaderEpochs(storage, directory)
    snapshots = ProducerSnapshots(storage, directory)
    loaded = load_log(
        files,
        directory,
        topic_partition,
        config,
        epochs,
        snapshots,
        known=known,
        # A new directory has no remains of an earlier process that a sync would have to make durable. A
        # topic may have thousands of logs, and the syncs of a recovery delay those of the metadata log.
        clean=clean or is_new,
        refuse_damage=refuse_damage,
        now_ms=now_ms,
    )
    segments = LogSegments(files, directory, config, loaded.segments)
    state = LogState(
        storage,
        directory,
        topic_partition,
        config,
        guard=guard,
        durability=durability,
        segments=segments,
        leader_epochs=epochs,
        snapshots=snapshots,
        producers=loaded.producers,
        log_start_offset=max(known.log_start, segments[0].base_offset),
        recovered_bytes=loaded.dropped_bytes,
        producer_expiration_ms=producer_expiration_ms,
        now_ms=now_ms,
    )
    end = segments.end_offset
    durability.recovery_point = end if clean else min(known.recovery_point, end)
    _report_late_start(state, known, clean=clean, replicated=replicated)
    epochs.truncate_to(end)
    state.producers.expire(now_ms, producer_expiration_ms)
    if end < (known.committed if refuse_damage else known.end):
        if replicated and not refuse_damage:
            _report_lost_end(state, known)
        else:
            _skip_lost(state, known, now_ms, refuse=refuse_damage)
    state.lost_offsets += max(0, loaded.lost_end - segments.end_offset)  # those that `_skip_lost` did not count
    if replicated:
        state.lost_end = max(state.lost_end, loaded.lost_end)
    if state.log_start_offset > segments.end_offset:
        # A crash took records that were deleted already. No record before the start may come back.
        LogTruncation(state).start_empty(state.log_start_offset, now_ms)
    epochs.drop_before(state.segments[0].base_offset)
    return state


def _report_late_start(state: LogState, known: KnownOffsets, *, clean: bool, replicated: bool) -> None:
    """Report segments that are missing before the first one, as far as leader epochs and checkpoint can tell.

    After a clean stop a replicated log still begins where it began: followers delete their records before the
    leader's log start offset, and with them the only other copies of the missing records.
    """
    entries, base = state.leader_epochs.entries(), state.segments[0].base_offset
    promised = max(known.log_start, entries[0][1]) if entries else base
    if promised >= base or state.leader_epochs.lost:
        return
    # A power cut may bring back an epoch file from before retention; after a clean stop it is up to date.
    level = logging.ERROR if clean else logging.WARNING
    logger.log(
        level,
        "%s: the first segment in %s begins at offset %d, but the log began at %d when it was last written: "
        "offsets %d to %d are lost, unless retention removed them just before a crash.",
        state.topic_partition,
        state.directory,
        base,
        promised,
        promised,
        base - 1,
    )
    if clean:
        state.lost_offsets += base - promised
        if replicated:
            state.start_at(promised)


def _report_lost_end(state: LogState, known: KnownOffsets) -> None:
    """Report a lost end that other replicas have: the log ends where its records end, and replication brings the rest.

    A placeholder would hide the loss from the leader, and this replica would stay without the records.
    """
    if known.end - state.segments.end_offset < MAX_JUMP:  # else the checkpoints are damaged
        state.lost_end = known.end
    logger.warning(
        "%s: the records in %s end at offset %d, but the log had %d when it was last written. The other replicas have "
        "the rest.",
        state.topic_partition,
        state.directory,
        state.segments.end_offset,
        known.end,
    )


def _skip_lost(state: LogState, known: KnownOffsets, now_ms: int, *, refuse: bool) -> None:
    """Continue at the log end offset in the checkpoints: consumers may have seen the offsets before it.

    Afterwards everything before that offset is on disk, and the recovery point is there.
    """
    end, known_end, empty = state.segments.end_offset, known.end, not state.segments.size
    what = (
        f"{state.topic_partition}: the records in {state.directory} end at offset {end}, but the log had "
        f"{known_end} (recovery point {known.recovery_point}, high watermark {known.committed})"
    )
    if known_end - end >= MAX_JUMP:
        logger.error("%s. That is not plausible: the checkpoints are damaged, and are ignored.", what)
        return
    if refuse:
        raise DamagedLogError(what)
    logger.error("%s. Offsets %d to %d are lost. The log continues at %d.", what, end, known_end - 1, known_end)
    state.lost_offsets += known_end - end
    if empty:
        LogTruncation(state).start_empty(known_end, now_ms)
        return
    # A batch without records, as compaction leaves them. Readers that stop at the end of the log get past the gap with
    # it, also when nothing is appended later.
    placeholder = BatchInfo(
        position=0,
        base_offset=end,
        length=HEADER_SIZE - LOG_OVERHEAD,
        partition_leader_epoch=max(0, state.leader_epochs.latest),
        magic=2,
        crc=0,
        attributes=0,
        last_offset_delta=known_end - end - 1,
        base_timestamp=-1,
        max_timestamp=-1,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=0,
    )
    flusher = LogFlusher(state)
    LogAppender(state, flusher).append_as_follower(empty_batch(placeholder), now_ms=now_ms)
    flusher.flush()
