"""`Transaction`: one transaction as the user holds it."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from triokafka.client.producer.transactions.transactions import Transactions
from triokafka.errors import (
    IllegalStateError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from triokafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition


class OffsetSource(Protocol):
    """A consumer whose positions become part of a transaction."""

    def transaction_offsets(self) -> tuple[ConsumerGroupMetadata, Mapping[TopicPartition, OffsetAndMetadata]]:
        """Return the member, and the offsets behind everything handed out so far.

        Raises:
            IllegalStateError: no ``group_id``, or ``enable_auto_commit`` is on.
        """


class Transaction:
    """One transaction of a producer: ``async with producer.transaction() as transaction``.

    All records that any task sends with the producer inside the block, and the offsets of `send_offsets`, take effect
    together or not at all. Leaving the block commits; leaving it by an exception or a cancellation aborts, shielded,
    for at most ``close_timeout_ms``. Tasks that send must have ended before the block is left.

    A producer has one transaction at a time; entering a second one raises `IllegalStateError`.

    If the transaction cannot be committed, because a record failed or the coordinator refused, leaving the block aborts
    it and raises `TransactionAbortedError`; its cause is the reason, and a new transaction may repeat the work. If this
    producer was fenced (`ProducerFencedError`), the producer has failed.

    Instead of ``async with``, a program may call `begin`, then `commit` or `abort`.
    """

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._manager = transactions.manager
        self._state = "new"
        self._number = -1

    # ---------------------------------------------------------------- as a block

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._state != "open":
            return
        if error is not None:
            self._state = "aborted"
            await self._transactions.abort_open()
            return
        try:
            await self.commit()
        except TransactionAbortableError as refused:
            self._state = "aborted"
            await self._transactions.abort_open()
            reason = refused.__cause__ or refused
            self._transactions.raise_failure(reason)
            aborted = TransactionAbortedError(
                f"the transaction of {self._manager.transactional_id!r} was aborted, because of: {reason!r}"
            )
            raise aborted from reason

    # ---------------------------------------------------------------- step by step

    async def begin(self) -> None:
        """Open the transaction.

        Waits for the producer id at the producer's first transaction, and for the end of the transaction before if
        that was not confirmed yet; at most ``max_block_ms`` in all. If cancelled, no transaction is open.

        Raises:
            IllegalStateError: the producer's transaction before is still open, or this one was begun before.
            KafkaTimeoutError: no coordinator answered in time.
            ProducerFencedError: a newer producer with this transactional id exists.
        """
        if self._state != "new":
            raise IllegalStateError("a transaction can be used once; call producer.transaction() again")
        with self._transactions.times.measure("txn-begin"):
            await self._transactions.begin()
        self._number = self._manager.number
        self._state = "open"

    async def commit(self) -> None:
        """Send all records, wait for their acknowledgements, and commit.

        Waits for the records at most ``delivery_timeout_ms``, then at most ``max_block_ms`` for partitions and offsets
        that the coordinators have not confirmed, and as long again for the coordinator's answer. If cancelled before
        the commit was sent, the transaction is aborted; later, the call waits for the answer, at most
        ``close_timeout_ms``, and `committed` says what happened.

        Raises:
            TransactionAbortableError: a record failed, the coordinator refuses, or offsets were not confirmed in time.
                Call `abort`; the cause is the reason.
            KafkaTimeoutError: the coordinator has not answered, so that the outcome is unknown. The producer goes on
                asking, and the next transaction begins after the answer.
            ProducerFencedError: a newer producer with this transactional id exists; the transaction was aborted.
            IllegalStateError: the transaction is not open.
        """
        self._check_open()
        try:
            with self._transactions.times.measure("txn-commit"):
                await self._transactions.commit()
        except TransactionAbortableError:
            raise
        except BaseException:
            self._state = "ended"
            raise
        self._state = "committed"

    async def abort(self) -> None:
        """Drop the records that were not sent, and abort: consumers with ``read_committed`` see none of the others.

        Waits for requests that are on their way, and for the coordinator at most ``max_block_ms``. If cancelled, the
        abort continues in the background, and the next transaction begins after it.

        Raises:
            KafkaTimeoutError: the coordinator has not answered; the producer goes on asking.
            ProducerFencedError: a newer producer with this transactional id exists; the transaction was aborted.
            IllegalStateError: the transaction is not open.
        """
        self._check_open()
        self._state = "aborted"
        with self._transactions.times.measure("txn-abort"):
            await self._transactions.abort()

    def _check_open(self) -> None:
        if self._state != "open":
            raise IllegalStateError(f"this transaction is not open: it is {self._state}")

    @property
    def committed(self) -> bool | None:
        """Whether the transaction was committed; None while that is open or unknown."""
        if self._state in ("committed", "aborted"):
            return self._state == "committed"
        return self._manager.committed if self._number == self._manager.number else None

    # ---------------------------------------------------------------- offsets

    async def send_offsets(
        self,
        consumer: OffsetSource | None = None,
        *,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        group: ConsumerGroupMetadata | str | None = None,
    ) -> None:
        """Make a group's offsets part of the transaction: they are committed if and only if it is (KIP-447).

        Give a consumer, whose offsets behind everything handed out so far are taken, or ``offsets`` and ``group``. The
        group's coordinator refuses offsets of a consumer that has left its group, so that two members never commit the
        same partition. Waits for the coordinators, at most ``max_block_ms``. If cancelled, the offsets are still part
        of the transaction if it is committed.

        Args:
            consumer: has a ``group_id`` and ``enable_auto_commit=False``.
            offsets: partition to the next offset to read; with a consumer, in place of its own.
            group: `Consumer.group_metadata` at the time when the records were read, or the name of a group.

        Raises:
            CommitFailedError: the consumer is no longer a member of its group. The transaction must be aborted.
            TransactionAbortableError, KafkaError: the offsets were refused. The transaction must be aborted.
            KafkaTimeoutError: no answer in time.
            IllegalStateError: the transaction is not open, or the consumer commits by itself.
        """
        self._check_open()
        if consumer is None and (offsets is None or group is None):
            raise TypeError("send_offsets() needs a consumer, or offsets= and group=")
        metadata: ConsumerGroupMetadata | str | None = group
        wanted: Mapping[TopicPartition, Any] = offsets or {}
        if consumer is not None:
            member, positions = consumer.transaction_offsets()
            metadata = group if group is not None else member
            wanted = positions if offsets is None else offsets
        if isinstance(metadata, str):
            metadata = ConsumerGroupMetadata(metadata)
        assert metadata is not None
        pending = self._manager.add_offsets(
            metadata,
            {
                TopicPartition(*partition): offset
                if isinstance(offset, OffsetAndMetadata)
                else OffsetAndMetadata(_checked(partition, offset))
                for partition, offset in wanted.items()
            },
        )
        with self._transactions.times.measure("txn-send-offsets"):
            await self._transactions.send_offsets(pending)


def _checked(partition: TopicPartition, offset: object) -> int:
    if isinstance(offset, bool) or not isinstance(offset, int):
        raise TypeError(f"the offset of {partition} must be a number or OffsetAndMetadata, not {offset!r}")
    if offset < 0:
        raise ValueError(f"the offset of {partition} is {offset}: offsets start at 0")
    return offset
