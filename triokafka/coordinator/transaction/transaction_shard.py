"""The transactional ids of one partition of ``__transaction_state``: replay of records, and what follows a decision.

Durable: the `TransactionMetadata` of every id. Soft: which changes are not committed, requests that wait for the end of
a transaction, and the timers. A decision (prepare) is handed to the marker writer once its record is committed, also
after a load, so that no markers can contradict the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from triokafka.coordinator.runtime.coordinator_log import CoordinatorRecord
from triokafka.coordinator.runtime.reply import Reply
from triokafka.coordinator.runtime.timer_queue import TimerKey, TimerQueue
from triokafka.coordinator.transaction.config import TransactionCoordinatorConfig
from triokafka.coordinator.transaction.marker_queue import Completion, Completions
from triokafka.coordinator.transaction.metadata import TransactionMetadata
from triokafka.coordinator.transaction.records import TransactionChange, TransactionEffects, decode, encode
from triokafka.coordinator.transaction.state import PREPARED, TransactionState
from triokafka.structs import TopicPartition

TIMEOUT_SCAN = TimerKey("timeout scan")
"""The scan for transactions that are open for too long."""
WAIT = "wait"
"""The time limit of additions that wait for the end of the previous transaction."""
COMPLETE = "complete"
"""A repeated attempt to store the completion."""

_PAUSE: Final = 0.01
"""Seconds between two parts of a scan for timeouts, so that requests can run in between."""


@dataclass(slots=True)
class WaitingAddition:
    """An addition of partitions that waits until the previous transaction is completed."""

    resume: Callable[[TransactionEffects], None]
    reply: Reply[Any]


@dataclass(slots=True)
class TransactionShard:
    """The transactional ids of one partition.

    Args:
        leader_epoch: that of the partition; markers carry it as the coordinator epoch.
        completions: takes over decided transactions.
        transaction_version: the finalized level of ``transaction.version``.
        needs_producer_id: called with the partition and a transactional id whose transaction can end only with a new
            producer id; see `timed_out_transactions.abort_with_new_id`.
    """

    partition: int
    leader_epoch: int
    config: TransactionCoordinatorConfig
    completions: Completions
    transaction_version: Callable[[], int]
    needs_producer_id: Callable[[int, str], None]
    timers: TimerQueue = field(default_factory=TimerQueue)
    transactions: dict[str, TransactionMetadata] = field(default_factory=dict)
    ongoing: dict[str, None] = field(default_factory=dict)
    """The ids with an open transaction, in the order in which they began."""
    waiting: dict[str, list[WaitingAddition]] = field(default_factory=dict)
    """The additions of each id that wait for the end of its previous transaction."""
    unscanned: list[str] = field(default_factory=list)
    """Soft: the ids that the expiry scan in progress has still to visit."""
    _members: dict[str, tuple[tuple[TopicPartition, ...], frozenset[TopicPartition]]] = field(default_factory=dict)
    """For `members`: the partitions of each open transaction, as stored and as a set."""
    _offsets: dict[str, int] = field(default_factory=dict)
    """The offset of the newest record of each id that is not known to be committed."""
    _uncommitted: deque[tuple[int, str]] = field(default_factory=deque)
    _committed_below: int = 0
    _loading: bool = True

    # --- what the runtime calls ---

    def encode(self, change: TransactionChange) -> CoordinatorRecord:
        """Return the record of a change."""
        return encode(change, self.transaction_version())

    def decode(self, key: bytes | None, value: bytes | None) -> TransactionChange | None:
        """Return the change in a record; None for an unknown kind of record."""
        return decode(key, value)

    def replay(self, change: TransactionChange, offset: int, *, committed: bool) -> None:
        """Apply a change from the log."""
        transactional_id, value = change
        if value is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = value
        if value is not None and value.state is TransactionState.ONGOING:
            self.ongoing[transactional_id] = None
        else:
            self.ongoing.pop(transactional_id, None)
            self._members.pop(transactional_id, None)
        self._offsets[transactional_id] = offset
        self._uncommitted.append((offset, transactional_id))

    def replay_pending(self, change: TransactionChange, offset: int, producer_id: int) -> None:
        """Apply a change in a transaction. No coordinator writes one here; it counts like any other."""
        self.replay(change, offset, committed=False)

    def end_transaction(self, producer_id: int, offset: int, *, commits: bool, committed: bool) -> None:
        """Ignore a marker: records of this topic are in no transaction."""

    def commit(self, committed_below: int) -> None:
        """Note that everything below the offset is committed, and hand over the decisions in it."""
        self._committed_below = max(committed_below, self._committed_below)
        if self._loading:
            return
        while self._uncommitted and self._uncommitted[0][0] < self._committed_below:
            offset, transactional_id = self._uncommitted.popleft()
            if self._offsets.get(transactional_id) != offset:
                continue  # a newer record has replaced it
            del self._offsets[transactional_id]
            value = self.transactions.get(transactional_id)
            if value is not None and value.state in PREPARED:
                self.completions.add(self._completion(transactional_id, value))

    def loaded(self, effects: TransactionEffects) -> None:
        """Hand over the transactions that an earlier coordinator, or an earlier run of this broker, has decided."""
        self._loading = False
        self.completions.forget(self.partition)
        self.commit(self._committed_below)
        self.schedule_timeout_scan(effects)

    def unload(self) -> list[Reply[Any]]:
        """Drop the soft state and return the replies of waiting requests."""
        self.completions.forget(self.partition)
        replies: list[Reply[Any]] = [one.reply for waiting in self.waiting.values() for one in waiting]
        self.waiting.clear()
        return replies

    # --- what the operations use ---

    def is_settled(self, transactional_id: str) -> bool:
        """Whether the newest record of the id is committed. Until then, other requests must not build on it."""
        return transactional_id not in self._offsets

    def newest(self, transactional_id: str, effects: TransactionEffects) -> TransactionMetadata | None:
        """Return the newest state of an id, the changes that ``effects`` has not appended yet included."""
        for change in reversed(effects.records):
            if change.transactional_id == transactional_id:
                return change.value
        return self.transactions.get(transactional_id)

    def members(self, transactional_id: str, value: TransactionMetadata) -> frozenset[TopicPartition]:
        """Return the partitions of an id's transaction as a set, which is cached until the transaction changes."""
        if not value.partitions:
            return frozenset()
        cached = self._members.get(transactional_id)
        if cached is None or cached[0] is not value.partitions:
            cached = self._members[transactional_id] = value.partitions, frozenset(value.partitions)
        return cached[1]

    def write(self, transactional_id: str, value: TransactionMetadata | None, effects: TransactionEffects) -> None:
        """Store the new state of an id."""
        effects.write(TransactionChange(transactional_id, value))

    def schedule_timeout_scan(self, effects: TransactionEffects, *, continues: bool = False) -> None:
        """Have open transactions compared with their timeouts after the interval, if there are any.

        ``continues``: the last comparison left some out.
        """
        if self.ongoing and TIMEOUT_SCAN not in self.timers:
            seconds = _PAUSE if continues else self.config.abort_timed_out_transactions_interval_ms / 1000
            self.timers.schedule(TIMEOUT_SCAN, effects.at.now + seconds)

    def _completion(self, transactional_id: str, value: TransactionMetadata) -> Completion:
        return Completion(
            partition=self.partition,
            coordinator_epoch=self.leader_epoch,
            transactional_id=transactional_id,
            producer_id=value.producer_id,
            producer_epoch=value.producer_epoch,
            commits=value.commits,
            version=value.client_transaction_version,
            partitions=value.partitions,
        )
