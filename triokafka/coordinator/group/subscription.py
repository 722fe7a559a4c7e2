"""Which topics the consumers of a group want, as far as their metadata says so.

The coordinator hands metadata through without looking at it, with one exception: offsets of topics that somebody still
wants neither expire nor may be deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from triokafka.errors import ProtocolError
from triokafka.protocol.message import Message, field
from triokafka.protocol.primitives import Array, Bytes, String

CONSUMER_PROTOCOL_TYPE: Final = "consumer"


class ConsumerProtocolSubscription(Message, versions="0"):
    """What a consumer says about itself when it joins; a version number of two bytes stands before it.

    All versions begin so. Of newer ones nothing else is read, as in Kafka: some clients name a version and leave out
    what it added.
    """

    topics: list[str] = field(Array(String), doc="The topics that it wants.")
    user_data: bytes | None = field(Bytes, nullable="0+", default=None, doc="For its assignor.")


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """The topics that any of the members wants; None when one of them cannot be read."""
    topics: set[str] = set()
    for one in metadata:
        try:
            if len(one) < 2:
                return None
            if int.from_bytes(one[:2], "big", signed=True) < 0:
                return None
            topics.update(ConsumerProtocolSubscription.decode_prefix(one, 0, 2).topics)
        except ProtocolError:
            return None
    return frozenset(topics)
