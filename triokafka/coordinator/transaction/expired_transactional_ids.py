"""Expiry of idle transactional ids (``transactional.id.expiration.ms``): a tombstone for each, in bounded batches."""

from __future__ import annotations

from typing import Final

from triokafka.coordinator.transaction.records import TransactionEffects
from triokafka.coordinator.transaction.state import IDLE
from triokafka.coordinator.transaction.transaction_shard import TransactionShard

_SCAN_STEP: Final = 1_000
_MAX_RECORDS: Final = 500
_PAUSE: Final = 0.01
"""Seconds between two steps, so that requests can run in between."""


def remove_expired_ids(shard: TransactionShard, effects: TransactionEffects) -> float | None:
    """Write tombstones for ids that have been idle for their retention. Scans a large shard in steps.

    Returns the seconds until the next step, and None when the scan is complete.
    """
    left = shard.unscanned
    if not left:
        left += shard.transactions
        left.reverse()
    oldest_ms = effects.at.wall_ms - shard.config.transactional_id_expiration_ms
    for _ in range(_SCAN_STEP):
        if not left or len(effects.records) >= _MAX_RECORDS:
            break
        transactional_id = left.pop()
        current = shard.transactions.get(transactional_id)
        if current is None or current.state not in IDLE or current.last_update_ms > oldest_ms:
            continue
        if shard.is_settled(transactional_id):
            shard.write(transactional_id, None, effects)
    if not left:
        return None
    effects.on_failed = lambda error, later: left.clear()
    return _PAUSE
