"""Fetch (API key 1): read record batches from partitions; consumers and followers alike.

Versions 4–18; flexible from 12. v4: isolation level, last stable offset, aborted transactions. v5: log start offset.
v6: KafkaStorageError. v7: fetch sessions, in which only changes are sent (KIP-227). v9: leader epoch for fencing.
v10: zstd. v11: fetching from the nearest replica (KIP-392). v12: epoch of the last record fetched, diverging epoch and
current leader in the answer. v13: topic ids instead of names. v14: OffsetMovedToTieredStorageError. v15: the follower's
identity moves to a tagged field (KIP-903). v16: addresses of new leaders (KIP-951). v17: the follower's log directory
(KIP-853). v18: the follower's high watermark (KIP-1166).
"""

from __future__ import annotations

from uuid import UUID

from triokafka.protocol import fields
from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Int16, Int32, Int64, Records, String, Uuid
from triokafka.structs import Buffer


class ReplicaState(Struct):
    """The follower that fetches; absent for consumers."""

    replica_id: int = field(Int32, versions="15+", default=-1, doc="The follower's broker id; -1 for a consumer.")
    replica_epoch: int = field(
        Int64,
        versions="15+",
        default=-1,
        doc="The broker epoch of the follower; -1 when unknown.",
        errors=("StaleBrokerEpochError",),
    )


class FetchPartition(Struct):
    """From where, and how much, to read in one partition."""

    partition: int = field(Int32, doc="The partition's number.")
    current_leader_epoch: int = fields.current_leader_epoch(versions="9+")
    fetch_offset: int = field(
        Int64,
        doc="The first offset to read.",
        errors=("OffsetOutOfRangeError", "OffsetMovedToTieredStorageError", "PositionOutOfRangeError"),
    )
    last_fetched_epoch: int = field(
        Int32,
        versions="12+",
        default=-1,
        doc="The leader epoch of the last record fetched, so that the leader can see a truncation; -1 when unknown.",
    )
    log_start_offset: int = field(
        Int64,
        versions="5+",
        ignorable=True,
        default=-1,
        doc="The follower's own first offset; -1 for a consumer.",
    )
    partition_max_bytes: int = field(
        Int32,
        doc="At most how many bytes from this partition; the first batch comes whole in any case.",
    )
    replica_directory_id: UUID = field(
        Uuid, versions="17+", tag=0, ignorable=True, doc="The id of the follower's log directory; nil for none."
    )
    high_watermark: int = field(
        Int64,
        versions="18+",
        tag=1,
        ignorable=True,
        default=2**63 - 1,
        doc="The high watermark that the follower knows; the largest number when unknown.",
    )


class FetchTopic(Struct):
    """The partitions of one topic."""

    topic: str = fields.topic_name(versions="0-12", ignorable=True)
    topic_id: UUID = field(
        Uuid,
        versions="13+",
        ignorable=True,
        doc="The topic's id.",
        errors=("UnknownTopicIdError", "InconsistentTopicIdError", "FetchSessionTopicIdError"),
    )
    partitions: list[FetchPartition] = field(Array(FetchPartition), doc="The offsets to fetch from, by partition.")


class ForgottenTopic(Struct):
    """Partitions that leave the fetch session."""

    topic: str = field(String, versions="7-12", ignorable=True, doc="The topic's name.")
    topic_id: UUID = field(Uuid, versions="13+", ignorable=True, doc="The topic's id.")
    partitions: list[int] = field(Array(Int32), versions="7+", doc="The partitions' numbers.")


class FetchRequest(Request["FetchResponse"], api_key=1, versions="4-18", flexible="12+"):
    """Read from partitions, waiting for data if there is too little."""

    cluster_id: str | None = field(
        String,
        versions="12+",
        nullable="12+",
        tag=0,
        ignorable=True,
        default=None,
        doc="The cluster that a follower of the metadata log belongs to; null for all others.",
        errors=("InconsistentClusterIdError",),
    )
    replica_id: int = field(Int32, versions="0-14", default=-1, doc="The follower's broker id; -1 for a consumer.")
    replica_state: ReplicaState = field(
        ReplicaState, versions="15+", tag=1, doc="The follower that fetches; absent for a consumer."
    )
    max_wait_ms: int = field(Int32, doc="How many milliseconds to wait for ``min_bytes``.")
    min_bytes: int = field(Int32, doc="How many bytes must be there before the broker answers in less time than that.")
    max_bytes: int = field(
        Int32,
        versions="3+",
        ignorable=True,
        default=2**31 - 1,
        doc="At most how many bytes of records; the first batch comes whole in any case, so that a reader gets on.",
    )
    isolation_level: int = fields.isolation_level(versions="4+", ignorable=True)
    session_id: int = field(
        Int32,
        versions="7+",
        ignorable=True,
        doc="The fetch session; 0 to start one or to do without.",
        errors=("FetchSessionIdNotFoundError",),
    )
    session_epoch: int = field(
        Int32,
        versions="7+",
        ignorable=True,
        default=-1,
        doc="The request's number within the session: 0 starts one, -1 ends it or does without.",
        errors=("InvalidFetchSessionEpochError",),
    )
    topics: list[FetchTopic] = field(
        Array(FetchTopic), doc="The partitions to read; in a session only new and changed ones."
    )
    forgotten_topics_data: list[ForgottenTopic] = field(
        Array(ForgottenTopic),
        versions="7+",
        doc="Partitions to drop from the session.",
    )
    rack_id: str = field(
        String,
        versions="11+",
        ignorable=True,
        doc="The reader's rack, for reading from a near replica; empty for none.",
    )


class EpochEndOffset(Struct):
    """The point where the fetcher's log diverges from the leader's; the fetcher truncates to it."""

    epoch: int = field(Int32, versions="12+", default=-1, doc="The last epoch that both logs share.")
    end_offset: int = field(Int64, versions="12+", default=-1, doc="The end of that epoch in the leader's log.")


class LeaderIdAndEpoch(Struct):
    """The current leader, as far as the broker knows; -1 if unknown."""

    leader_id: int = field(Int32, versions="12+", default=-1, doc="The leader's broker id; -1 for none.")
    leader_epoch: int = fields.leader_epoch(versions="12+")


class SnapshotId(Struct):
    """The snapshot to fetch in place of records that are gone (metadata log only)."""

    end_offset: int = field(Int64, default=-1, doc="The offset at which the snapshot ends.")
    epoch: int = field(Int32, default=-1, doc="The epoch of the snapshot's last record.")


class AbortedTransaction(Struct):
    """An aborted transaction; the consumer skips its records from the offset to its marker."""

    producer_id: int = field(Int64, versions="4+", doc="The producer of the aborted transaction.")
    first_offset: int = field(Int64, versions="4+", doc="The first offset of the transaction.")


class PartitionData(Struct):
    """The data of one partition."""

    partition_index: int = field(Int32, doc="The partition's number.")
    error_code: int = field(
        Int16,
        doc="The error code of the partition; 0 for success.",
        errors=(
            "OffsetOutOfRangeError",
            "UnknownTopicOrPartitionError",
            "NotLeaderForPartitionError",
            "ReplicaNotAvailableError",
            "FencedLeaderEpochError",
            "UnknownLeaderEpochError",
            "OffsetNotAvailableError",
            "TopicAuthorizationFailedError",
            "KafkaStorageError",
            "UnsupportedCompressionTypeError",
            "CorruptRecordError",
            "UnknownTopicIdError",
            "InconsistentTopicIdError",
            "OffsetMovedToTieredStorageError",
        ),
    )
    high_watermark: int = field(
        Int64,
        doc="The offset below which all in-sync replicas have the records; -1 on an error.",
    )
    last_stable_offset: int = field(
        Int64,
        versions="4+",
        ignorable=True,
        default=-1,
        doc="The offset below which all transactions are decided; -1 on an error.",
    )
    log_start_offset: int = field(
        Int64,
        versions="5+",
        ignorable=True,
        default=-1,
        doc="The partition's first offset; -1 on an error.",
    )
    diverging_epoch: EpochEndOffset = field(
        EpochEndOffset,
        versions="12+",
        tag=0,
        doc="Set instead of records when the fetcher's log is not the leader's: the end of the last common epoch.",
    )
    current_leader: LeaderIdAndEpoch = field(
        LeaderIdAndEpoch, versions="12+", tag=1, doc="The leader by now, when the request went to a former one."
    )
    snapshot_id: SnapshotId = field(
        SnapshotId,
        versions="12+",
        tag=2,
        doc="Set instead of records when only a snapshot still contains them (metadata log).",
    )
    aborted_transactions: list[AbortedTransaction] | None = field(
        Array(AbortedTransaction),
        versions="4+",
        nullable="4+",
        ignorable=True,
        doc="Transactions in this data that were aborted, when only committed ones are read; null otherwise.",
    )
    preferred_read_replica: int = field(
        Int32,
        versions="11+",
        default=-1,
        doc="The preferred read replica; -1 for none.",
    )
    records: Buffer | None = field(
        Records,
        nullable="0+",
        doc="The record batches. The first may start before the requested offset; the last may be incomplete.",
    )


class FetchableTopicResponse(Struct):
    """The data of one topic."""

    topic: str = field(String, versions="0-12", ignorable=True, doc="The topic's name.")
    topic_id: UUID = field(Uuid, versions="13+", ignorable=True, doc="The topic's id.")
    partitions: list[PartitionData] = field(Array(PartitionData), doc="The data by partition.")


class NodeEndpoint(Struct):
    """The address of a leader in the answer."""

    node_id: int = field(Int32, versions="16+", doc="The broker's id.")
    host: str = field(String, versions="16+", doc="The host to connect to.")
    port: int = field(Int32, versions="16+", doc="The port to connect to.")
    rack: str | None = fields.rack(versions="16+", nullable="16+")


class FetchResponse(Response, api_key=1, versions="4-18", flexible="12+"):
    """The data per partition."""

    throttle_time_ms: int = fields.throttle_time_ms(versions="1+", ignorable=True)
    error_code: int = field(
        Int16,
        versions="7+",
        ignorable=True,
        doc="The error code of the whole request; 0 means success.",
        errors=(
            "FetchSessionIdNotFoundError",
            "InvalidFetchSessionEpochError",
            "FetchSessionTopicIdError",
            "InconsistentClusterIdError",
            "UnknownTopicIdError",
        ),
    )
    session_id: int = field(Int32, versions="7+", doc="The session that was made or continued; 0 for none.")
    responses: list[FetchableTopicResponse] = field(
        Array(FetchableTopicResponse),
        doc="The data by topic; in a session only partitions with news.",
    )
    node_endpoints: list[NodeEndpoint] = field(
        Array(NodeEndpoint), versions="16+", tag=0, doc="Addresses of the leaders named as current."
    )
