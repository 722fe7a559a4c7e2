"""Stored messages that start with their version in two bytes: what coordinators keep in their topics."""

from __future__ import annotations

from struct import Struct as Packer
from struct import error as struct_error
from typing import Final, Self

from triokafka.errors import ProtocolError
from triokafka.protocol.message import Message
from triokafka.structs import Buffer

_VERSION: Final = Packer(">h")


class VersionedMessage(Message):
    """A key or value of a coordinator's topic. The version of a key also says what kind of record it is."""

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
