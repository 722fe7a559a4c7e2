"""The survey of a batch's records that the leader makes before it appends them, in plain Python: twin of
``_survey``."""

from __future__ import annotations

from triokafka.records.corruption import corrupt_batch, corrupt_record
from triokafka.records.plain_kernel import read_headers, read_varint
from triokafka.structs import Buffer

_TWO_63 = 1 << 63
_TWO_64 = 1 << 64


def survey_records(
    data: Buffer, position: int, end: int, count: int, base_timestamp: int, topic: str, partition: int
) -> tuple[int, int, int]:
    """Survey the records of a batch from a producer: ``count`` records fill ``data[position:end]``, uncompressed.

    Returns the smallest timestamp (without records that have none, which is -1), the largest, and the number of records
    with a null key; -1 if there is none.

    Raises:
        CorruptRecordError: the records do not fill it, one is malformed, or their offsets are not 0, 1, 2 …
    """
    if not 0 <= position <= end <= len(data):
        raise ValueError("the payload lies outside of the buffer")
    raw = bytes(memoryview(data)[position:end])
    position, end = 0, len(raw)
    oldest = newest = -1
    keyless = index = 0
    try:
        while index < count:
            size, position = read_varint(raw, position, 32)
            record_end = position + (size >> 1)
            if size & 1 or record_end > end:
                raise ValueError("its length is more than the batch holds")
            elapsed, position = read_varint(raw, position + 1, 64)
            delta, position = read_varint(raw, position, 32)
            if delta != index << 1:
                raise ValueError("its offset is out of order")
            size, position = read_varint(raw, position, 32)
            if size == 1:
                keyless += 1
            elif size & 1:
                raise ValueError("its key has a wrong length")
            else:
                position += size >> 1
            size, position = read_varint(raw, position, 32)
            if size != 1:
                if size & 1:
                    raise ValueError("its value has a wrong length")
                position += size >> 1
            size, position = read_varint(raw, position, 32)
            if size:
                if size & 1 or size >> 2 > record_end - position:  # a header has at least two bytes
                    raise ValueError("its header count is more than it holds")
                _, position = read_headers(raw, position, record_end, size >> 1)
            if position != record_end:
                raise ValueError("its fields do not fill its length")
            timestamp = base_timestamp + ((elapsed >> 1) ^ -(elapsed & 1))
            if not -_TWO_63 <= timestamp < _TWO_63:
                timestamp = (timestamp + _TWO_63) % _TWO_64 - _TWO_63
            newest = max(newest, timestamp)
            if timestamp != -1 and (oldest == -1 or timestamp < oldest):
                oldest = timestamp
            index += 1
    except IndexError:
        raise corrupt_record(topic, partition, 0, index, "it ends too early") from None
    except ValueError as wrong:
        raise corrupt_record(topic, partition, 0, index, str(wrong)) from None
    if position != end:
        raise corrupt_batch(topic, partition, 0, f"{end - position} bytes follow its {count} records")
    return oldest, newest, keyless
