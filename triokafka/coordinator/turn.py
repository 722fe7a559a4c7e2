"""One turn of a coordinator: the input of one operation and its decisions.

An operation runs without waiting. It reads the shard's state and writes into its `Turn` the records to append, the
answers to give, and callbacks for when the records are committed or lost. The runtime carries out the turn. A waiting
request listens on a `Reply`; often a later operation than the one that parked it sets the reply.
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
    """The answer to one request. It is set once, to a value or an error."""

    __slots__ = ("_arrived", "_error", "_value")

    def __init__(self) -> None:
        self._arrived = trio.Event()
        self._value: T | None = None
        self._error: KafkaError | None = None

    @property
    def is_set(self) -> bool:
        """Whether the reply has a value or an error."""
        return self._arrived.is_set()

    @property
    def value(self) -> T:
        """The value. Raises the error if the reply was set to one, and RuntimeError while it is not set."""
        if self._error is not None:
            raise self._error.fresh_copy()
        if not self._arrived.is_set():
            raise RuntimeError("this request has no answer yet")
        return self._value  # type: ignore[return-value]  # set together with the event

    def set(self, value: T) -> None:
        """Set the value. Only the first call of `set` or `fail` counts."""
        if not self._arrived.is_set():
            self._value = value
            self._arrived.set()

    def fail(self, error: KafkaError) -> None:
        """Set an error. Only the first call of `set` or `fail` counts."""
        if not self._arrived.is_set():
            self._error = error.fresh_copy()
            self._arrived.set()

    async def wait(self) -> T:
        """Wait for the answer, without a timeout: the operation that parks a request also sets a timer that answers it.

        Cancelling the wait changes nothing in the group; the answer is discarded.
        """
        if not self._arrived.is_set():
            await self._arrived.wait()
        return self.value


@dataclass(slots=True)
class Turn(Generic[C]):
    """The time, the timers, and the decisions of one operation. ``C`` is the coordinator's type of change.

    With records, the runtime holds the answers until the records are committed. ``on_appended`` runs with this same
    turn after the records are appended and replayed; it must not write records, and its answers are held with the rest.
    ``on_committed`` runs when the records are committed. ``on_failed`` runs when the append raised, or when the commit
    took too long; in the second case ``appended`` is True and the records may still be committed later. These two
    callbacks get a new turn. When a turn fails, its answers are replaced by the error. ``encoded`` holds the encoded
    records of the first changes, where they were encoded before the turn.
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
        """Add a change. The changes of a turn are appended together or not at all."""
        self.records.append(record)

    def write_encoded(self, changes: Sequence[C], encoded: Sequence[CoordinatorRecord]) -> None:
        """Add changes whose records were encoded before the turn. They must come before all other changes.

        Raises:
            IllegalStateError: `write` was called before; the records would be paired with the wrong changes.
        """
        if len(self.records) > len(self.encoded):
            raise IllegalStateError("encoded records must be added before all other changes of a turn")
        self.records.extend(changes)
        self.encoded.extend(encoded)

    def answer(self, reply: Reply[T], value: T) -> None:
        """Answer a waiting request once the records of this turn are committed."""
        self.answers.append((reply, value))

    def note(self, text: str) -> None:
        """Add a message for the broker's log."""
        self.notes.append(text)
