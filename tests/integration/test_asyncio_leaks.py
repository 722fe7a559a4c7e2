"""Clients of asyncio leak no tasks, threads, files or memory."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
import warnings
import weakref
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from tests.support.asyncio_programs import PATIENCE, cancelled_at, run, until
from triokafka.asyncio import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from triokafka.asyncio.guest import GuestLoop, guest_loop
from triokafka.client.producer.sender import Sender
from triokafka.loop_thread import loop_thread
from triokafka.network.connection import Connection
from triokafka.network.request_writer import RequestWriter


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
    """Return the numbers of files, threads, and tasks in the loop thread."""
    tasks = len(loop_thread().nursery.child_tasks)
    return open_files(), threading.active_count(), tasks


async def settled_after_use(bootstrap: str, topic: str) -> tuple[int, int, int]:
    """Use the clients once, which opens files that stay open; return the numbers once all tasks of Trio have ended."""
    _, _, tasks = settled()
    await use(bootstrap, topic)
    guest = guest_loop(asyncio.get_running_loop())
    await until(lambda: (guest is None or guest._run is None) and settled()[2] <= tasks)
    return settled()


async def settle_to(expected: tuple[int, int, int]) -> None:
    """Wait until the numbers are no larger than before."""
    await until(lambda: all(now <= then for now, then in zip(settled(), expected, strict=True)))


def test_start_and_stop_cycles_leave_nothing(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        before = await settled_after_use(bootstrap, topic)
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
        before = await settled_after_use(bootstrap, topic)
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


PRODUCER_CALLS: dict[str, Callable[[AIOKafkaProducer, str], Coroutine[Any, Any, Any]]] = {
    "send": lambda producer, topic: producer.send(topic, b"x"),
    "send_and_wait": lambda producer, topic: producer.send_and_wait(topic, b"x"),
    "send_batch": lambda producer, topic: producer.send_batch(producer.create_batch(), topic, partition=0),
    "flush": lambda producer, topic: send_and_flush(producer, topic),
    "partitions_for": lambda producer, topic: producer.partitions_for(topic),
    "stop": lambda producer, topic: producer.stop(),
}
TRANSACTION_CALLS: dict[str, Callable[[AIOKafkaProducer, str], Coroutine[Any, Any, Any]]] = {
    "begin and commit": lambda producer, topic: transact(producer, topic, "commit"),
    "begin and abort": lambda producer, topic: transact(producer, topic, "abort"),
    "transaction": lambda producer, topic: transact(producer, topic, "block"),
}
CONSUMER_CALLS: dict[str, Callable[[AIOKafkaConsumer, str], Coroutine[Any, Any, Any]]] = {
    "getone": lambda consumer, topic: from_the_beginning(consumer, topic, consumer.getone),
    "getmany": lambda consumer, topic: from_the_beginning(consumer, topic, partial(consumer.getmany, timeout_ms=1_000)),
    "commit": lambda consumer, topic: consumer.commit({TopicPartition(topic, 0): 0}),
    "committed": lambda consumer, topic: consumer.committed(TopicPartition(topic, 0)),
    "position": lambda consumer, topic: consumer.position(TopicPartition(topic, 0)),
    "seek_to_beginning": lambda consumer, topic: consumer.seek_to_beginning(),
    "seek_to_end": lambda consumer, topic: consumer.seek_to_end(),
    "seek_to_committed": lambda consumer, topic: consumer.seek_to_committed(),
    "end_offsets": lambda consumer, topic: consumer.end_offsets([TopicPartition(topic, 0)]),
    "offsets_for_times": lambda consumer, topic: consumer.offsets_for_times({TopicPartition(topic, 0): 0}),
    "topics": lambda consumer, topic: consumer.topics(),
    "stop": lambda consumer, topic: consumer.stop(),
}


async def from_the_beginning(consumer: AIOKafkaConsumer, topic: str, call: Callable[[], Any]) -> None:
    """Seek, so that the record of the call has not been fetched, and call."""
    consumer.seek(TopicPartition(topic, 0), 0)
    await call()


async def send_and_flush(producer: AIOKafkaProducer, topic: str) -> None:
    """Send a record and flush."""
    await producer.send(topic, b"x")
    await producer.flush()


async def transact(producer: AIOKafkaProducer, topic: str, how: str) -> None:
    """Send a record in a transaction."""
    if how == "block":
        async with producer.transaction():
            await producer.send_and_wait(topic, b"x")
        return
    await producer.begin_transaction()
    await producer.send(topic, b"x")
    await (producer.commit_transaction() if how == "commit" else producer.abort_transaction())


async def cancel_everywhere(new: Callable[[], Any], call: Callable[[Any, str], Any], topic: str) -> int:
    """Cancel the call at its first suspension, with another client at its second, and so on; return their number.

    The client still works afterwards, or at least ends.
    """
    suspension, reached = 0, True
    while reached:
        suspension += 1
        async with new() as client:
            reached = await cancelled_at(suspension, call(client, topic))
    return suspension - 1


@pytest.mark.parametrize("kind", ["producer", "transaction", "consumer"])
def test_call_that_is_cancelled_at_any_await_leaves_nothing(bootstrap: str, topic: str, kind: str) -> None:
    def new() -> Any:
        if kind == "consumer":
            return AIOKafkaConsumer(
                topic,
                bootstrap_servers=bootstrap,
                group_id=topic,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
        return AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic if kind == "transaction" else None)

    calls: Any = PRODUCER_CALLS if kind == "producer" else TRANSACTION_CALLS
    if kind == "consumer":
        calls = CONSUMER_CALLS

    async def program() -> None:
        before = await settled_after_use(bootstrap, topic)
        suspensions = {name: await cancel_everywhere(new, call, topic) for name, call in calls.items()}
        assert all(suspensions.values()), suspensions
        await settle_to(before)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(program())


def test_keyboard_interrupt_leaves_nothing(bootstrap: str, topic: str) -> None:
    async def interrupted(stage: int) -> None:
        async with (
            AIOKafkaProducer(bootstrap_servers=bootstrap) as producer,
            AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=topic) as consumer,
        ):
            asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
            if stage:
                await consumer.getone()
            while True:
                await producer.send_and_wait(topic, b"x")

    async def no_leak() -> tuple[int, int, int]:
        await use(bootstrap, topic)
        return settled()

    before = run(no_leak())
    for stage in (0, 1):
        with pytest.raises(KeyboardInterrupt):
            run(interrupted(stage))
    run(settle_to(before))


@pytest.mark.parametrize(
    ("kind", "method"),
    [(GuestLoop, "_step"), (Sender, "step"), (Connection, "submit"), (RequestWriter, "write")],
    ids=lambda part: getattr(part, "__name__", part),
)
def test_interrupt_in_the_middle_of_a_send_leaves_the_producer_usable(
    bootstrap: str, topic: str, monkeypatch: pytest.MonkeyPatch, kind: type, method: str
) -> None:
    original = getattr(kind, method)

    def interrupted(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        signal.raise_signal(signal.SIGINT)
        return original(*arguments, **options)

    async def start() -> AIOKafkaProducer:
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
        await producer.start()
        await producer.send_and_wait(topic, b"before")
        return producer

    async def send(producer: AIOKafkaProducer) -> None:
        sent.append(await producer.send(topic, b"a"))
        sent.append(await producer.send(topic, b"b"))
        await asyncio.sleep(PATIENCE)

    async def stop(producer: AIOKafkaProducer) -> list[int]:
        async with asyncio.timeout(PATIENCE):
            await producer.send_and_wait(topic, b"c")
            await producer.stop()
            return [(await future).offset for future in sent]

    sent: list[Any] = []
    loop = asyncio.new_event_loop()
    producer = loop.run_until_complete(start())
    monkeypatch.setattr(kind, method, interrupted)
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(send(producer))
    assert loop.run_until_complete(stop(producer)) == [1, 2]
    loop.close()


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_a_thousand_cycles_leave_no_memory(bootstrap: str, topic: str) -> None:
    async def cycles(count: int) -> None:
        for _ in range(count):
            async with asyncio.timeout(60):
                await use(bootstrap, topic)

    async def program() -> None:
        await cycles(50)
        gc.collect()
        before, objects, memory = settled(), len(gc.get_objects()), resident()
        await cycles(1_000)
        await settle_to(before)
        gc.collect()
        assert len(gc.get_objects()) < objects + 2_000
        assert resident() < memory + (16 << 20)

    asyncio.run(program())


def resident() -> int:
    """Return the process's memory in bytes."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


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

    async def no_leak() -> tuple[int, int, int]:
        await use(bootstrap, topic)
        return settled()

    before = run(no_leak())
    clients = run(leave_open())
    run(settle_to(before))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        del clients
        gc.collect()
