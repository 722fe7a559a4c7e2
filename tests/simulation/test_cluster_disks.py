"""Nodes of a cluster whose disks are lost, in virtual time."""

from __future__ import annotations

import pytest
import trio

import triokafka
from tests.support.simulated import current_simulation, simulated
from tests.support.simulated_cluster import DATA, SimulatedCluster
from triokafka.broker_stub.controller.metadata_log_repair import repair_metadata
from triokafka.broker_stub.log.damage import DamagedLogError
from triokafka.broker_stub.raft.metadata_log import PARTITION, MetadataLogFiles
from triokafka.records import iter_batches
from triokafka.structs import TopicPartition
from triokafka.world.memory import MemoryStorage

TOPIC = {"orders": 4}
DIRECTORIES = ("/data", "/more")


async def produce(cluster: SimulatedCluster, count: int) -> None:
    """Send records to every partition, and wait until all are acknowledged."""
    async with triokafka.Producer(
        bootstrap_servers=cluster.bootstrap, world=cluster.client_world(), delivery_timeout_ms=60_000
    ) as producer:
        deliveries = [await producer.send("orders", b"%d" % n, partition=n % 4) for n in range(count)]
        for delivery in deliveries:
            await delivery


async def read(cluster: SimulatedCluster) -> int:
    """Return the number of records that a new reader finds."""
    async with triokafka.Consumer(
        bootstrap_servers=cluster.bootstrap, world=cluster.client_world(), auto_offset_reset="earliest"
    ) as consumer:
        partitions = [TopicPartition("orders", number) for number in range(4)]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        found = 0
        while found < sum(ends.values()):
            found += sum(map(len, (await consumer.poll(timeout_ms=500)).values()))
        return found


async def create(cluster: SimulatedCluster, name: str, *, partitions: int = 2, replicas: int = 2) -> None:
    """Create a topic; by default with two replicas, as one of the three nodes is down."""
    async with cluster.admin() as admin:
        await cluster.retry(lambda: admin.create_topics([triokafka.NewTopic(name, partitions, replicas)]))


@pytest.mark.parametrize("event", ["replaced", "taken out", "all replaced"])
def test_replicas_of_a_lost_directory_start_over_and_copy_their_leaders(event: str) -> None:
    """The broker does not register the directory, so its replicas there are not elected; acknowledged records
    survive.
    """

    @simulated
    async def run() -> None:
        cluster = SimulatedCluster(current_simulation(), log_dirs=DIRECTORIES)
        cluster.start()
        await cluster.create_topics(TOPIC)
        await produce(cluster, 40)
        node = cluster.nodes[1]
        assert node.node is not None
        known = node.node.metadata.image.brokers[2].directories
        await node.kill()
        for path in DIRECTORIES if event == "all replaced" else DIRECTORIES[1:]:
            node.host.disk.remove_tree(path)
        if event == "taken out":
            node.configure(log_dirs=DIRECTORIES[:1])
        await produce(cluster, 40)
        node.start()
        await cluster.wait_in_sync(TOPIC)
        other = cluster.nodes[0].node
        assert other is not None
        directories = set(other.metadata.image.brokers[2].directories)
        assert len(directories & set(known)) == (0 if event == "all replaced" else 1)
        with trio.fail_after(30):  # the broker has reported the directories of its replicas
            while any(
                partition.directory_of(2) not in directories for _, partition in other.metadata.image.partitions()
            ):
                await trio.sleep(0.1)
        await cluster.nodes[0].kill()
        assert await read(cluster) == 80
        await cluster.stop()

    run()


def flip(disk: MemoryStorage, batch: int) -> tuple[str, int]:
    """Change a bit in the body of a batch of the first segment of the metadata; return the path and the position."""
    folder = f"{DATA}/{PARTITION}"
    path = f"{folder}/{min(name for name in disk.list_dir(folder) if name.endswith('.log'))}"
    content = disk.read_file(path)
    position = [info.position for info in iter_batches(content)][batch]
    file = disk.open(path)
    file.write_at(position + 70, bytes([content[position + 70] ^ 4]))
    file.close()
    return path, position


def test_cluster_heals_damaged_metadata_of_its_controller_and_of_a_broker(caplog: pytest.LogCaptureFixture) -> None:
    """The controller still has every record in memory, and replaces them by a snapshot.

    A broker fetches them from the controller.
    """

    @simulated
    async def run() -> None:
        cluster = SimulatedCluster(
            current_simulation(),
            roles=(("controller",), ("broker",), ("broker",)),
            min_insync_replicas=1,
            metadata_log_max_record_bytes_between_snapshots=1 << 20,
        )
        controller, first, broker = cluster.nodes
        controller.start()
        first.start()
        await create(cluster, "orders", partitions=4, replicas=1)
        await produce(cluster, 8)

        flip(controller.host.disk, 3)
        await create(cluster, "more", replicas=1)
        broker.start()
        await broker.wait_started()
        assert "A snapshot that contains them is taken, and sent instead" in caplog.text
        await broker.wait_for(lambda image: "more" in image.topics)

        await broker.kill()
        disk = broker.host.disk
        log = MetadataLogFiles(disk, DATA, now_ms=0)
        end = log.end_offset
        log.close()
        path, position = flip(disk, 0)
        broker.start()
        await broker.wait_started()
        assert f"{path} is damaged at byte {position}, " in caplog.text
        await broker.wait_for(lambda image: image.offset >= end)

        await controller.kill()
        controller.start()
        await create(cluster, "new", replicas=1)
        await broker.wait_for(lambda image: "new" in image.topics)
        assert set(broker.image.topics) == {"orders", "more", "new"}
        assert await read(cluster) == 8
        await cluster.stop()

    run()


@pytest.mark.parametrize("active", [False, True])
def test_node_with_damaged_metadata_gets_it_from_the_others_after_a_repair(active: bool) -> None:
    """A snapshot that covers everything up to the damage makes the repair unnecessary."""

    @simulated
    async def run() -> None:
        cluster = SimulatedCluster(current_simulation(), metadata_log_max_record_bytes_between_snapshots=1 << 20)
        cluster.start()
        await cluster.create_topics(TOPIC)
        controller = await cluster.wait_active()
        node = controller if active else next(one for one in cluster.nodes if one is not controller)
        folder = f"{DATA}/{PARTITION}"
        for repairs in (True, False):
            if not repairs:
                await node.running_node.metadata.snapshots.take()
            await node.kill()
            disk = node.host.disk
            path, position = flip(disk, 3)
            if repairs:
                with pytest.raises(DamagedLogError, match=f"{path} is damaged at byte {position}, "):
                    MetadataLogFiles(disk, DATA, now_ms=0)
                assert repair_metadata(disk, folder, now_ms=0).end_offset > 0
            await create(cluster, f"more-{repairs}")
            node.start()
            await cluster.wait_in_sync({**TOPIC, f"more-{repairs}": 2})
            await node.wait_started()
            with trio.fail_after(60):
                while len(node.image.topics) < (2 if repairs else 3):
                    await trio.sleep(0.1)
            assert TOPIC.keys() < node.image.topics.keys()
        await cluster.stop()

    run()
