"""Decode the bytes of a fetch batch by batch, only as many records as the caller requests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from triokafka.errors import CorruptRecordError, KafkaError, UnsupportedCodecError
from triokafka.records.aborted_transactions import AbortedTransactions
from triokafka.records.batch import CODEC_MASK, CRC_COVERS_FROM, HEADER_SIZE, BatchInfo, check_batch_crc, parse_batch
from triokafka.records.batch_unpacker import BatchUnpacker
from triokafka.records.compression import CODEC_IDS, DEFAULT_MAX_DECOMPRESSED
from triokafka.records.corruption import corrupt_batch
from triokafka.records.decompressor import Decompressor
from triokafka.records.kernel import (
    ConsumerRecord,
    RecordOrigin,
    decode_batches,
    decode_payload,
    open_payload,
)
from triokafka.records.legacy import as_record, decode_legacy, put_into_columns
from triokafka.records.lz4_library import decompress_block
from triokafka.records.plain_columns import LARGEST_UNPACKED
from triokafka.structs import Buffer

if TYPE_CHECKING:
    from triokafka.records.kernel import ColumnAppender

_LZ4: Final = CODEC_IDS["lz4"]
_ATTRIBUTES_AT: Final = CRC_COVERS_FROM + 1  # the lower byte
_ALL: Final = sys.maxsize


class RecordDecoder:
    """The records of one partition's fetched bytes, in chunks.

    ``from_offset`` is the fetch position: a batch may begin before it. ``aborted`` lists the aborted transactions of
    the fetch response as (producer id, first offset). Any list, even an empty one, means read_committed: batches of
    aborted transactions are skipped. Control batches are skipped unless ``include_control``.

    Batches are decompressed into buffers of the ``decompressor``, if one is given.

    ``next_offset`` is the position of the next fetch: after the last returned record, and after skipped batches.
    ``leader_epoch`` and ``timestamp_type`` are those of the last decoded batch, -1 when unknown or without one.
    ``decoded_bytes`` counts the bytes of decompressed records that `take_columns` has processed; ``unpacked_bytes`` is
    the size of all batches decompressed so far.

    With ``inline_bytes``, a call decompresses only batches of at most this size, compressed and decompressed. A larger
    batch ends the call: `is_waiting` is then true, and the caller runs `unpacking` in a thread and passes the result
    to `supply`, or the error to `fail`.
    """

    __slots__ = (
        "_aborted",
        "_batch",
        "_check_crc",
        "_data",
        "_end",
        "_failure",
        "_include_control",
        "_index",
        "_legacy",
        "_origin",
        "_position",
        "_previous_delta",
        "_unpacker",
        "_view",
        "_waiting",
        "_walked",
        "decoded_bytes",
        "leader_epoch",
        "next_offset",
        "partition",
        "timestamp_type",
        "topic",
        "unpacked_bytes",
    )

    def __init__(
        self,
        buffer: Buffer,
        *,
        topic: str = "",
        partition: int = 0,
        from_offset: int = 0,
        check_crc: bool = True,
        aborted: Sequence[tuple[int, int]] | None = None,
        include_control: bool = False,
        max_decompressed: int = DEFAULT_MAX_DECOMPRESSED,
        decompressor: Decompressor | None = None,
        inline_bytes: int = _ALL,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.next_offset = from_offset
        self.leader_epoch = -1
        self.timestamp_type = -1
        self.decoded_bytes = 0
        self.unpacked_bytes = 0
        self._waiting: tuple[BatchInfo, bool] | None = None
        self._view = memoryview(buffer).cast("B")
        self._walked = 0
        self._check_crc = check_crc
        self._include_control = include_control
        self._unpacker = BatchUnpacker(max_decompressed, inline_bytes, decompressor)
        self._aborted = None if aborted is None else AbortedTransactions(aborted)
        self._failure: CorruptRecordError | UnsupportedCodecError | None = None
        self._batch: BatchInfo | None = None
        self._legacy: list[ConsumerRecord] | None = None
        self._origin = RecordOrigin(topic, partition)
        self._data: Buffer = b""
        self._position = self._end = self._index = 0
        self._previous_delta = -1

    def take(self, limit: int = _ALL, most_bytes: int = _ALL) -> list[ConsumerRecord]:
        """Return the next records, at most ``limit``; an empty list if there are no more, or if `is_waiting`.

        Once batches of ``most_bytes`` have been decompressed, the call opens no further one.

        Raises:
            CorruptRecordError: the next bytes are not a valid batch; names topic, partition and offset. Earlier calls
                have returned the records before it, and ``next_offset`` is the position of the bad batch or record.
            UnsupportedCodecError: the next batch needs a package that is missing; otherwise the same.
        """
        out: list[ConsumerRecord] = []
        most_unpacked = self.unpacked_bytes + most_bytes
        if self._batch is None and self._failure is None and self._waiting is None:
            self._walk(
                decode_batches(
                    out,
                    limit,
                    self._view,
                    self._walked,
                    self.next_offset,
                    self._check_crc,
                    self.topic,
                    self.partition,
                )
            )
        try:
            while len(out) < limit:
                if out and self._batch is None and self.unpacked_bytes >= most_unpacked:
                    break
                info = self._current(rows=True)
                if info is None:
                    break
                if self._legacy is not None:
                    self._take_legacy(info, out, limit)
                    continue
                self._position, self._index, self._previous_delta = decode_payload(
                    out,
                    limit,
                    self._data,
                    self._position,
                    self._end,
                    self._index,
                    info.record_count,
                    self._previous_delta,
                    info.base_offset,
                    info.last_offset_delta,
                    info.base_timestamp,
                    info.max_timestamp,
                    self._origin,
                    self.next_offset,
                )
                self._advance(info)
        except (CorruptRecordError, UnsupportedCodecError) as failure:
            self._failure = failure.fresh_copy()
            if not out:
                raise
            self.next_offset = max(self.next_offset, out[-1].offset + 1)
        return out

    def take_columns(
        self, columns: ColumnAppender, limit: int, number_of: Callable[[Buffer], int], most_bytes: int = _ALL
    ) -> int:
        """Put the next records, at most ``limit``, into ``columns``.

        They are of one batch, or of several with one timestamp type. No batch follows the one that reaches
        ``most_bytes``, decompressed.

        ``number_of`` returns a number for each data buffer that views point into, and keeps the buffer alive. Returns
        the number of records: 0 if there are no more, or if ``columns`` is full.

        Raises:
            CorruptRecordError: as ``take``, but the call returns no record of the bad batch.
        """
        before = columns.rows
        if self._batch is None and self._failure is None and self._waiting is None:
            *stopped, read = columns.append_batches(
                limit,
                most_bytes,
                self._view,
                self._walked,
                self.next_offset,
                self._check_crc,
                number_of(self._view),
                self._lz4(),
            )
            self._walk(stopped)
            self.decoded_bytes += read
        try:
            # Compaction may have removed all records from the position on.
            while columns.rows == before and (info := self._current(rows=False)) is not None:
                if self._legacy is not None:
                    if not self._legacy_columns(info, columns, limit, number_of):
                        break
                    continue
                if not columns.has_room(self._end - self._position):
                    break
                position = self._position
                self._position, self._index, self._previous_delta = columns.append(
                    limit,
                    self._data,
                    self._position,
                    self._end,
                    self._index,
                    info.record_count,
                    self._previous_delta,
                    info.base_offset,
                    info.last_offset_delta,
                    info.base_timestamp,
                    info.max_timestamp,
                    info.timestamp_type,
                    self.next_offset,
                    number_of(self._data),
                    0,
                )
                self.decoded_bytes += self._position - position
                self._advance(info)
        except CorruptRecordError as failure:
            self._failure = self._located(failure)
            raise self._failure.fresh_copy() from None
        return columns.rows - before

    def _lz4(self) -> int:
        """Return the address of the LZ4 function for the columnar kernel if the next batch needs it, else 0."""
        at = self._walked + _ATTRIBUTES_AT
        if (
            len(self._view) > at
            and self._view[at] & CODEC_MASK == _LZ4
            and self._unpacker.max_decompressed >= LARGEST_UNPACKED
        ):
            return decompress_block()
        return 0

    def _legacy_columns(
        self, info: BatchInfo, columns: ColumnAppender, limit: int, number_of: Callable[[Buffer], int]
    ) -> bool:
        """Put v0/v1 records into ``columns``. Returns False if ``columns`` is full."""
        assert self._legacy is not None
        for record in self._legacy[:limit]:
            size = put_into_columns(record, columns, number_of)
            if not size:
                return False
            self.next_offset = record.offset + 1
            self.decoded_bytes += size
            del self._legacy[0]
        if not self._legacy:
            self._finish(info)
        return True

    @property
    def exhausted(self) -> bool:
        """Whether there are no more records, and no error to raise."""
        try:
            return self.at_end or (
                self._failure is None and self._current(rows=False) is None and self._waiting is None
            )
        except KafkaError:
            return False  # the next call raises the error

    @property
    def at_end(self) -> bool:
        """Whether every byte was read. False also if a partial batch follows; `exhausted` ignores that."""
        return self._walked == len(self._view) and self._batch is None and self._failure is None

    # ---------------------------------------------------------------- decompressing in a thread

    @property
    def is_waiting(self) -> bool:
        """Whether the next batch waits for its decompression in a thread; see ``inline_bytes``."""
        return self._waiting is not None

    @property
    def holds_unpacked(self) -> bool:
        """Whether a decompressed batch is kept for the next call."""
        return self._batch is not None and self._batch.codec != 0

    def unpacking(self) -> Callable[[], Buffer]:
        """Return a function that decompresses the waiting batch. It may run in any thread.

        Raises `CorruptRecordError` and `UnsupportedCodecError`.
        """
        assert self._waiting is not None
        return self._unpacker.task(self._view, self._waiting[0])

    def supply(self, payload: Buffer) -> None:
        """Continue with the waiting batch, now decompressed."""
        assert self._waiting is not None
        (info, rows), self._waiting = self._waiting, None
        try:
            if not self._began(info, payload, rows):
                self._walked += info.size
                self._finish(info)
        except CorruptRecordError as failure:
            self._failure = self._located(failure)

    def fail(self, error: CorruptRecordError | UnsupportedCodecError) -> None:
        """Let the next call raise the error of the waiting batch's decompression."""
        assert self._waiting is not None
        self._waiting = None
        self._failure = self._located(error) if isinstance(error, CorruptRecordError) else error

    # ---------------------------------------------------------------- batches

    def _current(self, rows: bool) -> BatchInfo | None:
        if self._failure is not None:
            raise self._failure.fresh_copy()
        return self._batch or self._open_batch(rows)

    def _walk(self, stopped: Sequence[int]) -> None:
        """Continue where a kernel that decoded whole batches has stopped."""
        walked, next_offset, leader_epoch, timestamp_type = stopped
        if walked != self._walked:
            self._walked, self.next_offset = walked, next_offset
            self.leader_epoch, self.timestamp_type = leader_epoch, timestamp_type

    def _advance(self, info: BatchInfo) -> None:
        if self._index == info.record_count:
            self._finish(info)
        else:
            self.next_offset = max(self.next_offset, info.base_offset + self._previous_delta + 1)

    def _finish(self, info: BatchInfo) -> None:
        self._batch = self._legacy = None
        self._data = b""
        if info.next_offset > self.next_offset:
            self.next_offset = info.next_offset

    def _open_batch(self, rows: bool) -> BatchInfo | None:
        """Go to the next batch with records to return, by row or by column.

        Returns None at the end, and at a batch that waits for decompression.
        """
        while self._waiting is None:
            try:
                info = parse_batch(self._view, self._walked)
                if info is None:
                    return None
                if info.last_offset >= self.next_offset:
                    if self._check_crc:
                        check_batch_crc(self._view, info)
                    if self._opened(info, rows):
                        return info
                    if self._waiting is not None:
                        break
                elif self._aborted is not None and info.magic >= 2:
                    # Later batches need to know whose transaction ended there.
                    with suppress(CorruptRecordError):
                        self._aborted.cover(self._view, info)
            except CorruptRecordError as failure:
                raise self._located(failure) from None
            self._walked += info.size
            self._finish(info)
        return None

    def _opened(self, info: BatchInfo, rows: bool) -> bool:
        self.leader_epoch = info.partition_leader_epoch
        self.timestamp_type = info.timestamp_type
        if info.magic < 2:
            messages = decode_legacy(
                self._view, info, check_crc=self._check_crc, max_size=self._unpacker.max_decompressed
            )
            wanted = [message for message in messages if message.offset >= self.next_offset]
            self._legacy = [as_record(message, self.topic, self.partition) for message in wanted]
            self._walked += info.size
            self._batch = info
            return True
        if self._aborted is not None and self._aborted.cover(self._view, info):
            return False
        if info.is_control and not self._include_control:
            return False
        payload: Buffer | None = None
        if info.codec:
            payload = self._unpacker.unpack(self._view, info)
            if payload is None:
                self._waiting = info, rows
                return False
        return self._began(info, payload, rows)

    def _began(self, info: BatchInfo, payload: Buffer | None, rows: bool) -> bool:
        """Begin a batch of format v2; ``payload`` has its records if it is compressed. Return False if it has none."""
        start = info.position + HEADER_SIZE
        if payload is not None:
            self.unpacked_bytes += len(payload)
            self._data, self._position, self._end = payload, 0, len(payload)
            if rows:
                self._data, self._position, self._end = open_payload(payload, 0, len(payload))
        elif rows:
            self._data, self._position, self._end = open_payload(self._view, start, info.end)
        else:
            self._data, self._position, self._end = self._view, start, info.end
        if not info.record_count:
            if self._position != self._end:
                raise corrupt_batch("", 0, info.base_offset, "it has bytes, but no records")
            return False
        self._index = 0
        self._previous_delta = -1
        self._origin = RecordOrigin(self.topic, self.partition, self.leader_epoch, self.timestamp_type)
        self._walked += info.size
        self._batch = info
        return True

    def _take_legacy(self, info: BatchInfo, out: list[ConsumerRecord], limit: int) -> None:
        assert self._legacy is not None
        wanted = limit - len(out)
        out += self._legacy[:wanted]
        del self._legacy[:wanted]
        self.next_offset = out[-1].offset + 1
        if not self._legacy:
            self._finish(info)

    def _located(self, failure: CorruptRecordError) -> CorruptRecordError:
        """Return the same error with the partition and the position where reading stopped."""
        if not self.topic or str(failure).startswith(f"{self.topic}-"):
            return failure
        return type(failure)(f"{self.topic}-{self.partition} at offset {self.next_offset}: {failure}")


def decode_records(
    buffer: Buffer,
    *,
    topic: str = "",
    partition: int = 0,
    check_crc: bool = True,
    from_offset: int = 0,
    include_control: bool = False,
    max_decompressed: int = DEFAULT_MAX_DECOMPRESSED,
) -> list[ConsumerRecord]:
    """Return all records of a buffer of batches, of any format version, from ``from_offset`` on.

    A partial batch at the end is ignored. Control batches are skipped unless ``include_control``.

    Raises:
        CorruptRecordError: any batch or record is invalid; no records are returned.
    """
    decoder = RecordDecoder(
        buffer,
        topic=topic,
        partition=partition,
        from_offset=from_offset,
        check_crc=check_crc,
        include_control=include_control,
        max_decompressed=max_decompressed,
    )
    records = decoder.take()
    decoder.take(1)  # raises the error that ended the first call early
    return records
