"""Avro into Arrow with fastavro: each value is decoded with its writer's schema and resolved to one reader's schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final

from triokafka.errors import ConfigurationError
from triokafka.formats.avro_resolution import as_meant, from_millis, names_in, to_decimal, with_whole_defaults
from triokafka.formats.decoding import Format, UnknownSchemas, require, scattered
from triokafka.formats.registry import RegisteredSchema, SchemaRegistry, UnknownSchemaError, opened

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_DECIMAL: Final = 38
_LONGEST_SENTENCE: Final = 400


class AvroFormat(Format):
    """Avro values. Each is resolved to ``schema`` by Avro's schema resolution, so that all have one type.

    Args:
        schema: the reader's schema, as JSON text or the parsed JSON. None uses the newest schema of ``subject``.
        registry: holds the writers' schemas, which values name in their envelopes. None means that values have no
            envelope and were written with ``schema``.
        subject: a subject of the registry, usually ``<topic>-value``.

    Raises:
        ConfigurationError: the schema is invalid, or has a type without a column type: a union of several types, or a
            record that contains itself.
        SchemaRegistryError: the registry cannot provide the subject.
    """

    def __init__(
        self,
        schema: str | Mapping[str, Any] | None = None,
        *,
        registry: SchemaRegistry | None = None,
        subject: str | None = None,
    ) -> None:
        require("fastavro", "Avro")
        if schema is None and (registry is None or subject is None):
            raise ConfigurationError("AvroFormat needs a schema, or a registry and a subject")
        self._registry = registry
        self._writers: dict[int, Any] = {}
        self._unknown = UnknownSchemas()
        if schema is None:
            assert registry is not None and subject is not None
            self._schema = self._registered(registry.latest(subject))
        else:
            self._schema = _parsed(_json(schema) if isinstance(schema, str) else schema, {})
        self._begin()

    def _begin(self) -> None:
        named = names_in(self._schema)
        self._type, self._convert = _column(self._schema, named, (), is_own=True)
        # For values that were written with other schemas.
        self._reader = with_whole_defaults(self._schema)
        self._convert_others = _column(self._schema, named, (), is_own=False)[1]

    @property
    def type(self) -> pa.DataType:
        """The column type of the schema."""
        return self._type

    def __getstate__(self) -> dict[str, Any]:
        return {"schema": self._schema, "registry": self._registry}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._schema, self._registry = state["schema"], state["registry"]
        self._writers, self._unknown = {}, UnknownSchemas()
        self._begin()

    def decode(self, payloads: pa.Array) -> tuple[pa.Array, Mapping[int, str]]:
        """See `Format.decode`."""
        import pyarrow as pa

        if self._registry is None:
            return self._read(payloads, self._schema)
        groups, errors = opened(payloads)
        parts: list[pa.Array] = []
        positions: list[int] = []
        for group in groups:
            try:
                writer = self._writer(group.schema_id)
            except (UnknownSchemaError, ConfigurationError) as error:
                why = self._unknown.report(group.schema_id, error)
                errors.update(dict.fromkeys(group.positions, why))
                continue
            found, wrong = self._read(group.payloads, writer)
            if len(groups) == 1 and not errors:
                return found, wrong
            parts.append(found)
            positions += group.positions
            errors.update({group.positions[at]: why for at, why in wrong.items()})
        if not parts:
            return pa.nulls(len(payloads), self._type), errors
        order = sorted(range(len(positions)), key=positions.__getitem__)
        together = pa.concat_arrays(parts).take(pa.array(order, pa.int64()))
        return scattered(together, sorted(positions), len(payloads)), errors

    def _writer(self, number: int) -> Any:
        if number not in self._writers:
            assert self._registry is not None
            found = self._registered(self._registry.by_id(number))
            # Values written with the reader's schema need no resolution.
            self._writers[number] = self._schema if found == self._schema else as_meant(found, self._schema)
        return self._writers[number]

    def _registered(self, found: RegisteredSchema) -> Any:
        assert self._registry is not None
        return registered_avro(self._registry, found)

    def _read(self, payloads: pa.Array, writer: Any) -> tuple[pa.Array, dict[int, str]]:
        import pyarrow as pa
        from fastavro import schemaless_reader

        is_own = writer is self._schema
        reader, convert = (None, self._convert) if is_own else (self._reader, self._convert_others)
        rows: list[Any] = []
        errors: dict[int, str] = {}
        for number, payload in enumerate(payloads.to_pylist()):
            stream = BytesIO(payload)
            try:
                row = schemaless_reader(stream, writer, reader)
                if stream.tell() != len(payload):
                    raise ValueError(f"{len(payload) - stream.tell()} bytes follow the value")
                rows.append(_maybe(convert, row))
            except Exception as error:
                errors[number] = _told(error, writer, self._schema)
                rows.append(None)
        try:
            return pa.array(rows, self._type), errors
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            return self._one_by_one(rows, errors), errors

    def _one_by_one(self, rows: list[Any], errors: dict[int, str]) -> pa.Array:
        """Build the column row by row, after some decoded value did not fit into its Arrow type."""
        import pyarrow as pa

        for number, row in enumerate(rows):
            try:
                pa.array([row], self._type)
            except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
                rows[number] = None
                errors[number] = str(error)
        return pa.array(rows, self._type)


def registered_avro(registry: SchemaRegistry, found: RegisteredSchema) -> Any:
    """Return fastavro's form of a registered schema, with the schemas that it references.

    Raises:
        ConfigurationError: the schema is invalid.
        SchemaRegistryError: the registry cannot provide a reference.
    """
    named: dict[str, Any] = {}
    _learn(registry, found, named)
    return _parsed(_json(found.text), named)


def _learn(registry: SchemaRegistry, found: RegisteredSchema, named: dict[str, Any]) -> None:
    """Parse the schemas that ``found`` references, recursively, into ``named``."""
    for reference in found.references:
        theirs = registry.version(reference.subject, reference.version)
        _learn(registry, theirs, named)
        if reference.name not in named:
            _parsed(_json(theirs.text), named)


def _told(error: Exception, writer: Any, reader: Any) -> str:
    """Return a short error message: fastavro's messages quote whole schemas when two do not match."""
    from fastavro.read import SchemaResolutionError

    if isinstance(error, SchemaResolutionError):
        written, read = (
            each.get("name", each["type"]) if isinstance(each, dict) else each for each in (writer, reader)
        )
        if written != read:
            return f"it was written as {written}, which cannot be read as {read}"
    said = f"{type(error).__name__}: {error}".rstrip(": ")
    return said if len(said) <= _LONGEST_SENTENCE else f"{said[:_LONGEST_SENTENCE]}…"


_Convert = Callable[[Any], Any]


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"Avro schema is not valid JSON: {error}") from None


def _parsed(schema: Any, named: dict[str, Any]) -> Any:
    """Parse a schema with fastavro. ``named`` holds the schemas that it may reference, and receives its own."""
    from fastavro.schema import SchemaParseException, UnknownType, parse_schema

    try:
        return parse_schema(schema, named_schemas=named)
    except (SchemaParseException, UnknownType, KeyError, TypeError) as error:
        raise ConfigurationError(f"Avro schema is invalid: {type(error).__name__}: {error}") from None


def _simple() -> dict[str, Any]:
    import pyarrow as pa

    return {
        "null": pa.null(),
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "bytes": pa.binary(),
        "string": pa.string(),
        "enum": pa.string(),
        "fixed": pa.binary(),
    }


def _logical() -> dict[str, Any]:
    """Return Arrow types by underlying type and logical type; Avro ignores a logical type on any other type."""
    import pyarrow as pa

    return {
        "int-date": pa.date32(),
        "int-time-millis": pa.time64("us"),
        "long-time-micros": pa.time64("us"),
        "long-timestamp-millis": pa.timestamp("us", tz="UTC"),
        "long-timestamp-micros": pa.timestamp("us", tz="UTC"),
        "long-local-timestamp-millis": pa.timestamp("us"),
        "long-local-timestamp-micros": pa.timestamp("us"),
    }


def _column(
    schema: Any, named: Mapping[str, Any], within: tuple[str, ...], *, is_own: bool
) -> tuple[pa.DataType, _Convert | None]:
    """Return the Arrow type and a conversion of fastavro's values to it (None if they fit).

    ``is_own``: the values were written with this schema. Otherwise they may have the types under its logical types.
    """
    import pyarrow as pa

    if isinstance(schema, list):
        others = [each for each in schema if each != "null"]
        if len(others) > 1:
            raise ConfigurationError(f"an Avro union of {len(others)} types has no column type: {others}")
        return _column(others[0] if others else "null", named, within, is_own=is_own)
    if isinstance(schema, str):
        if schema in _simple():
            return _simple()[schema], None
        return _column(named[schema], named, within, is_own=is_own)
    kind, logical = schema["type"], schema.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision = schema.get("precision")
        if not isinstance(precision, int) or not 1 <= precision <= _MAX_DECIMAL:
            raise ConfigurationError(
                f"an Avro decimal with precision {precision} has no column type: it must be 1 to {_MAX_DECIMAL}"
            )
        scale = schema.get("scale", 0)
        return pa.decimal128(precision, scale), None if is_own else to_decimal(scale)
    if logical == "uuid" and kind == "string":
        return pa.string(), str
    if f"{kind}-{logical}" in _logical():
        return _logical()[f"{kind}-{logical}"], None if is_own or not logical.endswith("-millis") else from_millis
    if kind in ("record", "error"):
        return _record(schema, named, within, is_own=is_own)
    if kind == "array":
        items, convert = _column(schema["items"], named, within, is_own=is_own)
        return pa.list_(items), None if convert is None else lambda row: [_maybe(convert, each) for each in row]
    if kind == "map":
        values, convert = _column(schema["values"], named, within, is_own=is_own)
        return pa.map_(pa.string(), values), lambda row: [(name, _maybe(convert, each)) for name, each in row.items()]
    return _column(kind, named, within, is_own=is_own)


def _record(
    schema: Any, named: Mapping[str, Any], within: tuple[str, ...], *, is_own: bool
) -> tuple[pa.DataType, _Convert | None]:
    import pyarrow as pa

    name = schema["name"]
    if name in within:
        raise ConfigurationError(f"the Avro record {name!r} contains itself, which has no column type")
    fields = {
        field["name"]: _column(field["type"], named, (*within, name), is_own=is_own) for field in schema["fields"]
    }
    converts = {field: convert for field, (_, convert) in fields.items() if convert is not None}
    kind = pa.struct([pa.field(field, each) for field, (each, _) in fields.items()])
    if not converts:
        return kind, None
    return kind, lambda row: {field: _maybe(converts.get(field), value) for field, value in row.items()}


def _maybe(convert: _Convert | None, value: Any) -> Any:
    return value if convert is None or value is None else convert(value)
