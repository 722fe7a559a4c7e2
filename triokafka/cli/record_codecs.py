"""The formats of keys and values in ``triokafka consume`` and ``triokafka produce``. No I/O but a schema registry's.

``--key-format`` and ``--value-format`` take:

- ``text`` (the default), ``hex``, ``base64``;
- ``registry`` (also ``avro``, ``json-schema``, ``protobuf``): JSON, by the schema in a schema registry;
- ``pack:FORMAT``: numbers and text as in kcat's ``-s``: ``<`` and ``>`` for the byte order (default ``>``), ``b B h H i
  I q Q`` for signed and unsigned integers of 8, 16, 32 and 64 bits, ``c`` for a character, ``s`` for the rest as text,
  ``$`` for the end;
- a class of Kafka's serialization package, such as ``org.apache.kafka.common.serialization.LongDeserializer``.
"""

from __future__ import annotations

import base64
import binascii
import struct
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

if TYPE_CHECKING:
    from triokafka.formats import SchemaRegistry

REGISTRY_FORMATS: Final = ("registry", "avro", "json-schema", "protobuf")
FORMAT_HELP: Final = "text, hex, base64, registry (JSON by the schema registry), or pack:FORMAT, such as pack:>qs."
_KINDS: Final = {"avro": "AVRO", "json-schema": "JSON", "protobuf": "PROTOBUF"}
_INTEGERS: Final = "bBhHiIqQ"
_JAVA: Final = "org.apache.kafka.common.serialization."
_JAVA_FORMATS: Final[Mapping[str, str]] = {
    "String": "text", "ByteArray": "text", "Bytes": "text", "ByteBuffer": "text", "Short": "pack:>h$",
    "Integer": "pack:>i$", "Long": "pack:>q$",
}  # fmt: skip
_JAVA_STRUCTS: Final[Mapping[str, str]] = {"Float": ">f", "Double": ">d", "Boolean": ">?"}

Decode = Callable[[bytes], Any]
"""Returns the printed form: bytes, text, or an object for JSON. Raises an error with a message for unreadable bytes."""
Encode = Callable[[bytes], bytes]
"""Returns a key or value from its text. Raises `ValueError` for unreadable text."""


class RegistryOptions(NamedTuple):
    """The schema registry of a command, and how produced keys and values find their schemas."""

    url: str | None
    user: str | None = None
    password: str | None = None
    key_subject: str | None = None
    value_subject: str | None = None
    key_schema: str | None = None
    value_schema: str | None = None
    message: str | None = None

    def client(self, option: str) -> SchemaRegistry:
        """Return the registry's client. Without an address that is a usage error of ``option``."""
        from triokafka.cli.parameter_types import configured
        from triokafka.formats import SchemaRegistry

        if self.url is None:
            raise click.UsageError(f"{option} needs --schema-registry URL.")
        return configured(SchemaRegistry, self.url, self.user, self.password)


def decoder(option: str, name: str | None, registry: RegistryOptions) -> Decode | None:
    """Return the decoder of a format; None for bytes as they are.

    Raises:
        UsageError: there is no such format, or it lacks its registry.
    """
    name = _plain(name)
    if name in (None, "text"):
        return None
    if name in REGISTRY_FORMATS:
        from triokafka.formats.value_codecs import ValueDecoder

        return ValueDecoder(registry.client(option)).decode
    if name == "hex":
        return lambda data: data.hex()
    if name == "base64":
        return lambda data: base64.b64encode(data).decode()
    if name.startswith("pack:"):
        return _Pack(option, name.removeprefix("pack:")).decode
    if (java := _java(name)) is not None:
        return java[0]
    raise click.UsageError(f"{option}: {name!r} is not one of {FORMAT_HELP}")


def encoder(option: str, name: str | None, registry: RegistryOptions, *, topic: str, is_key: bool) -> Encode | None:
    """Return the encoder of a format; None for bytes as they are.

    Raises:
        UsageError: there is no such format, or it lacks its registry.
    """
    name = _plain(name)
    if name in (None, "text"):
        return None
    if name in REGISTRY_FORMATS:
        from triokafka.formats.value_codecs import ValueEncoder

        schema = registry.key_schema if is_key else registry.value_schema
        if schema is not None and name == "registry":
            raise click.UsageError(f"{option}: give avro, json-schema or protobuf for the schema in a file.")
        subject = registry.key_subject if is_key else registry.value_subject
        return ValueEncoder(
            registry.client(option),
            subject or f"{topic}-{'key' if is_key else 'value'}",
            schema=schema,
            kind=_KINDS.get(name, "AVRO"),
            message=None if is_key else registry.message,
        ).encode
    if name == "hex":
        return lambda text: _checked(lambda: bytes.fromhex(text.decode("ascii")), "hexadecimal digits")
    if name == "base64":
        return lambda text: _checked(lambda: base64.b64decode(text, validate=True), "Base64")
    if name.startswith("pack:"):
        return _Pack(option, name.removeprefix("pack:")).encode
    if (java := _java(name)) is not None:
        return java[1]
    raise click.UsageError(f"{option}: {name!r} is not one of {FORMAT_HELP}")


def _plain(name: str | None) -> str | None:
    """Return the format of a Java class that has one of ours; other names unchanged."""
    if name is None or not name.startswith(_JAVA):
        return name
    short = name.removeprefix(_JAVA).removesuffix("Deserializer").removesuffix("Serializer")
    return _JAVA_FORMATS.get(short, name)


def _java(name: str) -> tuple[Decode, Encode] | None:
    short = name.removeprefix(_JAVA).removesuffix("Deserializer").removesuffix("Serializer")
    if not name.startswith(_JAVA):
        return None
    if short == "UUID":
        return lambda data: str(uuid.UUID(data.decode())), lambda text: str(uuid.UUID(text.decode())).encode()
    layout = _JAVA_STRUCTS.get(short)
    if layout is None:
        return None
    known = struct.Struct(layout)

    def decode(data: bytes) -> Any:
        if len(data) != known.size:
            raise ValueError(f"it has {len(data)} bytes, not {known.size}")
        (value,) = known.unpack(data)
        return str(value).lower() if short == "Boolean" else value

    def encode(text: bytes) -> bytes:
        if short == "Boolean":
            return known.pack({b"true": True, b"false": False}[text.strip().lower()])
        return known.pack(float(text))

    return decode, lambda text: _checked(lambda: encode(text), f"a {short.lower()}")


def _checked(convert: Callable[[], bytes], what: str) -> bytes:
    try:
        return convert()
    except (ValueError, KeyError, struct.error, binascii.Error):
        raise ValueError(f"it is not {what}") from None


class _Pack:
    """kcat's packed numbers and text. The text form of a value has its fields separated by spaces."""

    def __init__(self, option: str, layout: str) -> None:
        strange = sorted(set(layout) - set(f"<>cs$ {_INTEGERS}"))
        fields = layout.replace(" ", "")
        if strange or not fields.strip("<>$") or "s" in fields.rstrip("$")[:-1] or "$" in fields[:-1]:
            raise click.UsageError(
                f"{option}: pack:{layout} is not a format: < and > for the byte order, {' '.join(_INTEGERS)} for"
                " integers, c for a character, s last for text, $ for the end."
            )
        self._fields: list[str] = []
        self._ends = fields.endswith("$") or fields.endswith("s")
        order = ">"
        for one in fields.rstrip("$"):
            if one in "<>":
                order = one
            else:
                self._fields.append(one if one in "cs" else order + one)

    def decode(self, data: bytes) -> str:
        found: list[str] = []
        position = 0
        for one in self._fields:
            if one == "s":
                found.append(data[position:].decode(errors="replace"))
                position = len(data)
                continue
            size = 1 if one == "c" else struct.calcsize(one)
            if position + size > len(data):
                raise ValueError(f"it has {len(data)} bytes, too few for {one.strip('<>')}")
            part = data[position : position + size]
            found.append(part.decode("latin-1") if one == "c" else str(struct.unpack(one, part)[0]))
            position += size
        if self._ends and position < len(data):
            raise ValueError(f"{len(data) - position} bytes follow the last field")
        return " ".join(found)

    def encode(self, text: bytes) -> bytes:
        count = len(self._fields)
        parts = text.split(b" ", count - 1)
        if len(parts) != count:
            raise ValueError(f"it has {len(parts)} fields, not {count}")
        out = bytearray()
        for one, part in zip(self._fields, parts, strict=True):
            if one in "cs":
                if one == "c" and len(part) != 1:
                    raise ValueError(f"{part.decode(errors='replace')!r} is not one character")
                out += part
                continue
            try:
                out += struct.pack(one, int(part))
            except (ValueError, struct.error):
                shown = part.decode(errors="replace")
                raise ValueError(f"{shown!r} is not a number of {struct.calcsize(one) * 8} bits") from None
        return bytes(out)
