"""Results of the admin client about groups. Plain values."""

from __future__ import annotations

from dataclasses import dataclass

from triokafka.security.acl import AclOperation
from triokafka.structs import Node, TopicPartition

CONSUMER_PROTOCOL_TYPE = "consumer"


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group of the cluster. State and type are empty where the broker does not say.

    ``protocol_type`` is ``"consumer"`` for groups of consumers, and empty for groups that only have committed offsets.
    """

    group_id: str
    protocol_type: str
    state: str
    group_type: str

    @property
    def is_consumer_group(self) -> bool:
        """Whether consumers use it: as members, or only to commit offsets."""
        return self.protocol_type in (CONSUMER_PROTOCOL_TYPE, "")


@dataclass(frozen=True, slots=True)
class MemberToRemove:
    """A member to remove from a group: by its id, by its instance id, or by both, if they belong together."""

    member_id: str = ""
    group_instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group. ``assignment`` is what it owns, empty when its bytes are not a consumer's.

    The bytes are those of the classic protocol. What comes after them is None where only groups of the new protocol
    have it (KIP-848): the member's epoch, what it is to own, and with ``upgraded`` whether the member itself speaks the
    new protocol (brokers from 4.0 on), and ``subscribed_pattern``, its regular expression. ``subscription`` has the
    topics that it names, under both protocols; None when the bytes are not a consumer's.
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
    """The partitions of a classic member when it joined last, in ``generation_id``, which is -1 when unknown."""
    generation_id: int = -1
    user_data: bytes | None = None
    """User data of a classic member's subscription; below, that of its assignment."""
    assignment_user_data: bytes | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group and its members. ``assignor`` is the strategy that the members agreed on, or that the broker uses.

    ``group_type`` is ``"classic"`` or ``"consumer"``. The epochs are those of KIP-848, None for classic groups:
    ``group_epoch`` counts changes of what the members want, ``target_assignment_epoch`` says which of those the
    target assignment is made for.
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
    """The operations that the caller may do with the group, if they were requested."""
