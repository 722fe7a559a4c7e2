"""The consumer protocol of classic groups: subscriptions and assignments, in bytes of JoinGroup and SyncGroup.

Versions 0–3. v1: owned partitions (KIP-429). v2: generation. v3: rack (KIP-881).
"""

from __future__ import annotations

from functools import partial

from triokafka.protocol.embedded_message import EmbeddedMessage
from triokafka.protocol.message import Struct, field
from triokafka.protocol.primitives import Array, Bytes, Int32, String

_user_data = partial(field, Bytes, default=None, doc="Data of the assignment strategy; null for none.")


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
