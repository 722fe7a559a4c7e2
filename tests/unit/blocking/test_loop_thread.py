"""The loop thread of blocking clients, and calls to a task in it."""

from __future__ import annotations

import _thread
import logging
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio

from triokafka.blocking.conversation import LATER, Conversation
from triokafka.errors import ClosedError, IllegalStateError
from triokafka.loop_thread import fork_count, loop_thread


async def double(number: int) -> int:
    await trio.lowlevel.checkpoint()
    return 2 * number


def test_calls_return_and_raise_what_the_work_does() -> None:
    assert loop_thread().call(double, 4) == 8
    assert loop_thread() is loop_thread()

    async def fail() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        loop_thread().call(fail)


def test_a_task_that_fails_takes_nothing_else_with_it(caplog: pytest.LogCaptureFixture) -> None:
    failed = threading.Event()

    async def fail() -> None:
        failed.set()
        raise RuntimeError("mine")

    with caplog.at_level(logging.ERROR):
        loop_thread().start(fail, name="failing")
        assert failed.wait(10)
        assert loop_thread().call(double, 1) == 2
    assert "a background task failed" in caplog.text


def test_an_exception_in_the_waiting_thread_cancels_the_work() -> None:
    """A signal's handler raises it. When the call raises it, the work has ended."""
    ended = threading.Event()

    async def work() -> None:
        try:
            os.kill(os.getpid(), 2)
            await trio.sleep_forever()
        finally:
            ended.set()

    with pytest.raises(KeyboardInterrupt):
        loop_thread().call(work)
    assert ended.is_set()


def test_a_signal_that_does_not_wake_the_waiting_thread_is_handled_all_the_same() -> None:
    """As one that arrives just before the thread falls asleep."""

    async def work() -> None:
        _thread.interrupt_main()  # notes the signal, and interrupts no wait
        await trio.sleep_forever()

    talk = Talk()
    for call in (loop_thread().call, talk.conversation.ask):
        with pytest.raises(KeyboardInterrupt):
            call(work)
    talk.conversation.ask(talk.close)


def test_a_forked_child_has_a_loop_of_its_own() -> None:
    forks = fork_count()
    assert loop_thread().call(double, 1) == 2
    child = os.fork()
    if not child:
        try:
            right = fork_count() == forks + 1 and loop_thread().call(double, 21) == 42
            os._exit(0 if right else 1)
        except BaseException:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


class Talk:
    """A conversation with a task that serves until `close`."""

    def __init__(self) -> None:
        self.conversation = Conversation(loop_thread())
        self._over = False
        loop_thread().start(self._serve, name="talk")

    async def _serve(self) -> None:
        await self.conversation.serve(lambda: self._over)
        self.conversation.end()

    async def close(self) -> None:
        self._over = True


def test_the_task_can_have_the_asking_thread_do_something_which_may_ask_again() -> None:
    talk = Talk()
    ask = talk.conversation.ask
    threads: list[int] = []

    async def work() -> Any:
        return await talk.conversation.ask_back(callback)

    def callback() -> int:
        threads.append(threading.get_ident())
        return ask(double, 3) + ask(double, 4)

    assert ask(work) == 14
    assert threads == [threading.get_ident()]
    ask(talk.close)
    with pytest.raises(ClosedError):
        ask(double, 1)


def test_error_raised_in_the_calling_thread_reaches_the_task() -> None:
    talk = Talk()

    def fail() -> None:
        raise KeyError("mine")

    async def work() -> str:
        try:
            await talk.conversation.ask_back(fail)
        except KeyError:
            return "told"
        return "not told"

    assert talk.conversation.ask(work) == "told"
    talk.conversation.ask(talk.close)


def test_interrupt_in_the_calling_thread_ends_its_wait_for_the_loop() -> None:
    talk = Talk()

    def interrupted() -> None:
        raise KeyboardInterrupt

    async def work() -> None:
        await talk.conversation.ask_back(interrupted)
        await trio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        talk.conversation.ask(work)
    assert talk.conversation.ask(double, 5) == 10
    talk.conversation.ask(talk.close)


def test_after_an_interrupt_nothing_more_is_run_and_the_task_waits_for_no_answer() -> None:
    """This happens during a close: its question stays unanswered, and the task continues alone."""
    conversation = Conversation(loop_thread())
    answers: list[Callable[[BaseException | None], None]] = []
    ran: list[str] = []

    def interrupted() -> None:
        raise KeyboardInterrupt

    async def task() -> None:
        await conversation.serve(lambda: bool(answers))
        await conversation.ask_back(interrupted)
        with trio.move_on_after(20):
            await conversation.ask_back(lambda: ran.append("more"))
            ran.append("came back")
        conversation.end()
        answers[0](None)

    async def close() -> object:
        answers.append(conversation.answer_later())
        return LATER

    loop_thread().start(task, name="closing")
    with pytest.raises(KeyboardInterrupt):
        conversation.ask(close)
    assert ran == ["came back"]


def test_questions_from_the_loop_itself_are_refused() -> None:
    talk = Talk()

    async def work() -> None:
        talk.conversation.ask(double, 1)

    with pytest.raises(IllegalStateError, match="wait for itself"):
        loop_thread().call(work)
    talk.conversation.ask(talk.close)
