"""Tagged fields (KIP-482): the section of optional fields that ends every structure of a flexible version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO, Final

from construct import Construct, Renamed, StreamError, stream_read

from triokafka.named_tuple import NamedTuple
from triokafka.protocol.codec_runtime import Malformed, read_uvarint
from triokafka.protocol.primitives import Number, UuidType, UVarInt, remaining
from triokafka.structs import Buffer
from triokafka.varint import encode_uvarint


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


def read_unknown_tags(data: Buffer, position: int, end: int) -> tuple[bytes | None, int]:
    """Read a tagged section of which no tag is known: its fields as raw bytes, and the next position."""
    count, position = read_uvarint(data, position)
    start = position
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        position += size
        if position > end:
            raise Malformed(f"tagged field of {size} bytes is more than what is left")
    return bytes(data[start:position]) or None, position


def parse_raw_tags(raw: bytes) -> dict[int, bytes]:
    """Tagged fields by tag from their concatenated encodings, as decoders keep them."""
    tags = {}
    position = 0
    while position < len(raw):
        tag, position = read_uvarint(raw, position)
        size, position = read_uvarint(raw, position)
        tags[tag] = raw[position : position + size]
        position += size
    return tags


def tag_section(unknown: Mapping[int, bytes], known: Mapping[int, bytes]) -> bytes:
    """The tagged section with unknown and known fields, by ascending tag."""
    return pack_tags({**unknown, **known})


def check_size(position: int, end: int) -> None:
    """Refuse a tagged field whose data was shorter or longer than announced."""
    if position != end:
        raise Malformed("tagged field has another size than announced")
