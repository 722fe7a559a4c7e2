"""Transactions: list, describe, find hanging ones, abort, fence producers (KIP-664, KIP-994, KIP-1152)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from triokafka.client.admin.call_routing import CallRouting
from triokafka.client.admin.partitions import PartitionAdmin
from triokafka.client.admin.retries import AdminRetries
from triokafka.client.admin.transaction_types import (
    FencedProducer,
    HangingTransaction,
    TransactionDescription,
    TransactionListing,
)
from triokafka.client.admin.types import Results
from triokafka.errors import (
    CoordinatorNotAvailableError,
    InvalidRequestError,
    NotCoordinatorError,
    TransactionalIdNotFoundError,
)
from triokafka.protocol.api.describe_transactions import DescribeTransactionsRequest
from triokafka.protocol.api.init_producer_id import InitProducerIdRequest
from triokafka.protocol.api.list_transactions import ListTransactionsRequest
from triokafka.protocol.api.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from triokafka.structs import Node, TopicPartition, by_topic

_TRANSACTION: Final = 1
_FIRST_WITH_DURATION: Final = 1
_FIRST_WITH_PATTERN: Final = 2
_FENCING_TIMEOUT_MS: Final = 1
"""The transaction timeout of the producer that fences: it never begins a transaction."""
_OPEN_STATES: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


class TransactionAdmin:
    """The part of `AdminClient` about transactions."""

    def __init__(self, retries: AdminRetries) -> None:
        self._retries = retries

    # ---------------------------------------------------------------- looking

    async def list_transactions(
        self,
        *,
        broker_ids: Iterable[int] | None = None,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        min_duration_ms: int | None = None,
        pattern: str | None = None,
        timeout_ms: float | None = None,
    ) -> Results[int, tuple[TransactionListing, ...]]:
        """List the transactional ids that each broker coordinates, by broker id (brokers from 3.0 on).

        Args:
            broker_ids: ask only these brokers.
            states: only in these, such as ``"Ongoing"``.
            producer_ids: only of these producers.
            min_duration_ms: only transactions that are open for longer (brokers from 3.8 on).
            pattern: only ids that this regular expression matches as a whole (brokers from 4.1 on).

        Reading a broker that failed raises its error, such as `InvalidRegularExpressionError`.
        """
        low = None if min_duration_ms is None else _FIRST_WITH_DURATION
        low = low if pattern is None else _FIRST_WITH_PATTERN
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=-1 if min_duration_ms is None else min_duration_ms,
            transactional_id_pattern=pattern,
        )

        async def do_round(
            brokers: list[int], call: CallRouting
        ) -> Mapping[int, tuple[TransactionListing, ...] | Exception]:
            async def ask(
                node_id: int, items: list[int], call: CallRouting
            ) -> Mapping[int, tuple[TransactionListing, ...] | Exception]:
                response = await call.to_node(node_id, request, min_version=low)
                self._retries.check(response.error_code, f"transactions of broker {node_id}")
                if response.unknown_state_filters:
                    raise InvalidRequestError(f"states that do not exist: {', '.join(response.unknown_state_filters)}")
                return {
                    node_id: tuple(
                        TransactionListing(found.transactional_id, found.producer_id, found.transaction_state)
                        for found in response.transaction_states
                    )
                }

            return await call.side_by_side({broker: [broker] for broker in brokers}, ask)

        time_left = self._retries.countdown(timeout_ms)
        if broker_ids is None:
            broker_ids = sorted(node.node_id for node in await self._retries.brokers(time_left()))
        return await self._retries.each(broker_ids, do_round, time_left())

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> Results[str, TransactionDescription]:
        """Describe transactional ids (brokers from 3.0 on).

        Reading an id that the cluster does not know raises `TransactionalIdNotFoundError`.
        """

        async def ask(
            node: Node, items: list[str], call: CallRouting
        ) -> Mapping[str, TransactionDescription | Exception]:
            response = await call.to_node(node.node_id, DescribeTransactionsRequest(transactional_ids=items))
            return {
                found.transactional_id: self._error(found.error_code, found.transactional_id)
                or TransactionDescription(
                    node.node_id,
                    found.transaction_state,
                    found.producer_id,
                    found.producer_epoch,
                    found.transaction_timeout_ms,
                    found.transaction_start_time_ms if found.transaction_start_time_ms >= 0 else None,
                    tuple(TopicPartition(t.topic, partition) for t in found.topics for partition in t.partitions),
                )
                for found in response.transaction_states
            }

        return await self._retries.each_group(transactional_ids, ask, timeout_ms, key_type=_TRANSACTION)

    async def find_hanging_transactions(
        self,
        partitions: Iterable[TopicPartition],
        *,
        max_transaction_timeout_ms: int = 900_000,
        now_ms: int | None = None,
        timeout_ms: float | None = None,
    ) -> list[HangingTransaction]:
        """Return transactions that are open in a partition and that no coordinator will end (KIP-664).

        A hanging transaction stops consumers with ``read_committed`` at its first record, until `abort_transaction`
        ends it. Candidates are transactions whose last record is older than ``max_transaction_timeout_ms``, which is
        the brokers' ``transaction.max.timeout.ms``: every other transaction is ended by its coordinator. ``now_ms`` is
        the present time in ms since the epoch, by default this machine's.
        """
        now = self._retries.world.wall_ms() if now_ms is None else now_ms
        time_left = self._retries.countdown(timeout_ms)
        producers = await PartitionAdmin(self._retries).describe_producers(partitions, timeout_ms=time_left())
        candidates = [
            HangingTransaction(
                partition,
                producer.producer_id,
                producer.producer_epoch,
                producer.coordinator_epoch,
                producer.current_transaction_start_offset,
                producer.last_timestamp,
                None,
            )
            for partition in producers
            for producer in producers[partition]
            if producer.current_transaction_start_offset >= 0
            and producer.last_timestamp + max_transaction_timeout_ms < now
        ]
        if not candidates:
            return []
        listed = await self.list_transactions(
            producer_ids={candidate.producer_id for candidate in candidates}, timeout_ms=time_left()
        )
        ids = {one.producer_id: one.transactional_id for broker in listed for one in listed[broker]}
        described = await self.describe_transactions(ids.values(), timeout_ms=time_left())
        return [
            candidate._replace(transactional_id=ids.get(candidate.producer_id))
            for candidate in candidates
            if not _is_coordinated(candidate, ids, described)
        ]

    # ---------------------------------------------------------------- changing

    async def abort_transaction(
        self,
        partition: TopicPartition,
        *,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        timeout_ms: float | None = None,
    ) -> None:
        """Abort a hanging transaction in one partition, past its coordinator (brokers from 3.0 on).

        Take the numbers from `find_hanging_transactions` or `describe_producers`; a ``coordinator_epoch`` of -1 there
        is 0 here. Never use it for a transaction that has a coordinator: use `force_terminate_transaction`.

        Raises:
            InvalidProducerEpochError, TransactionCoordinatorFencedError: the numbers are out of date.
            ClusterAuthorizationFailedError: the principal may not do this.
        """

        async def do_round(items: list[TopicPartition], call: CallRouting) -> Mapping[TopicPartition, Exception | None]:
            outcomes: dict[TopicPartition, Exception | None] = {}
            for node_id, group in (await call.by_leader(items, outcomes)).items():
                request = WriteTxnMarkersRequest(
                    markers=[
                        WritableTxnMarker(
                            producer_id=producer_id,
                            producer_epoch=producer_epoch,
                            transaction_result=False,
                            coordinator_epoch=max(0, coordinator_epoch),
                            topics=[
                                WritableTxnMarkerTopic(name=topic, partition_indexes=numbers)
                                for topic, numbers in by_topic(group).items()
                            ],
                        )
                    ]
                )
                response = await call.to_node(node_id, request)
                for marker in response.markers:
                    for topic in marker.topics:
                        for p in topic.partitions:
                            tp = TopicPartition(topic.name, p.partition_index)
                            outcomes[tp] = self._retries.error(p.error_code, f"the transaction in {tp}")
            return outcomes

        await self._retries.change([partition], do_round, timeout_ms)

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> Results[str, FencedProducer]:
        """Fence the producers that use these transactional ids, and abort their open transactions.

        The running producers fail with `ProducerFencedError`; ones that start later are not affected.
        """

        async def ask(node: Node, items: list[str], call: CallRouting) -> Mapping[str, FencedProducer | Exception]:
            outcomes: dict[str, FencedProducer | Exception] = {}
            for transactional_id in items:
                request = InitProducerIdRequest(
                    transactional_id=transactional_id, transaction_timeout_ms=_FENCING_TIMEOUT_MS
                )
                response = await call.to_node(node.node_id, request)
                outcomes[transactional_id] = self._error(response.error_code, transactional_id) or FencedProducer(
                    response.producer_id, response.producer_epoch
                )
            return outcomes

        return await self._retries.each_group(transactional_ids, ask, timeout_ms, key_type=_TRANSACTION)

    async def force_terminate_transaction(self, transactional_id: str, *, timeout_ms: float | None = None) -> None:
        """Abort the open transaction of a transactional id through its coordinator, and fence its producer.

        Raises:
            TransactionalIdNotFoundError: no producer has used the id, or it has expired.
        """
        time_left = self._retries.countdown(timeout_ms)
        described = await self.describe_transactions([transactional_id], timeout_ms=time_left())
        if isinstance(described.errors.get(transactional_id), TransactionalIdNotFoundError):
            described[transactional_id]  # raises
        results = await self.fence_producers([transactional_id], timeout_ms=time_left())
        results[transactional_id]

    def _error(self, code: int, transactional_id: str) -> Exception | None:
        """The error of a transactional id. A coordinator that moved is looked up again."""
        error = self._retries.error(code, f"transactional id {transactional_id!r}")
        if isinstance(error, (NotCoordinatorError, CoordinatorNotAvailableError)):
            self._retries.client.forget_coordinator(transactional_id, _TRANSACTION)
        return error


def _is_coordinated(
    candidate: HangingTransaction,
    ids: Mapping[int, str],
    described: Results[str, TransactionDescription],
) -> bool:
    """Return whether a coordinator has the transaction, and will end it."""
    transactional_id = ids.get(candidate.producer_id)
    if transactional_id is None or isinstance(described.errors.get(transactional_id), TransactionalIdNotFoundError):
        return False
    found = described[transactional_id]
    return found.state in _OPEN_STATES and candidate.partition in found.partitions
