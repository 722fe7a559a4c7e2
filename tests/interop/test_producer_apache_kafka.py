"""The producer against three nodes of Apache Kafka: the same scenarios as with every other broker, and what happens
when nodes are stopped, killed and started again, leaders move, and the end of a log is lost."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

import triokafka
from tests import producer_scenarios
from tests.interop.kafka_cluster import KafkaCluster, KafkaNode, kafka_cluster
from tests.producer_ledger import Promise
from tests.producer_scenarios import Peer
from tests.producer_workload import Workload
from tests.read_back import read_all, read_all_with_confluent, read_all_with_kafka_python

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with kafka_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.mark.parametrize("name", producer_scenarios.scenarios_for())
async def test_producer(cluster: KafkaCluster, name: str) -> None:
    await producer_scenarios.run(name, Peer(cluster.bootstrap, replicas=3), f"topic-{name.replace('_', '-')}")


PRODUCERS: dict[str, tuple[Promise, dict[str, Any]]] = {
    "idempotent-5": (Promise.EXACTLY_ONCE, {}),
    "idempotent-1": (Promise.EXACTLY_ONCE, {"max_in_flight_requests_per_connection": 1}),
    "compressed": (Promise.EXACTLY_ONCE, {"compression_type": "lz4"}),
    "plain-1": (Promise.IN_ORDER, {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1}),
    "plain-5": (Promise.AT_LEAST_ONCE, {"enable_idempotence": False}),
    "acks-0": (Promise.AT_MOST_ONCE, {"acks": 0}),
}


async def _produce_through(cluster: KafkaCluster, names: list[str], trouble: Any) -> None:
    """Producers of several kinds go on, each to a topic of its own, until the trouble is over; then all logs are as
    promised, by three readings of them."""
    peer = Peer(cluster.bootstrap, replicas=3)
    workloads: dict[str, Workload] = {}
    over = trio.Event()

    async def produce(name: str) -> None:
        workload = workloads[name]
        await workload.run(
            peer.producer(
                batch_size=600,
                linger_ms=2,
                request_timeout_ms=4_000,
                delivery_timeout_ms=120_000,
                retry_backoff_ms=20,
                reconnect_backoff_max_ms=200,
                **PRODUCERS[name][1],
            ),
            during=lambda: workload.go_on_until(over),
        )

    with trio.fail_after(180):
        for name in names:
            await peer.prepare(name)
            workloads[name] = Workload(random.Random(name), {name: 3}, records=2_000, callers=3, pause=0.05)
        async with trio.open_nursery() as nursery:
            for name in names:
                nursery.start_soon(produce, name)
            await trio.to_thread.run_sync(trouble)
            over.set()
        for name in names:
            promise = PRODUCERS[name][0]
            ledger = workloads[name].ledger
            entries = await read_all(cluster.bootstrap, {name: 3})
            if promise is not Promise.AT_MOST_ONCE:
                assert not ledger.failed, f"{name}: {list(ledger.failed.items())[:3]}"
            repeats = ledger.check(entries, promise, most_in_batch=200)
            print(f"{name}: {len(ledger.acknowledged)} acknowledged, {repeats} repeated")
            assert await read_all_with_kafka_python(cluster.bootstrap, {name: 3}) == entries
            assert await read_all_with_confluent(cluster.bootstrap, {name: 3}) == entries


async def test_order_is_kept_through_restarts_and_moves_of_leaders(cluster: KafkaCluster) -> None:
    """One node is stopped in order, one is killed, both come back, and the leaders return to where they were."""
    topic = "idempotent-5"

    def trouble() -> None:
        first = cluster.nodes[0]
        first.end(signal.SIGTERM)
        first.start()
        first.wait_until_listening()
        cluster.wait_until_in_sync(topic)
        cluster.elect_preferred_leaders(topic)
        _node_that_leads(cluster, topic).end(signal.SIGKILL)
        for node in cluster.nodes:
            if not node.running:
                node.start()
                node.wait_until_listening()
        cluster.wait_until_in_sync(topic)
        for name in PRODUCERS:
            cluster.elect_preferred_leaders(name)

    await _produce_through(cluster, list(PRODUCERS), trouble)


def _node_that_leads(cluster: KafkaCluster, topic: str) -> KafkaNode:
    return cluster.nodes[cluster.leaders(topic)[0] - 1]


async def test_lost_end_of_a_log_is_followed_by_a_new_epoch(tmp_path: Path) -> None:
    """The only replica loses what it had acknowledged, as after a power cut: the next batch is out of order. The
    producer begins a new epoch and goes on; what is still there is in order, each record once."""
    with kafka_cluster(tmp_path, nodes=1) as cluster, trio.fail_after(120):
        (node,) = cluster.nodes
        peer = Peer(cluster.bootstrap)
        async with peer.producer(linger_ms=0, request_timeout_ms=4_000, reconnect_backoff_max_ms=200) as producer:
            async with triokafka.AdminClient(bootstrap_servers=cluster.bootstrap) as admin:
                await admin.create_topics([triokafka.NewTopic("cut", 1, 1)])
            for number in range(20):
                assert (await (await producer.send("cut", b"%d" % number))).offset == number
            node.end(signal.SIGKILL)
            (segment,) = (node.data / "cut-0").glob("*.log")
            content = segment.read_bytes()
            segment.write_bytes(content[: len(content) * 3 // 4])
            node.start()
            await trio.to_thread.run_sync(node.wait_until_listening)
            for number in range(20, 40):
                await (await producer.send("cut", b"%d" % number))
            assert producer.metrics()["epoch_bump_total"] == 1
        (log,) = (await read_all(cluster.bootstrap, {"cut": 1})).values()
        numbers = [int(value or b"") for _, value in log]
        kept = len(numbers) - 20
        assert 10 <= kept < 20
        assert numbers == [*range(kept), *range(20, 40)]
