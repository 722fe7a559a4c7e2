"""Batch headers: walking a buffer of batches, and changing the few header fields that change after encoding.

Works on the 61 bytes of a v2 batch header and on the entry header of v0/v1 messages; never reads records.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final

from triokafka.checksum import crc32c
from triokafka.errors import CorruptRecordError
from triokafka.named_tuple import NamedTuple
from triokafka.records.compression import codec_name
from triokafka.structs import Buffer

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
"""base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base and max timestamp, producer id and
epoch, base sequence, record count."""
HEADER_SIZE: Final = 61
MAX_BATCH_SIZE: Final = (1 << 31) - 1 - 64
"""Lengths in the protocol are 32-bit; the rest of a request that carries a batch of this size still fits."""
LOG_OVERHEAD: Final = 12
"""Size of base offset and length, which precede the bytes that ``length`` counts, in every format version."""
CRC_COVERS_FROM: Final = 21
"""The CRC of a v2 batch covers the bytes from the attributes to the end; leader epoch and base offset lie outside."""

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
DELETE_HORIZON: Final = 0x40

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_SEQUENCE: Final = -1
MAX_INT64: Final = (1 << 63) - 1
MAX_SEQUENCE: Final = (1 << 31) - 1

_SMALLEST_LENGTH: Final = 14  # a v0 message: CRC, magic, attributes, two null lengths
_ENTRY: Final = struct.Struct(">qiIbb")  # offset, size, CRC, magic, attributes
_LEGACY_TIMESTAMP: Final = struct.Struct(">q")


class BatchInfo(NamedTuple):
    """The header of one batch: the fields of a v2 header in order, behind the batch's position.

    ``position`` and ``size`` (bytes, header included) give the batch's place in the walked buffer.

    For v0/v1 the "batch" is one outer message: ``base_offset`` and ``last_offset`` are its offset. A compressed wrapper
    has the offset of its *last* inner message and does not state their number: ``record_count`` is -1.
    """

    position: int
    base_offset: int
    length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Size of the whole batch in bytes; ``length`` excludes itself and the base offset."""
        return self.length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Offset of the last record that the batch had when it was written; compaction may have removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The offset after the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def end(self) -> int:
        """Position of the byte after the batch."""
        return self.position + self.length + LOG_OVERHEAD

    @property
    def codec(self) -> int:
        """Codec id, 0 to 7."""
        return self.attributes & CODEC_MASK

    @property
    def compression(self) -> str:
        """Codec name: none, gzip, snappy, lz4 or zstd; ``unknown`` for an id that Kafka does not define."""
        return codec_name(self.attributes & CODEC_MASK)

    @property
    def timestamp_type(self) -> int:
        """0 create time, 1 log append time, -1 none (v0)."""
        if self.magic == 0:
            return -1
        return 1 if self.attributes & LOG_APPEND_TIME else 0

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction."""
        return self.attributes & TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a transaction marker or another record of the system, not of an application."""
        return self.attributes & CONTROL != 0

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; sequences wrap to 0 after 2^31 - 1. -1 without idempotence."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        last = self.base_sequence + self.last_offset_delta
        return last if last <= MAX_SEQUENCE else last - MAX_SEQUENCE - 1


def parse_batch(view: memoryview, position: int, *, check_crc: bool = False) -> BatchInfo | None:
    """Return the batch that starts at ``position``, or None if it is incomplete.

    Raises:
        CorruptRecordError: the bytes are not the start of a batch, or (``check_crc``) the checksum does not match.
    """
    available = len(view) - position
    if available < HEADER_SIZE or view[position + 16] != 2:
        return _parse_other(view, position, check_crc=check_crc)
    info = BatchInfo._make((position, *HEADER.unpack_from(view, position)))
    length = info.length
    if length < HEADER_SIZE - LOG_OVERHEAD:
        raise _broken(view, position, f"length {length} is shorter than a batch header")
    if length > available - LOG_OVERHEAD:
        return None
    last_delta = info.last_offset_delta
    if not 0 <= info.record_count <= last_delta + 1 or last_delta < 0:
        raise _broken(view, position, f"{info.record_count} records, but the last offset delta is {last_delta}")
    if not 0 <= info.base_offset < MAX_INT64 - last_delta:
        raise _broken(view, position, "base offset is out of range")
    if check_crc:
        check_batch_crc(view, info)
    return info


def check_batch_crc(view: memoryview, info: BatchInfo) -> None:
    """Raise ``CorruptRecordError`` unless the bytes of the batch match its checksum."""
    start, end = info.position, info.end
    if info.magic == 2:
        computed = crc32c(view[start + CRC_COVERS_FROM : end])
    else:
        computed = zlib.crc32(view[start + LOG_OVERHEAD + 4 : end])
    if computed != info.crc:
        raise _broken(view, start, f"checksum is {computed:#010x}, the header says {info.crc:#010x}")


def iter_batches(buffer: Buffer, *, check_crc: bool = False) -> Iterator[BatchInfo]:
    """Walk the batches of a buffer, of any format version. A partial batch at the end ends the walk.

    Raises:
        CorruptRecordError: the bytes are not a batch, or (``check_crc``) a checksum does not match.
    """
    view = memoryview(buffer).cast("B")
    position, end = 0, len(view)
    while position < end and (info := parse_batch(view, position, check_crc=check_crc)) is not None:
        yield info
        position += info.size


def _check_length(view: memoryview, position: int) -> int:
    length: int = int.from_bytes(view[position + 8 : position + 12], "big", signed=True)
    if length < _SMALLEST_LENGTH:
        raise _broken(view, position, f"length {length} is too small for a message")
    return length


def _parse_other(view: memoryview, position: int, *, check_crc: bool) -> BatchInfo | None:
    """``parse_batch`` for anything but a complete v2 header: an older format, the cut end of a buffer, or garbage."""
    available = len(view) - position
    if available < LOG_OVERHEAD:
        return None
    length = _check_length(view, position)
    if available < _ENTRY.size:
        return None
    offset, _, crc, magic, attributes = _ENTRY.unpack_from(view, position)
    if magic == 2:
        if length < HEADER_SIZE - LOG_OVERHEAD:
            raise _broken(view, position, f"length {length} is shorter than a batch header")
        return None
    if not 0 <= magic <= 1:
        raise _broken(view, position, f"format version {magic} is unknown")
    if length > available - LOG_OVERHEAD:
        return None
    if not 0 <= offset < MAX_INT64:
        raise _broken(view, position, "offset is out of range")
    timestamp = NO_TIMESTAMP
    if magic == 1:
        if length < _SMALLEST_LENGTH + 8:
            raise _broken(view, position, f"length {length} is too small for a v1 message")
        (timestamp,) = _LEGACY_TIMESTAMP.unpack_from(view, position + LOG_OVERHEAD + 6)
    # The upper bits of a v0/v1 attributes byte are reserved; they have no meaning as in v2.
    attributes &= CODEC_MASK | (LOG_APPEND_TIME if magic == 1 else 0)
    count = -1 if attributes & CODEC_MASK else 1
    info = BatchInfo(position, offset, length, -1, magic, crc, attributes, 0, timestamp, timestamp, -1, -1, -1, count)
    if check_crc:
        check_batch_crc(view, info)
    return info


def _broken(view: memoryview, position: int, reason: str) -> CorruptRecordError:
    offset = int.from_bytes(view[position : position + 8], "big", signed=True)
    return CorruptRecordError(f"batch at byte {position}, offset {offset}: {reason}")


def patch_batch(
    buffer: bytearray | memoryview,
    position: int,
    *,
    base_offset: int,
    leader_epoch: int,
    max_timestamp: int | None = None,
    timestamp_type: int | None = None,
) -> None:
    """Write the fields that a leader assigns on append into the header of a v2 batch, in place.

    Offset and leader epoch lie outside the CRC. Giving ``max_timestamp`` or ``timestamp_type`` (1 = log append time)
    changes covered fields, so the CRC is recomputed then.
    """
    struct.pack_into(">q", buffer, position, base_offset)
    struct.pack_into(">i", buffer, position + 12, leader_epoch)
    if max_timestamp is None and timestamp_type is None:
        return
    if max_timestamp is not None:
        struct.pack_into(">q", buffer, position + 35, max_timestamp)
    if timestamp_type is not None:
        (attributes,) = struct.unpack_from(">h", buffer, position + CRC_COVERS_FROM)
        attributes = attributes & ~LOG_APPEND_TIME | (LOG_APPEND_TIME if timestamp_type == 1 else 0)
        struct.pack_into(">h", buffer, position + CRC_COVERS_FROM, attributes)
    _write_crc(buffer, position)


def set_producer_state(
    buffer: bytearray | memoryview, position: int, producer_id: int, producer_epoch: int, base_sequence: int
) -> None:
    """Write the producer's id, epoch and first sequence number into the header of a v2 batch, and update its CRC."""
    struct.pack_into(">qhi", buffer, position + 43, producer_id, producer_epoch, base_sequence)
    _write_crc(buffer, position)


def _write_crc(buffer: bytearray | memoryview, position: int) -> None:
    (length,) = struct.unpack_from(">i", buffer, position + 8)
    with memoryview(buffer) as view, view[position + CRC_COVERS_FROM : position + LOG_OVERHEAD + length] as covered:
        struct.pack_into(">I", buffer, position + 17, crc32c(covered))
