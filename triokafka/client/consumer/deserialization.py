"""Applying the user's deserializers to records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triokafka.client.serializers import Deserializer
from triokafka.records import ConsumerRecord


class UndeserializedBytes(bytes):
    """A key or value as fetched, because the deserializer failed with ``error``.

    Returned under ``deserialization_error_policy="raw"``.
    """

    error: Exception


def record_converter(
    key_deserializer: Any, value_deserializer: Any, *, raw: bool
) -> Callable[[ConsumerRecord], ConsumerRecord] | None:
    """Return a function that makes the deserialized record; None without deserializers. Null stays null."""
    if key_deserializer is None and value_deserializer is None:
        return None
    key_of, value_of = _deserialize_with(key_deserializer), _deserialize_with(value_deserializer)
    if raw:
        key_of, value_of = _or_raw(key_of), _or_raw(value_of)

    def convert(record: ConsumerRecord) -> ConsumerRecord:
        key, value = record.key, record.value
        return ConsumerRecord(
            record.topic,
            record.partition,
            record.offset,
            record.timestamp,
            key if key is None else key_of(record, key),
            value if value is None else value_of(record, value),
            record.headers,
            record.timestamp_type,
            record.leader_epoch,
            record.serialized_key_size,
            record.serialized_value_size,
        )

    return convert


def _or_raw(deserialize: Callable[[ConsumerRecord, bytes], Any]) -> Callable[[ConsumerRecord, bytes], Any]:
    def deserialize_or_wrap(record: ConsumerRecord, data: bytes) -> Any:
        try:
            return deserialize(record, data)
        except Exception as error:
            kept = UndeserializedBytes(data)
            kept.error = error
            return kept

    return deserialize_or_wrap


def _deserialize_with(deserializer: Any) -> Callable[[ConsumerRecord, bytes], Any]:
    if deserializer is None:
        return lambda record, data: data
    if isinstance(deserializer, Deserializer):
        return lambda record, data: deserializer.deserialize(record.topic, data, list(record.headers))
    return lambda record, data: deserializer(data)
