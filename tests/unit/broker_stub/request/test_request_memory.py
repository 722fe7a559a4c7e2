"""The memory for requests in flight."""

from __future__ import annotations

import trio
import trio.testing

from triokafka.broker_stub.request.request_memory import Claim, RequestMemory


async def test_requests_wait_for_memory_in_their_order() -> None:
    """A small request that comes later does not overtake."""
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
        memory.release(30)
        await trio.testing.wait_all_tasks_blocked()
        assert (order, memory.used, memory.waiting) == ([], 50, 4)
        memory.release(50)
        await trio.testing.wait_all_tasks_blocked()
        assert (sorted(order), memory.used, memory.waiting) == ([10, 15, 70], 95, 1)
        memory.release(70)
    assert memory.used == 65


async def test_request_larger_than_the_limit_is_admitted_alone() -> None:
    """It would wait for ever otherwise."""
    memory = RequestMemory(10)
    await memory.reserve(50)
    with trio.move_on_after(0) as scope:
        await memory.reserve(1)
    assert scope.cancelled_caught
    memory.release(50)
    assert memory.used == 0


async def test_cancelled_wait_reserves_nothing_and_lets_the_next_in() -> None:
    """A connection that ends while it waits changes nothing."""
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


async def test_wait_cancelled_at_its_end_returns_its_memory() -> None:
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


async def test_without_a_limit_everything_is_admitted_and_counted() -> None:
    """As Kafka has it by default."""
    for limit in (-1, 0):
        memory = RequestMemory(limit)
        await memory.reserve(10**9)
        with trio.fail_after(1):
            await memory.reserve(10**9)
        assert memory.used == 2 * 10**9


MIB = 1 << 20


async def test_large_requests_leave_room_for_small_ones_and_for_one_that_continues() -> None:
    """Fifty large requests wait, each partly received; one continues, and a small request passes all of them."""
    memory = RequestMemory(100 * MIB, largest=40 * MIB)
    done: list[int] = []

    async def large(number: int) -> None:
        claim = Claim(40 * MIB)
        memory.begin(claim)
        for _ in range(40):
            await memory.grow(claim, MIB)
            assert memory.used <= 100 * MIB
            await trio.lowlevel.checkpoint()
        memory.received(claim)
        done.append(number)
        memory.release(claim.reserved)

    async with trio.open_nursery() as nursery:
        for number in range(50):
            nursery.start_soon(large, number)
        with trio.fail_after(5):
            while memory.waiting < 30:
                await trio.lowlevel.checkpoint()
        waiting = memory.waiting
        with trio.fail_after(1):
            await memory.reserve(60_000)
        assert memory.waiting == waiting
        memory.release(60_000)
    assert sorted(done) == list(range(50))
    assert (memory.used, memory.waiting) == (0, 0)


async def test_requests_as_large_as_the_limit_are_admitted_one_at_a_time() -> None:
    """``queued.max.request.bytes`` may be as small as ``socket.request.max.bytes``."""
    memory = RequestMemory(10 * MIB, largest=10 * MIB)
    done: list[int] = []

    async def large(number: int) -> None:
        claim = Claim(10 * MIB)
        memory.begin(claim)
        for _ in range(10):
            await memory.grow(claim, MIB)
            await trio.lowlevel.checkpoint()
        memory.received(claim)
        done.append(number)
        memory.release(claim.reserved)

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(large, number)
    assert len(done) == 5 and memory.used == 0


async def test_request_that_stalls_while_others_wait_loses_its_connection(autojump_clock: object) -> None:
    """A connection that makes progress or itself waits for memory stays; if no request waits, none is closed."""
    memory = RequestMemory(10 * MIB, largest=MIB, stall_seconds=10, now=trio.current_time)
    closed: list[str] = []

    def close(name: str, claim: Claim) -> None:
        closed.append(name)
        memory.received(claim)
        memory.release(claim.reserved)

    stalled = Claim(MIB)
    stalled.close = lambda reason: close("stalled", stalled)
    moving = Claim(2 * MIB)
    moving.close = lambda reason: close("moving", moving)
    for claim in (stalled, moving):
        memory.begin(claim)
        await memory.grow(claim, MIB)
    await trio.sleep(100)
    assert not closed
    await memory.reserve(7 * MIB)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(memory.reserve, MIB)
        await trio.sleep(9)
        await memory.grow(moving, 1000)
    assert closed == ["stalled"]


async def test_memory_is_returned_after_much_was_in_use() -> None:
    """This is not done after requests of usual size."""
    freed: list[int] = []
    memory = RequestMemory(500 * MIB, on_freed=lambda: freed.append(memory.used))
    for _ in range(100):
        await memory.reserve(MIB)
        memory.release(MIB)
    assert not freed
    await memory.reserve(100 * MIB)
    memory.release(50 * MIB)
    assert not freed
    memory.release(50 * MIB)
    assert freed == [0]
