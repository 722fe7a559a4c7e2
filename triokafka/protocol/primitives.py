"""Kafka's wire types as construct subclasses: the readable reference of the format.

Every type here parses and builds by itself, checks every length against the remaining input, and knows its
smallest size on the wire (``min_size``) and its value when nothing was set (``zero``). The codecs that run in
production are generated from trees of these (``compiler.py``) and tested equal to them.

A declaration names the plain form (``String``, ``Array(Int32)``); ``variant`` gives the form that one version of a
message uses: compact where the version is flexible, nullable where it allows null. No I/O, no message names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, BinaryIO, Final, Self
from uuid import UUID

from construct import (
    Construct,
    FormatField,
    IntegerError,
    StreamError,
    StringError,
    stream_read,
    stream_write,
)

from triokafka.varint import encode_uvarint

NIL_UUID: Final = UUID(int=0)
"""The id that means "no id": the default of every id field."""

MAX_STRING: Final = 32_767
"""Bytes of a string, also of a compact one, whose length would have room for more: what one version of a message
carries, others and records must be able to carry as well."""

_MAX_UVARINT: Final = 0xFFFF_FFFF


def remaining(stream: BinaryIO) -> int:
    """How many bytes the stream has left."""
    here = stream.tell()
    end = stream.seek(0, 2)
    stream.seek(here)
    return end - here


class _OneForm:
    """A type that looks the same in every version."""

    def variant(self, *, compact: bool, nullable: bool) -> Self:
        """The form for one version: itself."""
        return self


class Number(_OneForm, FormatField):  # type: ignore[misc]  # construct has no types
    """A big-endian number of fixed size; ``code`` is its letter in the ``struct`` module."""

    def __init__(self, code: str, zero: object = 0) -> None:
        # construct knows the standard sizes as l and L only; they are the same four bytes.
        super().__init__(">", {"i": "l", "I": "L"}.get(code, code))
        self.code = code
        self.zero = zero
        self.min_size: int = self.length


class UuidType(_OneForm, Construct):  # type: ignore[misc]
    """Sixteen bytes, most significant first. Null does not exist: ``NIL_UUID`` stands for it."""

    zero: Final = NIL_UUID
    min_size: Final = 16

    def _parse(self, stream: BinaryIO, context: Any, path: str) -> UUID:
        return UUID(bytes=stream_read(stream, 16, path))

    def _build(self, obj: UUID, stream: BinaryIO, context: Any, path: str) -> UUID:
        stream_write(stream, obj.bytes, 16, path)
        return obj

    def _sizeof(self, context: Any, path: str) -> int:
        return 16


def _read_leb128(stream: BinaryIO, path: str, *, most_bytes: int, too_long: str) -> int:
    """Read seven bits a byte, low bits first; the highest bit says that another byte follows."""
    value = 0
    for number in range(most_bytes):
        byte: int = stream_read(stream, 1, path)[0]
        value |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            return value
    raise IntegerError(too_long, path=path)


class UVarIntType(_OneForm, Construct):  # type: ignore[misc]
    """Unsigned LEB128 of at most 32 bits: seven bits a byte, low bits first, at most five bytes."""

    zero: Final = 0
    min_size: Final = 1

    def _parse(self, stream: BinaryIO, context: Any, path: str) -> int:
        value = _read_leb128(stream, path, most_bytes=5, too_long="varint is longer than 5 bytes")
        if value > _MAX_UVARINT:
            raise IntegerError("varint does not fit 32 bits", path=path)
        return value

    def _build(self, obj: int, stream: BinaryIO, context: Any, path: str) -> int:
        if not 0 <= obj <= _MAX_UVARINT:
            raise IntegerError(f"{obj} does not fit an unsigned 32-bit varint", path=path)
        stream.write(encode_uvarint(obj))
        return obj


class VarIntType(_OneForm, Construct):  # type: ignore[misc]
    """Signed varint: zigzag over LEB128, as in records. ``bits`` is 32 or 64."""

    zero: Final = 0
    min_size: Final = 1

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.bits = bits

    def _parse(self, stream: BinaryIO, context: Any, path: str) -> int:
        value = _read_leb128(stream, path, most_bytes=(self.bits + 6) // 7, too_long="varint is too long")
        if value >> self.bits:
            raise IntegerError(f"varint does not fit {self.bits} bits", path=path)
        return (value >> 1) ^ -(value & 1)

    def _build(self, obj: int, stream: BinaryIO, context: Any, path: str) -> int:
        limit = 1 << (self.bits - 1)
        if not -limit <= obj < limit:
            raise IntegerError(f"{obj} does not fit {self.bits} bits", path=path)
        value = obj << 1 if obj >= 0 else ((-obj) << 1) - 1
        stream.write(encode_uvarint(value))
        return obj


class LengthPrefixed(Construct):  # type: ignore[misc]
    """A value with a length prefix: an int16 or int32, or, compact, an unsigned varint of length + 1.

    Null is -1, or compact 0.
    """

    code = "i"
    zero: Any = None

    def __init__(self, *, compact: bool = False, nullable: bool = False) -> None:
        super().__init__()
        self.compact = compact
        self.nullable = nullable
        self.min_size = 1 if compact else 2 if self.code == "h" else 4

    def variant(self, *, compact: bool, nullable: bool) -> Construct:
        """The form for one version."""
        return type(self)(compact=compact, nullable=nullable)

    def _read_length(self, stream: BinaryIO, path: str, unit: int = 1) -> int | None:
        if self.compact:
            length = UVarInt._parse(stream, None, path) - 1
        else:
            length = (Int16 if self.code == "h" else Int32)._parse(stream, None, path)
        if length == -1:
            if not self.nullable:
                raise StreamError("null where it is not allowed", path=path)
            return None
        if length < 0:
            raise StreamError(f"negative length {length}", path=path)
        if length * unit > remaining(stream):
            raise StreamError(f"length {length} is more than what is left", path=path)
        return int(length)

    def _write_length(self, length: int | None, stream: BinaryIO, path: str) -> None:
        if length is None and not self.nullable:
            raise StreamError("null where it is not allowed", path=path)
        length = -1 if length is None else length
        if self.compact:
            UVarInt._build(length + 1, stream, None, path)
        else:
            (Int16 if self.code == "h" else Int32)._build(length, stream, None, path)


class StringType(LengthPrefixed):
    """UTF-8 text. Bytes that are not become replacement characters when they are read, as in Java."""

    code = "h"
    zero: Any = ""

    def _parse(self, stream: BinaryIO, context: Any, path: str) -> str | None:
        length = self._read_length(stream, path)
        if length is None:
            return None
        _check_string(length, path)
        data: bytes = stream_read(stream, length, path)
        return data.decode("utf-8", "replace")

    def _build(self, obj: str | None, stream: BinaryIO, context: Any, path: str) -> str | None:
        data = None if obj is None else obj.encode()
        _check_string(len(data or b""), path)
        self._write_length(None if data is None else len(data), stream, path)
        stream.write(data or b"")
        return obj


def _check_string(length: int, path: str) -> None:
    if length > MAX_STRING:
        raise StringError(f"a string of {length} bytes is longer than {MAX_STRING}", path=path)


class BytesType(LengthPrefixed):
    """Opaque bytes, copied out of the input."""

    zero: Any = b""

    def _parse(self, stream: BinaryIO, context: Any, path: str) -> bytes | None:
        length = self._read_length(stream, path)
        return None if length is None else stream_read(stream, length, path)

    def _build(self, obj: bytes | None, stream: BinaryIO, context: Any, path: str) -> bytes | None:
        self._write_length(None if obj is None else len(obj), stream, path)
        stream.write(obj or b"")
        return obj


class RecordsType(BytesType):
    """Record batches: opaque here. Generated decoders give a slice of the input, without a copy."""

    zero = None


class ArrayType(LengthPrefixed):
    """A list of one type."""

    zero = ()

    def __init__(self, element: Any, *, compact: bool = False, nullable: bool = False) -> None:
        super().__init__(compact=compact, nullable=nullable)
        self.element = element

    def of(self, element: Construct, *, compact: bool, nullable: bool) -> Construct:
        """The form for one version, with the element's form for it."""
        return type(self)(element, compact=compact, nullable=nullable)

    def _parse(self, stream: BinaryIO, context: Any, path: str) -> list[Any] | None:
        count = self._read_length(stream, path, self.element.min_size)
        if count is None:
            return None
        return [self.element._parsereport(stream, context, path) for _ in range(count)]

    def _build(self, obj: Iterable[Any] | None, stream: BinaryIO, context: Any, path: str) -> Any:
        items = None if obj is None else list(obj)
        self._write_length(None if items is None else len(items), stream, path)
        for item in items or ():
            self.element._build(item, stream, context, path)
        return obj


Int8: Final = Number("b")
Int16: Final = Number("h")
Int32: Final = Number("i")
Int64: Final = Number("q")
UInt16: Final = Number("H")
UInt32: Final = Number("I")
Float64: Final = Number("d", 0.0)
Boolean: Final = Number("?", False)
Uuid: Final = UuidType()
UVarInt: Final = UVarIntType()
VarInt: Final = VarIntType(32)
VarLong: Final = VarIntType(64)
String: Final = StringType()
CompactString: Final = StringType(compact=True)
NullableString: Final = StringType(nullable=True)
CompactNullableString: Final = StringType(compact=True, nullable=True)
Bytes: Final = BytesType()
CompactBytes: Final = BytesType(compact=True)
Records: Final = RecordsType()
Array: Final = ArrayType

__all__ = [
    "MAX_STRING",
    "NIL_UUID", "Array", "ArrayType", "Boolean", "Bytes", "BytesType", "CompactBytes", "CompactNullableString",
    "CompactString", "Float64", "Int8", "Int16", "Int32", "Int64", "LengthPrefixed", "NullableString", "Number",
    "Records", "RecordsType", "String", "StringType", "UInt16", "UInt32", "UVarInt", "UVarIntType", "Uuid", "UuidType",
    "VarInt", "VarIntType", "VarLong", "remaining",
]  # fmt: skip
