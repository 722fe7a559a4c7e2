"""Transactions that are open for longer than their timeout: the coordinator aborts them."""

from __future__ import annotations

from typing import Final

from triokafka.coordinator.transaction.ending import fence
from triokafka.coordinator.transaction.producer_id_needed import ProducerIdNeeded
from triokafka.coordinator.transaction.records import TransactionEffects
from triokafka.coordinator.transaction.state import TransactionState
from triokafka.coordinator.transaction.transaction_shard import TransactionShard

_ABORTS_AT_ONCE: Final = 100


def abort_timed_out(shard: TransactionShard, effects: TransactionEffects) -> None:
    """Abort the transactions that have been open for longer than their timeout, `_ABORTS_AT_ONCE` per call.

    Those that need a new producer id are left to `abort_with_new_id`, for which this asks.
    """
    aborted = 0
    for transactional_id in list(shard.ongoing):
        try:
            aborted += _abort_if_timed_out(shard, transactional_id, new_producer_id=None, effects=effects)
        except ProducerIdNeeded:
            shard.needs_producer_id(shard.partition, transactional_id)
        if aborted >= _ABORTS_AT_ONCE:
            break
    continues = aborted >= _ABORTS_AT_ONCE
    effects.on_appended = lambda later: shard.schedule_timeout_scan(later, continues=continues)
    effects.on_failed = lambda error, later: shard.schedule_timeout_scan(later)
    if not effects.records:
        shard.schedule_timeout_scan(effects)


def abort_with_new_id(
    shard: TransactionShard, transactional_id: str, *, new_producer_id: int, effects: TransactionEffects
) -> None:
    """Abort a transaction that is still open after its timeout and has used up the epochs of its producer id."""
    _abort_if_timed_out(shard, transactional_id, new_producer_id=new_producer_id, effects=effects)


def _abort_if_timed_out(
    shard: TransactionShard, transactional_id: str, *, new_producer_id: int | None, effects: TransactionEffects
) -> bool:
    """Return whether the transaction was open for too long and is now aborted. Raises as `fence`."""
    now_ms = effects.at.wall_ms
    current = shard.transactions.get(transactional_id)
    if (
        current is None
        or current.state is not TransactionState.ONGOING
        or now_ms - current.start_ms <= current.timeout_ms
        or not shard.is_settled(transactional_id)
    ):
        return False
    fence(shard, transactional_id, current, new_producer_id=new_producer_id, effects=effects)
    effects.note(
        f"transactional id {transactional_id!r}: aborting its transaction, open for {now_ms - current.start_ms} ms,"
        f" longer than its timeout of {current.timeout_ms} ms"
    )
    return True
