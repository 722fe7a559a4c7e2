"""Handler slots and the queue before them."""

from __future__ import annotations

import trio
import trio.testing

from triokafka.broker_stub.request.handler_slots import HandlerSlots, Slot


async def test_no_more_requests_run_than_there_are_slots_and_the_rest_wait_their_turn() -> None:
    slots = HandlerSlots(2)
    running, most, order = 0, 0, []

    async def request(number: int) -> None:
        nonlocal running, most
        slot = await slots.acquire()
        running += 1
        most = max(most, running)
        order.append(number)
        await trio.lowlevel.checkpoint()
        running -= 1
        slot.release()

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(request, number)
            await trio.testing.wait_all_tasks_blocked()
    assert most <= 2
    assert order == list(range(10))
    assert slots.free == 2


async def test_slot_given_back_early_lets_the_next_request_run() -> None:
    """A parked request holds no slot."""
    slots = HandlerSlots(1)
    first = await slots.acquire()
    first.release()
    first.release()
    second = await slots.acquire()
    assert slots.free == 0
    second.release()
    assert slots.free == 1


async def test_cancelled_wait_takes_no_slot() -> None:
    """A connection that dies in the queue leaves no trace."""
    slots = HandlerSlots(1)
    held = await slots.acquire()
    with trio.move_on_after(0):
        await slots.acquire()
    assert slots.queued == 0
    held.release()
    assert slots.free == 1


async def test_no_more_readers_are_admitted_than_there_is_room_for() -> None:
    """Admitting all of them at once would make the queue longer than its limit."""
    slots = HandlerSlots(1, max_queued=1)
    held = await slots.acquire()
    passed: list[int] = []

    async def reader(number: int) -> None:
        await slots.wait_for_room()
        passed.append(number)
        slot = await slots.acquire()
        slot.release()

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(reader, number)
            await trio.testing.wait_all_tasks_blocked()
        assert (passed, slots.queued, slots.full) == ([0], 1, True)
        held.release()
    assert sorted(passed) == [0, 1, 2, 3, 4]
    assert (slots.free, slots.queued) == (1, 0)


async def test_more_slots_admit_waiting_requests() -> None:
    """``num.io.threads`` changes while the broker runs."""
    slots = HandlerSlots(1)
    held = [await slots.acquire()]

    async def request() -> None:
        held.append(await slots.acquire())

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(request)
        await trio.testing.wait_all_tasks_blocked()
        slots.resize(3)
        await trio.testing.wait_all_tasks_blocked()
        assert (len(held), slots.queued) == (3, 1)
        slots.resize(4)
    assert (len(held), slots.free) == (4, 0)


async def test_fewer_slots_hold_from_the_moment_that_requests_in_progress_are_done() -> None:
    """Requests in progress are not disturbed."""
    slots = HandlerSlots(4)
    held = [await slots.acquire() for _ in range(4)]
    slots.resize(2)
    assert slots.free == -2
    taken: list[Slot] = []

    async def request() -> None:
        taken.append(await slots.acquire())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(request)
        await trio.testing.wait_all_tasks_blocked()
        held.pop().release()
        held.pop().release()
        await trio.testing.wait_all_tasks_blocked()
        assert (taken, slots.free) == ([], 0)
        held.pop().release()
    taken.pop().release()
    held.pop().release()
    assert slots.free == 2
