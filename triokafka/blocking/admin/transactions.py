"""The calls of `KafkaAdminClient` about transactions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from triokafka import RealWorld
from triokafka.blocking.admin.session import AdminSession
from triokafka.blocking.admin.types import (
    AbortTransactionSpec,
    TransactionDescription,
    TransactionListing,
    TransactionState,
)
from triokafka.structs import TopicPartition

if TYPE_CHECKING:
    from triokafka import AdminClient

_OPEN: Final = frozenset(
    {
        TransactionState.ONGOING,
        TransactionState.PREPARE_COMMIT,
        TransactionState.PREPARE_ABORT,
        TransactionState.PREPARE_EPOCH_FENCE,
        TransactionState.UNKNOWN,
    }
)
_PATIENCE_MS: Final = 300_000
"""How much longer than the brokers' limit a transaction has to be open before kafka-python calls it hanging."""


class TransactionCalls:
    """Lists, describes and aborts transactions."""

    def __init__(self, session: AdminSession) -> None:
        self._session = session

    def list_transactions(
        self,
        broker_ids: Iterable[int] | None = None,
        producer_id_filters: Iterable[int] | None = None,
        state_filters: Iterable[TransactionState | str] | None = None,
        duration_filter_ms: int | None = None,
        transactional_id_pattern: str | None = None,
    ) -> dict[int, list[TransactionListing]]:
        """List the transactional ids of all brokers, or of those in ``broker_ids``, by the broker's id.

        Raises:
            InvalidRequestError: one of ``state_filters`` does not exist.
            UnsupportedVersionError: a broker does not know ``duration_filter_ms`` (before 3.8) or
                ``transactional_id_pattern`` (before 4.1).
        """
        brokers = None if broker_ids is None else list(broker_ids)
        states = [state.value if isinstance(state, TransactionState) else state for state in state_filters or ()]
        producers = list(producer_id_filters or ())

        async def ask(admin: AdminClient) -> dict[int, list[TransactionListing]]:
            found = await admin.list_transactions(
                broker_ids=brokers,
                states=states,
                producer_ids=producers,
                min_duration_ms=duration_filter_ms,
                pattern=transactional_id_pattern,
                timeout_ms=self._session.timeout_ms(),
            )
            return {
                broker: [
                    TransactionListing(one.transactional_id, one.producer_id, _state(one.state))
                    for one in found[broker]
                ]
                for broker in found
            }

        return self._session.run(ask)

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """Describe transactional ids.

        Raises:
            TransactionalIdNotFoundError: the cluster does not know one of them.
        """
        wanted = list(transactional_ids)

        async def ask(admin: AdminClient) -> dict[str, TransactionDescription]:
            found = await admin.describe_transactions(wanted, timeout_ms=self._session.timeout_ms())
            return {
                name: TransactionDescription(
                    one.coordinator_id,
                    _state(one.state),
                    one.producer_id,
                    one.producer_epoch,
                    one.timeout_ms,
                    -1 if one.start_ms is None else one.start_ms,
                    set(one.partitions),
                )
                for name in found
                for one in (found[name],)
            }

        return self._session.run(ask)

    def abort_transaction(self, spec: AbortTransactionSpec) -> None:
        """Write an abort marker into one partition, past the coordinator: for hanging transactions only.

        Raises:
            InvalidProducerEpochError, TransactionCoordinatorFencedError: the numbers are out of date.
        """

        async def abort(admin: AdminClient) -> None:
            await admin.abort_transaction(
                TopicPartition(*spec.topic_partition),
                producer_id=spec.producer_id,
                producer_epoch=spec.producer_epoch,
                coordinator_epoch=spec.coordinator_epoch,
                timeout_ms=self._session.timeout_ms(),
            )

        self._session.run(abort)

    def find_hanging_transactions(
        self, broker_ids: Iterable[int] | None = None, max_transaction_timeout_ms: float = 900_000
    ) -> list[dict[str, Any]]:
        """List the transactions that their coordinators should have ended, as kafka-python does.

        Those are open for five minutes longer than ``max_transaction_timeout_ms``, which is the brokers'
        ``transaction.max.timeout.ms``. Transactions that no coordinator knows are not among them: see
        `triokafka.AdminClient.find_hanging_transactions`.
        """
        listed = self.list_transactions(broker_ids)
        names = sorted({one.transactional_id for found in listed.values() for one in found if one.state in _OPEN})
        now_ms = RealWorld().wall_ms()
        return [
            {
                "transactional_id": name,
                "producer_id": one.producer_id,
                "producer_epoch": one.producer_epoch,
                "state": one.state.value,
                "age_ms": age_ms,
                "coordinator_id": one.coordinator_id,
                "topic_partitions": sorted(one.topic_partitions),
            }
            for name, one in (self.describe_transactions(names) if names else {}).items()
            for age_ms in (now_ms - one.transaction_start_time_ms,)
            if one.state in _OPEN
            and one.transaction_start_time_ms >= 0
            and age_ms >= max_transaction_timeout_ms + _PATIENCE_MS
        ]


def _state(name: str) -> TransactionState:
    """The state of this name; UNKNOWN for one of a newer broker."""
    try:
        return TransactionState(name)
    except ValueError:
        return TransactionState.UNKNOWN
