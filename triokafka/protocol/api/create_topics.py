"""CreateTopics (API key 19)."""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int8, Int16, Int32, String, Uuid


class CreatableReplicaAssignment(Struct):
    """One item of ``assignments``."""

    partition_index: int = field(Int32, doc="Partition index.")
    broker_ids: list[int] = field(Array(Int32), doc="Broker ids.")


class CreatableTopicConfig(Struct):
    """One item of ``configs``."""

    name: str = field(String, doc="Name.")
    value: str | None = field(String, nullable="0+", doc="Value.")


class CreatableTopic(Struct):
    """One item of ``topics``."""

    name: str = field(String, doc="Name.")
    num_partitions: int = field(Int32, doc="Num partitions.")
    replication_factor: int = field(Int16, doc="Replication factor.")
    assignments: list[CreatableReplicaAssignment] = field(Array(CreatableReplicaAssignment), doc="Assignments.")
    configs: list[CreatableTopicConfig] = field(Array(CreatableTopicConfig), doc="Configs.")


class CreateTopicsRequest(Request["CreateTopicsResponse"], api_key=19, versions="2-7", flexible="5+"):
    """Ask."""

    topics: list[CreatableTopic] = field(Array(CreatableTopic), doc="Topics.")
    timeout_ms: int = field(Int32, default=60000, doc="Timeout ms.")
    validate_only: bool = field(Boolean, versions="1+", doc="Validate only.")


class CreatableTopicConfigs(Struct):
    """One item of ``configs``."""

    name: str = field(String, versions="5+", doc="Name.")
    value: str | None = field(String, versions="5+", nullable="5+", doc="Value.")
    read_only: bool = field(Boolean, versions="5+", doc="Read only.")
    config_source: int = field(Int8, versions="5+", ignorable=True, default=-1, doc="Config source.")
    is_sensitive: bool = field(Boolean, versions="5+", doc="Is sensitive.")


class CreatableTopicResult(Struct):
    """One item of ``topics``."""

    name: str = field(String, doc="Name.")
    topic_id: UUID = field(Uuid, versions="7+", ignorable=True, doc="Topic id.")
    error_code: int = field(Int16, doc="Error code.")
    error_message: str | None = field(String, versions="1+", nullable="0+", ignorable=True, doc="Error message.")
    topic_config_error_code: int = field(
        Int16,
        versions="5+",
        tag=0,
        tagged="5+",
        ignorable=True,
        doc="Topic config error code.",
    )
    num_partitions: int = field(Int32, versions="5+", ignorable=True, default=-1, doc="Num partitions.")
    replication_factor: int = field(Int16, versions="5+", ignorable=True, default=-1, doc="Replication factor.")
    configs: list[CreatableTopicConfigs] | None = field(
        Array(CreatableTopicConfigs),
        versions="5+",
        nullable="5+",
        ignorable=True,
        doc="Configs.",
    )


class CreateTopicsResponse(Response, api_key=19, versions="2-7", flexible="5+"):
    """The answer."""

    throttle_time_ms: int = field(Int32, versions="2+", ignorable=True, doc="Throttle time ms.")
    topics: list[CreatableTopicResult] = field(Array(CreatableTopicResult), doc="Topics.")
