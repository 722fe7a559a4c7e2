"""The Java client with a cluster of `triokafka.testing`, whose leaders and coordinators move and whose
brokers crash.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance.driver import Delivered, Message
from tests.conformance.java_driver import JavaDriver, JavaProcess, java_process
from tests.interop import jvm
from triokafka.testing.blocking import BlockingCluster, running_cluster

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

PATIENCE = 30.0
ROUNDS = 12


@pytest.fixture(scope="module")
def java() -> Iterator[JavaProcess]:
    jvm.require("mvn", "javac", "java")
    with java_process(jvm.compiled()) as process:
        yield process


def inject_fault(cluster: BlockingCluster, number: int) -> None:
    """Inject a different fault each time."""
    match number % 4:
        case 0:
            cluster.move_leader("t")
        case 1:
            cluster.move_coordinator("g")
        case 2:
            cluster.restart(cluster.leader("t"), clean=False)
        case 3:
            cluster.restart(cluster.coordinator("g"))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_java_reads_every_record_once_and_in_order(java: JavaProcess, protocol: str) -> None:
    with running_cluster(nodes=3) as cluster:
        cluster.create_topic("t", partitions=1)
        client = JavaDriver(java, cluster.bootstrap_servers, PATIENCE)
        try:
            consumer = client.consumer("g", group_protocol=protocol)
            consumer.subscribe(["t"])
            seen: list[bytes | None] = []
            for number in range(ROUNDS):
                (sent,) = client.produce("t", [Message(b"%d" % number)])
                assert isinstance(sent, Delivered) and sent.offset == number
                while len(seen) <= number:
                    seen += [record.value for record in consumer.poll()]
                consumer.commit()
                inject_fault(cluster, number)
            assert seen == [b"%d" % number for number in range(ROUNDS)]
            consumer.close()
        finally:
            client.close()
