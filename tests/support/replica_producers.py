"""The idempotent and transactional producers of a `ReplicaWorld`, and the sequence numbers in a replica's log.

Their choices come from a generator of their own: the steps of a seed do not depend on them. A producer continues behind
its last batch in the leader's log, so that the leader accepts it wherever an equal batch without producer is accepted.
A retry sends a batch that is in the leader's log: a leader that knows its producers appends nothing.
"""

from __future__ import annotations

import struct
from random import Random
from typing import Any, Final, NamedTuple

from triokafka import errors
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.broker_stub.replica.partition import Partition
from triokafka.records import encode_batch, iter_batches

_EPOCH: Final = 0
_IDEMPOTENT = 0.5
_RETRY = 0.3
_IDEMPOTENT_PRODUCERS: Final = 2
_SEQUENCES_KEPT: Final = 5  # a broker recognizes retries of a producer's last five batches


class Place(NamedTuple):
    """The producer and the sequence number of one batch."""

    producer_id: int
    epoch: int
    sequence: int


class SequenceRepeated(AssertionError):
    """A log has two batches with one producer id, epoch and sequence number."""


class Sequences:
    """The batches of producers in one log. `refresh` reads what was appended; call `truncate` before a truncation."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Read the log from its start next time."""
        self.offsets: dict[Place, int] = {}
        self.open: dict[int, int] = {}
        self._end = 0

    def refresh(self, log: PartitionLog) -> None:
        """Read the batches since the last call. Raises `SequenceRepeated`."""
        offset = max(self._end, log.log_start_offset)
        while offset < log.log_end_offset:
            records = log.read(offset, 1 << 20).records
            if not len(records):
                break
            for info in iter_batches(records):
                offset = info.next_offset
                if info.producer_id < 0:
                    continue
                if info.is_control:
                    self.open.pop(info.producer_id, None)
                    continue
                place = Place(info.producer_id, info.producer_epoch, info.base_sequence)
                if place in self.offsets:
                    raise SequenceRepeated(f"{place} is in the log at {self.offsets[place]} and {info.base_offset}")
                self.offsets[place] = info.base_offset
                if info.is_transactional:
                    self.open.setdefault(info.producer_id, info.base_offset)
        self._end = offset

    def truncate(self, offset: int) -> None:
        """Note that the log loses its batches from ``offset`` on."""
        if offset < self._end:  # a marker may go, which opens its transaction again
            self.forget()

    def last(self, producer_id: int, log_start_offset: int) -> Place | None:
        """Return the producer's last batch in the log; None if it has none."""
        found = [place for place, at in self.offsets.items() if place.producer_id == producer_id]
        return found[-1] if found and self.offsets[found[-1]] >= log_start_offset else None


class Producers:
    """Producers that share a partition. With ``transactional`` some of their batches are in transactions."""

    def __init__(self, seed: int, *, transactional: bool = False) -> None:
        self.random = Random(f"{seed}/producers")
        self.retries = 0
        self._transactional = transactional
        self._next_id = 1000
        self._idempotent = [self._new_id() for _ in range(_IDEMPOTENT_PRODUCERS)]
        self._in_transactions = [self._new_id() for _ in range(_IDEMPOTENT_PRODUCERS)]

    def _new_id(self) -> int:
        self._next_id += 1
        return self._next_id

    def identity(self, sequences: Sequences, log: PartitionLog) -> dict[str, Any]:
        """Return the producer's arguments of `encode_batch` for the next batch; nothing for one without producer."""
        if self.random.random() >= _IDEMPOTENT:
            return {}
        sequences.refresh(log)
        transactional = self._transactional and self.random.random() < 0.5
        ids = self._in_transactions if transactional else self._idempotent
        index = self.random.randrange(len(ids))
        last = sequences.last(ids[index], log.log_start_offset)
        if last is None:
            # The leader may know an id whose batches are deleted, with any sequence number.
            ids[index] = self._new_id()
        return {
            "producer_id": ids[index],
            "producer_epoch": _EPOCH,
            "base_sequence": 0 if last is None else last.sequence + 1,
            "transactional": transactional,
        }

    def retry(self, sequences: Sequences, partition: Partition, now_ms: int) -> None:
        """Sometimes send a batch again that is in the leader's log."""
        if self.random.random() >= _RETRY:
            return
        log = partition.log
        sequences.refresh(log)
        offsets = [at for at in list(sequences.offsets.values())[-_SEQUENCES_KEPT:] if at >= log.log_start_offset]
        if not offsets:
            return
        records = log.read(self.random.choice(offsets), 1 << 20).records
        info = next(iter_batches(records))
        batch = bytearray(memoryview(records)[info.position : info.end])
        batch[:8] = bytes(8)  # the base offset, which a client leaves at 0
        place = Place(info.producer_id, info.producer_epoch, info.base_sequence)
        try:
            found = partition.append(batch, required_acks=-1, now_ms=now_ms)
        except (errors.NotEnoughReplicasError, errors.OutOfOrderSequenceNumberError):
            # A producer state that was loaded from a snapshot has only the last batch of each producer.
            if place == sequences.last(info.producer_id, log.log_start_offset):
                raise
            return
        self.retries += 1
        if not found.duplicate or found.first_offset != info.base_offset:
            raise SequenceRepeated(f"{place} at {info.base_offset} was appended again: {found}")

    def end_transaction(self, sequences: Sequences, partition: Partition, now_ms: int) -> None:
        """Write the marker of a transaction that is open in the leader's log."""
        sequences.refresh(partition.log)
        if not sequences.open:
            return
        producer_id = self.random.choice(sorted(sequences.open))
        key, value = struct.pack(">hh", 0, self.random.randrange(2)), struct.pack(">hi", 0, 0)
        marker = encode_batch(
            [(now_ms, key, value, ())],
            producer_id=producer_id,
            producer_epoch=_EPOCH,
            transactional=True,
            control=True,
        )
        try:
            partition.append(bytearray(marker), required_acks=-1, now_ms=now_ms, from_client=False)
        except errors.NotEnoughReplicasError:
            pass
