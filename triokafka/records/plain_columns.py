"""The columnar kernel in plain Python: records to Arrow buffers. Twin and oracle of ``_columns``.

The same interface as ``_columns`` with equal results and equal errors; ``triokafka.kernels`` chooses it if that one is
not compiled. Makes plain buffers in Arrow's layout and does not know pyarrow.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from typing import Final

from triokafka.named_tuple import NamedTuple
from triokafka.records.corruption import corrupt_batch, corrupt_record
from triokafka.records.plain_kernel import read_headers, read_varint
from triokafka.structs import Buffer

OFFSET: Final = 1
TIMESTAMP: Final = 2
KEY: Final = 4
VALUE: Final = 8
HEADERS: Final = 16

MAX_COLUMN_BYTES: Final = (1 << 31) - 1
LARGEST_UNPACKED: Final = 4 << 20
"""Maximum decompressed size of a batch within the compiled kernel, which keeps a buffer of this size."""
_INLINE: Final = 12
_Headers = Sequence[tuple[str, bytes | None]]
_Found = tuple[int, int, memoryview | None, int, memoryview | None, int, _Headers]
"""A record: offset, timestamp, key, place of the key, value, place of the value, headers."""
_TWO_63: Final = 1 << 63
_TWO_64: Final = 1 << 64


class BinaryBuffers(NamedTuple):
    """One nullable binary column: ``offsets`` are 32-bit, or 16-byte views when ``data`` is None."""

    validity: Buffer
    nulls: int
    offsets: Buffer
    data: Buffer | None


class HeaderBuffers(NamedTuple):
    """The headers column: a list, null for a record without headers, of (name, value)."""

    validity: Buffer
    nulls: int
    offsets: Buffer
    total: int
    names: BinaryBuffers
    values: BinaryBuffers


class ColumnBuffers(NamedTuple):
    """The result of ``ColumnAppender.finish``; a column that was not requested is None."""

    rows: int
    offset: Buffer | None
    timestamp: Buffer | None
    key: BinaryBuffers | None
    value: BinaryBuffers | None
    headers: HeaderBuffers | None


class _Binary:
    """A nullable binary column under construction."""

    def __init__(self, views: bool) -> None:
        self.views = views
        self.valid = array("B")
        self.nulls = 0
        self.parts: list[bytes] = []
        self.offsets = array("i", () if views else (0,))
        self.used = 0

    def add(self, row: int, data: Buffer | None, number: int, position: int) -> None:
        """Add the value of ``row``, which lies at ``position`` of the data buffer ``number``."""
        if row & 7 == 0:
            self.valid.append(0xFF)
        size = 0
        if data is None:
            self.valid[row >> 3] &= ~(1 << (row & 7)) & 0xFF
            self.nulls += 1
        else:
            size = len(data)
        if not self.views:
            if data:
                self.parts.append(bytes(data))
            self.used += size
            self.offsets.append(self.used)
        elif size <= _INLINE:
            inline = bytes(data or b"").ljust(_INLINE, b"\0")
            self.parts.append(size.to_bytes(4, sys.byteorder) + inline)
        else:
            assert data is not None
            self.parts.append(
                size.to_bytes(4, sys.byteorder)
                + bytes(data[:4])
                + number.to_bytes(4, sys.byteorder)
                + position.to_bytes(4, sys.byteorder)
            )

    def finish(self) -> BinaryBuffers:
        joined = b"".join(self.parts)
        if self.views:
            return BinaryBuffers(self.valid.tobytes(), self.nulls, joined, None)
        return BinaryBuffers(self.valid.tobytes(), self.nulls, self.offsets.tobytes(), joined)


class ColumnAppender:
    """Collects the records of many batches in columns.

    ``columns`` is a sum of ``OFFSET``, ``TIMESTAMP``, ``KEY``, ``VALUE`` and ``HEADERS``; other fields are not decoded.
    With ``views`` the columns point to keys and values in the input.
    """

    def __init__(self, columns: int, views: bool) -> None:
        self.rows = 0
        self._columns = columns
        self._offset = array("q")
        self._timestamp = array("q")
        self._key = _Binary(views)
        self._value = _Binary(views)
        self._header_offsets = array("i", (0,))
        self._header_valid = array("B")
        self._header_nulls = 0
        self._header_count = 0
        self._header_names = _Binary(False)
        self._header_values = _Binary(False)

    def has_room(self, size: int) -> bool:
        """Return whether ``size`` more bytes fit every column: Arrow's offsets have 32 bits."""
        headers = self._header_names.used + self._header_values.used + self._header_count
        # An invalid byte of a header name becomes a replacement character of three.
        return max(self._key.used, self._value.used, headers + 2 * size) + size <= MAX_COLUMN_BYTES

    def append(
        self,
        limit: int,
        data: Buffer,
        position: int,
        end: int,
        index: int,
        count: int,
        previous_delta: int,
        base_offset: int,
        last_delta: int,
        base_timestamp: int,
        append_time: int,
        timestamp_type: int,
        from_offset: int,
        number: int,
        shift: int,
    ) -> tuple[int, int, int]:
        """Add records ``index`` to ``count - 1`` of ``data`` from ``position`` on, at most ``limit``.

        Records below ``from_offset`` are checked but not added. With ``timestamp_type`` 1 every record gets
        ``append_time``. Views point into the data buffer ``number``, in which ``data[0]`` is at ``shift``. Returns
        (position, index, previous_delta), from which the next call continues.

        Raises:
            CorruptRecordError: a length, count or offset is invalid; no record was added.
        """
        raw = memoryview(data)
        found: list[_Found] = []
        columns = self._columns
        try:
            while index < count and len(found) < limit:
                size, position = read_varint(raw[:end], position, 32)
                record_end = position + (size >> 1)
                if size & 1 or record_end > end:
                    raise ValueError("its length is more than the batch holds")
                record = raw[:record_end]
                record[position]  # attributes: unused, but the byte must exist
                raw_timestamp, position = read_varint(record, position + 1, 64)
                raw_delta, position = read_varint(record, position, 32)
                delta = raw_delta >> 1
                if raw_delta & 1 or delta <= previous_delta or delta > last_delta:
                    raise ValueError("its offset is out of order")
                key, key_position, position = _read_field(record, position, "key")
                value, value_position, position = _read_field(record, position, "value")
                if base_offset + delta >= from_offset:
                    headers = _read_header_list(record, position) if columns & HEADERS else ()
                    timestamp = append_time if timestamp_type == 1 else base_timestamp + _zigzag(raw_timestamp)
                    found.append(
                        (
                            base_offset + delta,
                            timestamp,
                            key,
                            shift + key_position,
                            value,
                            shift + value_position,
                            headers,
                        )
                    )
                position = record_end
                previous_delta = delta
                index += 1
        except IndexError:
            raise corrupt_record("", 0, base_offset, index, "it ends too early") from None
        except ValueError as wrong:
            raise corrupt_record("", 0, base_offset, index, str(wrong)) from None
        if index == count and position != end:
            raise corrupt_batch("", 0, base_offset, f"{end - position} bytes follow its {count} records")
        for each in found:
            self._add(each, number)
        return position, index, previous_delta

    def append_batches(
        self,
        limit: int,
        most_bytes: int,
        data: memoryview,
        position: int,
        next_offset: int,
        check_crc: bool,
        number: int,
        lz4: int,
    ) -> tuple[int, int, int, int, int]:
        """Add whole batches from ``position`` on without a separate parse of their headers.

        Takes only ordinary batches: format v2, valid in every respect, neither transactional nor control, of one
        timestamp type, without records below ``next_offset``, at most ``limit`` records in all, and none behind the
        batch that reaches ``most_bytes``, decompressed. They are uncompressed, or lz4 in the form of most clients if
        values are copied and ``lz4`` is the address of liblz4's ``LZ4_decompress_safe``, not 0. All other batches,
        invalid ones included, are left to the caller. Returns (position, next offset, leader epoch of the last,
        timestamp type, bytes); -1, -1 and 0 if none was added. The plain kernel would gain nothing and never takes any.
        """
        return position, next_offset, -1, -1, 0

    def _add(self, found: _Found, number: int) -> None:
        offset, timestamp, key, key_position, value, value_position, headers = found
        row, columns = self.rows, self._columns
        if columns & HEADERS:
            self._add_headers(headers)
        if columns & OFFSET:
            self._offset.append(offset)
        if columns & TIMESTAMP:
            self._timestamp.append(_microseconds(timestamp))
        if columns & KEY:
            self._key.add(row, key, number, key_position)
        if columns & VALUE:
            self._value.add(row, value, number, value_position)
        self.rows = row + 1

    def _add_headers(self, headers: _Headers) -> None:
        row = self.rows
        if row & 7 == 0:
            self._header_valid.append(0xFF)
        if not headers:
            self._header_valid[row >> 3] &= ~(1 << (row & 7)) & 0xFF
            self._header_nulls += 1
        for name, value in headers:
            self._header_names.add(self._header_count, name.encode(), 0, 0)
            self._header_values.add(self._header_count, value, 0, 0)
            self._header_count += 1
        self._header_offsets.append(self._header_count)

    def finish(self) -> ColumnBuffers:
        """Return the columns. The appender must not be used afterwards."""
        columns = self._columns
        headers = None
        if columns & HEADERS:
            headers = HeaderBuffers(
                self._header_valid.tobytes(),
                self._header_nulls,
                self._header_offsets.tobytes(),
                self._header_count,
                self._header_names.finish(),
                self._header_values.finish(),
            )
        return ColumnBuffers(
            self.rows,
            self._offset.tobytes() if columns & OFFSET else None,
            self._timestamp.tobytes() if columns & TIMESTAMP else None,
            self._key.finish() if columns & KEY else None,
            self._value.finish() if columns & VALUE else None,
            headers,
        )


def multiples(step: int, count: int) -> Buffer:
    """Return ``count`` multiples of ``step`` from 0 on, as 32-bit integers: the offsets of a column of equal strings.

    Raises:
        ValueError: they do not fit.
    """
    if step < 0 or count < 0 or step * count > MAX_COLUMN_BYTES:
        raise ValueError("the multiples do not fit 32 bits")
    return array("i", range(0, step * count, step) if step else bytes(count)).tobytes()


def time_beyond(times: Buffer) -> int:
    """Return the first row of a timestamp column that is clamped to the smallest or greatest value; -1 without one.

    Times that microseconds cannot represent are clamped.
    """
    found = enumerate(memoryview(times).cast("q"))
    return next((row for row, time in found if time in (-_TWO_63, _TWO_63 - 1)), -1)


def _read_field(record: memoryview, position: int, name: str) -> tuple[memoryview | None, int, int]:
    """Read a nullable byte string; return (string, start, end)."""
    raw, position = read_varint(record, position, 32)
    if raw == 1:
        return None, position, position
    stop = position + (raw >> 1)
    if raw & 1 or stop > len(record):
        raise ValueError(f"its {name} has a wrong length")
    return record[position:stop], position, stop


def _read_header_list(record: memoryview, position: int) -> _Headers:
    raw, position = read_varint(record, position, 32)
    if raw & 1 or raw >> 2 > len(record) - position:
        raise ValueError("its header count is more than it holds")
    rest = bytes(record[position:])
    headers, position = read_headers(rest, 0, len(rest), raw >> 1)
    if position != len(rest):
        raise ValueError("its fields do not fill its length")
    return headers


def _zigzag(raw: int) -> int:
    return (raw >> 1) ^ -(raw & 1)


def _microseconds(milliseconds: int) -> int:
    """Convert milliseconds to microseconds. Brokers accept any number as a time: clamp to the smallest or greatest."""
    wrapped = (milliseconds + _TWO_63) % _TWO_64 - _TWO_63
    return max(-_TWO_63, min(wrapped * 1000, _TWO_63 - 1))
