"""Records from columns into batches, in plain Python. Twin and oracle of ``_from_columns``.

The same interface as ``_from_columns`` with equal results; ``triokafka.kernels`` chooses it if that one is not
compiled.
"""

from __future__ import annotations

from array import array
from typing import Any, Final

from triokafka.records.plain_appender import Headers, RecordAppender
from triokafka.records.plain_arrow_buffers import BytesColumn
from triokafka.structs import Buffer

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: Buffer) -> int:
    """Return the 32-bit hash that Kafka's clients use for keys; unsigned, with the bits of Java's ``Utils.murmur2``."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little") * _M & _MASK
        k ^= k >> 24
        h = (h * _M & _MASK) ^ (k * _M & _MASK)
    if length & 3:
        h ^= int.from_bytes(data[whole:], "little")
        h = h * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    return h ^ (h >> 15)


class RecordColumns:
    """Records in columns, to be appended to batches in runs.

    ``timestamps`` (64-bit) and ``headers`` (a sequence of headers for each) are per record, ``keys`` and both of them
    optional; ``same_headers`` apply to all records. ``key_sizes`` and ``value_sizes`` (32-bit), if given, receive the
    sizes of appended keys and values, -1 for null. A column shorter than ``values`` is refused with `ValueError`.
    """

    def __init__(
        self,
        values: BytesColumn,
        keys: BytesColumn | None = None,
        timestamps: array[int] | None = None,
        headers: list[Headers] | None = None,
        same_headers: Headers = (),
        key_sizes: array[int] | None = None,
        value_sizes: array[int] | None = None,
    ) -> None:
        for name, column in (
            ("keys", keys),
            ("timestamps", timestamps),
            ("headers", headers),
            ("key_sizes", key_sizes),
            ("value_sizes", value_sizes),
        ):
            if column is not None and len(column) < len(values):
                raise ValueError(f"{len(values)} values but {len(column)} {name}")
        self._count = len(values)
        self._values = values
        self._keys = keys
        self._timestamps = timestamps
        self._headers = headers
        self._same_headers = same_headers
        self._key_sizes = key_sizes
        self._value_sizes = value_sizes
        self.touched: list[tuple[int, int]] = []
        """The appends of the last `append_among`: the number of the batch, and its record count before."""

    def append_to(self, appender: RecordAppender, start: int, timestamp: int) -> int:
        """Append records from ``start`` on to one batch until one does not fit; return the number of appended records.

        ``timestamp`` is for records without their own. Raises as ``RecordAppender.append`` and `BytesColumn`; the batch
        then has the records before the failed one.
        """
        if start < 0:
            raise ValueError(f"start is {start}, must not be negative")
        position = start
        while position < min(self._count, len(self._values)):
            key = None if self._keys is None else self._keys[position]
            if self._append(appender, position, timestamp, key) < 0:
                break
            position += 1
        return max(position - start, 0)

    def append_among(
        self,
        appenders: list[RecordAppender | None],
        partitions: array[int],
        start: int,
        timestamp: int,
        sticky: int,
    ) -> int:
        """Append records from ``start`` on, each to its own batch, until one does not fit; return how many were
        appended.

        ``partitions`` (64-bit) gives the index in ``appenders``. For -1 the hash of the key decides, or ``sticky`` for
        a null key; the choice is stored there. Nothing fits a missing appender. Raises as `append_to`.
        """
        self.touched = []
        seen: set[int] = set()
        if start < 0:
            raise ValueError(f"start is {start}, must not be negative")
        if len(partitions) < self._count:
            raise ValueError(f"{self._count} values but {len(partitions)} partitions")
        position = start
        while position < min(self._count, len(self._values)):
            key = None if self._keys is None else self._keys[position]
            chosen = partitions[position]
            if chosen < 0:
                chosen = sticky if key is None else (murmur2(_contents(key)) & 0x7FFFFFFF) % len(appenders)
            if not 0 <= chosen < len(appenders):
                raise ValueError(f"partition {chosen} of {len(appenders)}")
            appender = appenders[chosen]
            if appender is None:
                break
            count = appender.count
            if self._append(appender, position, timestamp, key) < 0:
                break
            if chosen not in seen:
                seen.add(chosen)
                self.touched.append((chosen, count))
            partitions[position] = chosen
            position += 1
        return max(position - start, 0)

    def place(self, position: int, partitions: array[int], count: int, sticky: int) -> int:
        """Return which of ``count`` batches `append_among` would choose for a record."""
        chosen = partitions[position]
        if chosen >= 0:
            return chosen
        key = None if self._keys is None else self._keys[position]
        return sticky if key is None else (murmur2(_contents(key)) & 0x7FFFFFFF) % count

    def _append(self, appender: RecordAppender, position: int, timestamp: int, key: Any) -> int:
        if self._timestamps is not None:
            timestamp = self._timestamps[position]
        headers = self._same_headers if self._headers is None else self._headers[position]
        value = self._values[position]
        index = appender.append(timestamp, key, value, headers)
        if index >= 0:
            if self._key_sizes is not None:
                self._key_sizes[position] = -1 if key is None else memoryview(key).nbytes
            if self._value_sizes is not None:
                self._value_sizes[position] = -1 if value is None else memoryview(value).nbytes
        return index


def _contents(key: Buffer) -> bytes:
    return key if isinstance(key, bytes) else memoryview(key).tobytes()
