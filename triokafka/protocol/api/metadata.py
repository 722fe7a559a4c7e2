"""Metadata (API key 3): brokers of the cluster, and the leaders and replicas of topics.

Versions 0–13; flexible from 9. v1: rack, controller, internal topics; a null list asks for all topics (in v0 an empty
one does). v2: cluster id. v3: throttle time. v4: the request may create topics. v5: offline replicas. v7: leader
epoch. v8: authorized operations. v10: topic ids. v11: the cluster's authorized operations move to DescribeCluster.
v12: topics by id. v13: error of the whole answer.
"""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int16, Int32, String, Uuid


class MetadataRequestTopic(Struct):
    """A topic, by name or by id."""

    topic_id: UUID = field(
        Uuid,
        versions="10+",
        ignorable=True,
        doc="The topic's id; nil to ask by name.",
        errors=("UnknownTopicIdError",),
    )
    name: str | None = field(
        String,
        nullable="10+",
        doc="The topic's name; null to ask by id.",
        errors=("UnknownTopicOrPartitionError", "InvalidTopicError", "TopicAuthorizationFailedError"),
    )


class MetadataRequest(Request["MetadataResponse"], api_key=3, versions="0-13", flexible="9+"):
    """Ask for brokers and topics."""

    topics: list[MetadataRequestTopic] | None = field(
        Array(MetadataRequestTopic),
        nullable="1+",
        doc="The topics; null for all. In version 0 an empty list means all.",
    )
    allow_auto_topic_creation: bool = field(
        Boolean,
        versions="4+",
        default=True,
        doc="Whether the broker may create topics that are missing, if it is set up to do so.",
    )
    include_cluster_authorized_operations: bool = fields.include_cluster_authorized_operations(versions="8-10")
    include_topic_authorized_operations: bool = field(
        Boolean,
        versions="8+",
        doc="Whether to return the operations that the client may perform on each topic.",
    )


class MetadataResponseBroker(Struct):
    """A broker and where to reach it."""

    node_id: int = field(Int32, doc="The broker's id.")
    host: str = field(String, doc="The host to connect to.")
    port: int = field(Int32, doc="The port to connect to.")
    rack: str | None = fields.rack(versions="1+", nullable="1+", ignorable=True)


class MetadataResponsePartition(Struct):
    """A partition's leader and replicas."""

    error_code: int = field(
        Int16,
        doc="Whether the partition is usable.",
        errors=("LeaderNotAvailableError", "ListenerNotFoundError", "ReplicaNotAvailableError"),
    )
    partition_index: int = field(Int32, doc="The partition's number.")
    leader_id: int = field(Int32, doc="The leader's broker id; -1 for none.")
    leader_epoch: int = fields.leader_epoch(versions="7+", ignorable=True)
    replica_nodes: list[int] = field(
        Array(Int32),
        doc="The brokers that hold the partition, the preferred leader first.",
    )
    isr_nodes: list[int] = field(Array(Int32), doc="Those of them that are in sync.")
    offline_replicas: list[int] = field(
        Array(Int32),
        versions="5+",
        ignorable=True,
        doc="Those of them that are offline.",
    )


class MetadataResponseTopic(Struct):
    """A topic and its partitions."""

    error_code: int = field(
        Int16,
        doc="The error code of the topic; 0 for success.",
        errors=(
            "UnknownTopicOrPartitionError",
            "LeaderNotAvailableError",
            "InvalidTopicError",
            "TopicAuthorizationFailedError",
            "UnknownTopicIdError",
            "InvalidReplicationFactorError",
        ),
    )
    name: str | None = field(
        String,
        nullable="12+",
        doc="The topic's name; null if the request named an unknown topic id.",
    )
    topic_id: UUID = field(Uuid, versions="10+", ignorable=True, doc="The topic's id.")
    is_internal: bool = fields.is_internal(versions="1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = field(Array(MetadataResponsePartition), doc="The topic's partitions.")
    topic_authorized_operations: int = fields.topic_authorized_operations(versions="8+")


class MetadataResponse(Response, api_key=3, versions="0-13", flexible="9+"):
    """Brokers and topics as the answering broker knows them."""

    throttle_time_ms: int = fields.throttle_time_ms(versions="3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = field(Array(MetadataResponseBroker), doc="The live brokers.")
    cluster_id: str | None = field(
        String,
        versions="2+",
        nullable="2+",
        ignorable=True,
        default=None,
        doc="The cluster's id; null when the broker does not know.",
    )
    controller_id: int = field(
        Int32,
        versions="1+",
        ignorable=True,
        default=-1,
        doc="The controller's broker id; under KRaft any broker that forwards to it; -1 for none.",
    )
    topics: list[MetadataResponseTopic] = field(
        Array(MetadataResponseTopic),
        doc="The requested topics, including those that failed.",
    )
    cluster_authorized_operations: int = fields.cluster_authorized_operations(versions="8-10")
    error_code: int = field(
        Int16,
        versions="13+",
        ignorable=True,
        doc="The error code of the whole response; 0 means success.",
        errors=("RebootstrapRequiredError",),
    )
