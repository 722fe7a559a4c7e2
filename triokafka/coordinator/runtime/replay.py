"""Replay of a coordinator's log into a shard."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final, TypeVar

from triokafka.coordinator.runtime.coordinator_log import CoordinatorLog, TransactionalRecords, TransactionEnd
from triokafka.coordinator.runtime.shard import Shard

C = TypeVar("C")

_RECORDS_PER_STEP: Final = 1_000  # a few milliseconds of work before other tasks may run
_BYTES_PER_RECORD: Final = 200
"""A larger value counts as several records: it may have thousands of partitions or members."""


def replay_log(
    log: CoordinatorLog, partition: int, shard: Shard[C], committed_below: Callable[[int], int]
) -> Generator[None, None, tuple[int, int]]:
    """Replay a whole log into a new shard. Yields every `_RECORDS_PER_STEP` records, or fewer large ones, so that other
    tasks can run.

    ``committed_below`` returns the offset below which the records of a partition are committed.

    Returns the offset after the last record, and the number of records.
    """
    end = count = work = 0
    for piece in log.read_all(partition):
        high_watermark = committed_below(partition)
        if isinstance(piece, TransactionEnd):
            committed = piece.offset < high_watermark
            shard.end_transaction(piece.producer_id, piece.offset, commits=piece.commits, committed=committed)
            end = piece.offset + 1
            continue
        producer_id = None
        if isinstance(piece, TransactionalRecords):
            producer_id, piece = piece.producer_id, piece.records
        for offset, key, value in piece:
            change = shard.decode(key, value)
            if change is None:
                pass
            elif producer_id is not None:
                shard.replay_pending(change, offset, producer_id)
            else:
                shard.replay(change, offset, committed=offset < high_watermark)
            end = offset + 1
            count += 1
            work += 1 + len(value or b"") // _BYTES_PER_RECORD
            if work >= _RECORDS_PER_STEP:
                work = 0
                yield
    return end, count
