"""Batches of which compaction keeps only some records: read the records, and write a batch of the retained ones.

Offsets, timestamps and headers of records stay the same, and so do producer id, epoch and sequence numbers in the batch
header. Retained records are not encoded again unless the batch's base timestamp changes (KIP-534).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Final

from triokafka.checksum import crc32c
from triokafka.records import batch
from triokafka.records.batch import HEADER, HEADER_SIZE, BatchInfo
from triokafka.records.compression import DEFAULT_MAX_DECOMPRESSED, compress, decompress
from triokafka.records.kernel import ConsumerRecord, RecordOrigin, decode_payload, open_payload
from triokafka.records.legacy import decode_legacy
from triokafka.structs import Buffer
from triokafka.varint import encode_uvarint

_MASK: Final = (1 << 64) - 1


class RewritableBatch:
    """One batch, of any format version, with its records.

    ``records`` has all of them in order, also those of a control batch.

    Args:
        data: exactly the batch; ``info`` is its parsed header. The checksum is not verified.
        max_decompressed: limit on its decompressed size in bytes.

    Raises:
        CorruptRecordError: the records contradict the header.
        UnsupportedCodecError: the codec's package is missing.
    """

    __slots__ = ("_end", "_payload", "_start", "info", "records")

    def __init__(self, data: Buffer, info: BatchInfo, *, max_decompressed: int = DEFAULT_MAX_DECOMPRESSED) -> None:
        self.info = info._replace(position=0)
        self.records: list[ConsumerRecord] = []
        self._payload: Buffer = b""
        self._start = self._end = 0
        view = memoryview(data)
        if info.magic < 2:
            self.records = [
                ConsumerRecord("", 0, m.offset, m.timestamp, m.key, m.value, (), m.timestamp_type)
                for m in decode_legacy(view, self.info, check_crc=False, max_size=max_decompressed)
            ]
        elif info.record_count:
            if info.codec:
                self._payload = decompress(info.codec, view[HEADER_SIZE : info.size], max_size=max_decompressed)
                self._end = len(self._payload)
            else:
                self._payload, self._start, self._end = open_payload(view, HEADER_SIZE, info.size)
            decode_payload(
                self.records,
                sys.maxsize,
                self._payload,
                self._start,
                self._end,
                0,
                info.record_count,
                -1,
                info.base_offset,
                info.last_offset_delta,
                info.base_timestamp,
                info.max_timestamp,
                RecordOrigin("", 0, info.partition_leader_epoch, info.timestamp_type),
                0,
            )

    @property
    def delete_horizon_ms(self) -> int | None:
        """The time from which the cleaner may remove tombstones; None before its first pass over the batch
        (KIP-534)."""
        info = self.info
        return info.base_timestamp if info.magic >= 2 and info.attributes & batch.DELETE_HORIZON else None

    def with_only(
        self,
        kept: Sequence[int],
        *,
        delete_horizon_ms: int | None = None,
        codec: int | None = None,
        level: int | None = None,
    ) -> bytes:
        """Return a v2 batch with the same offsets, but only the records with the indexes ``kept`` (at least one).

        Args:
            kept: ascending.
            delete_horizon_ms: the time from which tombstones may be removed; the batch's own if None.
            codec: codec id; that of the batch if None.
            level: compression level; Kafka's default if None.
        """
        info = self.info
        horizon = self.delete_horizon_ms if delete_horizon_ms is None else delete_horizon_ms
        records = [self.records[index] for index in kept]
        if info.magic < 2:
            base_offset = records[0].offset
            last_delta = max(info.last_offset, self.records[-1].offset) - base_offset
            base_timestamp = records[0].timestamp if horizon is None else horizon
            payload = b"".join(_encode(record, base_offset, base_timestamp) for record in records)
        else:
            base_offset, last_delta = info.base_offset, info.last_offset_delta
            base_timestamp = info.base_timestamp if horizon is None else horizon
            if base_timestamp == info.base_timestamp:
                payload = self._cut_out(kept)
            else:
                payload = self._moved(kept, base_timestamp)
        codec = info.codec if codec is None or info.is_control else codec
        newest = info.max_timestamp
        if info.timestamp_type != 1:
            newest = max(record.timestamp for record in records)
        attributes = info.attributes & ~(batch.CODEC_MASK | batch.DELETE_HORIZON) | codec
        return _assemble(
            info,
            compress(codec, payload, level) if codec else payload,
            attributes | (batch.DELETE_HORIZON if horizon is not None else 0),
            base_offset,
            last_delta,
            base_timestamp,
            newest,
            len(records),
        )

    def _bounds(self) -> list[int]:
        """The start of each record in the payload, and the end of the last one."""
        payload, position, end = self._payload, self._start, self._end
        bounds = [position]
        while position < end:
            length, body = _read_varint(payload, position)
            position = body + (length >> 1)
            bounds.append(position)
        return bounds

    def _cut_out(self, kept: Sequence[int]) -> bytes:
        bounds = self._bounds()
        view = memoryview(self._payload)
        return b"".join(view[bounds[first] : bounds[last + 1]] for first, last in _runs(kept))

    def _moved(self, kept: Sequence[int], base_timestamp: int) -> bytes:
        bounds = self._bounds()
        view = memoryview(self._payload)
        parts: list[Buffer] = []
        for index in kept:
            _, body = _read_varint(self._payload, bounds[index])
            _, rest = _read_varint(self._payload, body + 1)  # skips the attributes, reads the timestamp
            delta = _zigzag(self.records[index].timestamp - base_timestamp)
            tail = view[rest : bounds[index + 1]]
            parts += (encode_uvarint(2 * (1 + len(delta) + len(tail))), view[body : body + 1], delta, tail)
        return b"".join(parts)


def empty_batch(info: BatchInfo) -> bytes:
    """Return the batch without its records: the header keeps the offsets and the producer's fields."""
    attributes = info.attributes & (batch.LOG_APPEND_TIME | batch.TRANSACTIONAL | batch.CONTROL)
    return _assemble(
        info, b"", attributes, info.base_offset, info.last_offset_delta, batch.NO_TIMESTAMP, info.max_timestamp, 0
    )


def _assemble(
    info: BatchInfo,
    payload: Buffer,
    attributes: int,
    base_offset: int,
    last_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
) -> bytes:
    out = bytearray(HEADER_SIZE + len(payload))
    HEADER.pack_into(
        out,
        0,
        base_offset,
        len(out) - batch.LOG_OVERHEAD,
        info.partition_leader_epoch,
        2,
        0,
        attributes,
        last_delta,
        base_timestamp,
        max_timestamp,
        info.producer_id,
        info.producer_epoch,
        info.base_sequence,
        count,
    )
    out[HEADER_SIZE:] = payload
    out[17:21] = crc32c(memoryview(out)[batch.CRC_COVERS_FROM :]).to_bytes(4, "big")
    return bytes(out)


def _encode(record: ConsumerRecord, base_offset: int, base_timestamp: int) -> bytes:
    body = b"".join(
        (
            b"\0",
            _zigzag(record.timestamp - base_timestamp),
            _zigzag(record.offset - base_offset),
            *_field(record.key),
            *_field(record.value),
            b"\0",
        )
    )
    return _zigzag(len(body)) + body


def _field(value: bytes | None) -> tuple[bytes, bytes]:
    return (_zigzag(-1), b"") if value is None else (_zigzag(len(value)), value)


def _runs(indexes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last index of every run without a gap."""
    first = previous = indexes[0]
    for index in indexes[1:]:
        if index != previous + 1:
            yield first, previous
            first = index
        previous = index
    yield first, previous


def _read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Return an unsigned varint that was validated before, and the position after it."""
    value = data[position]
    position += 1
    if value > 127:
        value &= 127
        shift = 7
        while (byte := data[position]) > 127:
            value |= (byte & 127) << shift
            shift += 7
            position += 1
        value |= byte << shift
        position += 1
    return value, position


def _zigzag(value: int) -> bytes:
    return encode_uvarint(((value << 1) ^ (value >> 63)) & _MASK)
