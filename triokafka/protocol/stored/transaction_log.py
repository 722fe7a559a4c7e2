"""transaction_log."""

from __future__ import annotations

from triokafka.protocol.message import Struct, field
from triokafka.protocol.primitives import Array, Int8, Int16, Int32, Int64, String
from triokafka.protocol.stored.versioned import VersionedMessage


class TransactionLogKey(VersionedMessage, versions="0"):
    """TransactionLogKey."""

    transactional_id: str = field(String, doc="Transactional id.")


class PartitionsSchema(Struct):
    """One item of ``transaction_partitions``."""

    topic: str = field(String, doc="Topic.")
    partition_ids: list[int] = field(Array(Int32), doc="Partition ids.")


class TransactionLogValue(VersionedMessage, versions="0-1", flexible="1+"):
    """TransactionLogValue."""

    producer_id: int = field(Int64, doc="Producer id.")
    previous_producer_id: int = field(Int64, versions="1+", tag=0, tagged="1+", default=-1, doc="Previous producer id.")
    next_producer_id: int = field(Int64, versions="1+", tag=1, tagged="1+", default=-1, doc="Next producer id.")
    producer_epoch: int = field(Int16, doc="Producer epoch.")
    next_producer_epoch: int = field(Int16, versions="1+", tag=3, tagged="1+", default=-1, doc="Next producer epoch.")
    transaction_timeout_ms: int = field(Int32, doc="Transaction timeout ms.")
    transaction_status: int = field(Int8, doc="Transaction status.")
    transaction_partitions: list[PartitionsSchema] | None = field(
        Array(PartitionsSchema),
        nullable="0+",
        doc="Transaction partitions.",
    )
    transaction_last_update_timestamp_ms: int = field(Int64, doc="Transaction last update timestamp ms.")
    transaction_start_timestamp_ms: int = field(Int64, doc="Transaction start timestamp ms.")
    client_transaction_version: int = field(Int16, versions="1+", tag=2, tagged="1+", doc="Client transaction version.")
