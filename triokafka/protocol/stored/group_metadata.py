"""Records of ``__consumer_offsets`` that hold the state of a classic group. Keys start with 2.

The coordinator writes one when a generation is complete; a null value deletes the group.
"""

from __future__ import annotations

from triokafka.protocol import fields
from triokafka.protocol.message import Struct, field
from triokafka.protocol.primitives import Array, Bytes, Int32, Int64, String
from triokafka.protocol.stored.versioned import VersionedMessage


class GroupMetadataKey(VersionedMessage, versions="2"):
    """The group."""

    group: str = field(String, doc="The group's id.")


class MemberMetadata(Struct):
    """A member of the generation."""

    member_id: str = field(String, doc="The member's id.")
    group_instance_id: str | None = fields.static_member_name(versions="3+", nullable="3+", ignorable=True)
    client_id: str = field(String, doc="The client id that it joined with.")
    client_host: str = field(String, doc="The host that it joined from.")
    rebalance_timeout: int = field(
        Int32,
        versions="1+",
        ignorable=True,
        default=-1,
        doc="Its rebalance timeout in milliseconds; -1 for the session timeout.",
    )
    session_timeout: int = field(Int32, doc="Its session timeout in milliseconds.")
    subscription: bytes = field(Bytes, doc="Its data for the chosen protocol.")
    assignment: bytes = field(Bytes, doc="Its part of the assignment.")


class GroupMetadataValue(VersionedMessage, versions="0-4", flexible="4+"):
    """The group's last complete generation."""

    protocol_type: str = field(String, doc="The kind of group: ``consumer`` for consumers.")
    generation: int = field(Int32, doc="The generation's number.")
    protocol: str | None = field(
        String,
        nullable="0+",
        doc="The protocol that was chosen; null while the group is empty.",
    )
    leader: str | None = field(String, nullable="0+", doc="The leader's member id; null while the group is empty.")
    current_state_timestamp: int = field(
        Int64,
        versions="2+",
        ignorable=True,
        default=-1,
        doc="When the group came into its state, in milliseconds; -1 when unknown.",
    )
    members: list[MemberMetadata] = field(Array(MemberMetadata), doc="The members; empty when the group is.")
