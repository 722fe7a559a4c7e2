"""The survey of a compressed batch's records for the leader, in plain Python: twin of ``_compressed_survey``.

Decompressed bytes pass by in chunks, and no record objects are made, so memory does not grow with the decompressed
size of a batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from triokafka.named_tuple import NamedTuple
from triokafka.records.compression import CHUNK_BYTES
from triokafka.records.corruption import FAULTS, corrupt_batch, corrupt_record
from triokafka.records.stream import decompressed_chunks
from triokafka.structs import Buffer

__all__ = ["CHUNK_BYTES", "MAX_BLAMED", "SurveyedRecords", "survey_compressed"]

MAX_BLAMED: Final = 100
"""Maximum number of refused records that are named."""

_CUT, _LENGTH, _ORDER, _KEY_LENGTH, _VALUE_LENGTH, _HEADER_COUNT, _HEADER_LENGTH, _FILL = range(1, len(FAULTS))
_NO_TIMESTAMP: Final = -1
_TWO_63: Final = 1 << 63
_TWO_64: Final = 1 << 64
_LONGEST_NUMBER: Final = 10


class SurveyedRecords(NamedTuple):
    """Facts about all records of a batch."""

    oldest: int
    """The smallest timestamp among records that have one; -1 without any."""
    newest: int
    keyless: int
    """The number of records with a null key."""
    refused: int
    """The number of records without a required key, or with a timestamp out of bounds."""
    untimely: bool
    """Whether a record that has its required key has a timestamp out of bounds."""
    blamed: list[tuple[int, int, bool]]
    """The first refused records: index, timestamp, and whether the key is missing."""


class _FaultError(Exception):
    def __init__(self, number: int) -> None:
        self.number = number


class _Source:
    """Decompressed bytes, read from the first to the last."""

    def __init__(self, chunks: Iterator[Buffer]) -> None:
        self._chunks = chunks
        self._chunk = b""
        self._at = 0
        self.total = 0

    @property
    def position(self) -> int:
        return self.total - (len(self._chunk) - self._at)

    def peek(self, size: int) -> bytes:
        """Return the next ``size`` bytes, fewer at the end."""
        while len(self._chunk) - self._at < size and self._more():
            pass
        return self._chunk[self._at : self._at + size]

    def skip(self, size: int) -> None:
        """Skip ``size`` bytes. Raises `_FaultError` if there are fewer."""
        while (left := len(self._chunk) - self._at) < size:
            size -= left
            self._at += left
            if not self._more():
                raise _FaultError(_LENGTH)
        self._at += size

    def drain(self) -> None:
        """Decompress the rest."""
        self._at = len(self._chunk)
        while self._more():
            self._at = len(self._chunk)

    def _more(self) -> bool:
        chunk = next(self._chunks, None)
        if chunk is None:
            return False
        self.total += len(chunk)
        self._chunk = self._chunk[self._at :] + bytes(chunk)
        self._at = 0
        return True


def survey_compressed(
    data: Buffer,
    start: int,
    end: int,
    codec: int,
    count: int,
    base_timestamp: int,
    topic: str,
    partition: int,
    max_size: int,
    earliest: int,
    latest: int,
    wants_key: bool,
) -> SurveyedRecords:
    """Survey the records of a batch from a producer: ``count`` records fill ``data[start:end]``, decompressed.

    Args:
        max_size: limit on the batch's decompressed size in bytes.
        earliest, latest: bounds of timestamps; a record without a timestamp is within them.
        wants_key: refuse records with a null key.

    Raises:
        CorruptRecordError: the data is damaged or decompresses to more than ``max_size``, the records do not fill it, a
            record is malformed, or the offsets are not 0, 1, 2 … A fault of the compressed data takes precedence over a
            fault of a record.
        UnsupportedCodecError: the codec's package is missing.
    """
    if not 0 <= start <= end <= len(data):
        raise ValueError("the payload lies outside of the buffer")
    source = _Source(decompressed_chunks(codec, memoryview(data)[start:end], max_size=max_size))
    oldest = newest = _NO_TIMESTAMP
    keyless = refused = index = record_end = fault = 0
    untimely = False
    blamed: list[tuple[int, int, bool]] = []
    try:
        while index < count:
            size = _number(source, source.position + 5, 32, _CUT)
            if size & 1:
                raise _FaultError(_LENGTH)
            record_end = source.position + (size >> 1)
            elapsed, has_key = _read(source, index, record_end)
            timestamp = base_timestamp + elapsed
            if not -_TWO_63 <= timestamp < _TWO_63:
                timestamp = (timestamp + _TWO_63) % _TWO_64 - _TWO_63
            newest = max(newest, timestamp)
            if timestamp != _NO_TIMESTAMP and (oldest == _NO_TIMESTAMP or timestamp < oldest):
                oldest = timestamp
            keyless += not has_key
            lacks_key = wants_key and not has_key
            late = timestamp != _NO_TIMESTAMP and not earliest <= timestamp <= latest
            if lacks_key or late:
                refused += 1
                untimely = untimely or not lacks_key
                if len(blamed) < MAX_BLAMED:
                    blamed.append((index, timestamp, lacks_key))
            index += 1
    except _FaultError as wrong:
        fault = wrong.number
    read = source.position
    source.drain()
    if fault:
        fault = _LENGTH if record_end > source.total else fault
        raise corrupt_record(topic, partition, 0, index, FAULTS[fault])
    if read != source.total:
        raise corrupt_batch(topic, partition, 0, f"{source.total - read} bytes follow its {count} records")
    return SurveyedRecords(oldest, newest, keyless, refused, untimely, blamed)


def _read(source: _Source, index: int, end: int) -> tuple[int, bool]:
    """Read a record behind its length; return its timestamp delta, and whether it has a key."""
    if source.position == end:
        raise _FaultError(_CUT)
    source.skip(1)  # attributes, unused
    elapsed = _number(source, end, 64, _CUT)
    delta = _number(source, end, 32, _CUT)
    if delta & 1:
        raise _FaultError(_ORDER)
    has_key = _skip_field(source, end, _CUT, _KEY_LENGTH)
    _skip_field(source, end, _CUT, _VALUE_LENGTH)
    if delta >> 1 != index:
        raise _FaultError(_ORDER)
    headers = _number(source, end, 32, _CUT)
    if headers & 1 or headers >> 2 > end - source.position:  # a header has at least two bytes
        raise _FaultError(_HEADER_COUNT)
    for _ in range(headers >> 1):
        if not _skip_field(source, end, _HEADER_LENGTH, _HEADER_LENGTH):
            raise _FaultError(_HEADER_LENGTH)
        _skip_field(source, end, _HEADER_LENGTH, _HEADER_LENGTH)
    if source.position != end:
        raise _FaultError(_FILL)
    return (elapsed >> 1) ^ -(elapsed & 1), has_key


def _skip_field(source: _Source, end: int, cut: int, wrong: int) -> bool:
    """Skip a length and that many bytes. Return False for null."""
    size = _number(source, end, 32, cut)
    if size == 1:
        return False
    if size & 1 or size >> 1 > end - source.position:
        raise _FaultError(wrong)
    source.skip(size >> 1)
    return True


def _number(source: _Source, end: int, bits: int, fault: int) -> int:
    """Read an unsigned varint that ends before ``end``."""
    value = shift = 0
    for number, byte in enumerate(source.peek(min(_LONGEST_NUMBER, end - source.position))):
        if shift >= bits:
            break
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if value >> bits:
                break
            source.skip(number + 1)
            return value
    raise _FaultError(fault)
