"""The transaction coordinator of one broker: transactional ids on the partitions that it leads."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

from triokafka.coordinator.runtime.coordinator_log import CoordinatorLog
from triokafka.coordinator.runtime.coordinator_task import CoordinatorTask
from triokafka.coordinator.runtime.reply import Reply
from triokafka.coordinator.runtime.waiting import answer_to, run_steps, run_together
from triokafka.coordinator.transaction import ending, initialization, partitions
from triokafka.coordinator.transaction.completion import complete
from triokafka.coordinator.transaction.config import TransactionCoordinatorConfig
from triokafka.coordinator.transaction.coordinator_type import transaction_coordinator_type
from triokafka.coordinator.transaction.description import ListedTransaction, TransactionFilter, list_transactions
from triokafka.coordinator.transaction.marker_queue import Completion, Completions
from triokafka.coordinator.transaction.metadata import ProducerIdAndEpoch, TransactionMetadata
from triokafka.coordinator.transaction.producer_id_needed import ProducerIdNeeded
from triokafka.coordinator.transaction.records import TransactionChange, TransactionEffects
from triokafka.coordinator.transaction.timed_out_transactions import abort_with_new_id
from triokafka.coordinator.transaction.transaction_shard import TransactionShard
from triokafka.errors import CoordinatorLoadInProgressError, KafkaError, TransactionalIdNotFoundError
from triokafka.structs import TopicPartition
from triokafka.world import World

logger = logging.getLogger(__name__)

T = TypeVar("T")


class MarkerWriter(Completions, Protocol):
    """Writes the markers of decided transactions."""

    @property
    def without_leader(self) -> int:
        """The number of markers whose partition has no leader."""

    async def run(self, completed: Callable[[Completion], None]) -> None:
        """Write until cancelled. ``completed`` is called when all markers of a transaction are written."""


class TransactionCoordinator:
    """Transactional ids and their transactions, on the partitions of ``__transaction_state`` that this broker leads.

    Every answer waits until the state behind it is committed. Cancelling a waiting request undoes nothing.

    Args:
        log: the partitions of ``__transaction_state``.
        new_producer_id: returns an unused producer id; may wait for the controller.
        markers: writes the markers.
        transaction_version: the finalized level of ``transaction.version``.

    All requests raise:
        NotCoordinatorError, CoordinatorLoadInProgressError, CoordinatorNotAvailableError: see
            `CoordinatorRuntime.write`.
    """

    def __init__(
        self,
        world: World,
        log: CoordinatorLog,
        new_producer_id: Callable[[], Awaitable[int]],
        markers: MarkerWriter,
        transaction_version: Callable[[], int],
        config: TransactionCoordinatorConfig | None = None,
    ) -> None:
        self.config = config or TransactionCoordinatorConfig()
        self._world = world
        self._new_producer_id = new_producer_id
        self._markers = markers
        self._exhausted: dict[tuple[int, str], None] = {}
        """Ids, by partition, whose transaction has timed out and whose producer id has no further epoch to fence it."""
        self._exhausted_arrived: Reply[None] = Reply()
        coordinator_type = transaction_coordinator_type(
            self.config, markers, transaction_version, self._needs_producer_id
        )
        self._task: CoordinatorTask[TransactionShard, TransactionChange] = CoordinatorTask(
            world, log, coordinator_type, partitions=self.config.state_log_num_partitions
        )
        self.runtime = self._task.runtime

    @property
    def markers_without_leader(self) -> int:
        """The number of markers whose partition has no leader."""
        return self._markers.without_leader

    async def run(self) -> None:
        """Serve until cancelled: the shards, the markers of decided transactions, and aborts that need a new id."""
        await run_together(partial(self._markers.run, self._completed), self._task.run, self._abort_exhausted)

    def _needs_producer_id(self, partition: int, transactional_id: str) -> None:
        self._exhausted[partition, transactional_id] = None
        if not self._exhausted_arrived.is_set:
            self._exhausted_arrived.set(None)

    async def _abort_exhausted(self) -> None:
        """Abort the transactions in `_exhausted`, each with a new producer id. The next scan repeats failures."""
        while True:
            await answer_to(self._exhausted_arrived)
            self._exhausted_arrived = Reply()
            while self._exhausted:
                partition, transactional_id = next(iter(self._exhausted))
                try:
                    operation = partial(
                        abort_with_new_id,
                        transactional_id=transactional_id,
                        new_producer_id=await self._new_producer_id(),
                    )
                    self._write_to(partition, operation)
                except KafkaError as error:
                    logger.info("transactional id %r: cannot abort its transaction now: %s", transactional_id, error)
                del self._exhausted[partition, transactional_id]

    async def initialize(
        self, transactional_id: str, *, timeout_ms: int, expected: ProducerIdAndEpoch | None
    ) -> ProducerIdAndEpoch:
        """Handle InitProducerId; see `initialization.initialize`."""
        return await self._ask(
            transactional_id,
            lambda new_id, reply: partial(
                initialization.initialize,
                transactional_id=transactional_id,
                timeout_ms=timeout_ms,
                expected=expected,
                new_producer_id=new_id,
                reply=reply,
            ),
        )

    async def end(
        self, transactional_id: str, *, producer_id: int, producer_epoch: int, commits: bool, version: int
    ) -> ProducerIdAndEpoch:
        """Handle EndTxn; see `ending.end`."""
        return await self._ask(
            transactional_id,
            lambda new_id, reply: partial(
                ending.end,
                transactional_id=transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                commits=commits,
                version=version,
                new_producer_id=new_id,
                reply=reply,
            ),
        )

    async def add_partitions(
        self,
        transactional_id: str,
        *,
        producer_id: int,
        producer_epoch: int,
        added: Sequence[TopicPartition],
        version: int,
        may_wait: bool = False,
    ) -> None:
        """Handle AddPartitionsToTxn and AddOffsetsToTxn; see `partitions.add`."""
        reply: Reply[None] = Reply()
        operation = partial(
            partitions.add,
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=added,
            version=version,
            reply=reply,
            may_wait=may_wait,
        )
        self._write(transactional_id, operation)
        await answer_to(reply)

    async def verify_partitions(
        self, transactional_id: str, *, producer_id: int, producer_epoch: int, asked: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        """Handle AddPartitionsToTxn with VerifyOnly; see `partitions.verify`."""
        reply: Reply[Mapping[TopicPartition, int]] = Reply()
        operation = partial(
            partitions.verify,
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=asked,
            reply=reply,
        )
        self._write(transactional_id, operation)
        return await answer_to(reply)

    def describe(self, transactional_id: str) -> TransactionMetadata:
        """Handle DescribeTransactions for one id.

        Raises:
            TransactionalIdNotFoundError: the id is unknown.
        """
        found = self.runtime.read(
            self.runtime.partition_for(transactional_id), lambda shard: shard.transactions.get(transactional_id)
        )
        if found is None:
            raise TransactionalIdNotFoundError(f"transactional id {transactional_id!r} is unknown")
        return found

    async def list_transactions(self, wanted: TransactionFilter) -> list[ListedTransaction]:
        """Handle ListTransactions over the shards of this broker.

        Raises:
            CoordinatorLoadInProgressError: a shard is loading, so that the list would be incomplete.
        """
        self.runtime.check_running()
        if self.runtime.is_loading:
            raise CoordinatorLoadInProgressError("a partition of __transaction_state is still loading")
        shards = [self.runtime.read(number, lambda shard: shard) for number in self.runtime.active_partitions()]
        return await run_steps(list_transactions(shards, wanted, self._world.wall_ms()))

    async def _ask(
        self,
        transactional_id: str,
        operation_for: Callable[[int | None, Reply[T]], Callable[[TransactionShard], None]],
    ) -> T:
        """Run an operation, with an unused producer id if it needs one, and wait for its answer."""
        new_id: int | None = None
        while True:
            reply: Reply[T] = Reply()
            try:
                self._write(transactional_id, operation_for(new_id, reply))
            except ProducerIdNeeded:
                new_id = await self._new_producer_id()
            else:
                return await answer_to(reply)

    def _write(self, transactional_id: str, operation: Callable[..., None]) -> None:
        self._write_to(self.runtime.partition_for(transactional_id), operation)

    def _write_to(self, partition: int, operation: Callable[..., None]) -> None:
        def run(shard: TransactionShard, effects: TransactionEffects) -> None:
            operation(shard, effects=effects)

        self.runtime.write(partition, run)

    def _completed(self, completion: Completion) -> None:
        operation = partial(
            complete,
            transactional_id=completion.transactional_id,
            producer_id=completion.producer_id,
            producer_epoch=completion.producer_epoch,
        )
        try:
            self._write_to(completion.partition, operation)
        except KafkaError:
            return  # the partition has moved: its next coordinator writes the markers again
