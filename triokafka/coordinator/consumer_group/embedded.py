"""What members under the classic protocol and their leader tell each other, where a consumer group takes part in it.

The coordinator of a classic group hands these bytes through without looking at them. In a consumer group it takes the
leader's place: it reads what such members want and own, and writes their assignments itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from triokafka.coordinator.consumer_group.member import NO_PARTITIONS, Partitions, partitions_of
from triokafka.coordinator.topics import TopicsView
from triokafka.protocol.embedded import AssignedTopic, ConsumerProtocolAssignment, ConsumerProtocolSubscription


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """What a member says of itself. Raises `ProtocolError`."""
    return ConsumerProtocolSubscription.decode_versioned(metadata)


def owned_by(subscription: ConsumerProtocolSubscription, topics: TopicsView) -> Partitions:
    """What a member owns as it joins: of one that gives up everything first, nothing."""
    return _by_id(((topic.topic, topic.partitions) for topic in subscription.owned_partitions), topics)


def read_assignment(assignment: bytes, topics: TopicsView) -> tuple[Partitions, bytes]:
    """What a leader gave to a member, as far as there are such topics, and what it told it besides; empty bytes are
    nothing. Raises `ProtocolError`."""
    if not assignment:
        return NO_PARTITIONS, b""
    found = ConsumerProtocolAssignment.decode_versioned(assignment)
    return _by_id(((topic.topic, topic.partitions) for topic in found.assigned_partitions), topics), bytes(
        found.user_data or b""
    )


def write_assignment(partitions: Partitions, topics: TopicsView, metadata: bytes) -> bytes:
    """The assignment of a member that described itself with ``metadata``, in the version that it used for that."""
    named = ((topics.topic_name(topic_id), sorted(numbers)) for topic_id, numbers in partitions.items())
    assigned = sorted((name, numbers) for name, numbers in named if name is not None)
    version = int.from_bytes(metadata[:2], "big", signed=True)
    return ConsumerProtocolAssignment(
        assigned_partitions=[AssignedTopic(topic=name, partitions=numbers) for name, numbers in assigned]
    ).encode_versioned(min(max(version, 0), ConsumerProtocolAssignment.versions.max))


def _by_id(named: Iterable[tuple[str, list[int]]], topics: TopicsView) -> Partitions:
    found: list[tuple[UUID, list[int]]] = []
    for name, numbers in named:
        topic_id = topics.topic_id(name)
        if topic_id is not None:
            found.append((topic_id, numbers))
    return partitions_of(found)
