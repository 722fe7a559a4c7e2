"""Results of the admin client about groups. Plain values."""

from __future__ import annotations

from dataclasses import dataclass

from triokafka.security.acl import AclOperation
from triokafka.structs import Node, TopicPartition

CONSUMER_PROTOCOL_TYPE = "consumer"


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group of the cluster. State and type are empty if the broker does not return them.

    ``protocol_type`` is ``"consumer"`` for groups of consumers, and empty for groups that only have committed offsets.
    """

    group_id: str
    protocol_type: str
    state: str
    group_type: str

    @property
    def is_consumer_group(self) -> bool:
        """Whether it is a consumer group: with consumers as members, or with committed offsets only."""
        return self.protocol_type in (CONSUMER_PROTOCOL_TYPE, "")


@dataclass(frozen=True, slots=True)
class MemberToRemove:
    """A member to remove from a group: by its id, by its instance id, or by both, if they belong together."""

    member_id: str = ""
    group_instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group. ``assignment`` has its partitions; empty if the assignment's bytes are not a consumer's.

    The bytes are those of the classic protocol. The fields of the consumer protocol (KIP-848) are None for classic
    groups: the member's epoch, its target assignment, ``upgraded`` (whether the member itself uses the consumer
    protocol; brokers from 4.0 on), and ``subscribed_pattern``, its regular expression. ``subscription`` has the topics
    that the member names, under both protocols; None if the subscription's bytes are not a consumer's.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    assignment: tuple[TopicPartition, ...]
    member_metadata: bytes = b""
    member_assignment: bytes = b""
    rack_id: str | None = None
    member_epoch: int | None = None
    target_assignment: tuple[TopicPartition, ...] | None = None
    upgraded: bool | None = None
    subscription: tuple[str, ...] | None = None
    subscribed_pattern: str | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    """The partitions that a classic member owned at its last join, in ``generation_id`` (-1 if unknown)."""
    generation_id: int = -1
    user_data: bytes | None = None
    """User data of a classic member's subscription; the next field is that of its assignment."""
    assignment_user_data: bytes | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group and its members. ``assignor`` is the strategy that the members agreed on, or that the broker uses.

    ``group_type`` is ``"classic"`` or ``"consumer"``. The epochs are those of KIP-848, None for classic groups:
    ``group_epoch`` counts changes of members and subscriptions; ``target_assignment_epoch`` is the group epoch for
    which the target assignment was computed.
    """

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[MemberDescription, ...]
    coordinator: Node
    group_type: str = "classic"
    group_epoch: int | None = None
    target_assignment_epoch: int | None = None
    authorized_operations: frozenset[AclOperation] | None = None
    """The operations that the caller may perform on the group, if requested."""
