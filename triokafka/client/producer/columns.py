"""The arguments of `Producer.send_many`, checked and as columns of equal length."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence, Sized
from typing import Any, Final

from triokafka.client.producer.interceptors import ProducerRecord
from triokafka.records.kernel import BytesColumn, RecordColumns, copy_integers, copy_numbers
from triokafka.records.plain_arrow_buffers import MAX_INT64

_PIECE: Final = 8_192
_NOT_CHOSEN: Final = -1
_PARTITION: Final = "the number of a partition"
_TIMESTAMP: Final = "a number of milliseconds since the epoch"


class Columns:
    """The records of one `send_many`.

    ``partition`` applies to all records; ``partitions`` (64-bit) has one per record, -1 for none. The same holds for
    ``timestamps``. With ``as_objects`` values and keys are Python objects for serializers and interceptors, converted
    from Arrow columns in chunks; otherwise they are `BytesColumn`, without a Python object per record.

    Raises:
        TypeError, ValueError: an argument is not a column of records, or the lengths differ. Keys and values are
            checked when they are sent.
    """

    def __init__(
        self,
        values: Any,
        keys: Any,
        partition: Any,
        timestamp_ms: Any,
        headers: Any,
        *,
        wall_ms: Callable[[], int],
        as_objects: bool = False,
    ) -> None:
        make = _objects if as_objects else _bytes
        self.values = make("values", values)
        self._count = len(self.values)
        self.keys = None if keys is None else make("keys", keys)
        self.headers: list[Any] | None = None
        self.same_headers: Any = ()
        if _are_per_record(headers):
            self.headers = _rows("headers", headers)
        elif headers is not None:
            self.same_headers = headers
        self.partition: int | None = None
        self.partitions: array[int] | None = None
        if partition is None or hasattr(partition, "__index__"):
            self.partition = partition
        else:
            self.partitions = _integers("partition", _PARTITION, partition, _NOT_CHOSEN, 2**31 - 1)
        self.timestamp: int | None = None
        self.timestamps: array[int] | None = None
        if timestamp_ms is None or isinstance(timestamp_ms, int):
            self.timestamp = timestamp_ms
        else:
            self.timestamps = _integers("timestamp_ms", _TIMESTAMP, timestamp_ms, wall_ms(), MAX_INT64, timestamps=True)
        if self.keys is not None:
            self._check_length("keys", self.keys)
        if self.partitions is not None:
            self._check_length("partition", self.partitions)
        if self.timestamps is not None:
            self._check_length("timestamp_ms", self.timestamps)
        if self.headers is not None:
            self._check_length("headers", self.headers)

    def _check_length(self, name: str, column: Sized) -> None:
        if len(column) != self._count:
            raise ValueError(f"send_many got {self._count} values but {len(column)} {name}")

    def __len__(self) -> int:
        return self._count

    def records(self, key_sizes: array[int] | None, value_sizes: array[int]) -> RecordColumns:
        """Return the columns for the kernel, which appends the records to batches and stores their sizes."""
        return RecordColumns(
            self.values, self.keys, self.timestamps, self.headers, self.same_headers, key_sizes, value_sizes
        )

    def record(self, topic: str, position: int) -> ProducerRecord:
        """Return one record."""
        partition = self.partition
        if self.partitions is not None and self.partitions[position] >= 0:
            partition = self.partitions[position]
        return ProducerRecord(
            topic,
            self.values[position],
            None if self.keys is None else self.keys[position],
            partition,
            self.timestamp if self.timestamps is None else self.timestamps[position],
            self.same_headers if self.headers is None else self.headers[position],
        )


def _is_arrow(column: Any) -> bool:
    return hasattr(column, "__arrow_c_array__") or hasattr(column, "__arrow_c_stream__")


def _check_sequence(name: str, column: Any) -> None:
    if not isinstance(column, Sequence) or isinstance(column, (str, bytes, bytearray)):
        raise TypeError(f"{name} must be a sequence or an Arrow array, not {type(column).__name__}")


def _bytes(name: str, column: Any) -> BytesColumn:
    if type(column) is list:
        return BytesColumn(column)
    if not _is_arrow(column):
        _check_sequence(name, column)
        return BytesColumn(list(column))
    from triokafka.records.from_arrow import bytes_chunks

    try:
        return BytesColumn(None, bytes_chunks(column))
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from error


def _objects(name: str, column: Any) -> Any:
    if _is_arrow(column):
        return _Objects(column) if hasattr(column, "to_pylist") else _bytes(name, column)
    _check_sequence(name, column)
    return column


class _Objects:
    """Yield an Arrow column as Python objects, in chunks, so that a large column is not in memory twice."""

    def __init__(self, column: Any) -> None:
        self._column = column
        self._start = 0
        self._piece: list[Any] = []

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, position: int) -> Any:
        if not self._start <= position < self._start + len(self._piece):
            self._start = position - position % _PIECE
            self._piece = self._column[self._start : self._start + _PIECE].to_pylist()
        return self._piece[position - self._start]


def _integers(name: str, meaning: str, column: Any, null: int, high: int, *, timestamps: bool = False) -> array[int]:
    """Return a column of integers from 0 to ``high``, with ``null`` for missing values."""
    if _is_arrow(column):
        return _arrow_integers(name, meaning, column, null, high, timestamps)
    if isinstance(column, (str, bytes, bytearray)) or not isinstance(column, Iterable):
        raise TypeError(f"{name}={column!r} is not {meaning}, nor a sequence or Arrow column of them")
    numbers = column if type(column) is list else list(column)
    found = array("q", bytes(8 * len(numbers)))
    wrong = copy_numbers(numbers, found, null, 0, high)
    if wrong >= 0:
        given = numbers[wrong]
        kind = TypeError if isinstance(given, bool) or not hasattr(given, "__index__") else ValueError
        raise kind(f"record {wrong} of {len(numbers)}: {name}={given!r} is not {meaning}")
    return found


def _arrow_integers(name: str, meaning: str, column: Any, null: int, high: int, timestamps: bool) -> array[int]:
    from triokafka.records.from_arrow import integer_chunks

    try:
        chunks = integer_chunks(column, timestamps=timestamps)
        found = array("q", bytes(8 * sum(chunk.length for chunk in chunks)))
        start = 0
        for chunk in chunks:
            wrong = copy_integers(chunk, found, start, null, 0, high // chunk.multiplier)
            if wrong >= 0:
                raise ValueError(f"number {wrong} of the column is negative or too large, not {meaning}")
            start += chunk.length
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from error
    return found


def _are_per_record(headers: Any) -> bool:
    """Whether there is one list of headers per record, rather than one list (of pairs of name and bytes) for all."""
    if type(headers) is tuple and not headers:
        return False
    if _is_arrow(headers):
        return True
    if not isinstance(headers, Sequence) or isinstance(headers, (str, bytes)) or not headers:
        return False
    first = headers[0]
    return not (isinstance(first, tuple) and len(first) == 2 and isinstance(first[0], str))


def _rows(name: str, headers: Any) -> list[Any]:
    if not _is_arrow(headers):
        return headers if type(headers) is list else list(headers)
    if not hasattr(headers, "to_pylist"):
        raise TypeError(f"{name} as an Arrow array must be pyarrow's, not {type(headers).__name__}")
    try:
        return [[(each["key"], each["value"]) for each in row or ()] for row in headers.to_pylist()]
    except (TypeError, KeyError):
        raise TypeError(
            f"{name} as an Arrow array must be lists of structs of key and value, as `Consumer.poll_arrow` returns them"
        ) from None
