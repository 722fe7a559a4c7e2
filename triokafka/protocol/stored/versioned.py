"""Stored messages that start with their version in two bytes: what coordinators keep in their topics.

There are millions of some kinds: those can be written from, and read into, the plain tuple of their fields.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct as Packer
from struct import error as struct_error
from typing import Any, ClassVar, Final, Self

from triokafka.errors import ProtocolError
from triokafka.protocol import compiler
from triokafka.protocol.message import Message
from triokafka.structs import Buffer

_VERSION: Final = Packer(">h")


class VersionedMessage(Message):
    """A key or value of a coordinator's topic. The version of a key also identifies the kind of the record."""

    _values_decoders: ClassVar[dict[int, Callable[[bytes, int], tuple[Any, ...]]]]
    _values_encoders: ClassVar[dict[int, Callable[[Sequence[Any], list[Buffer], list[int]], None]]]

    def __init_subclass__(cls, *, versions: str = "none", flexible: str = "none") -> None:
        super().__init_subclass__(versions=versions, flexible=flexible)
        cls._values_decoders = {}
        cls._values_encoders = {}

    @classmethod
    def encode_values(cls, values: Sequence[Any], version: int) -> bytes:
        """As `encode_versioned` of an object with these values of the declared fields, in their order, without one.

        Raises the same as ``encode``, and `TypeError` for messages with tagged fields of varying size.
        """
        encoder = cls._values_encoders.get(version) or compiler.make_values_encoder(cls, version)
        out: list[Buffer] = [_VERSION.pack(version)]
        try:
            encoder(values, out, [])
            return b"".join(out)
        except compiler.ENCODE_FAILURES as error:
            compiler.raise_encode_error(cls, version, error)

    @classmethod
    def decode_values(cls, data: bytes) -> tuple[Any, ...]:
        """The values of the declared fields, in their order; tags that are not known are dropped. Raises as
        `decode_versioned`."""
        version = stored_version(data, cls.__name__)
        decoder = cls._values_decoders.get(version) or compiler.make_values_decoder(cls, version)
        try:
            return decoder(data, _VERSION.size)
        except compiler.DECODE_FAILURES as error:
            compiler.raise_decode_error(cls, error)

    def encode_versioned(self, version: int) -> bytes:
        """Two bytes of version, then the message. Raises the same as ``encode``."""
        out: list[Buffer] = [_VERSION.pack(version)]
        self.encode_into(out, [], version)
        return b"".join(out)

    @classmethod
    def decode_versioned(cls, data: Buffer) -> Self:
        """Read what `encode_versioned` wrote.

        Raises:
            ProtocolError: the bytes are no such message.
            UnsupportedVersionError: it was written in a version that this class does not have.
        """
        if type(data) is bytes and len(data) >= _VERSION.size:
            return cls.decode(data, _VERSION.unpack_from(data)[0], _VERSION.size)
        return cls.decode(data, stored_version(data, cls.__name__), _VERSION.size)


def stored_version(data: Buffer, path: str = "version") -> int:
    """The version that a stored message starts with; for keys, the kind of record.

    Raises:
        ProtocolError: fewer than two bytes.
    """
    try:
        (version,) = _VERSION.unpack_from(data)
    except struct_error:
        raise ProtocolError("the data ends early", path=path, offset=0) from None
    return int(version)
