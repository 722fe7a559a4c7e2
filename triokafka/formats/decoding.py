"""Decoding of batches: the interface of all formats, and the handling of values that cannot be decoded.

A null key or value stays null. A value that cannot be decoded either fails the read, with its topic, partition and
offset, or becomes null, with the reason in an error column.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal

from triokafka.errors import ConfigurationError, KafkaError

if TYPE_CHECKING:
    import pyarrow as pa

_log: Final = logging.getLogger("triokafka.formats")

OnError = Literal["fail", "null"]
ERROR_SUFFIX: Final = "_error"
_PLACE: Final = ("topic", "partition", "offset")


class DecodeError(KafkaError):
    """A key or value does not match its format; the message names topic, partition and offset."""

    advice = (
        "Read with on_error='null' (in Spark: option onDecodeError=null) to get such values as null, with the reason in"
        " an error column."
    )


class Format(ABC):
    """A decoder for columns of bytes. Instances can be pickled; each serves one thread at a time."""

    @property
    @abstractmethod
    def type(self) -> pa.DataType:
        """The type of the decoded column."""

    @abstractmethod
    def decode(self, payloads: pa.Array) -> tuple[pa.Array, Mapping[int, str]]:
        """Decode bytes without nulls.

        Returns:
            An array of `type` with the length of ``payloads``, null where decoding failed, and the reasons by position.

        Raises:
            SchemaRegistryError: the registry cannot be reached. A schema that the registry does not have is an error of
                the values that name it.
        """


class UnknownSchemas:
    """Schema ids that the registry does not have. Each is logged once, and looked up again for later batches."""

    def __init__(self) -> None:
        self._told: set[int] = set()

    def report(self, number: int, error: KafkaError) -> str:
        """Return the error for values that name schema ``number``, and log it the first time."""
        sentence = f"its schema {number} is not available: {error}"
        if number not in self._told:
            self._told.add(number)
            _log.warning("values with an unavailable schema are not decoded: %s", sentence)
        return sentence


class Decoding:
    """Decodes the columns ``key`` and ``value`` of record batches.

    Args:
        value, key: their formats; None leaves the column unchanged.
        on_error: ``"fail"`` raises `DecodeError` at the first value that cannot be decoded. ``"null"`` makes such
        values
            null and adds a column ``value_error`` or ``key_error`` for each decoded column, with the reason or null.
    """

    def __init__(self, *, value: Format | None = None, key: Format | None = None, on_error: OnError = "fail") -> None:
        if on_error not in ("fail", "null"):
            raise ConfigurationError(f"on_error={on_error!r}: use 'fail' or 'null'")
        self._formats = {name: each for name, each in (("key", key), ("value", value)) if each is not None}
        self._on_error = on_error

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """Return the schema of decoded batches.

        Raises:
            ConfigurationError: ``schema`` does not have a column that is to be decoded.
        """
        import pyarrow as pa

        for name, each in self._formats.items():
            if name not in schema.names:
                raise ConfigurationError(
                    f"column {name!r} cannot be decoded: the batch has only the columns {', '.join(schema.names)}"
                )
            schema = schema.set(schema.get_field_index(name), pa.field(name, each.type))
            if self._on_error == "null":
                schema = schema.append(pa.field(name + ERROR_SUFFIX, pa.string()))
        return schema

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with decoded columns.

        Raises:
            DecodeError: a value cannot be decoded and ``on_error`` is ``"fail"``.
            SchemaRegistryError: the registry cannot be reached.
        """
        import pyarrow as pa

        columns: list[Any] = list(batch.columns)
        for name, each in self._formats.items():
            place = batch.schema.get_field_index(name)
            found, errors = _decode(each, batch.column(place))
            if errors and self._on_error == "fail":
                first = min(errors)
                raise DecodeError(f"{name} {_where(batch, first)} cannot be decoded: {errors[first]}")
            columns[place] = found
            if self._on_error == "null":
                columns.append(pa.array([errors.get(row) for row in range(batch.num_rows)], pa.string())
                               if errors else pa.nulls(batch.num_rows, pa.string()))  # fmt: skip
        return pa.record_batch(columns, schema=self.schema(batch.schema))


def decoded(
    reader: pa.RecordBatchReader, *, value: Format | None = None, key: Format | None = None, on_error: OnError = "fail"
) -> pa.RecordBatchReader:
    """Wrap the reader that `triokafka.read_topic` returns, and decode keys and values. Arguments as for `Decoding`."""
    import pyarrow as pa

    decoding = Decoding(value=value, key=key, on_error=on_error)
    schema = decoding.schema(reader.schema)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            yield decoding.apply(batch)

    return pa.RecordBatchReader.from_batches(schema, batches())


def require(package: str, what: str) -> None:
    """Check that a package is installed, before any request to a registry.

    Raises:
        ConfigurationError: ``package`` cannot be imported.
    """
    try:
        import_module(package)
    except ModuleNotFoundError:
        raise ConfigurationError(f"{what} needs the package {package}: pip install 'triokafka[formats]'") from None


def scattered(values: pa.Array, positions: Sequence[int], length: int) -> pa.Array:
    """Return an array of ``length`` with ``values`` at the ascending ``positions`` and null elsewhere."""
    import pyarrow as pa

    if len(values) == length:
        return values
    places: list[int | None] = [None] * length
    for number, position in enumerate(positions):
        places[position] = number
    return values.take(pa.array(places, pa.int64()))


def _decode(how: Format, column: pa.Array) -> tuple[pa.Array, Mapping[int, str]]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_binary(column.type):
        column = column.cast(pa.binary())
    if len(column) and not column.null_count:
        return how.decode(column)
    positions = pc.indices_nonzero(column.is_valid()).to_pylist()
    if not positions:
        return pa.nulls(len(column), how.type), {}
    found, errors = how.decode(column.drop_null())
    return scattered(found, positions, len(column)), {positions[at]: why for at, why in errors.items()}


def _where(batch: pa.RecordBatch, row: int) -> str:
    found = {name: batch.column(name)[row].as_py() for name in _PLACE if name in batch.schema.names}
    if not found:
        return f"of row {row}"
    return "of " + ", ".join(f"{name} {value}" for name, value in found.items())
