"""Metadata (API key 3)."""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int16, Int32, String, Uuid


class MetadataRequestTopic(Struct):
    """One item of ``topics``."""

    topic_id: UUID = field(Uuid, versions="10+", ignorable=True, doc="Topic id.")
    name: str | None = field(String, nullable="10+", doc="Name.")


class MetadataRequest(Request["MetadataResponse"], api_key=3, versions="0-13", flexible="9+"):
    """Ask."""

    topics: list[MetadataRequestTopic] | None = field(Array(MetadataRequestTopic), nullable="1+", doc="Topics.")
    allow_auto_topic_creation: bool = field(Boolean, versions="4+", default=True, doc="Allow auto topic creation.")
    include_cluster_authorized_operations: bool = field(
        Boolean,
        versions="8-10",
        doc="Include cluster authorized operations.",
    )
    include_topic_authorized_operations: bool = field(
        Boolean,
        versions="8+",
        doc="Include topic authorized operations.",
    )


class MetadataResponseBroker(Struct):
    """One item of ``brokers``."""

    node_id: int = field(Int32, doc="Node id.")
    host: str = field(String, doc="Host.")
    port: int = field(Int32, doc="Port.")
    rack: str | None = field(String, versions="1+", nullable="1+", ignorable=True, default=None, doc="Rack.")


class MetadataResponsePartition(Struct):
    """One item of ``partitions``."""

    error_code: int = field(Int16, doc="Error code.")
    partition_index: int = field(Int32, doc="Partition index.")
    leader_id: int = field(Int32, doc="Leader id.")
    leader_epoch: int = field(Int32, versions="7+", ignorable=True, default=-1, doc="Leader epoch.")
    replica_nodes: list[int] = field(Array(Int32), doc="Replica nodes.")
    isr_nodes: list[int] = field(Array(Int32), doc="Isr nodes.")
    offline_replicas: list[int] = field(Array(Int32), versions="5+", ignorable=True, doc="Offline replicas.")


class MetadataResponseTopic(Struct):
    """One item of ``topics``."""

    error_code: int = field(Int16, doc="Error code.")
    name: str | None = field(String, nullable="12+", doc="Name.")
    topic_id: UUID = field(Uuid, versions="10+", ignorable=True, doc="Topic id.")
    is_internal: bool = field(Boolean, versions="1+", ignorable=True, doc="Is internal.")
    partitions: list[MetadataResponsePartition] = field(Array(MetadataResponsePartition), doc="Partitions.")
    topic_authorized_operations: int = field(Int32, versions="8+", default=-(2**31), doc="Topic authorized operations.")


class MetadataResponse(Response, api_key=3, versions="0-13", flexible="9+"):
    """The answer."""

    throttle_time_ms: int = field(Int32, versions="3+", ignorable=True, doc="Throttle time ms.")
    brokers: list[MetadataResponseBroker] = field(Array(MetadataResponseBroker), doc="Brokers.")
    cluster_id: str | None = field(
        String,
        versions="2+",
        nullable="2+",
        ignorable=True,
        default=None,
        doc="Cluster id.",
    )
    controller_id: int = field(Int32, versions="1+", ignorable=True, default=-1, doc="Controller id.")
    topics: list[MetadataResponseTopic] = field(Array(MetadataResponseTopic), doc="Topics.")
    cluster_authorized_operations: int = field(
        Int32,
        versions="8-10",
        default=-(2**31),
        doc="Cluster authorized operations.",
    )
    error_code: int = field(Int16, versions="13+", ignorable=True, doc="Error code.")
