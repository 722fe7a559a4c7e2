"""Claims about handler slots and the queue before them (`broker-log/A29`, `B03`)."""

from __future__ import annotations

import trio

from triokafka.broker_stub.network.handler_slots import HandlerSlots


async def test_no_more_requests_run_than_there_are_slots_and_the_rest_wait_their_turn() -> None:
    """(`broker-log/A29`, `B03`)."""
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
    """A parked request holds no slot (`broker-log/B07`)."""
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
