"""The program's calls to the task of its consumer, without an asyncio loop: `ProgramCalls`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any

import pytest
import trio

from triokafka.asyncio.consumer.calls import ProgramCalls
from triokafka.asyncio.errors import ConsumerStoppedError, IllegalStateError


class _Future:
    """As asyncio's, for tasks of Trio."""

    def __init__(self) -> None:
        self._event = trio.Event()
        self._value: Any = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        return self._event.is_set()

    def cancelled(self) -> bool:
        return False

    def set_result(self, value: Any) -> None:
        self._value = value
        self._event.set()

    def set_exception(self, error: BaseException) -> None:
        self._error = error
        self._event.set()

    def __await__(self) -> Generator[Any, Any, Any]:
        yield from self._event.wait().__await__()
        if self._error is not None:
            raise self._error
        return self._value


def _at_once(do: Callable[..., object], *arguments: Any) -> bool:
    do(*arguments)
    return True


def _calls(arrivals: list[str] | None = None) -> ProgramCalls:
    seen: list[str] = [] if arrivals is None else arrivals
    bridge: Any = SimpleNamespace(
        loop=SimpleNamespace(create_future=_Future),
        trio_loop=SimpleNamespace(soon=_at_once),
        post=_at_once,
        check_seconds=60.0,
        is_closed=False,
    )
    return ProgramCalls(bridge, on_arrival=lambda: seen.append("arrival"), after_each=lambda: seen.append("executed"))


async def _double(number: int) -> int:
    return 2 * number


async def test_call_returns_what_the_task_has_computed() -> None:
    seen: list[str] = []
    calls = _calls(seen)
    calls.begin()
    found: list[int] = []

    async def ask() -> None:
        found.append(await calls.ask(_double, 21))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await calls.wait(60)
        await calls.run_next()
    assert found == [42]
    assert seen == ["arrival", "executed"]


async def test_call_before_the_begin_and_after_the_end_raises() -> None:
    calls = _calls()
    with pytest.raises(IllegalStateError, match="await start"):
        await calls.ask(_double, 1)
    calls.begin()
    calls.end()
    with pytest.raises(ConsumerStoppedError):
        await calls.ask(_double, 1)


async def test_end_fails_the_calls_that_wait() -> None:
    calls = _calls()
    calls.begin()

    async def ask() -> None:
        with pytest.raises(ConsumerStoppedError):
            await calls.ask(_double, 1)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await calls.wait(60)
        calls.end()
    assert not calls


async def test_error_of_the_work_reaches_the_caller_alone() -> None:
    calls = _calls()
    calls.begin()

    async def refuse() -> None:
        raise ValueError("refused")

    async def ask() -> None:
        with pytest.raises(ValueError, match="refused"):
            await calls.ask(refuse)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await calls.wait(60)
        await calls.run_next()


async def test_call_of_a_listener_is_executed_while_the_task_waits_for_the_listener() -> None:
    seen: list[str] = []
    calls = _calls(seen)
    calls.begin()
    answers: list[int] = []

    def listener() -> str:
        nursery.start_soon(ask)
        return "heard"

    async def ask() -> None:
        assert calls.is_calling_back
        answers.append(await calls.ask(_double, 4))
        answered.set()

    answered = trio.Event()
    replies: list[Callable[[], object]] = []

    def soon(do: Callable[..., object], *arguments: Any) -> bool:
        if arguments and arguments[0] == "heard":
            replies.append(lambda: do(*arguments))
        else:
            do(*arguments)
        return True

    calls._bridge.trio_loop.soon = soon  # type: ignore[method-assign]

    async def reply() -> None:
        await answered.wait()
        replies.pop()()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(reply)
        assert await calls.call_back(listener) == "heard"
    assert answers == [8]
    assert seen == ["executed"], "a call during the listener's interrupts no poll"
    assert not calls.is_calling_back


def test_error_of_a_call_without_answer_is_only_logged() -> None:
    def refuse() -> None:
        raise ValueError("refused")

    _calls().soon(refuse)
