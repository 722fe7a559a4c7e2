"""A bit that flips on the disk of a coordinator: another in-sync replica coordinates. In virtual time."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio

import triokafka
from tests.support.simulated import current_simulation, simulated
from tests.support.simulated_cluster import DATA, SimulatedCluster
from triokafka.records import iter_batches
from triokafka.structs import OffsetAndMetadata, TopicPartition
from triokafka.world.memory import MemoryStorage

INTERNAL = {"__consumer_offsets": 1, "__transaction_state": 1}
ORDERS = TopicPartition("orders", 0)
WITHIN = 20.0


def flip_a_bit(disk: MemoryStorage, partition: str) -> None:
    """Change the content of the first batch of a log; its checksum no longer fits."""
    path = f"{DATA}/{partition}/{0:020d}.log"
    content = disk.read_file(path)
    at = next(iter_batches(content)).end - 2
    disk.open(path).write_at(at, bytes([content[at] ^ 1]))


@pytest.mark.long
@simulated
async def test_another_replica_coordinates_when_the_new_leader_cannot_read_its_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    cluster = SimulatedCluster(
        current_simulation(), offsets_topic_num_partitions=1, transaction_state_log_num_partitions=1
    )
    cluster.start()
    await cluster.create_topics({"orders": 1})
    where: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap}

    async def work(name: str) -> None:
        producer = triokafka.Producer(world=cluster.client_world(), transactional_id="t", **where)
        async with producer, producer.transaction():
            await producer.send("orders", name.encode(), partition=0)
        async with triokafka.Consumer(world=cluster.client_world(), group_id="g", **where) as consumer:
            consumer.assign([ORDERS])
            await consumer.commit({ORDERS: OffsetAndMetadata(7)})
            assert await consumer.committed(ORDERS) is not None

    await work("before")
    await cluster.wait_in_sync(INTERNAL)
    for topic in INTERNAL:
        state = cluster.nodes[0].image.topics[topic].partitions[0]
        heir = next(number for number in state.replicas if number != state.leader)
        flip_a_bit(cluster.nodes[heir - 1].host.disk, f"{topic}-0")
        leader = cluster.nodes[state.leader - 1]
        await leader.stop()
        with trio.fail_after(WITHIN):
            await work("meanwhile")
        assert f"{topic}-0: this replica cannot be read" in caplog.text
        leader.start()
        await cluster.wait_in_sync(INTERNAL)
    await cluster.stop()
