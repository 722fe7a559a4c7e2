"""group_metadata."""

from __future__ import annotations

from triokafka.protocol.message import Struct, field
from triokafka.protocol.primitives import Array, Bytes, Int32, Int64, String
from triokafka.protocol.stored.versioned import VersionedMessage


class GroupMetadataKey(VersionedMessage, versions="2"):
    """GroupMetadataKey."""

    group: str = field(String, doc="Group.")


class MemberMetadata(Struct):
    """One item of ``members``."""

    member_id: str = field(String, doc="Member id.")
    group_instance_id: str | None = field(
        String,
        versions="3+",
        nullable="3+",
        ignorable=True,
        default=None,
        doc="Group instance id.",
    )
    client_id: str = field(String, doc="Client id.")
    client_host: str = field(String, doc="Client host.")
    rebalance_timeout: int = field(Int32, versions="1+", ignorable=True, default=-1, doc="Rebalance timeout.")
    session_timeout: int = field(Int32, doc="Session timeout.")
    subscription: bytes = field(Bytes, doc="Subscription.")
    assignment: bytes = field(Bytes, doc="Assignment.")


class GroupMetadataValue(VersionedMessage, versions="0-4", flexible="4+"):
    """GroupMetadataValue."""

    protocol_type: str = field(String, doc="Protocol type.")
    generation: int = field(Int32, doc="Generation.")
    protocol: str | None = field(String, nullable="0+", doc="Protocol.")
    leader: str | None = field(String, nullable="0+", doc="Leader.")
    current_state_timestamp: int = field(
        Int64,
        versions="2+",
        ignorable=True,
        default=-1,
        doc="Current state timestamp.",
    )
    members: list[MemberMetadata] = field(Array(MemberMetadata), doc="Members.")
