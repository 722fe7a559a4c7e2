"""Stored messages as JSON, with Kafka's names. Pure."""

from __future__ import annotations

from base64 import b64encode
from typing import Any
from uuid import UUID

from triokafka.protocol.message import Struct
from triokafka.structs import format_uuid


def as_json(struct: Struct, version: int) -> dict[str, Any]:
    """Return a stored message's fields in one version, by Kafka's names; tagged fields only if present."""
    return {
        _camel(field.name): _plain(value, version)
        for field in type(struct).__fields__
        if version in field.versions
        and ((value := getattr(struct, field.name)) != field.default() or field.tag is None)
    }


def _plain(value: Any, version: int) -> Any:
    match value:
        case Struct():
            return as_json(value, version)
        case list():
            return [_plain(item, version) for item in value]
        case bytes() | memoryview():
            return b64encode(value).decode()
        case UUID():
            return format_uuid(value)
        case _:
            return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
