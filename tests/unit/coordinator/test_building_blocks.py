"""Small parts: Java's string hash, timers, the journal, subscriptions, replies, effects."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.coordinator.rig import subscription
from triokafka.coordinator.classic_group.subscription import subscribed_topics
from triokafka.coordinator.runtime.coordinator_log import CoordinatorRecord
from triokafka.coordinator.runtime.effects import Effects
from triokafka.coordinator.runtime.journal import Journal
from triokafka.coordinator.runtime.partitioning import coordinator_partition, java_string_hash
from triokafka.coordinator.runtime.reply import Reply
from triokafka.coordinator.runtime.timer_queue import Moment, TimerKey, TimerQueue
from triokafka.coordinator.runtime.waiting import answer_to
from triokafka.errors import IllegalStateError, NotCoordinatorError
from triokafka.protocol.consumer_protocol import ConsumerProtocolSubscription, OwnedTopic

# --- the group's partition ---


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("abc", 96_354),
        ("hello", 99_162_322),
        ("polygenelubricants", -(2**31)),
        ("\N{LATIN SMALL LETTER U WITH DIAERESIS}", 252),
        ("\N{GRINNING FACE}", 55_357 * 31 + 56_832),
    ],
)
def test_hash_equals_javas_string_hash(text: str, value: int) -> None:
    """Over UTF-16 code units, in signed 32-bit arithmetic."""
    assert java_string_hash(text) == value


@pytest.mark.parametrize(("group", "partition"), [("polygenelubricants", 0), ("hello", 22), ("a", 47), ("", 0)])
def test_partition_is_the_absolute_hash_and_the_smallest_integer_counts_as_zero(group: str, partition: int) -> None:
    assert coordinator_partition(group, 50) == partition


@pytest.mark.parametrize("length", [1, 256, 257, 32_767])
def test_partition_is_the_same_for_cached_and_uncached_ids(length: int) -> None:
    group = "g" * length
    expected = abs(java_string_hash(group)) % 50
    assert [coordinator_partition(group, 50) for _ in range(2)] == [expected, expected]


def test_negative_hashes_are_not_masked() -> None:
    """Masking the sign bit, as the producer's partitioner does, would select another broker."""
    negative = next(name for name in (f"group-{i}" for i in range(1_000)) if java_string_hash(name) < 0)
    assert coordinator_partition(negative, 50) == -java_string_hash(negative) % 50


# --- deadlines ---


def key(name: str) -> TimerKey:
    return TimerKey("t", name)


def test_deadlines_fire_in_order_and_once() -> None:
    queue = TimerQueue()
    queue.schedule(key("b"), 2.0)
    queue.schedule(key("a"), 1.0)
    assert queue.next_deadline() == 1.0
    assert queue.pop_due(0.9) is None
    assert [queue.pop_due(5), queue.pop_due(5), queue.pop_due(5)] == [key("a"), key("b"), None]
    assert queue.next_deadline() is None


def test_rescheduled_deadline_moves() -> None:
    queue = TimerQueue()
    queue.schedule(key("a"), 1.0)
    queue.schedule(key("a"), 3.0)
    assert queue.next_deadline() == 3.0
    queue.schedule(key("a"), 2.0)
    assert (queue.next_deadline(), queue.deadline(key("a")), len(queue)) == (2.0, 2.0, 1)
    assert queue.pop_due(2.0) == key("a")
    assert queue.pop_due(9.0) is None


def test_cancelled_deadline_does_not_fire() -> None:
    queue = TimerQueue()
    queue.schedule(key("a"), 1.0)
    queue.cancel(key("a"))
    queue.cancel(key("a"))
    assert (queue.pop_due(9), key("a") in queue) == (None, False)


def test_heartbeats_do_not_grow_the_heap() -> None:
    queue = TimerQueue()
    for beat in range(10_000):
        queue.schedule(key("a"), float(beat))
    for i in range(10_000):
        queue.schedule(key(f"m{i}"), 5.0)
        queue.cancel(key(f"m{i}"))
    assert len(queue._heap) < 200


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.one_of(st.none(), st.integers(0, 20)), st.integers(0, 20))))
def test_queue_behaves_like_a_table_of_deadlines(steps: list[tuple[str, int | None, int]]) -> None:
    queue, table = TimerQueue(), dict[TimerKey, float]()
    for name, at, now in steps:
        if at is None:
            queue.cancel(key(name))
            table.pop(key(name), None)
        else:
            queue.schedule(key(name), float(at))
            table[key(name)] = float(at)
        assert queue.is_due_before(now) == any(deadline < now for deadline in table.values())
        assert queue.next_deadline() == min(table.values(), default=None)
        while (due := queue.pop_due(now)) is not None:
            assert table.pop(due) <= now
        assert all(deadline > now for deadline in table.values())


# --- the journal ---


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.one_of(st.none(), st.integers())), max_size=20),
    st.lists(st.integers(0, 20), max_size=5),
)
def test_journal_returns_the_values_at_the_high_watermark(
    changes: list[tuple[str, int | None]], watermarks: list[int]
) -> None:
    journal: Journal[str, int] = Journal()
    newest: dict[str, int] = {}
    history = [dict(newest)]
    for offset, (name, value) in enumerate(changes):
        journal.note(offset, name, newest.get(name))
        if value is None:
            newest.pop(name, None)
        else:
            newest[name] = value
        history.append(dict(newest))
    for high_watermark in sorted(watermarks):
        journal.commit(high_watermark)
        committed = history[min(high_watermark, len(changes))]
        assert {n: journal.committed(n, newest.get(n)) for n in "ab"} == {n: committed.get(n) for n in "ab"}
    journal.commit(len(changes))
    assert (len(journal), list(journal)) == (0, [])


def test_journal_indexes_changes_by_group() -> None:
    journal: Journal[tuple[str, int], int] = Journal(lambda key: key[0])
    for offset, key in enumerate([("a", 1), ("b", 1), ("a", 2), ("a", 1)]):
        journal.note(offset, key, None)
    assert (list(journal.owners()), list(journal.keys_of("a")), list(journal.keys_of("x"))) == (
        ["a", "b"],
        [("a", 1), ("a", 2)],
        [],
    )
    journal.commit(3)
    assert (list(journal.owners()), list(journal.keys_of("a"))) == (["a"], [("a", 1)])
    journal.commit(4)
    assert list(journal.owners()) == []


# --- subscriptions ---


def test_subscribed_topics_is_the_union_over_members() -> None:
    assert subscribed_topics([subscription("a", "b"), subscription("b", "c")]) == {"a", "b", "c"}
    assert subscribed_topics([]) == frozenset()


@pytest.mark.parametrize("version", range(4))
def test_subscriptions_of_every_version_are_read(version: int) -> None:
    message = ConsumerProtocolSubscription(
        topics=["a"],
        user_data=b"x",
        owned_partitions=[OwnedTopic(topic="a", partitions=[1])],
        generation_id=3,
        rack_id="r",
    )
    assert subscribed_topics([version.to_bytes(2, "big") + message.encode(version)]) == {"a"}


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_subscription_without_the_fields_of_its_version_is_readable(version: int) -> None:
    """As in Kafka's ``ClassicGroup``: an unreadable subscription would block the expiry of all offsets.

    @platformatic/kafka writes version 1 without owned partitions.
    """
    encoded = ConsumerProtocolSubscription(topics=["a"], user_data=b"x").encode(0)
    assert subscribed_topics([version.to_bytes(2, "big") + encoded]) == frozenset({"a"})


@pytest.mark.parametrize(
    "metadata", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\0\x7f\xff\xff\xff", b"\0\0\0\0\0\x01\0\x05ab"]
)
def test_unreadable_subscription_makes_the_topics_unknown(metadata: bytes) -> None:
    assert subscribed_topics([subscription("a"), metadata]) is None


# --- replies ---


async def test_only_the_first_answer_counts() -> None:
    reply: Reply[int] = Reply()
    reply.set(1)
    reply.set(2)
    reply.fail(NotCoordinatorError("late"))
    assert await answer_to(reply) == 1


async def test_failed_reply_raises_its_error() -> None:
    reply: Reply[int] = Reply()
    reply.fail(NotCoordinatorError("gone"))
    reply.set(1)
    with pytest.raises(NotCoordinatorError, match="gone"):
        await answer_to(reply)


def test_reply_without_an_answer_has_no_value() -> None:
    with pytest.raises(RuntimeError, match="has no answer yet"):
        _ = Reply[int]().value


# --- effects ---


def test_encoded_records_after_other_records_are_rejected() -> None:
    """They are paired with the first changes by position."""
    effects: Effects[str] = Effects(Moment(0.0, 0), TimerQueue())
    effects.write_encoded(["a", "b"], [CoordinatorRecord(b"a", None), CoordinatorRecord(b"b", None)])
    effects.write_encoded(["c"], [CoordinatorRecord(b"c", None)])
    effects.write("d")
    with pytest.raises(IllegalStateError):
        effects.write_encoded(["e"], [CoordinatorRecord(b"e", None)])
    assert (effects.records, len(effects.encoded)) == (["a", "b", "c", "d"], 3)
