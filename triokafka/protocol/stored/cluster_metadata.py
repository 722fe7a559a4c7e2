"""cluster_metadata."""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol.message import Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int8, Int16, Int32, Int64, String, UInt16, Uuid
from triokafka.protocol.stored.metadata_record import MetadataRecord


class BrokerEndpoint(Struct):
    """One item of ``end_points``."""

    name: str = field(String, doc="Name.")
    host: str = field(String, doc="Host.")
    port: int = field(UInt16, doc="Port.")
    security_protocol: int = field(Int16, doc="Security protocol.")


class BrokerFeature(Struct):
    """One item of ``features``."""

    name: str = field(String, doc="Name.")
    min_supported_version: int = field(Int16, doc="Min supported version.")
    max_supported_version: int = field(Int16, doc="Max supported version.")


class RegisterBrokerRecord(MetadataRecord, api_key=0, versions="0-4", flexible="0+"):
    """RegisterBrokerRecord."""

    broker_id: int = field(Int32, doc="Broker id.")
    is_migrating_zk_broker: bool = field(Boolean, versions="2+", doc="Is migrating zk broker.")
    incarnation_id: UUID = field(Uuid, doc="Incarnation id.")
    broker_epoch: int = field(Int64, doc="Broker epoch.")
    end_points: list[BrokerEndpoint] = field(Array(BrokerEndpoint), doc="End points.")
    features: list[BrokerFeature] = field(Array(BrokerFeature), doc="Features.")
    rack: str | None = field(String, nullable="0+", doc="Rack.")
    fenced: bool = field(Boolean, default=True, doc="Fenced.")
    in_controlled_shutdown: bool = field(Boolean, versions="1+", doc="In controlled shutdown.")
    log_dirs: list[UUID] = field(Array(Uuid), versions="3+", tag=0, tagged="3+", doc="Log dirs.")
    cordoned_log_dirs: list[UUID] | None = field(
        Array(Uuid),
        versions="4+",
        nullable="4+",
        tag=1,
        tagged="4+",
        default=None,
        doc="Cordoned log dirs.",
    )


class UnregisterBrokerRecord(MetadataRecord, api_key=1, versions="0", flexible="0+"):
    """UnregisterBrokerRecord."""

    broker_id: int = field(Int32, doc="Broker id.")
    broker_epoch: int = field(Int64, doc="Broker epoch.")


class BrokerRegistrationChangeRecord(MetadataRecord, api_key=17, versions="0-3", flexible="0+"):
    """BrokerRegistrationChangeRecord."""

    broker_id: int = field(Int32, doc="Broker id.")
    broker_epoch: int = field(Int64, doc="Broker epoch.")
    fenced: int = field(Int8, tag=0, tagged="0+", doc="Fenced.")
    in_controlled_shutdown: int = field(Int8, versions="1+", tag=1, tagged="1+", doc="In controlled shutdown.")
    log_dirs: list[UUID] = field(Array(Uuid), versions="2+", tag=2, tagged="2+", doc="Log dirs.")
    cordoned_log_dirs: list[UUID] | None = field(
        Array(Uuid),
        versions="3+",
        nullable="3+",
        tag=3,
        tagged="3+",
        default=None,
        doc="Cordoned log dirs.",
    )


class FenceBrokerRecord(MetadataRecord, api_key=7, versions="0", flexible="0+"):
    """FenceBrokerRecord."""

    id: int = field(Int32, doc="Id.")
    epoch: int = field(Int64, doc="Epoch.")


class UnfenceBrokerRecord(MetadataRecord, api_key=8, versions="0", flexible="0+"):
    """UnfenceBrokerRecord."""

    id: int = field(Int32, doc="Id.")
    epoch: int = field(Int64, doc="Epoch.")


class ControllerEndpoint(Struct):
    """One item of ``end_points``."""

    name: str = field(String, doc="Name.")
    host: str = field(String, doc="Host.")
    port: int = field(UInt16, doc="Port.")
    security_protocol: int = field(Int16, doc="Security protocol.")


class ControllerFeature(Struct):
    """One item of ``features``."""

    name: str = field(String, doc="Name.")
    min_supported_version: int = field(Int16, doc="Min supported version.")
    max_supported_version: int = field(Int16, doc="Max supported version.")


class RegisterControllerRecord(MetadataRecord, api_key=27, versions="0", flexible="0+"):
    """RegisterControllerRecord."""

    controller_id: int = field(Int32, doc="Controller id.")
    incarnation_id: UUID = field(Uuid, doc="Incarnation id.")
    zk_migration_ready: bool = field(Boolean, doc="Zk migration ready.")
    end_points: list[ControllerEndpoint] = field(Array(ControllerEndpoint), doc="End points.")
    features: list[ControllerFeature] = field(Array(ControllerFeature), doc="Features.")


class TopicRecord(MetadataRecord, api_key=2, versions="0", flexible="0+"):
    """TopicRecord."""

    name: str = field(String, doc="Name.")
    topic_id: UUID = field(Uuid, doc="Topic id.")


class RemoveTopicRecord(MetadataRecord, api_key=9, versions="0", flexible="0+"):
    """RemoveTopicRecord."""

    topic_id: UUID = field(Uuid, doc="Topic id.")


class PartitionRecord(MetadataRecord, api_key=3, versions="0-2", flexible="0+"):
    """PartitionRecord."""

    partition_id: int = field(Int32, default=-1, doc="Partition id.")
    topic_id: UUID = field(Uuid, doc="Topic id.")
    replicas: list[int] = field(Array(Int32), doc="Replicas.")
    isr: list[int] = field(Array(Int32), doc="Isr.")
    removing_replicas: list[int] = field(Array(Int32), doc="Removing replicas.")
    adding_replicas: list[int] = field(Array(Int32), doc="Adding replicas.")
    leader: int = field(Int32, default=-1, doc="Leader.")
    leader_recovery_state: int = field(Int8, tag=0, tagged="0+", doc="Leader recovery state.")
    leader_epoch: int = field(Int32, default=-1, doc="Leader epoch.")
    partition_epoch: int = field(Int32, default=-1, doc="Partition epoch.")
    directories: list[UUID] = field(Array(Uuid), versions="1+", doc="Directories.")
    eligible_leader_replicas: list[int] | None = field(
        Array(Int32),
        versions="2+",
        nullable="2+",
        tag=1,
        tagged="2+",
        default=None,
        doc="Eligible leader replicas.",
    )
    last_known_elr: list[int] | None = field(
        Array(Int32),
        versions="2+",
        nullable="2+",
        tag=2,
        tagged="2+",
        default=None,
        doc="Last known elr.",
    )


class PartitionChangeRecord(MetadataRecord, api_key=5, versions="0-2", flexible="0+"):
    """PartitionChangeRecord."""

    partition_id: int = field(Int32, default=-1, doc="Partition id.")
    topic_id: UUID = field(Uuid, doc="Topic id.")
    isr: list[int] | None = field(Array(Int32), nullable="0+", tag=0, tagged="0+", default=None, doc="Isr.")
    leader: int = field(Int32, tag=1, tagged="0+", default=-2, doc="Leader.")
    replicas: list[int] | None = field(Array(Int32), nullable="0+", tag=2, tagged="0+", default=None, doc="Replicas.")
    removing_replicas: list[int] | None = field(
        Array(Int32),
        nullable="0+",
        tag=3,
        tagged="0+",
        default=None,
        doc="Removing replicas.",
    )
    adding_replicas: list[int] | None = field(
        Array(Int32),
        nullable="0+",
        tag=4,
        tagged="0+",
        default=None,
        doc="Adding replicas.",
    )
    leader_recovery_state: int = field(Int8, tag=5, tagged="0+", default=-1, doc="Leader recovery state.")
    directories: list[UUID] | None = field(
        Array(Uuid),
        versions="1+",
        nullable="1+",
        tag=8,
        tagged="1+",
        default=None,
        doc="Directories.",
    )
    eligible_leader_replicas: list[int] | None = field(
        Array(Int32),
        versions="2+",
        nullable="2+",
        tag=6,
        tagged="2+",
        default=None,
        doc="Eligible leader replicas.",
    )
    last_known_elr: list[int] | None = field(
        Array(Int32),
        versions="2+",
        nullable="2+",
        tag=7,
        tagged="2+",
        default=None,
        doc="Last known elr.",
    )


class ClearElrRecord(MetadataRecord, api_key=28, versions="0", flexible="0+"):
    """ClearElrRecord."""

    topic_name: str = field(String, doc="Topic name.")


class ConfigRecord(MetadataRecord, api_key=4, versions="0", flexible="0+"):
    """ConfigRecord."""

    resource_type: int = field(Int8, doc="Resource type.")
    resource_name: str = field(String, doc="Resource name.")
    name: str = field(String, doc="Name.")
    value: str | None = field(String, nullable="0+", doc="Value.")


class FeatureLevelRecord(MetadataRecord, api_key=12, versions="0", flexible="0+"):
    """FeatureLevelRecord."""

    name: str = field(String, doc="Name.")
    feature_level: int = field(Int16, doc="Feature level.")


class ProducerIdsRecord(MetadataRecord, api_key=15, versions="0", flexible="0+"):
    """ProducerIdsRecord."""

    broker_id: int = field(Int32, doc="Broker id.")
    broker_epoch: int = field(Int64, default=-1, doc="Broker epoch.")
    next_producer_id: int = field(Int64, doc="Next producer id.")


class NoOpRecord(MetadataRecord, api_key=20, versions="0", flexible="0+"):
    """NoOpRecord."""


class BeginTransactionRecord(MetadataRecord, api_key=23, versions="0", flexible="0+"):
    """BeginTransactionRecord."""

    name: str | None = field(String, nullable="0+", tag=0, tagged="0+", default=None, doc="Name.")


class EndTransactionRecord(MetadataRecord, api_key=24, versions="0", flexible="0+"):
    """EndTransactionRecord."""


class AbortTransactionRecord(MetadataRecord, api_key=25, versions="0", flexible="0+"):
    """AbortTransactionRecord."""

    reason: str | None = field(String, nullable="0+", tag=0, tagged="0+", default=None, doc="Reason.")
