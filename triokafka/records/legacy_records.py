"""Conversions of v0/v1 messages for readers. Such data is rare, so speed does not matter."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from triokafka.records.batch import HEADER_SIZE
from triokafka.records.kernel import ConsumerRecord, RecordAppender
from triokafka.records.legacy import LegacyMessage
from triokafka.structs import Buffer

if TYPE_CHECKING:
    from triokafka.records.kernel import ColumnAppender


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
