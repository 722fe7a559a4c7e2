"""The loop's side of kafka-python's transactional methods."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import trio

from triokafka.errors import IllegalStateError, KafkaTimeoutError
from triokafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from triokafka import Producer, Transaction


class SessionTransactions:
    """The transactions of one session. Methods run in the loop.

    ``hand_over`` waits until the SDK's producer has all records sent so far.
    """

    def __init__(self, hand_over: Callable[[], Awaitable[None]]) -> None:
        self._hand_over = hand_over
        self._transaction: Transaction | None = None
        self._initialized = False

    async def initialize(self, producer: Producer, seconds: float) -> None:
        """Get the producer id, within ``seconds``. Raises `KafkaTimeoutError`."""
        with trio.move_on_after(seconds):
            await producer.init_transactions()
            self._initialized = True
            return
        raise KafkaTimeoutError(f"Timeout expired while initializing transactional state in {seconds * 1000:.0f} ms.")

    async def begin(self, producer: Producer) -> None:
        """Open a transaction. Raises `IllegalStateError` if there is no producer id yet, or one is open."""
        if not self._initialized:
            raise IllegalStateError("begin_transaction() needs init_transactions() first")
        transaction = producer.transaction()
        await transaction.begin()
        self._transaction = transaction

    def _open(self, what: str) -> Transaction:
        if self._transaction is None:
            raise IllegalStateError(f"{what} needs begin_transaction() first")
        return self._transaction

    async def send_offsets(self, offsets: Mapping[Any, Any], group: Any) -> None:
        """Make offsets of a group part of the transaction."""
        transaction = self._open("send_offsets_to_transaction()")
        await transaction.send_offsets(
            offsets={TopicPartition(*partition): _offset(offset) for partition, offset in offsets.items()},
            group=_group(group),
        )

    async def commit(self) -> None:
        """Commit everything sent before the call."""
        transaction = self._open("commit_transaction()")
        await self._hand_over()
        await transaction.commit()
        self._transaction = None

    async def abort(self) -> None:
        """Abort everything sent before the call."""
        transaction = self._open("abort_transaction()")
        # A record that is handed over later would belong to the next transaction.
        await self._hand_over()
        self._transaction = None
        await transaction.abort()

    async def close(self, seconds: float | None) -> None:
        """Abort a transaction that is open, within ``seconds``. Errors are those of `abort`."""
        if self._transaction is not None:
            with trio.move_on_after(float("inf") if seconds is None else seconds):
                await self.abort()


def _offset(offset: Any) -> OffsetAndMetadata:
    if isinstance(offset, int):
        return OffsetAndMetadata(offset)
    epoch = getattr(offset, "leader_epoch", -1)
    return OffsetAndMetadata(offset.offset, offset.metadata or "", -1 if epoch is None else epoch)


def _group(group: Any) -> ConsumerGroupMetadata | str:
    if isinstance(group, str):
        return group
    return ConsumerGroupMetadata(group.group_id, group.generation_id, group.member_id or "", group.group_instance_id)
