"""Futures as kafka-python has them."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from triokafka.blocking.errors import KafkaError, KafkaTimeoutError
from triokafka.blocking.future import Future


def test_callbacks_get_the_value_and_errbacks_the_error_each_once() -> None:
    seen: list[Any] = []
    good: Future = Future()
    good.add_callback(seen.append).add_errback(seen.append)
    good.add_callback(lambda *got: seen.append(got), "a", "b")
    assert not good.is_done and not good.succeeded() and not good.failed() and good.value is None
    good.success(5)
    assert seen == [5, ("a", "b", 5)]
    assert good.is_done and good.succeeded() and good.value == 5 and good.exception is None
    seen.clear()
    bad = Future().add_callback(seen.append).add_errback(seen.append)
    error = KafkaTimeoutError("late")
    bad.failure(error)
    assert seen == [error]
    assert bad.failed() and bad.retriable() and bad.exception is error
    bad.add_errback(seen.append)
    bad.add_callback(seen.append)
    assert seen == [error, error]


def test_a_callback_that_raises_keeps_no_other_from_being_called() -> None:
    seen: list[Any] = []

    def fail(_: Any) -> None:
        raise RuntimeError("mine")

    Future().add_callback(fail).add_both(seen.append).success(1)
    assert seen == [1]


def test_chained_futures_come_to_the_same() -> None:
    first, second = Future(), Future()
    first.chain(second)
    first.failure(KafkaError)
    assert isinstance(second.exception, KafkaError)
    with pytest.raises(TypeError):
        Future().failure("no exception")  # type: ignore[arg-type]


def test_callbacks_added_while_another_thread_settles_are_called_once_each() -> None:
    for _ in range(200):
        future: Future = Future()
        seen: list[int] = []
        thread = threading.Thread(target=future.success, args=(1,))
        thread.start()
        for _ in range(20):
            future.add_callback(seen.append)
        thread.join()
        assert seen == [1] * 20


def test_a_settled_future_can_be_awaited() -> None:
    async def wait(future: Future) -> Any:
        return await future

    with pytest.raises(StopIteration) as done:
        wait(Future().success(7)).send(None)
    assert done.value.value == 7
    with pytest.raises(KafkaError):
        wait(Future().failure(KafkaError())).send(None)
