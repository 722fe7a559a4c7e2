"""The states of a transaction, with Kafka's numbers and names, and the table of transitions."""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class TransactionState(IntEnum):
    """The state of a transactional id, by its number in ``__transaction_state``."""

    EMPTY = 0
    """No transaction yet under the current producer epoch."""
    ONGOING = 1
    """Partitions take part; the producer may write."""
    PREPARE_COMMIT = 2
    """The decision to commit is stored; the markers are being written."""
    PREPARE_ABORT = 3
    """The decision to abort is stored; the markers are being written."""
    COMPLETE_COMMIT = 4
    """Every partition has its commit marker."""
    COMPLETE_ABORT = 5
    """Every partition has its abort marker."""
    DEAD = 6
    """The transactional id expires. Never stored: a tombstone is."""
    PREPARE_EPOCH_FENCE = 7
    """A fence of the producer is in progress. Never stored: `PREPARE_ABORT` is."""

    @property
    def title(self) -> str:
        """Kafka's name of the state, as in DescribeTransactions."""
        return _TITLES[self]


_TITLES: Final = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in TransactionState}
TITLES: Final = frozenset(_TITLES.values())
"""The names by which ListTransactions can filter."""

PREPARED: Final = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
"""The outcome is decided, and markers are missing."""
COMPLETE: Final = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
IDLE: Final = frozenset({TransactionState.EMPTY, *COMPLETE})
"""No transaction is open."""

PREVIOUS: Final = {
    TransactionState.EMPTY: IDLE,
    TransactionState.ONGOING: IDLE | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    # The producer may abort without having added a partition under transaction version 2 (KIP-890).
    TransactionState.PREPARE_ABORT: IDLE | {TransactionState.ONGOING},
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
}
"""The states from which a stored state can be reached."""
