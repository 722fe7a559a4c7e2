"""embedded."""

from __future__ import annotations

from struct import Struct as Packer
from struct import error as struct_error
from typing import Final, Self

from triokafka.errors import ProtocolError
from triokafka.protocol.message import Message, Struct, field
from triokafka.protocol.primitives import Array, Bytes, Int32, String
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
        """The version and the message; the newest version unless told."""
        version = self.versions.max if version is None else version
        return _VERSION.pack(version) + self.encode(version)


class OwnedTopic(Struct):
    """One item of ``owned_partitions``."""

    topic: str = field(String, versions="1+", doc="Topic.")
    partitions: list[int] = field(Array(Int32), versions="1+", doc="Partitions.")


class ConsumerProtocolSubscription(EmbeddedMessage, versions="0-3"):
    """ConsumerProtocolSubscription."""

    topics: list[str] = field(Array(String), doc="Topics.")
    user_data: bytes | None = field(Bytes, nullable="0+", default=None, doc="User data.")
    owned_partitions: list[OwnedTopic] = field(
        Array(OwnedTopic),
        versions="1+",
        ignorable=True,
        doc="Owned partitions.",
    )
    generation_id: int = field(Int32, versions="2+", ignorable=True, default=-1, doc="Generation id.")
    rack_id: str | None = field(String, versions="3+", nullable="3+", ignorable=True, default=None, doc="Rack id.")


class AssignedTopic(Struct):
    """One item of ``assigned_partitions``."""

    topic: str = field(String, doc="Topic.")
    partitions: list[int] = field(Array(Int32), doc="Partitions.")


class ConsumerProtocolAssignment(EmbeddedMessage, versions="0-3"):
    """ConsumerProtocolAssignment."""

    assigned_partitions: list[AssignedTopic] = field(Array(AssignedTopic), doc="Assigned partitions.")
    user_data: bytes | None = field(Bytes, nullable="0+", default=None, doc="User data.")
