"""Batches for the logs of a run, with the model's description of them."""

from __future__ import annotations

import random
import struct

from tests.crashing.model import SEQUENCES, Batch, Kept, PartitionModel
from triokafka.broker_stub.log import PartitionLog
from triokafka.records import encode_batch

IDEMPOTENT = (7, 8)
TRANSACTIONAL = 30
_NOBODY = -1
_KEYS = (b"a", b"b", b"c", b"d")
_SIZES = (0, 8, 8, 8, 40)  # of values: batches of equal length may replace each other on the disk


def new_batch(
    choices: random.Random, log: PartitionLog, *, now_ms: int, compacted: bool, leader_epoch: int, at: int | None = None
) -> tuple[Batch, bytes]:
    """Return a batch at the end of ``log``, or at ``at``, as a client or the leader sends it."""
    producer = choices.choice((_NOBODY, _NOBODY, _NOBODY, *IDEMPOTENT, TRANSACTIONAL))
    state = log.producers.get(producer) if producer >= 0 else None
    epoch = -1 if producer < 0 else max(state.epoch, 0) if state is not None else 0
    sequence = -1 if producer < 0 else 0
    if state is not None and state.batches:
        sequence = (state.last_sequence + 1) % SEQUENCES
    if producer >= 0 and choices.random() < 0.1:
        epoch, sequence = epoch + 1, 0
    base = log.log_end_offset if at is None else at
    records = []
    for index in range(choices.choice((1, 1, 2, 3))):
        key = choices.choice(_KEYS) if compacted or choices.random() < 0.5 else None
        value = bytes([choices.randrange(256)]) * choices.choice(_SIZES)
        gone = key is not None and choices.random() < 0.15
        records.append(Kept(base + index, now_ms + choices.randint(-3000, 3000), key, None if gone else value))
    batch = Batch(
        base,
        base + len(records),
        records,
        leader_epoch,
        max(record.timestamp for record in records),
        producer,
        epoch,
        sequence,
        transactional=producer == TRANSACTIONAL,
    )
    return batch, encode(batch, compression=choices.choice(("none", "none", "none", "gzip")), as_leader=at is not None)


def new_marker(choices: random.Random, log: PartitionLog, *, now_ms: int, leader_epoch: int) -> tuple[Batch, bytes]:
    """Return the control batch that ends the transaction of `TRANSACTIONAL`."""
    state = log.producers.get(TRANSACTIONAL)
    epoch = max(state.epoch, 0) if state is not None else 0
    committed = choices.random() < 0.5
    base = log.log_end_offset
    marker = Batch(base, base + 1, [], leader_epoch, now_ms, TRANSACTIONAL, epoch, -1, True, committed)
    key, value = struct.pack(">hh", 0, int(committed)), struct.pack(">hi", 0, 5)
    data = encode_batch(
        [(now_ms, key, value, ())], producer_id=TRANSACTIONAL, producer_epoch=epoch, transactional=True, control=True
    )
    return marker, data


def encode(batch: Batch, *, compression: str = "none", as_leader: bool = False) -> bytes:
    """Return the encoded batch; ``as_leader`` with its offsets and epoch, as followers get it."""
    return encode_batch(
        [(record.timestamp, record.key, record.value, ()) for record in batch.records],
        base_offset=batch.base_offset if as_leader else 0,
        leader_epoch=batch.leader_epoch if as_leader else -1,
        compression=compression,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.first_sequence,
        transactional=batch.transactional,
    )


def transactions(model: PartitionModel) -> tuple[int | None, list[tuple[int, int]]]:
    """Return the start of the open transaction of `TRANSACTIONAL`, and first and last offset of the aborted ones."""
    first: int | None = None
    aborted = []
    for batch in model.batches:
        if batch.producer_id != TRANSACTIONAL:
            continue
        if batch.committed is None:
            first = batch.base_offset if first is None else first
        elif first is not None:
            if not batch.committed:
                aborted.append((first, batch.base_offset))
            first = None
    return first, aborted
