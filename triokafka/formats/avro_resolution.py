"""The parts of Avro's schema resolution that fastavro does not implement.

fastavro applies the logical types of the writer's schema, where Avro applies those of the reader's; and it uses a
field's default as parsed from JSON. Schemas here are parsed by fastavro.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from decimal import Decimal
from typing import Any, Final

# Logical types by underlying type. fastavro decodes all of one kind to the same Python type.
_KINDS: Final = {
    "int-date": "date",
    "int-time-millis": "time",
    "long-time-micros": "time",
    "long-timestamp-millis": "timestamp",
    "long-timestamp-micros": "timestamp",
    "long-local-timestamp-millis": "timestamp",
    "long-local-timestamp-micros": "timestamp",
    "bytes-decimal": "decimal",
    "fixed-decimal": "decimal",
    "string-uuid": "uuid",
}


def names_in(schema: Any) -> dict[str, Any]:
    """Return the named types in a schema, and those that were passed to fastavro with it."""
    if isinstance(schema, list):
        return {name: kind for each in schema for name, kind in names_in(each).items()}
    if not isinstance(schema, dict):
        return {}
    found = {schema["name"]: schema} if "name" in schema else {}
    fields = [field["type"] for field in schema.get("fields", ())]
    for inside in (schema["type"], schema.get("items"), schema.get("values"), *fields):
        found.update(names_in(inside))
    return {**found, **schema.get("__named_schemas", {})}


def as_meant(writer: Any, reader: Any) -> Any:
    """Return the writer's schema without the logical types that the reader's schema does not have in the same place.

    fastavro then returns the underlying numbers and strings, which the reader's schema expects.
    """
    found = deepcopy(writer)
    _leave_out(found, reader, names_in(found), names_in(reader), set())
    return found


def _leave_out(writer: Any, reader: Any, theirs: Mapping[str, Any], ours: Mapping[str, Any], seen: set[int]) -> None:
    if isinstance(writer, list):
        for each in writer:
            _leave_out(each, reader, theirs, ours, seen)
        return
    writer = theirs.get(writer) if isinstance(writer, str) else writer
    if writer is None or id(writer) in seen:
        return
    seen.add(id(writer))
    reader = _definition(reader, ours)
    kind = writer["type"]
    if kind in ("array", "map"):
        inside = "items" if kind == "array" else "values"
        if inside in reader:
            _leave_out(writer[inside], reader[inside], theirs, ours, seen)
    elif "fields" in writer:
        fields = {alias: each for each in reader.get("fields", ()) for alias in each.get("aliases", ())}
        fields.update((each["name"], each) for each in reader.get("fields", ()))
        for field in writer["fields"]:
            if field["name"] in fields:
                _leave_out(field["type"], fields[field["name"]]["type"], theirs, ours, seen)
    elif _kind(writer) != _kind(reader):
        writer.pop("logicalType", None)


def _kind(schema: Mapping[str, Any]) -> str | None:
    return _KINDS.get(f"{schema['type']}-{schema.get('logicalType')}")


def _definition(schema: Any, named: Mapping[str, Any]) -> Any:
    """Return the schema itself, resolved by name; of a union, the type other than null."""
    if isinstance(schema, list):
        schema = next((each for each in schema if each != "null"), "null")
    return named.get(schema, {"type": schema}) if isinstance(schema, str) else schema


def with_whole_defaults(schema: Any) -> Any:
    """Return the schema with defaults in fastavro's Python types: bytes for byte types, and complete records."""
    named, found = names_in(schema), deepcopy(schema)
    for name, kind in names_in(found).items():
        for field, given in zip(kind.get("fields", ()), named[name].get("fields", ()), strict=True):
            if "default" in given:
                field["default"] = _default(given["type"], given["default"], named)
    return found


def _default(schema: Any, value: Any, named: Mapping[str, Any]) -> Any:
    if value is None:
        return None
    schema = _definition(schema, named)
    kind = schema["type"]
    if kind in ("bytes", "fixed") and isinstance(value, str):
        return value.encode("latin-1", "replace")  # Avro's JSON encoding of bytes: one character per byte
    if kind == "array" and isinstance(value, list):
        return [_default(schema["items"], each, named) for each in value]
    if kind == "map" and isinstance(value, dict):
        return {name: _default(schema["values"], each, named) for name, each in value.items()}
    if "fields" in schema and isinstance(value, dict):
        # A record's default may omit fields, which then have their own defaults.
        fields = {
            field["name"]: (field["type"], value.get(field["name"], field.get("default"))) for field in schema["fields"]
        }
        return {name: _default(inner, each, named) for name, (inner, each) in fields.items()}
    return value


def from_millis(value: Any) -> Any:
    """Convert fastavro's value of a millisecond time to microseconds, if it is a number."""
    return value * 1000 if isinstance(value, int) else value


def to_decimal(scale: int) -> Callable[[Any], Any]:
    """Return a conversion of fastavro's bytes to a decimal with this scale."""

    def convert(value: Any) -> Any:
        # From text: arithmetic would round to the context's precision.
        return Decimal(f"{int.from_bytes(value, signed=True)}E-{scale}") if isinstance(value, bytes) else value

    return convert
