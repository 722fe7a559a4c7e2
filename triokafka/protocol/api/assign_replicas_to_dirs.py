"""AssignReplicasToDirs (API key 73): a broker tells the controller which log directory holds which replica (KIP-858).

Version 0; flexible.
"""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, Uuid


class PartitionData(Struct):
    """One partition."""

    partition_index: int = field(Int32, doc="The partition's number.")


class TopicData(Struct):
    """The replicas of one topic."""

    topic_id: UUID = field(Uuid, doc="The topic's id.")
    partitions: list[PartitionData] = field(Array(PartitionData), doc="The partitions with a replica in the directory.")


class DirectoryData(Struct):
    """A log directory, with replicas in it."""

    id: UUID = field(Uuid, doc="The directory's id.")
    topics: list[TopicData] = field(Array(TopicData), doc="The topics with replicas in the directory.")


class AssignReplicasToDirsRequest(Request["AssignReplicasToDirsResponse"], api_key=73, versions="0", flexible="0+"):
    """Report the log directories of replicas."""

    broker_id: int = field(Int32, doc="The broker that reports.")
    broker_epoch: int = fields.broker_epoch()
    directories: list[DirectoryData] = field(Array(DirectoryData), doc="The directories.")


class AssignedPartition(Struct):
    """The outcome for one replica."""

    partition_index: int = field(Int32, doc="The partition's number.")
    error_code: int = field(
        Int16,
        doc="The error code of the replica; 0 means success.",
        errors=("UnknownTopicIdError", "UnknownTopicOrPartitionError", "NotLeaderForPartitionError"),
    )


class AssignedTopic(Struct):
    """The outcome for the replicas of one topic."""

    topic_id: UUID = field(Uuid, doc="The topic's id.")
    partitions: list[AssignedPartition] = field(Array(AssignedPartition), doc="The partitions.")


class AssignedDirectory(Struct):
    """The outcome for the replicas of one directory."""

    id: UUID = field(Uuid, doc="The directory's id.")
    topics: list[AssignedTopic] = field(Array(AssignedTopic), doc="The topics.")


class AssignReplicasToDirsResponse(Response, api_key=73, versions="0", flexible="0+"):
    """The outcome for each replica."""

    throttle_time_ms: int = fields.throttle_time_ms()
    error_code: int = field(
        Int16,
        doc="The error code of the whole request; 0 means success.",
        errors=(
            "ClusterAuthorizationFailedError",
            "NotControllerError",
            "StaleBrokerEpochError",
            "BrokerIdNotRegisteredError",
        ),
    )
    directories: list[AssignedDirectory] = field(Array(AssignedDirectory), doc="The directories.")
