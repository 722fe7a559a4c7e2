"""The log under a coordinator and the shards over it: what each must offer, and how a shard reads its log."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from triokafka.coordinator.timers import TimerKey, TimerQueue
from triokafka.coordinator.turn import CoordinatorRecord, Reply, Turn

C = TypeVar("C")

_RECORDS_PER_STEP: Final = 1_000  # a few milliseconds of work between two chances for other tasks

LogRecord: TypeAlias = tuple[int, bytes | None, bytes | None]
"""Offset, key and value."""


@dataclass(frozen=True, slots=True)
class TransactionalRecords:
    """Records that a transaction of ``producer_id`` wrote, which count when it commits."""

    producer_id: int
    records: Sequence[LogRecord]


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """The marker at ``offset``: the transaction of ``producer_id`` has committed, or aborted."""

    producer_id: int
    offset: int
    commits: bool


class CoordinatorLog(Protocol):
    """The log under a coordinator's topic, as the broker provides it."""

    def append(self, partition: int, records: Sequence[CoordinatorRecord], timestamp_ms: int) -> int:
        """Append all records as one batch and return the offset after the last one.

        Raises:
            NotLeaderForPartitionError: this broker does not lead the partition.
            KafkaError: anything else; then nothing was appended.
        """

    def read_all(self, partition: int) -> Iterator[Sequence[LogRecord] | TransactionalRecords | TransactionEnd]:
        """Offset, key and value of all records up to the log end, in pieces, in their order."""

    def high_watermark(self, partition: int) -> int:
        """The offset below which everything is committed."""


class Shard(Protocol[C]):
    """The state of one partition. Durable state changes by `replay` only; the rest is soft and lost on unload."""

    timers: TimerQueue

    def encode(self, change: C) -> CoordinatorRecord:
        """The record that keeps a change."""

    def decode(self, key: bytes | None, value: bytes | None) -> C | None:
        """The change that a record keeps; None to skip it. Raises `ProtocolError`."""

    def replay(self, change: C, offset: int, *, committed: bool) -> None:
        """Apply a change. ``committed`` is False while readers must not see it yet."""

    def replay_pending(self, change: C, offset: int, producer_id: int) -> None:
        """Apply a change that a transaction wrote, which counts when that commits."""

    def end_transaction(self, producer_id: int, offset: int, *, commits: bool, committed: bool) -> None:
        """Apply the marker that ends a transaction. ``committed`` is that of the marker itself, as in `replay`."""

    def commit(self, high_watermark: int) -> None:
        """Everything below ``high_watermark`` is committed."""

    def loaded(self, turn: Turn[C]) -> None:
        """All records of the log are replayed: build the soft state and set the timers."""

    def timer_fired(self, key: TimerKey, turn: Turn[C]) -> None:
        """A deadline passed."""

    def unload(self) -> list[Reply[Any]]:
        """The shard moves elsewhere: drop the soft state and return whoever waits."""


def replay_log(log: CoordinatorLog, partition: int, shard: Shard[C]) -> Generator[None, None, tuple[int, int]]:
    """Replay all records of a log, up to its end, into a shard that is new; stops now and then for others.

    Returns the offset after the last record, and how many there were.
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
