"""Kafka's wire types as construct subclasses: the readable reference of the format.

Every type here parses and builds by itself, checks every length against what is left of the input, and knows its
smallest size on the wire (``min_size``) and its value when nothing was set (``zero``). The codecs that run in
production are generated from trees of these (``compiler.py``) and tested equal to them.

A declaration names the plain form (``String``, ``Array(Int32)``); ``variant`` gives the form that one version of a
message uses: compact where the version is flexible, nullable where it allows null. No I/O, no message names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO, Final, NamedTuple
from uuid import UUID

from construct import (
    Construct,
    ConstructError,
    Container,
    FormatField,
    IntegerError,
    Renamed,
    StreamError,
    StringError,
    stream_read,
    stream_write,
)

from triokafka.errors import UnsupportedVersionError

NIL_UUID: Final = UUID(int=0)
"""The id that means "no id": the default of every id field."""

_MAX_UVARINT: Final = 0xFFFF_FFFF


def _remaining(stream: BinaryIO) -> int:
    here = stream.tell()
    end = stream.seek(0, 2)
    stream.seek(here)
    return end - here


class Number(FormatField):  # type: ignore[misc]  # construct has no types
    """A big-endian number of fixed size; ``code`` is its letter in the ``struct`` module."""

    def __init__(self, code: str, zero: object = 0) -> None:
        # construct knows the standard sizes as l and L only; they are the same four bytes.
        super().__init__(">", {"i": "l", "I": "L"}.get(code, code))
        self.code = code
        self.zero = zero
        self.min_size: int = self.length

    def variant(self, *, compact: bool, nullable: bool) -> Construct:
        """The form for one version: numbers have only one."""
        return self


class UuidType(Construct):  # type: ignore[misc]
    """Sixteen bytes, most significant first. Null does not exist: ``NIL_UUID`` stands for it."""

    zero: Final = NIL_UUID
    min_size: Final = 16

    def variant(self, *, compact: bool, nullable: bool) -> Construct:
        """The form for one version: ids have only one."""
        return self

    def _parse(self, stream: BinaryIO, context: Any, path: str) -> UUID:
        return UUID(bytes=stream_read(stream, 16, path))

    def _build(self, obj: UUID, stream: BinaryIO, context: Any, path: str) -> UUID:
        stream_write(stream, obj.bytes, 16, path)
        return obj

    def _sizeof(self, context: Any, path: str) -> int:
        return 16


class UVarIntType(Construct):  # type: ignore[misc]
    """Unsigned LEB128 of at most 32 bits: seven bits a byte, low bits first, at most five bytes."""

    zero: Final = 0
    min_size: Final = 1

    def _parse(self, stream: BinaryIO, context: Any, path: str) -> int:
        value = shift = 0
        byte: int
        while True:
            byte = stream_read(stream, 1, path)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                raise IntegerError("varint is longer than 5 bytes", path=path)
        if value > _MAX_UVARINT:
            raise IntegerError("varint does not fit 32 bits", path=path)
        return value

    def _build(self, obj: int, stream: BinaryIO, context: Any, path: str) -> int:
        if not 0 <= obj <= _MAX_UVARINT:
            raise IntegerError(f"{obj} does not fit an unsigned 32-bit varint", path=path)
        stream.write(encode_uvarint(obj))
        return obj


class VarIntType(Construct):  # type: ignore[misc]
    """Signed varint: zigzag over LEB128, as in records. ``bits`` is 32 or 64."""

    zero: Final = 0
    min_size: Final = 1

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.bits = bits

    def _parse(self, stream: BinaryIO, context: Any, path: str) -> int:
        value = shift = 0
        byte: int
        while True:
            byte = stream_read(stream, 1, path)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift >= self.bits:
                raise IntegerError("varint is too long", path=path)
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


def encode_uvarint(value: int) -> bytes:
    """The bytes of an unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(0x80 | (value & 0x7F))
        value >>= 7
    out.append(value)
    return bytes(out)


class LengthPrefixed(Construct):  # type: ignore[misc]
    """What starts with a length: an int16 or int32, or, compact, an unsigned varint of length + 1.

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
        if length * unit > _remaining(stream):
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
    """UTF-8 text."""

    code = "h"
    zero: Any = ""

    def _parse(self, stream: BinaryIO, context: Any, path: str) -> str | None:
        length = self._read_length(stream, path)
        if length is None:
            return None
        data: bytes = stream_read(stream, length, path)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise StringError(f"not UTF-8: {error}", path=path) from None

    def _build(self, obj: str | None, stream: BinaryIO, context: Any, path: str) -> str | None:
        data = None if obj is None else obj.encode()
        self._write_length(None if data is None else len(data), stream, path)
        stream.write(data or b"")
        return obj


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


class NullableStructure(Construct):  # type: ignore[misc]
    """A structure that may be null: one byte, negative for null, then the structure."""

    min_size: Final = 1

    def __init__(self, structure: Structure) -> None:
        super().__init__()
        self.structure = structure

    def _parse(self, stream: BinaryIO, context: Any, path: str) -> Any:
        if Int8._parse(stream, context, path) < 0:
            return None
        return self.structure._parsereport(stream, context, path)

    def _build(self, obj: Any, stream: BinaryIO, context: Any, path: str) -> Any:
        Int8._build(-1 if obj is None else 1, stream, context, path)
        if obj is not None:
            self.structure._build(obj, stream, context, path)
        return obj


class Absent(Construct):  # type: ignore[misc]
    """A field that this version does not carry: reads as its default; refuses to lose any other value."""

    min_size: Final = 0

    def __init__(self, default: object, *, ignorable: bool) -> None:
        super().__init__()
        self.default = default
        self.ignorable = ignorable

    def _parse(self, stream: BinaryIO, context: Any, path: str) -> Any:
        return list(self.default) if isinstance(self.default, (list, tuple)) else self.default

    def _build(self, obj: Any, stream: BinaryIO, context: Any, path: str) -> Any:
        default = list(self.default) if isinstance(self.default, tuple) else self.default
        if obj != default and not self.ignorable:
            raise UnsupportedVersionError(f"this version cannot carry {path}")
        return obj


class TaggedField(NamedTuple):
    """One optional field of a flexible version: written only when it differs from the default."""

    tag: int
    name: str
    subcon: Any
    default: object


class TaggedFields(Construct):  # type: ignore[misc]
    """The tagged section that ends every flexible structure: count, then tag, size and data of each, by ascending tag.

    Parses into ``(known, unknown)``: values by name, and the bytes of tags that this version does not know by tag. The
    order is not enforced on input (Kafka does not either); of a repeated tag the last one counts.
    """

    min_size: Final = 1

    def __init__(self, fields: Iterable[TaggedField] = ()) -> None:
        super().__init__()
        self.fields = {f.tag: f for f in fields}

    def _parse(self, stream: BinaryIO, context: Any, path: str) -> tuple[dict[str, Any], dict[int, bytes]]:
        known: dict[str, Any] = {}
        unknown: dict[int, bytes] = {}
        count = UVarInt._parse(stream, context, path)
        if count * 2 > _remaining(stream):
            raise StreamError(f"{count} tagged fields are more than what is left", path=path)
        for _ in range(count):
            tag = UVarInt._parse(stream, context, path)
            size = UVarInt._parse(stream, context, path)
            if size > _remaining(stream):
                raise StreamError(f"tagged field of {size} bytes is more than what is left", path=path)
            if tag not in self.fields:
                unknown[tag] = stream_read(stream, size, path)
                continue
            end = stream.tell() + size
            name = self.fields[tag].name
            known[name] = self.fields[tag].subcon._parsereport(stream, context, f"{path} -> {name}")
            if stream.tell() != end:
                raise StreamError(f"tagged field {name} has another size than announced", path=path)
        return known, unknown

    def _build(
        self, obj: tuple[Mapping[str, Any], Mapping[int, bytes]], stream: BinaryIO, context: Any, path: str
    ) -> Any:
        known, unknown = obj
        section = dict(unknown)
        for f in self.fields.values():
            default = list(f.default) if isinstance(f.default, tuple) else f.default
            if (value := known.get(f.name, default)) != default:
                section[f.tag] = f.subcon.build(value)
        stream.write(pack_tags(section))
        return obj


def pack_tags(section: Mapping[int, bytes]) -> bytes:
    """A whole tagged section from the data by tag."""
    out = [encode_uvarint(len(section))]
    for tag in sorted(section):
        out += (encode_uvarint(tag), encode_uvarint(len(section[tag])), section[tag])
    return b"".join(out)


class Structure(Construct):  # type: ignore[misc]
    """The fields of one declared structure in one version, in order; flexible versions end in tagged fields.

    Parses into a ``Container`` with every field of the declaration (also those that the version lacks, with their
    default) and ``unknown_tags`` where there were any; builds from any mapping. ``factory`` is the declared class.
    """

    def __init__(self, factory: Any, subcons: Iterable[Renamed], tagged: TaggedFields | None) -> None:
        super().__init__()
        self.factory = factory
        self.subcons = list(subcons)
        self.tagged = tagged
        self.min_size: int = sum(s.subcon.min_size for s in self.subcons) + (tagged is not None)

    def _parse(self, stream: BinaryIO, context: Any, path: str) -> Container:
        values = Container()
        for subcon in self.subcons:
            values[subcon.name] = subcon._parsereport(stream, context, path)
        if self.tagged is not None:
            known, unknown = self.tagged._parse(stream, context, path)
            for f in self.tagged.fields.values():
                default = list(f.default) if isinstance(f.default, tuple) else f.default
                values[f.name] = known.get(f.name, default)
            if unknown:
                values["unknown_tags"] = unknown
        return values

    def _build(self, obj: Mapping[str, Any], stream: BinaryIO, context: Any, path: str) -> Any:
        for subcon in self.subcons:
            subcon._build(obj[subcon.name], stream, context, path)
        if self.tagged is not None:
            self.tagged._build((obj, obj.get("unknown_tags", {})), stream, context, path)
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
    "NIL_UUID", "Absent", "Array", "ArrayType", "Boolean", "Bytes", "BytesType", "CompactBytes",
    "CompactNullableString", "CompactString", "ConstructError", "Float64", "Int8", "Int16", "Int32", "Int64",
    "LengthPrefixed", "NullableString", "NullableStructure", "Number", "Records", "RecordsType", "String",
    "StringType", "Structure", "TaggedField", "TaggedFields", "UInt16", "UInt32", "UVarInt", "Uuid", "UuidType",
    "VarInt", "VarLong", "encode_uvarint", "pack_tags",
]  # fmt: skip
