"""Clients of asyncio leave nothing behind: tasks, threads, files, memory."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import warnings
import weakref
from typing import Any

import pytest

from tests.support.asyncio_programs import run, until
from triokafka.asyncio import AIOKafkaConsumer, AIOKafkaProducer
from triokafka.loop_thread import loop_thread


def open_files() -> int:
    """Return the number of open file descriptors."""
    return len(os.listdir("/proc/self/fd"))


async def use(bootstrap: str, topic: str) -> None:
    """Send a record and read one."""
    async with (
        AIOKafkaProducer(bootstrap_servers=bootstrap) as producer,
        AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer,
    ):
        await producer.send_and_wait(topic, b"x")
        await consumer.getone()


def settled() -> tuple[int, int, int]:
    """Return the numbers of files, threads, and tasks in the loop thread; wait until the last clients have ended."""
    tasks = len(loop_thread().nursery.child_tasks)
    return open_files(), threading.active_count(), tasks


async def settle_to(expected: tuple[int, int, int]) -> None:
    """Wait until there is no more than before."""
    await until(lambda: all(now <= then for now, then in zip(settled(), expected, strict=True)))


def test_start_and_stop_cycles_leave_nothing(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        await use(bootstrap, topic)
        await asyncio.sleep(0.1)
        before = settled()
        for _ in range(5):
            await use(bootstrap, topic)
        await settle_to(before)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(program())


@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_start_that_is_cancelled_at_any_step_leaves_nothing(bootstrap: str, topic: str, kind: str) -> None:
    def new() -> Any:
        if kind == "producer":
            return AIOKafkaProducer(bootstrap_servers=bootstrap)
        return AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=topic)

    async def program() -> None:
        await use(bootstrap, topic)
        await asyncio.sleep(0.1)
        before = settled()
        for steps in range(12):
            client = new()
            starting = asyncio.create_task(client.start())
            for step in range(steps):
                await asyncio.sleep(0.002 * (step % 3))
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await client.stop()
        await settle_to(before)

    run(program())


@pytest.mark.parametrize("kind", [AIOKafkaProducer, AIOKafkaConsumer])
def test_dropped_client_warns_and_ends(bootstrap: str, kind: Any) -> None:
    async def program() -> None:
        before = settled()
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        client = kind(bootstrap_servers=bootstrap)
        await client.start()
        dropped = weakref.ref(client)
        with pytest.warns(ResourceWarning, match=f"Unclosed {kind.__name__}"):
            del client
            gc.collect()
        assert dropped() is None
        await settle_to(before)

    run(program())


def test_clients_of_a_closed_loop_end(bootstrap: str, topic: str) -> None:
    async def leave_open() -> Any:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=topic)
        await producer.start()
        await producer.send_and_wait(topic, b"x")
        await consumer.start()
        return producer, consumer

    async def nothing() -> tuple[int, int, int]:
        await use(bootstrap, topic)
        return settled()

    before = run(nothing())
    clients = run(leave_open())
    run(settle_to(before))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del clients
        gc.collect()
