"""What of a transaction's batches and markers compaction may drop (KIP-98).

The records of an aborted transaction are for nobody and go at once. A marker stays while a batch of its transaction is
there: without it, readers would not know how that one ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from triokafka.broker_stub.log.transaction_index import AbortedTransaction
from triokafka.records.batch import BatchInfo

_ABORT = 0
_COMMIT = 1


class CleanedTransactions:
    """Follows the transactions of a log from batch to batch, in the order of their offsets.

    ``keep_aborted`` is told of every aborted transaction that still has batches, once its marker is read.

    Args:
        aborted: the aborted transactions of the part of the log that is read.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = sorted(aborted, key=lambda transaction: transaction.first_offset, reverse=True)
        self._aborted: dict[int, AbortedTransaction] = {}  # by producer: those that have begun
        self._seen: set[int] = set()  # producers of aborted transactions of which a batch was read
        self._committed: set[int] = set()  # producers of other transactions of which a batch was read
        self.keep_aborted: Callable[[AbortedTransaction], None] = lambda transaction: None

    def read_data(self, batch: BatchInfo) -> bool:
        """A batch of records was read; returns whether it is of an aborted transaction."""
        self._begin_up_to(batch.last_offset)
        if not batch.is_transactional:
            return False
        if batch.producer_id in self._aborted:
            self._seen.add(batch.producer_id)
            return True
        self._committed.add(batch.producer_id)
        return False

    def read_marker(self, batch: BatchInfo, kind: int | None) -> bool:
        """A control batch was read; returns whether nothing of its transaction is left, so that it may go in time.

        Args:
            kind: 0 abort, 1 commit, anything else no transaction marker; None for a batch that was emptied before.
        """
        self._begin_up_to(batch.last_offset)
        if kind is None:
            return True
        if kind == _ABORT:
            transaction = self._aborted.pop(batch.producer_id, None)
            if transaction is None or batch.producer_id not in self._seen:
                return True
            self._seen.discard(batch.producer_id)
            self.keep_aborted(transaction)
            return False
        if kind == _COMMIT:
            if batch.producer_id not in self._committed:
                return True
            self._committed.discard(batch.producer_id)
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[-1].first_offset <= offset:
            transaction = self._coming.pop()
            self._aborted[transaction.producer_id] = transaction
