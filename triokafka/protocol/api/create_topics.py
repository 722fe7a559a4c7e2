"""CreateTopics (API key 19): create topics, or check whether they could be created.

Versions 2–7; flexible from 5. v4: partition count and replication factor may be -1, for the broker's default (KIP-464).
v5: the answer describes the new topic (KIP-525). v6: ThrottlingQuotaExceededError (KIP-599). v7: topic id.
"""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int16, Int32, String, Uuid


class CreatableReplicaAssignment(Struct):
    """The brokers of one partition."""

    partition_index: int = field(Int32, doc="The partition's number.")
    broker_ids: list[int] = field(Array(Int32), doc="The brokers, the preferred leader first.")


class CreatableTopicConfig(Struct):
    """A configuration entry of the topic."""

    name: str = field(String, doc="The entry's name.")
    value: str | None = field(String, nullable="0+", doc="The entry's value; null for the default.")


class CreatableTopic(Struct):
    """A topic to be created."""

    name: str = field(
        String,
        doc="The topic's name.",
        errors=("TopicAlreadyExistsError", "InvalidTopicError", "TopicAuthorizationFailedError"),
    )
    num_partitions: int = field(
        Int32,
        doc="How many partitions; -1 for the default or when assignments are given.",
        errors=("InvalidPartitionsError",),
    )
    replication_factor: int = field(
        Int16,
        doc="How many replicas of each; -1 for the default or when assignments are given.",
        errors=("InvalidReplicationFactorError",),
    )
    assignments: list[CreatableReplicaAssignment] = field(
        Array(CreatableReplicaAssignment),
        doc="The brokers of every partition by hand; empty to let the controller choose.",
        errors=("InvalidReplicationAssignmentError",),
    )
    configs: list[CreatableTopicConfig] = field(
        Array(CreatableTopicConfig),
        doc="Configuration entries that differ from the default.",
        errors=("InvalidConfigurationError", "PolicyViolationError"),
    )


class CreateTopicsRequest(Request["CreateTopicsResponse"], api_key=19, versions="2-7", flexible="5+"):
    """Create topics."""

    topics: list[CreatableTopic] = field(Array(CreatableTopic), doc="The topics to create.")
    timeout_ms: int = field(
        Int32,
        default=60000,
        doc="How many milliseconds the broker may take until the topics exist on all their brokers.",
        errors=("RequestTimedOutError",),
    )
    validate_only: bool = field(Boolean, versions="1+", doc="Whether to validate only, without creating anything.")


class CreatableTopicConfigs(Struct):
    """A configuration entry in effect."""

    name: str = field(String, versions="5+", doc="The entry's name.")
    value: str | None = field(
        String,
        versions="5+",
        nullable="5+",
        doc="The entry's value; null when it is secret or unset.",
    )
    read_only: bool = field(Boolean, versions="5+", doc="Whether the entry cannot be changed.")
    config_source: int = fields.config_source(versions="5+")
    is_sensitive: bool = field(Boolean, versions="5+", doc="Whether the value is secret, and therefore null.")


class CreatableTopicResult(Struct):
    """The topic that was made, or why not."""

    name: str = field(String, doc="The topic's name.")
    topic_id: UUID = field(Uuid, versions="7+", ignorable=True, doc="The new topic's id; nil on an error.")
    error_code: int = field(
        Int16,
        doc="The error code of the topic; 0 if it was created, or validated.",
        errors=(
            "TopicAlreadyExistsError",
            "InvalidTopicError",
            "InvalidPartitionsError",
            "InvalidReplicationFactorError",
            "InvalidReplicationAssignmentError",
            "InvalidConfigurationError",
            "InvalidRequestError",
            "PolicyViolationError",
            "NotControllerError",
            "RequestTimedOutError",
            "TopicAuthorizationFailedError",
            "ClusterAuthorizationFailedError",
            "ThrottlingQuotaExceededError",
            "KafkaStorageError",
        ),
    )
    error_message: str | None = fields.error_message(versions="1+", nullable="0+", ignorable=True)
    topic_config_error_code: int = field(
        Int16,
        versions="5+",
        tag=0,
        ignorable=True,
        doc="The error code if the configuration is not returned.",
        errors=("TopicAuthorizationFailedError",),
    )
    num_partitions: int = field(
        Int32,
        versions="5+",
        ignorable=True,
        default=-1,
        doc="How many partitions it has; -1 when not shown.",
    )
    replication_factor: int = field(
        Int16,
        versions="5+",
        ignorable=True,
        default=-1,
        doc="How many replicas each has; -1 when not shown.",
    )
    configs: list[CreatableTopicConfigs] | None = field(
        Array(CreatableTopicConfigs),
        versions="5+",
        nullable="5+",
        ignorable=True,
        doc="Its configuration; null on an error. On success never null: the Java client relies on it.",
    )


class CreateTopicsResponse(Response, api_key=19, versions="2-7", flexible="5+"):
    """One result per topic of the request."""

    throttle_time_ms: int = fields.throttle_time_ms(versions="2+", ignorable=True)
    topics: list[CreatableTopicResult] = field(Array(CreatableTopicResult), doc="The results.")
