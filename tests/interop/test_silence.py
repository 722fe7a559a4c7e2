"""A producer and a group with three nodes of Apache Kafka, while their connections die silently.

Every connection goes through a proxy of its node. The proxies leave connections half-open, drop everything for some
seconds, or let bytes drip. No acknowledged record is lost, repeated or reordered, and no stall is longer than the
limit.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import trio

import triokafka
from tests.hostile import silence
from tests.interop.kafka_cluster import KafkaCluster, kafka_cluster
from tests.support.fault_proxy import FaultProxy, ProxiedWorld, proxied_world
from triokafka.errors import KafkaError

pytestmark = pytest.mark.interop

LIMIT = 20.0
"""Seconds. One dead connection costs 9, and another that is found after it as much again. Without detection each wait
takes the 30 seconds of ``request_timeout_ms``, or more."""
HOLE = 4.0
PAUSE = 12.0
FAULTS = ("half-open", "requests lost", "answers lost", "black hole", "drip")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with kafka_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


class Run:
    """The acknowledged and the read records, and the longest pause in either."""

    def __init__(self) -> None:
        self.acknowledged: list[int] = []
        self.read: list[int] = []
        self.stalls = {"acknowledgements": 0.0, "records": 0.0}
        self._last: dict[str, float] = {}

    def note(self, kind: str) -> None:
        now = trio.current_time()
        self.stalls[kind] = max(self.stalls[kind], now - self._last.get(kind, now))
        self._last[kind] = now

    async def wait_for_progress(self) -> None:
        """Wait until more records are acknowledged and read, so that the next fault hits working clients."""
        acknowledged, read = len(self.acknowledged), len(self.read)
        with trio.fail_after(60):
            while len(self.acknowledged) < acknowledged + 5 or len(self.read) < read + 5:
                await trio.sleep(0.1)


async def produce(world: ProxiedWorld, cluster: KafkaCluster, topic: str, run: Run, done: trio.Event) -> None:
    async with triokafka.Producer(world=world, bootstrap_servers=cluster.bootstrap, linger_ms=0) as producer:
        number = 0
        while not done.is_set():
            await (await producer.send(topic, str(number).encode(), partition=0))
            run.acknowledged.append(number)
            run.note("acknowledgements")
            number += 1
            await trio.sleep(0.02)


async def consume(world: ProxiedWorld, cluster: KafkaCluster, topic: str, run: Run, joined: trio.Event) -> None:
    async with triokafka.Consumer(
        topic, world=world, bootstrap_servers=cluster.bootstrap, group_id=topic, auto_offset_reset="earliest"
    ) as consumer:
        while True:
            try:
                record = await anext(consumer)
            except KafkaError:
                continue
            joined.set()
            run.read.append(int(record.value or b"-1"))
            run.note("records")


async def strike(proxy: FaultProxy, fault: str) -> None:
    silence.strike(proxy, fault)
    if fault == "black hole":
        await trio.sleep(HOLE)
        proxy.heal()


async def run_through(cluster: KafkaCluster, topic: str, faults: list[str], chance: random.Random) -> None:
    async with triokafka.AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
        await admin.create_topics([triokafka.NewTopic(topic, 1, 3)])
    run, done, joined = Run(), trio.Event(), trio.Event()
    async with proxied_world() as world, trio.open_nursery() as reading:
        async with trio.open_nursery() as writing:
            writing.start_soon(produce, world, cluster, topic, run, done)
            reading.start_soon(consume, world, cluster, topic, run, joined)
            with trio.fail_after(60):
                await joined.wait()
            for fault in faults:
                hit = list(world.proxies.values())
                for proxy in hit if fault == "half-open" else [chance.choice(hit)]:
                    await strike(proxy, fault)
                await trio.sleep(PAUSE)
                await run.wait_for_progress()
            done.set()
        with trio.fail_after(60):
            while len(run.read) < len(run.acknowledged):
                await trio.sleep(0.1)
        reading.cancel_scope.cancel()
    stalls = ", ".join(f"{kind}: {seconds:.1f} s" for kind, seconds in run.stalls.items())
    print(f"{len(run.acknowledged)} records through {len(faults)} faults; longest pause between {stalls}")
    assert run.read == run.acknowledged
    assert max(run.stalls.values()) < LIMIT, stalls


async def test_no_record_is_lost_when_connections_die_silently(cluster: KafkaCluster) -> None:
    await run_through(cluster, "short", ["half-open", "black hole", "drip"], random.Random(1))


@pytest.mark.long
@pytest.mark.timeout(0)
@pytest.mark.parametrize("seed", range(5))
async def test_no_record_is_lost_in_many_kinds_of_silence(cluster: KafkaCluster, seed: int) -> None:
    chance = random.Random(seed)
    await run_through(cluster, f"long-{seed}", chance.choices(FAULTS, k=20), chance)
