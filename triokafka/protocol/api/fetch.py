"""Fetch (API key 1)."""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int8, Int16, Int32, Int64, Records, String, Uuid
from triokafka.structs import Buffer


class ReplicaState(Struct):
    """One item of ``replica_state``."""

    replica_id: int = field(Int32, versions="15+", default=-1, doc="Replica id.")
    replica_epoch: int = field(Int64, versions="15+", default=-1, doc="Replica epoch.")


class FetchPartition(Struct):
    """One item of ``partitions``."""

    partition: int = field(Int32, doc="Partition.")
    current_leader_epoch: int = field(Int32, versions="9+", ignorable=True, default=-1, doc="Current leader epoch.")
    fetch_offset: int = field(Int64, doc="Fetch offset.")
    last_fetched_epoch: int = field(Int32, versions="12+", default=-1, doc="Last fetched epoch.")
    log_start_offset: int = field(Int64, versions="5+", ignorable=True, default=-1, doc="Log start offset.")
    partition_max_bytes: int = field(Int32, doc="Partition max bytes.")
    replica_directory_id: UUID = field(
        Uuid,
        versions="17+",
        tag=0,
        tagged="17+",
        ignorable=True,
        doc="Replica directory id.",
    )
    high_watermark: int = field(
        Int64,
        versions="18+",
        tag=1,
        tagged="18+",
        ignorable=True,
        default=2**63 - 1,
        doc="High watermark.",
    )


class FetchTopic(Struct):
    """One item of ``topics``."""

    topic: str = field(String, versions="0-12", ignorable=True, doc="Topic.")
    topic_id: UUID = field(Uuid, versions="13+", ignorable=True, doc="Topic id.")
    partitions: list[FetchPartition] = field(Array(FetchPartition), doc="Partitions.")


class ForgottenTopic(Struct):
    """One item of ``forgotten_topics_data``."""

    topic: str = field(String, versions="7-12", ignorable=True, doc="Topic.")
    topic_id: UUID = field(Uuid, versions="13+", ignorable=True, doc="Topic id.")
    partitions: list[int] = field(Array(Int32), versions="7+", doc="Partitions.")


class FetchRequest(Request["FetchResponse"], api_key=1, versions="4-18", flexible="12+"):
    """Ask."""

    cluster_id: str | None = field(
        String,
        versions="12+",
        nullable="12+",
        tag=0,
        tagged="12+",
        ignorable=True,
        default=None,
        doc="Cluster id.",
    )
    replica_id: int = field(Int32, versions="0-14", default=-1, doc="Replica id.")
    replica_state: ReplicaState = field(ReplicaState, versions="15+", tag=1, tagged="15+", doc="Replica state.")
    max_wait_ms: int = field(Int32, doc="Max wait ms.")
    min_bytes: int = field(Int32, doc="Min bytes.")
    max_bytes: int = field(Int32, versions="3+", ignorable=True, default=2**31 - 1, doc="Max bytes.")
    isolation_level: int = field(Int8, versions="4+", ignorable=True, doc="Isolation level.")
    session_id: int = field(Int32, versions="7+", ignorable=True, doc="Session id.")
    session_epoch: int = field(Int32, versions="7+", ignorable=True, default=-1, doc="Session epoch.")
    topics: list[FetchTopic] = field(Array(FetchTopic), doc="Topics.")
    forgotten_topics_data: list[ForgottenTopic] = field(
        Array(ForgottenTopic),
        versions="7+",
        doc="Forgotten topics data.",
    )
    rack_id: str = field(String, versions="11+", ignorable=True, doc="Rack id.")


class EpochEndOffset(Struct):
    """One item of ``diverging_epoch``."""

    epoch: int = field(Int32, versions="12+", default=-1, doc="Epoch.")
    end_offset: int = field(Int64, versions="12+", default=-1, doc="End offset.")


class LeaderIdAndEpoch(Struct):
    """One item of ``current_leader``."""

    leader_id: int = field(Int32, versions="12+", default=-1, doc="Leader id.")
    leader_epoch: int = field(Int32, versions="12+", default=-1, doc="Leader epoch.")


class SnapshotId(Struct):
    """One item of ``snapshot_id``."""

    end_offset: int = field(Int64, default=-1, doc="End offset.")
    epoch: int = field(Int32, default=-1, doc="Epoch.")


class AbortedTransaction(Struct):
    """One item of ``aborted_transactions``."""

    producer_id: int = field(Int64, versions="4+", doc="Producer id.")
    first_offset: int = field(Int64, versions="4+", doc="First offset.")


class PartitionData(Struct):
    """One item of ``partitions``."""

    partition_index: int = field(Int32, doc="Partition index.")
    error_code: int = field(Int16, doc="Error code.")
    high_watermark: int = field(Int64, doc="High watermark.")
    last_stable_offset: int = field(Int64, versions="4+", ignorable=True, default=-1, doc="Last stable offset.")
    log_start_offset: int = field(Int64, versions="5+", ignorable=True, default=-1, doc="Log start offset.")
    diverging_epoch: EpochEndOffset = field(EpochEndOffset, versions="12+", tag=0, tagged="12+", doc="Diverging epoch.")
    current_leader: LeaderIdAndEpoch = field(
        LeaderIdAndEpoch,
        versions="12+",
        tag=1,
        tagged="12+",
        doc="Current leader.",
    )
    snapshot_id: SnapshotId = field(SnapshotId, versions="12+", tag=2, tagged="12+", doc="Snapshot id.")
    aborted_transactions: list[AbortedTransaction] | None = field(
        Array(AbortedTransaction),
        versions="4+",
        nullable="4+",
        ignorable=True,
        doc="Aborted transactions.",
    )
    preferred_read_replica: int = field(Int32, versions="11+", default=-1, doc="Preferred read replica.")
    records: Buffer | None = field(Records, nullable="0+", doc="Records.")


class FetchableTopicResponse(Struct):
    """One item of ``responses``."""

    topic: str = field(String, versions="0-12", ignorable=True, doc="Topic.")
    topic_id: UUID = field(Uuid, versions="13+", ignorable=True, doc="Topic id.")
    partitions: list[PartitionData] = field(Array(PartitionData), doc="Partitions.")


class NodeEndpoint(Struct):
    """One item of ``node_endpoints``."""

    node_id: int = field(Int32, versions="16+", doc="Node id.")
    host: str = field(String, versions="16+", doc="Host.")
    port: int = field(Int32, versions="16+", doc="Port.")
    rack: str | None = field(String, versions="16+", nullable="16+", default=None, doc="Rack.")


class FetchResponse(Response, api_key=1, versions="4-18", flexible="12+"):
    """The answer."""

    throttle_time_ms: int = field(Int32, versions="1+", ignorable=True, doc="Throttle time ms.")
    error_code: int = field(Int16, versions="7+", ignorable=True, doc="Error code.")
    session_id: int = field(Int32, versions="7+", doc="Session id.")
    responses: list[FetchableTopicResponse] = field(Array(FetchableTopicResponse), doc="Responses.")
    node_endpoints: list[NodeEndpoint] = field(
        Array(NodeEndpoint),
        versions="16+",
        tag=0,
        tagged="16+",
        doc="Node endpoints.",
    )
