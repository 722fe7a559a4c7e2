"""aiokafka's `ConsumerRecord`, and the choice between it and the SDK's."""

from __future__ import annotations

from collections.abc import Sequence
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


def returns_dataclasses() -> bool:
    """Whether consumers return aiokafka's dataclass."""
    return _dataclasses


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
