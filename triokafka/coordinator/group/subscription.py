"""Which topics the consumers of a group want, as far as their metadata says so.

The coordinator hands metadata through without looking at it, with one exception: offsets of topics that somebody still
wants neither expire nor may be deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from triokafka.errors import ProtocolError
from triokafka.protocol.message import Message, Struct, field
from triokafka.protocol.primitives import Array, Bytes, Int32, String

CONSUMER_PROTOCOL_TYPE: Final = "consumer"


class OwnedPartitions(Struct):
    """Partitions of one topic that a member holds."""

    topic: str = field(String, versions="1+", doc="The topic.")
    partitions: list[int] = field(Array(Int32), versions="1+", doc="Its partitions.")


class ConsumerProtocolSubscription(Message, versions="0-3"):
    """What a consumer says about itself when it joins; a version number of two bytes stands before it."""

    topics: list[str] = field(Array(String), doc="The topics that it wants.")
    user_data: bytes | None = field(Bytes, nullable="0+", default=None, doc="For its assignor.")
    owned_partitions: list[OwnedPartitions] = field(
        Array(OwnedPartitions), versions="1+", ignorable=True, doc="What it holds already (KIP-429)."
    )
    generation_id: int = field(
        Int32, versions="2+", default=-1, ignorable=True, doc="The generation that it holds them of (KIP-792)."
    )
    rack_id: str | None = field(
        String, versions="3+", nullable="3+", default=None, ignorable=True, doc="Where it runs (KIP-881)."
    )


_NEWEST: Final = ConsumerProtocolSubscription.versions.max


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """The topics that any of the members wants; None when one of them cannot be read."""
    topics: set[str] = set()
    for one in metadata:
        try:
            if len(one) < 2:
                return None
            version = int.from_bytes(one[:2], "big", signed=True)
            if version < 0:
                return None
            topics.update(ConsumerProtocolSubscription.decode(one, min(version, _NEWEST), 2).topics)
        except ProtocolError:
            return None
    return frozenset(topics)
