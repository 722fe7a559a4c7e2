"""Calls in both directions between a thread and a task of the loop.

The SDK's consumer is used by one task and calls its rebalance listener in that task. kafka-python's programs expect
their listener to run in the thread that polls, where it may use the consumer. So one task executes all calls of the
thread in order. While the task waits for the thread to run a listener, it also executes the listener's calls.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import trio

from triokafka.errors import ClosedError, IllegalStateError
from triokafka.loop_thread import LoopThread, take

T = TypeVar("T")

LATER: Final = object()
"""The result of work whose answer comes by `Conversation.answer_later`."""


class _Question:
    """A call from a thread to the task, or, if ``work`` is None, the answer to a call from the task.

    ``replies`` only grows, and ``replied`` counts the processed ones: an element taken from a queue would be lost if a
    signal handler raised at that moment.
    """

    __slots__ = ("arguments", "arrived", "replied", "replies", "scope", "work")

    def __init__(self, work: Callable[..., Awaitable[Any]] | None, arguments: tuple[Any, ...]) -> None:
        self.work = work
        self.arguments = arguments
        self.arrived = False
        self.replies: list[tuple[str, Any, Any]] = []
        self.replied: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.scope = trio.CancelScope()

    def reply(self, kind: str, first: Any, second: Any) -> None:
        """Send the thread ``"done"`` (value, error), or ``"run"`` (number, function)."""
        self.replies.append((kind, first, second))
        self.replied.put(None)


def _nothing() -> None:
    """The answer of an interrupted thread to a call from the task."""


class Conversation:
    """Threads use `ask`; the task uses `serve` and `ask_back`."""

    def __init__(self, loop: LoopThread) -> None:
        self._loop = loop
        self._questions: deque[_Question] = deque()
        self._arrived = trio.Event()
        self._current: _Question | None = None
        self._held: _Question | None = None
        self._answering = 0
        self._over = False

    # ---------------------------------------------------------------- the thread

    def ask(self, work: Callable[..., Awaitable[T]], *arguments: Any) -> T:
        """Have the task run ``work``; wait for the end, and return its result or raise its error.

        Meanwhile this thread runs the functions of `ask_back`. If a signal handler raises here, the work is cancelled,
        and the exception is re-raised when the work has ended.

        Raises:
            ClosedError: the task has ended.
        """
        if self._loop.is_current_thread:
            raise IllegalStateError("a blocking call in a callback of the loop would wait for itself")
        question = _Question(work, arguments)
        interrupt: BaseException | None = None
        replies, seen, sent = question.replies, 0, False
        while not (seen and replies[seen - 1][0] == "done"):
            try:
                if not sent and interrupt is None:
                    if not self._loop.soon(self._arrive, question):
                        question.reply(
                            "done", None, ClosedError("the loop has ended: the interpreter is shutting down")
                        )
                    sent = True
                while len(replies) <= seen:
                    take(question.replied)
                kind, first, second = replies[seen]
                seen += 1
                if kind == "run":
                    # After an interrupt no further function runs, but the asking task needs an answer.
                    self._run_here(first, second if interrupt is None else _nothing)
            except BaseException as error:
                interrupt = interrupt or error
                if not self._loop.soon(self._give_up, question):
                    question.reply("done", None, None)
        _, first, second = replies[seen - 1]
        if interrupt is not None:
            raise interrupt
        if second is not None:
            try:
                raise second
            finally:
                del second
        return first  # type: ignore[no-any-return]

    def post(self, work: Callable[..., Awaitable[Any]]) -> None:
        """Have the task run ``work`` without waiting for it. In the loop."""
        self._arrive(_Question(work, ()))

    def _run_here(self, number: int, do: Callable[[], Any]) -> None:
        answer: tuple[int, Any, Exception | None] = (number, None, None)
        try:
            answer = (number, do(), None)
        except Exception as error:
            answer = (number, None, error)
        finally:
            self._loop.soon(self._arrive, _Question(None, answer))

    # ---------------------------------------------------------------- the task

    def _give_up(self, question: _Question) -> None:
        question.scope.cancel()
        if not question.arrived:  # interrupted before it was sent; no answer will come
            question.arrived = True
            question.reply("done", None, None)

    def _arrive(self, question: _Question) -> None:
        question.arrived = True
        if self._over:
            question.reply("done", None, ClosedError("the client is closed"))
            return
        self._questions.append(question)
        self._arrived.set()

    async def serve(self, is_over: Callable[[], bool]) -> None:
        """Execute the threads' calls until ``is_over``."""
        while not is_over():
            question = await self._next()
            if question.work is not None:
                await self._do(question)

    async def _next(self) -> _Question:
        while not self._questions:
            self._arrived = trio.Event()
            await self._arrived.wait()
        return self._questions.popleft()

    async def _do(self, question: _Question) -> None:
        assert question.work is not None
        before, self._current = self._current, question
        value: Any = None
        error: BaseException | None = ClosedError("the call was cancelled")
        try:
            with question.scope:
                value, error = await question.work(*question.arguments), None
        except Exception as raised:
            error = raised
        finally:
            self._current = before
            if value is not LATER:
                question.reply("done", value, error)

    def answer_later(self) -> Callable[[BaseException | None], None]:
        """Return a function that answers the present call. The work of that call returns `LATER` and calls it
        afterwards.

        Until the next call begins, `ask_back` still addresses the thread of this one.
        """
        question = self._held = self._current
        assert question is not None
        return lambda error: question.reply("done", None, error)

    async def ask_back(self, do: Callable[[], Any]) -> Any:
        """Have the thread whose call is being executed run ``do``; return its result or raise its error.

        Executes that thread's calls meanwhile. If no thread waits, ``do`` is not called and the result is None.
        """
        asker = self._current or self._held
        if asker is None:
            return None
        self._answering += 1
        number = self._answering
        asker.reply("run", number, do)
        while True:
            question = await self._next()
            if question.work is not None:
                await self._do(question)
            elif question.arguments[0] == number:
                _, value, error = question.arguments
                if error is not None:
                    raise error
                return value

    def end(self) -> None:
        """Refuse all later calls."""
        self._over = True
        while self._questions:
            self._questions.popleft().reply("done", None, ClosedError("the client is closed"))
