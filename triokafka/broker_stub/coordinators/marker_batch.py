"""The control batch of a transaction marker."""

from __future__ import annotations

from triokafka.coordinator.runtime.coordinator_log import TransactionMarker
from triokafka.protocol.stored.control_records import ControlRecordType, EndTxnMarker, encode_control_key
from triokafka.records import encode_batch


def marker_batch(marker: TransactionMarker, timestamp_ms: int) -> bytes:
    """Encode a marker as the batch that ends the transaction in a partition, as Kafka writes it."""
    kind = ControlRecordType.COMMIT if marker.commits else ControlRecordType.ABORT
    value = EndTxnMarker(coordinator_epoch=marker.coordinator_epoch).encode_versioned(0)
    return encode_batch(
        [(timestamp_ms, encode_control_key(kind), value, ())],
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transactional=True,
        control=True,
    )
