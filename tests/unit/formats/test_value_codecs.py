"""Single keys and values with a schema registry, in and out."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.schema_registry import StubRegistry, schema_registry
from triokafka.formats import DecodeError, SchemaRegistry
from triokafka.formats.registry import UnknownSchemaError, UnknownSubjectError
from triokafka.formats.value_codecs import ValueDecoder, ValueEncoder

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "raw", "type": "bytes", "default": "\xff"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
    ],
}
VALUE = {"id": 7, "note": "x", "raw": "\x00\xfe", "day": "2026-11-24", "price": "12.50", "tags": {"a": [1, 2]}}


@pytest.fixture
def stub() -> Iterator[StubRegistry]:
    with schema_registry() as found:
        yield found


def encoded(encoder: ValueEncoder, value: Any) -> bytes:
    return encoder.encode(json.dumps(value).encode())


def test_avro_goes_in_and_out(stub: StubRegistry) -> None:
    number = stub.register("t-value", json.dumps(ORDER))
    registry = SchemaRegistry(stub.url)
    data = encoded(ValueEncoder(registry, "t-value"), VALUE)
    assert data[:5] == b"\0" + number.to_bytes(4, "big")
    assert ValueDecoder(registry).decode(data) == VALUE


def test_missing_fields_have_their_defaults_and_unions_may_be_named(stub: StubRegistry) -> None:
    stub.register("t-value", json.dumps(ORDER))
    registry = SchemaRegistry(stub.url)
    given = {name: value for name, value in VALUE.items() if name not in ("note", "raw")}
    decoder, encoder = ValueDecoder(registry), ValueEncoder(registry, "t-value")
    assert decoder.decode(encoded(encoder, given)) == {**VALUE, "note": None, "raw": "\xff"}
    assert decoder.decode(encoded(encoder, {**VALUE, "note": {"string": "y"}}))["note"] == "y"


def test_defaults_of_logical_types_are_stored_values(stub: StubRegistry) -> None:
    """A default of bytes has a character per byte, also for a decimal."""
    price = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
    fields = [{"name": "id", "type": "long"}, {"name": "price", "type": price, "default": "\x04\xd2"}]
    stub.register("t-value", json.dumps({"type": "record", "name": "Order", "fields": fields}))
    registry = SchemaRegistry(stub.url)
    encoder, decoder = ValueEncoder(registry, "t-value"), ValueDecoder(registry)
    assert decoder.decode(encoded(encoder, {"id": 1})) == {"id": 1, "price": "12.34"}
    assert decoder.decode(encoded(encoder, {"id": 1, "price": "5.60"})) == {"id": 1, "price": "5.60"}


def test_subject_without_a_schema_and_deep_json_are_sentences(stub: StubRegistry) -> None:
    registry = SchemaRegistry(stub.url)
    with pytest.raises(UnknownSubjectError, match="subject t-value has no schema") as raised:
        encoded(ValueEncoder(registry, "t-value"), {})
    assert "Register a schema" in raised.value.advice
    with pytest.raises(ValueError, match="nested too deeply"):
        ValueEncoder(registry, "t-value", schema='"string"').encode(b"[" * 100_000)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"id": "seven"}, "id is long in the schema, not str"),
        ({"id": True}, "id is long in the schema, not bool"),
        ({"more": 1}, "has the field 'more'"),
        ({"day": "tomorrow"}, "day is not a valid date"),
        ({"tags": {"a": [1, "two"]}}, r"tags.a[1] is int in the schema, not str"),
    ],
)
def test_value_that_does_not_match_names_the_place(stub: StubRegistry, changes: dict[str, Any], problem: str) -> None:
    stub.register("t-value", json.dumps(ORDER))
    with pytest.raises(ValueError) as raised:
        encoded(ValueEncoder(SchemaRegistry(stub.url), "t-value"), {**VALUE, **changes})
    assert problem in str(raised.value)


def test_field_without_a_default_is_missed(stub: StubRegistry) -> None:
    stub.register("t-value", json.dumps(ORDER))
    with pytest.raises(ValueError, match="lacks the field 'id'"):
        encoded(ValueEncoder(SchemaRegistry(stub.url), "t-value"), {})


def test_schema_of_a_file_is_registered_once(stub: StubRegistry) -> None:
    registry = SchemaRegistry(stub.url)
    for _ in range(2):
        data = encoded(ValueEncoder(registry, "t-value", schema='"string"'), "x")
    assert stub.subjects == {"t-value": [1]}
    assert ValueDecoder(registry).decode(data) == "x"


def test_json_schema_goes_in_and_out(stub: StubRegistry) -> None:
    registry = SchemaRegistry(stub.url)
    data = encoded(ValueEncoder(registry, "t-value", schema='{"type": "object"}', kind="JSON"), {"a": [1, None]})
    assert data == b'\0\0\0\0\1{"a":[1,null]}'
    assert ValueDecoder(registry).decode(data) == {"a": [1, None]}


def test_protobuf_goes_in_and_out_and_the_envelope_names_the_message(stub: StubRegistry) -> None:
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    for name in ("First", "Second"):
        message = file.message_type.add(name=name)
        message.field.add(name="item_id", number=1, type="TYPE_INT32", label="LABEL_OPTIONAL")
        message.field.add(name="names", number=2, type="TYPE_STRING", label="LABEL_REPEATED")
    stub.register("t-value", "…", "PROTOBUF", serialized=base64.b64encode(file.SerializeToString()).decode())
    registry = SchemaRegistry(stub.url)
    value = {"item_id": 5, "names": ["a", "b"]}
    first = encoded(ValueEncoder(registry, "t-value"), value)
    assert first[5:6] == b"\0"
    second = encoded(ValueEncoder(registry, "t-value", message="shop.Second"), value)
    assert second[5:7] == b"\x02\x02"
    decoder = ValueDecoder(registry)
    assert decoder.decode(first) == decoder.decode(second) == value
    with pytest.raises(ValueError, match="does not match"):
        encoded(ValueEncoder(registry, "t-value"), {"unknown": 1})


def test_bytes_without_an_envelope_are_an_error(stub: StubRegistry) -> None:
    decoder = ValueDecoder(SchemaRegistry(stub.url))
    with pytest.raises(DecodeError, match="zero byte"):
        decoder.decode(b"text")
    with pytest.raises(UnknownSchemaError):
        decoder.decode(b"\0\0\0\0\x09x")


def test_bytes_that_do_not_match_their_schema_are_an_error(stub: StubRegistry) -> None:
    stub.register("t-value", json.dumps(ORDER))
    with pytest.raises(DecodeError, match="schema 1"):
        ValueDecoder(SchemaRegistry(stub.url)).decode(b"\0\0\0\0\1\xff")
