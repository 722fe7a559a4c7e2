"""Transactions of the metadata log: their records take effect together, at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from triokafka.protocol.stored.cluster_metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from triokafka.protocol.stored.metadata_record import MetadataRecord


class CompleteTransactions:
    """Holds back the records of a metadata transaction until its end (KIP-868).

    Records between BeginTransactionRecord and EndTransactionRecord are one change. Without an end, or with an
    AbortTransactionRecord, they have no effect.
    """

    def __init__(self) -> None:
        self._held: list[MetadataRecord] | None = None

    @property
    def is_open(self) -> bool:
        """Whether a transaction has begun and not ended."""
        return self._held is not None

    def take(self, records: Iterable[MetadataRecord]) -> Iterator[MetadataRecord]:
        """Yield the records that take effect with these ones."""
        for record in records:
            match record:
                case BeginTransactionRecord():
                    self._held = []
                case AbortTransactionRecord():
                    self._held = None
                case EndTransactionRecord():
                    held, self._held = self._held, None
                    yield from held or ()
                case _ if self._held is not None:
                    self._held.append(record)
                case _:
                    yield record
