"""The interface of a shard: the state of one partition of a coordinator's topic."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from triokafka.coordinator.runtime.coordinator_log import CoordinatorRecord
from triokafka.coordinator.runtime.effects import Effects
from triokafka.coordinator.runtime.reply import Reply
from triokafka.coordinator.runtime.timer_queue import TimerQueue

C = TypeVar("C")


class Shard(Protocol[C]):
    """The state of one partition. Only replayed records change durable state; unloading drops the soft state."""

    timers: TimerQueue

    def encode(self, change: C) -> CoordinatorRecord:
        """Return the record of a change."""

    def decode(self, key: bytes | None, value: bytes | None) -> C | None:
        """Return the change in a record, or None to skip the record. Raises `ProtocolError`."""

    def replay(self, change: C, offset: int, *, committed: bool) -> None:
        """Apply a change. ``committed`` is False while the change is not committed."""

    def replay_pending(self, change: C, offset: int, producer_id: int) -> None:
        """Apply a change from an open transaction of ``producer_id``; it takes effect when the transaction commits."""

    def end_transaction(self, producer_id: int, offset: int, *, commits: bool, committed: bool) -> None:
        """Apply a transaction's end marker. ``committed`` says whether the marker itself is committed."""

    def commit(self, committed_below: int) -> None:
        """Make everything below this offset visible to readers."""

    def loaded(self, effects: Effects[C]) -> None:
        """Build the soft state and set the timers, after the whole log was replayed."""

    def unload(self) -> list[Reply[Any]]:
        """Drop the soft state and return the replies of all waiting requests; the partition moves to another broker."""
