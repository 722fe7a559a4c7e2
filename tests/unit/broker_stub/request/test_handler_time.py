"""The times between the steps of a handler."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from triokafka.broker_stub.request.handler_time import count_waits


class Counter:
    """The part of a request context that the counter needs."""

    parked_seconds = 0.0


async def test_waits_are_counted_and_the_result_is_passed_on(autojump_clock: MockClock) -> None:
    counter = Counter()

    async def work() -> str:
        await trio.sleep(2)
        await trio.lowlevel.checkpoint()
        await trio.sleep(3)
        return "done"

    assert await count_waits(work(), counter, trio.current_time) == "done"
    assert counter.parked_seconds == pytest.approx(5)


async def test_errors_and_cancellation_reach_the_work(autojump_clock: MockClock) -> None:
    counter, ended = Counter(), []

    async def work(error: Exception | None) -> None:
        try:
            await trio.sleep(2)
            if error is not None:
                raise error
            await trio.sleep_forever()
        finally:
            ended.append(trio.current_time())

    with pytest.raises(ValueError, match="no"):
        await count_waits(work(ValueError("no")), counter, trio.current_time)
    with trio.move_on_after(5) as scope:
        await count_waits(work(None), counter, trio.current_time)
    assert scope.cancelled_caught and len(ended) == 2
    assert counter.parked_seconds == pytest.approx(7)
