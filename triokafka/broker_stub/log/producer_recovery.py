"""Restoring producer state from snapshots and batches, after a restart, a truncation or damage to an index."""

from __future__ import annotations

from collections.abc import Sequence

from triokafka.broker_stub.log.log_segment import LogSegment
from triokafka.broker_stub.log.producer_snapshots import ProducerSnapshots
from triokafka.broker_stub.log.producer_state import CompletedTransaction, ProducerStates, marker_of
from triokafka.broker_stub.log.transaction_index import AbortedTransaction


def load_producers(snapshots: ProducerSnapshots, segments: Sequence[LogSegment], end_offset: int) -> ProducerStates:
    """Return the producers before ``end_offset``, from the newest readable snapshot and the batches after it.

    Raises:
        OSError: the disk failed.
        CorruptRecordError: a batch is damaged.
    """
    # A snapshot from before the first segment misses the deleted records in between.
    producers, start = snapshots.restore(end_offset, from_offset=segments[0].base_offset)
    start = max(start, segments[0].base_offset)
    for index, segment in enumerate(segments):
        is_before = index + 1 < len(segments) and segments[index + 1].base_offset <= start
        if is_before or start >= end_offset or segment.base_offset >= end_offset:
            continue
        for batch, data in segment.reader.producer_batches(start, end_offset):
            producers.replay(batch, marker_of(batch, data))
    return producers


def rebuild_transaction_index(
    segment: LogSegment, snapshots: ProducerSnapshots, segments: Sequence[LogSegment]
) -> None:
    """Rebuild the transaction index of one of ``segments`` from its markers.

    Raises:
        OSError: the disk failed.
        CorruptRecordError: a batch is damaged.
    """
    producers = load_producers(snapshots, segments, segment.base_offset)
    segment.indexes.transactions.clear()
    for batch, data in segment.reader.producer_batches(segment.base_offset, None):
        completed = producers.replay(batch, marker_of(batch, data))
        if completed is not None:
            index_transaction(segment, completed)


def index_transaction(segment: LogSegment, completed: CompletedTransaction) -> None:
    """Add a transaction, whose marker is in ``segment``, to its transaction index if it was aborted."""
    if completed.aborted:
        segment.indexes.transactions.append(
            AbortedTransaction(
                completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset
            )
        )
