"""Transactions in clusters of triokafka and Apache Kafka, whose coordinators and leaders are nodes of both.

Every transaction writes to partitions that nodes of both programs lead, and its coordinator is a node of either:
markers (WriteTxnMarkers) and verifications (AddPartitionsToTxn of brokers) are sent in both directions. The clusters
have two brokers, so that the coordinator moves to the other program when its node is killed.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.interop.mixed_cluster import TIMEOUT, Member, MixedCluster, mixed_cluster
from tests.support.transactional_drivers import (
    BlockingDriver,
    ConfluentDriver,
    Refused,
    TransactionalDriver,
    committed,
    read,
)

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

TOPIC: Final = "mixed"
PARTITIONS: Final = 4
GROUP: Final = "copiers"
OURS: Final = [Member(1, "broker,controller"), Member(2, "broker", kafka=True)]
THEIRS: Final = [Member(1, "broker"), Member(2, "broker,controller", kafka=True)]


def values_of(cluster: MixedCluster, isolation_level: str) -> dict[int, list[bytes]]:
    """Return the values that a reader of librdkafka gets from each partition."""
    found: dict[int, list[bytes]] = {}
    for number in range(PARTITIONS):
        consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "judge",
                "enable.auto.commit": False,
                "isolation.level": isolation_level,
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(TOPIC, number, 0)])
        values = found[number] = []
        while True:
            message = consumer.poll(TIMEOUT)
            assert message is not None, f"partition {number} did not reach its end"
            if message.error() is not None:
                break
            values.append(message.value() or b"")
        consumer.close()
    return found


def write(producer: TransactionalDriver, name: str, number: int, *, commits: bool) -> bytes:
    """Write one transaction over all partitions, with an offset of the group."""
    value = b"%s-%d" % (name.encode(), number)
    producer.begin()
    for partition in range(PARTITIONS):
        producer.send(TOPIC, value, partition)
    producer.send_offsets(GROUP, {(TOPIC, 0): number + 1})
    producer.flush()
    if commits:
        producer.commit()
    else:
        producer.abort()
    return value


@pytest.mark.parametrize(
    "members",
    [
        pytest.param(OURS, id="our controller"),
        pytest.param(THEIRS, id="Apache Kafka's controller", marks=pytest.mark.long),
    ],
)
def test_transactions_cross_both_programs_in_both_directions(members: list[Member], tmp_path: Path) -> None:
    # Ids in many partitions of the transaction log, so that both programs coordinate some of them.
    settings = {"transaction_state_log_num_partitions": "6", "offsets_topic_num_partitions": "4"}
    with mixed_cluster(tmp_path, members, **settings) as cluster:
        cluster.create_topic(TOPIC, PARTITIONS, replicas=2, min_insync_replicas="1")
        kinds = {node.number: node.kafka for node in cluster.brokers}
        assert {kinds[leader] for leader in cluster.leaders(TOPIC)} == {True, False}
        expected = []
        for kind in (BlockingDriver, ConfluentDriver):
            for identity in range(4):
                producer = kind(cluster.bootstrap, f"{kind.name}-{identity}", 60_000)
                producer.init()
                for number in range(4):
                    value = write(producer, f"{kind.name}-{identity}", number, commits=number != 2)
                    expected += [value] if number != 2 else []
                producer.close()
        coordinators = {kinds[leader] for leader in cluster.leaders("__transaction_state")}
        assert coordinators == {True, False}, "both programs must coordinate"
        seen = values_of(cluster, "read_committed")
        assert all(values == expected for values in seen.values()), seen
        assert committed(cluster.bootstrap, GROUP, TOPIC) == 4
        assert all(len(values) == 32 for values in values_of(cluster, "read_uncommitted").values())
        # Every coordinator moves to the other program, and back.
        for node in cluster.brokers:
            if node.member.is_controller:
                continue
            producer = BlockingDriver(cluster.bootstrap, "survivor", 60_000)
            producer.init()
            producer.begin()
            for partition in range(PARTITIONS):
                producer.send(TOPIC, b"before", partition)
            producer.flush()
            node.restart(signal.SIGKILL)
            cluster.wait_until_in_sync(TOPIC)
            try:
                producer.commit()
                expected.append(b"before")
            except Refused as refused:
                assert not refused.fatal
                producer.abort()
            expected.append(write(producer, "after", 4, commits=True))
            producer.close()
        seen = values_of(cluster, "read_committed")
        assert all(values == expected for values in seen.values()), seen
        assert sorted(read(cluster.bootstrap, TOPIC, PARTITIONS)) == sorted(expected * PARTITIONS)
        assert committed(cluster.bootstrap, GROUP, TOPIC) == 5
