"""Records of ``__cluster_metadata``, from which every broker and controller builds its picture of the cluster.

Each is in the frame of ``metadata_record.py``, whose ``decode_record`` reads it. Records between
``BeginTransactionRecord`` and ``EndTransactionRecord`` take effect together.
"""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol import fields
from triokafka.protocol.message import Struct, field
from triokafka.protocol.primitives import (
    Array,
    Boolean,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    String,
    UInt16,
    Uuid,
)
from triokafka.protocol.stored.metadata_record import MetadataRecord


class _Endpoint(Struct):
    """An address, and the security that it needs."""

    name: str = field(String, doc="The listener's name.")
    host: str = field(String, doc="The host to connect to.")
    port: int = field(UInt16, doc="The port to connect to.")
    security_protocol: int = field(
        Int16,
        doc="The kind of security: 0 plaintext, 1 TLS, 2 SASL without TLS, 3 SASL over TLS.",
    )


class BrokerEndpoint(_Endpoint):
    """A listener of the broker."""


class _Feature(Struct):
    """A range of levels of a feature."""

    name: str = field(String, doc="The feature's name.")
    min_supported_version: int = field(Int16, doc="The smallest level.")
    max_supported_version: int = field(Int16, doc="The greatest level.")


class BrokerFeature(_Feature):
    """A feature that the broker can run."""


class RegisterBrokerRecord(MetadataRecord, api_key=0, versions="0-4", flexible="0+"):
    """The registration of a broker."""

    broker_id: int = field(Int32, doc="The broker's id.")
    is_migrating_zk_broker: bool = field(Boolean, versions="2+", doc="Left from the move off ZooKeeper: false by now.")
    incarnation_id: UUID = field(Uuid, doc="Drawn anew at each start of the process, to tell a restart from a retry.")
    broker_epoch: int = field(Int64, doc="The broker epoch: the offset of the registration.")
    end_points: list[BrokerEndpoint] = field(Array(BrokerEndpoint), doc="The listeners.")
    features: list[BrokerFeature] = field(Array(BrokerFeature), doc="The features that it can run.")
    rack: str | None = field(String, nullable="0+", doc="The broker's rack; null when it has none.")
    fenced: bool = field(
        Boolean,
        default=True,
        doc="Whether the broker starts out fenced, as it should until it has caught up.",
    )
    in_controlled_shutdown: bool = field(Boolean, versions="1+", doc="Whether the broker is shutting down.")
    log_dirs: list[UUID] = field(
        Array(Uuid), versions="3+", tag=0, doc="The ids of its log directories; empty if unknown."
    )
    cordoned_log_dirs: list[UUID] | None = field(
        Array(Uuid),
        versions="4+",
        nullable="4+",
        tag=1,
        default=None,
        doc="The cordoned log directories, which get no new partitions; null if unknown.",
    )


class UnregisterBrokerRecord(MetadataRecord, api_key=1, versions="0", flexible="0+"):
    """A registration was removed."""

    broker_id: int = field(Int32, doc="The broker's id.")
    broker_epoch: int = field(Int64, doc="The broker epoch: the offset of the registration.")


class BrokerRegistrationChangeRecord(MetadataRecord, api_key=17, versions="0-3", flexible="0+"):
    """A registration changed in part; each field tells whether, and how."""

    broker_id: int = field(Int32, doc="The broker's id.")
    broker_epoch: int = field(Int64, doc="The broker epoch: the offset of the registration.")
    fenced: int = field(Int8, tag=0, doc="1 when it was fenced, -1 when it was unfenced, 0 for no change.")
    in_controlled_shutdown: int = field(
        Int8, versions="1+", tag=1, doc="1 when it began to shut down, 0 for no change."
    )
    log_dirs: list[UUID] = field(
        Array(Uuid), versions="2+", tag=2, doc="The ids of its log directories; empty for no change."
    )
    cordoned_log_dirs: list[UUID] | None = field(
        Array(Uuid),
        versions="3+",
        nullable="3+",
        tag=3,
        default=None,
        doc="The cordoned log directories, which get no new partitions; null for no change.",
    )


class FenceBrokerRecord(MetadataRecord, api_key=7, versions="0", flexible="0+"):
    """A broker was fenced. Written by old versions; BrokerRegistrationChangeRecord took its place."""

    id: int = field(Int32, doc="The broker's id.")
    epoch: int = field(Int64, doc="Its broker epoch.")


class UnfenceBrokerRecord(MetadataRecord, api_key=8, versions="0", flexible="0+"):
    """A broker was unfenced. Written by old versions; BrokerRegistrationChangeRecord took its place."""

    id: int = field(Int32, doc="The broker's id.")
    epoch: int = field(Int64, doc="Its broker epoch.")


class ControllerEndpoint(_Endpoint):
    """A listener of the controller."""


class ControllerFeature(_Feature):
    """A feature that the controller can run."""


class RegisterControllerRecord(MetadataRecord, api_key=27, versions="0", flexible="0+"):
    """A controller registered."""

    controller_id: int = field(Int32, doc="The controller's id.")
    incarnation_id: UUID = field(Uuid, doc="Drawn anew at each start of the process, to tell a restart from a retry.")
    zk_migration_ready: bool = field(Boolean, doc="Left from the move off ZooKeeper: false by now.")
    end_points: list[ControllerEndpoint] = field(Array(ControllerEndpoint), doc="The listeners.")
    features: list[ControllerFeature] = field(Array(ControllerFeature), doc="The features that it can run.")


class TopicRecord(MetadataRecord, api_key=2, versions="0", flexible="0+"):
    """A topic was created."""

    name: str = field(String, doc="The topic's name.")
    topic_id: UUID = field(Uuid, doc="The topic's id.")


class RemoveTopicRecord(MetadataRecord, api_key=9, versions="0", flexible="0+"):
    """A topic was deleted, with its partitions and configuration."""

    topic_id: UUID = field(Uuid, doc="The topic's id.")


class PartitionRecord(MetadataRecord, api_key=3, versions="0-2", flexible="0+"):
    """A partition was created, or as a whole replaced."""

    partition_id: int = field(Int32, default=-1, doc="The partition's number.")
    topic_id: UUID = field(Uuid, doc="The topic's id.")
    replicas: list[int] = field(Array(Int32), doc="The brokers that hold it, the preferred leader first.")
    isr: list[int] = field(Array(Int32), doc="Those of them that are in sync.")
    removing_replicas: list[int] = field(Array(Int32), doc="Those that a reassignment is going to remove.")
    adding_replicas: list[int] = field(Array(Int32), doc="Those that a reassignment is adding.")
    leader: int = field(Int32, default=-1, doc="The leader; -1 for none.")
    leader_recovery_state: int = field(
        Int8,
        tag=0,
        doc="0 when the leader was elected from the in-sync replicas, 1 while it recovers from an unclean election.",
    )
    leader_epoch: int = field(Int32, default=-1, doc="The leader epoch.")
    partition_epoch: int = field(Int32, default=-1, doc="Raised by every change of the partition.")
    directories: list[UUID] = field(
        Array(Uuid),
        versions="1+",
        doc="The log directory of each replica, in the order of the replicas.",
    )
    eligible_leader_replicas: list[int] | None = fields.eligible_leader_replicas(versions="2+", nullable="2+", tag=1)
    last_known_elr: list[int] | None = fields.last_known_elr(versions="2+", nullable="2+", tag=2)


class PartitionChangeRecord(MetadataRecord, api_key=5, versions="0-2", flexible="0+"):
    """A partition changed in part; fields at their default stay as they were.

    Every change raises the partition epoch, a change of the leader also the leader epoch.
    """

    partition_id: int = field(Int32, default=-1, doc="The partition's number.")
    topic_id: UUID = field(Uuid, doc="The topic's id.")
    isr: list[int] | None = field(
        Array(Int32), nullable="0+", tag=0, default=None, doc="The replicas in sync; null for no change."
    )
    leader: int = field(Int32, tag=1, default=-2, doc="The leader, -1 for none; -2 for no change.")
    replicas: list[int] | None = field(
        Array(Int32), nullable="0+", tag=2, default=None, doc="The brokers that hold it; null for no change."
    )
    removing_replicas: list[int] | None = field(
        Array(Int32),
        nullable="0+",
        tag=3,
        default=None,
        doc="Those that a reassignment is going to remove; null for no change.",
    )
    adding_replicas: list[int] | None = field(
        Array(Int32), nullable="0+", tag=4, default=None, doc="Those that a reassignment is adding; null for no change."
    )
    leader_recovery_state: int = field(
        Int8, tag=5, default=-1, doc="0 recovered, 1 recovering from an unclean election; -1 for no change."
    )
    directories: list[UUID] | None = field(
        Array(Uuid),
        versions="1+",
        nullable="1+",
        tag=8,
        default=None,
        doc="The log directory of each replica; null for no change.",
    )
    eligible_leader_replicas: list[int] | None = field(
        Array(Int32),
        versions="2+",
        nullable="2+",
        tag=6,
        default=None,
        doc="The eligible leader replicas; null for no change.",
    )
    last_known_elr: list[int] | None = field(
        Array(Int32),
        versions="2+",
        nullable="2+",
        tag=7,
        default=None,
        doc="The last known eligible leader replicas; null for no change.",
    )


class ClearElrRecord(MetadataRecord, api_key=28, versions="0", flexible="0+"):
    """The eligible leader replicas of a topic, or of all topics, were removed."""

    topic_name: str = field(String, doc="The topic's name; empty for all topics.")


class ConfigRecord(MetadataRecord, api_key=4, versions="0", flexible="0+"):
    """A configuration entry was set or removed."""

    resource_type: int = field(Int8, doc="The kind of resource: 2 topic, 4 broker, 16 client metrics, 32 group.")
    resource_name: str = field(String, doc="The resource; empty for the default of all brokers.")
    name: str = field(String, doc="The entry's name.")
    value: str | None = field(String, nullable="0+", doc="The entry's value; null removes it.")


class ClientQuotaEntityData(Struct):
    """A part of the entity that a quota is for."""

    entity_type: str = field(String, doc="The entity type: ``user``, ``client-id`` or ``ip``.")
    entity_name: str | None = field(String, nullable="0+", doc="Its name; null for the default.")


class ClientQuotaRecord(MetadataRecord, api_key=14, versions="0", flexible="0+"):
    """A quota was set or removed."""

    entity: list[ClientQuotaEntityData] = field(Array(ClientQuotaEntityData), doc="The parts of the entity.")
    key: str = field(String, doc="The quota's name, such as ``producer_byte_rate``.")
    value: float = field(Float64, doc="Its value; without meaning when it is removed.")
    remove: bool = field(Boolean, doc="Whether the quota was removed instead of set.")


class FeatureLevelRecord(MetadataRecord, api_key=12, versions="0", flexible="0+"):
    """A feature was finalized at a level."""

    name: str = field(String, doc="The feature's name, such as ``metadata.version``.")
    feature_level: int = field(Int16, doc="The level; 0 switches the feature off.")


class ProducerIdsRecord(MetadataRecord, api_key=15, versions="0", flexible="0+"):
    """A block of producer ids was given to a broker."""

    broker_id: int = field(Int32, doc="The broker's id.")
    broker_epoch: int = field(Int64, default=-1, doc="The broker epoch: the offset of the registration.")
    next_producer_id: int = field(Int64, doc="The first producer id after the block.")


class AccessControlEntryRecord(MetadataRecord, api_key=18, versions="0", flexible="0+"):
    """An entry of an access control list was added."""

    id: UUID = field(Uuid, doc="The entry's id.")
    resource_type: int = field(Int8, doc="The resource type of the entry.")
    resource_name: str = field(String, doc="The resource name.")
    pattern_type: int = field(Int8, doc="How the resource name matches: 3 literal, 4 as a prefix.")
    principal: str = field(String, doc="The principal, such as ``User:alice``.")
    host: str = field(String, doc="The client's host; ``*`` for any.")
    operation: int = field(Int8, doc="The operation.")
    permission_type: int = field(Int8, doc="2 to deny, 3 to allow.")


class RemoveAccessControlEntryRecord(MetadataRecord, api_key=19, versions="0", flexible="0+"):
    """An entry of an access control list was removed."""

    id: UUID = field(Uuid, doc="The entry's id.")


class UserScramCredentialRecord(MetadataRecord, api_key=11, versions="0", flexible="0+"):
    """A user's SCRAM credential was set."""

    name: str = field(String, doc="The name of the user.")
    mechanism: int = field(Int8, doc="1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512.")
    salt: bytes = field(Bytes, doc="The random salt.")
    stored_key: bytes = field(Bytes, doc="The key that verifies the client.")
    server_key: bytes = field(Bytes, doc="The key with which the server proves itself.")
    iterations: int = field(Int32, doc="The number of iterations.")


class RemoveUserScramCredentialRecord(MetadataRecord, api_key=22, versions="0", flexible="0+"):
    """A user's SCRAM credential was removed."""

    name: str = field(String, doc="The name of the user.")
    mechanism: int = field(Int8, doc="1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512.")


class DelegationTokenRecord(MetadataRecord, api_key=10, versions="0", flexible="0+"):
    """A delegation token was created or renewed."""

    owner: str = field(String, doc="The principal that owns the token.")
    requester: str = field(String, doc="The principal that requested it.")
    renewers: list[str] = field(Array(String), doc="The principals that may renew it.")
    issue_timestamp: int = field(Int64, doc="When it was issued.")
    max_timestamp: int = field(Int64, doc="When it ends at the latest.")
    expiration_timestamp: int = field(Int64, doc="When it ends unless it is renewed.")
    token_id: str = field(String, doc="The token's id.")


class RemoveDelegationTokenRecord(MetadataRecord, api_key=26, versions="0", flexible="0+"):
    """A delegation token was removed."""

    token_id: str = field(String, doc="The token's id.")


class ZkMigrationStateRecord(MetadataRecord, api_key=21, versions="0", flexible="0+"):
    """The state of a move off ZooKeeper, which ended before Kafka 4."""

    zk_migration_state: int = field(Int8, doc="0 none, 1 migrating, 2 before the migration, 3 after it.")


class NoOpRecord(MetadataRecord, api_key=20, versions="0", flexible="0+"):
    """Nothing: it moves the end of the metadata log forward while nothing happens."""


class BeginTransactionRecord(MetadataRecord, api_key=23, versions="0", flexible="0+"):
    """The records up to the matching end take effect together."""

    name: str | None = field(
        String, nullable="0+", tag=0, default=None, doc="A name for the transaction; null for none."
    )


class EndTransactionRecord(MetadataRecord, api_key=24, versions="0", flexible="0+"):
    """The records since the begin take effect now."""


class AbortTransactionRecord(MetadataRecord, api_key=25, versions="0", flexible="0+"):
    """The records since the begin are void."""

    reason: str | None = field(
        String, nullable="0+", tag=0, default=None, doc="The reason for the abort; null for none."
    )
