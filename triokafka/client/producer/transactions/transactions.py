"""`Transactions`: connects the state machine with a producer's batches, and lets callers wait for its states."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import trio

from triokafka.client.producer.accumulator import Accumulator
from triokafka.client.producer.batch import ProducerBatch
from triokafka.client.producer.call_times import CallTimes
from triokafka.client.producer.partition_queue import PartitionQueue
from triokafka.client.producer.transactions.completion_check import CompletionCheck
from triokafka.client.producer.transactions.coordinator_call import CoordinatorCall
from triokafka.client.producer.transactions.registration_order import RegistrationOrder
from triokafka.client.producer.transactions.transaction_manager import TransactionManager
from triokafka.client.producer.transactions.transaction_offsets import TransactionOffsets
from triokafka.client.producer.transactions.transaction_state import TransactionState
from triokafka.client.producer.transactions.transaction_task import TransactionTask
from triokafka.errors import IllegalStateError, KafkaError, KafkaTimeoutError, TransactionAbortedError
from triokafka.network.network_client import NetworkClient
from triokafka.structs import TopicPartition

logger = logging.getLogger(__name__)

_S = TransactionState
_FEATURE: Final = "transaction.version"
_ENDING: Final = (_S.INITIALIZING, _S.COMMITTING, _S.ABORTING)


class Transactions:
    """The transactions of one producer.

    ``check_usable`` raises when the producer is closed or has failed; ``fail`` ends the producer; ``wake_sender`` lets
    the sender look at the batches; ``set_identity`` is `Sender.begin_identity`; no request begins a transaction while
    a check of ``completion`` is pending. Times are seconds.
    """

    def __init__(
        self,
        transactional_id: str,
        timeout_ms: int,
        client: NetworkClient,
        accumulator: Accumulator,
        *,
        max_block: float,
        close_timeout: float,
        check_usable: Callable[[], None],
        fail: Callable[[Exception], None],
        wake_sender: Callable[[], None],
        set_identity: Callable[..., None],
        completion: CompletionCheck,
        times: CallTimes,
    ) -> None:
        self.manager = TransactionManager(transactional_id, timeout_ms, lambda: client.finalized_feature(_FEATURE))
        self.task = TransactionTask(
            client,
            accumulator.settings.retry_backoff,
            self._next_call,
            self._after_answer,
            self.manager.fail,
            completion=completion,
        )
        self._completion = completion
        self._registrations = RegistrationOrder(lambda queue: client.cluster.leader_for(queue.topic_partition))
        self._accumulator = accumulator
        self._batches = accumulator.batches
        self._max_block = max_block
        self._close_timeout = close_timeout
        self._check_usable = check_usable
        self._fail = fail
        self._wake_sender = wake_sender
        self._set_identity = set_identity
        self.times = times
        self._changed = trio.Event()
        self._waiting_for_end = 0
        self._implicit = self.manager.implicit
        self._identity_changes = 0
        # A queue keeps its sequence numbers while it is referred to.
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._blocked: dict[TopicPartition, PartitionQueue] = {}
        self._batches.watch(self._admitted, self._progressed)
        self._batches.add_failure_listener(self._batch_failed)

    # ---------------------------------------------------------------- batches

    def check_can_send(self) -> None:
        """Raise unless records may be sent now; see `TransactionManager.check_can_send`."""
        self._check_usable()
        self.manager.check_can_send()

    def _admitted(self, queue: PartitionQueue) -> None:
        """A batch was opened: its partition becomes part of the transaction."""
        partition = queue.topic_partition
        self._queues[partition] = queue
        if not self.manager.add_partition(partition) or self._completion.pending:
            self._block(queue)
            self.task.wake()
        elif self.manager.registers_group or (self.manager.implicit and not self._registrations.admits(queue)):
            self._block(queue)

    def _block(self, queue: PartitionQueue) -> None:
        queue.sequences.waits_for_transaction = True
        self._blocked[queue.topic_partition] = queue
        self._registrations.withdraw(queue)

    def _batch_failed(self, batch: ProducerBatch) -> None:
        if isinstance(batch.error, TransactionAbortedError):
            return
        error = batch.error
        if not isinstance(error, KafkaError):
            error = KafkaError(f"{batch.count} records for {batch.topic_partition} failed: {error!r}")
        self.manager.fail_transaction(error, lost_sequence=batch.base_sequence >= 0)
        self._announce()

    def _progressed(self) -> None:
        if self._registrations.finished(late=self._completion.held_back_again) and self._blocked:
            self.task.wake()
        if self.manager.registers_group or (self.manager.state in _ENDING and not self._batches.unreleased):
            self.task.wake()

    def _drop_unsent(self) -> None:
        """Fail the batches that are not on the wire, and those that come back from it without success."""
        reason = self.manager.error
        error = TransactionAbortedError(
            "the record was not sent, because its transaction was aborted"
            + (f": {reason!r}" if reason is not None else "")
        )
        error.__cause__ = reason
        self._batches.begin_abort(error)
        for queue in self._blocked.values():
            queue.sequences.waits_for_transaction = False
        self._blocked.clear()

    # ---------------------------------------------------------------- the task

    def _next_call(self) -> CoordinatorCall | None:
        manager = self.manager
        if manager.state in (_S.ABORTABLE_ERROR, _S.ABORTING):
            self._drop_unsent()
        sent = any(queue.sequences.used for queue in self._queues.values())
        new = self._unregistered() if manager.registers_group else []
        registering = any(queue.on_wire for queue in new)
        call = manager.next_call(idle=not self._batches.unreleased, sent=sent, registering=registering)
        self._after_answer()
        for queue in new:
            self._block(queue)
        return call

    def _unregistered(self) -> list[PartitionQueue]:
        """Return the queues of which no batch was acknowledged in this transaction."""
        return [queue for queue in self._queues.values() if queue.sequences.last_acked < 0]

    def _after_answer(self) -> None:
        """Apply the state after an answer to the batches, and wake waiting callers."""
        manager = self.manager
        if manager.state is _S.FATAL_ERROR:
            if manager.error is not None:
                self._fail(manager.error)
            self._wake_waiters()
            return
        if manager.identity_changes != self._identity_changes:
            self._identity_changes = manager.identity_changes
            self._renumber()
        if manager.state in (_S.READY, _S.IN_TRANSACTION):
            self._batches.end_abort()
        unblocked = [
            partition
            for partition, queue in self._blocked.items()
            if manager.is_added(partition) and not (manager.implicit and not self._registrations.admits(queue))
        ]
        for partition in unblocked:
            self._blocked.pop(partition).sequences.waits_for_transaction = False
        if unblocked:
            self._wake_sender()
        self._wake_waiters()

    def _renumber(self) -> None:
        """Begin with sequence number 0 in every partition, under the new identity."""
        self._set_identity(self.manager.identity, implicit=self.manager.implicit)
        if self.manager.implicit != self._implicit:
            self._implicit = self.manager.implicit
            self._accumulator.queues.forget_routes()
        for queue in self._queues.values():
            queue.sequences.waits_for_transaction = False
            queue.sequences.restart(self.manager.identity)
        self._queues.clear()
        self._blocked.clear()
        self._batches.forget_disturbed()

    def fail(self, error: Exception) -> None:
        """Fail the transaction with the producer's failure, and wake the waiting calls."""
        if isinstance(error, KafkaError):
            self.manager.fail(error)
        self._wake_waiters()

    def _announce(self) -> None:
        self._wake_waiters()
        self.task.wake()

    def _wake_waiters(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    # ---------------------------------------------------------------- the user's calls

    async def _while(self, busy: Callable[[], bool], timeout: float, problem: str) -> None:
        """Wait while ``busy()``, at most ``timeout`` seconds. Raises `KafkaTimeoutError` with the last problem."""
        with trio.move_on_after(timeout):
            while busy():
                await self._changed.wait()
        if busy():
            error = KafkaTimeoutError(f"transactional id {self.manager.transactional_id!r}: {problem}")
            error.__cause__ = self.task.last_error
            raise error

    async def initialize(self) -> None:
        """Get the producer id, which fences older producers; see `Producer.init_transactions`."""
        self._check_usable()
        manager = self.manager
        manager.initialize()
        self.task.wake()
        await trio.lowlevel.checkpoint()
        await self._while(
            lambda: manager.state is _S.INITIALIZING,
            self._max_block,
            f"the coordinator gave no producer id within max_block_ms={self._max_block * 1000:.0f}",
        )
        self._check_usable()

    async def begin(self) -> None:
        """Open a transaction; wait for the producer id, or the end of the transaction before, if necessary."""
        self._check_usable()
        manager = self.manager
        if manager.state in (_S.UNINITIALIZED, *_ENDING):
            if self._waiting_for_end:
                manager.begin()  # raises: another task completes its transaction
            manager.initialize()
            self.task.wake()
            await self._while(
                lambda: manager.state in _ENDING,
                self._max_block,
                f"{manager.state.value}, and its coordinator has not answered within"
                f" max_block_ms={self._max_block * 1000:.0f}",
            )
            self._check_usable()
        manager.begin()
        self._registrations.begin_transaction()

    async def commit(self) -> None:
        """Send the buffered records, and commit. See `Transaction.commit`."""
        self._check_usable()
        manager = self.manager
        manager.begin_commit()
        accumulator = self._accumulator
        accumulator.close_open_batches()
        accumulator.flushes += 1
        self._waiting_for_end += 1
        try:
            self._wake_sender()
            self.task.wake()
            await self._prepare_end()
            await self._wait_for_end(self._max_block, f"max_block_ms={self._max_block * 1000:.0f}")
        except trio.Cancelled:
            with trio.CancelScope(shield=True):
                await self._settle_cancelled_commit()
            raise
        finally:
            accumulator.flushes -= 1
            self._waiting_for_end -= 1
        self._check_usable()
        if manager.state is _S.ABORTABLE_ERROR:
            raise manager.abortable_error()

    async def _prepare_end(self) -> None:
        """Wait until EndTxn is sent or the commit has failed.

        Records are settled within ``delivery_timeout_ms``. Requests that the coordinators have not answered
        ``max_block_ms`` later fail the transaction, for example offsets whose `send_offsets` was cancelled.
        """
        manager = self.manager

        def is_pending() -> bool:
            return manager.state is _S.COMMITTING and not manager.end_sent

        await self._while(lambda: is_pending() and bool(self._batches.unreleased), float("inf"), "")
        try:
            missing = f"{manager.unanswered} within max_block_ms={self._max_block * 1000:.0f}"
            await self._while(is_pending, self._max_block, missing)
        except KafkaTimeoutError as error:
            manager.fail_transaction(error)

    async def _settle_cancelled_commit(self) -> None:
        """The caller was cancelled: abort if that is still possible, else wait for the commit's answer."""
        manager = self.manager
        if manager.state in (_S.COMMITTING, _S.ABORTABLE_ERROR) and not manager.end_sent:
            manager.begin_abort()
            self._drop_unsent()
            self.task.wake()
        try:
            await self._wait_for_end(self._close_timeout, f"close_timeout_ms={self._close_timeout * 1000:.0f}")
        except KafkaTimeoutError as error:
            logger.warning("%s", error)

    async def _wait_for_end(self, timeout: float, limit: str) -> None:
        manager = self.manager
        verb = "commit" if manager.state is _S.COMMITTING else "abort"
        await self._while(
            lambda: manager.state in _ENDING,
            timeout,
            f"the coordinator has not confirmed the {verb} within {limit}; the producer goes on asking, and"
            " the next transaction begins after its answer",
        )

    async def abort(self, *, closing: bool = False) -> None:
        """Drop the unsent records, and abort. See `Transaction.abort`. ``closing``: within ``close_timeout_ms``."""
        if not closing:
            self._check_usable()
        manager = self.manager
        manager.begin_abort()
        self._drop_unsent()
        self._waiting_for_end += 1
        try:
            self.task.wake()
            await trio.lowlevel.checkpoint()
            if closing:
                await self._wait_for_end(self._close_timeout, f"close_timeout_ms={self._close_timeout * 1000:.0f}")
            else:
                await self._wait_for_end(self._max_block, f"max_block_ms={self._max_block * 1000:.0f}")
        finally:
            self._waiting_for_end -= 1
        self._check_usable()

    async def abort_open(self) -> None:
        """Abort the transaction if one is open, shielded, within ``close_timeout_ms``; failures are logged."""
        manager = self.manager
        with trio.CancelScope(shield=True):
            try:
                if manager.state in (_S.IN_TRANSACTION, _S.ABORTABLE_ERROR) or (
                    manager.state is _S.COMMITTING and not manager.end_sent
                ):
                    await self.abort(closing=True)
                elif manager.state in (_S.COMMITTING, _S.ABORTING):
                    await self._wait_for_end(self._close_timeout, f"close_timeout_ms={self._close_timeout * 1000:.0f}")
            except IllegalStateError:
                raise
            except KafkaError as error:
                logger.warning("transactional id %r: the abort failed: %s", manager.transactional_id, error)

    def raise_failure(self, reason: BaseException) -> None:
        """Raise the producer's failure, if it has failed, with ``reason`` as a note."""
        try:
            self._check_usable()
        except KafkaError as failure:
            failure.add_note(f"the transaction could not be committed, because of: {reason!r}")
            raise

    async def send_offsets(self, pending: TransactionOffsets) -> None:
        """Wait until the coordinators have the offsets."""
        self.task.wake()
        await trio.lowlevel.checkpoint()
        manager = self.manager
        await self._while(
            lambda: not pending.done and manager.state in (_S.IN_TRANSACTION, _S.COMMITTING),
            self._max_block,
            f"the offsets of group {pending.group.group_id!r} were not added to the transaction within"
            f" max_block_ms={self._max_block * 1000:.0f}",
        )
        self._check_usable()
        if not pending.done:
            error = manager.error
            if isinstance(error, KafkaError):
                copy = error.fresh_copy()
                copy.__cause__ = error.__cause__
                raise copy
            raise TransactionAbortedError("the transaction ended before its offsets were added")


__all__ = ["Transactions"]
