"""Records of ``__consumer_offsets`` that hold the state of a group under the new consumer protocol (KIP-848).

Keys start with 3 to 8, and with 16. The group's epoch, each member, each target assignment and each current assignment
have separate records, so that a change of one member writes little. A null value is a tombstone: it deletes the entity
of the key.
"""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol.message import Struct, field
from triokafka.protocol.primitives import Array, Bytes, Int8, Int32, Int64, String, Uuid
from triokafka.protocol.stored.versioned import VersionedMessage


class ConsumerGroupMetadataKey(VersionedMessage, versions="3"):
    """The group."""

    group_id: str = field(String, doc="The group's id.")


class ConsumerGroupMetadataValue(VersionedMessage, versions="0", flexible="0+"):
    """The group's epoch: it grows with every change of the members' subscriptions or of the subscribed topics."""

    epoch: int = field(Int32, doc="The group's epoch.")
    metadata_hash: int = field(
        Int64, versions="0+", tag=0, default=0, doc="A hash of the subscribed topics (KIP-1101)."
    )


class ConsumerGroupPartitionMetadataKey(VersionedMessage, versions="4"):
    """The group. Up to Kafka 4.0; newer ones only remove these records."""

    group_id: str = field(String, doc="The group's id.")


class PartitionMetadata(Struct):
    """The racks of a partition."""

    partition: int = field(Int32, doc="The partition's number.")
    racks: list[str] = field(Array(String), doc="The racks of its replicas.")


class TopicMetadata(Struct):
    """A subscribed topic."""

    topic_id: UUID = field(Uuid, doc="The topic's id.")
    topic_name: str = field(String, doc="The topic's name.")
    num_partitions: int = field(Int32, doc="How many partitions it has.")
    partition_metadata: list[PartitionMetadata] = field(
        Array(PartitionMetadata), doc="The racks of the partitions; usually empty."
    )


class ConsumerGroupPartitionMetadataValue(VersionedMessage, versions="0", flexible="0+"):
    """The topics that the group's epoch rests on."""

    topics: list[TopicMetadata] = field(Array(TopicMetadata), doc="The subscribed topics.")


class ConsumerGroupMemberMetadataKey(VersionedMessage, versions="5"):
    """A member."""

    group_id: str = field(String, doc="The group's id.")
    member_id: str = field(String, doc="The member's id.")


class ClassicProtocol(Struct):
    """A protocol that a member offers."""

    name: str = field(String, doc="The protocol's name.")
    metadata: bytes = field(Bytes, doc="The member's data for it.")


class ClassicMemberMetadata(Struct):
    """The data of a member that still uses the classic protocol."""

    session_timeout_ms: int = field(Int32, doc="Its session timeout in milliseconds.")
    supported_protocols: list[ClassicProtocol] = field(Array(ClassicProtocol), doc="The protocols that it offers.")


class ConsumerGroupMemberMetadataValue(VersionedMessage, versions="0", flexible="0+"):
    """A member's subscription and properties."""

    instance_id: str | None = field(String, nullable="0+", doc="The static member's name; null for a dynamic one.")
    rack_id: str | None = field(String, nullable="0+", doc="Its rack; null when unknown.")
    client_id: str = field(String, doc="Its client id.")
    client_host: str = field(String, doc="The host that it talks from.")
    subscribed_topic_names: list[str] = field(Array(String), doc="Topics that it subscribes to by name.")
    subscribed_topic_regex: str | None = field(
        String, nullable="0+", doc="The pattern of topics that it subscribes to; null for none."
    )
    rebalance_timeout_ms: int = field(
        Int32, default=-1, doc="How long it may take to give up partitions, in milliseconds."
    )
    server_assignor: str | None = field(String, nullable="0+", doc="The assignor that it would like; null for none.")
    classic_member_metadata: ClassicMemberMetadata | None = field(
        ClassicMemberMetadata,
        versions="0+",
        nullable="0+",
        tag=0,
        doc="Set while it speaks the classic protocol, else null; not to write it means an empty one.",
    )


class ConsumerGroupTargetAssignmentMetadataKey(VersionedMessage, versions="6"):
    """The group."""

    group_id: str = field(String, doc="The group's id.")


class ConsumerGroupTargetAssignmentMetadataValue(VersionedMessage, versions="0", flexible="0+"):
    """For which epoch the assignment was computed."""

    assignment_epoch: int = field(Int32, doc="The group's epoch then.")
    assignment_timestamp: int = field(
        Int64,
        versions="0+",
        tag=0,
        ignorable=True,
        default=0,
        doc="When it was computed, in milliseconds; 0 when unknown (KIP-1263).",
    )


class ConsumerGroupTargetAssignmentMemberKey(VersionedMessage, versions="7"):
    """A member."""

    group_id: str = field(String, doc="The group's id.")
    member_id: str = field(String, doc="The member's id.")


class TargetTopicPartitions(Struct):
    """Some partitions of a topic."""

    topic_id: UUID = field(Uuid, doc="The topic's id.")
    partitions: list[int] = field(Array(Int32), doc="Numbers of the partitions.")


class ConsumerGroupTargetAssignmentMemberValue(VersionedMessage, versions="0", flexible="0+"):
    """The target assignment of the member."""

    topic_partitions: list[TargetTopicPartitions] = field(Array(TargetTopicPartitions), doc="The partitions by topic.")


class ConsumerGroupCurrentMemberAssignmentKey(VersionedMessage, versions="8"):
    """A member."""

    group_id: str = field(String, doc="The group's id.")
    member_id: str = field(String, doc="The member's id.")


class OwnedTopicPartitions(Struct):
    """Some partitions of a topic."""

    topic_id: UUID = field(Uuid, doc="The topic's id.")
    partitions: list[int] = field(Array(Int32), doc="Numbers of the partitions.")
    assignment_epochs: list[int] | None = field(
        Array(Int32),
        versions="0+",
        nullable="0+",
        tag=0,
        doc="For each partition, the member's epoch when it got it; empty when unknown.",
    )


class ConsumerGroupCurrentMemberAssignmentValue(VersionedMessage, versions="0", flexible="0+"):
    """The member's partitions, and those that it still has to revoke."""

    member_epoch: int = field(Int32, doc="The epoch that is expected in its next heartbeat.")
    previous_member_epoch: int = field(
        Int32,
        doc="The previous epoch, which the coordinator also accepts, because the response with the new "
        "one may have been lost.",
    )
    state: int = field(
        Int8, doc="0 stable, 1 has partitions to give up, 2 waits for partitions of others, 127 unknown."
    )
    assigned_partitions: list[OwnedTopicPartitions] = field(
        Array(OwnedTopicPartitions), doc="The partitions that the member owns."
    )
    partitions_pending_revocation: list[OwnedTopicPartitions] = field(
        Array(OwnedTopicPartitions), doc="The partitions that the member must revoke."
    )


class ConsumerGroupRegularExpressionKey(VersionedMessage, versions="16"):
    """A pattern that members of a group use."""

    group_id: str = field(String, doc="The group's id.")
    regular_expression: str = field(String, doc="The pattern.")


class ConsumerGroupRegularExpressionValue(VersionedMessage, versions="0", flexible="0+"):
    """The topics that it was found to match."""

    topics: list[str] = field(Array(String), doc="Their names.")
    version: int = field(Int64, doc="The offset of the metadata that the coordinator used.")
    timestamp: int = field(Int64, doc="The time of its use, in milliseconds.")
