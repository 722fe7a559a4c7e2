"""Claims about memory for requests in flight (`broker-log/Z21`)."""

from __future__ import annotations

import trio
import trio.testing

from triokafka.broker_stub.network.request_memory import RequestMemory


async def test_request_that_does_not_fit_waits_and_who_came_first_is_let_in_first() -> None:
    """A small one that comes later does not overtake (`broker-log/Z21`)."""
    memory = RequestMemory(100)
    order: list[int] = []

    async def request(size: int) -> None:
        await memory.reserve(size)
        order.append(size)

    await memory.reserve(50)
    await memory.reserve(30)
    async with trio.open_nursery() as nursery:
        for size in (70, 10, 15, 40):
            nursery.start_soon(request, size)
            await trio.testing.wait_all_tasks_blocked()
        assert (order, memory.used, memory.waiting) == ([], 80, 4)
        assert not memory.try_reserve(1)
        memory.release(30)
        await trio.testing.wait_all_tasks_blocked()
        assert (order, memory.used, memory.waiting) == ([], 50, 4)
        memory.release(50)
        await trio.testing.wait_all_tasks_blocked()
        assert (sorted(order), memory.used, memory.waiting) == ([10, 15, 70], 95, 1)
        memory.release(70)
    assert memory.used == 65


async def test_request_larger_than_the_limit_is_let_in_alone() -> None:
    """It would wait for ever otherwise."""
    memory = RequestMemory(10)
    await memory.reserve(50)
    with trio.move_on_after(0) as scope:
        await memory.reserve(1)
    assert scope.cancelled_caught
    memory.release(50)
    assert memory.used == 0


async def test_cancelled_wait_reserves_nothing_and_lets_the_next_in() -> None:
    """A connection that ends in the queue leaves no trace (`broker-log/T`)."""
    memory = RequestMemory(100)
    await memory.reserve(90)
    scope = trio.CancelScope()

    async def large() -> None:
        with scope:
            await memory.reserve(50)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(large)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(memory.reserve, 10)
        await trio.testing.wait_all_tasks_blocked()
        assert memory.used == 90
        scope.cancel()
    assert (memory.used, memory.waiting) == (100, 0)


async def test_wait_cancelled_in_the_moment_it_is_over_gives_back_what_it_got() -> None:
    """(`broker-log/T`)."""
    memory = RequestMemory(100)
    await memory.reserve(90)
    scope = trio.CancelScope()

    async def large() -> None:
        with scope:
            await memory.reserve(50)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(large)
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        memory.release(90)
    assert memory.used in (0, 50)
    if scope.cancelled_caught:
        assert memory.used == 0


async def test_without_a_limit_everything_is_let_in_and_counted() -> None:
    """As Kafka has it by default."""
    for limit in (-1, 0):
        memory = RequestMemory(limit)
        await memory.reserve(10**9)
        assert memory.try_reserve(10**9)
        assert memory.used == 2 * 10**9
