"""AlterPartition (API key 56): a leader tells the controller who is in sync (KIP-497).

Versions 2–3; flexible. v3: brokers with their epochs (KIP-903).
"""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int8, Int16, Int32, Int64, Uuid


class BrokerState(Struct):
    """A replica and the registration that it had when it was found in sync."""

    broker_id: int = field(Int32, versions="3+", doc="The replica.")
    broker_epoch: int = field(
        Int64, versions="3+", default=-1, doc="The epoch of its registration; -1 when it does not say."
    )


class PartitionData(Struct):
    """One partition and its new in-sync set."""

    partition_index: int = field(Int32, doc="The partition's number.")
    leader_epoch: int = field(Int32, doc="The leader epoch in which the broker leads.")
    new_isr: list[int] = field(Array(Int32), versions="0-2", doc="The new in-sync replicas, before version 3.")
    new_isr_with_epochs: list[BrokerState] = field(Array(BrokerState), versions="3+", doc="The new in-sync replicas.")
    leader_recovery_state: int = field(
        Int8, versions="1+", default=0, doc="1 while the leader recovers from an unclean election; 0 otherwise."
    )
    partition_epoch: int = field(Int32, doc="The partition epoch that the change builds on.")


class TopicData(Struct):
    """A topic with partitions to change."""

    topic_id: UUID = field(Uuid, versions="2+", ignorable=True, doc="The topic's id.")
    partitions: list[PartitionData] = field(Array(PartitionData), doc="The partitions.")


class AlterPartitionRequest(Request["AlterPartitionResponse"], api_key=56, versions="2-3", flexible="0+"):
    """Change in-sync sets; sent by the leaders of the partitions."""

    broker_id: int = field(Int32, doc="The broker that leads and asks.")
    broker_epoch: int = field(Int64, default=-1, doc="The epoch of its registration; -1 when it does not say.")
    topics: list[TopicData] = field(Array(TopicData), doc="The topics.")


class AlteredPartition(Struct):
    """The state of one partition."""

    partition_index: int = field(Int32, doc="The partition's number.")
    error_code: int = field(
        Int16,
        doc="The error code; 0 means success.",
        errors=(
            "InvalidUpdateVersionError",
            "FencedLeaderEpochError",
            "InvalidRequestError",
            "IneligibleReplicaError",
            "UnknownTopicIdError",
            "UnknownTopicOrPartitionError",
            "NewLeaderElectedError",
            "OperationNotAttemptedError",
            "NotControllerError",
        ),
    )
    leader_id: int = field(Int32, doc="The broker that leads.")
    leader_epoch: int = field(Int32, doc="The leader epoch.")
    isr: list[int] = field(Array(Int32), doc="The replicas in sync.")
    leader_recovery_state: int = field(
        Int8,
        versions="1+",
        ignorable=True,
        default=0,
        doc="1 while the leader recovers from an unclean election; 0 otherwise.",
    )
    partition_epoch: int = field(Int32, doc="The partition epoch after the change.")


class AlteredTopic(Struct):
    """A topic with changed partitions."""

    topic_id: UUID = field(Uuid, versions="2+", ignorable=True, doc="The topic's id.")
    partitions: list[AlteredPartition] = field(Array(AlteredPartition), doc="The partitions.")


class AlterPartitionResponse(Response, api_key=56, versions="2-3", flexible="0+"):
    """The state of each partition after the change."""

    throttle_time_ms: int = fields.throttle_time_ms()
    error_code: int = field(
        Int16,
        doc="The error code; 0 means success.",
        errors=(
            "StaleBrokerEpochError",
            "NotControllerError",
            "ClusterAuthorizationFailedError",
        ),
    )
    topics: list[AlteredTopic] = field(Array(AlteredTopic), doc="The topics.")
