"""Sends and flushes cancelled at every checkpoint: no leak, no lost record, no duplicate."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

import triokafka
from tests.support.cancellation import cancelled_at_each_checkpoint
from tests.support.scripted_broker import SILENCE, ScriptedCluster
from tests.support.simulated import current_simulation, simulated
from triokafka.protocol.api.produce import ProduceRequest


@asynccontextmanager
async def cluster_and_producer(**options: Any) -> AsyncIterator[tuple[ScriptedCluster, triokafka.Producer]]:
    simulation = current_simulation()
    cluster = ScriptedCluster(orders=1)
    address = await cluster.start(simulation.nursery, simulation.host("broker").world)
    async with triokafka.Producer(
        bootstrap_servers=address, world=simulation.host("client").world, **options
    ) as producer:
        yield cluster, producer


@simulated
async def test_send_cancelled_at_any_checkpoint_accepts_nothing() -> None:
    """The checkpoints are in the metadata request and in the sealing of a batch."""
    async with cluster_and_producer(batch_size=200, linger_ms=10_000) as (cluster, producer):
        cancelled = 0

        async def check() -> None:
            await producer.flush()
            assert len(cluster.values("orders")) == sent
            metrics = producer.metrics()
            assert metrics["buffer_available_bytes"] == metrics["buffer_total_bytes"]
            assert metrics["waiting_threads"] == 0

        sent = 0
        while sent < 3:
            await trio.sleep(0.01)  # enough time since the last yield that opening a batch yields
            _, times = await cancelled_at_each_checkpoint(lambda: producer.send("orders", b"x" * 150), check)
            cancelled += times
            sent += 1
        await check()
        assert cancelled >= 3


@simulated
async def test_send_cancelled_while_it_waits_for_memory_releases_it() -> None:
    async with cluster_and_producer(batch_size=200, buffer_memory=500, linger_ms=0, request_timeout_ms=5000) as (
        cluster,
        producer,
    ):
        await producer.send("orders", b"warm")
        await producer.flush()
        sent = 1

        async def operation() -> Any:
            nonlocal sent
            cluster.brokers[1].script(ProduceRequest, SILENCE)
            for _ in range(6):
                await producer.send("orders", b"x" * 150)
                sent += 1

        async def check() -> None:
            await producer.flush()
            assert len(cluster.values("orders")) == sent
            metrics = producer.metrics()
            assert metrics["buffer_available_bytes"] == metrics["buffer_total_bytes"]
            assert metrics["waiting_threads"] == 0

        _, cancelled = await cancelled_at_each_checkpoint(operation, check)
        await check()
        assert cancelled >= 6


@simulated
async def test_flush_cancelled_at_any_checkpoint_leaves_linger_unchanged() -> None:
    async with cluster_and_producer(linger_ms=5_000) as (_, producer):
        await producer.send("orders", b"warm")
        await producer.flush()

        async def operation() -> None:
            await producer.send("orders", b"a")
            await producer.flush()

        async def check() -> None:
            assert producer._accumulator.flushes == 0
            await trio.sleep(20)

        _, cancelled = await cancelled_at_each_checkpoint(operation, check)
        assert cancelled >= 2
        before = trio.current_time()
        delivery = await producer.send("orders", b"b")
        await delivery
        assert 5 <= trio.current_time() - before < 6


@simulated
async def test_wait_for_a_delivery_may_be_cancelled_without_recalling_the_record() -> None:
    async with cluster_and_producer(linger_ms=1000) as (cluster, producer):
        delivery = await producer.send("orders", b"a")
        with trio.move_on_after(0.5) as scope:
            await delivery
        assert scope.cancelled_caught
        assert (await delivery).offset == 0
        assert cluster.values("orders") == [b"a"]


@simulated
async def test_several_tasks_may_await_one_delivery() -> None:
    async with cluster_and_producer() as (_, producer):
        delivery = await producer.send("orders", b"a")
        seen: list[int] = []

        async def wait() -> None:
            seen.append((await delivery).offset)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(wait)
        assert seen == [0, 0, 0]
