"""The interface of the log behind a coordinator's topic, and the records in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias


class CoordinatorRecord(NamedTuple):
    """One record of a coordinator's topic. A ``value`` of None is a tombstone."""

    key: bytes
    value: bytes | None


LogRecord: TypeAlias = tuple[int, bytes | None, bytes | None]
"""Offset, key and value."""


@dataclass(frozen=True, slots=True)
class TransactionalRecords:
    """Records that an open transaction of ``producer_id`` wrote. They take effect when the transaction commits."""

    producer_id: int
    records: Sequence[LogRecord]


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """The marker at ``offset`` that commits or aborts the transaction of ``producer_id``."""

    producer_id: int
    offset: int
    commits: bool


class CoordinatorLog(Protocol):
    """The log behind a coordinator's topic; the broker implements it."""

    def append(self, partition: int, records: Sequence[CoordinatorRecord], timestamp_ms: int) -> int:
        """Append all records as one batch and return the offset after the last one.

        Raises:
            NotLeaderForPartitionError: this broker does not lead the partition; nothing was appended.
            KafkaError: the append failed; nothing was appended.
        """

    def read_all(self, partition: int) -> Iterator[Sequence[LogRecord] | TransactionalRecords | TransactionEnd]:
        """Yield all records up to the log end, in order and in chunks."""

    def high_watermark(self, partition: int) -> int:
        """Return the offset below which all records are committed."""
