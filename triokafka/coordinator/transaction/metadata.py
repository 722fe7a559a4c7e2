"""One transactional id as stored: its producer, its state, and the pure transitions from one state to the next.

A transition returns the new metadata and changes nothing. Which request may cause which transition is decided by the
operations (`initialization`, `partitions`, `ending`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from triokafka.coordinator.transaction.state import IDLE, PREVIOUS, TransactionState
from triokafka.errors import IllegalStateError
from triokafka.structs import TopicPartition

NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
MAX_EPOCH: Final = 32_767
LAST_CLIENT_EPOCH: Final = MAX_EPOCH - 1
"""The last epoch that a producer gets: the coordinator keeps one more to fence it."""
EPOCH_BUMP_SINCE: Final = 2
"""The transaction version from which on every end of a transaction bumps the epoch (KIP-890)."""


class ProducerIdAndEpoch(NamedTuple):
    """A producer's id and epoch."""

    producer_id: int
    epoch: int


class TransactionMetadata(NamedTuple):
    """The state of one transactional id. Times are wall-clock milliseconds; -1 means none.

    ``last_producer_epoch`` is the epoch before the last bump, by which a retry is recognized. The log does not store
    it, as in Kafka. ``next_producer_id`` replaces the producer id at the end of a transaction that used up the epochs.
    ``client_transaction_version`` is the version under which the transaction ends.
    """

    producer_id: int
    producer_epoch: int = NO_EPOCH
    last_producer_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    timeout_ms: int = 0
    state: TransactionState = TransactionState.EMPTY
    partitions: tuple[TopicPartition, ...] = ()
    start_ms: int = -1
    last_update_ms: int = -1
    client_transaction_version: int = 0

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the producer id has no further epoch for a producer."""
        return self.producer_epoch >= LAST_CLIENT_EPOCH

    @property
    def commits(self) -> bool:
        """Whether the decision, once made, is to commit."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    @property
    def identity_after_end(self) -> ProducerIdAndEpoch:
        """The producer id and epoch of the next transaction, for a transaction that is being ended."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return ProducerIdAndEpoch(self.next_producer_id, 0)
        return ProducerIdAndEpoch(self.producer_id, self.producer_epoch)

    def is_reserved(self, producer_id: int) -> bool:
        """Whether the producer gets this id with the end of its present transaction, which is being completed."""
        return producer_id == self.next_producer_id != NO_PRODUCER_ID

    def initialized(
        self, *, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> TransactionMetadata:
        """Return the state after InitProducerId: no transaction, and a new epoch or producer id."""
        return self._moved(
            TransactionState.EMPTY,
            producer_id=producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=(),
            start_ms=-1,
            last_update_ms=now_ms,
        )

    def with_partitions(self, added: Iterable[TopicPartition], now_ms: int, version: int) -> TransactionMetadata:
        """Return the open transaction with these partitions; begins one if none is open."""
        return self._moved(
            TransactionState.ONGOING,
            partitions=tuple(dict.fromkeys((*self.partitions, *added))),
            start_ms=now_ms if self.state in IDLE else self.start_ms,
            last_update_ms=now_ms,
            client_transaction_version=version,
        )

    def prepared(self, *, commits: bool, version: int, next_producer_id: int, now_ms: int) -> TransactionMetadata:
        """Return the state after the decision. With transaction version 2 the epoch is bumped for the markers."""
        bumps = version >= EPOCH_BUMP_SINCE
        return self._moved(
            TransactionState.PREPARE_COMMIT if commits else TransactionState.PREPARE_ABORT,
            producer_epoch=min(self.producer_epoch + 1, MAX_EPOCH) if bumps else self.producer_epoch,
            last_producer_epoch=self.producer_epoch if bumps else self.last_producer_epoch,
            next_producer_id=next_producer_id,
            # An abort without partitions has no start of its own.
            start_ms=now_ms if self.state in IDLE else self.start_ms,
            last_update_ms=now_ms,
            client_transaction_version=version,
        )

    def fenced(self) -> TransactionMetadata:
        """Return the open transaction under a bumped epoch, for an end that bumps none. Not stored by itself."""
        return self._replace(producer_epoch=min(self.producer_epoch + 1, MAX_EPOCH), last_producer_epoch=NO_EPOCH)

    def completed(self, now_ms: int) -> TransactionMetadata:
        """Return the state once every partition has its marker."""
        identity = self.identity_after_end
        return self._moved(
            TransactionState.COMPLETE_COMMIT if self.commits else TransactionState.COMPLETE_ABORT,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=(),
            last_update_ms=now_ms,
        )

    def _moved(self, state: TransactionState, **changes: object) -> TransactionMetadata:
        if self.state not in PREVIOUS[state]:
            raise IllegalStateError(f"a transaction cannot change from {self.state.title} to {state.title}")
        return self._replace(
            state=state,
            previous_producer_id=self.producer_id,
            **changes,  # type: ignore[arg-type]  # names and types are those of the fields
        )
