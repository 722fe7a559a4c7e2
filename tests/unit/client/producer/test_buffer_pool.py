"""The buffer pool: bounded, fair, and complete again after every cancellation."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.support.cancellation import cancelled_at_each_checkpoint
from tests.support.waiting import eventually
from triokafka.client.producer.buffer_pool import BufferPool
from triokafka.client.producer.buffer_wait import allocate
from triokafka.errors import BufferTimeoutError, MessageSizeTooLargeError

FOREVER = 1e6


def take(pool: BufferPool, size: int) -> bytearray:
    buffer = pool.try_allocate(size)
    assert buffer is not None
    return buffer


def test_pooled_buffers_are_reused_and_others_are_not() -> None:
    pool = BufferPool(100, 10)
    small, large = take(pool, 10), take(pool, 30)
    pool.release(small, 10)
    pool.release(large, 30)
    assert pool.pooled == 10
    assert take(pool, 10) is small
    assert take(pool, 30) is not large


def test_grown_buffer_releases_its_allocated_size() -> None:
    pool = BufferPool(100, 10)
    take(pool, 10)
    pool.release(bytearray(500), 10)
    assert (pool.available, pool.pooled, pool.in_use) == (100, 0, 0)


def test_memory_of_pooled_buffers_is_used_for_larger_ones() -> None:
    pool = BufferPool(100, 10)
    for buffer in [take(pool, 10) for _ in range(10)]:
        pool.release(buffer, 10)
    assert (pool.available, pool.pooled) == (0, 100)
    take(pool, 95)
    assert (pool.available, pool.pooled, pool.in_use) == (5, 0, 95)


def test_allocation_above_the_pools_size_is_refused_at_once() -> None:
    with pytest.raises(MessageSizeTooLargeError, match="buffer_memory=100"):
        BufferPool(100, 10).try_allocate(101)


async def test_waiters_are_served_in_order_and_small_ones_do_not_overtake(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pool = BufferPool(100, 10)
    lent = [take(pool, 10) for _ in range(10)]
    served: list[str] = []

    async def wait(name: str, size: int) -> None:
        await allocate(pool, size, FOREVER)
        served.append(name)

    async with trio.open_nursery() as nursery:
        for name, size in (("large", 40), ("small", 10), ("last", 10)):
            nursery.start_soon(wait, name, size)
            await trio.testing.wait_all_tasks_blocked()
        for buffer in lent[:3]:
            pool.release(buffer, 10)
            await trio.testing.wait_all_tasks_blocked()
            assert served == []
            assert pool.in_use == 100  # freed memory is reserved for the first waiter
            assert pool.try_allocate(1) is None  # new callers queue up
        pool.release(lent[3], 10)
        await trio.testing.wait_all_tasks_blocked()
        assert served == ["large"]
        pool.release(bytearray(5), 20)  # enough for both: the first waiter wakes the second
        await trio.testing.wait_all_tasks_blocked()
        assert sorted(served) == ["large", "last", "small"]


async def test_waiter_for_one_buffer_gets_the_released_one() -> None:
    pool = BufferPool(100, 10)
    lent = [take(pool, 10) for _ in range(10)]
    got: list[bytearray] = []

    async def wait() -> None:
        got.append(await allocate(pool, 10, FOREVER))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        pool.release(lent[3], 10)
    assert got[0] is lent[3]
    assert (pool.available, pool.pooled, pool.in_use) == (0, 0, 100)


async def test_waiting_ends_with_a_descriptive_error_after_the_timeout(autojump_clock: trio.testing.MockClock) -> None:
    pool = BufferPool(100, 10)
    take(pool, 95)
    with pytest.raises(
        BufferTimeoutError, match="no 10 bytes of buffer memory within 3000 ms: 95 of buffer_memory=100"
    ):
        await allocate(pool, 10, 3)
    assert (pool.available, pool.waiting) == (5, 0)


async def test_cancelled_waiter_returns_its_reservation_and_the_next_is_served(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pool = BufferPool(100, 10)
    take(pool, 60)
    async with trio.open_nursery() as nursery:
        with trio.move_on_after(1):
            nursery.start_soon(_allocate_later, pool, 30)
            await allocate(pool, 90, FOREVER)
        with trio.fail_after(1):
            await eventually(lambda: pool.in_use == 90)
    assert (pool.available, pool.waiting) == (10, 0)


async def _allocate_later(pool: BufferPool, size: int) -> None:
    await trio.sleep(0.5)
    await allocate(pool, size, FOREVER)


async def test_allocation_cancelled_at_any_checkpoint_leaves_the_pool_complete(
    autojump_clock: trio.testing.MockClock,
) -> None:
    pool = BufferPool(100, 10)
    lent = take(pool, 100)

    async def operation() -> bytearray:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_release_in_parts, pool, nursery)
            buffer = await allocate(pool, 60, FOREVER)
        return buffer

    async def check() -> None:
        assert pool.waiting == 0
        assert pool.available + pool.pooled + pool.in_use == 100
        if pool.in_use < 100:
            take(pool, 100 - pool.in_use)

    assert len(lent) == 100
    buffer, cancelled = await cancelled_at_each_checkpoint(operation, check)
    assert len(buffer) == 60
    assert cancelled >= 1
    assert pool.in_use >= 60


async def _release_in_parts(pool: BufferPool, nursery: trio.Nursery) -> None:
    for _ in range(6):
        await trio.sleep(0.01)
        pool.release(None, 10)


class PoolMachine(RuleBasedStateMachine):
    """In any order of allocations and releases, the memory adds up, and free memory is never refused."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BufferPool(1000, 100)
        self.lent: list[tuple[bytearray, int]] = []

    @rule(size=st.sampled_from([1, 50, 100, 101, 333, 1000]))
    def allocate(self, size: int) -> None:
        """Allocate; this succeeds exactly when enough memory is free."""
        free = self.pool.total - self.pool.in_use
        buffer = self.pool.try_allocate(size)
        assert (buffer is not None) == (size <= free)
        if buffer is not None:
            assert len(buffer) == size
            self.lent.append((buffer, size))

    @rule(pick=st.integers(0, 1000), grown=st.booleans())
    def release(self, pick: int, grown: bool) -> None:
        """Release a buffer, grown or not."""
        if self.lent:
            buffer, size = self.lent.pop(pick % len(self.lent))
            self.pool.release(bytearray(size + 7) if grown else buffer, size)

    @invariant()
    def memory_adds_up(self) -> None:
        assert self.pool.in_use == sum(size for _, size in self.lent)
        assert self.pool.available >= 0


PoolMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestPoolMachine = PoolMachine.TestCase
