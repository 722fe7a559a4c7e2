"""Serializers: the same bytes as Java's, and clear errors about refused values."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

import triokafka
from triokafka.client.serializers import (
    BooleanDeserializer,
    BooleanSerializer,
    BytesDeserializer,
    BytesSerializer,
    Deserializer,
    DoubleDeserializer,
    DoubleSerializer,
    FloatDeserializer,
    FloatSerializer,
    IntegerDeserializer,
    IntegerSerializer,
    JsonDeserializer,
    JsonSerializer,
    LongDeserializer,
    LongSerializer,
    Serializer,
    ShortDeserializer,
    ShortSerializer,
    StringDeserializer,
    StringSerializer,
    UUIDDeserializer,
    UUIDSerializer,
)
from triokafka.errors import ConfigurationError, KafkaError, SerializationError

PAIRS: list[tuple[Any, Any, Any, bytes]] = [
    (StringSerializer(), StringDeserializer(), "grüß", b"gr\xc3\xbc\xc3\x9f"),
    (StringSerializer("utf-16-be"), StringDeserializer("utf-16-be"), "ab", b"\0a\0b"),
    (ShortSerializer(), ShortDeserializer(), -2, b"\xff\xfe"),
    (IntegerSerializer(), IntegerDeserializer(), 1, b"\0\0\0\x01"),
    (IntegerSerializer(), IntegerDeserializer(), -(2**31), b"\x80\0\0\0"),
    (LongSerializer(), LongDeserializer(), 2**40, b"\0\0\x01\0\0\0\0\0"),
    (FloatSerializer(), FloatDeserializer(), 1.5, b"\x3f\xc0\0\0"),
    (DoubleSerializer(), DoubleDeserializer(), -2.0, b"\xc0\0\0\0\0\0\0\0"),
    (BooleanSerializer(), BooleanDeserializer(), True, b"\x01"),
    (BytesSerializer(), BytesDeserializer(), b"\0x", b"\0x"),
    (
        UUIDSerializer(),
        UUIDDeserializer(),
        uuid.UUID("01234567-89ab-cdef-0123-456789abcdef"),
        b"01234567-89ab-cdef-0123-456789abcdef",
    ),
    (JsonSerializer(), JsonDeserializer(), {"a": [1, None, "ü"]}, '{"a":[1,null,"ü"]}'.encode()),
]


@pytest.mark.parametrize(("serializer", "deserializer", "value", "data"), PAIRS, ids=lambda given: repr(given)[:40])
def test_built_in_types_are_encoded_as_in_java_and_decode_again(
    serializer: Serializer[Any], deserializer: Deserializer[Any], value: Any, data: bytes
) -> None:
    assert serializer.serialize("t", value) == data
    assert deserializer.deserialize("t", data) == value


@pytest.mark.parametrize("value", [b"a", bytearray(b"a"), memoryview(b"a")])
def test_every_bytes_like_value_is_accepted(value: Any) -> None:
    assert BytesSerializer().serialize("t", value) == b"a"


@pytest.mark.parametrize(
    ("serializer", "value", "message"),
    [
        (StringSerializer(), b"x", r"StringSerializer\('utf-8'\) takes a str, not a bytes"),
        (IntegerSerializer(), "7", r"IntegerSerializer\(\) takes an int of 32 bits, not a str"),
        (IntegerSerializer(), True, "not a bool"),
        (IntegerSerializer(), 1.0, "not a float"),
        (IntegerSerializer(), 2**31, "2147483648 is out of its range"),
        (ShortSerializer(), -(2**15) - 1, "is out of its range"),
        (LongSerializer(), 2**63, "is out of its range"),
        (FloatSerializer(), 1e39, "is out of its range"),
        (DoubleSerializer(), "1.0", "not a str"),
        (BooleanSerializer(), 1, "takes True or False, not a int"),
        (BytesSerializer(), [1], "not a list"),
        (UUIDSerializer(), "0123", "takes a uuid.UUID, not a str"),
    ],
)
def test_value_that_a_serializer_refuses_is_named(serializer: Serializer[Any], value: Any, message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        serializer.serialize("t", value)


@pytest.mark.parametrize(
    ("deserializer", "data"),
    [
        (IntegerDeserializer(), b"\0\0\0"),
        (LongDeserializer(), b"\0" * 9),
        (BooleanDeserializer(), b"\x02"),
        (BooleanDeserializer(), b""),
        (StringDeserializer(), b"\xff"),
        (UUIDDeserializer(), b"no uuid"),
        (JsonDeserializer(), b"{"),
    ],
)
def test_bytes_that_are_no_such_value_are_refused(deserializer: Deserializer[Any], data: bytes) -> None:
    with pytest.raises((SerializationError, ValueError)):
        deserializer.deserialize("t", data)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_json_has_no_nan_and_no_infinity(value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        JsonSerializer().serialize("t", value)


@pytest.mark.parametrize(
    ("config", "encoding"),
    [
        ({}, "utf-8"),
        ({"serializer_encoding": "latin-1"}, "latin-1"),
        ({"serializer_encoding": "latin-1", "key_serializer_encoding": "cp1252"}, "cp1252"),
        ({"value_serializer_encoding": "cp1252"}, "utf-8"),
    ],
)
def test_string_serializer_takes_its_encoding_from_the_configuration(config: dict[str, str], encoding: str) -> None:
    serializer = StringSerializer()
    serializer.configure(config, is_key=True)
    assert serializer.encoding == encoding


def test_an_encoding_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'utf-9' is not an encoding"):
        StringSerializer("utf-9")


def test_serialization_errors_are_kafka_errors_and_python_errors() -> None:
    assert issubclass(SerializationError, KafkaError)
    assert issubclass(SerializationError, TypeError)


def test_serializers_are_public() -> None:
    assert triokafka.StringSerializer is StringSerializer
    assert triokafka.Deserializer is Deserializer
