"""Decoding of keys and values from JSON, Avro and Protobuf into Arrow columns, with or without a schema registry.

`decoded` wraps the reader that `triokafka.read_topic` returns; `Decoding` decodes single batches. A `Format` decodes
one column of bytes. `SchemaRegistry` is a client of registries with Confluent's protocol. All calls block: the package
is for code without Trio. It neither needs Spark nor talks to brokers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from triokafka.formats.avro import AvroFormat
    from triokafka.formats.decoding import DecodeError, Decoding, Format, decoded
    from triokafka.formats.json import JsonFormat
    from triokafka.formats.protobuf import ProtobufFormat
    from triokafka.formats.registry import RegisteredSchema, SchemaRegistry, SchemaRegistryError

_HOMES: Final = {
    "AvroFormat": "triokafka.formats.avro",
    "DecodeError": "triokafka.formats.decoding",
    "Decoding": "triokafka.formats.decoding",
    "Format": "triokafka.formats.decoding",
    "JsonFormat": "triokafka.formats.json",
    "ProtobufFormat": "triokafka.formats.protobuf",
    "RegisteredSchema": "triokafka.formats.registry",
    "SchemaRegistry": "triokafka.formats.registry",
    "SchemaRegistryError": "triokafka.formats.registry",
    "decoded": "triokafka.formats.decoding",
}

__all__ = [
    "AvroFormat",
    "DecodeError",
    "Decoding",
    "Format",
    "JsonFormat",
    "ProtobufFormat",
    "RegisteredSchema",
    "SchemaRegistry",
    "SchemaRegistryError",
    "decoded",
]
_NOT_PUBLIC: Final = {"Any", "Final", "TYPE_CHECKING", "annotations", "import_module"}


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__} - _NOT_PUBLIC)
