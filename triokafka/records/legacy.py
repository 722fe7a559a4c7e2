"""Message sets of format v0 and v1, read only: Kafka wrote them before 0.11, and old segments still have them.

Such data is rare, so speed does not matter.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from triokafka.errors import CorruptRecordError
from triokafka.named_tuple import NamedTuple
from triokafka.records.batch import CODEC_MASK, HEADER_SIZE, LOG_APPEND_TIME, LOG_OVERHEAD, BatchInfo, parse_batch
from triokafka.records.compression import decompress
from triokafka.records.kernel import ConsumerRecord, RecordAppender
from triokafka.structs import Buffer

if TYPE_CHECKING:
    from triokafka.records.kernel import ColumnAppender

_INT32: Final = struct.Struct(">i")


class LegacyMessage(NamedTuple):
    """One message with its absolute offset. ``timestamp_type`` is -1 in v0."""

    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None


def decode_legacy(view: memoryview, info: BatchInfo, *, check_crc: bool, max_size: int) -> list[LegacyMessage]:
    """Return the messages of one outer v0/v1 entry: the entry itself, or those in its compressed value.

    In v0 the inner offsets are absolute. In v1 they count from 0, and the wrapper has the offset of the last one. A
    wrapper stamped by the broker stamps all its messages.

    Raises:
        CorruptRecordError: a length, checksum or offset is inconsistent.
    """
    key, value = _key_and_value(view, info)
    if not info.attributes & CODEC_MASK:
        return [LegacyMessage(info.base_offset, info.base_timestamp, info.timestamp_type, key, value)]
    if value is None:
        raise _broken(info, "a compressed message has no value")
    inner = memoryview(decompress(info.codec, value, max_size=max_size, magic=info.magic))
    messages: list[LegacyMessage] = []
    position = 0
    while position < len(inner):
        entry = parse_batch(inner, position, check_crc=check_crc)
        if entry is None:
            raise _broken(info, "the last inner message is cut short")
        if entry.magic != info.magic:
            raise _broken(info, f"format version {info.magic} wraps format version {entry.magic}")
        if entry.attributes & CODEC_MASK:
            raise _broken(info, "an inner message is compressed itself")
        inner_key, inner_value = _key_and_value(inner, entry)
        timestamp = entry.base_timestamp
        if info.attributes & LOG_APPEND_TIME:
            timestamp = info.base_timestamp
        messages.append(LegacyMessage(entry.base_offset, timestamp, info.timestamp_type, inner_key, inner_value))
        position += entry.size
    if not messages:
        raise _broken(info, "a compressed message holds no messages")
    return messages if info.magic == 0 else _with_absolute_offsets(info, messages)


def _with_absolute_offsets(info: BatchInfo, messages: list[LegacyMessage]) -> list[LegacyMessage]:
    last = messages[-1].offset
    # Some versions of librdkafka sent wrappers with offset 0, and no broker assigned offsets to them.
    base = 0 if info.base_offset == 0 else info.base_offset - last
    if base < 0:
        raise _broken(info, f"the last inner message has offset {last}")
    return [message._replace(offset=base + message.offset) for message in messages]


def _key_and_value(view: memoryview, info: BatchInfo) -> tuple[bytes | None, bytes | None]:
    position = info.position + LOG_OVERHEAD + (6 if info.magic == 0 else 14)
    key, position = _field(view, info, position, "key")
    value, position = _field(view, info, position, "value")
    if position != info.end:
        raise _broken(info, "its fields do not fill its length")
    return key, value


def _field(view: memoryview, info: BatchInfo, position: int, name: str) -> tuple[bytes | None, int]:
    if info.end - position < 4:
        raise _broken(info, f"it ends before its {name}")
    (length,) = _INT32.unpack_from(view, position)
    position += 4
    if length == -1:
        return None, position
    if length < 0 or length > info.end - position:
        raise _broken(info, f"its {name} has a wrong length")
    return bytes(view[position : position + length]), position + length


def _broken(info: BatchInfo, reason: str) -> CorruptRecordError:
    return CorruptRecordError(f"message at offset {info.base_offset}: {reason}")


def as_record(message: LegacyMessage, topic: str, partition: int) -> ConsumerRecord:
    """Return a message as a record. Its leader epoch is unknown, and it has no headers."""
    key, value = message.key, message.value
    return ConsumerRecord(topic, partition, message.offset, message.timestamp, key, value, (), message.timestamp_type)


def put_into_columns(record: ConsumerRecord, columns: ColumnAppender, number_of: Callable[[Buffer], int]) -> int:
    """Encode a record in format v2, which the columnar kernel reads, and add it to ``columns``.

    ``number_of`` numbers the data buffers, as in `RecordDecoder.take_columns`. Returns the encoded size in bytes; 0 if
    ``columns`` is full.
    """
    encoded = RecordAppender(0)
    encoded.append(record.timestamp, record.key, record.value)
    data, size = encoded.buffer, encoded.size
    if not columns.has_room(size):
        return 0
    columns.append(
        1, data, HEADER_SIZE, size, 0, 1, -1, record.offset, 0, record.timestamp, 0, 0, 0, number_of(data), 0
    )
    return size
