"""WriteTxnMarkers (API key 27): end transactions in the partitions that took part, sent by their coordinator.

Versions 1–2; flexible from 1. v1: the first version of Kafka 4. v2: the version of the transaction protocol, by which
the partition's leader checks the epoch (KIP-1228).
"""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int8, Int16, Int32, Int64, String


class WritableTxnMarkerTopic(Struct):
    """Partitions of one topic."""

    name: str = field(String, doc="The topic's name.")
    partition_indexes: list[int] = field(Array(Int32), doc="The partitions' numbers.")


class WritableTxnMarker(Struct):
    """The end of one transaction."""

    producer_id: int = field(Int64, doc="The producer's id.")
    producer_epoch: int = field(Int16, doc="The producer's epoch.", errors=("InvalidProducerEpochError",))
    transaction_result: bool = field(Boolean, doc="True to commit, false to abort.")
    topics: list[WritableTxnMarkerTopic] = field(Array(WritableTxnMarkerTopic), doc="The partitions by topic.")
    coordinator_epoch: int = field(
        Int32,
        doc="The leader epoch of the coordinator's partition of __transaction_state.",
        errors=("TransactionCoordinatorFencedError",),
    )
    transaction_version: int = field(
        Int8,
        versions="2+",
        ignorable=True,
        doc="The version of the transaction protocol; from 2 on the epoch must be above that of the records.",
    )


class WriteTxnMarkersRequest(Request["WriteTxnMarkersResponse"], api_key=27, versions="1-2", flexible="1+"):
    """End transactions in partitions."""

    markers: list[WritableTxnMarker] = field(Array(WritableTxnMarker), doc="The markers to write.")


class WritableTxnMarkerPartitionResult(Struct):
    """The outcome for one partition."""

    partition_index: int = field(Int32, doc="The partition's number.")
    error_code: int = field(
        Int16,
        doc="The error code; 0 if the marker was written.",
        errors=(
            "UnknownTopicOrPartitionError",
            "NotLeaderForPartitionError",
            "NotEnoughReplicasError",
            "NotEnoughReplicasAfterAppendError",
            "RequestTimedOutError",
            "KafkaStorageError",
            "InvalidProducerEpochError",
            "TransactionCoordinatorFencedError",
            "ClusterAuthorizationFailedError",
        ),
    )


class WritableTxnMarkerTopicResult(Struct):
    """The outcomes for one topic."""

    name: str = field(String, doc="The topic's name.")
    partitions: list[WritableTxnMarkerPartitionResult] = field(
        Array(WritableTxnMarkerPartitionResult), doc="The outcomes by partition."
    )


class WritableTxnMarkerResult(Struct):
    """The outcomes for one marker."""

    producer_id: int = field(Int64, doc="The producer's id.")
    topics: list[WritableTxnMarkerTopicResult] = field(
        Array(WritableTxnMarkerTopicResult), doc="The outcomes by topic."
    )


class WriteTxnMarkersResponse(Response, api_key=27, versions="1-2", flexible="1+"):
    """The outcome per marker and partition."""

    markers: list[WritableTxnMarkerResult] = field(Array(WritableTxnMarkerResult), doc="The outcomes by marker.")
