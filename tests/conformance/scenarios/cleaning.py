"""Retention and compaction taking effect. The times of their records close segments, so that nobody waits for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.conformance.catalogue import FIRST_TIMESTAMP, Case, scenario
from tests.conformance.driver import Message, Record

_COMPACTED: dict[str, Any] = {
    "cleanup_policy": "compact",
    "segment_ms": 1000,
    "min_cleanable_dirty_ratio": 0.01,
    "delete_retention_ms": 0,
}


def _segments(
    case: Case, topic: str, segments: Sequence[Sequence[tuple[bytes, bytes | None]]], **options: object
) -> None:
    """One segment for each list of keys and values: their times are ten seconds apart."""
    for number, pairs in enumerate(segments):
        at = FIRST_TIMESTAMP + 10_000 * number
        case.send(topic, [Message(value, key, timestamp=at) for key, value in pairs], linger_ms=20, **options)


def _all(case: Case, topic: str) -> list[Record]:
    """Everything that is there now, up to the end."""
    consumer = case.reader(topic, auto_offset_reset="earliest")
    end = consumer.end((topic, 0))
    found: list[Record] = []

    def at_end() -> bool:
        found.extend(consumer.poll())
        return bool(found) and found[-1].offset == end - 1

    case.until(at_end)
    consumer.close()
    return found


def _becomes(case: Case, topic: str, expected: list[tuple[int, bytes | None, bytes | None]]) -> None:
    def so() -> bool:
        return [(record.offset, record.key, record.value) for record in _all(case, topic)] == expected

    case.until(so)


@scenario
def retention_by_time(case: Case) -> None:
    """Records older than retention.ms go, and offsets do not begin anew."""
    topic = case.topic(retention_ms=600_000, segment_ms=1000)
    case.fill(topic, 10)
    consumer = case.client.consumer()
    case.until(lambda: consumer.beginning((topic, 0)) == 10)
    assert case.send(topic, [Message(b"young")])[0].offset == 10
    assert [record.value for record in case.take(case.reader(topic, {0: 10}), 1)] == [b"young"]


@scenario
def retention_keeps_young_segments(case: Case) -> None:
    """Segments go one by one: the young ones stay."""
    topic = case.topic(retention_ms=600_000, segment_ms=1000)
    case.fill(topic, 4)
    case.send(topic, [Message(b"young")] * 3)
    consumer = case.client.consumer()
    case.until(lambda: consumer.beginning((topic, 0)) == 4)
    assert consumer.end((topic, 0)) == 7


@scenario
def retention_by_size(case: Case) -> None:
    """Segments beyond retention.bytes go, the oldest first."""
    topic = case.topic(retention_ms=-1, retention_bytes=3000, segment_ms=1000)
    _segments(case, topic, [[(b"k", b"x" * 1000)] for _ in range(8)])
    consumer = case.client.consumer()
    case.until(lambda: consumer.beginning((topic, 0)) == 5)
    assert consumer.end((topic, 0)) == 8


@scenario
def retention_changed(case: Case) -> None:
    """A new retention takes effect on what is there."""
    topic = case.topic(retention_ms=-1, segment_ms=1000)
    case.fill(topic, 5)
    case.configure(topic, "retention.ms", "1000")
    consumer = case.client.consumer()
    case.until(lambda: consumer.beginning((topic, 0)) == 5)


@scenario
def compacted(case: Case) -> None:
    """Of each key the last record stays, at its offset."""
    topic = case.topic(**_COMPACTED)
    first = [(b"a", b"1"), (b"b", b"1"), (b"c", b"1")]
    _segments(case, topic, [first, [(b"a", b"2"), (b"c", b"2")], [(b"z", b"active")]])
    _becomes(case, topic, [(1, b"b", b"1"), (3, b"a", b"2"), (4, b"c", b"2"), (5, b"z", b"active")])


@scenario
def compacted_batches_of_a_codec(case: Case) -> None:
    """Compaction works inside compressed batches."""
    topic = case.topic(**_COMPACTED)
    many = [(b"%d" % (i % 5), b"%d" % i) for i in range(50)]
    _segments(case, topic, [many, [(b"z", b"active")]], compression_type="gzip")
    _becomes(case, topic, [*((i, b"%d" % (i % 5), b"%d" % i) for i in range(45, 50)), (50, b"z", b"active")])


@scenario
def compacted_idempotent(case: Case) -> None:
    """Compaction keeps a producer's sequence: it can go on."""
    topic = case.topic(**_COMPACTED)
    _segments(case, topic, [[(b"a", b"1")], [(b"a", b"2")], [(b"z", b"active")]], enable_idempotence=True)
    _becomes(case, topic, [(1, b"a", b"2"), (2, b"z", b"active")])
    assert case.send(topic, [Message(b"3", b"a")], enable_idempotence=True)[0].offset == 3


@scenario
def tombstones(case: Case) -> None:
    """A null value deletes its key, and goes itself after delete.retention.ms."""
    topic = case.topic(**_COMPACTED)
    _segments(case, topic, [[(b"a", b"1"), (b"b", b"1")], [(b"a", None)], [(b"c", b"1")], [(b"z", b"active")]])
    extra = 4

    def gone() -> bool:
        nonlocal extra
        found = [(record.key, record.value) for record in _all(case, topic)]
        if (b"a", None) in found:
            # Every pass needs something to clean.
            at = FIRST_TIMESTAMP + 10_000 * extra
            case.send(topic, [Message(b"active", b"z", timestamp=at)])
            extra += 1
            return False
        assert {key for key, _ in found} == {b"b", b"c", b"z"}
        return True

    case.until(gone)


@scenario
def not_compacted_yet(case: Case) -> None:
    """With min.compaction.lag.ms young records all stay, while old ones of another topic go."""
    now = case.topic(**{**_COMPACTED, "min_compaction_lag_ms": 3_600_000 * 24 * 365 * 50})
    then = case.topic(**_COMPACTED)
    for topic in (now, then):
        _segments(case, topic, [[(b"a", b"1")], [(b"a", b"2")], [(b"z", b"active")]])
    _becomes(case, then, [(1, b"a", b"2"), (2, b"z", b"active")])
    assert [record.offset for record in _all(case, now)] == [0, 1, 2]


@scenario
def compacted_and_deleted(case: Case) -> None:
    """With cleanup.policy=compact,delete retention applies, too."""
    topic = case.topic(**{**_COMPACTED, "cleanup_policy": "compact,delete", "retention_ms": 600_000})
    _segments(case, topic, [[(b"a", b"1")], [(b"b", b"1")]])
    assert case.send(topic, [Message(b"young", b"z")])[0].offset == 2
    consumer = case.client.consumer()
    case.until(lambda: consumer.beginning((topic, 0)) == 2)
    assert [record.value for record in _all(case, topic)] == [b"young"]


@scenario
def ends_of_a_compacted_topic(case: Case) -> None:
    """Compaction moves neither beginning nor end."""
    topic = case.topic(**_COMPACTED)
    _segments(case, topic, [[(b"a", b"1")], [(b"a", b"2")], [(b"z", b"active")]])
    _becomes(case, topic, [(1, b"a", b"2"), (2, b"z", b"active")])
    consumer = case.client.consumer()
    assert (consumer.beginning((topic, 0)), consumer.end((topic, 0))) == (0, 3)
    assert consumer.offset_for_time((topic, 0), FIRST_TIMESTAMP) == 1
