"""Brokers and faults for asyncio programs, alone and under pytest-asyncio and anyio."""

from __future__ import annotations

import asyncio
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest

from triokafka.asyncio import AIOKafkaConsumer, AIOKafkaProducer
from triokafka.errors import TopicAuthorizationFailedError
from triokafka.testing.asyncio import running_broker, running_cluster

pytest_plugins = ["pytester"]

_UNDER_PLUGINS = """
import asyncio

import pytest

from triokafka.asyncio import AIOKafkaConsumer, AIOKafkaProducer
from triokafka.testing.asyncio import running_broker


async def exchange(servers, topic):
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait(topic, b"two coffees")
    async with AIOKafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        assert (await consumer.getone()).value == b"two coffees"


@pytest.mark.{marker}
async def test_fixture(kafka_broker, kafka_topic):
    await exchange(kafka_broker.bootstrap_servers, kafka_topic)


@pytest.mark.{marker}
async def test_own_broker():
    async with running_broker() as broker:
        await broker.create_topic("orders")
        broker.fail_next("Produce", error=6)
        await exchange(broker.bootstrap_servers, "orders")
"""


def run(program: object) -> None:
    """Run a coroutine with a time limit."""
    asyncio.run(asyncio.wait_for(program, 60))  # type: ignore[arg-type]


def broker_threads() -> list[threading.Thread]:
    """Return the threads of brokers that run."""
    return [thread for thread in threading.enumerate() if thread.name == "triokafka broker"]


def test_broker_restarts_and_keeps_its_records_while_the_loop_continues() -> None:
    async def program() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        async with running_broker() as broker:
            ticking = asyncio.create_task(tick())
            async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
                await broker.create_topic("orders", partitions=2)
                await producer.send_and_wait("orders", b"1", partition=1)
                before = ticks
                await broker.restart()
                assert ticks > before
                metadata = await producer.send_and_wait("orders", b"2", partition=1)
                assert metadata.offset == 1
            assert broker.is_running
            ticking.cancel()

    run(program())
    assert not broker_threads()


def test_faults_come_from_asyncio() -> None:
    async def program() -> None:
        async with running_broker() as broker:
            await broker.create_topic("orders")
            async with AIOKafkaProducer(
                bootstrap_servers=broker.bootstrap_servers, request_timeout_ms=2_000
            ) as producer:
                broker.fail_next("Produce", TopicAuthorizationFailedError)
                with pytest.raises(TopicAuthorizationFailedError):
                    await producer.send_and_wait("orders", b"x")
                broker.cut_connections()
                assert (await producer.send_and_wait("orders", b"y")).offset == 0

    run(program())


def test_cluster_moves_a_leader() -> None:
    async def program() -> None:
        async with running_cluster(nodes=2) as cluster:
            await cluster.create_topic("orders", replication_factor=2)
            leader = cluster.leader("orders", 0)
            other = next(broker.node_id for broker in cluster.brokers if broker.node_id != leader)
            await cluster.move_leader("orders", 0, to=other)
            async with AIOKafkaConsumer(
                "orders", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
            ) as consumer:
                async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
                    await producer.send_and_wait("orders", b"x")
                assert (await consumer.getone()).value == b"x"
            assert cluster.broker(other).node_id == other

    run(program())


def test_cancelled_start_leaves_no_thread() -> None:
    async def program() -> None:
        async def hold() -> None:
            async with running_broker():
                await asyncio.sleep(60)

        for steps in range(6):
            task = asyncio.create_task(hold())
            for _ in range(steps):
                await asyncio.sleep(0.005)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    run(program())
    assert not broker_threads()


@pytest.mark.parametrize(("plugin", "marker"), [("pytest_asyncio", "asyncio"), ("anyio", "anyio")])
def test_fixtures_and_brokers_work_under_the_plugin(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, plugin: str, marker: str
) -> None:
    if find_spec(plugin) is None:
        pytest.skip(f"{plugin} is not installed")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    pytester.makeini("[pytest]\naddopts = -p no:cacheprovider\n")
    pytester.makeconftest("import pytest\n\n\n@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n")
    pytester.makepyfile(test_it=_UNDER_PLUGINS.format(marker=marker))
    result = pytester.runpytest_subprocess("-q", timeout=120)
    result.assert_outcomes(passed=2)
