"""The calls of a producer, their results, and a check of each partition's log against the producer's guarantees.

Every record has its number in its value, so that a log read by any client can be compared. Nothing here waits, or
depends on a particular broker.
"""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from triokafka.client.deliveries import Deliveries, Delivery
from triokafka.errors import InvalidRecordError, KafkaError, MessageSizeTooLargeError
from triokafka.structs import RecordMetadata, TopicPartition

Log = Mapping[TopicPartition, Sequence[tuple[int, bytes | None]]]
"""Offset and value of each record, in the order of the log."""

_REFUSED_FOR_GOOD = (MessageSizeTooLargeError, InvalidRecordError)  # refused by the broker before the append


class Promise(enum.Enum):
    """The guarantee for the log of a partition, by the producer's options."""

    EXACTLY_ONCE = "idempotence: the records in the order of their sending, each once"
    IN_ORDER = "no idempotence, 1 in flight: the order kept, a batch maybe repeated right behind itself, never a gap"
    AT_LEAST_ONCE = "no idempotence, several in flight: nothing acknowledged is missing; order and repeats are open"
    AT_MOST_ONCE = "acks=0: no repeats; records may be missing, and a broken connection may be read after the new one"


PROMISES: dict[str, tuple[Promise, dict[str, Any]]] = {
    "idempotent-5-in-flight": (Promise.EXACTLY_ONCE, {}),
    "idempotent-1-in-flight": (Promise.EXACTLY_ONCE, {"max_in_flight_requests_per_connection": 1}),
    "plain-1-in-flight": (
        Promise.IN_ORDER,
        {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1},
    ),
    "acks-1-5-in-flight": (Promise.AT_LEAST_ONCE, {"acks": 1}),
    "acks-0": (Promise.AT_MOST_ONCE, {"acks": 0}),
}
"""Configurations of a producer: the promise against a real broker, and the options."""


class Call:
    """One send, or one send_many: records number ``first`` to ``first + count - 1``."""

    def __init__(self, ledger: Ledger, first: int, count: int) -> None:
        self.first = first
        self.count = count
        self.started = self.ended = ledger.tick()
        self.fate = "open"
        self.deliveries: Deliveries | Sequence[Delivery] = ()
        self.awaited: set[int] = set()
        self.called_back: list[tuple[RecordMetadata | None, Exception | None]] = []
        self.expects_callback = False
        self._ledger = ledger

    def value(self, size: int = 0, number: int = 0) -> bytes:
        """Return the value of the call's record ``number``, at least ``size`` bytes long."""
        return (b"%d|" % (self.first + number)).ljust(size, b"x")

    def accept(self, deliveries: Delivery | Deliveries) -> None:
        """Record that the producer accepted all records of the call."""
        self.fate = "accepted"
        self.ended = self._ledger.tick()
        if isinstance(deliveries, Delivery):
            self.started = self.ended  # a single record is in its batch at the moment when send returns
            self.deliveries = [deliveries]
        else:
            self.deliveries = deliveries

    def refuse(self) -> None:
        """Record that the producer accepted none of them: the call raised, or was cancelled."""
        self.fate = "refused"

    def cut_off(self) -> None:
        """Record that a send_many raised or was cancelled midway: it accepted only the first records."""
        self.fate = "cut off"
        self.ended = self._ledger.tick()

    def on_delivery(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        """Return the callback for a single send."""
        self.called_back.append((metadata, error))
        self._ledger.on_callback()


class Ledger:
    """All calls of one producer."""

    def __init__(self, on_callback: Callable[[], object] = lambda: None) -> None:
        self.on_callback = on_callback
        self.calls: list[Call] = []
        self._by_number: list[Call] = []
        self._clock = 0
        self.acknowledged: dict[int, RecordMetadata] = {}
        self.failed: dict[int, Exception] = {}
        self.filtered: set[int] = set()

    def tick(self) -> int:
        """Advance the logical clock, and return its value."""
        self._clock += 1
        return self._clock

    def begin(self, count: int = 1) -> Call:
        """Begin a call that sends ``count`` records."""
        call = Call(self, len(self._by_number), count)
        self.calls.append(call)
        self._by_number += [call] * count
        return call

    def _count(self, fate: str) -> int:
        return sum(call.count for call in self.calls if call.fate == fate)

    # ---------------------------------------------------------------- once the producer's block is left

    def settle(
        self, metrics: Mapping[str, Any], exit_error: BaseException | None, *, failures_are_reported: bool = False
    ) -> None:
        """Check that every record is acknowledged or failed, and that the numbers add up.

        ``metrics`` are the producer's, ``exit_error`` is the error on leaving its block. ``failures_are_reported``: a
        callback of the producer received every failure.
        """
        unreported = 0
        for call in self.calls:
            assert call.fate != "open"
            if call.fate != "accepted":
                continue
            deliveries = list(call.deliveries)
            assert len(deliveries) == call.count
            for number, delivery in enumerate(deliveries, start=call.first):
                assert delivery.done, f"record {number} is neither acknowledged nor failed after the block was left"
                if delivery.partition < 0:
                    self.filtered.add(number)
                    continue
                try:
                    self.acknowledged[number] = delivery.result()
                except KafkaError as error:
                    self.failed[number] = error
                    unreported += not (failures_are_reported or call.expects_callback or number in call.awaited)
            if call.expects_callback and call.first not in self.filtered:
                assert len(call.called_back) == 1, f"{len(call.called_back)} callbacks for record {call.first}"
                metadata, reported = call.called_back[0]
                assert metadata == self.acknowledged.get(call.first)
                assert repr(reported) == repr(self.failed.get(call.first))
        accepted, unknown = self._count("accepted") - len(self.filtered), self._count("cut off")
        assert len(self.acknowledged) + len(self.failed) == accepted
        settled = metrics["record_send_total"] + metrics["record_error_total"]
        assert accepted <= settled <= accepted + unknown, f"{settled} settled of {accepted} (and up to {unknown})"
        assert metrics["buffer_available_bytes"] == metrics["buffer_total_bytes"]
        if not unknown:
            stated = int(str(exit_error).split(" ", 1)[0]) if exit_error is not None else 0
            assert stated == unreported, (
                f"{unreported} unreported failures, but the error on leaving the block says {stated}"
            )

    # ---------------------------------------------------------------- the log

    def check(self, log: Log, promise: Promise, *, most_in_batch: int = 1_000, broker_forgets: bool = False) -> int:
        """Compare the log with the guarantee; return the number of records that are in it more than once.

        ``most_in_batch`` bounds how far back a repeated batch can begin. ``broker_forgets``: the cluster may have lost
        the end of a log that it had acknowledged; then a producer can only guarantee order and repetitions.
        """
        repeats = 0
        for partition, entries in log.items():
            numbers = [self._number_of(value, partition) for _, value in entries]
            counts = Counter(numbers)
            repeats += len(numbers) - len(counts)
            if promise is Promise.IN_ORDER:
                numbers = without_adjacent_repeats(numbers, most_in_batch, str(partition))
            elif promise is not Promise.AT_LEAST_ONCE:
                twice = [number for number, count in counts.items() if count > 1]
                assert not twice, f"{partition} has records more than once: {twice[:10]}"
            if promise in (Promise.EXACTLY_ONCE, Promise.IN_ORDER):
                self._check_order(partition, numbers)
        if not broker_forgets:
            self._check_acknowledged(log, promise)
        self._check_never_sent(log)
        return repeats

    def _number_of(self, value: bytes | None, partition: TopicPartition) -> int:
        assert value is not None, f"{partition} has a record that was never sent"
        number = int(value.split(b"|", 1)[0])
        assert number < len(self._by_number), f"{partition} has a record that was never sent: {value!r}"
        return number

    def _check_order(self, partition: TopicPartition, numbers: Iterable[int]) -> None:
        latest_start = before = -1
        last_of_call: dict[int, int] = defaultdict(lambda: -1)
        for number in numbers:
            call = self._by_number[number]
            # Calls that overlapped in time may be in either order; others not.
            assert call.ended >= latest_start, f"{partition} has record {before} before record {number}"
            if call.started > latest_start:
                latest_start, before = call.started, number
            assert number > last_of_call[call.first], f"{partition} has record {number} of one send_many too late"
            last_of_call[call.first] = number

    def _check_acknowledged(self, log: Log, promise: Promise) -> None:
        where: dict[int, list[tuple[TopicPartition, int]]] = defaultdict(list)
        for partition, entries in log.items():
            for offset, value in entries:
                where[self._number_of(value, partition)].append((partition, offset))
        for number, metadata in self.acknowledged.items():
            found = where.get(number, [])
            if promise is Promise.AT_MOST_ONCE:
                assert metadata.offset == -1
                continue
            assert found, f"record {number} was acknowledged at {metadata.offset} and is not in the log"
            tp = TopicPartition(metadata.topic, metadata.partition)
            assert all(partition == tp for partition, _ in found)
            if metadata.offset >= 0:
                assert (tp, metadata.offset) in found, f"record {number} was acknowledged at {metadata.offset}: {found}"
        for number, error in self.failed.items():
            if isinstance(error, _REFUSED_FOR_GOOD):
                assert number not in where, f"record {number} was refused with {error!r}, but is in the log"

    def _check_never_sent(self, log: Log) -> None:
        for partition, entries in log.items():
            for _, value in entries:
                number = self._number_of(value, partition)
                fate = "filtered" if number in self.filtered else self._by_number[number].fate
                assert fate not in ("refused", "filtered"), f"record {number} was {fate}, but is in {partition}"


def without_adjacent_repeats(numbers: Sequence[int], most_in_batch: int, name: str = "the log") -> list[int]:
    """Return the log without batches that are repeated directly after themselves; fail on any other repetition."""
    distinct: list[int] = []
    positions: dict[int, int] = {}
    next_position = 0
    for number in numbers:
        position = positions.get(number)
        if position is None:
            assert next_position == len(distinct), f"{name} goes on with {number} before the repeat of a batch is over"
            position = positions[number] = len(distinct)
            distinct.append(number)
        elif position != next_position:
            back = next_position - position
            assert 0 < back <= most_in_batch, f"{name} repeats {number}, {back} records later"
        next_position = position + 1
    assert next_position == len(distinct), f"{name} ends within the repeat of a batch"
    return distinct
