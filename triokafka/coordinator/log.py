"""Interfaces of a coordinator's log and its shards, and the replay of a log into a shard."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from triokafka.coordinator.timers import TimerKey, TimerQueue
from triokafka.coordinator.turn import CoordinatorRecord, Reply, Turn

C = TypeVar("C")

_RECORDS_PER_STEP: Final = 1_000  # a few milliseconds of work before other tasks may run

LogRecord: TypeAlias = tuple[int, bytes | None, bytes | None]
"""Offset, key and value."""


@dataclass(frozen=True, slots=True)
class TransactionalRecords:
    """Records that an open transaction of ``producer_id`` wrote. They take effect when the transaction commits."""

    producer_id: int
    records: Sequence[LogRecord]


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """The marker at ``offset`` that commits or aborts the transaction of ``producer_id``."""

    producer_id: int
    offset: int
    commits: bool


class CoordinatorLog(Protocol):
    """The log behind a coordinator's topic; the broker implements it."""

    def append(self, partition: int, records: Sequence[CoordinatorRecord], timestamp_ms: int) -> int:
        """Append all records as one batch and return the offset after the last one.

        Raises:
            NotLeaderForPartitionError: this broker does not lead the partition; nothing was appended.
            KafkaError: the append failed; nothing was appended.
        """

    def read_all(self, partition: int) -> Iterator[Sequence[LogRecord] | TransactionalRecords | TransactionEnd]:
        """Yield all records up to the log end, in order and in chunks."""

    def high_watermark(self, partition: int) -> int:
        """Return the offset below which all records are committed."""


class Shard(Protocol[C]):
    """The state of one partition. Only replayed records change durable state; unloading drops the soft state."""

    timers: TimerQueue

    def encode(self, change: C) -> CoordinatorRecord:
        """Return the record of a change."""

    def decode(self, key: bytes | None, value: bytes | None) -> C | None:
        """Return the change in a record, or None to skip the record. Raises `ProtocolError`."""

    def replay(self, change: C, offset: int, *, committed: bool) -> None:
        """Apply a change. ``committed`` is False while the change is above the high watermark."""

    def replay_pending(self, change: C, offset: int, producer_id: int) -> None:
        """Apply a change from an open transaction of ``producer_id``; it takes effect when the transaction commits."""

    def end_transaction(self, producer_id: int, offset: int, *, commits: bool, committed: bool) -> None:
        """Apply a transaction's end marker. ``committed`` says whether the marker itself is committed."""

    def commit(self, high_watermark: int) -> None:
        """Make everything below ``high_watermark`` visible to readers."""

    def loaded(self, turn: Turn[C]) -> None:
        """Build the soft state and set the timers, after the whole log was replayed."""

    def timer_fired(self, key: TimerKey, turn: Turn[C]) -> None:
        """Handle an expired deadline."""

    def unload(self) -> list[Reply[Any]]:
        """Drop the soft state and return the replies of all waiting requests; the partition moves to another broker."""


def replay_log(log: CoordinatorLog, partition: int, shard: Shard[C]) -> Generator[None, None, tuple[int, int]]:
    """Replay a whole log into a new shard. Yields every `_RECORDS_PER_STEP` records so that other tasks can run.

    Returns the offset after the last record, and the number of records.
    """
    end = count = 0
    for piece in log.read_all(partition):
        committed_below = log.high_watermark(partition)
        if isinstance(piece, TransactionEnd):
            committed = piece.offset < committed_below
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
                shard.replay(change, offset, committed=offset < committed_below)
            end = offset + 1
            count += 1
            if count % _RECORDS_PER_STEP == 0:
                yield
    return end, count
