"""JSON as values for fastavro's writer: by the schema, the types that JSON does not have.

Bytes and fixed are text with a character per byte, as in Avro's JSON encoding. A branch of a union may be given plainly
or, as in Avro's JSON encoding, in an object with the name of its type: ``{"string": "x"}``. Decimals, dates, times and
timestamps are text as `ValueDecoder` prints them, or the numbers that Avro stores. Defaults in a schema are never such
texts: Avro knows no logical types there.
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from triokafka.formats.avro_resolution import names_in

_PLAIN: Final[Mapping[str, tuple[type, ...]]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (float, int),
    "double": (float, int),
    "bytes": (str,),
    "string": (str,),
    "enum": (str,),
    "fixed": (str,),
    "array": (list,),
    "map": (dict,),
    "record": (dict,),
    "error": (dict,),
}
_TEXTS: Final[Mapping[str, Callable[[str], Any]]] = {
    "date": datetime.date.fromisoformat,
    "time-millis": datetime.time.fromisoformat,
    "time-micros": datetime.time.fromisoformat,
    "timestamp-millis": datetime.datetime.fromisoformat,
    "timestamp-micros": datetime.datetime.fromisoformat,
    "local-timestamp-millis": datetime.datetime.fromisoformat,
    "local-timestamp-micros": datetime.datetime.fromisoformat,
    "decimal": decimal.Decimal,
    "uuid": uuid.UUID,
}


def from_json(value: Any, schema: Any) -> Any:
    """Return the value for fastavro. ``schema`` is fastavro's parsed form.

    Raises:
        ValueError: the value does not match the schema; the message names the place.
    """
    return _converted(value, schema, names_in(schema), "")


def _converted(value: Any, schema: Any, named: Mapping[str, Any], place: str, *, is_default: bool = False) -> Any:
    if isinstance(schema, list):
        return _branch(value, schema, named, place, is_default=is_default)
    definition = _defined(schema, named)
    kind = definition["type"]
    if not isinstance(kind, str):
        return _converted(value, kind, named, place, is_default=is_default)
    logical = None if is_default else definition.get("logicalType")
    if not _fits(value, kind) and not (logical is not None and isinstance(value, str)):
        shown = type(value).__name__ if value is not None else "null"
        raise ValueError(f"{place.lstrip('.') or 'the value'} is {_name(definition)} in the schema, not {shown}")
    if kind in ("record", "error"):
        return _record(value, definition, named, place, is_default=is_default)
    if kind == "array":
        return [
            _converted(one, definition["items"], named, f"{place}[{at}]", is_default=is_default)
            for at, one in enumerate(value)
        ]
    if kind == "map":
        return {
            name: _converted(one, definition["values"], named, f"{place}.{name}", is_default=is_default)
            for name, one in value.items()
        }
    if isinstance(value, str):
        return _text(value, kind, logical, place)
    return value


def _record(
    value: Mapping[str, Any], definition: Mapping[str, Any], named: Mapping[str, Any], place: str, *, is_default: bool
) -> Any:
    fields = {field["name"]: field for field in definition["fields"]}
    strange = [name for name in value if name not in fields]
    if strange:
        raise ValueError(
            f"{place.lstrip('.') or 'the value'} has the field {strange[0]!r}, which the schema does not have"
        )
    missing = [name for name, field in fields.items() if name not in value and "default" not in field]
    if missing:
        raise ValueError(f"{place.lstrip('.') or 'the value'} lacks the field {missing[0]!r}, which has no default")
    return {
        name: _converted(
            value.get(name, field.get("default")),
            field["type"],
            named,
            f"{place}.{name}",
            is_default=is_default or name not in value,
        )
        for name, field in fields.items()
    }


def _branch(value: Any, branches: list[Any], named: Mapping[str, Any], place: str, *, is_default: bool) -> Any:
    """Choose the branch of a union: the named one, or the first that the value fits."""
    if isinstance(value, dict) and len(value) == 1:
        ((name, inner),) = value.items()
        for branch in branches:
            if _name(_defined(branch, named)) == name:
                return _converted(inner, branch, named, place, is_default=is_default)
    problems = []
    for branch in branches:
        try:
            return _converted(value, branch, named, place, is_default=is_default)
        except ValueError as error:
            problems.append(str(error))
    raise ValueError("; ".join(problems))


def _text(value: str, kind: str, logical: str | None, place: str) -> Any:
    if logical is not None and logical in _TEXTS and (logical != "uuid" or kind == "string"):
        try:
            return _TEXTS[logical](value)
        except (ValueError, decimal.InvalidOperation):
            raise ValueError(f"{place.lstrip('.') or 'the value'} is not a valid {logical}: {value!r}") from None
    if kind in ("bytes", "fixed"):
        try:
            return value.encode("latin-1")
        except UnicodeEncodeError:
            raise ValueError(f"{place.lstrip('.') or 'the value'} has a character that is not a byte") from None
    return value


def _defined(schema: Any, named: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = named.get(schema, {"type": schema}) if isinstance(schema, str) else schema
    return found


def _fits(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return kind in _PLAIN and isinstance(value, _PLAIN[kind])


def _name(definition: Mapping[str, Any]) -> str:
    return str(definition.get("name", definition["type"]))
