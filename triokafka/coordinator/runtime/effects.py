"""The effects of one operation on a shard: records to append, answers to give, timers to set.

An operation runs without waiting. It reads the shard's state and writes its decisions into `Effects`, which the runtime
then carries out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from triokafka.coordinator.runtime.coordinator_log import CoordinatorRecord, TransactionalProducer, TransactionMarker
from triokafka.coordinator.runtime.reply import Reply
from triokafka.coordinator.runtime.timer_queue import Moment, TimerQueue
from triokafka.errors import IllegalStateError, KafkaError

T = TypeVar("T")
C = TypeVar("C")


class Effects(Generic[C]):
    """The time, the timers, and the decisions of one operation. ``C`` is the coordinator's type of change.

    With records, the runtime holds the answers until the records are committed. ``on_appended`` runs with these same
    effects after the records are appended and replayed; it must not write records, and the runtime holds its answers
    with the rest. ``on_committed`` runs when the records are committed. ``on_failed`` runs when the append raised, or
    when the commit took too long; in the second case ``appended`` is True and the records may still be committed later.
    These two callbacks get new effects. After a failure, every answer is the error. ``encoded`` holds the records of
    the first changes, where they were encoded before the operation.
    """

    __slots__ = (
        "answers",
        "appended",
        "at",
        "encoded",
        "marker",
        "notes",
        "on_appended",
        "on_committed",
        "on_failed",
        "producer",
        "records",
        "timers",
    )

    def __init__(self, at: Moment, timers: TimerQueue) -> None:
        self.at = at
        self.timers = timers
        self.records: list[C] = []
        self.encoded: list[CoordinatorRecord] = []
        self.answers: list[tuple[Reply[Any], Any]] = []
        self.notes: list[str] = []
        self.appended = False
        self.producer: TransactionalProducer | None = None
        """The producer in whose transaction the records are written; None for none."""
        self.marker: TransactionMarker | None = None
        """A transaction's marker to append instead of records."""
        self.on_appended: Callable[[Effects[C]], None] | None = None
        self.on_committed: Callable[[Effects[C]], None] | None = None
        self.on_failed: Callable[[KafkaError, Effects[C]], None] | None = None

    def write(self, *changes: C) -> None:
        """Add changes. The changes of one operation are appended together or not at all."""
        self.records.extend(changes)

    def write_encoded(self, changes: Sequence[C], encoded: Sequence[CoordinatorRecord]) -> None:
        """Add changes whose records were encoded before the operation. They must come before all other changes.

        Raises:
            IllegalStateError: `write` was called before; the records would be paired with the wrong changes.
        """
        if len(self.records) > len(self.encoded):
            raise IllegalStateError("encoded records must be added before all other changes")
        self.records.extend(changes)
        self.encoded.extend(encoded)

    def answer(self, reply: Reply[T], value: T) -> None:
        """Answer a waiting request once these records are committed."""
        self.answers.append((reply, value))

    def answer_error(self, reply: Reply[Any], error: KafkaError) -> None:
        """Fail a waiting request once these records are committed."""
        self.answers.append((reply, error))

    def note(self, text: str) -> None:
        """Add a message for the broker's log."""
        self.notes.append(text)
