"""A replica that lost the end of its log while its broker was down does not make the others drop their records."""

from __future__ import annotations

import pytest
import trio

import triokafka
from tests.support.simulated import current_simulation, simulated
from tests.support.simulated_cluster import DATA, SimulatedCluster, SimulatedNode
from triokafka.structs import TopicPartition

TOPIC = "orders"
PARTITION = TopicPartition(TOPIC, 0)
RECORDS = 40


async def fill(cluster: SimulatedCluster) -> None:
    cluster.start()
    await cluster.create_topics({TOPIC: 1})
    async with triokafka.Producer(
        world=cluster.client_world(), bootstrap_servers=cluster.bootstrap, linger_ms=0
    ) as producer:
        for number in range(RECORDS):
            await (await producer.send(TOPIC, b"%d" % number, partition=0))
    await cluster.wait_in_sync({TOPIC: 1})


def cut_in_half(node: SimulatedNode) -> None:
    path = f"{DATA}/{TOPIC}-0/{0:020d}.log"
    file = node.host.disk.open(path, create=False)
    file.truncate(len(node.host.disk.read_file(path)) // 2)
    file.close()


async def values(cluster: SimulatedCluster) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with triokafka.Consumer(world=cluster.client_world(), bootstrap_servers=cluster.bootstrap) as consumer:
        consumer.assign([PARTITION])
        consumer.seek_to_beginning()
        end = (await consumer.end_offsets([PARTITION]))[PARTITION]
        while await consumer.position(PARTITION) < end:
            for records in (await consumer.poll(timeout_ms=200)).values():
                found += [record.value for record in records]
    return found


async def start_all_but_second(cluster: SimulatedCluster) -> None:
    """Start the first node, which was in sync last and leads, and the third."""
    first, _, third = cluster.nodes
    first.start()
    third.start()
    await wait_until_led_by(first)


async def wait_until_led_by(node: SimulatedNode) -> None:
    """Wait until the node knows that the controller has elected it."""
    await node.wait_started()
    if (state := node.image.partition(*PARTITION)) is None or state.leader != node.number:
        await node.wait_for(lambda image: getattr(image.partition(*PARTITION), "leader", -1) == node.number)


@simulated
async def test_elected_replica_that_lost_its_end_lets_an_eligible_one_lead(caplog: pytest.LogCaptureFixture) -> None:
    cluster = SimulatedCluster(current_simulation())
    await fill(cluster)
    first, second, third = cluster.nodes
    for node in (third, second, first):  # the last two are eligible leaders then (KIP-966)
        await node.stop()
    cut_in_half(first)
    await start_all_but_second(cluster)
    await trio.sleep(5)
    second.start()
    await cluster.wait_in_sync({TOPIC: 1})
    assert await values(cluster) == [b"%d" % number for number in range(RECORDS)]
    assert len({node.log_bytes(PARTITION) for node in cluster.nodes}) == 1
    assert any("Broker 1 does not lead it: the replicas on the brokers [2] are eligible" in t for t in caplog.messages)
    await cluster.stop()


@simulated
async def test_elected_replica_whose_log_is_gone_lets_an_eligible_one_lead() -> None:
    cluster = SimulatedCluster(current_simulation())
    await fill(cluster)
    first, second, third = cluster.nodes
    for node in (third, second, first):
        await node.stop()
    first.host.disk.remove_tree(f"{DATA}/{TOPIC}-0")
    await start_all_but_second(cluster)
    await trio.sleep(5)
    second.start()
    await cluster.wait_in_sync({TOPIC: 1})
    assert await values(cluster) == [b"%d" % number for number in range(RECORDS)]
    await cluster.stop()


@simulated
async def test_replica_that_lost_its_end_leads_after_all_when_no_other_comes(caplog: pytest.LogCaptureFixture) -> None:
    cluster = SimulatedCluster(current_simulation())
    await fill(cluster)
    first, second, third = cluster.nodes
    for node in (third, second, first):
        await node.stop()
    cut_in_half(first)
    await start_all_but_second(cluster)
    await trio.sleep(35)
    found = await values(cluster)
    assert found == [b"%d" % number for number in range(len(found))]
    assert 0 < len(found) < RECORDS
    assert any("broker 1 leads it although its log lost the offsets" in text for text in caplog.messages)
    await cluster.stop()


@simulated
async def test_topic_that_was_created_again_has_lost_nothing(caplog: pytest.LogCaptureFixture) -> None:
    cluster = SimulatedCluster(current_simulation())
    await fill(cluster)
    first, second, third = cluster.nodes
    await third.stop()
    third.host.disk.remove_tree(f"{DATA}/{TOPIC}-0")  # its high watermark stays in the checkpoint
    again = triokafka.NewTopic(TOPIC, assignments={0: [third.number, first.number, second.number]})
    async with cluster.admin() as admin:
        await admin.delete_topics([TOPIC])
        await admin.create_topics([again])
        third.start()
        await cluster.wait_in_sync({TOPIC: 1})
        assert await admin.elect_leaders([PARTITION]) == [PARTITION]
    await third.wait_for(lambda image: getattr(image.partition(*PARTITION), "leader", -1) == third.number)
    assert not [text for text in caplog.messages if "the log of this replica ends" in text or "its log lost" in text]
    await cluster.stop()
