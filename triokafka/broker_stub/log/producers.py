"""What a log knows about its producers: epochs, the last batches, open transactions (Z11, KIP-98).

`ProducerStates` answers whether a batch is new, a duplicate or out of order; it changes only by `update` with batches
that are in the log, so it can be replayed. It is kept in ``<offset>.snapshot`` files, in Kafka's format: the state
before the record at that offset.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from crc32c import crc32c

from triokafka.errors import InvalidProducerEpochError, KafkaError, OutOfOrderSequenceNumberError
from triokafka.records import decode_records
from triokafka.records.batch import MAX_SEQUENCE, BatchInfo
from triokafka.structs import Buffer
from triokafka.world import Storage

SNAPSHOT_SUFFIX: Final = ".snapshot"
_BATCHES_KEPT: Final = 5  # what a producer may have in flight (max.in.flight.requests.per.connection)
_VERSION: Final = 1
_PREFIX: Final = struct.Struct(">hI")  # version, CRC-32C of what follows
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")


class CorruptSnapshotError(KafkaError):
    """A producer snapshot that cannot be read; the state is rebuilt from an older one and the log."""


class ProducedBatch(NamedTuple):
    """A batch in the log, as far as later batches of its producer are compared with it."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


@dataclass(slots=True)
class ProducerState:
    """One producer id. ``transaction_first_offset`` is None outside a transaction."""

    producer_id: int
    epoch: int = -1
    batches: deque[ProducedBatch] = field(default_factory=lambda: deque(maxlen=_BATCHES_KEPT))
    last_timestamp: int = -1
    coordinator_epoch: int = -1
    transaction_first_offset: int | None = None

    @property
    def last_sequence(self) -> int:
        """The last sequence number in the log; -1 when none is known."""
        return self.batches[-1].last_sequence if self.batches else -1


class ProducerStates:
    """The producers of one log."""

    def __init__(self) -> None:
        self._states: dict[int, ProducerState] = {}

    def __len__(self) -> int:
        return len(self._states)

    def get(self, producer_id: int) -> ProducerState | None:
        """What is known about a producer id."""
        return self._states.get(producer_id)

    def all(self) -> list[ProducerState]:
        """All producers, in the order of their ids."""
        return [self._states[key] for key in sorted(self._states)]

    def clear(self) -> None:
        """Forget everything."""
        self._states.clear()

    def duplicate_of(self, batch: BatchInfo) -> ProducedBatch | None:
        """The batch in the log that ``batch`` repeats, among the producer's last five."""
        state = self._states.get(batch.producer_id)
        if state is None or state.epoch != batch.producer_epoch:
            return None
        for known in state.batches:
            if known.first_sequence == batch.base_sequence and known.last_sequence == batch.last_sequence:
                return known
        return None

    def check(self, batch: BatchInfo) -> None:
        """Raise unless a client's ``batch`` may follow what the log has from its producer.

        Raises:
            InvalidProducerEpochError: a newer incarnation of the producer has written already.
            OutOfOrderSequenceNumberError: sequence numbers are missing in between. A producer of which nothing is known
                (its records were deleted, or it was silent for long) may go on with any number.
        """
        state = self._states.get(batch.producer_id)
        if state is None:
            return
        if batch.producer_epoch < state.epoch:
            raise InvalidProducerEpochError(
                f"producer {batch.producer_id} wrote with epoch {batch.producer_epoch}, "
                f"its current epoch is {state.epoch}"
            )
        if batch.producer_epoch > state.epoch:
            if batch.base_sequence != 0 and state.epoch >= 0:
                raise OutOfOrderSequenceNumberError(
                    f"producer {batch.producer_id} began its epoch {batch.producer_epoch} with sequence "
                    f"{batch.base_sequence}, it must begin with 0"
                )
            return
        last = state.last_sequence
        if batch.base_sequence != (0 if last == MAX_SEQUENCE else last + 1):
            raise OutOfOrderSequenceNumberError(
                f"producer {batch.producer_id} (epoch {state.epoch}) sent sequence {batch.base_sequence}, "
                f"the last one in the log is {last}"
            )

    def update(self, batch: BatchInfo) -> None:
        """Take note of a data batch that is in the log now."""
        if batch.producer_id < 0 or batch.is_control:
            return
        state = self._states.get(batch.producer_id)
        if state is None:
            state = self._states[batch.producer_id] = ProducerState(batch.producer_id)
        if batch.producer_epoch != state.epoch:
            state.epoch = batch.producer_epoch
            state.batches.clear()
        first, last = batch.base_offset, batch.last_offset
        state.batches.append(ProducedBatch(batch.base_sequence, batch.last_sequence, first, last, batch.max_timestamp))
        state.last_timestamp = batch.max_timestamp
        if batch.is_transactional and state.transaction_first_offset is None:
            state.transaction_first_offset = first

    def replay(self, batch: BatchInfo, data: Buffer) -> None:
        """Take note of a batch, data or marker, that is read from the log. ``data`` is the whole batch."""
        if not batch.is_control:
            self.update(batch)
        elif batch.producer_id >= 0:
            self.end_transaction(batch, marker_coordinator_epoch(data))

    def end_transaction(self, batch: BatchInfo, coordinator_epoch: int) -> int | None:
        """Take note of a transaction marker, and return the first offset of the transaction that it ended."""
        state = self._states.get(batch.producer_id)
        if state is None:
            state = self._states[batch.producer_id] = ProducerState(batch.producer_id)
        if batch.producer_epoch != state.epoch:
            state.epoch = batch.producer_epoch
            state.batches.clear()
        first = state.transaction_first_offset
        state.transaction_first_offset = None
        state.coordinator_epoch = coordinator_epoch
        state.last_timestamp = batch.max_timestamp
        return first

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the oldest open transaction began; readers of committed records stop there."""
        firsts = [s.transaction_first_offset for s in self._states.values() if s.transaction_first_offset is not None]
        return min(firsts, default=None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that were silent for ``expiration_ms`` and have no open transaction."""
        old = [
            state.producer_id
            for state in self._states.values()
            if state.transaction_first_offset is None and now_ms - state.last_timestamp >= expiration_ms
        ]
        for producer_id in old:
            del self._states[producer_id]

    def encode(self) -> bytes:
        """The content of a snapshot file."""
        parts = [_COUNT.pack(len(self._states))]
        for state in self.all():
            last = state.batches[-1] if state.batches else None
            transaction = -1 if state.transaction_first_offset is None else state.transaction_first_offset
            parts.append(
                _ENTRY.pack(
                    state.producer_id,
                    state.epoch,
                    last.last_sequence if last else -1,
                    last.last_offset if last else -1,
                    last.last_offset - last.first_offset if last else 0,
                    state.last_timestamp,
                    state.coordinator_epoch,
                    transaction,
                )
            )
        body = b"".join(parts)
        return _PREFIX.pack(_VERSION, crc32c(body)) + body

    def decode(self, data: bytes, path: str) -> None:
        """Take over the content of a snapshot file. Raises `CorruptSnapshotError` and changes nothing then."""
        if len(data) < _PREFIX.size + _COUNT.size:
            raise CorruptSnapshotError(f"{path} has only {len(data)} bytes")
        version, crc = _PREFIX.unpack_from(data)
        body = memoryview(data)[_PREFIX.size :]
        if version != _VERSION:
            raise CorruptSnapshotError(f"{path} has version {version}, {_VERSION} is known")
        if crc32c(body) != crc:
            raise CorruptSnapshotError(f"{path}: the checksum does not match")
        (count,) = _COUNT.unpack_from(body)
        if count < 0 or count * _ENTRY.size != len(body) - _COUNT.size:
            raise CorruptSnapshotError(f"{path} announces {count} producers in {len(body)} bytes")
        self._states.clear()
        for fields in _ENTRY.iter_unpack(body[_COUNT.size :]):
            producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, transaction = fields
            state = ProducerState(producer_id, epoch, last_timestamp=timestamp, coordinator_epoch=coordinator_epoch)
            if offset >= 0:
                first = sequence - delta if sequence >= delta else MAX_SEQUENCE - (delta - sequence) + 1
                state.batches.append(ProducedBatch(first, sequence, offset - delta, offset, timestamp))
            state.transaction_first_offset = transaction if transaction >= 0 else None
            self._states[producer_id] = state


def marker_coordinator_epoch(data: Buffer) -> int:
    """The coordinator epoch in a batch that holds one transaction marker; -1 when it holds none."""
    markers = decode_records(data, check_crc=False, include_control=True)
    value = markers[0].value if markers else None
    return int.from_bytes(value[2:6], "big", signed=True) if value is not None and len(value) >= 6 else -1


def snapshot_offsets(storage: Storage, directory: str) -> list[int]:
    """Offsets of the snapshots in a log's directory, ascending."""
    names = [
        name.removesuffix(SNAPSHOT_SUFFIX) for name in storage.list_dir(directory) if name.endswith(SNAPSHOT_SUFFIX)
    ]
    return sorted(int(name) for name in names if name.isdigit())
