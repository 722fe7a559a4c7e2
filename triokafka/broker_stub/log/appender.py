"""Appending to one log: as the leader, which assigns offsets, or as a follower."""

from __future__ import annotations

import logging
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from triokafka.broker_stub.log.index import CorruptIndexError
from triokafka.broker_stub.log.log_flusher import LogFlusher
from triokafka.broker_stub.log.log_segment import LogSegment
from triokafka.broker_stub.log.log_state import LogState
from triokafka.broker_stub.log.prevalidation import PrevalidatedBatch
from triokafka.broker_stub.log.producer_recovery import index_transaction, rebuild_transaction_index
from triokafka.broker_stub.log.producer_state import Marker, ProducedBatch, marker_of
from triokafka.broker_stub.log.segment_roll import roll, should_roll
from triokafka.broker_stub.log.validation import Prepared, prepare
from triokafka.broker_stub.log.verification_guard import UNVERIFIED_ALLOWED, VerificationGuard
from triokafka.errors import BrokerResponseError, IllegalStateError
from triokafka.named_tuple import NamedTuple
from triokafka.records import iter_batches, patch_batch
from triokafka.records.batch import CONTROL, TRANSACTIONAL, BatchInfo
from triokafka.structs import Buffer

logger = logging.getLogger(__name__)

_LOG_APPEND_TIME: Final = 1
_CRC_FIELDS: Final = BatchInfo._fields.index("magic")  # the header fields from here on come from the producer
_ASSIGNED: Final = struct.Struct(">qii")  # base offset, length, leader epoch: not covered by the checksum
_NO_MARKERS: Final[Mapping[int, Marker]] = MappingProxyType({})


class AppendInfo(NamedTuple):
    """The result of an append. ``log_append_time`` is -1 unless the topic stamps records on append.

    With ``duplicate``, nothing was appended: the offsets are those of the first copy of the batch.
    """

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time: int
    log_start_offset: int
    duplicate: bool = False


class LogAppender:
    """Validates batches, assigns offsets and appends them to one log."""

    def __init__(self, state: LogState, flusher: LogFlusher) -> None:
        self._state = state
        self._flusher = flusher
        self._segments = state.segments

    def append_as_leader(
        self,
        batches: Buffer | PrevalidatedBatch,
        *,
        leader_epoch: int,
        led_since: int = 0,
        now_ms: int,
        from_client: bool = True,
        guard: VerificationGuard | None = UNVERIFIED_ALLOWED,
        transaction_version: int = 0,
        refusal: BrokerResponseError | None = None,
    ) -> AppendInfo:
        """Validate batches, assign the next offsets, and append them.

        Args:
            batches: v2 batches; exactly one when ``from_client``. Patched in place when the buffer is writable. A
                client's batch may be prevalidated.
            led_since: the log end offset when this broker began to lead; see `ProducerStates.check`.
            from_client: False for records that the broker itself writes: these may be several batches and may contain
                control records.
            guard: proves that the partition takes part in the transaction of a transactional batch; see
                `verification_guard`.
            transaction_version: that of the markers among ``batches``; see `ProducerStates.check_marker`.
            refusal: raised in place of an append, because too few replicas are in sync. A client's batch that is in the
                log gets its offsets all the same: the client may count a refused batch as one that is nowhere.

        Raises:
            BrokerResponseError: ``refusal``; or the batch was rejected; see `prepare` and `ProducerStates`.
            KafkaStorageError: the disk failed. Nothing was appended, unless only the sync required by
                ``flush.messages`` failed.
        """
        state, producers = self._state, self._state.producers
        state.guard.check()
        if refusal is not None:
            return self._first_copy(batches, refusal, leader_epoch, from_client=from_client)
        config = state.config
        found: Prepared | BrokerResponseError | None = None
        if isinstance(batches, PrevalidatedBatch):
            found = batches.result if batches.config is config else None
            batches = batches.data
        if found is None:
            found = prepare(batches, state.topic_partition, config, now_ms=now_ms, from_client=from_client)
        elif isinstance(found, BrokerResponseError):
            raise found.fresh_copy()
        buffer, infos = found
        if not infos:
            return AppendInfo(-1, -1, -1, -1, state.log_start_offset)
        markers: dict[int, Marker] = {}
        for info in infos:
            if info.producer_id < 0:
                continue
            if from_client:
                known = producers.duplicate_of(info)
                if known is not None:
                    return self._info_of(known)
                producers.check(info, leader_epoch=leader_epoch, led_since=led_since)
                if info.attributes & TRANSACTIONAL:
                    producers.check_verified(info, guard)
            elif info.is_control:
                marker = marker_of(info, memoryview(buffer)[info.position : info.end])
                if marker is not None:
                    markers[info.position] = marker
                    producers.check_marker(info, marker, version=transaction_version)
            else:
                producers.check_epoch(info)
                producers.check_verified(info, guard)
        append_time = now_ms if config.stamps_on_append else -1
        end = self._segments.end_offset
        infos = assign_offsets(buffer, infos, end, leader_epoch=leader_epoch, append_time=append_time)
        newest = self._append(infos, buffer, state.time(now_ms), markers)
        last_offset = self._segments.end_offset - 1
        return AppendInfo(infos[0].base_offset, last_offset, newest, append_time, state.log_start_offset)

    def _info_of(self, known: ProducedBatch) -> AppendInfo:
        state = self._state
        stamped = known.timestamp if state.config.stamps_on_append else -1
        return AppendInfo(known.first_offset, known.last_offset, known.timestamp, stamped, state.log_start_offset, True)

    def _first_copy(
        self,
        batches: Buffer | PrevalidatedBatch,
        refusal: BrokerResponseError,
        leader_epoch: int,
        *,
        from_client: bool,
    ) -> AppendInfo:
        """Return the offsets of a client's batch that is in the log; raise ``refusal`` for any other."""
        data = batches.data if isinstance(batches, PrevalidatedBatch) else batches
        info = next(iter_batches(data, check_crc=True), None) if from_client else None
        if info is not None and info.producer_id >= 0:
            producers = self._state.producers
            known = producers.duplicate_of(info)
            if known is not None:
                return self._info_of(known)
            producers.refuse(info, leader_epoch=leader_epoch)
        raise refusal

    def append_as_follower(self, batches: Buffer, *, now_ms: int | None = None) -> AppendInfo:
        """Append the leader's batches with their offsets and epochs. A partial last batch is ignored.

        Raises:
            CorruptRecordError: a checksum does not match.
            IllegalStateError: the first offset is below the log end offset.
            KafkaStorageError: the disk failed. Nothing was appended.
        """
        state = self._state
        state.guard.check()
        infos = list(iter_batches(batches, check_crc=True))
        if not infos:
            return AppendInfo(-1, -1, -1, -1, state.log_start_offset)
        expected = self._segments.end_offset
        for info in infos:
            if info.base_offset < expected:
                raise IllegalStateError(
                    f"{state.topic_partition}: a batch at offset {info.base_offset} cannot follow {expected - 1}"
                )
            expected = info.next_offset
        newest = self._append(infos, memoryview(batches)[: infos[-1].end], state.time(now_ms))
        return AppendInfo(infos[0].base_offset, expected - 1, newest, -1, state.log_start_offset)

    def _append(
        self, infos: list[BatchInfo], data: Buffer, now_ms: int, markers: Mapping[int, Marker] = _NO_MARKERS
    ) -> int:
        """Append batches whose offsets are assigned; return the newest timestamp.

        ``markers`` has those that are decoded already, by the position of their batch.
        """
        state, segments = self._state, self._segments
        first, last = infos[0], infos[-1]
        newest = first.max_timestamp if first is last else max(info.max_timestamp for info in infos)
        try:
            if should_roll(segments.active, len(data), newest, last.last_offset, now_ms):
                roll(state, first.base_offset, now_ms)
            if first.attributes & CONTROL or (first is not last and any(info.is_control for info in infos)):
                # Load before the write: no step may fail once the marker is written.
                self._load_transaction_index(segments.active)
            segments.append(infos, data)
        except OSError as error:
            raise state.guard.error("append", error) from error
        for info in infos:
            state.leader_epochs.assign(info.partition_leader_epoch, info.base_offset)
            if info.producer_id >= 0:
                marker = None
                if info.attributes & CONTROL:
                    marker = markers.get(info.position)
                    if marker is None:
                        marker = marker_of(info, memoryview(data)[info.position : info.end])
                completed = state.producers.replay(info, marker)
                if completed is not None:
                    index_transaction(segments.active, completed)
        state.bytes_since_snapshot += len(data)
        self._flusher.after_append(now_ms)
        return newest

    def _load_transaction_index(self, segment: LogSegment) -> None:
        """Load the index, or rebuild it when it is damaged. Raises `OSError`, `CorruptRecordError`."""
        try:
            len(segment.indexes.transactions)
        except CorruptIndexError as error:
            logger.warning("%s; rebuilding it", error)
            rebuild_transaction_index(segment, self._state.snapshots, tuple(self._segments))

    def roll(self, *, now_ms: int) -> None:
        """Start a new segment at the log end. Do nothing while the active segment is empty.

        Raises:
            KafkaStorageError: the disk failed; the old segment stays active.
        """
        state = self._state
        state.guard.check()
        with state.guard.during("roll"):
            roll(state, self._segments.end_offset, now_ms)

    def skip_to(self, offset: int, *, now_ms: int) -> None:
        """Advance the log end offset to ``offset`` without records in between.

        Raises:
            KafkaStorageError: the disk failed; the log end offset is unchanged.
        """
        state = self._state
        state.guard.check()
        with state.guard.during("roll"):
            roll(state, offset, now_ms)
            self._segments.end_at(offset)
        state.settle()


def assign_offsets(
    buffer: bytearray | memoryview,
    batches: list[BatchInfo],
    next_offset: int,
    *,
    leader_epoch: int,
    append_time: int,
) -> list[BatchInfo]:
    """Patch offsets, epoch and, unless ``append_time`` is -1, timestamps into the headers; return the headers."""
    assigned = []
    for batch in batches:
        if append_time >= 0 and not batch.is_control:
            patch_batch(
                buffer,
                batch.position,
                base_offset=next_offset,
                leader_epoch=leader_epoch,
                max_timestamp=append_time,
                timestamp_type=_LOG_APPEND_TIME,
            )
            batch = batch._replace(max_timestamp=append_time)
        else:
            _ASSIGNED.pack_into(buffer, batch.position, next_offset, batch.length, leader_epoch)
        assigned.append(
            BatchInfo._make((batch.position, next_offset, batch.length, leader_epoch, *batch[_CRC_FIELDS:]))
        )
        next_offset += batch.last_offset_delta + 1
    return assigned
