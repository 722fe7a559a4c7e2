"""The transaction coordinator as a type of coordinator: its topic, its shards, its timers and its expiry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from uuid import UUID

from triokafka.coordinator.runtime.coordinator_type import CoordinatorType
from triokafka.coordinator.runtime.timer_queue import TimerKey
from triokafka.coordinator.transaction.completion import complete
from triokafka.coordinator.transaction.config import TransactionCoordinatorConfig
from triokafka.coordinator.transaction.expired_transactional_ids import remove_expired_ids
from triokafka.coordinator.transaction.marker_queue import Completions
from triokafka.coordinator.transaction.partitions import resume_waiting
from triokafka.coordinator.transaction.records import TransactionEffects
from triokafka.coordinator.transaction.timed_out_transactions import abort_timed_out
from triokafka.coordinator.transaction.transaction_shard import COMPLETE, TIMEOUT_SCAN, WAIT, TransactionShard
from triokafka.topic_names import TRANSACTION_STATE_TOPIC


def transaction_coordinator_type(
    config: TransactionCoordinatorConfig,
    completions: Completions,
    transaction_version: Callable[[], int],
    needs_producer_id: Callable[[int, str], None],
) -> CoordinatorType[TransactionShard]:
    """Return the type for a transaction coordinator with this configuration. Arguments as `TransactionShard`."""
    return CoordinatorType(
        name="transaction",
        topic=TRANSACTION_STATE_TOPIC,
        new_shard=lambda partition, leader_epoch: TransactionShard(
            partition, leader_epoch, config, completions, transaction_version, needs_producer_id
        ),
        timer_fired=timer_fired,
        expire=remove_expired_ids,
        topics_deleted=topics_deleted,
        commit_timeout_ms=config.write_timeout_ms,
        expiry_interval_ms=config.remove_expired_transactions_interval_ms,
    )


def timer_fired(shard: TransactionShard, key: TimerKey, effects: TransactionEffects) -> None:
    """Handle an expired timer: the scan for timeouts, a waiting request, or a repeated completion."""
    if key == TIMEOUT_SCAN:
        abort_timed_out(shard, effects)
    elif key.kind == WAIT:
        resume_waiting(shard, key.entity_id, effects)
    elif key.kind == COMPLETE:
        producer_id, _, epoch = key.part_id.partition("/")
        complete(shard, key.entity_id, producer_id=int(producer_id), producer_epoch=int(epoch), effects=effects)


def topics_deleted(shard: TransactionShard, topics: Mapping[UUID, str], effects: TransactionEffects) -> None:
    """Do nothing: a deleted partition needs no marker, which the marker writer finds out itself."""
