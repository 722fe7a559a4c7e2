"""The buffer pool with many waiting tasks, some of which are cancelled: one simulated world per example.

At every moment the memory adds up, the first waiter is served as soon as there is enough memory, no waiter is served
out of turn, and at the end all memory is released.
"""

from __future__ import annotations

from typing import NamedTuple

import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cancellation import cancelled_at_each_checkpoint
from triokafka.client.producer.buffer_pool import BufferPool
from triokafka.client.producer.buffer_wait import allocate
from triokafka.errors import BufferTimeoutError
from triokafka.testing import Simulation, run_simulation

TOTAL = 1000
POOLED = 100
FOREVER = 1e9


class Borrower(NamedTuple):
    """A task: when it starts, how much it allocates, how long it holds it, and when it stops waiting."""

    comes: int
    size: int
    keeps: int
    patience: int | None
    cancelled: bool
    grows: bool


borrowers = st.lists(
    st.builds(
        Borrower,
        comes=st.integers(0, 20),
        size=st.sampled_from([1, 30, POOLED, POOLED, POOLED, POOLED + 1, 333, 700, TOTAL]),
        keeps=st.integers(0, 20),
        patience=st.none() | st.integers(0, 20),
        cancelled=st.booleans(),
        grows=st.booleans(),
    ),
    min_size=1,
    max_size=25,
)


class World:
    """The pool, the allocations of each task, and the waiters, in order of arrival."""

    def __init__(self) -> None:
        self.pool = BufferPool(TOTAL, POOLED)
        self.lent: dict[int, int] = {}
        self.line: list[int] = []
        self.sizes: dict[int, int] = {}

    def check(self) -> None:
        pool = self.pool
        reserved = sum(waiter.reserved for waiter in pool._waiters)
        assert pool.available >= 0
        assert pool.in_use == sum(self.lent.values()) + reserved
        assert len(pool._free) * POOLED == pool.pooled
        assert pool.waiting == len(self.line)
        assert [waiter.size for waiter in pool._waiters] == [self.sizes[number] for number in self.line]
        if self.line:  # free memory is reserved for the first waiter, which still has too little
            assert pool.available == pool.pooled == 0
            assert all(waiter.reserved == 0 for waiter in list(pool._waiters)[1:])
            assert pool._waiters[0].reserved < self.sizes[self.line[0]]


async def _borrow(world: World, number: int, borrower: Borrower) -> None:
    await trio.sleep(borrower.comes)
    pool = world.pool
    world.sizes[number] = borrower.size
    buffer = pool.try_allocate(borrower.size)
    if buffer is None:
        assert world.line or borrower.size > pool.total - pool.in_use
        world.line.append(number)
        patience = FOREVER if borrower.patience is None else borrower.patience
        try:
            with trio.move_on_after(patience if borrower.cancelled else FOREVER):
                buffer = await allocate(pool, borrower.size, FOREVER if borrower.cancelled else patience)
                # Several may be served at once, and wake in any order; every remaining waiter arrived later than they
                # did.
                assert len(world.line) - world.line.index(number) > pool.waiting, "served out of turn"
        except BufferTimeoutError:
            assert borrower.patience is not None
        finally:
            world.line.remove(number)
        if buffer is None:
            return
    assert len(buffer) == borrower.size
    world.lent[number] = borrower.size
    await trio.sleep(borrower.keeps)
    del world.lent[number]
    pool.release(bytearray(borrower.size + 5) if borrower.grows else buffer, borrower.size)


@settings(max_examples=150, deadline=None)
@given(borrowers, st.integers(0, 1000))
def test_memory_is_allocated_in_order_and_released(tasks: list[Borrower], seed: int) -> None:

    async def main(simulation: Simulation) -> None:
        world = World()
        async with trio.open_nursery() as nursery:
            for number, borrower in enumerate(tasks):
                nursery.start_soon(_borrow, world, number, borrower)
            with trio.move_on_after(1500):
                for _ in range(60):
                    await trio.testing.wait_all_tasks_blocked()
                    world.check()
                    await trio.sleep(0.5)
        world.check()
        assert not world.line
        assert world.pool.in_use == 0

    run_simulation(main, seed)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([1, 50, POOLED, 250, 600]), min_size=1, max_size=6),
    lent=st.lists(st.sampled_from([POOLED, 200, 400]), min_size=1, max_size=6),
    behind=st.lists(st.sampled_from([1, POOLED, 300]), max_size=4),
    seed=st.integers(0, 1000),
)
def test_allocation_cancelled_at_each_checkpoint_does_not_affect_later_waiters(
    sizes: list[int], lent: list[int], behind: list[int], seed: int
) -> None:
    """The memory reserved for the first waiter goes to the next one without delay."""

    async def main(simulation: Simulation) -> None:
        for size in sizes:
            await _allocate_cancelled_anywhere(size, lent, behind)

    run_simulation(main, seed)


async def _allocate_cancelled_anywhere(size: int, lent: list[int], behind: list[int]) -> None:
    pool = BufferPool(TOTAL, POOLED)
    given_out = [(buffer, amount) for amount in lent if (buffer := pool.try_allocate(amount)) is not None]
    held: list[tuple[bytearray, int]] = []

    async def waiters() -> None:
        for wanted in behind:
            buffer = await allocate(pool, wanted, FOREVER)
            pool.release(buffer, wanted)

    async def give_back() -> None:
        while given_out:
            await trio.sleep(0.1)
            pool.release(*given_out.pop())

    async def operation() -> bytearray:
        buffer = await allocate(pool, size, FOREVER)
        held.append((buffer, size))
        return buffer

    async def check() -> None:
        await trio.testing.wait_all_tasks_blocked()
        reserved = sum(waiter.reserved for waiter in pool._waiters)
        taken = sum(amount for _, amount in given_out) + sum(amount for _, amount in held)
        assert pool.in_use == taken + reserved
        if pool.waiting:
            assert pool.available == pool.pooled == 0

    async with trio.open_nursery() as nursery:
        nursery.start_soon(give_back)
        nursery.start_soon(waiters)
        await cancelled_at_each_checkpoint(operation, check)
        await check()
        pool.release(*held.pop())
    assert pool.waiting == 0
    assert pool.in_use == 0
