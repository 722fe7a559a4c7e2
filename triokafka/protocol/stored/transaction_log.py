"""Records of ``__transaction_state``: the state of a transactional id. Keys start with 0."""

from __future__ import annotations

from triokafka.protocol.message import Struct, field
from triokafka.protocol.primitives import Array, Int8, Int16, Int32, Int64, String
from triokafka.protocol.stored.versioned import VersionedMessage


class TransactionLogKey(VersionedMessage, versions="0"):
    """The transactional id."""

    transactional_id: str = field(String, versions="0", doc="The transactional id.")


class PartitionsSchema(Struct):
    """Partitions of one topic that take part."""

    topic: str = field(String, doc="The topic's name.")
    partition_ids: list[int] = field(Array(Int32), doc="The partitions' numbers.")


class TransactionLogValue(VersionedMessage, versions="0-1", flexible="1+"):
    """The state of its transaction."""

    producer_id: int = field(Int64, doc="The producer's id.")
    previous_producer_id: int = field(
        Int64, versions="1+", tag=0, default=-1, doc="The producer id of the transaction before; -1 for none."
    )
    next_producer_id: int = field(
        Int64, versions="1+", tag=1, default=-1, doc="The producer id of the transaction after; -1 for none."
    )
    producer_epoch: int = field(Int16, doc="The producer's epoch.")
    next_producer_epoch: int = field(
        Int16, versions="1+", tag=3, default=-1, doc="The epoch that goes with the next producer id; -1 for none."
    )
    transaction_timeout_ms: int = field(Int32, doc="How many milliseconds the transaction may stay open.")
    transaction_status: int = field(
        Int8,
        doc="0 empty, 1 ongoing, 2 to be committed, 3 to be aborted, 4 committed, 5 aborted, 6 dead, 7 being fenced.",
    )
    transaction_partitions: list[PartitionsSchema] | None = field(
        Array(PartitionsSchema),
        nullable="0+",
        doc="The partitions that take part; null while the transaction is empty.",
    )
    transaction_last_update_timestamp_ms: int = field(Int64, doc="When it changed last, in milliseconds.")
    transaction_start_timestamp_ms: int = field(Int64, doc="When it began, in milliseconds; -1 while it has not.")
    client_transaction_version: int = field(
        Int16,
        versions="1+",
        tag=2,
        doc="The transaction protocol that the client uses; 2 raises the epoch with each transaction.",
    )
