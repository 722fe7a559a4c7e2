"""Opening a batch when memory is short: which callers wait, which do not, and which memory is released."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from tests.support.scripted_producing import memory_is_whole, scripted
from tests.support.simulated import current_simulation, simulated
from tests.unit.client.producer.test_accumulator import Bench
from triokafka.client.config import ProducerOptions
from triokafka.client.producer.batch_opener import BatchOpener
from triokafka.errors import ClosedError, MessageSizeTooLargeError, UnknownTopicOrPartitionError
from triokafka.structs import TopicPartition

RECORD = 100


class Setup:
    """A batch opener over a bench whose memory is two batches, and a partition's queue."""

    def __init__(self, **options: Any) -> None:
        self.bench = Bench(**{"memory": 400, **options})
        self.usable = True
        self.wakes = 0
        self.alarms: list[float] = []
        metadata = SimpleNamespace(add_listener=lambda listener: None, use_topic=lambda *args: False)
        self.opener = BatchOpener(
            ProducerOptions(),
            self.bench.accumulator,
            SimpleNamespace(metadata=metadata, cluster=self.bench.cluster),  # type: ignore[arg-type]
            SimpleNamespace(  # type: ignore[arg-type]
                wake=self.wake, wake_by=lambda at, now: self.alarms.append(at), is_held=False
            ),
            world=SimpleNamespace(now=trio.current_time),  # type: ignore[arg-type]
            check_usable=self.check_usable,
        )
        self.queue = self.bench.accumulator.queue(TopicPartition("t", 0))

    def check_usable(self) -> None:
        if not self.usable:
            raise ClosedError("closed meanwhile")

    def wake(self) -> None:
        self.wakes += 1

    def next_queue(self, value: bytes = bytes(RECORD)) -> Any:
        return self.opener.next_queue(self.queue, None, None, value, ())

    async def open_batch(self, patience: float = 60) -> None:
        await self.opener.open_batch(self.queue, RECORD, trio.current_time() + patience)


async def test_memory_allocated_too_late_is_released(autojump_clock: trio.testing.MockClock) -> None:
    """The producer was closed while the caller waited."""
    setup = Setup()
    pool = setup.bench.accumulator.pool
    lent = [pool.try_allocate(200) for _ in range(2)]

    async def expect_refusal() -> None:
        with pytest.raises(ClosedError):
            await setup.open_batch()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(expect_refusal)
        await trio.testing.wait_all_tasks_blocked()
        assert pool.waiting == 1
        setup.usable = False
        pool.release(lent[0], 200)
    assert pool.in_use == 200
    assert setup.queue.open is None


async def test_new_batch_wakes_the_sender_for_its_linger(autojump_clock: trio.testing.MockClock) -> None:
    setup = Setup()
    await setup.open_batch()
    assert setup.wakes == 1


async def test_new_batch_among_others_wakes_the_sender_when_its_linger_ends(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Otherwise a sender with many partitions would do nothing but scan them all."""
    setup = Setup(linger=5.0)
    await setup.open_batch()
    other = setup.bench.accumulator.queue(TopicPartition("t", 1))
    assert setup.opener.next_queue(other, None, None, b"v", ()) is other
    assert setup.wakes == 1
    assert setup.alarms == [trio.current_time() + 5.0]
    other.close_open()
    setup.bench.accumulator.flushes += 1
    setup.bench.accumulator.pool.release(None, 200)
    assert setup.opener.open_batch_nowait(setup.bench.accumulator.queue(TopicPartition("t", 2)), RECORD)
    assert setup.wakes == 2, "nothing lingers while a caller waits for it"


async def test_full_batch_wakes_the_sender(autojump_clock: trio.testing.MockClock) -> None:
    setup = Setup(memory=10_000)
    other = setup.bench.accumulator.queue(TopicPartition("t", 1))
    await setup.open_batch()
    known: Any = SimpleNamespace(queues=[setup.queue, other], switch_if_due=lambda: 1)
    assert setup.opener.next_queue(setup.queue, known, None, b"v", ()) is other
    assert setup.wakes == 2
    setup.opener.open_batch_nowait(other, RECORD)
    assert setup.wakes == 3
    await setup.opener.open_batch(other, RECORD * 3, trio.current_time() + 60)
    assert setup.wakes == 4


async def test_full_batch_is_followed_by_another_without_yielding_until_other_tasks_must_run(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Other tasks run after a megabyte, or a millisecond since the last time."""
    setup = Setup(memory=8 << 20, batch_size=256 << 10)
    await setup.open_batch()
    for _ in range(3):
        with trio.testing.assert_no_checkpoints():
            assert setup.next_queue() is setup.queue
    assert setup.next_queue() is None
    assert setup.queue.open is None
    with trio.testing.assert_checkpoints():
        await setup.open_batch()
    assert setup.next_queue() is setup.queue
    await trio.sleep(0.0011)
    assert setup.next_queue() is None
    with trio.testing.assert_checkpoints():
        await setup.open_batch()
    assert setup.next_queue() is setup.queue
    assert len(setup.queue.batches) == 8


async def test_no_more_batches_are_filled_without_yielding_than_may_be_in_flight(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Further batches could not be sent, and would only take memory."""
    setup = Setup(memory=10_000)
    await setup.open_batch()
    for _ in range(4):
        assert setup.next_queue() is setup.queue
    assert setup.next_queue() is None
    with trio.testing.assert_checkpoints():
        await setup.open_batch()
    for partition in range(1, 20):
        queue = setup.bench.accumulator.queue(TopicPartition("t", partition))
        assert setup.opener.next_queue(queue, None, None, b"v", ()) is queue, "no other batch was opened for the record"


async def test_batch_without_free_memory_is_not_opened_without_waiting(
    autojump_clock: trio.testing.MockClock,
) -> None:
    setup = Setup()
    await setup.open_batch()
    assert setup.next_queue() is setup.queue
    assert setup.next_queue() is None
    assert setup.bench.accumulator.pool.waiting == 0


async def test_no_batch_is_opened_for_an_unsendable_record(autojump_clock: trio.testing.MockClock) -> None:
    setup = Setup()
    await setup.open_batch()
    with pytest.raises(MessageSizeTooLargeError):
        setup.next_queue(bytes(2_000_000))
    setup.usable = False
    with pytest.raises(ClosedError):
        setup.next_queue()
    assert len(setup.queue.batches) == 1


async def test_record_without_key_goes_to_the_current_sticky_partition(
    autojump_clock: trio.testing.MockClock,
) -> None:
    setup = Setup()
    other = setup.bench.accumulator.queue(TopicPartition("t", 1))
    await setup.open_batch()
    assert setup.queue.open is not None
    known: Any = SimpleNamespace(queues=[setup.queue, other], switch_if_due=lambda: 1)
    assert setup.opener.next_queue(setup.queue, known, None, b"v", ()) is other
    assert setup.queue.open is None
    assert other.open is not None
    assert setup.opener.next_queue(setup.queue, known, None, b"v", ()) is other
    assert len(other.batches) == 1, "the open batch has room"


async def test_batch_that_another_task_opened_is_used_if_the_record_fits() -> None:
    setup = Setup()
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(setup.open_batch)
    assert len(setup.queue.batches) == 1
    assert setup.bench.accumulator.pool.in_use == 200


async def test_time_spent_waiting_for_memory_is_counted(autojump_clock: trio.testing.MockClock) -> None:
    """The time counts also if the wait failed."""
    setup = Setup()
    pool = setup.bench.accumulator.pool
    lent = [pool.try_allocate(200) for _ in range(2)]
    with trio.move_on_after(2):
        await setup.open_batch()
    assert pool.wait_seconds_total == pytest.approx(2)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(setup.open_batch)
        await trio.sleep(3)
        pool.release(lent[0], 200)
    assert (pool.wait_seconds_total, pool.wait_seconds_max) == (pytest.approx(5), pytest.approx(3))


@pytest.mark.parametrize("timestamp", [None, 1], ids=["short way", "long way"])
@simulated
async def test_small_record_does_not_enter_a_batch_that_refused_a_larger_one(timestamp: int | None) -> None:
    async with scripted() as s, s.producer(batch_size=400, buffer_memory=400, linger_ms=0) as producer:
        await producer.partitions_for("orders")
        port = s.broker.stop()
        deliveries: list[Any] = []

        async def send(value: bytes) -> None:
            deliveries.append(await producer.send("orders", value, timestamp_ms=timestamp))

        await send(b"first" * 20)
        async with trio.open_nursery() as nursery:
            for value in (b"large" * 60, b"small"):
                nursery.start_soon(send, value)
                await trio.testing.wait_all_tasks_blocked()
            await trio.sleep(1)
            assert len(deliveries) == 1
            await s.broker.start(current_simulation().nursery, port)
        await producer.flush()
        assert [(value or b"")[:5] for value in s.cluster.values("orders")] == [b"first", b"large", b"small"]
        assert memory_is_whole(producer)


@simulated
async def test_record_that_fits_the_open_batch_does_not_wait() -> None:
    """This holds even while others wait for memory."""
    async with scripted(orders=2) as s, s.producer(batch_size=400, buffer_memory=800, linger_ms=60_000) as producer:
        await producer.partitions_for("orders")
        port = s.broker.stop()
        await producer.send("orders", b"first", partition=0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: producer.send("orders", b"x" * 700, partition=1))
            await trio.testing.wait_all_tasks_blocked()
            assert producer._accumulator.pool.waiting == 1
            with trio.fail_after(0.001):
                await producer.send("orders", b"second", partition=0)
                await producer.send("orders", b"third", partition=0, timestamp_ms=1)  # on the slow path
            await s.broker.start(current_simulation().nursery, port)
        await producer.flush()
        assert s.cluster.values("orders", 0) == [b"first", b"second", b"third"]


@simulated
async def test_deleted_topic_is_unknown_when_a_new_partition_is_requested() -> None:
    async with scripted(orders=1) as s, s.producer(max_block_ms=3000) as producer:
        await (await producer.send("orders", b"1"))
        del s.cluster.topics["orders"]
        started = trio.current_time()
        with pytest.raises(UnknownTopicOrPartitionError, match=r"'orders' does not exist \(waited \d+ ms\)"):
            await producer.send("orders", b"2", partition=7)
        assert trio.current_time() - started == pytest.approx(3, abs=0.1)


@simulated
async def test_topic_without_partitions_counts_as_not_created_yet() -> None:
    """No broker should report this; a sender that divided by the number of partitions would fail permanently."""
    async with scripted(orders=0, bills=1) as s, s.producer(max_block_ms=3000) as producer:
        with pytest.raises(UnknownTopicOrPartitionError):
            await producer.send("orders", b"1", key=b"k")
        assert (await (await producer.send("bills", b"1"))).offset == 0
        s.cluster.topics["orders"] = 2
        assert (await (await producer.send("orders", b"1"))).offset == 0


async def test_sender_far_ahead_of_the_network_waits_for_it_to_catch_up_but_not_for_long(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Batches filled long before they are sent have left the processor's caches; the memory is used only if
    necessary.
    """
    setup = Setup(memory=20_000)
    await setup.open_batch()
    for ahead in range(2, 12):
        began = trio.current_time()
        if setup.next_queue() is None:
            await setup.open_batch()
        waited = trio.current_time() - began
        assert len(setup.queue.batches) == ahead
        if waited:
            assert ahead > 6
            assert waited == pytest.approx(0.005)
    assert trio.current_time() > 0


@pytest.mark.parametrize("patience", [-1.0, 0.0, 0.002])
async def test_max_block_ms_bounds_the_pause_for_the_network(
    patience: float, autojump_clock: trio.testing.MockClock
) -> None:
    setup = Setup(memory=20_000)
    began = trio.current_time()
    for _ in range(12):
        if setup.next_queue() is None:
            await setup.open_batch(patience)
    assert len(setup.queue.batches) == 12
    pauses = 1 if patience > 0 else 0
    assert trio.current_time() - began == pytest.approx(pauses * patience)


async def test_sender_far_ahead_continues_when_few_batches_are_left(autojump_clock: trio.testing.MockClock) -> None:
    setup = Setup(memory=20_000, idempotent=False)
    queue = setup.queue
    for _ in range(6):
        setup.opener.open_batch_nowait(queue, RECORD)
        assert queue.open is not None
        queue.open.append(0, None, b"v")
    queue.close_open()
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(setup.open_batch)
        await trio.testing.wait_all_tasks_blocked()
        assert len(queue.batches) == 6
        for left in (5, 4, 3):
            assert setup.bench.drain(began)
            await trio.testing.wait_all_tasks_blocked()
            assert len(queue.batches) == left
            assert queue.open is None
        assert setup.bench.drain(began)
    assert len(queue.batches) == 3, "two batches and the new one"
    assert trio.current_time() == began
