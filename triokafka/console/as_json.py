"""Converts values of the clients to what JSON can represent, with their own field names. Pure."""

from __future__ import annotations

import dataclasses
import enum
import math
import uuid
from collections.abc import Mapping, Set
from typing import Any

from triokafka.structs import format_uuid


def as_json(value: Any) -> Any:
    """Return a value of dictionaries, lists, texts and numbers.

    Enumerations become their names, ids Kafka's text form, errors their messages, keys texts.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, uuid.UUID):
        return format_uuid(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, BaseException):
        return {"error": type(value).__name__, "message": str(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: as_json(getattr(value, f.name)) for f in dataclasses.fields(value) if not f.name.startswith("_")
        }
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(as_json(key)): as_json(each) for key, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: as_json(getattr(value, name)) for name in value._fields}
    if isinstance(value, Set):
        return sorted((as_json(each) for each in value), key=str)
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    return str(value)
