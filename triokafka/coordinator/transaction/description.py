"""ListTransactions and DescribeTransactions: over the shards of a broker (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from triokafka.coordinator.regular_expressions import RegularExpression
from triokafka.coordinator.transaction.metadata import TransactionMetadata
from triokafka.coordinator.transaction.state import TransactionState
from triokafka.coordinator.transaction.transaction_shard import TransactionShard

_AT_ONCE: Final = 500


class ListedTransaction(NamedTuple):
    """One transactional id of a list."""

    transactional_id: str
    producer_id: int
    state: TransactionState


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """The filters of ListTransactions; an empty filter lets everything pass.

    ``duration_ms``: only transactions that have been open for longer, and ids without one; negative for all.
    """

    states: Collection[str] = ()
    producer_ids: Collection[int] = ()
    duration_ms: int = -1
    pattern: RegularExpression | None = None

    def passes(self, transactional_id: str, value: TransactionMetadata, now_ms: int) -> bool:
        """Whether a transactional id is in the list."""
        if self.producer_ids and value.producer_id not in self.producer_ids:
            return False
        if self.states and value.state.title not in self.states:
            return False
        if self.duration_ms >= 0 and now_ms - value.start_ms <= self.duration_ms:
            return False
        return self.pattern is None or self.pattern.fullmatch(transactional_id) is not None


def list_transactions(
    shards: Iterable[TransactionShard], wanted: TransactionFilter, now_ms: int
) -> Generator[None, None, list[ListedTransaction]]:
    """Return the ids that pass the filters. Yields so that other tasks can run."""
    found: list[ListedTransaction] = []
    for shard in shards:
        for number, (transactional_id, value) in enumerate(list(shard.transactions.items()), 1):
            if wanted.passes(transactional_id, value, now_ms):
                found.append(ListedTransaction(transactional_id, value.producer_id, value.state))
            if not number % _AT_ONCE:
                yield
    return found
