"""The small value types that every part of the package shares, and the text form of some."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from triokafka.named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from uuid import UUID

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Anything that holds bytes and can be sent or written."""


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """Group the numbers of partitions by topic, in their given order."""
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return topics


def first_names(names: Collection[object], most: int = 20) -> str:
    """Return the first names, and the number of the others, for a message whose length must not depend on them."""
    more = len(names) - most
    others = f" and {more} other{'s' if more > 1 else ''}" if more > 0 else ""
    return ", ".join(map(str, islice(names, most))) + others


def address_text(host: str, port: int) -> str:
    """``host:port`` as ``bootstrap_servers`` takes it: with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def usual_address(host: str) -> str:
    """Return an IP address as connections report it: IPv6 in its short form, and IPv4 in IPv6 as IPv4. Names stay."""
    if ":" not in host:
        return host
    from ipaddress import IPv6Address  # rarely needed

    try:
        address = IPv6Address(host)
    except ValueError:
        return host
    return str(address.ipv4_mapped or address)


def format_uuid(value: UUID) -> str:
    """Kafka's text form of an id of a topic, a directory or a cluster: 22 characters of URL-safe base64."""
    from base64 import urlsafe_b64encode  # rarely needed

    return urlsafe_b64encode(value.bytes).decode().rstrip("=")


def parse_uuid(text: str) -> UUID:
    """The inverse of `format_uuid`. Raises `ValueError`."""
    from base64 import b64decode
    from uuid import UUID

    try:
        return UUID(bytes=b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except ValueError:
        raise ValueError(f"{text!r} is not an id: expected 22 characters of URL-safe base64") from None


class Node(NamedTuple):
    """A broker as metadata names it. ``rack`` is None when the broker has none."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> str:
        """``host:port``, with brackets around an IPv6 address."""
        return address_text(self.host, self.port)


class OffsetAndMetadata(NamedTuple):
    """A committed position: the next offset to read, the committer's own text, the leader epoch of the record before.

    ``leader_epoch`` is -1 when unknown.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class ConsumerGroupMetadata(NamedTuple):
    """A consumer's membership at one moment, which fences offsets committed in a transaction (KIP-447).

    ``generation_id`` is the member epoch under the consumer protocol. The defaults are for a consumer that is not a
    member of its group, because its partitions are assigned by hand.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class OffsetAndTimestamp(NamedTuple):
    """The result of a lookup by time: offset, the record's timestamp in milliseconds, its leader epoch (-1 unknown)."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


class RecordMetadata(NamedTuple):
    """Where a produced record landed.

    ``offset`` is -1 with ``acks=0``, and for a duplicate batch whose offset the broker forgot; ``timestamp`` is
    milliseconds since the epoch: the record's own, or the broker's when the topic stamps on append. Serialized sizes
    are bytes, -1 for null. ``attempts`` counts the requests that carried the record, so that 1 means no retry;
    ``latency_ms`` is from the record's entry into its batch to its acknowledgement, linger included (if the system's
    clock was set meanwhile, from the beginning of the batch, or 0). A record that an interceptor dropped has 0 and -1.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    serialized_key_size: int = -1
    serialized_value_size: int = -1
    attempts: int = 0
    latency_ms: float = -1.0

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that the record went to."""
        return TopicPartition(self.topic, self.partition)
