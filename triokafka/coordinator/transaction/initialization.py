"""InitProducerId with a transactional id: a new epoch for the producer, which fences all earlier ones.

An open transaction of an earlier producer is aborted first; the request then fails with CONCURRENT_TRANSACTIONS, and
the client repeats it. A producer may send the id and epoch that it has, to go on after an error (KIP-360).
"""

from __future__ import annotations

from triokafka.coordinator.runtime.reply import Reply
from triokafka.coordinator.transaction import ending
from triokafka.coordinator.transaction.final_refusals import final_refusals
from triokafka.coordinator.transaction.metadata import (
    LAST_CLIENT_EPOCH,
    NO_EPOCH,
    ProducerIdAndEpoch,
    TransactionMetadata,
)
from triokafka.coordinator.transaction.producer_id_needed import ProducerIdNeeded
from triokafka.coordinator.transaction.records import TransactionEffects
from triokafka.coordinator.transaction.state import PREPARED, TransactionState
from triokafka.coordinator.transaction.transaction_shard import TransactionShard
from triokafka.errors import (
    ConcurrentTransactionsError,
    InvalidRequestError,
    InvalidTransactionTimeoutError,
    ProducerFencedError,
)


def initialize(
    shard: TransactionShard,
    transactional_id: str,
    *,
    timeout_ms: int,
    expected: ProducerIdAndEpoch | None,
    new_producer_id: int | None,
    reply: Reply[ProducerIdAndEpoch],
    effects: TransactionEffects,
) -> None:
    """Answer with the producer id and its new epoch, once they are stored.

    Final errors are answers as well; see `final_refusals`.

    Args:
        expected: the producer's present id and epoch, which it continues to use.
        new_producer_id: an unused id, should one be needed.

    Raises:
        InvalidRequestError: the transactional id is empty.
        InvalidTransactionTimeoutError: the timeout is not positive, or above ``transaction.max.timeout.ms``.
        ConcurrentTransactionsError: a transaction is being ended, or was open and is now being aborted; repeat it.
        ProducerFencedError: a newer producer with this transactional id exists.
        ProducerIdNeeded: repeat the operation with a ``new_producer_id``.
    """
    if not transactional_id:
        raise InvalidRequestError("a transactional id may not be empty")
    if not 0 < timeout_ms <= shard.config.transaction_max_timeout_ms:
        raise InvalidTransactionTimeoutError(
            f"transactional id {transactional_id!r}: the timeout of {timeout_ms} ms is not between 1 and"
            f" transaction.max.timeout.ms={shard.config.transaction_max_timeout_ms}"
        )
    now_ms = effects.at.wall_ms
    current = shard.transactions.get(transactional_id)
    if current is None:
        if new_producer_id is None:
            raise ProducerIdNeeded
        current = TransactionMetadata(new_producer_id, timeout_ms=timeout_ms)
    if not shard.is_settled(transactional_id) or (expected is not None and current.is_reserved(expected.producer_id)):
        raise ConcurrentTransactionsError(f"transactional id {transactional_id!r}: another request is in progress")
    with final_refusals(shard, transactional_id, reply, effects):
        if expected is not None and not _is_known(current, expected):
            raise ProducerFencedError(
                f"transactional id {transactional_id!r}: producer id {expected.producer_id} has been replaced by"
                f" {current.producer_id}"
            )
        if current.state in PREPARED:
            raise ConcurrentTransactionsError(
                f"transactional id {transactional_id!r}: its last transaction is being ended"
            )
        if current.state is TransactionState.ONGOING:
            if expected is not None and expected.epoch != current.producer_epoch:
                # Kafka answers the same, but after it has aborted the transaction, which is that of a newer producer.
                raise ProducerFencedError(
                    f"transactional id {transactional_id!r}: epoch {expected.epoch} is not the current one"
                    f" ({current.producer_epoch})"
                )
            ending.fence(shard, transactional_id, current, new_producer_id=new_producer_id, effects=effects)
            effects.answer_error(
                reply,
                ConcurrentTransactionsError(
                    f"transactional id {transactional_id!r}: an earlier producer's open transaction is being aborted"
                ),
            )
            return
        if current.is_epoch_exhausted and (expected is None or expected.epoch == current.producer_epoch):
            if new_producer_id is None:
                raise ProducerIdNeeded
            last = NO_EPOCH if expected is None else current.producer_epoch
            changed = current.initialized(
                producer_id=new_producer_id, epoch=0, last_epoch=last, timeout_ms=timeout_ms, now_ms=now_ms
            )
        else:
            epoch, last = _next_epoch(transactional_id, current, expected)
            changed = current.initialized(
                producer_id=current.producer_id, epoch=epoch, last_epoch=last, timeout_ms=timeout_ms, now_ms=now_ms
            )
        shard.write(transactional_id, changed, effects)
        effects.answer(reply, ProducerIdAndEpoch(changed.producer_id, changed.producer_epoch))


def _is_known(current: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    """Whether the producer has the current id, or repeats the request that used up the id before."""
    return (
        current.producer_epoch == NO_EPOCH
        or expected.producer_id == current.producer_id
        or (expected.producer_id == current.previous_producer_id and expected.epoch >= LAST_CLIENT_EPOCH)
    )


def _next_epoch(
    transactional_id: str, current: TransactionMetadata, expected: ProducerIdAndEpoch | None
) -> tuple[int, int]:
    """Return the new epoch and the one before it."""
    if expected is None:
        return current.producer_epoch + 1, NO_EPOCH
    if current.producer_epoch in (NO_EPOCH, expected.epoch):
        return current.producer_epoch + 1, current.producer_epoch
    if expected.epoch == current.last_producer_epoch:
        return current.producer_epoch, current.last_producer_epoch  # a retry: the answer was lost
    raise ProducerFencedError(
        f"transactional id {transactional_id!r}: epoch {expected.epoch} is not the current one"
        f" ({current.producer_epoch})"
    )
