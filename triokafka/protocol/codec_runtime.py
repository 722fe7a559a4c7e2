"""Runtime of the generated codecs: rare paths (long varints, ids) and their internal exceptions.

Nothing here depends on a message. The exceptions never leave ``Message.decode`` and ``Message.encode``, which turn them
into ``ProtocolError`` and ``UnsupportedVersionError``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from struct import Struct
from typing import Any, Final, TypeVar
from uuid import UUID, SafeUUID

from triokafka.protocol.primitives import MAX_STRING, NIL_UUID
from triokafka.structs import Buffer
from triokafka.varint import encode_uvarint


class Malformed(Exception):
    """The input is malformed; the text gives the reason. The line of generated code that raised it gives the field."""


def too_much_memory(count: int) -> Malformed:
    """Return the error for an array that would take more memory than the message may."""
    return Malformed(f"{count} elements would take more memory than is allowed for the message")


class NotInVersion(Exception):
    """A value is set that the version to be encoded does not carry."""


ONE_BYTE: Final = [bytes((i,)) for i in range(256)]
"""Every single byte: the varints below 128."""


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits: value and next position. IndexError at the end of the data."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFF_FFFF:
                raise Malformed("varint does not fit 32 bits")
            return value, position
        shift += 7
        if shift > 28:
            raise Malformed("varint is longer than 5 bytes")


def read_string_length(data: Buffer, position: int) -> tuple[int, int]:
    """As `read_uvarint`, of the length + 1 of a compact string, which may be no longer than a plain one."""
    value, position = read_uvarint(data, position)
    _check_string(value - 1)
    return value, position


def _check_string(length: int) -> None:
    if length > MAX_STRING:
        raise Malformed(f"a string of {length} bytes is longer than {MAX_STRING}")


def read_zigzag(data: Buffer, position: int, bits: int) -> tuple[int, int]:
    """Read a zigzag varint of 32 or 64 bits: value and next position. IndexError at the end of the data."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> bits:
                raise Malformed(f"varint does not fit {bits} bits")
            return (value >> 1) ^ -(value & 1), position
        shift += 7
        if shift >= bits:
            raise Malformed("varint is too long")


def write_uvarint(value: int) -> bytes:
    """The bytes of an unsigned varint of 32 bits."""
    if not 0 <= value <= 0xFFFF_FFFF:
        raise Malformed(f"{value} does not fit an unsigned 32-bit varint")
    return encode_uvarint(value)


def write_string_length(value: int) -> bytes:
    """As `write_uvarint`, of the length + 1 of a compact string, which may be no longer than a plain one."""
    _check_string(value - 1)
    return encode_uvarint(value)


def write_zigzag(value: int, bits: int) -> bytes:
    """The bytes of a zigzag varint of 32 or 64 bits."""
    limit = 1 << (bits - 1)
    if not -limit <= value < limit:
        raise Malformed(f"{value} does not fit {bits} bits")
    return encode_uvarint(value << 1 if value >= 0 else ((-value) << 1) - 1)


_MAX_KNOWN_IDS: Final = 4096
_ids: dict[bytes, UUID] = {bytes(16): NIL_UUID}
_set = object.__setattr__


def uuid_of(raw: bytes) -> UUID:
    """The id of sixteen bytes. Topic ids come again with every request, so recent ones are kept."""
    found = _ids.get(raw)
    if found is None:
        # The constructor's checks cost more than the rest of a small message; the length is known to be right.
        found = object.__new__(UUID)
        _set(found, "int", int.from_bytes(raw, "big"))
        _set(found, "is_safe", SafeUUID.unknown)
        if len(_ids) >= _MAX_KNOWN_IDS:
            _ids.clear()
            _ids[bytes(16)] = NIL_UUID
        _ids[raw] = found
    return found


class ArrayPackers:
    """Structs for runs of one number type, by count; only small counts are kept."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.unpack: dict[int, Callable[..., tuple[Any, ...]]] = {}
        self.pack: dict[int, Callable[..., bytes]] = {}

    def make_unpack(self, count: int) -> Callable[..., tuple[Any, ...]]:
        """``unpack_from`` for ``count`` numbers."""
        unpack = Struct(f">{count}{self.code}").unpack_from
        if count <= 64:
            self.unpack[count] = unpack
        return unpack

    def make_pack(self, count: int) -> Callable[..., bytes]:
        """``pack`` for ``count`` numbers."""
        pack = Struct(f">{count}{self.code}").pack
        if count <= 64:
            self.pack[count] = pack
        return pack


ARRAYS: Final = {code: ArrayPackers(code) for code in "bhiqHId?"}


FEW_ELEMENTS: Final = 32
"""Encoders iterate over longer arrays with `in_portions`."""
MIN_PART_BYTES: Final = 1024
"""Smaller records are copied: that costs less than one more buffer."""
_MOST_PIECES: Final = 4096
"""Small pieces of a message after which they are joined. Each takes 50 bytes or more beside its content."""
_T = TypeVar("_T")


def in_portions(elements: Sequence[_T], out: list[Buffer], marks: list[int]) -> Iterator[_T]:
    """Iterate over the elements that an encoder appends to ``out``, and join the pieces whenever there are many.

    A joined piece is marked, like records, and never joined again.
    """
    limit = len(out) + _MOST_PIECES
    for element in elements:
        yield element
        if len(out) >= limit:
            while marks and len(out[marks[-1]]) < MIN_PART_BYTES:
                marks.pop()
            start = marks[-1] + 1 if marks else 1  # the first piece may be replaced by a header
            if len(out) - start >= _MOST_PIECES:
                out[start:] = [b"".join(out[start:])]
                marks.append(start)
            limit = len(out) + _MOST_PIECES
