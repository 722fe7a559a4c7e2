"""The records of a blocking consumer with deserializers."""

from __future__ import annotations

from typing import Any

from triokafka import ConsumerRecord
from triokafka.blocking.serializer import Deserializer
from triokafka.record_buffer import Convert


def converter(key_deserializer: Deserializer | None, value_deserializer: Deserializer | None) -> Convert | None:
    """Return the function that makes a consumer's record of the SDK's; None if they are the same."""
    if key_deserializer is None and value_deserializer is None:
        return None

    def convert(record: ConsumerRecord) -> ConsumerRecord:
        headers: list[Any] = list(record.headers)
        key, value = record.key, record.value
        if key_deserializer is not None:
            key = key_deserializer.deserialize(record.topic, headers, key)
        if value_deserializer is not None:
            value = value_deserializer.deserialize(record.topic, headers, value)
        return record.deserialized(key, value)

    return convert
