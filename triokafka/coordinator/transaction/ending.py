"""EndTxn, and the fencing of a producer: the decision how a transaction ends.

The rules are Kafka's. Under transaction version 2 every end bumps the epoch, so that a late request of an ended
transaction cannot touch the next one (KIP-890). A retry of an ended transaction therefore has the epoch before the
bump. In a state without an open transaction, version 2 allows an abort, because the coordinator may not know that the
producer has begun one.

==============  ==================  =======================  =======================
EndTxn v5 in    epoch before bump   current epoch: abort     current epoch: commit
==============  ==================  =======================  =======================
Empty           PRODUCER_FENCED     aborts                   INVALID_TXN_STATE
PrepareAbort    abort: CONCURRENT_… CONCURRENT_TRANSACTIONS  CONCURRENT_TRANSACTIONS
PrepareCommit   commit: the same    CONCURRENT_TRANSACTIONS  CONCURRENT_TRANSACTIONS
CompleteAbort   abort: done before  aborts                   INVALID_TXN_STATE
CompleteCommit  commit: done before aborts                   INVALID_TXN_STATE
==============  ==================  =======================  =======================

Other combinations in these states are INVALID_TXN_STATE. Before version 5 the epoch must be the current one, and only
the outcome that the transaction had is accepted.
"""

from __future__ import annotations

from triokafka import errors
from triokafka.coordinator.runtime.reply import Reply
from triokafka.coordinator.transaction.final_refusals import confirm, final_refusals
from triokafka.coordinator.transaction.metadata import (
    EPOCH_BUMP_SINCE,
    LAST_CLIENT_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    ProducerIdAndEpoch,
    TransactionMetadata,
)
from triokafka.coordinator.transaction.producer_id_needed import ProducerIdNeeded
from triokafka.coordinator.transaction.records import TransactionEffects
from triokafka.coordinator.transaction.state import COMPLETE, IDLE, PREPARED, TransactionState
from triokafka.coordinator.transaction.transaction_shard import TransactionShard

UNCHANGED = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_EPOCH)
"""The answer to EndTxn before version 5: the producer keeps its id and epoch."""


def end(
    shard: TransactionShard,
    transactional_id: str,
    *,
    producer_id: int,
    producer_epoch: int,
    commits: bool,
    version: int,
    new_producer_id: int | None,
    reply: Reply[ProducerIdAndEpoch],
    effects: TransactionEffects,
) -> None:
    """Decide the transaction. Answers with the next producer id and epoch once the decision is stored.

    Final errors are answers as well; see `final_refusals`.

    Args:
        version: the transaction version of the client: 2 for EndTxn v5.
        new_producer_id: an unused id, should one be needed.

    Raises:
        InvalidRequestError: the transactional id is empty.
        InvalidProducerIdMappingError: the transactional id is unknown or has another producer id.
        ProducerFencedError: the epoch is neither the current one nor that of a valid retry.
        ConcurrentTransactionsError: the transaction is being ended with this outcome, or this request is of the next
            one; repeat it.
        InvalidTxnStateError: there is no transaction that could end in this way.
        ProducerIdNeeded: repeat the operation with a ``new_producer_id``.
    """
    if not transactional_id:
        raise errors.InvalidRequestError("a transactional id may not be empty")
    with final_refusals(shard, transactional_id, reply, effects):
        _decide(
            shard,
            transactional_id,
            ProducerIdAndEpoch(producer_id, producer_epoch),
            commits=commits,
            version=version,
            new_producer_id=new_producer_id,
            reply=reply,
            effects=effects,
        )


def _decide(
    shard: TransactionShard,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    *,
    commits: bool,
    version: int,
    new_producer_id: int | None,
    reply: Reply[ProducerIdAndEpoch],
    effects: TransactionEffects,
) -> None:
    producer_id, producer_epoch = producer
    bumps = version >= EPOCH_BUMP_SINCE
    current = shard.transactions.get(transactional_id)
    if current is None:
        raise errors.InvalidProducerIdMappingError(f"transactional id {transactional_id!r} is unknown")
    if bumps and current.is_reserved(producer_id):
        raise errors.ConcurrentTransactionsError(
            f"transactional id {transactional_id!r}: its last transaction is being ended"
        )
    is_overflow_retry = (
        bumps
        and current.previous_producer_id == producer_id
        and producer_epoch == LAST_CLIENT_EPOCH
        and current.producer_epoch == 0
    )
    if current.producer_id != producer_id and not is_overflow_retry:
        raise errors.InvalidProducerIdMappingError(
            f"transactional id {transactional_id!r} does not belong to producer id {producer_id}"
        )
    is_retry = is_overflow_retry or (bumps and current.producer_epoch == producer_epoch + 1)
    _check_epoch(transactional_id, current, producer_epoch, bumps=bumps, is_retry=is_retry)
    if not shard.is_settled(transactional_id) and current.state is not TransactionState.ONGOING:
        raise errors.ConcurrentTransactionsError(
            f"transactional id {transactional_id!r}: another request is in progress"
        )
    is_next = bumps and not is_retry  # the producer knows the bumped epoch, and has begun its next transaction
    if current.state in PREPARED and (is_next or current.commits == commits):
        raise errors.ConcurrentTransactionsError(
            f"transactional id {transactional_id!r}: the transaction is being ended"
        )
    if current.state in COMPLETE and current.commits == commits and (is_retry or not bumps):
        done = ProducerIdAndEpoch(current.producer_id, current.producer_epoch) if bumps else UNCHANGED
        if not bumps:  # all transactions have one epoch: a later one may have begun at a newer coordinator
            confirm(shard, transactional_id, effects)
        effects.answer(reply, done)
        return
    aborts_nothing = bumps and not commits and not is_retry and current.state in IDLE
    if current.state is not TransactionState.ONGOING and not aborts_nothing:
        raise errors.InvalidTxnStateError(
            f"transactional id {transactional_id!r}: cannot {'commit' if commits else 'abort'} in state"
            f" {current.state.title}"
        )
    next_id = _next_producer_id(current, new_producer_id) if bumps else NO_PRODUCER_ID
    decided = current.prepared(commits=commits, version=version, next_producer_id=next_id, now_ms=effects.at.wall_ms)
    shard.write(transactional_id, decided, effects)
    effects.answer(reply, decided.identity_after_end if bumps else UNCHANGED)


def _check_epoch(
    transactional_id: str, current: TransactionMetadata, epoch: int, *, bumps: bool, is_retry: bool
) -> None:
    is_current = epoch == current.producer_epoch
    if not bumps or current.state in (TransactionState.ONGOING, TransactionState.EMPTY):
        valid = is_current
    else:
        valid = is_retry or is_current
    if not valid:
        raise errors.ProducerFencedError(
            f"transactional id {transactional_id!r}: epoch {epoch} is not the current one ({current.producer_epoch})"
        )


def fence(
    shard: TransactionShard,
    transactional_id: str,
    current: TransactionMetadata,
    *,
    new_producer_id: int | None,
    effects: TransactionEffects,
) -> None:
    """Abort an open transaction whose producer is replaced or too slow. Its epoch becomes invalid.

    Under transaction version 2 this is an end like any other: the producer that learns of it, by the retry of its abort
    or by InitProducerId with its present epoch, may go on, unless another one has begun.

    Raises:
        ProducerIdNeeded: repeat the operation with a ``new_producer_id``.
    """
    if shard.transaction_version() < EPOCH_BUMP_SINCE:
        current, version, next_id = current.fenced(), 0, NO_PRODUCER_ID
    else:
        version, next_id = EPOCH_BUMP_SINCE, _next_producer_id(current, new_producer_id)
    decided = current.prepared(commits=False, version=version, next_producer_id=next_id, now_ms=effects.at.wall_ms)
    shard.write(transactional_id, decided, effects)


def _next_producer_id(current: TransactionMetadata, new_producer_id: int | None) -> int:
    """Return the producer id that follows after an end that bumps the epoch; `NO_PRODUCER_ID` if it stays the same."""
    if not current.is_epoch_exhausted:
        return NO_PRODUCER_ID
    if new_producer_id is None:
        raise ProducerIdNeeded
    return new_producer_id
