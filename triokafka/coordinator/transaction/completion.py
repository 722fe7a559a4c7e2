"""Completion of a decided transaction, once every partition has its marker."""

from __future__ import annotations

from typing import Final

from triokafka.coordinator.runtime.timer_queue import TimerKey
from triokafka.coordinator.transaction.partitions import resume_waiting
from triokafka.coordinator.transaction.records import TransactionEffects
from triokafka.coordinator.transaction.state import PREPARED
from triokafka.coordinator.transaction.transaction_shard import COMPLETE, TransactionShard
from triokafka.errors import KafkaError

_RETRY_SECONDS: Final = 0.1


def complete(
    shard: TransactionShard,
    transactional_id: str,
    *,
    producer_id: int,
    producer_epoch: int,
    effects: TransactionEffects,
) -> None:
    """Store that every partition has its marker. Tries again while the log cannot take the record."""
    current = shard.transactions.get(transactional_id)
    if current is None or current.state not in PREPARED:
        return
    if (current.producer_id, current.producer_epoch) != (producer_id, producer_epoch):
        return
    shard.write(transactional_id, current.completed(effects.at.wall_ms), effects)

    def failed(error: KafkaError, later: TransactionEffects) -> None:
        if not effects.appended:
            key = TimerKey(COMPLETE, transactional_id, f"{producer_id}/{producer_epoch}")
            later.timers.schedule(key, later.at.now + _RETRY_SECONDS)

    effects.on_failed = failed
    effects.on_committed = lambda later: resume_waiting(shard, transactional_id, later)
