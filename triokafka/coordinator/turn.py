"""One turn of a coordinator: what an operation may see, and what it decided.

An operation runs without waiting. It reads the shard's state, and writes down in its `Turn` the records to append,
the answers to give, and what to do once the records are committed or lost. The runtime carries it out. A `Reply` is
the slot that a waiting request listens on; the operation that parked it may be long over when another one answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import trio

from triokafka.coordinator.timers import Moment, TimerQueue
from triokafka.errors import IllegalStateError, KafkaError

T = TypeVar("T")
C = TypeVar("C")


class CoordinatorRecord(NamedTuple):
    """One record of a coordinator's topic. A ``value`` of None is a tombstone."""

    key: bytes
    value: bytes | None


class Reply(Generic[T]):
    """The answer to one request: empty until it is set, once, to a value or an error."""

    __slots__ = ("_arrived", "_error", "_value")

    def __init__(self) -> None:
        self._arrived = trio.Event()
        self._value: T | None = None
        self._error: KafkaError | None = None

    @property
    def is_set(self) -> bool:
        """Whether an answer is there."""
        return self._arrived.is_set()

    @property
    def value(self) -> T:
        """The answer. Raises the error that was set instead of one."""
        if self._error is not None:
            raise self._error.fresh_copy()
        if not self._arrived.is_set():
            raise RuntimeError("this request is not answered yet")
        return self._value  # type: ignore[return-value]  # set together with the event

    def set(self, value: T) -> None:
        """Answer. Only the first answer counts."""
        if not self._arrived.is_set():
            self._value = value
            self._arrived.set()

    def fail(self, error: KafkaError) -> None:
        """Answer with an error. Only the first answer counts."""
        if not self._arrived.is_set():
            self._error = error.fresh_copy()
            self._arrived.set()

    async def wait(self) -> T:
        """Wait for the answer, without a limit: whoever parks a request has a timer that answers it.

        Cancelling the wait changes nothing in the group; the answer then goes nowhere.
        """
        if not self._arrived.is_set():
            await self._arrived.wait()
        return self.value


@dataclass(slots=True)
class Turn(Generic[C]):
    """The time, the deadlines, and what one operation decided. ``C`` is the coordinator's kind of change.

    With records, the answers are held until those are committed. ``on_appended`` runs with this same turn once they are
    in the log and replayed, and must not write any; what it answers is held with the rest. ``on_committed`` runs when
    they are committed; ``on_failed`` runs when the append raised, or when the commit took too long: then ``appended``
    is True, and the records may be committed later. These two get a turn of their own. The answers of a turn that
    failed are replaced by the error. ``encoded`` has the records of the first changes, where they were made ahead.
    """

    at: Moment
    timers: TimerQueue
    records: list[C] = field(default_factory=list)
    encoded: list[CoordinatorRecord] = field(default_factory=list)
    answers: list[tuple[Reply[Any], Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    appended: bool = False
    on_appended: Callable[[Turn[C]], None] | None = None
    on_committed: Callable[[Turn[C]], None] | None = None
    on_failed: Callable[[KafkaError, Turn[C]], None] | None = None

    def write(self, record: C) -> None:
        """Append a change as a record, together with the others of this turn or not at all."""
        self.records.append(record)

    def write_encoded(self, changes: Sequence[C], encoded: Sequence[CoordinatorRecord]) -> None:
        """As `write`, of changes that come before all others and whose records were made ahead of the turn.

        Raises:
            IllegalStateError: others were written: the records would be taken for theirs.
        """
        if len(self.records) > len(self.encoded):
            raise IllegalStateError("records made ahead must be written before all others of a turn")
        self.records.extend(changes)
        self.encoded.extend(encoded)

    def answer(self, reply: Reply[T], value: T) -> None:
        """Answer a waiting request once the records of this turn are committed."""
        self.answers.append((reply, value))

    def note(self, text: str) -> None:
        """Say what happened, for the broker's log."""
        self.notes.append(text)
