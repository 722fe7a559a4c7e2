"""The producer state of a log: epochs, the last batches and open transactions of each producer (KIP-98).

`ProducerStates` decides whether a batch is new, a duplicate or out of order, and finds the first unstable offset. Only
`ProducerStates.replay`, with batches that are in the log, changes the state.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from triokafka.broker_stub.log.refused_batches import RefusedBatches
from triokafka.broker_stub.log.verification_guard import UNVERIFIED_ALLOWED, Verification, VerificationGuard
from triokafka.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceNumberError,
    TransactionCoordinatorFencedError,
)
from triokafka.named_tuple import NamedTuple
from triokafka.records import decode_records
from triokafka.records.batch import CONTROL, MAX_SEQUENCE, TRANSACTIONAL, BatchInfo
from triokafka.structs import Buffer

_BATCHES_KEPT: Final = 5  # the limit of max.in.flight.requests.per.connection
_MAX_GAP: Final = MAX_SEQUENCE // 2  # a larger one is a step back
_MARKER_KEY: Final = struct.Struct(">hh")  # version, kind
_MARKER_VALUE: Final = struct.Struct(">hi")  # version, coordinator epoch
_EPOCH_BUMP_SINCE: Final = 2  # the transaction version
_ABORT: Final = 0
_COMMIT: Final = 1


class Marker(NamedTuple):
    """A transaction marker, which the coordinator writes to every partition of the transaction."""

    commits: bool
    coordinator_epoch: int


class CompletedTransaction(NamedTuple):
    """A completed transaction: the offsets of its first record and its marker. ``last_stable_offset``: all transactions
    that ended before it are known.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool
    last_stable_offset: int


class ProducedBatch(NamedTuple):
    """The fields of a batch in the log that are compared with later batches of its producer."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


@dataclass(slots=True)
class ProducerState:
    """The state of one producer id in the log."""

    producer_id: int
    epoch: int = -1
    batches: deque[ProducedBatch] = field(default_factory=lambda: deque(maxlen=_BATCHES_KEPT))
    last_timestamp: int = -1
    coordinator_epoch: int = -1

    @property
    def last_sequence(self) -> int:
        """The last sequence number in the log; -1 when none is known."""
        return self.batches[-1].last_sequence if self.batches else -1


class ProducerStates:
    """The producers of one log.

    Args:
        states: the producers of a snapshot.
        open_transactions: the first offset of the open transaction by producer, ascending.
    """

    def __init__(
        self, states: Iterable[ProducerState] = (), open_transactions: Mapping[int, int] = MappingProxyType({})
    ) -> None:
        self._states = {state.producer_id: state for state in states}
        self._open = dict(open_transactions)
        self._completed: list[CompletedTransaction] = []  # not known to be committed, in the order of their markers
        self._verifications: dict[int, Verification] = {}
        self._refused = RefusedBatches(_BATCHES_KEPT - 1)

    def __len__(self) -> int:
        return len(self._states)

    def get(self, producer_id: int) -> ProducerState | None:
        """Return the state of a producer id, or None."""
        return self._states.get(producer_id)

    def all(self) -> list[ProducerState]:
        """Return all producers, ordered by id."""
        return [self._states[key] for key in sorted(self._states)]

    def clear(self) -> None:
        """Forget everything."""
        self._states.clear()
        self._open.clear()
        self._completed.clear()
        self._verifications.clear()
        self._refused.clear()

    def transaction_start(self, producer_id: int) -> int | None:
        """Return the first offset of the producer's open transaction, or None."""
        return self._open.get(producer_id)

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has an open transaction with this epoch in the log."""
        if producer_id not in self._open:
            return False
        state = self._states.get(producer_id)
        return state is not None and state.epoch == epoch

    def last_of_oldest_transaction(self) -> int | None:
        """Return the time of the last record of the producer whose open transaction is the oldest, in ms; or None."""
        oldest = next(iter(self._open), None)
        state = None if oldest is None else self._states.get(oldest)
        return None if state is None or state.last_timestamp < 0 else state.last_timestamp

    def duplicate_of(self, batch: BatchInfo) -> ProducedBatch | None:
        """Return the batch that ``batch`` duplicates, among the producer's last five batches in the log."""
        state = self._states.get(batch.producer_id)
        if state is None or state.epoch != batch.producer_epoch:
            return None
        batches = state.batches
        if batches and batches[-1].last_sequence + 1 == batch.base_sequence:
            return None  # it follows the newest one
        for known in batches:
            if known.first_sequence == batch.base_sequence and known.last_sequence == batch.last_sequence:
                return known
        return None

    def refuse(self, batch: BatchInfo, *, leader_epoch: int) -> None:
        """Note that a client's ``batch`` was refused because too few replicas are in sync.

        The client sends it again. Until then, `check` refuses the batches that were sent behind it for the same reason.
        """
        self._refused.refuse(batch, leader_epoch)

    def expect(self, batch: BatchInfo, *, leader_epoch: int) -> None:
        """Note that this broker refused a client's ``batch`` before it led, unless the batch has been written since."""
        state = self._states.get(batch.producer_id)
        if state is None or (batch.producer_epoch, batch.base_sequence) > (state.epoch, state.last_sequence):
            self._refused.refuse(batch, leader_epoch)

    def check(self, batch: BatchInfo, *, leader_epoch: int = -1, led_since: int = 0) -> None:
        """Raise unless a client's ``batch`` may follow the producer's batches in the log.

        Args:
            leader_epoch: that of this broker.
            led_since: the log end offset when it began to lead.

        Raises:
            NotEnoughReplicasError: an earlier batch was refused for this reason, or may have been while the leader
                changed, and has to be sent again first.
            InvalidProducerEpochError: a newer incarnation of the producer has written already.
            InvalidTxnStateError: the producer has an open transaction, and ``batch`` is not part of it.
            OutOfOrderSequenceNumberError: sequence numbers are missing in between. An unknown producer (its records
                were deleted, or its state expired) may continue with any sequence number.
        """
        state = self._states.get(batch.producer_id)
        if self._refused.known:
            self._refused.check(batch)
        if state is None:
            return
        if batch.producer_epoch < state.epoch:
            raise InvalidProducerEpochError(
                f"producer {batch.producer_id} wrote with epoch {batch.producer_epoch}, but "
                f"its current epoch is {state.epoch}"
            )
        if batch.producer_id in self._open and not batch.is_transactional:
            raise InvalidTxnStateError(
                f"producer {batch.producer_id} has a transaction open since offset {self._open[batch.producer_id]}: "
                f"it cannot write records outside of it"
            )
        if batch.producer_epoch > state.epoch:
            if batch.base_sequence != 0 and state.epoch >= 0:
                self._check_gap(state, batch, 0, leader_epoch, led_since)
                raise OutOfOrderSequenceNumberError(
                    f"producer {batch.producer_id} began its epoch {batch.producer_epoch} with sequence "
                    f"{batch.base_sequence}, it must begin with 0"
                )
            return
        last = state.last_sequence
        expected = 0 if last == MAX_SEQUENCE else last + 1
        if batch.base_sequence != expected:
            self._check_gap(state, batch, expected, leader_epoch, led_since)
            raise OutOfOrderSequenceNumberError(
                f"producer {batch.producer_id} (epoch {state.epoch}) sent sequence {batch.base_sequence}, "
                f"the last one in the log is {last}"
            )

    def _check_gap(
        self, state: ProducerState, batch: BatchInfo, expected: int, leader_epoch: int, led_since: int
    ) -> None:
        is_first = bool(state.batches) and state.batches[-1].last_offset < led_since
        if is_first and (batch.base_sequence - expected) & MAX_SEQUENCE <= _MAX_GAP:
            self._refused.check_gap(batch, expected, leader_epoch)

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, *, bumps_epochs: bool, now_ms: int
    ) -> VerificationGuard | None:
        """Begin the verification of a transactional batch, or join the one in progress; None if none is needed.

        None is needed while the producer has an open transaction with this epoch in the log.
        """
        if self.is_open(producer_id, epoch):
            return None
        known = self._verifications.get(producer_id)
        if known is None:
            known = self._verifications[producer_id] = Verification(epoch, sequence, bumps_epochs, now_ms)
        elif epoch > known.epoch:
            known.epoch, known.lowest_sequence, known.bumps_epochs = epoch, sequence, bumps_epochs
        elif epoch == known.epoch and sequence < known.lowest_sequence:
            known.lowest_sequence = sequence
        return known.guard

    def check_verified(self, batch: BatchInfo, guard: VerificationGuard | None) -> None:
        """Raise unless a transactional batch continues an open transaction, or has the guard of its verification.

        Raises:
            InvalidTxnStateError: the transaction has ended since, or the batch was not verified.
            OutOfOrderSequenceNumberError: an earlier batch of the producer has to begin the transaction.
        """
        if self.is_open(batch.producer_id, batch.producer_epoch):
            return
        state = self._states.get(batch.producer_id)
        known = self._verifications.get(batch.producer_id)
        if guard is not UNVERIFIED_ALLOWED and (known is None or known.guard is not guard):
            raise InvalidTxnStateError(
                f"producer {batch.producer_id} (epoch {batch.producer_epoch}) has no transaction that this partition"
                " is known to take part in"
            )
        if known is None or batch.base_sequence < 0:
            return
        if batch.base_sequence > known.lowest_sequence:
            raise OutOfOrderSequenceNumberError(
                f"producer {batch.producer_id} sent sequence {batch.base_sequence} before {known.lowest_sequence}"
            )
        if known.bumps_epochs and state is None and batch.base_sequence != 0:
            raise OutOfOrderSequenceNumberError(
                f"producer {batch.producer_id} has no state in this log and began with sequence"
                f" {batch.base_sequence}, not 0"
            )

    def check_epoch(self, batch: BatchInfo) -> None:
        """Raise unless the epoch of a coordinator's own transactional ``batch`` is the producer's newest.

        Raises:
            InvalidProducerEpochError: a newer incarnation of the producer has written already.
        """
        state = self._states.get(batch.producer_id)
        if state is not None and batch.producer_epoch < state.epoch:
            raise InvalidProducerEpochError(
                f"producer {batch.producer_id} wrote with epoch {batch.producer_epoch}, but "
                f"its current epoch is {state.epoch}"
            )

    def check_marker(self, batch: BatchInfo, marker: Marker, *, version: int = 0) -> None:
        """Raise unless a coordinator's ``marker`` may follow the producer's batches in the log.

        Args:
            version: the transaction version. From 2 on, the coordinator has bumped the epoch, so that a late marker of
                an earlier transaction cannot end the present one. A marker that repeats the last one is harmless.

        Raises:
            InvalidProducerEpochError: a newer incarnation of the producer has written already.
            TransactionCoordinatorFencedError: a newer coordinator has written markers already.
        """
        state = self._states.get(batch.producer_id)
        if state is None:
            return
        is_late = version >= _EPOCH_BUMP_SINCE and batch.producer_id in self._open
        if batch.producer_epoch < state.epoch + is_late:
            raise InvalidProducerEpochError(
                f"a marker of producer {batch.producer_id} has epoch {batch.producer_epoch}, "
                f"but its current epoch is {state.epoch}"
            )
        if marker.coordinator_epoch < state.coordinator_epoch:
            raise TransactionCoordinatorFencedError(
                f"a marker of producer {batch.producer_id} has coordinator epoch {marker.coordinator_epoch}, "
                f"but the current one is {state.coordinator_epoch}"
            )

    def replay(self, batch: BatchInfo, marker: Marker | None = None) -> CompletedTransaction | None:
        """Update the state with a batch that is now in the log.

        Args:
            marker: `marker_of` the batch.

        Returns:
            The transaction that the marker completed; None for other batches.
        """
        if batch.producer_id < 0:
            return None
        if batch.attributes & CONTROL:
            return self._end_transaction(batch, marker) if marker is not None else None
        state = self._state(batch)
        if self._refused.known:
            self._refused.written(batch.producer_id)
        first, last = batch.base_offset, batch.last_offset
        state.batches.append(ProducedBatch(batch.base_sequence, batch.last_sequence, first, last, batch.max_timestamp))
        if batch.attributes & TRANSACTIONAL:
            self._verifications.pop(batch.producer_id, None)
            self._open.setdefault(batch.producer_id, first)
        return None

    def _state(self, batch: BatchInfo) -> ProducerState:
        state = self._states.get(batch.producer_id)
        if state is None:
            state = self._states[batch.producer_id] = ProducerState(batch.producer_id)
        if batch.producer_epoch != state.epoch:
            state.epoch = batch.producer_epoch
            state.batches.clear()
        state.last_timestamp = batch.max_timestamp
        return state

    def _end_transaction(self, batch: BatchInfo, marker: Marker) -> CompletedTransaction | None:
        self._state(batch).coordinator_epoch = marker.coordinator_epoch
        self._verifications.pop(batch.producer_id, None)
        first = self._open.pop(batch.producer_id, None)
        if first is None:
            return None
        last = batch.last_offset
        stable = next(iter(self._open.values()), last + 1)
        completed = CompletedTransaction(batch.producer_id, first, last, not marker.commits, stable)
        self._completed.append(completed)
        return completed

    def committed(self, high_watermark: int) -> None:
        """Forget completed transactions whose markers are before ``high_watermark``, and so committed."""
        if self._completed:
            self._completed = [known for known in self._completed if known.last_offset >= high_watermark]

    @property
    def all_decided(self) -> bool:
        """Whether no transaction is open and all markers are known to be committed."""
        return not (self._open or self._completed)

    @property
    def first_unstable_offset(self) -> int | None:
        """Return the first offset of the oldest transaction that is open or whose marker is not known to be
        committed.
        """
        first = next(iter(self._open.values()), None)
        for completed in self._completed:
            if first is None or completed.first_offset < first:
                first = completed.first_offset
        return first

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers without an open transaction that were inactive for ``expiration_ms``."""
        old = [
            state.producer_id
            for state in self._states.values()
            if state.producer_id not in self._open and now_ms - state.last_timestamp >= expiration_ms
        ]
        for producer_id in old:
            del self._states[producer_id]
        if self._verifications:
            self._verifications = {
                producer_id: known
                for producer_id, known in self._verifications.items()
                if now_ms - known.begun_ms < expiration_ms
            }


def marker_of(batch: BatchInfo, data: Buffer) -> Marker | None:
    """Return the transaction marker in a batch, of which ``data`` are the bytes. None for any other batch."""
    if not batch.is_control:
        return None
    records = decode_records(data, check_crc=False, include_control=True)
    key, value = (records[0].key, records[0].value) if records else (None, None)
    if key is None or value is None or len(key) < _MARKER_KEY.size or len(value) < _MARKER_VALUE.size:
        return None
    _, kind = _MARKER_KEY.unpack_from(key)
    _, coordinator_epoch = _MARKER_VALUE.unpack_from(value)
    return Marker(kind == _COMMIT, coordinator_epoch) if kind in (_ABORT, _COMMIT) else None
