"""Messages in the opaque bytes of other messages: of the consumer protocol, and principals of clients.

All start with their version in two bytes. A reader of an older version ignores the fields that a newer version
appended, so clients of different versions can share a group.
"""

from __future__ import annotations

from struct import Struct as Packer
from struct import error as struct_error
from typing import Final, Self

from triokafka.errors import ProtocolError
from triokafka.protocol.message import Message
from triokafka.structs import Buffer

_VERSION: Final = Packer(">h")


class EmbeddedMessage(Message):
    """A message inside another one's bytes, preceded by its own version."""

    @classmethod
    def decode_versioned(cls, data: Buffer) -> Self:
        """Read the version and the message; of a newer version than ours the fields that we know.

        Raises:
            ProtocolError: the bytes are no such message.
        """
        try:
            (version,) = _VERSION.unpack_from(data)
        except struct_error:
            raise ProtocolError("the data ends early", path=cls.__name__, offset=0) from None
        if version < 0:
            raise ProtocolError(f"negative version {version}", path=f"{cls.__name__}.version", offset=0)
        return cls.decode_prefix(data, min(version, cls.versions.max), _VERSION.size)

    def encode_versioned(self, version: int | None = None) -> bytes:
        """Return the encoded version and message; the newest version by default."""
        version = self.versions.max if version is None else version
        return _VERSION.pack(version) + self.encode(version)
