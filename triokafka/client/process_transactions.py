"""Read, process, write: batches of records, each in one transaction that also commits their offsets (KIP-447)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import trio

from triokafka import errors
from triokafka.backoff import Backoff
from triokafka.client.consumer.consumer import Consumer
from triokafka.client.producer.producer import Producer
from triokafka.client.producer.transactions.transaction import Transaction
from triokafka.records import ConsumerRecord
from triokafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from triokafka.trio_context import require_trio

logger = logging.getLogger(__name__)

_POLL_MS: Final = 1_000
_BACKOFF: Final = Backoff(0.1, 5.0)
_FOR_GOOD: Final = (errors.ErrorCategory.APPLICATION_RECOVERABLE, errors.ErrorCategory.INVALID_CONFIGURATION)

Records = Mapping[TopicPartition, Sequence[ConsumerRecord]]


async def process_transactions(
    consumer: Consumer,
    producer: Producer,
    handle: Callable[[Records, Transaction], Awaitable[object]],
    *,
    max_records: int | None = None,
    max_attempts: int = 10,
) -> None:
    """Call ``handle(records, transaction)`` for everything the consumer reads, in transactions, until cancelled.

    ``handle`` sends its results with ``producer``. They and the offsets of ``records`` are committed together: each
    input record has its results exactly once for consumers with ``read_committed``, also after crashes and rebalances.
    Give every running instance of the program its own ``transactional_id``, the same after a restart.

    If a transaction is aborted, because a record failed, a coordinator refused, or partitions went to another member
    of the group, the consumer goes back to the committed offsets and reads on; records of partitions that went are left
    to the new owner. After ``max_attempts`` aborted transactions in a row the call raises.

    Cancelling aborts the open transaction, shielded, for at most ``close_timeout_ms`` of the producer.

    Args:
        consumer: has a ``group_id``, ``enable_auto_commit=False`` and is subscribed or assigned; with
            ``isolation_level="read_committed"`` if its input comes from transactions. Not used otherwise meanwhile.
        producer: has a ``transactional_id``, and is not used otherwise meanwhile.
        handle: async. An exception aborts the transaction, and the call raises it. It must not commit or abort.
        max_records: most records of one transaction; by default ``max_poll_records`` of the consumer.
        max_attempts: how many transactions in a row may be aborted.

    Raises:
        IllegalStateError: the consumer commits by itself, or the producer has no ``transactional_id``.
        ProducerFencedError: another instance has the same ``transactional_id``, or, before transaction version 2,
            ``handle`` took longer than ``transaction_timeout_ms``. Start the program again: it continues from the
            committed offsets.
        TransactionAbortedError: ``max_attempts`` transactions in a row were aborted; the cause is the last reason.
        KafkaError: as `Consumer.poll`.
    """
    require_trio("process_transactions()")
    if consumer.options.group_id is None or consumer.options.enable_auto_commit:
        raise errors.IllegalStateError(
            "process_transactions() commits offsets in transactions: create the consumer with a group_id and"
            " enable_auto_commit=False"
        )
    if producer.options.transactional_id is None:
        raise errors.IllegalStateError("process_transactions() needs a producer with transactional_id='…'")
    if max_attempts < 1:
        raise ValueError(f"max_attempts={max_attempts}: it must be at least 1")
    # An older instance may have a transaction open, whose offsets this one must not read past.
    await producer.init_transactions()
    failures = 0
    while True:
        records = await consumer.poll(timeout_ms=_POLL_MS, max_records=max_records)
        if not records:
            continue
        # The membership of now: the coordinator refuses it if partitions go to another member before the commit.
        group = consumer.group_metadata()
        try:
            await _one(producer, group, handle, records)
        except _Aborted as aborted:
            failures += 1
            reason = aborted.reason
            if failures >= max_attempts:
                raise errors.TransactionAbortedError(
                    f"{failures} transactions in a row were aborted, the last one because of: {reason!r}"
                ) from reason
            logger.warning(
                "transaction of %r was aborted; reading again: %s", producer.options.transactional_id, reason
            )
            await _go_back(consumer, records)
            await trio.sleep(_BACKOFF.delay(failures, 0.5))
        else:
            failures = 0


class _Aborted(Exception):
    """A transaction was aborted for a reason that a repetition may resolve."""

    def __init__(self, reason: errors.KafkaError) -> None:
        super().__init__(reason)
        self.reason = reason


async def _one(
    producer: Producer,
    group: ConsumerGroupMetadata,
    handle: Callable[[Records, Transaction], Awaitable[object]],
    records: Records,
) -> None:
    """Handle records in one transaction. Raises `_Aborted`, or what ends the loop."""
    of_user = False
    try:
        async with producer.transaction() as transaction:
            try:
                await handle(records, transaction)
            except Exception as error:
                of_user = not isinstance(error, errors.KafkaError)
                raise
            offsets = {
                partition: OffsetAndMetadata(found[-1].offset + 1, "", found[-1].leader_epoch)
                for partition, found in records.items()
                if found
            }
            await transaction.send_offsets(offsets=offsets, group=group)
    except errors.CommitFailedError as left:
        raise _Aborted(left) from left  # the group continues without this member, which joins again
    except errors.KafkaError as error:
        if of_user or isinstance(error, (errors.IllegalStateError, errors.ConfigurationError)):
            raise
        cause = error.__cause__ if isinstance(error, errors.TransactionAbortedError) else error
        if isinstance(cause, errors.CommitFailedError):
            raise _Aborted(cause) from error
        if isinstance(cause, errors.KafkaError) and errors.category_of(cause) not in _FOR_GOOD:
            raise _Aborted(cause) from error
        raise


async def _go_back(consumer: Consumer, records: Records) -> None:
    """Move positions back to the first record of the aborted transaction, in partitions that are still assigned."""
    for partition, found in records.items():
        if not found or partition not in consumer.assignment():
            continue
        committed = await consumer.committed(partition)
        first = found[0].offset
        # Another member may have had the partition, and committed more, meanwhile.
        consumer.seek(partition, max(first, committed.offset) if committed is not None else first)
