"""The producer with three nodes of Apache Kafka: the scenarios of all brokers, and stopped, killed and restarted nodes,
moving leaders, and a truncated log.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio

import triokafka
from tests.interop.kafka_cluster import KafkaCluster, KafkaNode, kafka_cluster
from tests.support import producer_scenarios
from tests.support.producer_scenarios import KINDS, Peer, through_trouble
from tests.support.read_back import read_all

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    with kafka_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.mark.parametrize("name", producer_scenarios.scenarios_for())
async def test_producer(cluster: KafkaCluster, name: str) -> None:
    await producer_scenarios.run(name, Peer(cluster.bootstrap, replicas=3), f"topic-{name.replace('_', '-')}")


async def test_order_survives_restarts_and_moves_of_leaders(cluster: KafkaCluster) -> None:
    """One node is stopped cleanly, one is killed, both come back, and the leaders return to their preferred
    replicas.
    """
    topic = "idempotent-5"

    def disrupt(wait_for_answers: Callable[[int], None]) -> None:
        wait_for_answers(100)
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
        for name in KINDS:
            cluster.elect_preferred_leaders(name)

    with trio.fail_after(240):
        await through_trouble(Peer(cluster.bootstrap, replicas=3), disrupt)


def _node_that_leads(cluster: KafkaCluster, topic: str) -> KafkaNode:
    return cluster.nodes[cluster.leaders(topic)[0] - 1]


async def test_truncated_log_causes_a_new_epoch(tmp_path: Path) -> None:
    """The only replica loses acknowledged records, as after a power cut, so that the next batch is out of order.

    The producer starts a new epoch and continues; the remaining records are in order, each once.
    """
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
        remaining = len(numbers) - 20
        assert 10 <= remaining < 20
        assert numbers == [*range(remaining), *range(20, 40)]
