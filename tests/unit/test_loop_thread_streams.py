"""Streams between a Trio loop and another thread."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
import trio

from triokafka.loop_thread import LoopThread, loop_thread


class Source:
    """Items from 0 on, counted as they are made; ``closed`` tells that the iteration was left."""

    def __init__(self, count: int, error: Exception | None = None) -> None:
        self.made = 0
        self.waiting = threading.Event()
        self.closed = threading.Event()
        self._count = count
        self._error = error

    def open(self) -> AbstractAsyncContextManager[AsyncIterator[int]]:
        @asynccontextmanager
        async def opened() -> AsyncIterator[AsyncIterator[int]]:
            try:
                yield self._items()
            finally:
                self.closed.set()

        return opened()

    async def _items(self) -> AsyncIterator[int]:
        for number in range(self._count):
            await trio.lowlevel.checkpoint()
            self.made += 1
            yield number
        if self._error is not None:
            raise self._error


async def settled() -> None:
    await trio.testing.wait_all_tasks_blocked()


def test_a_process_has_one_loop_thread() -> None:
    assert loop_thread() is loop_thread()


def test_a_forked_child_has_a_loop_of_its_own() -> None:
    loop_thread()
    context = multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    child = context.Process(target=lambda: answers.put(list(loop_thread().iterate(Source(3).open))))
    child.start()
    child.join(30)
    assert child.exitcode == 0
    assert answers.get() == [0, 1, 2]


def test_call_returns_the_result_or_raises_the_error() -> None:
    async def work(fail: bool) -> str:
        await trio.lowlevel.checkpoint()
        if fail:
            raise ValueError("no")
        return "yes"

    assert loop_thread().call(lambda: work(False)) == "yes"
    with pytest.raises(ValueError, match="no"):
        loop_thread().call(lambda: work(True))


def test_items_come_in_order_and_the_iteration_is_left() -> None:
    source = Source(100)
    assert list(loop_thread().iterate(source.open)) == list(range(100))
    assert source.closed.wait(10)


def test_an_error_comes_after_the_items_before_it() -> None:
    items = loop_thread().iterate(Source(2, ValueError("torn")).open)
    assert [next(items), next(items)] == [0, 1]
    with pytest.raises(ValueError, match="torn"):
        next(items)


def test_an_error_on_opening_reaches_the_caller() -> None:
    def broken() -> AbstractAsyncContextManager[AsyncIterator[int]]:
        raise ValueError("not even begun")

    with pytest.raises(ValueError, match="not even begun"):
        next(loop_thread().iterate(broken))


def test_no_more_than_the_bound_waits_for_a_slow_caller() -> None:
    own = LoopThread()
    source = Source(1_000)
    items = own.iterate(source.open, ahead=2)
    next(items)
    own.call(settled)
    # One was taken, two wait, and one is in the hands of the task that waits for room.
    assert source.made == 4
    items.close()  # type: ignore[attr-defined]


def test_closing_the_iterator_cancels_the_iteration() -> None:
    """Spark throws ``GeneratorExit`` into a read as soon as a LIMIT is reached."""
    source = Source(1_000_000)
    items = loop_thread().iterate(source.open)
    next(items)
    items.close()  # type: ignore[attr-defined]
    assert source.closed.wait(10)
    assert source.made < 10


def test_forgetting_the_iterator_cancels_the_iteration() -> None:
    source = Source(1_000_000)
    items = loop_thread().iterate(source.open)
    next(items)
    del items
    assert source.closed.wait(10)


def test_a_caller_does_not_wait_for_a_loop_that_has_ended() -> None:
    own = LoopThread()
    items = own.iterate(Source(1_000_000).open)
    next(items)

    async def end() -> None:
        own._nursery.cancel_scope.cancel()

    own.call(end)
    with pytest.raises(Exception, match="has ended"):
        for _ in items:
            pass
    own._thread.join(10)
    assert not own.alive


def test_work_receives_the_items_of_the_thread_and_returns_a_result() -> None:
    async def total(numbers: trio.MemoryReceiveChannel[int]) -> int:
        return sum([number async for number in numbers])

    assert loop_thread().feed(range(100), total) == 4950
    assert loop_thread().feed([], total) == 0


def test_few_items_wait_for_work_that_is_slow() -> None:
    taken = threading.Event()
    made: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(10):
            made.append(number)
            if number == 2:
                # The third was asked for while one was worked on and one waited: now the work may go on.
                assert not taken.is_set()
                loop_thread().call(let_go)
            yield number

    async def let_go() -> None:
        taken.set()
        go_on.set()

    go_on = trio.Event()

    async def slowly(given: trio.MemoryReceiveChannel[int]) -> int:
        count = 0
        async for _ in given:
            await go_on.wait()
            count += 1
        return count

    assert loop_thread().feed(numbers(), slowly) == 10
    assert made == list(range(10))


def test_error_of_the_work_ends_the_iteration_and_is_raised() -> None:
    asked: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(1_000_000):
            asked.append(number)
            yield number

    async def fail(given: trio.MemoryReceiveChannel[int]) -> None:
        async for number in given:
            if number == 3:
                raise ValueError("three")

    with pytest.raises(ValueError, match="three"):
        loop_thread().feed(numbers(), fail)
    assert len(asked) < 10


def test_an_iteration_that_fails_cancels_the_work_and_waits_for_its_end() -> None:
    ended: list[str] = []

    def numbers() -> Iterator[int]:
        yield 1
        raise OSError("no more")

    async def wait(given: trio.MemoryReceiveChannel[int]) -> None:
        try:
            async for _ in given:
                pass
            ended.append("without knowing")
        finally:
            ended.append("cleaned up")

    with pytest.raises(OSError, match="no more"):
        loop_thread().feed(numbers(), wait)
    assert ended == ["cleaned up"]


def test_call_that_fails_is_logged_and_leaves_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise AttributeError("a defect")

    async def number() -> int:
        return 5

    loop = LoopThread()
    loop.soon(fail)
    assert loop.call(number) == 5
    assert "a scheduled call failed" in caplog.text
    loop.end()
