"""The topics that the consumers of a group subscribe to, read from their metadata.

The coordinator passes metadata through unread, with one exception: committed offsets of subscribed topics neither
expire nor can be deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from triokafka.errors import ProtocolError
from triokafka.protocol.message import Message, field
from triokafka.protocol.primitives import Array, Bytes, String

CONSUMER_PROTOCOL_TYPE: Final = "consumer"


class SubscriptionHead(Message, versions="0"):
    """The head of the consumer protocol's subscription; a two-byte version number precedes it.

    All versions start with these fields. Like Kafka, this reads nothing that newer versions added: some clients name a
    version and omit its fields.
    """

    topics: list[str] = field(Array(String), doc="The subscribed topics.")
    user_data: bytes | None = field(Bytes, nullable="0+", default=None, doc="Data for the assignor.")


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics that any member subscribes to; None when some metadata is unreadable."""
    topics: set[str] = set()
    for one in metadata:
        try:
            if len(one) < 2:
                return None
            if int.from_bytes(one[:2], "big", signed=True) < 0:
                return None
            topics.update(SubscriptionHead.decode_prefix(one, 0, 2).topics)
        except ProtocolError:
            return None
    return frozenset(topics)
