"""Clients that outlive the calls that use them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import pytest
import trio
import trio.testing

from triokafka.spark.client_cache import IDLE_LIMIT, IDLE_SECONDS, ClientCache


class Clients:
    """Creates clients, which are numbers, and records which are open."""

    def __init__(self) -> None:
        self.made = 0
        self.open: list[int] = []

    def make(self) -> AbstractAsyncContextManager[int]:
        @asynccontextmanager
        async def opened() -> AsyncIterator[int]:
            self.made += 1
            number = self.made
            self.open.append(number)
            try:
                yield number
            finally:
                self.open.remove(number)

        return opened()


async def test_a_client_is_made_once_and_used_again(nursery: trio.Nursery) -> None:
    cache, clients = ClientCache(nursery), Clients()
    for _ in range(3):
        async with cache.shared("a", clients.make) as client:
            assert client == 1
    async with cache.shared("b", clients.make) as other:
        assert other == 2
    assert clients.open == [1, 2]


async def test_shared_clients_serve_several_at_a_time_and_others_only_one(nursery: trio.Nursery) -> None:
    cache, clients = ClientCache(nursery), Clients()
    async with cache.shared("a", clients.make) as one, cache.shared("a", clients.make) as same:
        assert one == same == 1
    async with cache.alone("b", clients.make) as one, cache.alone("b", clients.make) as another:
        assert (one, another) == (2, 3)
    async with cache.alone("b", clients.make) as again:
        assert again in (2, 3)
    assert clients.made == 3


async def test_a_client_whose_use_failed_is_closed_and_recreated(nursery: trio.Nursery) -> None:
    cache, clients = ClientCache(nursery), Clients()
    with pytest.raises(ValueError, match="broken"):
        async with cache.alone("a", clients.make):
            raise ValueError("broken")
    await trio.testing.wait_all_tasks_blocked()
    assert clients.open == []
    async with cache.alone("a", clients.make) as client:
        assert client == 2


async def test_a_cancelled_use_leaves_the_client_to_the_next(nursery: trio.Nursery) -> None:
    """LIMIT cancels reads in the middle, and the connections can be reused."""
    cache, clients = ClientCache(nursery), Clients()
    with trio.CancelScope() as scope:
        async with cache.alone("a", clients.make):
            scope.cancel()
            await trio.sleep_forever()
    async with cache.alone("a", clients.make) as client:
        assert client == 1


async def test_a_use_cancelled_before_it_starts_holds_no_client(nursery: trio.Nursery) -> None:
    cache, clients = ClientCache(nursery), Clients()
    with trio.move_on_after(0):
        async with cache.alone("a", clients.make):
            raise AssertionError("cancelled before")
    await trio.testing.wait_all_tasks_blocked()
    assert clients.open == []


async def test_new_client_goes_to_the_task_that_opened_it(nursery: trio.Nursery) -> None:
    """Another task may request a client while the one that opened it is still being woken."""
    cache, clients = ClientCache(nursery), Clients()
    seen = []

    async def use() -> None:
        async with cache.alone("a", clients.make) as client:
            seen.append(client)
            await trio.sleep_forever()

    async with trio.open_nursery() as users:
        for _ in range(5):
            users.start_soon(use)
            await trio.lowlevel.checkpoint()
        await trio.testing.wait_all_tasks_blocked()
        users.cancel_scope.cancel()
    assert sorted(seen) == [1, 2, 3, 4, 5]


async def test_least_recently_used_client_above_the_bound_is_closed(nursery: trio.Nursery) -> None:
    cache, clients = ClientCache(nursery), Clients()
    for key in range(IDLE_LIMIT + 2):
        async with cache.alone(key, clients.make):
            pass
        async with cache.alone(0, clients.make):
            pass
    await trio.testing.wait_all_tasks_blocked()
    assert len(clients.open) == IDLE_LIMIT
    assert 1 in clients.open
    assert 2 not in clients.open


async def test_error_of_opening_reaches_the_caller_and_a_failing_close_does_not(nursery: trio.Nursery) -> None:
    cache = ClientCache(nursery)

    @asynccontextmanager
    async def never() -> AsyncIterator[int]:
        raise ValueError("no")
        yield 1

    @asynccontextmanager
    async def fails_to_close() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            raise ValueError("not closed")

    with pytest.raises(ValueError, match="no"):
        async with cache.shared("a", never):
            pass
    with pytest.raises(KeyError):
        async with cache.shared("b", fails_to_close):
            raise KeyError
    await trio.testing.wait_all_tasks_blocked()


async def test_idle_client_is_closed(nursery: trio.Nursery, autojump_clock: trio.testing.MockClock) -> None:
    cache, clients = ClientCache(nursery), Clients()
    async with cache.shared("a", clients.make):
        await trio.sleep(3 * IDLE_SECONDS)
        assert clients.open == [1]
    for _ in range(3):
        await trio.sleep(IDLE_SECONDS - 1)
        async with cache.shared("a", clients.make) as client:
            assert client == 1
    await trio.sleep(IDLE_SECONDS - 1)
    assert clients.open == [1]
    await trio.sleep(2)
    assert clients.open == []
    async with cache.shared("a", clients.make) as client:
        assert client == 2
