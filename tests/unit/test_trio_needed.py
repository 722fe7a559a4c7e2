"""Clients and brokers for tests, used under asyncio or without any event loop: an error that says what to use."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import trio

import triokafka
from triokafka import AdminClient, Consumer, Producer, TopicPartition
from triokafka.mirror import Mirror, MirrorOptions
from triokafka.testing import run_simulation, running_broker, running_cluster, simulation

_NOWHERE = "127.0.0.1:1"
_IN_ASYNCIO = (
    r"needs Trio: this code runs under asyncio\. Use (triokafka\.asyncio, or triokafka\.blocking in a thread|"
    r"triokafka\.testing\.asyncio, or triokafka\.testing\.blocking in a thread|triokafka\.testing\.run_simulation)"
)
_NO_LOOP = r"needs Trio: no Trio run is active in this thread\. Start the program with trio\.run"

_OPENED: dict[str, Callable[[], Any]] = {
    "Producer": lambda: Producer(bootstrap_servers=_NOWHERE),
    "Consumer": lambda: Consumer("t", bootstrap_servers=_NOWHERE),
    "AdminClient": lambda: AdminClient(bootstrap_servers=_NOWHERE),
    "running_broker": running_broker,
    "running_cluster": running_cluster,
    "simulation": lambda: simulation(1),
}
_ARGUMENTS: dict[str, Any] = {
    "partition": TopicPartition("t", 0),
    "topic": "t",
    "timestamps": {TopicPartition("t", 0): 0},
    "partitions": [TopicPartition("t", 0)],
    "group_id": "g",
    "value": b"v",
    "values": [b"v"],
    "request": None,
}
_CALLS = [
    (client, name)
    for client in ("Producer", "Consumer")
    for name, function in inspect.getmembers(getattr(triokafka, client), inspect.isfunction)
    if not name.startswith("_") and inspect.iscoroutinefunction(function)
] + [
    ("Consumer", "__anext__"),
    ("Producer", "metrics"),
    ("AdminClient", "list_topics"),
    ("AdminClient", "create_topics"),
]


async def _call(client: str, name: str) -> None:
    method = getattr(_OPENED[client](), name)
    required = [
        parameter.name
        for parameter in inspect.signature(method).parameters.values()
        if parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    ]
    result = method(*(_ARGUMENTS.get(name, ["t"]) for name in required))
    if inspect.isawaitable(result):
        await result


@pytest.mark.parametrize("name", _OPENED)
def test_entering_under_asyncio_names_the_other_ways(name: str) -> None:
    async def main() -> None:
        async with _OPENED[name]():
            raise AssertionError("it is not to be entered")

    with pytest.raises(RuntimeError, match=_IN_ASYNCIO):
        asyncio.run(main())


@pytest.mark.parametrize("name", _OPENED)
def test_entering_without_an_event_loop_names_trio_run(name: str) -> None:
    entering = _OPENED[name]().__aenter__()
    with pytest.raises(RuntimeError, match=_NO_LOOP):
        entering.send(None)


@pytest.mark.parametrize(("client", "name"), _CALLS)
def test_calls_under_asyncio_name_the_other_ways(client: str, name: str) -> None:
    with pytest.raises(RuntimeError, match=_IN_ASYNCIO):
        asyncio.run(_call(client, name))


@pytest.mark.parametrize(("client", "name"), _CALLS)
def test_calls_without_an_event_loop_name_trio_run(client: str, name: str) -> None:
    calling = _call(client, name)
    with pytest.raises(RuntimeError, match=_NO_LOOP):
        calling.send(None)


def test_process_partitions_under_asyncio_names_the_other_ways() -> None:
    async def handle(record: object) -> None: ...

    consumer = Consumer("t", bootstrap_servers=_NOWHERE, enable_auto_commit=False)
    with pytest.raises(RuntimeError, match=_IN_ASYNCIO):
        asyncio.run(triokafka.process_partitions(consumer, handle))


@pytest.mark.parametrize("name", ["running_broker", "running_cluster"])
def test_broker_entered_under_asyncio_names_the_module_for_asyncio(name: str) -> None:
    async def main() -> None:
        async with _OPENED[name]():
            raise AssertionError("it is not to be entered")

    with pytest.raises(
        RuntimeError, match=r"Use triokafka\.testing\.asyncio, or triokafka\.testing\.blocking in a thread"
    ):
        asyncio.run(main())


def test_mirror_under_asyncio_names_no_module_that_it_does_not_have() -> None:
    mirror = Mirror(MirrorOptions(source={}, target={}, source_alias="a", target_alias="b"))
    with pytest.raises(RuntimeError, match=r"under asyncio\. Use a Trio run of its own: trio\.run\(main\) in a thread"):
        asyncio.run(mirror.run())


@pytest.mark.parametrize("name", ["Producer", "Consumer", "AdminClient"])
def test_clients_may_be_made_anywhere(name: str) -> None:
    """Only their use needs Trio: a program may make them before it starts the loop."""

    async def make() -> Any:
        return _OPENED[name]()

    client = asyncio.run(make())

    async def use() -> None:
        async with client:
            pass

    trio.run(use)


async def test_run_simulation_inside_a_trio_run_names_simulation() -> None:
    with pytest.raises(RuntimeError, match=r"async with simulation\(seed\)"):
        run_simulation(lambda world: trio.sleep(0), 1)


async def test_asyncio_thread_beside_a_trio_run_gets_the_same_error() -> None:
    async with Consumer("t", bootstrap_servers=_NOWHERE) as consumer:

        def poll_under_asyncio() -> None:
            async def main() -> None:
                await consumer.poll()

            asyncio.run(main())

        with pytest.raises(RuntimeError, match=_IN_ASYNCIO):
            await trio.to_thread.run_sync(poll_under_asyncio)


async def test_delivery_awaited_under_asyncio_beside_a_trio_run_gets_the_same_error() -> None:
    async with running_broker() as broker:
        async with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
            delivery = await producer.send("t", b"v")

            def wait_under_asyncio() -> None:
                async def main() -> None:
                    await delivery

                asyncio.run(main())

            with pytest.raises(RuntimeError, match=_IN_ASYNCIO):
                await trio.to_thread.run_sync(wait_under_asyncio)
        assert delivery.result().offset == 0
