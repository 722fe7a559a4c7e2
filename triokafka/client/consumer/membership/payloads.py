"""Encoding of subscriptions and assignments, which members of a group exchange (protocol type ``consumer``)."""

from __future__ import annotations

from typing import Final

from triokafka.assignors import Assignment, MemberSubscription
from triokafka.protocol.consumer_protocol import (
    AssignedTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedTopic,
)
from triokafka.structs import Buffer, TopicPartition, by_topic

PROTOCOL_TYPE: Final = "consumer"


def encode_subscription(subscription: MemberSubscription) -> bytes:
    """Encode the subscription that a member sends when it joins."""
    owned = by_topic(subscription.owned_partitions)
    return ConsumerProtocolSubscription(
        topics=list(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=[OwnedTopic(topic=topic, partitions=numbers) for topic, numbers in owned.items()],
        generation_id=subscription.generation,
        rack_id=subscription.rack_id,
    ).encode_versioned()


def decode_subscription(data: Buffer) -> MemberSubscription:
    """Decode the subscription of a member. Raises `ProtocolError`."""
    message = ConsumerProtocolSubscription.decode_versioned(data)
    owned = [TopicPartition(topic.topic, number) for topic in message.owned_partitions for number in topic.partitions]
    return MemberSubscription(
        tuple(message.topics), message.user_data, owned, None, message.generation_id, message.rack_id
    )


def encode_assignment(assignment: Assignment) -> bytes:
    """Encode the assignment that the leader sends to a member."""
    assigned = by_topic(assignment.partitions)
    return ConsumerProtocolAssignment(
        assigned_partitions=[AssignedTopic(topic=topic, partitions=numbers) for topic, numbers in assigned.items()],
        user_data=assignment.user_data,
    ).encode_versioned()


def decode_assignment(data: Buffer) -> Assignment:
    """Decode an assignment; empty bytes are an empty one. Raises `ProtocolError`."""
    if not data:
        return Assignment()
    message = ConsumerProtocolAssignment.decode_versioned(data)
    partitions = [
        TopicPartition(topic.topic, number) for topic in message.assigned_partitions for number in topic.partitions
    ]
    return Assignment(partitions, message.user_data)
