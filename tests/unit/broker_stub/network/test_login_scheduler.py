"""The order in which connections that have not logged in are served."""

from __future__ import annotations

import pytest
import trio

from triokafka.broker_stub.network.login_scheduler import AT_ONCE, LoginScheduler


async def crowd(turns: LoginScheduler, counts: dict[str, int], *, now: float = 0.0) -> list[set[str]]:
    """Let many connections wait at once; return the addresses that ran in each iteration of the event loop."""
    groups: list[list[str]] = []

    class Groups(trio.abc.Instrument):
        def before_io_wait(self, timeout: float) -> None:
            if not groups or groups[-1]:
                groups.append([])

    async def take(address: str) -> None:
        await turns.take(address, now)
        groups[-1].append(address)

    groups.append([])
    instrument = Groups()
    trio.lowlevel.add_instrument(instrument)
    async with trio.open_nursery() as nursery:
        for address, count in counts.items():
            for _ in range(count):
                nursery.start_soon(take, address)
    trio.lowlevel.remove_instrument(instrument)
    assert all(len(group) <= AT_ONCE for group in groups)
    assert sum(map(len, groups)) == sum(counts.values())
    return [set(group) for group in groups if group]


async def test_at_most_eight_connections_run_in_an_iteration_and_addresses_share_them() -> None:
    groups = await crowd(LoginScheduler(), {"bad": 100, "good": 1})
    assert len(groups) >= 100 / AT_ONCE
    assert any("good" in group for group in groups[:3])


async def test_lone_connection_waits_for_one_iteration_only() -> None:
    turns = LoginScheduler()
    with trio.fail_after(5):
        for _ in range(3):
            await turns.take("good", 0.0)


async def test_suspect_addresses_run_after_all_others_and_never_starve() -> None:
    turns = LoginScheduler()
    turns.failed("bad", 0.0)
    groups = await crowd(turns, {"bad": 5, **{f"good {number}": 5 for number in range(10)}})
    with_bad = [number for number, group in enumerate(groups) if "bad" in group]
    assert with_bad and with_bad[0] < 3


async def test_suspicion_ends_after_ten_seconds() -> None:
    turns = LoginScheduler()
    turns.failed("bad", 5.0)
    assert turns.is_suspect("bad", 14.9)
    assert not turns.is_suspect("bad", 15.0)
    assert not turns.is_suspect("good", 5.0)


async def test_number_of_suspects_is_bounded() -> None:
    turns = LoginScheduler()
    for number in range(10_001):
        turns.failed(str(number), 0.0)
    assert not turns.is_suspect("0", 0.0)
    assert turns.is_suspect("1", 0.0)


@pytest.mark.parametrize("cancelled", [slice(1), slice(2), slice(1, 3), slice(0, 30), slice(5, 40)])
async def test_cancelled_connection_leaves_its_turn_to_the_next(cancelled: slice) -> None:
    turns = LoginScheduler()
    scopes = [trio.CancelScope() for _ in range(40)]
    done: list[int] = []

    async def take(number: int) -> None:
        with scopes[number]:
            await turns.take(str(number % 3), 0.0)
            done.append(number)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for number in range(40):
                nursery.start_soon(take, number)
            await trio.lowlevel.checkpoint()
            for scope in scopes[cancelled]:
                scope.cancel()
        await turns.take("later", 0.0)
    assert {*range(40)} - {*range(40)[cancelled]} <= {*done}
