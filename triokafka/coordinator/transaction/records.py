"""Keys and values of ``__transaction_state``, byte for byte as Kafka writes them."""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from triokafka.coordinator.runtime.coordinator_log import CoordinatorRecord
from triokafka.coordinator.runtime.effects import Effects
from triokafka.coordinator.transaction.metadata import TransactionMetadata
from triokafka.coordinator.transaction.state import TransactionState
from triokafka.errors import ProtocolError
from triokafka.protocol.stored.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from triokafka.protocol.stored.versioned import stored_version
from triokafka.structs import TopicPartition, by_topic

_KEY_VERSION: Final = 0


class TransactionChange(NamedTuple):
    """The new state of a transactional id, or (with value None) its removal."""

    transactional_id: str
    value: TransactionMetadata | None


TransactionEffects: TypeAlias = Effects[TransactionChange]


def encode(change: TransactionChange, transaction_version: int) -> CoordinatorRecord:
    """Encode a change. Value version 0 while ``transaction.version`` is 0, and version 1 from level 1 on."""
    key = TransactionLogKey(transactional_id=change.transactional_id).encode_versioned(_KEY_VERSION)
    value = change.value
    if value is None:
        return CoordinatorRecord(key, None)
    stored = TransactionLogValue(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        transaction_timeout_ms=value.timeout_ms,
        transaction_status=value.state,
        transaction_partitions=None
        if value.state is TransactionState.EMPTY
        else [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in by_topic(value.partitions).items()],
        transaction_last_update_timestamp_ms=value.last_update_ms,
        transaction_start_timestamp_ms=value.start_ms,
    )
    if transaction_version < 1:
        return CoordinatorRecord(key, stored.encode_versioned(0))
    stored.previous_producer_id = value.previous_producer_id
    stored.next_producer_id = value.next_producer_id
    stored.client_transaction_version = value.client_transaction_version
    return CoordinatorRecord(key, stored.encode_versioned(1))


def decode(key: bytes | None, value: bytes | None) -> TransactionChange | None:
    """Decode a record; returns None for an unknown kind, which a newer broker may have written.

    Raises:
        ProtocolError: the record is of the known kind and malformed.
    """
    if key is None:
        raise ProtocolError("a record without a key", path="TransactionLogKey", offset=0)
    if stored_version(key, "TransactionLogKey") != _KEY_VERSION:
        return None
    transactional_id = TransactionLogKey.decode_versioned(key).transactional_id
    if value is None:
        return TransactionChange(transactional_id, None)
    stored = TransactionLogValue.decode_versioned(value)
    try:
        state = TransactionState(stored.transaction_status)
    except ValueError:
        raise ProtocolError(
            f"unknown state {stored.transaction_status}", path="TransactionLogValue.transaction_status", offset=0
        ) from None
    return TransactionChange(
        transactional_id,
        TransactionMetadata(
            producer_id=stored.producer_id,
            producer_epoch=stored.producer_epoch,
            previous_producer_id=stored.previous_producer_id,
            next_producer_id=stored.next_producer_id,
            timeout_ms=stored.transaction_timeout_ms,
            state=state,
            partitions=tuple(
                TopicPartition(item.topic, number)
                for item in stored.transaction_partitions or ()
                for number in item.partition_ids
            ),
            start_ms=stored.transaction_start_timestamp_ms,
            last_update_ms=stored.transaction_last_update_timestamp_ms,
            client_transaction_version=stored.client_transaction_version,
        ),
    )
