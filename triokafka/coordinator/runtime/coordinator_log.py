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


class TransactionalProducer(NamedTuple):
    """The producer in whose transaction records are appended.

    ``guard`` proves that the partition takes part in the transaction; None while the transaction is open in the log.
    """

    producer_id: int
    producer_epoch: int
    guard: object | None = None


class TransactionMarker(NamedTuple):
    """The marker with which a transaction coordinator ends a transaction in one partition.

    ``coordinator_epoch`` fences an older coordinator; ``version`` is the transaction version under which it ends.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commits: bool
    version: int = 0


class CoordinatorLog(Protocol):
    """The log behind a coordinator's topic; the broker implements it."""

    def append(self, partition: int, records: Sequence[CoordinatorRecord], timestamp_ms: int) -> int:
        """Append all records as one batch and return the offset after the last one.

        Raises:
            NotLeaderForPartitionError: this broker does not lead the partition; nothing was appended.
            KafkaError: the append failed; nothing was appended.
        """

    def append_in_transaction(
        self, partition: int, producer: TransactionalProducer, records: Sequence[CoordinatorRecord], timestamp_ms: int
    ) -> int:
        """Append as `append` does, as part of the producer's transaction.

        Raises as `append`, and:
            InvalidProducerEpochError: a newer incarnation of the producer has written.
            InvalidTxnStateError: the partition does not take part in the transaction.
        """

    def append_marker(self, partition: int, marker: TransactionMarker, timestamp_ms: int) -> int:
        """Append a transaction's marker and return the offset after it.

        Raises as `append`, and:
            InvalidProducerEpochError: a newer incarnation of the producer has written.
            TransactionCoordinatorFencedError: a newer coordinator has written markers.
        """

    def read_all(self, partition: int) -> Iterator[Sequence[LogRecord] | TransactionalRecords | TransactionEnd]:
        """Yield all records up to the log end, in order and in chunks."""

    def high_watermark(self, partition: int) -> int:
        """Return the offset below which all records are committed."""
