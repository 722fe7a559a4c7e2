"""The batches and markers of transactions that compaction may drop (KIP-98).

Compaction drops the records of aborted transactions immediately, since no consumer may read them. A marker stays as
long as a batch of its transaction is left: readers need it to learn the outcome of the transaction.
"""

from __future__ import annotations

from collections.abc import Iterable

from triokafka.broker_stub.log.transaction_index import AbortedTransaction
from triokafka.records.batch import BatchInfo

_ABORT = 0
_COMMIT = 1


class CleanedTransactions:
    """Tracks the transactions of a log while a pass reads its batches in offset order.

    Args:
        aborted: the aborted transactions of the part of the log that is read.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}  # transactions that have begun, by producer id
        self._seen: set[int] = set()  # producers with a batch of an aborted transaction
        self._committed: set[int] = set()  # producers with a batch of another transaction
        self._still_aborted: list[AbortedTransaction] = []

    def read_data(self, batch: BatchInfo) -> bool:
        """Process a data batch; return whether it belongs to an aborted transaction."""
        self._begin_up_to(batch.last_offset)
        if not batch.is_transactional:
            return False
        if batch.producer_id in self._aborted:
            self._seen.add(batch.producer_id)
            return True
        self._committed.add(batch.producer_id)
        return False

    def read_marker(self, batch: BatchInfo, kind: int | None) -> bool:
        """Process a control batch; return whether its transaction has no batches left, so that the marker may be
        dropped after the delete horizon.

        Args:
            kind: 0 abort, 1 commit, another number for other control records; None for a batch without records.
        """
        self._begin_up_to(batch.last_offset)
        if kind is None:
            return True
        if kind == _ABORT:
            transaction = self._aborted.pop(batch.producer_id, None)
            if transaction is None or batch.producer_id not in self._seen:
                return True
            self._seen.discard(batch.producer_id)
            self._still_aborted.append(transaction)
            return False
        if kind == _COMMIT:
            if batch.producer_id not in self._committed:
                return True
            self._committed.discard(batch.producer_id)
        return False

    def take_still_aborted(self) -> list[AbortedTransaction]:
        """Return the aborted transactions that still have batches and whose markers were read since the last call."""
        taken, self._still_aborted = self._still_aborted, []
        return taken

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            transaction = self._coming.pop()
            self._aborted[transaction.producer_id] = transaction
