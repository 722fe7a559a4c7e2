"""Single keys and values with a schema registry: to Python values for JSON, and from JSON to bytes.

The schema in a value's envelope decides how it is decoded: Avro, JSON Schema or Protobuf. To encode, the newest schema
of a subject is used, or one that is registered first. For many values of one type, the formats of this package, which
decode into columns, are faster.
"""

from __future__ import annotations

import datetime
import decimal
import json
import uuid
from collections.abc import Callable
from io import BytesIO
from typing import Any, Final

from triokafka.errors import ConfigurationError
from triokafka.formats.decoding import DecodeError, require
from triokafka.formats.registry import (
    ENVELOPE_BYTES,
    RegisteredSchema,
    SchemaRegistry,
    UnknownSchemaError,
    UnknownSubjectError,
    envelope,
    schema_id_in,
)
from triokafka.varint import encode_uvarint

AVRO: Final = "AVRO"
JSON: Final = "JSON"
PROTOBUF: Final = "PROTOBUF"

_Decode = Callable[[bytes], Any]


class ValueDecoder:
    """Decodes keys or values with envelopes into what JSON can represent.

    Avro's bytes become text as in Avro's JSON encoding; decimals, dates and times become text.

    Args:
        registry: holds the schemas that the envelopes name.
    """

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._decoders: dict[int, _Decode] = {}

    def decode(self, data: bytes) -> Any:
        """Return the value.

        Raises:
            DecodeError: the bytes have no envelope, or do not match their schema.
            UnknownSchemaError: the registry does not have the schema.
            SchemaRegistryError: the registry does not answer.
            ConfigurationError: the package of the format is not installed, or the schema is invalid.
        """
        number = schema_id_in(data)
        decode = self._decoders.get(number)
        if decode is None:
            decode = self._decoders[number] = self._decoder(self._registry.by_id(number))
        try:
            return decode(data[ENVELOPE_BYTES:])
        except (DecodeError, ConfigurationError):
            raise
        except Exception as error:  # the packages raise anything for bytes that do not match
            why = f"{type(error).__name__}: {error}".removesuffix(": ")
            raise DecodeError(f"it does not match its schema {number}: {why}") from error

    def _decoder(self, found: RegisteredSchema) -> _Decode:
        match found.kind:
            case "JSON":
                return json.loads
            case "PROTOBUF":
                return self._protobuf(found)
            case "AVRO":
                return self._avro(found)
            case other:
                raise ConfigurationError(f"schema {found.id} is of the unknown type {other}")

    def _avro(self, found: RegisteredSchema) -> _Decode:
        require("fastavro", "Avro")
        from fastavro import schemaless_reader

        from triokafka.formats.avro import registered_avro

        schema = registered_avro(self._registry, found)

        def decode(payload: bytes) -> Any:
            stream = BytesIO(payload)
            value = schemaless_reader(stream, schema, None)
            if stream.tell() != len(payload):
                raise ValueError(f"{len(payload) - stream.tell()} bytes follow the value")
            return _for_json(value)

        return decode

    def _protobuf(self, found: RegisteredSchema) -> _Decode:
        require("google.protobuf", "Protobuf")
        from google.protobuf import json_format

        from triokafka.formats.protobuf import (
            SERIALIZED,
            descriptor_files,
            message_class,
            message_indexes,
            message_name,
        )

        serialized = self._registry.by_id(found.id, form=SERIALIZED)
        files = tuple(descriptor_files(self._registry, serialized, f"schema-{found.id}.proto").values())
        classes: dict[tuple[int, ...], Any] = {}

        def decode(payload: bytes) -> Any:
            indexes, start = message_indexes(payload)
            if indexes not in classes:
                classes[indexes] = message_class(files, message_name(files[-1], indexes, "its schema"), "")
            message = classes[indexes].FromString(payload[start:])
            return json_format.MessageToDict(message, preserving_proto_field_name=True)

        return decode


class ValueEncoder:
    """Encodes JSON text as keys or values of one subject, with envelopes.

    Args:
        registry: holds the schema.
        subject: usually ``<topic>-value`` or ``<topic>-key``.
        schema: a schema to register under the subject before the first value; None uses the newest one.
        kind: the type of ``schema``: ``AVRO``, ``JSON`` or ``PROTOBUF``.
        message: the full name of a Protobuf message; None is the first one of the schema.

    Raises (at the first value):
        UnknownSubjectError: the subject has no schema.
        SchemaRegistryError: the registry does not answer, or refuses the schema.
        ConfigurationError: the package of the format is not installed, or the schema is invalid.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        subject: str,
        *,
        schema: str | None = None,
        kind: str = AVRO,
        message: str | None = None,
    ) -> None:
        self._registry = registry
        self._subject = subject
        self._schema = schema
        self._kind = kind
        self._message = message
        self._encode: Callable[[Any], bytes] | None = None

    def encode(self, text: bytes) -> bytes:
        """Return the bytes of a value that is given as JSON.

        Raises:
            ValueError: the text is not JSON, or does not match the schema.
        """
        encode = self._encode
        if encode is None:
            encode = self._encode = self._encoder()
        try:
            value = json.loads(text)
        except ValueError as error:
            raise ValueError(f"it is not JSON: {error}") from None
        except RecursionError:
            raise ValueError("it is not JSON that can be read: it is nested too deeply") from None
        try:
            return encode(value)
        except Exception as error:  # the packages raise anything for values that do not match
            raise ValueError(f"it does not match the schema of {self._subject}: {error}") from error

    def _encoder(self) -> Callable[[Any], bytes]:
        if self._schema is None:
            found = self._latest()
        else:
            found = self._registry.register(self._subject, self._schema, kind=self._kind)
        head = envelope(found.id)
        match found.kind:
            case "JSON":
                return lambda value: head + json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
            case "PROTOBUF":
                return self._protobuf(found, head)
            case "AVRO":
                return self._avro(found, head)
            case other:
                raise ConfigurationError(f"subject {self._subject}: its schema is of the unknown type {other}")

    def _latest(self) -> RegisteredSchema:
        try:
            return self._registry.latest(self._subject)
        except UnknownSchemaError as error:
            raise UnknownSubjectError(f"subject {self._subject} has no schema: {error}") from None

    def _avro(self, found: RegisteredSchema, head: bytes) -> Callable[[Any], bytes]:
        require("fastavro", "Avro")
        from fastavro import schemaless_writer

        from triokafka.formats.avro import registered_avro
        from triokafka.formats.avro_json import from_json

        schema = registered_avro(self._registry, found)

        def encode(value: Any) -> bytes:
            stream = BytesIO()
            stream.write(head)
            schemaless_writer(stream, schema, from_json(value, schema), strict=True)
            return stream.getvalue()

        return encode

    def _protobuf(self, found: RegisteredSchema, head: bytes) -> Callable[[Any], bytes]:
        require("google.protobuf", "Protobuf")
        from google.protobuf import json_format

        from triokafka.formats.protobuf import SERIALIZED, descriptor_files, message_class, message_place

        serialized = self._registry.by_id(found.id, form=SERIALIZED)
        files = tuple(descriptor_files(self._registry, serialized, f"{self._subject}.proto").values())
        made = message_class(files, self._message, self._subject)
        place = message_place(made.DESCRIPTOR)
        indexes = b"\0" if place == (0,) else b"".join(encode_uvarint(number << 1) for number in (len(place), *place))

        def encode(value: Any) -> bytes:
            message = json_format.ParseDict(value, made())
            return bytes(head + indexes + message.SerializeToString())

        return encode


def _for_json(value: Any) -> Any:
    """Return a decoded Avro value as JSON can represent it."""
    match value:
        case dict():
            return {name: _for_json(one) for name, one in value.items()}
        case list() | tuple():
            return [_for_json(one) for one in value]
        case bytes():
            return value.decode("latin-1")
        case decimal.Decimal() | uuid.UUID():
            return str(value)
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case _:
            return value
