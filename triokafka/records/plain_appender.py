"""Encoding records into a batch buffer, in plain Python. Twin and oracle of ``_appender``.

The same interface as ``_appender`` with equal results; ``triokafka.kernels`` chooses it if that one is not compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from triokafka.errors import MessageSizeTooLargeError
from triokafka.records.batch import HEADER_SIZE, MAX_BATCH_SIZE
from triokafka.structs import Buffer
from triokafka.varint import encode_uvarint

Headers = Sequence[tuple[str, Buffer | None]]

_TABLE_SIZE: Final = 1 << 13
_TWO_63: Final = 1 << 63
_TWO_64: Final = 1 << 64


def _varint(value: int) -> bytes:
    """Return the zigzag varint of an integer, wrapped to 64 bits."""
    value = (value + _TWO_63) % _TWO_64 - _TWO_63
    return encode_uvarint((value << 1) ^ (value >> 63))


class _Varints(dict[int, bytes]):
    """Varints by value, made at the first use; small ones are kept."""

    def __missing__(self, value: int) -> bytes:
        made = _varint(value)
        if 0 <= value < _TABLE_SIZE:
            self[value] = made
        return made


_VARINTS: Final = _Varints()


def _as_bytes(data: Buffer) -> bytes:
    if isinstance(data, bytes):
        return data
    view = memoryview(data)
    if not view.c_contiguous:
        raise BufferError("keys, values and headers must be contiguous")
    return view.tobytes()


def encode_headers(headers: Headers) -> bytes:
    """Return the header count and the headers as encoded in a record."""
    parts = [_VARINTS[len(headers)]]
    for name, value in headers:
        encoded = name.encode()
        parts += (_VARINTS[len(encoded)], encoded)
        if value is None:
            parts.append(b"\x01")
        else:
            data = _as_bytes(value)
            parts += (_VARINTS[len(data)], data)
    return b"".join(parts)


class RecordAppender:
    """Encodes records one after the other into one buffer, behind the space for the batch header.

    ``limit`` is the maximum size of the batch in bytes, header included. The first record always fits: the buffer grows
    for it if necessary. ``buffer`` is a buffer to write to (its size never changes; a larger one replaces it if it is
    too small). Without it, one of ``capacity`` bytes is made.
    """

    __slots__ = ("base_timestamp", "buffer", "closed", "count", "limit", "max_timestamp", "size")

    def __init__(self, limit: int, capacity: int = 0, buffer: bytearray | None = None) -> None:
        self.limit = limit
        self.buffer = bytearray(max(capacity, HEADER_SIZE)) if buffer is None else buffer
        self.size = HEADER_SIZE
        self.count = 0
        self.base_timestamp = -1
        self.max_timestamp = -1
        self.closed = False

    def close(self) -> None:
        """Refuse all further records."""
        self.closed = True

    def append(
        self, timestamp: int, key: Buffer | None = None, value: Buffer | None = None, headers: Headers = ()
    ) -> int:
        """Add one record; return its number in the batch, or -1 if it does not fit or the batch is closed."""
        index = self.count
        delta = timestamp - self.base_timestamp if index else 0
        if (not index or delta > _TWO_63) and not -_TWO_63 <= timestamp < _TWO_63:
            raise OverflowError(f"timestamp {timestamp} has more than 64 bits")
        varints = _VARINTS
        if key is None:
            key_part = b"\x01"
        else:
            if type(key) is not bytes:
                key = _as_bytes(key)
            length = len(key)
            key_part = varints[length] + key
        if value is None:
            value_part = b"\x01"
        else:
            if type(value) is not bytes:
                value = _as_bytes(value)
            length = len(value)
            value_part = varints[length] + value
        body = b"".join(
            (
                b"\x00",
                varints[delta],
                varints[index],
                key_part,
                value_part,
                encode_headers(headers) if headers else b"\x00",
            )
        )
        length = len(body)
        prefix = varints[length]
        start = self.size
        end = start + len(prefix) + length
        if self.closed or (end > self.limit and index):
            return -1
        if end > len(self.buffer):
            self._grow(end)
        self.buffer[start:end] = prefix + body
        self.size = end
        self.count = index + 1
        if not index:
            self.base_timestamp = self.max_timestamp = timestamp
        elif timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        return index

    def append_records(self, records: Sequence[tuple[int, Buffer | None, Buffer | None, Headers]]) -> int:
        """Add ``records``, each (timestamp, key, value, headers), until one does not fit; return how many fit."""
        added = 0
        for timestamp, key, value, headers in records:
            if self.append(timestamp, key, value, headers) < 0:
                break
            added += 1
        return added

    def _grow(self, needed: int) -> None:
        if needed > MAX_BATCH_SIZE:
            raise MessageSizeTooLargeError(f"a batch cannot have more than {MAX_BATCH_SIZE} bytes, needs {needed}")
        grown = bytearray(max(needed, min(2 * len(self.buffer), MAX_BATCH_SIZE)))
        grown[: self.size] = memoryview(self.buffer)[: self.size]
        self.buffer = grown
