"""The constructs that put wire types together: structures of fields, structures that may be null, tagged sections.

`Structure` is a declaration in one version; codecs are generated from it, and it parses and builds by itself as their
reference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO, Final

from construct import Construct, Container, Renamed, StreamError, stream_read

from triokafka.errors import UnsupportedVersionError
from triokafka.named_tuple import NamedTuple
from triokafka.protocol.primitives import Int8, Number, UuidType, UVarInt, encode_uvarint, remaining


class NullableStructure(Construct):  # type: ignore[misc]
    """A structure that may be null: one byte, negative for null (in a tagged field zero), then the structure."""

    min_size: Final = 1

    def __init__(self, structure: Structure, *, tagged: bool = False) -> None:
        super().__init__()
        self.structure = structure
        self.null = 0 if tagged else -1

    def _parse(self, stream: BinaryIO, context: Any, path: str) -> Any:
        if Int8._parse(stream, context, path) <= self.null:
            return None
        return self.structure._parsereport(stream, context, path)

    def _build(self, obj: Any, stream: BinaryIO, context: Any, path: str) -> Any:
        Int8._build(self.null if obj is None else 1, stream, context, path)
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

    def lone_fixed(self) -> tuple[TaggedField, bytes, int] | None:
        """When there is one field, of a fixed size: the field, with what is before its data when it stands alone (the
        count, its tag and its size), and that size."""
        if len(self.fields) != 1:
            return None
        (only,) = self.fields.values()
        wire = only.subcon.subcon if isinstance(only.subcon, Renamed) else only.subcon
        if not isinstance(wire, (Number, UuidType)):
            return None
        size = wire.min_size
        return only, b"".join(map(encode_uvarint, (1, only.tag, size))), size

    def _parse(self, stream: BinaryIO, context: Any, path: str) -> tuple[dict[str, Any], dict[int, bytes]]:
        known: dict[str, Any] = {}
        unknown: dict[int, bytes] = {}
        count = UVarInt._parse(stream, context, path)
        if count * 2 > remaining(stream):
            raise StreamError(f"{count} tagged fields are more than what is left", path=path)
        for _ in range(count):
            tag = UVarInt._parse(stream, context, path)
            size = UVarInt._parse(stream, context, path)
            if size > remaining(stream):
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
