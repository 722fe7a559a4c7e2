"""Idempotence: producer id, epoch, and the sequence numbers of each partition. Pure (KIP-98, KIP-360).

Every batch gets the next sequence number of its partition when it is first sent, and keeps it through retries, so that
the broker can drop duplicates and refuse gaps. When the broker has lost the producer's state, or a failed batch left a
gap, the partition's batches are numbered from 0 under a new epoch. That waits until none of them is on the
wire, so that no response can belong to the old numbers.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING, Final, NamedTuple

from triokafka.errors import (
    BrokerResponseError,
    OutOfOrderSequenceNumberError,
    UnknownProducerIdError,
)

if TYPE_CHECKING:
    from triokafka.client.producer.batch import ProducerBatch

NO_PRODUCER_ID: Final = -1
_MAX_EPOCH: Final = 32_767
_SEQUENCES: Final = 2**31
_REMEMBERED_BATCHES: Final = 5  # by a broker, of each producer


def add_sequence(sequence: int, count: int) -> int:
    """Return the sequence number ``count`` after another; 0 follows the greatest."""
    return (sequence + count) % _SEQUENCES


class ProducerIdentity(NamedTuple):
    """A producer id and its epoch, as the broker gave them; -1 when there is none yet."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = -1

    @property
    def known(self) -> bool:
        """Whether the producer has an id."""
        return self.producer_id >= 0

    def bumped(self) -> ProducerIdentity:
        """The next epoch; no identity when epochs are used up, so that a new id is fetched."""
        if self.epoch >= _MAX_EPOCH:
            return ProducerIdentity()
        return ProducerIdentity(self.producer_id, self.epoch + 1)


class PartitionSequences:
    """The sequence numbers of one partition.

    ``in_flight`` holds the batches that have a number and are not settled, in order: on the wire or waiting for a
    retry. ``bump_wanted`` stops the partition until `restart`.

    ``waits_for_transaction``: the coordinator does not know yet that the partition belongs to the open transaction.
    """

    __slots__ = ("bump_wanted", "identity", "in_flight", "last_acked", "next", "unresolved", "waits_for_transaction")

    def __init__(self) -> None:
        self.identity = ProducerIdentity()
        self.next = 0
        self.last_acked = -1
        self.in_flight: list[ProducerBatch] = []
        self.bump_wanted = False
        self.unresolved = False
        self.waits_for_transaction = False

    @property
    def used(self) -> bool:
        """Whether any batch was numbered since the last epoch began."""
        return self.next != 0 or self.last_acked != -1

    def may_send(self, batch: ProducerBatch) -> bool:
        """Whether ``batch``, the head of its queue, may go out now.

        While a batch is retried, only the first unanswered batch is sent, because the broker accepts no other. After a
        batch failed whose fate is unknown, no new batch is sent until the others are answered. No new batch is sent
        in these cases either:

        - behind the very first batch, until it is acknowledged: a broker accepts any sequence number from an unknown
          producer, so it would write the second batch if it refused only the first;
        - behind a batch that is sent again, or that has four batches behind it, maybe at a former leader: it may be in
          the log, and a broker detects only the last five batches as duplicates.
        """
        if self.bump_wanted or self.waits_for_transaction:
            return False
        in_flight = self.in_flight
        if batch.base_sequence >= 0:
            return in_flight[0] is batch
        if self.unresolved:
            return False
        if not in_flight:
            return True
        return self.last_acked >= 0 and in_flight[0].attempts <= 1 and len(in_flight) < _REMEMBERED_BATCHES

    def assign(self, batch: ProducerBatch, current: ProducerIdentity) -> None:
        """Number a batch that is sent for the first time; a retried batch keeps its numbers."""
        if batch.base_sequence >= 0:
            return
        if self.identity != current and not self.in_flight:
            # Another partition changed the epoch, and no batch of this one depends on the old epoch.
            self.identity = current
            self.next = 0
            self.last_acked = -1
        batch.set_producer_state(self.identity.producer_id, self.identity.epoch, self.next)
        self.next = add_sequence(self.next, batch.count)
        self.in_flight.append(batch)

    def acknowledged(self, batch: ProducerBatch) -> None:
        """Note that the broker has the batch."""
        self._forget(batch)
        self.last_acked = add_sequence(batch.base_sequence, batch.count - 1)
        if batch.renumbered:
            for behind in self.in_flight:
                behind.renumbered = False  # the broker accepts the new epoch; a later sequence error is another loss

    def failed(self, batch: ProducerBatch, *, fate_known: bool) -> None:
        """Note that the batch is given up. ``fate_known``: the broker refused it, so its numbers leave a gap.

        An earlier batch without a response may be in the log, so it keeps its numbers; the gap is closed afterwards.
        """
        if batch.base_sequence < 0:
            return
        self._forget(batch)
        if fate_known and not (self.in_flight and self.in_flight[0].number < batch.number):
            self.bump_wanted = True
        else:
            self.unresolved = True

    def should_retry(self, batch: ProducerBatch, error: BrokerResponseError, *, log_start_offset: int = -1) -> bool:
        """Return whether to retry after a sequence error, by Kafka's rules; other errors go by ``retriable``.

        Unknown producer: the log lost its head, or the broker its state, so a new epoch is necessary. Without a
        ``log_start_offset`` (-1) the partition is only moving, and a retry is enough. Out of order: an earlier batch is
        missing and will be retried; if no batch is, only a new epoch closes the gap. A renumbered batch is only
        retried, because otherwise every attempt would take a new epoch.
        """
        if batch.base_sequence < 0:
            return error.retriable
        if isinstance(error, UnknownProducerIdError):
            if log_start_offset >= 0 and not batch.renumbered:
                self.bump_wanted = True
            return True
        if isinstance(error, OutOfOrderSequenceNumberError):
            is_next = batch.base_sequence == add_sequence(self.last_acked, 1) and not batch.renumbered
            if self.in_flight and self.in_flight[0] is batch and (is_next or self.unresolved):
                self.bump_wanted = True
            return True
        return error.retriable

    def resolve(self) -> None:
        """Once nothing is in flight, an unknown fate is settled if the numbers fit; else a new epoch is wanted."""
        if self.unresolved and not self.in_flight:
            self.unresolved = False
            if self.next != add_sequence(self.last_acked, 1):
                self.bump_wanted = True

    @property
    def bump_due(self) -> bool:
        """Whether a new epoch is necessary and possible: no batch of the partition is on the wire."""
        return self.bump_wanted and not any(batch.on_wire for batch in self.in_flight)

    def restart(self, identity: ProducerIdentity) -> None:
        """Number the batches that wait for a retry from 0 under a new epoch."""
        self.identity = identity
        self.bump_wanted = False
        self.unresolved = False
        self.last_acked = -1
        self.next = 0
        for batch in self.in_flight:
            batch.set_producer_state(identity.producer_id, identity.epoch, self.next)
            batch.renumbered = True
            self.next = add_sequence(self.next, batch.count)

    def replace(self, batch: ProducerBatch, pieces: list[ProducerBatch]) -> None:
        """Replace a split batch by its pieces, which share its sequence numbers."""
        if batch.base_sequence < 0:
            return
        self._forget(batch)
        sequence = batch.base_sequence
        for piece in pieces:
            piece.set_producer_state(batch.producer_id, batch.producer_epoch, sequence)
            piece.renumbered = batch.renumbered
            sequence = add_sequence(sequence, piece.count)
            insort(self.in_flight, piece, key=lambda known: known.number)

    def _forget(self, batch: ProducerBatch) -> None:
        for position, known in enumerate(self.in_flight):
            if known is batch:
                del self.in_flight[position]
                return
