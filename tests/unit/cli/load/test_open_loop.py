"""The schedule that does not wait for answers, and the events that wake its sender."""

from __future__ import annotations

import math
import time

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from triokafka.cli.load.open_loop import Schedule, Ticker


class Clock:
    """A clock that the test sets."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def test_records_become_due_one_by_one() -> None:
    clock = Clock(10.0)
    schedule = Schedule(100, 5, start=10.0, clock=clock)
    assert list(schedule.due()) == [0]
    assert list(schedule.due()) == []
    clock.now = 10.0101
    assert list(schedule.due()) == [1]
    assert schedule.seconds_left() == pytest.approx(0.0099)


def test_stalled_sender_receives_all_records_that_became_due() -> None:
    clock = Clock(0.0)
    schedule = Schedule(1000, 10_000, start=0.0, clock=clock)
    schedule.due()
    clock.now = 2.0
    late = schedule.due()
    assert len(late) == 2000
    # The wait of the first of them counts from when it was meant to be sent.
    assert clock.now - schedule.intended(late.start) == pytest.approx(1.999)


def test_nothing_is_due_before_the_start_or_after_the_last_record() -> None:
    clock = Clock(0.0)
    schedule = Schedule(10, 3, start=1.0, clock=clock)
    assert not schedule.due()
    clock.now = 100.0
    assert list(schedule.due()) == [0, 1, 2]
    assert schedule.ended
    assert not schedule.due()


@given(rate=st.floats(0.1, 1e6), steps=st.lists(st.floats(0, 0.5), max_size=20))
def test_every_record_is_given_once_in_order_and_never_early(rate: float, steps: list[float]) -> None:
    clock = Clock(1e5)
    schedule = Schedule(rate, 1000, start=1e5, clock=clock)
    given_out: list[int] = []
    for step in steps:
        clock.now += step
        due = schedule.due()
        given_out += due
        assert all(schedule.intended(number) <= clock.now for number in due)
    assert given_out == list(range(len(given_out)))


def test_rounding_makes_no_record_due_early() -> None:
    clock = Clock(0.1)
    schedule = Schedule(3.0, 1000, start=0.1, clock=clock)
    clock.now = math.nextafter(schedule.intended(314), 0.0)
    assert schedule.due() == range(314)
    clock.now = schedule.intended(314)
    assert list(schedule.due()) == [314]


def test_a_rate_is_more_than_nothing() -> None:
    with pytest.raises(ValueError, match="more than 0"):
        Schedule(0, 1, start=0.0)


async def test_the_ticker_wakes_the_sender_for_every_record() -> None:
    schedule = Schedule(2000, 50, start=time.perf_counter() + 0.005)
    sent: list[int] = []
    with Ticker(schedule) as ticker, trio.fail_after(30):
        while not schedule.ended:
            await ticker.wait()
            sent += schedule.due()
    assert sent == list(range(50))


def test_the_ticker_wakes_a_thread_for_every_record() -> None:
    schedule = Schedule(2000, 50, start=time.perf_counter() + 0.005)
    sent: list[int] = []
    with Ticker(schedule) as ticker:
        while not schedule.ended:
            ticker.wait_blocking()
            sent += schedule.due()
    assert sent == list(range(50))


async def test_without_the_kernels_timer_the_ticker_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triokafka.cli.load.open_loop._timer", lambda schedule: None)
    schedule = Schedule(2000, 20, start=time.perf_counter())
    sent: list[int] = []
    with Ticker(schedule) as ticker, trio.fail_after(30):
        assert ticker.fd is None
        while not schedule.ended:
            await ticker.wait()
            sent += schedule.due()
            if not schedule.ended:
                ticker.wait_blocking()
                sent += schedule.due()
    assert sent == list(range(20))
