"""The subscription and assignment formats of the classic consumer protocol, as consumer groups use them.

The coordinator of a classic group passes these bytes through. In a consumer group the coordinator replaces the leader:
it reads the subscriptions of classic members and writes their assignments.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from triokafka.coordinator.consumer_group.member import NO_PARTITIONS, Partitions, partitions_of
from triokafka.coordinator.group.topics_view import TopicsView
from triokafka.protocol.consumer_protocol import AssignedTopic, ConsumerProtocolAssignment, ConsumerProtocolSubscription


def owned_by(subscription: ConsumerProtocolSubscription, topics: TopicsView) -> Partitions:
    """Return the partitions that a member reports as owned; an eager member reports none."""
    return _by_id(((topic.topic, topic.partitions) for topic in subscription.owned_partitions), topics)


def read_assignment(assignment: bytes, topics: TopicsView) -> tuple[Partitions, bytes]:
    """Decode a leader's assignment into partitions of existing topics and the assignor's user data. Empty bytes are an
    empty assignment. Raises `ProtocolError`."""
    if not assignment:
        return NO_PARTITIONS, b""
    found = ConsumerProtocolAssignment.decode_versioned(assignment)
    return _by_id(((topic.topic, topic.partitions) for topic in found.assigned_partitions), topics), bytes(
        found.user_data or b""
    )


def write_assignment(partitions: Partitions, topics: TopicsView, metadata: bytes) -> bytes:
    """Encode a member's assignment, in the version that the member used for its ``metadata``."""
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
