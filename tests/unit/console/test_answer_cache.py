"""Answers of a cluster are shared, and renewed ahead of time."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from triokafka.console.answer_cache import AnswerCache
from triokafka.errors import KafkaTimeoutError


class Cluster:
    """Answers after some time, with the number of the request."""

    def __init__(self, seconds: float) -> None:
        self.asked = 0
        self.seconds = seconds

    async def ask(self) -> int:
        self.asked += 1
        number = self.asked
        await trio.sleep(self.seconds)
        return number


async def test_several_requests_ask_once(autojump_clock: trio.testing.MockClock) -> None:
    cluster, answers = Cluster(0.5), AnswerCache(trio.current_time)
    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(answers.get, "k", cluster.ask)
    assert cluster.asked == 1


async def test_several_requests_share_a_failure_and_the_next_asks_again(autojump_clock: trio.testing.MockClock) -> None:
    asked = 0

    async def fail() -> int:
        nonlocal asked
        asked += 1
        await trio.sleep(20)
        raise KafkaTimeoutError("no broker can be reached")

    answers = AnswerCache(trio.current_time)
    failed: list[float] = []

    async def get() -> None:
        with pytest.raises(KafkaTimeoutError, match="can be reached"):
            await answers.get("k", fail)
        failed.append(trio.current_time())

    before = trio.current_time()
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(get)
            await trio.sleep(1)
    assert [round(at - before) for at in failed] == [20, 20, 20]
    assert asked == 1
    await get()
    assert asked == 2


async def test_answer_serves_for_a_second_and_a_slow_one_for_longer(autojump_clock: trio.testing.MockClock) -> None:
    for seconds, waits, expected in ((0.0, 0.9, 1), (0.0, 1.1, 2), (2.0, 19.0, 1), (2.0, 21.0, 2)):
        cluster, answers = Cluster(seconds), AnswerCache(trio.current_time)
        await answers.get("k", cluster.ask)
        await trio.sleep(waits)
        assert await answers.get("k", cluster.ask) == expected


async def test_requests_do_not_wait_while_an_answer_is_renewed(autojump_clock: trio.testing.MockClock) -> None:
    cluster, answers = Cluster(2.0), AnswerCache(trio.current_time)
    await answers.get("k", cluster.ask)
    await trio.sleep(19.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: answers.get("k", cluster.ask, renew=True))
        await trio.sleep(1.5)
        before = trio.current_time()
        assert await answers.get("k", cluster.ask) == 1
        assert trio.current_time() == before
    assert await answers.get("k", cluster.ask) == 2


async def test_change_makes_answers_new(autojump_clock: trio.testing.MockClock) -> None:
    cluster, answers = Cluster(0.0), AnswerCache(trio.current_time)
    await answers.get("k", cluster.ask)
    answers.forget()
    assert await answers.get("k", cluster.ask) == 2


async def test_known_answer_is_returned_without_asking_while_it_is_fresh(
    autojump_clock: trio.testing.MockClock,
) -> None:
    cluster, answers = Cluster(0.5), AnswerCache(trio.current_time)
    assert answers.known("k") is None
    await answers.get("k", cluster.ask)
    await trio.sleep(4.9)
    assert answers.known("k") == 1
    await trio.sleep(0.2)
    assert answers.known("k") is None
