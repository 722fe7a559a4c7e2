"""The content of a producer snapshot: Kafka's format, with the earlier batches of each producer behind it.

Kafka's part has the last batch of each producer. The earlier ones follow behind the part that Kafka reads: a producer
that lost several responses when the broker stopped retries all those batches. If only the last one was known, the
others would be out of order, and the producer would send them again with a new epoch, as duplicates.
"""

from __future__ import annotations

import struct
from itertools import islice
from typing import Final

from triokafka.broker_stub.log.producer_state import ProducedBatch, ProducerState, ProducerStates
from triokafka.checksum import crc32c
from triokafka.errors import KafkaError
from triokafka.records.batch import MAX_SEQUENCE

_VERSION: Final = 1
_PREFIX: Final = struct.Struct(">hI")  # version, CRC-32C of the rest
_COUNT: Final = struct.Struct(">i")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_EARLIER: Final = struct.Struct(">qiqiq")  # producer id, last sequence, last offset, offset delta, timestamp


class CorruptSnapshotError(KafkaError):
    """A producer snapshot is unreadable; the state is rebuilt from an older one and the log."""


def encode_snapshot(producers: ProducerStates) -> bytes:
    """Encode the state of all producers."""
    states = producers.all()
    parts = [_COUNT.pack(len(states))]
    for state in states:
        last = state.batches[-1] if state.batches else None
        transaction = producers.transaction_start(state.producer_id)
        parts.append(
            _ENTRY.pack(
                state.producer_id,
                state.epoch,
                last.last_sequence if last else -1,
                last.last_offset if last else -1,
                last.last_offset - last.first_offset if last else 0,
                state.last_timestamp,
                state.coordinator_epoch,
                -1 if transaction is None else transaction,
            )
        )
    earlier = [
        _EARLIER.pack(state.producer_id, b.last_sequence, b.last_offset, b.last_offset - b.first_offset, b.timestamp)
        for state in states
        for b in islice(state.batches, max(len(state.batches) - 1, 0))
    ]
    if earlier:
        parts += [_COUNT.pack(len(earlier)), *earlier]
    body = b"".join(parts)
    return _PREFIX.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes, path: str) -> ProducerStates:
    """Decode the state of all producers.

    Args:
        path: the file, for the error.

    Raises:
        CorruptSnapshotError: the file is damaged, or of an unknown version.
    """
    if len(data) < _PREFIX.size + _COUNT.size:
        raise CorruptSnapshotError(f"{path} has only {len(data)} bytes")
    version, crc = _PREFIX.unpack_from(data)
    body = memoryview(data)[_PREFIX.size :]
    if version != _VERSION:
        raise CorruptSnapshotError(f"{path} has version {version}, but this broker reads version {_VERSION}")
    if crc32c(body) != crc:
        raise CorruptSnapshotError(f"{path}: the checksum does not match")
    (count,) = _COUNT.unpack_from(body)
    end = _COUNT.size + count * _ENTRY.size
    if count < 0 or end > len(body):
        raise CorruptSnapshotError(f"{path}: its {len(body)} bytes cannot hold the {count} producers that it announces")
    earlier = _read_earlier(body[end:], path)
    states, starts = [], []
    for fields in _ENTRY.iter_unpack(body[_COUNT.size : end]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, transaction = fields
        state = ProducerState(producer_id, epoch, last_timestamp=timestamp, coordinator_epoch=coordinator_epoch)
        state.batches.extend(earlier.get(producer_id, ()))
        if offset >= 0:
            state.batches.append(_batch(sequence, offset, delta, timestamp))
        if transaction >= 0:
            starts.append((transaction, producer_id))
        states.append(state)
    return ProducerStates(states, {producer_id: start for start, producer_id in sorted(starts)})


def _batch(last_sequence: int, last_offset: int, delta: int, timestamp: int) -> ProducedBatch:
    first = last_sequence - delta if last_sequence >= delta else MAX_SEQUENCE - (delta - last_sequence) + 1
    return ProducedBatch(first, last_sequence, last_offset - delta, last_offset, timestamp)


def _read_earlier(data: memoryview, path: str) -> dict[int, list[ProducedBatch]]:
    """Decode the batches before the last one of each producer; snapshots that Kafka wrote have none."""
    found: dict[int, list[ProducedBatch]] = {}
    if not data:
        return found
    (count,) = _COUNT.unpack_from(data) if len(data) >= _COUNT.size else (-1,)
    if count < 0 or count * _EARLIER.size != len(data) - _COUNT.size:
        raise CorruptSnapshotError(f"{path} has {count} earlier batches in {len(data)} bytes")
    for producer_id, sequence, offset, delta, timestamp in _EARLIER.iter_unpack(data[_COUNT.size :]):
        found.setdefault(producer_id, []).append(_batch(sequence, offset, delta, timestamp))
    return found
