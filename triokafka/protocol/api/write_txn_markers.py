"""WriteTxnMarkers (API key 27): a transaction coordinator has the markers of decided transactions written (KIP-98).

Versions 1–2; flexible. v2: the transaction version, for which the leader checks the epoch (KIP-1228).
"""

from __future__ import annotations

from triokafka.protocol.message import Request, Response, Struct, field
from triokafka.protocol.primitives import Array, Boolean, Int8, Int16, Int32, Int64, String


class WritableTxnMarkerTopic(Struct):
    """The partitions of one topic."""

    name: str = field(String, doc="The topic's name.")
    partition_indexes: list[int] = field(Array(Int32), doc="The partitions' numbers.")


class WritableTxnMarker(Struct):
    """A decided transaction, with its partitions on the receiving broker."""

    producer_id: int = field(Int64, doc="The producer id of the transaction.")
    producer_epoch: int = field(
        Int16, doc="The producer epoch that the marker carries.", errors=("InvalidProducerEpochError",)
    )
    transaction_result: bool = field(Boolean, doc="Whether the transaction was committed; otherwise it was aborted.")
    topics: list[WritableTxnMarkerTopic] = field(Array(WritableTxnMarkerTopic), doc="The topics to write to.")
    coordinator_epoch: int = field(
        Int32,
        doc="The leader epoch of the coordinator's partition of ``__transaction_state``.",
        errors=("TransactionCoordinatorFencedError",),
    )
    transaction_version: int = field(
        Int8,
        versions="2+",
        ignorable=True,
        default=0,
        doc="The level of the feature ``transaction.version`` under which the transaction ran.",
    )


class WriteTxnMarkersRequest(Request["WriteTxnMarkersResponse"], api_key=27, versions="1-2", flexible="1+"):
    """Write the markers of decided transactions."""

    markers: list[WritableTxnMarker] = field(Array(WritableTxnMarker), doc="The transactions.")


class WrittenTxnMarkerPartition(Struct):
    """The outcome for one partition."""

    partition_index: int = field(Int32, doc="The partition's number.")
    error_code: int = field(
        Int16,
        doc="The error code of the partition; 0 means success.",
        errors=(
            "ClusterAuthorizationFailedError",
            "CorruptRecordError",
            "UnknownTopicOrPartitionError",
            "NotLeaderForPartitionError",
            "MessageSizeTooLargeError",
            "RecordListTooLargeError",
            "NotEnoughReplicasError",
            "NotEnoughReplicasAfterAppendError",
            "InvalidRequiredAcksError",
            "InvalidProducerEpochError",
            "TransactionCoordinatorFencedError",
            "KafkaStorageError",
        ),
    )


class WrittenTxnMarkerTopic(Struct):
    """The outcome for one topic."""

    name: str = field(String, doc="The topic's name.")
    partitions: list[WrittenTxnMarkerPartition] = field(Array(WrittenTxnMarkerPartition), doc="The partitions.")


class WrittenTxnMarker(Struct):
    """The outcome for one transaction."""

    producer_id: int = field(Int64, doc="The producer id of the transaction.")
    topics: list[WrittenTxnMarkerTopic] = field(Array(WrittenTxnMarkerTopic), doc="The topics.")


class WriteTxnMarkersResponse(Response, api_key=27, versions="1-2", flexible="1+"):
    """The outcome for each transaction."""

    markers: list[WrittenTxnMarker] = field(Array(WrittenTxnMarker), doc="The transactions.")
