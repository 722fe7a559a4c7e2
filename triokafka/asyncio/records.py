"""aiokafka's `ConsumerRecord`, and the choice between it and the SDK's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import triokafka

KT = TypeVar("KT", covariant=True)
VT = TypeVar("VT", covariant=True)


class _RecordType(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return type.__instancecheck__(cls, instance) or (
            cls is ConsumerRecord and isinstance(instance, triokafka.ConsumerRecord)
        )


@dataclass
class ConsumerRecord(Generic[KT, VT], metaclass=_RecordType):
    """A record that a consumer returned; times are milliseconds since the epoch, sizes bytes.

    Consumers return the compiled `triokafka.ConsumerRecord`, which has these attributes and is an instance of this
    class for `isinstance`; after `return_dataclasses` they return this class.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: KT | None
    value: VT | None
    checksum: int | None
    serialized_key_size: int
    serialized_value_size: int
    headers: Sequence[tuple[str, bytes]]


_dataclasses = False


def return_dataclasses() -> None:
    """Let consumers constructed from now on return aiokafka's mutable dataclass, at about a microsecond a record."""
    global _dataclasses
    _dataclasses = True


def as_dataclass(record: triokafka.ConsumerRecord) -> ConsumerRecord[Any, Any]:
    """Return the record as aiokafka's dataclass."""
    return ConsumerRecord(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        record.timestamp_type,
        record.key,
        record.value,
        record.checksum,
        record.serialized_key_size,
        record.serialized_value_size,
        record.headers,  # type: ignore[arg-type] # a header's value may be None, as in aiokafka
    )


def converter(
    key_deserializer: Callable[[Any], Any] | None, value_deserializer: Callable[[Any], Any] | None
) -> Callable[[triokafka.ConsumerRecord], Any] | None:
    """Return the function that makes a consumer's record of the SDK's; None if they are the same."""
    dataclasses = _dataclasses
    if key_deserializer is None and value_deserializer is None:
        return as_dataclass if dataclasses else None

    def convert(record: triokafka.ConsumerRecord) -> Any:
        key, value = record.key, record.value
        if key_deserializer is not None:
            key = key_deserializer(key)
        if value_deserializer is not None:
            value = value_deserializer(value)
        record = record.deserialized(key, value)
        return as_dataclass(record) if dataclasses else record

    return convert
