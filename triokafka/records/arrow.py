"""Records by column: the bytes of fetches as one ``pyarrow.RecordBatch``, without a Python object per record.

pyarrow is imported when the first batch is built, never with the package.
"""

from __future__ import annotations

import functools
import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from triokafka.errors import ConfigurationError, CorruptRecordError, UnsupportedCodecError
from triokafka.records import plain_columns
from triokafka.records.compression import DEFAULT_MAX_DECOMPRESSED
from triokafka.records.decoder import RecordDecoder
from triokafka.records.kernel import ColumnAppender, multiples
from triokafka.records.plain_columns import BinaryBuffers, ColumnBuffers, HeaderBuffers
from triokafka.structs import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

Values = Literal["binary", "view"]
Fetched = tuple[Buffer, str, int, int]
"""The result of one partition's fetch: records, topic, partition, fetch offset."""

ARROW_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
_BITS: Final = {
    "key": plain_columns.KEY,
    "value": plain_columns.VALUE,
    "offset": plain_columns.OFFSET,
    "timestamp": plain_columns.TIMESTAMP,
    "headers": plain_columns.HEADERS,
}
_ALL_BITS: Final = sum(_BITS.values())
_KEPT_ROWS: Final = 1 << 14  # rows of constant columns that are reused
_ALL: Final = sys.maxsize


def check_columns(columns: Sequence[str] | None) -> tuple[str, ...]:
    """Return the requested columns, or all of ``ARROW_COLUMNS`` for None.

    Raises:
        ConfigurationError: a column does not exist or is named twice.
    """
    if columns is None:
        return ARROW_COLUMNS
    for name in columns:
        if name not in ARROW_COLUMNS:
            import difflib  # only for error messages

            near = difflib.get_close_matches(name, ARROW_COLUMNS, 1)
            hint = f", did you mean {near[0]!r}?" if near else f": use some of {', '.join(ARROW_COLUMNS)}"
            raise ConfigurationError(f"column {name!r} does not exist{hint}")
    if len(set(columns)) != len(columns):
        raise ConfigurationError(f"a column is named twice in {', '.join(columns)}")
    return tuple(columns)


def _chosen(columns: Sequence[str]) -> tuple[tuple[str, ...], int]:
    names = check_columns(columns)
    return names, sum(_BITS.get(name, 0) for name in names)


def arrow_schema(columns: Sequence[str] | None = None, *, values: Values = "binary") -> pa.Schema:
    """The schema of the batches that ``ArrowBuilder`` makes."""
    return _types().schema(check_columns(columns), values == "view")


class ArrowBuilder:
    """Collects the records of several fetches and partitions in one ``pyarrow.RecordBatch``.

    ``columns`` selects and orders the columns; others are not decoded. ``values="view"`` makes ``key`` and ``value``
    of type ``binary_view`` that point into the fetched (or decompressed) bytes without a copy and keep them alive as
    long as any part of the batch lives: a fetch buffer must not be written to again. ``"binary"`` copies them together.

    ``headers`` is null for a record without headers, as in Spark's Kafka source.

    ``most_bytes``: after this many bytes of decompressed records, the builder takes no further batch.
    """

    def __init__(
        self, columns: Sequence[str] | None = None, *, values: Values = "binary", most_bytes: int = _ALL
    ) -> None:
        if values not in ("binary", "view"):
            raise ConfigurationError(f"values={values!r}: use 'binary' or 'view'")
        self._names, bits = (ARROW_COLUMNS, _ALL_BITS) if columns is None else _chosen(columns)
        self._views = values == "view"
        self._appender = ColumnAppender(bits, self._views)
        self._bytes_left = most_bytes
        self._runs: list[tuple[str, int, int, int]] = []  # topic, partition, timestamp type, rows
        self._data: list[Buffer] = []
        self._numbers: dict[int, int] = {}  # id of a data buffer, which the list keeps alive, to its index

    @property
    def rows(self) -> int:
        """The number of records so far."""
        return self._appender.rows

    @property
    def is_full(self) -> bool:
        """Whether the builder has reached ``most_bytes`` and has records."""
        return self._bytes_left <= 0 and self._appender.rows > 0

    def add(self, decoder: RecordDecoder, limit: int = _ALL) -> int:
        """Add the rest of ``decoder``, at most ``limit`` records; return the number of added records.

        Fewer than ``limit`` means that the decoder has no more, that it reached damaged data (the next call raises),
        that the builder is full, or that a column has reached Arrow's 2 GiB. Finish this batch and continue with a new
        one.

        Raises:
            CorruptRecordError: the next bytes are not a valid batch; names topic, partition and offset.
            UnsupportedCodecError: the next batch needs a package that is missing.
        """
        before = self._appender.rows
        if "topic" in self._names and decoder.topic:
            size = len(decoder.topic.encode())
            used = sum(len(topic.encode()) * rows for topic, _, _, rows in self._runs)
            limit = min(limit, (plain_columns.MAX_COLUMN_BYTES - used) // size - 1)
        while (taken := self._appender.rows - before) < limit and not self.is_full:
            start, decoded = self._appender.rows, decoder.decoded_bytes
            try:
                if not decoder.take_columns(self._appender, limit - taken, self._number_of, self._bytes_left):
                    break
                if decoder.at_end:
                    break
            except (CorruptRecordError, UnsupportedCodecError):
                if self._appender.rows == before:
                    raise
                break
            finally:
                self._add_run(decoder, self._appender.rows - start)
                self._bytes_left -= decoder.decoded_bytes - decoded
        return self._appender.rows - before

    def _add_run(self, decoder: RecordDecoder, rows: int) -> None:
        if not rows:
            return
        run = (decoder.topic, decoder.partition, decoder.timestamp_type)
        if self._runs and self._runs[-1][:3] == run:
            rows += self._runs.pop()[3]
        self._runs.append((*run, rows))

    def _number_of(self, data: Buffer) -> int:
        if not self._views:
            return 0
        number = self._numbers.get(id(data))
        if number is None:
            number = self._numbers[id(data)] = len(self._data)
            self._data.append(data)
        return number

    def finish(self) -> pa.RecordBatch:
        """Return the batch. The builder must not be used afterwards."""
        types = _types()
        buffers: ColumnBuffers = self._appender.finish()
        rows = buffers.rows
        arrays = []
        for name in self._names:
            if name == "key":
                arrays.append(self._binary(types, rows, buffers.key))
            elif name == "value":
                arrays.append(self._binary(types, rows, buffers.value))
            elif name == "offset":
                arrays.append(types.fixed(types.int64, rows, buffers.offset))
            elif name == "timestamp":
                arrays.append(types.fixed(types.timestamp, rows, buffers.timestamp))
            elif name == "headers":
                arrays.append(_headers(types, rows, buffers.headers))
            elif name == "topic":
                arrays.append(types.joined(types.string, [types.same_text(run[0], run[3]) for run in self._runs]))
            elif name == "partition":
                arrays.append(types.joined(types.int32, [types.same_number(run[1], run[3]) for run in self._runs]))
            else:
                arrays.append(types.joined(types.int32, [types.same_number(run[2], run[3]) for run in self._runs]))
        return types.pa.RecordBatch.from_arrays(arrays, schema=types.schema(self._names, self._views))

    def _binary(self, types: _Types, rows: int, buffers: BinaryBuffers | None) -> pa.Array:
        assert buffers is not None
        if not self._views:
            return types.binary_array(types.binary, rows, buffers)
        variadic = [types.pa.py_buffer(data) for data in self._data]
        layout = [_validity(types, buffers), types.pa.py_buffer(buffers.offsets), *variadic]
        return types.pa.Array.from_buffers(types.view, rows, layout, buffers.nulls)


def to_arrow(
    fetched: Iterable[Fetched],
    *,
    columns: Sequence[str] | None = None,
    values: Values = "binary",
    check_crc: bool = True,
    max_decompressed: int = DEFAULT_MAX_DECOMPRESSED,
) -> pa.RecordBatch:
    """Return the records of several fetches, each (bytes, topic, partition, fetch offset), as one record batch.

    Columns: key, value, topic, partition, offset, timestamp (microseconds, UTC), timestampType, headers. Control
    batches are left out, and so is a partial batch at the end of each.

    Raises:
        CorruptRecordError: any batch or record is invalid; names topic, partition and offset.
        OverflowError: a column would hold more than 2 GiB. Use ``ArrowBuilder``, which stops there.
    """
    builder = ArrowBuilder(columns, values=values)
    for buffer, topic, partition, from_offset in fetched:
        decoder = RecordDecoder(
            buffer,
            topic=topic,
            partition=partition,
            from_offset=from_offset,
            check_crc=check_crc,
            max_decompressed=max_decompressed,
        )
        builder.add(decoder)
        if not decoder.exhausted and not builder.add(decoder):  # raises the error that ended the first call early
            raise OverflowError(f"{topic}-{partition}: at offset {decoder.next_offset} a column has reached 2 GiB")
    return builder.finish()


def _headers(types: _Types, rows: int, buffers: HeaderBuffers | None) -> pa.Array:
    assert buffers is not None
    if buffers.nulls == rows:
        return types.pa.nulls(rows, types.headers)
    names = types.binary_array(types.string, buffers.total, buffers.names)
    values = types.binary_array(types.binary, buffers.total, buffers.values)
    pairs = types.pa.StructArray.from_arrays([names, values], fields=list(types.header))
    validity = types.pa.py_buffer(buffers.validity) if buffers.nulls else None
    layout = [validity, types.pa.py_buffer(buffers.offsets)]
    return types.pa.Array.from_buffers(types.headers, rows, layout, buffers.nulls, children=[pairs])


def _validity(types: _Types, buffers: BinaryBuffers) -> Any:
    return types.pa.py_buffer(buffers.validity) if buffers.nulls else None


class _Types:
    """pyarrow, imported once, and the types of the columns."""

    def __init__(self) -> None:
        import pyarrow as pa

        self.pa = pa
        self.binary = pa.binary()
        self.string = pa.string()
        self.int32 = pa.int32()
        self.int64 = pa.int64()
        self.timestamp = pa.timestamp("us", tz="UTC")
        self.header = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
        self.headers = pa.list_(pa.field("element", self.header, nullable=False))
        self.schema = functools.cache(self._schema)
        # Batch after batch of one partition has the same topic, partition and timestamp type.
        self._kept_number = functools.lru_cache(maxsize=8)(self._made_number)
        self._kept_text = functools.lru_cache(maxsize=2)(self._made_text)

    @functools.cached_property
    def view(self) -> Any:
        return self.pa.binary_view()

    def _schema(self, columns: tuple[str, ...], views: bool) -> Any:
        binary = self.view if views else self.binary
        types = {
            "key": binary,
            "value": binary,
            "topic": self.string,
            "partition": self.int32,
            "offset": self.int64,
            "timestamp": self.timestamp,
            "timestampType": self.int32,
            "headers": self.headers,
        }
        return self.pa.schema([(name, types[name]) for name in columns])

    def fixed(self, of: Any, rows: int, data: Buffer | array[int] | None) -> Any:
        return self.pa.Array.from_buffers(of, rows, [None, self.pa.py_buffer(data)], 0)

    def binary_array(self, of: Any, rows: int, buffers: BinaryBuffers) -> Any:
        layout = [_validity(self, buffers), self.pa.py_buffer(buffers.offsets), self.pa.py_buffer(buffers.data)]
        return self.pa.Array.from_buffers(of, rows, layout, buffers.nulls)

    def same_number(self, value: int, rows: int) -> Any:
        """Return ``rows`` times the same 32-bit number."""
        if rows > _KEPT_ROWS:
            return self._made_number(value, rows)
        return self._kept_number(value, _rounded(rows)).slice(0, rows)

    def same_text(self, value: str, rows: int) -> Any:
        """Return ``rows`` times the same string."""
        if rows > _KEPT_ROWS:
            return self._made_text(value, rows)
        return self._kept_text(value, _rounded(rows)).slice(0, rows)

    def _made_number(self, value: int, rows: int) -> Any:
        return self.fixed(self.int32, rows, array("i", (value,)) * rows)

    def _made_text(self, value: str, rows: int) -> Any:
        encoded = value.encode()
        buffers = BinaryBuffers(b"", 0, multiples(len(encoded), rows + 1), encoded * rows)
        return self.binary_array(self.string, rows, buffers)

    def joined(self, of: Any, runs: list[Any]) -> Any:
        """Join the parts of one column."""
        if len(runs) == 1:
            return runs[0]
        return self.pa.concat_arrays(runs) if runs else self.pa.array([], of)


def _rounded(rows: int) -> int:
    """Round up: consecutive batches have nearly, but not exactly, the same length."""
    return 1 << (rows - 1).bit_length()


@functools.cache
def _types() -> _Types:
    return _Types()
