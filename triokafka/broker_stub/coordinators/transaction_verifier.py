"""Admission of transactional appends to partitions that this broker leads (KIP-890).

Before a producer's first batch of a transaction, the leader asks the transaction coordinator whether the partition
takes part in the transaction, or, for clients of transaction version 2, adds it. While the transaction is open in the
log, nothing needs to be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TYPE_CHECKING, Final

from triokafka import errors
from triokafka.broker_stub.coordinators.broker_channels import BrokerChannels
from triokafka.broker_stub.coordinators.coordinator_entry import CoordinatorEntry
from triokafka.broker_stub.log.verification_guard import UNVERIFIED_ALLOWED, VerificationGuard
from triokafka.broker_stub.metadata import MetadataImage
from triokafka.broker_stub.replica.replica_manager import ReplicaManager
from triokafka.metrics.durations import Durations
from triokafka.named_tuple import NamedTuple
from triokafka.structs import TopicPartition, by_topic
from triokafka.topic_names import TRANSACTION_STATE_TOPIC
from triokafka.world import World

if TYPE_CHECKING:
    from triokafka.coordinator.transaction.transaction_coordinator import TransactionCoordinator

_FIRST_OF_BROKERS: Final = 4
"""The first version of AddPartitionsToTxn for requests of brokers."""
_ADDING_VERSION: Final = 2
"""The transaction version of clients that leave it to the partition's leader to add a partition."""


_MOST_QUESTIONS: Final = 3
"""How often a coordinator is asked for one request, if markers of earlier transactions arrive meanwhile."""


class AppendingProducer(NamedTuple):
    """A producer that appends in a transaction.

    ``adds``: its requests also add partitions to the transaction (transaction version 2). ``knows_abortable``: it knows
    TRANSACTION_ABORTABLE; older clients get INVALID_TXN_STATE instead.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    adds: bool
    knows_abortable: bool


class AppendAdmission(NamedTuple):
    """The result by partition: the guard to append with, or the error code."""

    guards: dict[TopicPartition, VerificationGuard | None]
    errors: dict[TopicPartition, int]


class TransactionVerifier:
    """Asks transaction coordinators, on this broker or on others.

    Args:
        entry: the transaction coordinator of this broker.
        enabled: whether ``transaction.partition.verification.enable`` is on.

    ``durations`` has the times of the questions to coordinators, ``failures`` counts the partitions that they refused.
    """

    def __init__(
        self,
        world: World,
        node_id: int,
        replicas: ReplicaManager,
        image: Callable[[], MetadataImage],
        entry: CoordinatorEntry[TransactionCoordinator],
        nodes: BrokerChannels,
        enabled: Callable[[], bool],
    ) -> None:
        self.durations = Durations()
        self.failures = 0
        self._world = world
        self._node_id = node_id
        self._replicas = replicas
        self._image = image
        self._entry = entry
        self._nodes = nodes
        self._enabled = enabled

    def is_open(self, key: TopicPartition, producer_id: int, epoch: int) -> bool:
        """Whether this broker leads the partition, and its log has an open transaction of the producer's epoch.

        Then the producer may append without `admit`.
        """
        partition = self._replicas.find(*key)
        return partition is not None and partition.is_leader and partition.log.producers.is_open(producer_id, epoch)

    async def admit(
        self,
        producer: AppendingProducer,
        sequences: Mapping[TopicPartition, int],
        *,
        waiting: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> AppendAdmission:
        """Let a producer append to partitions, given with the sequence numbers of its batches.

        Waits for the coordinator, each time in a block of ``waiting``, unless the transaction is open in all of the
        partitions.
        """
        guards: dict[TopicPartition, VerificationGuard | None] = {}
        refused: dict[TopicPartition, int] = {}
        if not producer.adds and not self._enabled():
            return AppendAdmission(dict.fromkeys(sequences, UNVERIFIED_ALLOWED), refused)
        asked = self._begin(producer, sequences, guards, refused)
        for _ in range(_MOST_QUESTIONS):
            if not asked:
                break
            async with waiting():
                began = self._world.now()
                answers = await self._ask(producer, asked)
                self.durations.add(self._world.now() - began)
            for key, code in answers.items():
                if code:
                    self.failures += 1
                    refused[key] = _for_client(code, producer)
            # Meanwhile the marker of the producer's previous transaction may have removed the verification. Then the
            # answer proves nothing, because the marker could also be this transaction's: ask again.
            before = dict(guards)
            admitted = {key: sequences[key] for key in asked if key not in refused}
            begun = self._begin(producer, admitted, guards, refused)
            asked = [key for key in begun if guards[key] is not before[key]]
        return AppendAdmission(guards, refused)

    def _begin(
        self,
        producer: AppendingProducer,
        sequences: Mapping[TopicPartition, int],
        guards: dict[TopicPartition, VerificationGuard | None],
        refused: dict[TopicPartition, int],
    ) -> list[TopicPartition]:
        """Begin or continue verifications; return the partitions for which the coordinator must be asked."""
        asked = []
        now_ms = self._world.wall_ms()
        for key, sequence in sequences.items():
            try:
                guards[key] = self._replicas.partition(key).begin_verification(
                    producer.producer_id,
                    producer.producer_epoch,
                    sequence,
                    bumps_epochs=producer.adds,
                    now_ms=now_ms,
                )
            except errors.BrokerResponseError as error:
                refused[key] = error.code
                continue
            if guards[key] is not None:
                asked.append(key)
        return asked

    async def _ask(self, producer: AppendingProducer, asked: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        try:
            runtime = self._entry.coordinator.runtime
            state = self._image().partition(TRANSACTION_STATE_TOPIC, runtime.partition_for(producer.transactional_id))
            if state is None or state.leader < 0:
                raise errors.CoordinatorNotAvailableError("the transaction coordinator has no leader now")
            if state.leader == self._node_id:
                return await self._ask_own_coordinator(producer, asked)
            return await self._ask_other_broker(state.leader, producer, asked)
        except errors.BrokerResponseError as error:
            return dict.fromkeys(asked, error.code)
        except errors.KafkaError:
            return dict.fromkeys(asked, errors.NetworkExceptionError.code)

    async def _ask_own_coordinator(
        self, producer: AppendingProducer, asked: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        coordinator = self._entry.coordinator
        transactional_id, producer_id, epoch = producer.transactional_id, producer.producer_id, producer.producer_epoch
        if not producer.adds:
            return await coordinator.verify_partitions(
                transactional_id, producer_id=producer_id, producer_epoch=epoch, asked=asked
            )
        await coordinator.add_partitions(
            transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            added=asked,
            version=_ADDING_VERSION,
            may_wait=True,
        )
        return {}

    async def _ask_other_broker(
        self, node_id: int, producer: AppendingProducer, asked: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, int]:
        from triokafka.protocol.api.add_partitions_to_txn import (
            AddPartitionsToTxnRequest,
            AddPartitionsToTxnTopic,
            AddPartitionsToTxnTransaction,
        )

        transaction = AddPartitionsToTxnTransaction(
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            verify_only=not producer.adds,
            topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=numbers) for topic, numbers in by_topic(asked).items()
            ],
        )
        request = AddPartitionsToTxnRequest(transactions=[transaction])
        response = await self._nodes.send(node_id, request, min_version=_FIRST_OF_BROKERS)
        if response.error_code:
            # The client could not change that this broker lacks a permission.
            denied = response.error_code == errors.ClusterAuthorizationFailedError.code
            return dict.fromkeys(asked, errors.InvalidTxnStateError.code if denied else response.error_code)
        return {
            TopicPartition(topic.name, one.partition_index): one.partition_error_code
            for result in response.results_by_transaction
            for topic in result.topic_results
            for one in topic.results_by_partition
        }


def _for_client(code: int, producer: AppendingProducer) -> int:
    """Return the code that the client expects from the leader of a partition."""
    if code == errors.ProducerFencedError.code:
        return errors.InvalidProducerEpochError.code
    if code == errors.TransactionAbortableError.code and not producer.knows_abortable:
        return errors.InvalidTxnStateError.code
    return code
