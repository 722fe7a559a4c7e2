"""The history of transactions, and the guarantees that hold in every run: a pure checker, modelled on Jepsen's for
Kafka.

Every record of a run has a unique value. A run records the actions of writers and the records that readers with
``read_committed`` received. The checker finds:

- *aborted read*: a reader received a record of an aborted transaction;
- *precommitted read*: a reader received a record before its transaction's commit began, or although it never began;
- *lost write*: a record of a committed transaction is missing at the end;
- *duplicate*: the log has a record twice;
- *torn transaction*: the log has only a part of a transaction;
- *disorder*: a writer's records in one partition are not in the order of sending.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from triokafka.structs import TopicPartition


@dataclass
class Attempt:
    """One transaction of one writer. ``committed`` is None while the outcome is unknown.

    ``records`` are the values that were sent, with their partition. ``commit_began`` is the time at which the commit
    was requested, None when it was not.
    """

    writer: str
    number: int
    records: dict[bytes, TopicPartition] = field(default_factory=dict)
    commit_began: float | None = None
    committed: bool | None = None


class TransactionHistory:
    """The events of one run. Times are seconds on one clock."""

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []
        self._by_value: dict[bytes, Attempt] = {}
        self._seen: dict[bytes, float] = {}

    def begin(self, writer: str) -> Attempt:
        """Record that a writer begins a transaction."""
        attempt = Attempt(writer, sum(one.writer == writer for one in self.attempts))
        self.attempts.append(attempt)
        return attempt

    def sent(self, attempt: Attempt, value: bytes, partition: TopicPartition) -> None:
        """Record that the writer is about to send a record."""
        assert value not in self._by_value, "every record has a unique value"
        attempt.records[value] = partition
        self._by_value[value] = attempt

    def saw(self, value: bytes, at: float) -> None:
        """Record that a reader with ``read_committed`` received a record."""
        self._seen.setdefault(value, at)

    def check(self, final: Mapping[TopicPartition, Sequence[bytes]]) -> None:
        """Raise `AssertionError` with all anomalies; ``final`` are the records that a last ``read_committed`` reader
        received.
        """
        found = [
            *self._check_reads(),
            *self._check_final(final),
            *(text for partition, values in final.items() for text in self._check_order(partition, values)),
        ]
        assert not found, f"{len(found)} anomalies:\n" + "\n".join(found[:20])

    def _check_reads(self) -> Iterable[str]:
        for value, at in self._seen.items():
            attempt = self._by_value.get(value)
            if attempt is None:
                yield f"phantom: {value!r} was never sent"
            elif attempt.committed is False:
                yield f"aborted read: {value!r} of {_name(attempt)}"
            elif attempt.commit_began is None or at < attempt.commit_began:
                yield f"precommitted read: {value!r} of {_name(attempt)} at {at:.3f}, commit at {attempt.commit_began}"

    def _check_final(self, final: Mapping[TopicPartition, Sequence[bytes]]) -> Iterable[str]:
        counts = Counter(value for values in final.values() for value in values)
        for value, count in counts.items():
            attempt = self._by_value.get(value)
            if attempt is None:
                yield f"phantom: {value!r} was never sent"
            elif attempt.committed is False:
                yield f"aborted read: {value!r} of {_name(attempt)}"
            if count > 1:
                yield f"duplicate: {value!r} is there {count} times"
        for value in self._seen:
            if value not in counts:
                yield f"lost write: {value!r} was read, and is missing at the end"
        for attempt in self.attempts:
            there = sum(value in counts for value in attempt.records)
            if attempt.committed and there < len(attempt.records):
                yield f"lost write: {_name(attempt)} was committed, but has {there} of {len(attempt.records)} records"
            elif attempt.committed is None and attempt.commit_began is None and there:
                yield f"precommitted read: {_name(attempt)} is there, and its commit was never requested"
            elif attempt.committed is None and 0 < there < len(attempt.records):
                yield f"torn transaction: {_name(attempt)} has {there} of {len(attempt.records)} records"

    def _check_order(self, partition: TopicPartition, values: Sequence[bytes]) -> Iterable[str]:
        last: dict[str, int] = {}
        order = {value: number for number, value in enumerate(self._by_value)}
        for value in values:
            attempt = self._by_value.get(value)
            if attempt is None:
                continue
            number = order[value]
            if number < last.get(attempt.writer, -1):
                yield f"disorder: {value!r} of {attempt.writer} is behind a later record in {partition}"
            last[attempt.writer] = number


def _name(attempt: Attempt) -> str:
    return f"transaction {attempt.number} of {attempt.writer}"
