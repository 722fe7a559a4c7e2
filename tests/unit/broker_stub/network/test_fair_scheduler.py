"""The order in which connections are served."""

from __future__ import annotations

import pytest
import trio

from triokafka.broker_stub.network.fair_scheduler import ALONE, FairScheduler


class PerTurn(trio.abc.Instrument):
    """The number of additions to ``done`` in each iteration of the event loop with at least one."""

    def __init__(self, done: list[str]) -> None:
        self.counts: list[int] = []
        self._done = done

    def before_io_wait(self, timeout: float) -> None:
        if count := len(self._done) - sum(self.counts):
            self.counts.append(count)


@pytest.mark.parametrize(("others", "expected"), [(0, [1] * 8), (1, [1] * 8), (3, [1, 3, 1, 1, 1, 1]), (90, [1, 7])])
async def test_as_many_continue_as_others_were_served_and_at_least_one(others: int, expected: list[int]) -> None:
    """Clients that pipeline requests get their share among many others."""
    turns, done = FairScheduler(), list[str]()
    for _ in range(others):
        turns.count_other()
    instrument = PerTurn(done)

    async def step_back() -> None:
        await turns.step_back()
        done.append("one")

    trio.lowlevel.add_instrument(instrument)
    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(step_back)
    await trio.lowlevel.checkpoint()
    trio.lowlevel.remove_instrument(instrument)
    assert instrument.counts == expected


@pytest.mark.parametrize("cancelled", [slice(1), slice(2), slice(1, 3), slice(1, 4), slice(3, 4)])
async def test_cancelled_connection_passes_its_turn_on(cancelled: slice) -> None:
    """Both when it was about to continue and when it waited; Trio may run the first or the last of them first."""
    turns = FairScheduler()
    for _ in range(5):
        done: list[str] = []
        scopes = [trio.CancelScope() for _ in range(4)]

        async def step_back(scope: trio.CancelScope, done: list[str]) -> None:
            with scope:
                await turns.step_back()
                done.append("one")

        async with trio.open_nursery() as nursery:
            for scope in scopes:
                nursery.start_soon(step_back, scope, done)
            await trio.lowlevel.checkpoint()
            for scope in scopes[cancelled]:
                scope.cancel()
        assert len(done) >= 4 - len(scopes[cancelled])
    with trio.fail_after(10):
        await turns.step_back()


async def test_pipelining_connections_alone_need_not_wait() -> None:
    """A connection that waited for input waits for its turn only if others were served shortly before."""
    turns = FairScheduler()

    async def come_back() -> bool:
        """Return whether the connection had to wait."""
        with trio.CancelScope() as scope:
            scope.cancel()
            await turns.come_back()
        return scope.cancelled_caught

    assert not await come_back()
    turns.count_other()
    assert [await come_back() for _ in range(ALONE + 1)] == [True] * (ALONE - 1) + [False] * 2
