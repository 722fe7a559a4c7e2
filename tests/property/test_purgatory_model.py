"""Delayed operations against a model without wheels and watch lists.

An operation completes exactly once: at the first check of one of its keys while its condition holds, or otherwise at
its timeout. The timing wheel itself is compared with a sorted list.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from triokafka.broker_stub.purgatory.delayed_operation import DelayedOperation, Purgatory
from triokafka.broker_stub.purgatory.timing_wheel import TimingWheel

KEYS = range(4)
PURGE_INTERVAL = 5
DELAYS = st.sampled_from([0, 1, 2, 19, 20, 21, 399, 400, 401, 7_999, 8_000, 8_001, 200_000])


class Recorded(DelayedOperation):
    """Records how it ended."""

    def __init__(self, number: int, timeout_ms: int, holds: Callable[[int], bool]) -> None:
        super().__init__(timeout_ms)
        self.number = number
        self.holds = holds
        self.completions = 0
        self.expirations = 0
        self.on_completed: Callable[[], None] = lambda: None

    def try_complete(self) -> bool:
        return self.holds(self.number) and self.force_complete()

    def on_complete(self) -> None:
        self.completions += 1
        self.on_completed()

    def on_expiration(self) -> None:
        self.expirations += 1


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("watch"), DELAYS, st.sets(st.sampled_from(KEYS), min_size=1), st.booleans()),
        st.tuples(st.just("become true"), st.integers(0, 60)),
        st.tuples(st.just("check"), st.sampled_from(KEYS)),
        st.tuples(st.just("cancel"), st.sampled_from(KEYS)),
        st.tuples(st.just("pass"), DELAYS),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(ACTIONS)
def test_every_operation_completes_once_by_the_first_of_check_and_time(actions: list[tuple[object, ...]]) -> None:
    purgatory = Purgatory("test", now_ms=1000, purge_interval=PURGE_INTERVAL)
    now = 1000
    true: set[int] = set()
    operations: list[Recorded] = []
    # number: when it times out, and the keys whose checks may complete it
    waiting: dict[int, tuple[int, set[int]]] = {}
    expired: set[int] = set()

    for action in actions:
        match action:
            case ("watch", int(delay), set(keys), bool(holds)):
                number = len(operations)
                if holds:
                    true.add(number)
                operation = Recorded(number, delay, true.__contains__)
                operations.append(operation)
                completed = purgatory.try_complete_else_watch(operation, sorted(keys), now)
                assert completed == (holds or delay == 0)
                if not completed:
                    waiting[number] = (now + delay, set(keys))
                elif not holds:
                    expired.add(number)
            case ("become true", int(number)) if number < len(operations):
                true.add(number)
            case ("check", int(key)):
                due = {number for number, (_, keys) in waiting.items() if key in keys and number in true}
                assert purgatory.check_and_complete(key) == len(due)
                for number in due:
                    del waiting[number]
            case ("cancel", int(key)):
                cancelled = {operation.number for operation in purgatory.cancel_key(key)}  # type: ignore[attr-defined]
                assert cancelled == {number for number, (_, keys) in waiting.items() if key in keys}
                for number in cancelled:
                    waiting[number][1].discard(key)
            case ("pass", int(delay)):
                now += delay
                due = {number for number, (expires, _) in waiting.items() if expires <= now}
                assert purgatory.advance(now) == len(due)
                expired |= due
                for number in due:
                    del waiting[number]
                live = sum(len(keys) for _, keys in waiting.values())
                assert live <= purgatory.watched <= live + (PURGE_INTERVAL + len(waiting)) * len(KEYS)
        for operation in operations:
            assert operation.completed == (operation.number not in waiting)
            assert operation.completions == int(operation.completed)
            assert operation.expirations == int(operation.number in expired)
        assert purgatory.delayed == len(waiting)
        assert purgatory.expirations == len(expired)
    upcoming = purgatory.next_expiry_ms()
    assert (upcoming is None) == (not waiting)
    assert upcoming is None or upcoming <= min(expires for expires, _ in waiting.values())
    purgatory.complete_all()
    for operation in operations:
        _, keys = waiting.get(operation.number, (0, {0}))
        assert operation.completions == int(bool(keys))  # an operation whose keys are all cancelled is complete


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(KEYS)), min_size=1, max_size=20))
def test_operations_that_complete_each_other_complete_once(edges: list[tuple[int, int]]) -> None:
    """Completing one may check keys of others, and of itself, at once."""
    purgatory = Purgatory("test", now_ms=0)
    opened = False
    operations = []
    for number, (key, then) in enumerate(edges):
        operation = Recorded(number, 100, lambda _: opened)
        operation.on_completed = lambda then=then: purgatory.check_and_complete(then)  # type: ignore[assignment, misc]
        operations.append((key, operation))
        purgatory.try_complete_else_watch(operation, [key], 0)
    opened = True
    first = edges[0][0]
    purgatory.check_and_complete(first)
    reached, new = set[int](), {first}
    while new:
        reached |= new
        new = {then for key, then in edges if key in reached} - reached
    for key, operation in operations:
        assert operation.completions == int(key in reached)
    assert purgatory.delayed == sum(key not in reached for key, _ in operations)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 100_000),
    st.integers(1, 5),
    st.integers(2, 20),
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.one_of(DELAYS, st.integers(0, 300_000))),
            st.tuples(st.just("cancel"), st.integers(0, 100)),
            st.tuples(st.just("pass"), st.one_of(DELAYS, st.integers(0, 20_000))),
        ),
        max_size=80,
    ),
)
def test_wheel_of_any_size_equals_a_sorted_list(
    start: int, tick_ms: int, wheel_size: int, actions: list[tuple[str, int]]
) -> None:
    """The wheel is exact with a tick of 1 ms; with a longer one a timer is at most a tick early, never late."""
    wheel: TimingWheel[int] = TimingWheel(start, tick_ms=tick_ms, wheel_size=wheel_size)
    now = start
    timers: list[tuple[int, int]] = []  # expiry and number, sorted
    entries = {}
    for number, (action, amount) in enumerate(actions):
        if action == "add":
            entry = wheel.add(number, now + amount)
            due = (now + amount) // tick_ms <= now // tick_ms
            assert (entry is None) == due
            if entry is not None:
                entries[number] = entry
                timers = sorted([*timers, (now + amount, number)])
        elif action == "cancel" and timers:
            _, cancelled = timers.pop(amount % len(timers))
            assert wheel.cancel(entries[cancelled])
            assert not wheel.cancel(entries[cancelled])
        elif action == "pass":
            now += amount
            fired = wheel.advance(now)
            limit = now - now % tick_ms + tick_ms - 1
            assert sorted(fired) == sorted(number for expires, number in timers if expires <= limit)
            timers = [timer for timer in timers if timer[0] > limit]
        assert len(wheel) == len(timers)
        upcoming = wheel.next_expiry_ms()
        assert (upcoming is None) == (not timers)
        assert upcoming is None or upcoming <= timers[0][0]
