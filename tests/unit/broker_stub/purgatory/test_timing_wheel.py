"""The hierarchical timing wheel."""

from __future__ import annotations

from random import Random

from triokafka.broker_stub.purgatory.timing_wheel import TimingWheel


def test_timer_that_is_due_already_is_refused() -> None:
    """The caller handles it."""
    wheel: TimingWheel[str] = TimingWheel(100)
    assert wheel.add("late", 100) is None
    assert wheel.add("on time", 101) is not None
    assert len(wheel) == 1


def test_long_timer_is_demoted_level_by_level_and_fires_on_time() -> None:
    """445 ms: level 3, then 2, then 1."""
    wheel: TimingWheel[str] = TimingWheel(0)
    wheel.add("a", 445)
    seen = []
    while (due := wheel.next_expiry_ms()) is not None:
        seen.append(due)
        fired = wheel.advance(due)
    assert seen == [400, 440, 445]
    assert fired == ["a"]
    assert len(wheel) == 0


def test_clock_may_jump_over_everything() -> None:
    """One call fires all timers that are due, however far the clock jumped."""
    wheel: TimingWheel[int] = TimingWheel(0)
    for delay in (1, 19, 20, 399, 400, 7_999, 8_000, 200_000):
        wheel.add(delay, delay)
    assert sorted(wheel.advance(200_000)) == [1, 19, 20, 399, 400, 7_999, 8_000, 200_000]
    assert wheel.next_expiry_ms() is None


def test_cancelled_timer_never_fires_and_is_counted_out_once() -> None:
    """Cancelling is idempotent, and safe after expiry."""
    wheel: TimingWheel[str] = TimingWheel(0)
    remaining, dropped = wheel.add("kept", 50), wheel.add("dropped", 50)
    assert remaining is not None and dropped is not None
    assert wheel.cancel(dropped)
    assert not wheel.cancel(dropped)
    assert len(wheel) == 1
    assert wheel.advance(50) == ["kept"]
    assert not wheel.cancel(remaining)
    assert len(wheel) == 0


def test_bucket_is_queued_once_per_revolution() -> None:
    """A thousand timers of one tick leave one entry in the queue of buckets."""
    wheel: TimingWheel[int] = TimingWheel(0)
    for number in range(1000):
        wheel.add(number, 7)
    assert len(wheel._queue) == 1
    assert len(wheel.advance(7)) == 1000


def test_wheel_equals_a_sorted_list_for_any_schedule() -> None:
    """Compared with a simple model: no timer is lost or early, and all fire in time."""
    for seed in range(60):
        rng = Random(seed)
        now = rng.randrange(10_000)
        wheel: TimingWheel[int] = TimingWheel(now)
        model: dict[int, int] = {}
        entries = {}
        for number in range(200):
            action = rng.random()
            if action < 0.6:
                expires = now + rng.choice([0, 1, 5, 19, 20, 21, 399, 400, 401, 8_000, 170_000, rng.randrange(300_000)])
                entry = wheel.add(number, expires)
                assert (entry is None) == (expires <= now)
                if entry is not None:
                    model[number], entries[number] = expires, entry
            elif action < 0.75 and model:
                number = rng.choice(sorted(model))
                assert wheel.cancel(entries[number])
                del model[number]
            else:
                now += rng.choice([0, 1, 2, 20, 137, 400, 9_000])
                fired = wheel.advance(now)
                due = {n for n, expires in model.items() if expires <= now}
                assert set(fired) == due, seed
                for n in due:
                    del model[n]
            assert len(wheel) == len(model)
            upcoming = wheel.next_expiry_ms()
            assert (upcoming is None) == (not model)
            assert upcoming is None or upcoming <= min(model.values())
