"""Serializers and deserializers: objects to bytes and back, for keys and values.

They are never called for null: a key or value None is sent as null, and null is returned as None. The built-in types
produce the same bytes as Kafka's Java client: numbers are big-endian, text is UTF-8 by default, a UUID is its text. If
the topic does not matter, a plain function is enough.
"""

from __future__ import annotations

import json
import struct
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

from triokafka.errors import ConfigurationError, SerializationError
from triokafka.structs import Buffer

T = TypeVar("T")

Headers = list[tuple[str, bytes | None]]


class Serializer(ABC, Generic[T]):
    """Turns keys or values into bytes (options ``key_serializer`` and ``value_serializer`` of a producer).

    A class is instantiated without arguments and configured; an object is used without configuration. One object may
    serve keys and values, and several producers.
    """

    def configure(self, config: Mapping[str, Any], is_key: bool) -> None:
        """Receive the producer's options and ``plugin_options`` once, before the first record."""

    @abstractmethod
    def serialize(self, topic: str, value: T, headers: Headers | None = None) -> Buffer | None:
        """Return the bytes of a key or value that is not None; returning None sends null.

        It must not block. ``headers`` is the record's list of headers, which it may extend. Its errors are the cause of
        the `SerializationError` that ``send`` raises.
        """

    def close(self) -> None:
        """Called when the producer's block is left."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class Deserializer(ABC, Generic[T]):
    """Turns bytes into keys or values (options ``key_deserializer`` and ``value_deserializer`` of a consumer).

    The counterpart of `Serializer`, created, configured and closed alike.
    """

    def configure(self, config: Mapping[str, Any], is_key: bool) -> None:
        """Receive the consumer's options and ``plugin_options`` once, before the first record."""

    @abstractmethod
    def deserialize(self, topic: str, data: bytes, headers: Headers | None = None) -> T:
        """Return the key or value of a record; never called for null. It must not block.

        Its errors are the cause of the `RecordDeserializationError` that the consumer's call raises.
        """

    def close(self) -> None:
        """Called when the consumer's block is left."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def _mismatch(serializer: object, expected: str, value: object) -> SerializationError:
    return SerializationError(f"{serializer!r} takes {expected}, not a {type(value).__name__}")


# ---------------------------------------------------------------- text and bytes


class _Encoded:
    """The encoding of text: an argument, or an option such as ``key_serializer_encoding`` read by ``configure``."""

    _ROLE: ClassVar[str]

    def __init__(self, encoding: str = "utf-8") -> None:
        self._use(encoding)

    def configure(self, config: Mapping[str, Any], is_key: bool) -> None:
        """Read ``key_serializer_encoding``, or the same for this role, or else ``serializer_encoding``."""
        specific = f"{'key' if is_key else 'value'}_{self._ROLE}_encoding"
        encoding = config.get(specific, config.get(f"{self._ROLE}_encoding"))
        if encoding is not None:
            self._use(encoding)

    def _use(self, encoding: str) -> None:
        try:
            "".encode(encoding)
        except (LookupError, TypeError):
            raise ConfigurationError(f"{encoding!r} is not an encoding of text; 'utf-8' is usual") from None
        self.encoding = encoding

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.encoding!r})"


class StringSerializer(_Encoded, Serializer[str]):
    """Text in an encoding, UTF-8 unless said otherwise."""

    _ROLE = "serializer"

    def serialize(self, topic: str, value: str, headers: Headers | None = None) -> bytes:
        """The encoded text."""
        if not isinstance(value, str):
            raise _mismatch(self, "a str", value)
        return value.encode(self.encoding)


class StringDeserializer(_Encoded, Deserializer[str]):
    """Text in an encoding, UTF-8 unless said otherwise."""

    _ROLE = "deserializer"

    def deserialize(self, topic: str, data: bytes, headers: Headers | None = None) -> str:
        """The decoded text. Bytes that are invalid in this encoding are an error."""
        return str(data, self.encoding)


class BytesSerializer(Serializer[Buffer]):
    """Bytes without conversion: ``bytes``, ``bytearray`` or ``memoryview``."""

    def serialize(self, topic: str, value: Buffer, headers: Headers | None = None) -> Buffer:
        """Return the bytes unchanged."""
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise _mismatch(self, "bytes, a bytearray or a memoryview", value)
        return value


class BytesDeserializer(Deserializer[bytes]):
    """Bytes without conversion."""

    def deserialize(self, topic: str, data: bytes, headers: Headers | None = None) -> bytes:
        """Return the bytes unchanged."""
        return bytes(data)


# ---------------------------------------------------------------- numbers


class _PackedSerializer(Serializer[T]):
    """A value of fixed size, big-endian."""

    FORMAT: ClassVar[struct.Struct]
    EXPECTED: ClassVar[str]
    TYPES: ClassVar[tuple[type, ...]]

    def serialize(self, topic: str, value: T, headers: Headers | None = None) -> bytes:
        """The value's bytes. Another type, or a number out of range, is an error."""
        if not isinstance(value, self.TYPES) or (isinstance(value, bool) and bool not in self.TYPES):
            raise _mismatch(self, self.EXPECTED, value)
        try:
            return self.FORMAT.pack(value)
        except (struct.error, OverflowError):
            raise SerializationError(f"{self!r} takes {self.EXPECTED}; {value!r} is out of its range") from None


class _PackedDeserializer(Deserializer[T]):
    """A value of fixed size, big-endian."""

    FORMAT: ClassVar[struct.Struct]

    def deserialize(self, topic: str, data: bytes, headers: Headers | None = None) -> T:
        """The value. Bytes of another length are an error."""
        if len(data) != self.FORMAT.size:
            raise SerializationError(f"{self!r} takes {self.FORMAT.size} bytes, not {len(data)}")
        value: T = self.FORMAT.unpack(data)[0]
        return value


class ShortSerializer(_PackedSerializer[int]):
    """Whole numbers of 16 bits."""

    FORMAT, EXPECTED, TYPES = struct.Struct(">h"), "an int of 16 bits", (int,)


class ShortDeserializer(_PackedDeserializer[int]):
    """Whole numbers of 16 bits."""

    FORMAT = struct.Struct(">h")


class IntegerSerializer(_PackedSerializer[int]):
    """Whole numbers of 32 bits."""

    FORMAT, EXPECTED, TYPES = struct.Struct(">i"), "an int of 32 bits", (int,)


class IntegerDeserializer(_PackedDeserializer[int]):
    """Whole numbers of 32 bits."""

    FORMAT = struct.Struct(">i")


class LongSerializer(_PackedSerializer[int]):
    """Whole numbers of 64 bits."""

    FORMAT, EXPECTED, TYPES = struct.Struct(">q"), "an int of 64 bits", (int,)


class LongDeserializer(_PackedDeserializer[int]):
    """Whole numbers of 64 bits."""

    FORMAT = struct.Struct(">q")


class FloatSerializer(_PackedSerializer[float]):
    """Floating-point numbers of 32 bits: the nearest to the given number."""

    FORMAT, EXPECTED, TYPES = struct.Struct(">f"), "a float of 32 bits", (float, int)


class FloatDeserializer(_PackedDeserializer[float]):
    """Floating-point numbers of 32 bits."""

    FORMAT = struct.Struct(">f")


class DoubleSerializer(_PackedSerializer[float]):
    """Floating-point numbers of 64 bits, which are Python's own."""

    FORMAT, EXPECTED, TYPES = struct.Struct(">d"), "a float of 64 bits", (float, int)


class DoubleDeserializer(_PackedDeserializer[float]):
    """Floating-point numbers of 64 bits, which are Python's own."""

    FORMAT = struct.Struct(">d")


class BooleanSerializer(_PackedSerializer[bool]):
    """True and False, as a byte 1 or 0."""

    FORMAT, EXPECTED, TYPES = struct.Struct(">?"), "True or False", (bool,)


class BooleanDeserializer(_PackedDeserializer[bool]):
    """True and False. A byte that is neither 1 nor 0 is an error."""

    FORMAT = struct.Struct(">?")

    def deserialize(self, topic: str, data: bytes, headers: Headers | None = None) -> bool:
        """True or False."""
        if len(data) == 1 and data[0] > 1:
            raise SerializationError(f"{self!r} takes a byte 0 or 1, not {data[0]}")
        return super().deserialize(topic, data)


# ---------------------------------------------------------------- composed


class UUIDSerializer(Serializer[uuid.UUID]):
    """UUIDs as their text of 36 characters, which is how Java's client writes them."""

    def serialize(self, topic: str, value: uuid.UUID, headers: Headers | None = None) -> bytes:
        """The text's bytes."""
        if not isinstance(value, uuid.UUID):
            raise _mismatch(self, "a uuid.UUID", value)
        return str(value).encode()


class UUIDDeserializer(Deserializer[uuid.UUID]):
    """UUIDs from their text."""

    def deserialize(self, topic: str, data: bytes, headers: Headers | None = None) -> uuid.UUID:
        """The UUID."""
        return uuid.UUID(str(data, "ascii"))


class JsonSerializer(Serializer[Any]):
    """JSON without spaces, in UTF-8. Numbers that JSON does not have (NaN, infinity) are an error.

    None is not serialized: it is sent as null, a tombstone, not as the JSON text ``null``.
    """

    def serialize(self, topic: str, value: Any, headers: Headers | None = None) -> bytes:
        """The text's bytes."""
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


class JsonDeserializer(Deserializer[Any]):
    """JSON in UTF-8."""

    def deserialize(self, topic: str, data: bytes, headers: Headers | None = None) -> Any:
        """The decoded object."""
        return json.loads(bytes(data))
