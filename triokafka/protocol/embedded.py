"""Messages in the opaque bytes of other messages: subscriptions and assignments of consumers, principals of clients.

All start with their version in two bytes. A reader of an older version ignores the fields that a newer version
appended, so clients of different versions can share a group. Principals have version 0 only. Subscriptions and
assignments have versions 0–3. v1: owned partitions (KIP-429). v2: generation. v3: rack (KIP-881).
"""

from __future__ import annotations

from functools import partial
from struct import Struct as Packer
from struct import error as struct_error
from typing import Final, Self

from triokafka.errors import ProtocolError
from triokafka.protocol.message import Message, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Bytes, Int32, String
from triokafka.structs import Buffer

_VERSION: Final = Packer(">h")


_user_data = partial(field, Bytes, default=None, doc="Data of the assignment strategy; null for none.")


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


class OwnedTopic(Struct):
    """Partitions of one topic that the member owns."""

    topic: str = field(String, versions="1+", doc="The topic's name.")
    partitions: list[int] = field(Array(Int32), versions="1+", doc="The partitions' numbers.")


class ConsumerProtocolSubscription(EmbeddedMessage, versions="0-3"):
    """A member's subscription, which the group's leader receives."""

    topics: list[str] = field(Array(String), doc="The topics that the member subscribes to.")
    user_data: bytes | None = _user_data(nullable="0+")
    owned_partitions: list[OwnedTopic] = field(
        Array(OwnedTopic),
        versions="1+",
        ignorable=True,
        doc="The partitions that the member owned when it joined, for cooperative rebalancing.",
    )
    generation_id: int = field(
        Int32,
        versions="2+",
        ignorable=True,
        default=-1,
        doc="The generation in which it owned them; -1 when unknown.",
    )
    rack_id: str | None = field(
        String,
        versions="3+",
        nullable="3+",
        ignorable=True,
        default=None,
        doc="The member's rack; null for none.",
    )


class AssignedTopic(Struct):
    """Partitions of one topic for the member."""

    topic: str = field(String, doc="The topic's name.")
    partitions: list[int] = field(Array(Int32), doc="The partitions' numbers.")


class ConsumerProtocolAssignment(EmbeddedMessage, versions="0-3"):
    """The leader's assignment for one member."""

    assigned_partitions: list[AssignedTopic] = field(Array(AssignedTopic), doc="The member's partitions by topic.")
    user_data: bytes | None = _user_data(nullable="0+")


class DefaultPrincipalData(EmbeddedMessage, versions="0", flexible="0+"):
    """The principal of a client whose request a broker forwards to the controller (KIP-590)."""

    type: str = field(String, doc="The principal's type, as in ``User``.")
    name: str = field(String, doc="The principal's name.")
    token_authenticated: bool = field(Boolean, doc="Whether a delegation token authenticated the client.")
