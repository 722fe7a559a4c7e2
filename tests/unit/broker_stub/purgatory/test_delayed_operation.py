"""Delayed operations and their purgatory."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import trio

from triokafka.broker_stub.purgatory.delayed_operation import DelayedOperation, Expirer, Purgatory
from triokafka.world.system import RealWorld


class Countdown(DelayedOperation):
    """Completes once its condition holds; remembers what happened to it."""

    def __init__(self, timeout_ms: int, condition: Callable[[], bool] = lambda: False) -> None:
        super().__init__(timeout_ms)
        self.condition = condition
        self.tries = 0
        self.completions = 0
        self.expirations = 0

    def try_complete(self) -> bool:
        self.tries += 1
        return self.condition() and self.force_complete()

    def on_complete(self) -> None:
        self.completions += 1

    def on_expiration(self) -> None:
        self.expirations += 1


def test_condition_that_holds_already_completes_without_watching() -> None:
    """The operation is tried before it is put into any list."""
    purgatory = Purgatory("test", now_ms=0)
    operation = Countdown(100, lambda: True)
    assert purgatory.try_complete_else_watch(operation, ["a"], 0)
    assert (operation.completions, purgatory.watched, purgatory.delayed) == (1, 0, 0)


def test_change_between_first_try_and_watching_is_not_lost() -> None:
    """It is tried once more after it is in the lists."""
    purgatory = Purgatory("test", now_ms=0)
    operation = Countdown(100)
    operation.condition = lambda: operation.tries == 2
    assert purgatory.try_complete_else_watch(operation, ["a"], 0)
    assert operation.completions == 1
    assert purgatory.delayed == 0


def test_operation_completes_once_though_condition_and_timeout_race() -> None:
    """The later of the two does nothing; the expiry work is done only after a timeout."""
    purgatory = Purgatory("test", now_ms=0)
    ready = False
    operation = Countdown(100, lambda: ready)
    assert not purgatory.try_complete_else_watch(operation, ["a", "b"], 0)
    ready = True
    assert purgatory.check_and_complete("a") == 1
    assert purgatory.check_and_complete("b") == 0
    assert purgatory.advance(1000) == 0
    assert not operation.force_complete()
    assert (operation.completions, operation.expirations) == (1, 0)


def test_timeout_completes_a_pending_operation() -> None:
    purgatory = Purgatory("test", now_ms=0)
    operation = Countdown(100)
    purgatory.try_complete_else_watch(operation, ["a"], 0)
    assert purgatory.advance(99) == 0
    assert purgatory.advance(100) == 1
    assert (operation.completions, operation.expirations) == (1, 1)


def test_timeout_of_zero_completes_at_once_as_expired() -> None:
    purgatory = Purgatory("test", now_ms=50)
    operation = Countdown(0)
    assert purgatory.try_complete_else_watch(operation, ["a"], 50)
    assert (operation.completions, operation.expirations) == (1, 1)


def test_check_of_an_unknown_key_does_nothing() -> None:
    assert Purgatory("test", now_ms=0).check_and_complete("nobody") == 0


def test_operation_without_keys_is_refused() -> None:
    with pytest.raises(ValueError, match="key"):
        Purgatory("test", now_ms=0).try_complete_else_watch(Countdown(1), [], 0)


def test_stale_entries_are_swept_once_enough_of_them_linger() -> None:
    """An expired operation stays in its lists until there are more of them than the purge interval."""
    purgatory = Purgatory("test", now_ms=0, purge_interval=10)
    for number in range(10):
        purgatory.try_complete_else_watch(Countdown(5), [f"key-{number}"], 0)
    purgatory.advance(5)
    assert purgatory.watched == 10
    purgatory.try_complete_else_watch(Countdown(5), ["one more"], 5)
    purgatory.advance(10)
    assert purgatory.watched == 0


def test_completing_one_may_watch_another_under_the_same_key() -> None:
    """An operation that is added while its key is checked is neither lost nor checked in an endless loop."""
    purgatory = Purgatory("test", now_ms=0)
    second = Countdown(100)

    class Chained(Countdown):
        def on_complete(self) -> None:
            super().on_complete()
            purgatory.try_complete_else_watch(second, ["a"], 0)

    first = Chained(100)
    purgatory.try_complete_else_watch(first, ["a"], 0)
    first.condition = lambda: True
    assert purgatory.check_and_complete("a") == 1
    assert purgatory.watched == 1
    assert purgatory.cancel_key("a") == [second]


async def test_work_after_one_timeout_does_not_delay_the_others(autojump_clock: object) -> None:
    """A timeout wakes the waiting task, which does the work itself."""
    world = RealWorld()
    start = trio.current_time()
    purgatory = Purgatory("test", now_ms=int(start * 1000))
    answered: list[float] = []

    async def waiter(timeout_ms: int) -> None:
        operation = Countdown(timeout_ms)
        purgatory.try_complete_else_watch(operation, ["a"], int(start * 1000))
        await operation.wait()
        answered.append(round(trio.current_time() - start))
        await trio.sleep(60)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(Expirer(purgatory, world).run)
        for seconds in (1, 1, 2, 3):
            nursery.start_soon(waiter, seconds * 1000)
        await trio.sleep(10)
        assert answered == [1, 1, 2, 3]
        nursery.cancel_scope.cancel()


async def test_expirer_sleeps_until_the_next_timer_and_notices_an_earlier_one(autojump_clock: object) -> None:
    """No polling: an operation completes at its time, also when added later and due earlier."""
    world = RealWorld()
    start = trio.current_time()
    purgatory = Purgatory("test", now_ms=int(start * 1000))
    late, early = Countdown(5_000), Countdown(1_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Expirer(purgatory, world).run)
        await trio.testing.wait_all_tasks_blocked()
        purgatory.try_complete_else_watch(late, ["a"], int(trio.current_time() * 1000))
        await trio.testing.wait_all_tasks_blocked()
        purgatory.try_complete_else_watch(early, ["a"], int(trio.current_time() * 1000))
        await early.wait()
        assert 0.99 <= trio.current_time() - start < 1.1
        assert not late.completed
        await late.wait()
        assert 4.99 <= trio.current_time() - start < 5.1
        nursery.cancel_scope.cancel()
