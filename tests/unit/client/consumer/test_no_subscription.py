"""A consumer that reads nothing: calls for records raise at once instead of waiting forever."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
import trio

import triokafka
from tests.support.scripted_reading import ReadableCluster
from tests.support.simulated import current_simulation, simulated
from triokafka import Consumer, TopicPartition
from triokafka.errors import IllegalStateError

_NOTHING_TO_READ = "call subscribe\\(\\) or assign\\(\\)"


async def options_of_a_cluster() -> dict[str, Any]:
    simulation = current_simulation()
    cluster = ReadableCluster(t=1)
    address = await cluster.start(simulation.nursery, simulation.host("broker").world, nodes=1)
    return {"bootstrap_servers": address, "world": simulation.host("client").world, "auto_offset_reset": "earliest"}


async def _handle(record: object) -> None: ...


async def _iterate(consumer: Consumer) -> None:
    async for _ in consumer:
        raise AssertionError("there is no record")


async def _iterate_batches(consumer: Consumer) -> None:
    async for _ in consumer.batches():
        raise AssertionError("there is no batch")


CALLS: Mapping[str, Callable[[Consumer], Awaitable[object]]] = {
    "async for": _iterate,
    "batches": _iterate_batches,
    "poll": lambda consumer: consumer.poll(),
    "poll with a wait": lambda consumer: consumer.poll(timeout_ms=60_000),
    "poll_arrow": lambda consumer: consumer.poll_arrow(timeout_ms=60_000),
    "process_partitions": lambda consumer: triokafka.process_partitions(consumer, _handle),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("group", [None, "billing"])
@simulated
async def test_call_for_records_without_subscription_raises_at_once(call: str, group: str | None) -> None:
    async with Consumer(group_id=group, enable_auto_commit=False, **await options_of_a_cluster()) as consumer:
        began = trio.current_time()
        with pytest.raises(IllegalStateError, match=_NOTHING_TO_READ):
            await CALLS[call](consumer)
        assert trio.current_time() == began


@pytest.mark.parametrize("call", CALLS)
@simulated
async def test_call_for_records_after_assigning_no_partitions_raises(call: str) -> None:
    async with Consumer(enable_auto_commit=False, **await options_of_a_cluster()) as consumer:
        consumer.assign([])
        with pytest.raises(IllegalStateError, match=_NOTHING_TO_READ):
            await CALLS[call](consumer)


@simulated
async def test_assigning_no_partitions_ends_a_subscription() -> None:
    async with Consumer("t", **await options_of_a_cluster()) as consumer:
        consumer.assign([])
        assert not consumer.subscription()
        consumer.assign([TopicPartition("t", 0)])
        assert consumer.assignment() == {TopicPartition("t", 0)}


@simulated
async def test_unsubscribing_ends_the_wait_of_another_task() -> None:
    async with Consumer("t", **await options_of_a_cluster()) as consumer, trio.open_nursery() as nursery:

        async def unsubscribe_later() -> None:
            await trio.testing.wait_all_tasks_blocked()
            consumer.unsubscribe()

        nursery.start_soon(unsubscribe_later)
        with pytest.raises(IllegalStateError, match=_NOTHING_TO_READ):
            await anext(consumer)


@simulated
async def test_listener_is_called_for_unsubscribe_before_poll_raises() -> None:
    calls: list[str] = []

    class Listener(triokafka.ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: object) -> None:
            calls.append("revoked")

    async with Consumer(**await options_of_a_cluster()) as consumer:
        consumer.subscribe(["t"], listener=Listener())
        await consumer.poll(timeout_ms=5_000)
        assert consumer.assignment()
        consumer.unsubscribe()
        with pytest.raises(IllegalStateError, match=_NOTHING_TO_READ):
            await consumer.poll()
        assert calls == ["revoked"]


@simulated
async def test_calls_for_positions_name_the_partition_that_is_not_assigned() -> None:
    t0 = TopicPartition("t", 0)
    async with Consumer(**await options_of_a_cluster()) as consumer:
        with pytest.raises(IllegalStateError, match=r"t-0|partition='?t'?"):
            await consumer.position(t0)
        for call in (consumer.pause, consumer.resume, consumer.seek_to_beginning, consumer.seek_to_end):
            with pytest.raises(IllegalStateError):
                call(t0)
        with pytest.raises(IllegalStateError):
            consumer.seek(t0, 1)


@simulated
async def test_subscribing_after_the_error_reads_as_usual() -> None:
    async with Consumer(**await options_of_a_cluster()) as consumer:
        with pytest.raises(IllegalStateError):
            await consumer.poll()
        consumer.subscribe(["t"])
        assert await consumer.poll(timeout_ms=1_000) == {}
        assert consumer.assignment()
