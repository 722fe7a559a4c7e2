"""The states of a transactional producer, and the transitions between them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class TransactionState(Enum):
    """A transactional producer's state; the values are their names in messages."""

    UNINITIALIZED = "it has no producer id yet"
    INITIALIZING = "it requests its producer id and epoch"
    READY = "no transaction is open"
    IN_TRANSACTION = "a transaction is open"
    COMMITTING = "a transaction is being committed"
    ABORTING = "a transaction is being aborted"
    ABORTABLE_ERROR = "the transaction has failed and must be aborted"
    FATAL_ERROR = "the producer has failed"


_S = TransactionState

TRANSITIONS: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    _S.UNINITIALIZED: frozenset({_S.INITIALIZING, _S.FATAL_ERROR}),
    _S.INITIALIZING: frozenset({_S.READY, _S.FATAL_ERROR}),
    _S.READY: frozenset({_S.IN_TRANSACTION, _S.FATAL_ERROR}),
    _S.IN_TRANSACTION: frozenset({_S.COMMITTING, _S.ABORTING, _S.ABORTABLE_ERROR, _S.FATAL_ERROR}),
    # A commit can still turn into an abort while EndTxn was not sent.
    _S.COMMITTING: frozenset({_S.READY, _S.INITIALIZING, _S.ABORTING, _S.ABORTABLE_ERROR, _S.FATAL_ERROR}),
    _S.ABORTABLE_ERROR: frozenset({_S.ABORTING, _S.FATAL_ERROR}),
    _S.ABORTING: frozenset({_S.READY, _S.INITIALIZING, _S.FATAL_ERROR}),
    _S.FATAL_ERROR: frozenset(),
}
"""Every transition that can happen; any other raises `IllegalStateError`."""
