"""Replication between the brokers of a test's cluster: real logs, fetchers and in-sync sets."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import trio

import triokafka
from tests.support.waiting import eventually
from tests.unit.broker_stub.replica.logs import NOW_MS, batch
from triokafka import errors
from triokafka.broker_stub.replica.partition import Partition
from triokafka.broker_stub.replica.replica_selector import RACK_AWARE
from triokafka.client.admin.types import ConfigResource
from triokafka.protocol.configuration import ConfigResourceType
from triokafka.structs import TopicPartition
from triokafka.testing import RunningCluster, Simulation, run_simulation, running_cluster
from triokafka.world.memory import DiskFault


def replica(cluster: RunningCluster, node_id: int, topic: str = "t") -> Partition:
    return cluster.broker(node_id).broker.replicas.partition((topic, 0))


def content(partition: Partition) -> bytes:
    log = partition.log
    return bytes(log.read(log.log_start_offset, 1 << 20).records)


def metric(cluster: RunningCluster, node_id: int, name: str) -> float:
    wanted = f"kafka.server:type=ReplicaManager,name={name}"
    return next(sample.value for sample in cluster.broker(node_id).broker.metrics() if sample.name == wanted)


async def produce(simulation: Simulation, cluster: RunningCluster, *values: bytes, topic: str = "t") -> None:
    async with triokafka.Producer(
        world=simulation.host("client").world, bootstrap_servers=cluster.bootstrap_servers, linger_ms=0
    ) as producer:
        for value in values:
            await (await producer.send(topic, value, partition=0))


def in_a_cluster(test: Callable[[Simulation, RunningCluster], object], **options: Any) -> None:
    async def life(simulation: Simulation) -> None:
        async with running_cluster(nodes=3, world=simulation.host("cluster").world, **options) as cluster:
            await test(simulation, cluster)  # type: ignore[misc]

    run_simulation(life, 1)


def test_every_replica_has_the_leaders_bytes() -> None:
    async def test(simulation: Simulation, cluster: RunningCluster) -> None:
        await cluster.create_topic("t", partitions=1)
        await produce(simulation, cluster, *(b"%d" % number for number in range(20)))
        await eventually(lambda: all(replica(cluster, node).high_watermark == 20 for node in (1, 2, 3)))
        contents = {content(replica(cluster, node)) for node in (1, 2, 3)}
        assert len(contents) == 1 and contents.pop()

    in_a_cluster(test)


@pytest.mark.parametrize("clean", [True, False])
def test_a_follower_that_was_away_catches_up_and_is_in_sync_again(clean: bool) -> None:
    async def test(simulation: Simulation, cluster: RunningCluster) -> None:
        await cluster.create_topic("t", partitions=1)
        await produce(simulation, cluster, b"1")
        leader = cluster.leader("t")
        away = next(node for node in (1, 2, 3) if node != leader)
        await cluster.stop(away, clean=clean)
        await produce(simulation, cluster, b"2", b"3")
        assert metric(cluster, leader, "UnderReplicatedPartitions") == 1
        await cluster.start_broker(away)
        await eventually(lambda: away in replica(cluster, leader).in_sync_replicas)
        assert metric(cluster, leader, "UnderReplicatedPartitions") == 0
        assert metric(cluster, leader, "IsrExpandsPerSec") >= 1
        await eventually(lambda: content(replica(cluster, away)) == content(replica(cluster, leader)))

    in_a_cluster(test)


def test_a_follower_that_hangs_leaves_the_in_sync_set_and_writes_continue() -> None:
    async def test(simulation: Simulation, cluster: RunningCluster) -> None:
        await cluster.create_topic("t", partitions=1)
        await produce(simulation, cluster, b"1")
        leader = cluster.leader("t")
        hanging = next(node for node in (1, 2, 3) if node != leader)
        cluster.broker(hanging).freeze()
        await produce(simulation, cluster, b"2")
        assert hanging not in replica(cluster, leader).in_sync_replicas
        assert metric(cluster, leader, "IsrShrinksPerSec") == 1
        cluster.broker(hanging).thaw()
        await eventually(lambda: hanging in replica(cluster, leader).in_sync_replicas)

    in_a_cluster(test, replica_lag_time_max_ms=3_000)


def test_number_of_fetchers_changes_while_records_are_written() -> None:
    """``num.replica.fetchers``, for all brokers"""

    async def test(simulation: Simulation, cluster: RunningCluster) -> None:
        await cluster.create_topic("t", partitions=1)
        await cluster.create_topic("many", partitions=12)
        follower = next(node for node in (1, 2, 3) if node != cluster.leader("t"))
        fetchers = cluster.broker(follower).broker.replicas.fetchers
        await eventually(lambda: len(fetchers) == 2)  # one for each other broker
        world = simulation.host("client").world
        async with triokafka.AdminClient(world=world, bootstrap_servers=cluster.bootstrap_servers) as admin:
            for number in (2, 1):
                await admin.incremental_alter_configs({ConfigResource.broker(): {"num.replica.fetchers": str(number)}})
                await produce(simulation, cluster, *(b"%d" % one for one in range(20)))
                await eventually(lambda number=number: len(fetchers) == 2 * number)  # type: ignore[misc]
        await produce(simulation, cluster, b"end")
        await eventually(lambda: all(replica(cluster, node).high_watermark == 41 for node in (1, 2, 3)))
        assert len({content(replica(cluster, node)) for node in (1, 2, 3)}) == 1

    in_a_cluster(test)


def test_deleted_records_are_deleted_on_every_replica_before_the_answer() -> None:
    async def test(simulation: Simulation, cluster: RunningCluster) -> None:
        await cluster.create_topic("t", partitions=1)
        await produce(simulation, cluster, b"1", b"2", b"3")
        async with triokafka.AdminClient(
            world=simulation.host("client").world, bootstrap_servers=cluster.bootstrap_servers
        ) as admin:
            await admin.delete_records({TopicPartition("t", 0): 2})
        assert [replica(cluster, node).log.log_start_offset for node in (1, 2, 3)] == [2, 2, 2]

    in_a_cluster(test)


def test_too_few_replicas_refuse_acks_all() -> None:
    async def test(simulation: Simulation, cluster: RunningCluster) -> None:
        await cluster.create_topic("t", partitions=1, configs={"min.insync.replicas": "2"})
        await produce(simulation, cluster, b"1")
        leader = await cluster.move_leader("t", to=1) if cluster.leader("t") != 1 else 1
        for node in (1, 2, 3):
            if node != leader:
                await cluster.stop(node, clean=False)
        async with triokafka.Producer(
            world=simulation.host("client").world,
            bootstrap_servers=cluster.broker(leader).bootstrap_servers,
            delivery_timeout_ms=3_000,
            request_timeout_ms=1_000,
            linger_ms=0,
        ) as producer:
            with pytest.raises((errors.NotEnoughReplicasError, errors.KafkaTimeoutError)):
                await (await producer.send("t", b"2", partition=0))
        assert replica(cluster, leader).log.log_end_offset == 1
        assert metric(cluster, leader, "UnderMinIsrPartitionCount") == 1

    in_a_cluster(test, controllers=1)


def test_a_topic_that_is_created_again_has_none_of_the_old_records() -> None:
    async def test(simulation: Simulation, cluster: RunningCluster) -> None:
        await cluster.create_topic("t", partitions=1)
        await produce(simulation, cluster, b"old", b"old")
        away = next(node for node in (1, 2, 3) if node != cluster.leader("t"))
        await cluster.stop(away)
        await cluster.delete_topic("t")
        await cluster.create_topic("t", partitions=1, replication_factor=2)
        await cluster.start_broker(away)
        await produce(simulation, cluster, b"new")
        state = cluster.image.partition("t", 0)
        assert state is not None
        await eventually(lambda: all(replica(cluster, node).log.log_end_offset == 1 for node in state.replicas))

    in_a_cluster(test)


def test_new_leader_has_all_acknowledged_records() -> None:
    async def test(simulation: Simulation, cluster: RunningCluster) -> None:
        await cluster.create_topic("t", partitions=1)
        for number in range(6):
            await produce(simulation, cluster, b"%d" % number)
            gone = cluster.leader("t")
            await cluster.stop(gone, clean=False)
            await eventually(lambda gone=gone: cluster.leader("t") not in (-1, gone))  # type: ignore[misc]
            assert replica(cluster, cluster.leader("t")).log.log_end_offset == number + 1
            await cluster.start_broker(gone)
            await eventually(lambda: len(replica(cluster, cluster.leader("t")).in_sync_replicas) == 3)

    in_a_cluster(test)


def test_a_throttle_slows_a_follower_down_until_it_is_in_sync() -> None:
    """The rate is an average over eleven seconds, so ten seconds' worth of it passes at once."""

    async def test(simulation: Simulation, cluster: RunningCluster) -> None:
        await cluster.create_topic("t", partitions=1, configs={"leader.replication.throttled.replicas": "*"})
        leader = cluster.leader("t")
        away = next(node for node in (1, 2, 3) if node != leader)
        await cluster.stop(away)
        await produce(simulation, cluster, *(b"." * 10_000 for _ in range(30)))
        async with triokafka.AdminClient(
            world=simulation.host("client").world, bootstrap_servers=cluster.broker(leader).bootstrap_servers
        ) as admin:
            rate = {"leader.replication.throttled.rate": "10000"}
            resource = ConfigResource(ConfigResourceType.BROKER, str(leader))
            await admin.incremental_alter_configs({resource: rate})
        began = trio.current_time()
        await cluster.start_broker(away)
        await eventually(lambda: away in replica(cluster, leader).in_sync_replicas)
        assert 10 < trio.current_time() - began < 40
        assert content(replica(cluster, away)) == content(replica(cluster, leader))

    in_a_cluster(test, replica_fetch_max_bytes=20_000)


def test_a_consumer_reads_from_the_replica_in_its_rack() -> None:
    async def test(simulation: Simulation, cluster: RunningCluster) -> None:
        for broker in cluster.brokers:
            broker.config = replace(broker.config, broker_rack=f"rack-{broker.node_id}")
            await cluster.restart(broker.node_id)
        await cluster.create_topic("t", partitions=1)
        await produce(simulation, cluster, b"1", b"2")
        near = next(node for node in (1, 2, 3) if node != cluster.leader("t"))
        await eventually(lambda: replica(cluster, near).high_watermark == 2)
        async with triokafka.Consumer(
            "t",
            world=simulation.host("client").world,
            bootstrap_servers=cluster.bootstrap_servers,
            client_rack=f"rack-{near}",
            auto_offset_reset="earliest",
            group_id=None,
        ) as consumer:
            found = []
            async for record in consumer:
                found.append(record.value)
                if len(found) == 2:
                    break
        assert found == [b"1", b"2"]
        assert cluster.broker(near).broker.replicas.traffic.bytes_out > 0
        assert cluster.broker(cluster.leader("t")).broker.replicas.traffic.bytes_out == 0

    in_a_cluster(test, replica_selector_class=RACK_AWARE)


def test_another_broker_leads_when_the_leaders_data_directory_fails() -> None:
    async def test(simulation: Simulation, cluster: RunningCluster) -> None:
        await cluster.create_topic("t", partitions=4)
        await produce(simulation, cluster, b"1")
        leader = cluster.leader("t")
        directory = os.path.dirname(replica(cluster, leader).log.directory)
        known = cluster.broker(leader).broker._directory_of(TopicPartition("t", 0))

        def assigned() -> bool:
            state = cluster.image.partition("t", 0)
            return state is not None and state.directory_of(leader) == known

        await eventually(assigned)
        simulation.host("cluster").disk.inject(DiskFault("write", f"{directory}/*"))
        partition = replica(cluster, leader)
        with contextlib.suppress(errors.KafkaError):
            partition.log.append_as_leader(batch(b"x"), leader_epoch=partition.leader_epoch, now_ms=NOW_MS)
        await eventually(lambda: cluster.leader("t") not in (-1, leader))
        await produce(simulation, cluster, b"2")
        assert cluster.broker(leader).is_running

    in_a_cluster(test, log_dirs=("/a", "/b"))
