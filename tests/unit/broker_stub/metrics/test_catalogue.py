"""The metrics of a broker."""

from __future__ import annotations

import trio

import triokafka
from tests.unit.broker_stub.api.node import Node, batch, running_node
from tests.unit.broker_stub.api.test_group_handlers import commit_request, join, stable
from triokafka.broker_stub.metrics.prometheus import as_prometheus_text
from triokafka.protocol.api.find_coordinator import FindCoordinatorRequest
from triokafka.protocol.api.metadata import MetadataRequest
from triokafka.protocol.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from triokafka.structs import TopicPartition
from triokafka.testing import RunningBroker, running_broker


async def test_requests_are_counted_by_api_version_and_error() -> None:
    """A fetch is one of a consumer or of a follower, too."""
    async with running_node() as node:
        await node.create("t")
        await node.produce("t", batch(b"v"), version=9)
        await node.produce("t", batch(b"v"), version=8)
        await node.produce("nowhere", batch(b"v"))
        await node.call(node.fetch_request("t", [0]), 11)
        await node.call(node.fetch_request("t", [0], replica_id=5), 11)
        await node.call(MetadataRequest(topics=[]), 9)
        text = as_prometheus_text(node.broker.metrics())
    for line in (
        'kafka_network_requestmetrics_requests_total{request="Produce",version="9"} 2',
        'kafka_network_requestmetrics_requests_total{request="Produce",version="8"} 1',
        'kafka_network_requestmetrics_errors_total{request="Produce",error="NONE"} 2',
        'kafka_network_requestmetrics_errors_total{request="Produce",error="UnknownTopicOrPartitionError"} 1',
        'kafka_network_requestmetrics_totaltimems_count{request="Fetch"} 2',
        'kafka_network_requestmetrics_totaltimems_count{request="FetchConsumer"} 1',
        'kafka_network_requestmetrics_totaltimems_count{request="FetchFollower"} 1',
        'kafka_network_requestmetrics_totaltimems_count{request="Heartbeat"} 0',
        'kafka_server_socket_server_metrics_connection_count{listener="PLAINTEXT"} 0',
        "kafka_network_requestchannel_requestqueuesize 0",
        "kafka_server_replicamanager_partitioncount 1",
    ):
        assert line in text.splitlines()


async def test_idle_share_of_handlers_is_near_one_where_nothing_happens() -> None:
    """It is never below 0 or above 1."""
    async with running_node() as node:
        assert 0 <= _idle_share(node) <= 1
        await node.call(MetadataRequest(topics=[]), 9)
        assert 0 <= _idle_share(node) <= 1


def _idle_share(node: Node) -> float:
    (sample,) = (one for one in node.broker.metrics() if "RequestHandlerAvgIdlePercent" in one.name)
    return sample.value


async def test_traffic_is_counted_where_records_are_taken_and_given() -> None:
    """Followers' reads are counted separately."""
    async with running_node() as node:
        await node.create("t")
        sent = batch(b"a", b"b", b"c")
        await node.produce("t", sent)
        await node.produce("nowhere", sent)
        await node.fetch("t", 0)
        await node.fetch("t", 9)
        text = as_prometheus_text(node.broker.metrics()).splitlines()
        prefix = "kafka_server_brokertopicmetrics_"
        for name, count in (
            ("bytesin", len(sent)),
            ("messagesin", 3),
            ("bytesout", len(sent)),
            ("replicationbytesout", 0),
            ("totalproducerequests", 2),
            ("failedproducerequests", 1),
            ("totalfetchrequests", 2),
            ("failedfetchrequests", 1),
        ):
            assert f"{prefix}{name}_total {count}" in text


async def test_groups_and_positions_are_counted() -> None:
    async with running_node(group_initial_rebalance_delay_ms=0) as node:
        await node.create("t", partitions=3)
        await stable(node, "steady")
        await join(node, 4, "joined")
        await node.call(FindCoordinatorRequest(key="g"), 1)
        await node.call(commit_request(node, 8), 8)
        await node.call(commit_request(node, 8), 8)
        topics = [OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])]
        before = as_prometheus_text(node.broker.metrics()).splitlines()
        await node.call(OffsetDeleteRequest(group_id="g", topics=topics), 0)
        after = as_prometheus_text(node.broker.metrics()).splitlines()
    manager, server = "kafka_coordinator_group_groupmetadatamanager_num", "kafka_server_group_coordinator_metrics_"
    for line in (
        f"{manager}groups 3",
        f"{manager}groupsstable 1",
        f"{manager}groupscompletingrebalance 1",
        f"{manager}groupsempty 1",
        f"{manager}groupspreparingrebalance 0",
        f"{manager}groupsdead 0",
        f"{manager}offsets 1",
        f'{server}group_count{{protocol="classic"}} 3',
        f'{server}group_count{{protocol="consumer"}} 0',
        f'{server}consumer_group_count{{state="stable"}} 0',
        f"{server}offset_commit_count 2",
        f"{server}offset_deletion_count 0",
        f"{server}group_completed_rebalance_count 1",
        f"{server}consumer_group_rebalance_count 0",
        f'{server}num_partitions{{state="active"}} 4',
        f'{server}num_partitions{{state="loading"}} 0',
        "triokafka_groupcoordinator_heldoperations 0",
    ):
        assert line in before, line
    assert f"{server}offset_deletion_count 1" in after
    assert f"{manager}offsets 0" in after


async def test_delayed_operations_timeouts_and_sessions_are_exported(autojump_clock: object) -> None:
    async with running_node(max_incremental_fetch_session_cache_slots=1) as node:
        await node.create("t", partitions=2)
        await node.call(node.fetch_request("t", [0], session_epoch=0), 11)
        await node.call(node.fetch_request("t", [0, 0], max_wait_ms=100), 11)
        await trio.sleep(121)
        await node.call(node.fetch_request("t", [0, 0], session_epoch=0), 11)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.call, node.fetch_request("t", [0, 0], max_wait_ms=60_000), 11)
            await trio.testing.wait_all_tasks_blocked()
            text = as_prometheus_text(node.broker.metrics()).splitlines()
            nursery.cancel_scope.cancel()
        for line in (
            # With those of the one that timed out, which are swept away later.
            'kafka_server_delayedoperationpurgatory_purgatorysize{delayedOperation="Fetch"} 4',
            'kafka_server_delayedoperationpurgatory_numdelayedoperations{delayedOperation="Fetch"} 1',
            'kafka_server_delayedoperationpurgatory_numdelayedoperations{delayedOperation="Produce"} 0',
            "kafka_server_delayedfetchmetrics_expires_total 1",
            "kafka_server_fetchsessioncache_numincrementalfetchsessions 1",
            "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached 2",
            "kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total 1",
        ):
            assert line in text


async def test_producers_and_late_transactions_are_counted() -> None:
    """A transaction is late when its producer wrote nothing for longer than transactions may take (KIP-664)."""

    def counted(broker: RunningBroker, name: str) -> float:
        full = f"kafka.server:type=ReplicaManager,name={name}"
        return next(one.value for one in broker.broker.metrics() if one.name == full)

    async with (
        running_broker(transaction_state_log_num_partitions=1) as broker,
        triokafka.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="t") as producer,
    ):
        async with producer.transaction():
            await (await producer.send("orders", b"x", partition=0))
            assert counted(broker, "ProducerIdCount") == 1
            assert counted(broker, "PartitionsWithLateTransactionsCount") == 0
            partition = broker.broker.replicas.partition(TopicPartition("orders", 0))
            (state,) = partition.log.producers.all()
            state.last_timestamp -= 2 * 3_600_000
            assert counted(broker, "PartitionsWithLateTransactionsCount") == 1
        assert counted(broker, "PartitionsWithLateTransactionsCount") == 0
