"""Connections that die without a reset: the longest stall of each wait, with our client and with librdkafka's.

A broker advertises the address of a proxy. Clients of both kinds connect through it; then the proxy leaves their
connections half-open, drops everything for some seconds, or limits the rate, and each client repeats its work.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any, Final

import confluent_kafka
import confluent_kafka.admin
import trio

import triokafka
from tests.hostile.table import Row
from tests.support.broker_process import BrokerProcess, free_port
from tests.support.fault_proxy import FaultProxy
from triokafka.structs import TopicPartition

LIMIT: Final = 10.0
PATIENCE: Final = 90.0
HOLE: Final = 5.0
DRIP: Final = 3.0
CLOSING: Final = 20.0
WORKS: Final = ("produce", "consume in a group", "commit", "admin")
FAULTS: Final = ("half-open", "requests lost", "answers lost", "black hole", "drip")
SHORT: Final = ("half-open",)

Work = Callable[[], Awaitable[float]]
"""Do the work once more, and return its end in seconds of `time.monotonic`."""


def measure(faults: Iterable[str] = FAULTS, *, beside: bool = True) -> Iterator[Row]:
    """Measure the stalls; ``beside`` runs librdkafka as well."""
    for fault in faults:
        for name, stalls in longest_stalls(fault, beside=beside).items():
            ours, theirs = stalls.get("ours"), stalls.get("theirs")
            figure = _text(ours) + (f", librdkafka {_text(theirs)}" if beside else "")
            yield Row("silence", f"{fault}: {name}", figure, f"under {LIMIT:g} s", ours is not None and ours < LIMIT)


def longest_stalls(fault: str, *, beside: bool = True) -> dict[str, dict[str, float | None]]:
    """Return the seconds of each stall by work, and by client: ``ours``, ``theirs``. None: longer than `PATIENCE`."""
    return trio.run(partial(_measure, fault, beside=beside))


def _text(seconds: float | None) -> str:
    return f"over {PATIENCE:g} s" if seconds is None else f"{max(0.0, seconds):.1f} s"


async def _measure(fault: str, *, beside: bool) -> dict[str, dict[str, float | None]]:
    port = free_port()
    stalls: dict[str, dict[str, float | None]] = {name: {} for name in WORKS}
    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        proxy = FaultProxy(("127.0.0.1", port))
        host, advertised = await proxy.start(nursery)
        broker = BrokerProcess(
            None,
            listen=f"127.0.0.1:{port}",
            settings={"advertised.listeners": f"PLAINTEXT://{host}:{advertised}"},
        )
        await trio.to_thread.run_sync(broker.start)
        try:
            servers = f"{host}:{advertised}"
            await _feed(stack, nursery, servers, port)
            works: list[tuple[str, str, Work]] = [("ours", *work) for work in await _ours(stack, servers)]
            if beside:
                works += [("theirs", *work) for work in await trio.to_thread.run_sync(_theirs, servers)]
            async with trio.open_nursery() as warming:
                for _, _, work in works:
                    warming.start_soon(work)
            healed_at = time.monotonic()

            async def run(kind: str, name: str, work: Work) -> None:
                with trio.move_on_after(PATIENCE):
                    done_at = await work()
                    stalls[name][kind] = done_at - healed_at
                    return
                stalls[name][kind] = None

            async with trio.open_nursery() as working:
                strike(proxy, fault)
                for one in works:
                    working.start_soon(run, *one)
                if fault == "black hole":
                    await trio.sleep(HOLE)
                    proxy.heal()
                    healed_at = time.monotonic()
        finally:
            proxy.reset_all()
            proxy.heal()
            nursery.cancel_scope.deadline = trio.current_time() + CLOSING
            await stack.aclose()
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(broker.close)
        nursery.cancel_scope.cancel()
    return stalls


def strike(proxy: FaultProxy, fault: str) -> None:
    """Start a fault on all connections of a proxy; a black hole lasts until `FaultProxy.heal`."""
    match fault:
        case "half-open":
            proxy.half_open()
        case "requests lost":
            proxy.half_open(proxy.to_broker)
        case "answers lost":
            proxy.half_open(proxy.to_client)
        case "black hole":
            proxy.black_hole()
        case _:
            proxy.drip(DRIP)


async def _feed(stack: AsyncExitStack, nursery: trio.Nursery, servers: str, port: int) -> None:
    """Write the time into both topics repeatedly, without the proxy."""

    async def directly(host: str, advertised: int) -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", port)

    producer = await stack.enter_async_context(
        triokafka.Producer(bootstrap_servers=servers, stream_factory=directly, linger_ms=0)
    )

    async def write() -> None:
        with suppress(triokafka.errors.KafkaError):
            while True:
                now = str(time.monotonic()).encode()
                for topic in ("ours", "theirs"):
                    await (await producer.send(topic, now, partition=0))
                await trio.sleep(0.1)

    nursery.start_soon(write)


async def _ours(stack: AsyncExitStack, servers: str) -> list[tuple[str, Work]]:
    where: Any = {"bootstrap_servers": servers}
    producer = await stack.enter_async_context(triokafka.Producer(**where))
    admin = await stack.enter_async_context(triokafka.AdminClient(**where))
    consumer = await stack.enter_async_context(triokafka.Consumer("ours", **where, group_id="reads"))
    committer = await stack.enter_async_context(
        triokafka.Consumer("ours", **where, group_id="commits", enable_auto_commit=False)
    )
    await committer.poll(timeout_ms=5_000)

    async def produce() -> float:
        await (await producer.send("produced", b"ours", partition=0))
        return time.monotonic()

    async def consume() -> float:
        began = time.monotonic()
        while float((await anext(consumer)).value or b"0") <= began:
            pass
        return time.monotonic()

    async def commit() -> float:
        await committer.commit({TopicPartition("ours", 0): 0})
        return time.monotonic()

    async def administer() -> float:
        await admin.list_topics()
        return time.monotonic()

    return list(zip(WORKS, (produce, consume, commit, administer), strict=True))


def _theirs(servers: str) -> list[tuple[str, Work]]:
    where = {"bootstrap.servers": servers, "log_level": 0}
    producer = confluent_kafka.Producer(where)
    admin = confluent_kafka.admin.AdminClient(where)
    consumer = confluent_kafka.Consumer({**where, "group.id": "their-reads"})
    consumer.subscribe(["theirs"])
    committer = confluent_kafka.Consumer({**where, "group.id": "their-commits", "enable.auto.commit": False})
    committer.subscribe(["theirs"])
    deadline = time.monotonic() + PATIENCE
    while committer.poll(0.1) is None and time.monotonic() < deadline:
        pass

    def produce() -> float:
        producer.produce("produced", b"theirs", partition=0)
        producer.flush(PATIENCE)
        return time.monotonic()

    def consume() -> float:
        began = time.monotonic()
        while True:
            message = consumer.poll(0.1)
            if message is not None and not message.error() and float(message.value() or b"0") > began:
                return time.monotonic()
            if time.monotonic() - began > PATIENCE:
                return float("inf")

    def commit() -> float:
        began = time.monotonic()
        while time.monotonic() - began < PATIENCE:
            with suppress(confluent_kafka.KafkaException):
                committer.commit(offsets=[confluent_kafka.TopicPartition("theirs", 0, 0)], asynchronous=False)
                break
        return time.monotonic()

    def administer() -> float:
        with suppress(confluent_kafka.KafkaException):
            admin.list_topics(timeout=PATIENCE)
        return time.monotonic()

    def in_thread(work: Callable[[], float]) -> Work:
        return lambda: trio.to_thread.run_sync(work, abandon_on_cancel=True)

    return [(name, in_thread(work)) for name, work in zip(WORKS, (produce, consume, commit, administer), strict=True)]
