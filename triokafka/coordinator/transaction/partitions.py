"""AddPartitionsToTxn and AddOffsetsToTxn: partitions join a transaction, and leaders ask whether they have joined.

A leader verifies a transactional append (KIP-890): a partition that no coordinator knows would never get a marker, and
its records would block read_committed consumers for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from triokafka.coordinator.runtime.reply import Reply
from triokafka.coordinator.runtime.timer_queue import TimerKey
from triokafka.coordinator.transaction.final_refusals import final_refusals
from triokafka.coordinator.transaction.metadata import TransactionMetadata
from triokafka.coordinator.transaction.records import TransactionEffects
from triokafka.coordinator.transaction.state import PREPARED, TransactionState
from triokafka.coordinator.transaction.transaction_shard import WAIT, TransactionShard, WaitingAddition
from triokafka.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidRequestError,
    ProducerFencedError,
    TransactionAbortableError,
)
from triokafka.structs import TopicPartition


def known_producer(
    transactional_id: str, current: TransactionMetadata | None, producer_id: int, producer_epoch: int
) -> TransactionMetadata:
    """Return the ``current`` metadata of an id whose current producer this is.

    Raises:
        InvalidRequestError: the transactional id is empty.
        InvalidProducerIdMappingError: the transactional id is unknown or has another producer id.
        ProducerFencedError: the epoch is not the current one.
        ConcurrentTransactionsError: the producer gets this id once its last transaction is completed; repeat it.
    """
    if not transactional_id:
        raise InvalidRequestError("a transactional id may not be empty")
    if current is not None and current.is_reserved(producer_id):
        raise ConcurrentTransactionsError(f"transactional id {transactional_id!r}: its last transaction is being ended")
    if current is None or current.producer_id != producer_id:
        raise InvalidProducerIdMappingError(
            f"transactional id {transactional_id!r} does not belong to producer id {producer_id}"
        )
    if current.producer_epoch != producer_epoch:
        raise ProducerFencedError(
            f"transactional id {transactional_id!r}: epoch {producer_epoch} of producer {producer_id} is not the"
            f" current one ({current.producer_epoch})"
        )
    return current


def add(
    shard: TransactionShard,
    transactional_id: str,
    *,
    producer_id: int,
    producer_epoch: int,
    partitions: Sequence[TopicPartition],
    version: int,
    reply: Reply[None],
    may_wait: bool,
    effects: TransactionEffects,
) -> None:
    """Add partitions to the transaction, and begin it if none is open. Answers once that is stored.

    Final errors are answers as well; see `final_refusals`.

    Args:
        version: the transaction version of the client.
        may_wait: wait for a transaction that is being completed, for a short time, instead of failing at once.

    Raises:
        InvalidRequestError, InvalidProducerIdMappingError, ProducerFencedError: see `known_producer`.
        ConcurrentTransactionsError: the last transaction is being completed; repeat it.
    """
    with final_refusals(shard, transactional_id, reply, effects):
        try:
            newest = shard.newest(transactional_id, effects)
            current = known_producer(transactional_id, newest, producer_id, producer_epoch)
            if current.state in PREPARED or (
                current.state is not TransactionState.ONGOING and not shard.is_settled(transactional_id)
            ):
                raise ConcurrentTransactionsError(
                    f"transactional id {transactional_id!r}: its last transaction is being ended"
                )
        except ConcurrentTransactionsError:
            if not may_wait:
                raise
            again = partial(
                add,
                shard,
                transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                partitions=partitions,
                version=version,
                reply=reply,
                may_wait=False,
            )
            shard.waiting.setdefault(transactional_id, []).append(
                WaitingAddition(lambda later: again(effects=later), reply)
            )
            key = TimerKey(WAIT, transactional_id)
            if key not in effects.timers:
                effects.timers.schedule(key, effects.at.now + shard.config.add_partitions_wait_ms / 1000)
            return
        if current.state is not TransactionState.ONGOING or not shard.members(transactional_id, current).issuperset(
            partitions
        ):
            shard.write(transactional_id, current.with_partitions(partitions, effects.at.wall_ms, version), effects)
            effects.on_appended = shard.schedule_timeout_scan
        effects.answer(reply, None)


def resume_waiting(shard: TransactionShard, transactional_id: str, effects: TransactionEffects) -> None:
    """Repeat the additions that wait for the end of the id's last transaction, or give them its error."""
    waiting = shard.waiting.pop(transactional_id, [])
    effects.timers.cancel(TimerKey(WAIT, transactional_id))
    for one in waiting:
        try:
            one.resume(effects)
        except (ConcurrentTransactionsError, InvalidProducerIdMappingError, ProducerFencedError) as error:
            effects.answer_error(one.reply, error)


def verify(
    shard: TransactionShard,
    transactional_id: str,
    *,
    producer_id: int,
    producer_epoch: int,
    partitions: Sequence[TopicPartition],
    reply: Reply[Mapping[TopicPartition, int]],
    effects: TransactionEffects,
) -> None:
    """Answer for each partition 0 if it takes part in the open transaction, or else TRANSACTION_ABORTABLE.

    The answer waits until this is committed: records in a partition whose addition is lost would never get a marker.
    Raises as `add`.
    """
    current = known_producer(transactional_id, shard.transactions.get(transactional_id), producer_id, producer_epoch)
    if current.state in PREPARED:
        raise ConcurrentTransactionsError(f"transactional id {transactional_id!r}: its last transaction is being ended")
    known = shard.members(transactional_id, current)
    effects.answer(reply, {one: 0 if one in known else TransactionAbortableError.code for one in partitions})
