"""The record kernel in plain Python: from one batch's payload to records. Twin and oracle of ``_kernel``.

The same interface as ``_kernel`` with equal results and equal errors; ``triokafka.kernels`` chooses it if that one is
not compiled. Does not handle batch headers, checksums or codecs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from triokafka.records.corruption import corrupt_batch, corrupt_record
from triokafka.structs import Buffer

_FIELDS: Final = (
    "topic",
    "partition",
    "leader_epoch",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
    "checksum",
    "serialized_key_size",
    "serialized_value_size",
    "serialized_header_size",
)
_DERIVED: Final = ("checksum", "serialized_header_size")
_MANY_HEADERS: Final = 2_000
"""Twice the number of headers above which they are read at their first use."""
_TWO_63: Final = 1 << 63
_TWO_64: Final = 1 << 64


class RecordOrigin:
    """The fields that all records of a batch share; each record points to it."""

    __slots__ = ("leader_epoch", "partition", "timestamp_type", "topic")

    def __init__(self, topic: str, partition: int, leader_epoch: int = -1, timestamp_type: int = 0) -> None:
        self.topic = topic
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.timestamp_type = timestamp_type


class _Draft:
    """A record under construction: writable, with the memory layout of ``ConsumerRecord``."""

    __slots__ = ("_headers", "_key_size", "_origin", "_value_size", "key", "offset", "timestamp", "value")

    def __init__(
        self,
        origin: RecordOrigin,
        offset: int,
        timestamp: int,
        key: Any,
        value: Any,
        headers: tuple[tuple[str, bytes | None], ...] | bytes,
        key_size: int,
        value_size: int,
    ) -> None:
        self._origin = origin
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self._headers = headers
        self._key_size = key_size
        self._value_size = value_size


class ConsumerRecord(_Draft):
    """One consumed record.

    Attribute names and the order of unpacking and indexing are kafka-python's. ``_fields``, ``_asdict`` and
    ``_replace`` work as in a named tuple. ``timestamp`` is milliseconds since the epoch, -1 if the format has none;
    ``timestamp_type`` is 0 for the producer's time, 1 for the broker's, -1 for none. ``headers`` is a tuple of
    (name, bytes or None). ``leader_epoch`` is -1 when unknown.

    Immutable, compared by value. The garbage collector does not track records: a record whose key or value (set by a
    deserializer) refers to the record itself would never be freed.
    """

    __slots__ = ()
    _fields: Final = _FIELDS

    def __new__(
        cls,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int = -1,
        key: Any = None,
        value: Any = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp_type: int = 0,
        leader_epoch: int = -1,
        serialized_key_size: int | None = None,
        serialized_value_size: int | None = None,
    ) -> ConsumerRecord:
        """Take all fields by name or in this order; sizes default to those of key and value."""
        draft = _Draft(
            RecordOrigin(topic, partition, leader_epoch, timestamp_type),
            offset,
            timestamp,
            key,
            value,
            tuple(headers),
            _size_of(key) if serialized_key_size is None else serialized_key_size,
            _size_of(value) if serialized_value_size is None else serialized_value_size,
        )
        draft.__class__ = ConsumerRecord
        return draft  # type: ignore[return-value]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing: ``__new__`` sets all fields."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a ConsumerRecord is read-only, {name!r} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a ConsumerRecord is read-only, {name!r} cannot be deleted")

    @property
    def topic(self) -> str:
        """Topic of the record."""
        return self._origin.topic

    @property
    def partition(self) -> int:
        """Partition of the record."""
        return self._origin.partition

    @property
    def leader_epoch(self) -> int:
        """Epoch of the leader that appended the record, -1 when unknown."""
        return self._origin.leader_epoch

    @property
    def timestamp_type(self) -> int:
        """0 create time, 1 log append time, -1 none."""
        return self._origin.timestamp_type

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """The headers, as a tuple of (name, bytes or None)."""
        held = self._headers
        if isinstance(held, bytes):
            count, position = read_varint(held, 0, 32)
            held, _ = read_headers(held, position, len(held), count >> 1)
            object.__setattr__(self, "_headers", held)
        return held

    @property
    def checksum(self) -> None:
        """Always None: records have no checksum of their own since format version 2."""
        return None

    @property
    def serialized_key_size(self) -> int:
        """Size of the serialized key in bytes, -1 for a null key."""
        return self._key_size

    @property
    def serialized_value_size(self) -> int:
        """Size of the serialized value in bytes, -1 for a null value."""
        return self._value_size

    @property
    def serialized_header_size(self) -> int:
        """Size of all header names and values in bytes, -1 without headers."""
        headers = self.headers
        if not headers:
            return -1
        return sum(len(name.encode()) + (0 if value is None else len(value)) for name, value in headers)

    def deserialized(self, key: Any, value: Any) -> ConsumerRecord:
        """Return the same record with another key and value; the serialized sizes stay."""
        draft = _Draft(
            self._origin, self.offset, self.timestamp, key, value, self._headers, self._key_size, self._value_size
        )
        draft.__class__ = ConsumerRecord
        return draft  # type: ignore[return-value]

    def _asdict(self) -> dict[str, Any]:
        """Return the fields by name, as a named tuple does."""
        return dict(zip(_FIELDS, self._values(), strict=True))

    def _replace(self, **changes: Any) -> ConsumerRecord:
        """Return the same record with other fields, as a named tuple does.

        Raises:
            ValueError: a name is not a field, or the field follows from others.
        """
        fields = {name: getattr(self, name) for name in _FIELDS if name not in _DERIVED}
        unknown = sorted(changes.keys() - fields.keys())
        if unknown:
            raise ValueError(f"a record has no fields {unknown} of its own")
        return ConsumerRecord(**(fields | changes))

    def _values(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in _FIELDS])

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values())

    def __len__(self) -> int:
        return len(_FIELDS)

    def __getitem__(self, index: Any) -> Any:
        return self._values()[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset, self.timestamp))

    def __repr__(self) -> str:
        return f"ConsumerRecord({', '.join(f'{name}={getattr(self, name)!r}' for name in _FIELDS)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (
            ConsumerRecord,
            (
                self.topic,
                self.partition,
                self.offset,
                self.timestamp,
                self.key,
                self.value,
                self.headers,
                self.timestamp_type,
                self.leader_epoch,
                self._key_size,
                self._value_size,
            ),
        )


def _size_of(data: Any) -> int:
    return len(data) if isinstance(data, (bytes, bytearray, memoryview)) else -1


def read_varint(data: Buffer, position: int, bits: int) -> tuple[int, int]:
    """Return an unsigned varint of at most ``bits`` bits, and the position after it.

    Raises ``ValueError`` if it has more bits, ``IndexError`` if the data ends first.
    """
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift >= bits:
            raise ValueError("a variable-length integer is too long")
    if value >> bits:
        raise ValueError("a variable-length integer is too large")
    return value, position


def read_headers(data: bytes, position: int, end: int, count: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    """Return ``count`` record headers, and the position after them."""
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        raw, position = read_varint(data, position, 32)
        stop = position + (raw >> 1)
        if raw & 1 or stop > end:
            raise ValueError("a header name has a wrong length")
        name = str(data[position:stop], "utf-8", "replace")  # as the Java client reads them
        raw, position = read_varint(data, stop, 32)
        value: bytes | None = None
        if raw != 1:
            stop = position + (raw >> 1)
            if raw & 1 or stop > end:
                raise ValueError("a header value has a wrong length")
            value = data[position:stop]
            position = stop
        headers.append((name, value))
    return tuple(headers), position


def _skip_headers(data: bytes, position: int, end: int, count: int) -> int:
    """Check ``count`` record headers as `read_headers` does, and return the position after them."""
    for _ in range(count):
        raw, position = read_varint(data, position, 32)
        position += raw >> 1
        if raw & 1 or position > end:
            raise ValueError("a header name has a wrong length")
        raw, position = read_varint(data, position, 32)
        if raw != 1:
            position += raw >> 1
            if raw & 1 or position > end:
                raise ValueError("a header value has a wrong length")
    return position


def decode_batches(
    out: list[ConsumerRecord],
    limit: int,
    data: memoryview,
    position: int,
    next_offset: int,
    check_crc: bool,
    topic: str,
    partition: int,
) -> tuple[int, int, int, int]:
    """Decode whole batches from ``position`` on without a separate parse of their headers.

    Takes only ordinary batches: format v2, valid in every respect, neither compressed nor transactional nor control,
    without records below ``next_offset``, and all within ``limit``. All other batches, invalid ones included, are left
    to the caller. Returns (position, next offset, leader epoch and timestamp type of the last, -1 without one). The
    plain kernel would gain nothing and never takes any.
    """
    return position, next_offset, -1, -1


def open_payload(data: Buffer, position: int, end: int) -> tuple[Buffer, int, int]:
    """Return the form of ``data[position:end]`` that is fastest for ``decode_payload``: (data, position, end)."""
    if isinstance(data, bytes):
        return data, position, end
    return bytes(data[position:end]), 0, end - position


def decode_payload(
    out: list[ConsumerRecord],
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
    origin: RecordOrigin,
    from_offset: int,
) -> tuple[int, int, int]:
    """Decode records ``index`` to ``count - 1`` from ``position`` on, until ``out`` holds ``limit`` records.

    ``data`` comes from ``open_payload``. Records below ``from_offset`` are checked but not made. Offset deltas grow:
    ``previous_delta`` is that of the record before (-1 at the start), ``last_delta`` the largest allowed one. With
    ``origin.timestamp_type`` 1 every record gets ``append_time``. Returns (position, index, previous_delta), from
    which the next call continues.

    Raises:
        CorruptRecordError: a length, count or offset is invalid; ``out`` keeps the records before.
    """
    raw: bytes = data  # type: ignore[assignment]
    appended = origin.timestamp_type == 1
    wanted = limit - len(out)
    append = out.append
    draft = _Draft
    finished = ConsumerRecord
    try:
        while index < count and wanted > 0:
            byte = raw[position]
            position += 1
            if byte > 127:
                byte, position = read_varint(raw, position - 1, 32)
            record_end = position + (byte >> 1)
            if byte & 1 or record_end > end:
                raise ValueError("its length is more than the batch holds")
            position += 1  # attributes: unused
            byte = raw[position]
            position += 1
            if byte > 127:
                byte, position = read_varint(raw, position - 1, 64)
            timestamp = base_timestamp + ((byte >> 1) ^ -(byte & 1))
            byte = raw[position]
            position += 1
            if byte > 127:
                byte, position = read_varint(raw, position - 1, 32)
            delta = byte >> 1
            if byte & 1 or delta <= previous_delta or delta > last_delta:
                raise ValueError("its offset is out of order")
            byte = raw[position]
            position += 1
            if byte > 127:
                byte, position = read_varint(raw, position - 1, 32)
            if byte == 1:
                key = None
                key_size = -1
            elif byte & 1:
                raise ValueError("its key has a negative length")
            else:
                key_size = byte >> 1
                stop = position + key_size
                key = raw[position:stop]
                position = stop
            byte = raw[position]
            position += 1
            if byte > 127:
                byte, position = read_varint(raw, position - 1, 32)
            if byte == 1:
                value = None
                value_size = -1
            elif byte & 1:
                raise ValueError("its value has a negative length")
            else:
                value_size = byte >> 1
                stop = position + value_size
                value = raw[position:stop]
                position = stop
            byte = raw[position]
            position += 1
            headers: tuple[tuple[str, bytes | None], ...] | bytes = ()
            if byte:
                start = position - 1
                byte, position = read_varint(raw, start, 32)
                if byte & 1 or byte >> 2 > record_end - position:  # a header has at least two bytes
                    raise ValueError("its header count is more than it holds")
                if byte <= _MANY_HEADERS:
                    headers, position = read_headers(raw, position, record_end, byte >> 1)
                else:
                    position = _skip_headers(raw, position, record_end, byte >> 1)
                    headers = raw[start:position]  # `ConsumerRecord.headers` reads them
            if position != record_end:
                raise ValueError("its fields do not fill its length")
            offset = base_offset + delta
            if offset >= from_offset:
                if appended:
                    timestamp = append_time
                elif not -_TWO_63 <= timestamp < _TWO_63:
                    timestamp = (timestamp + _TWO_63) % _TWO_64 - _TWO_63
                record = draft(origin, offset, timestamp, key, value, headers, key_size, value_size)
                record.__class__ = finished
                append(record)  # type: ignore[arg-type]
                wanted -= 1
            previous_delta = delta
            index += 1
    except IndexError:
        raise corrupt_record(origin.topic, origin.partition, base_offset, index, "it ends too early") from None
    except ValueError as wrong:
        raise corrupt_record(origin.topic, origin.partition, base_offset, index, str(wrong)) from None
    if index == count and position != end:
        reason = f"{end - position} bytes follow its {count} records"
        raise corrupt_batch(origin.topic, origin.partition, base_offset, reason)
    return position, index, previous_delta
