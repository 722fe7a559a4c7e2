"""The APIs that operators use: elections, reassignments, log directories, features, the quorum, …"""

from __future__ import annotations

import errno
from typing import Any

import pytest
import trio
import trio.testing

from tests.unit.broker_stub.api.node import Node, batch, memory_world, running_node
from tests.unit.broker_stub.clusters import MemoryWorld
from triokafka import errors
from triokafka.broker_stub.authorizer import Authorizer
from triokafka.broker_stub.log import PartitionLog
from triokafka.protocol.api.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from triokafka.protocol.api.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from triokafka.protocol.api.create_acls import AclCreation, CreateAclsRequest
from triokafka.protocol.api.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from triokafka.protocol.api.describe_acls import DescribeAclsRequest
from triokafka.protocol.api.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from triokafka.protocol.api.describe_producers import DescribeProducersRequest, TopicRequest
from triokafka.protocol.api.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from triokafka.protocol.api.describe_transactions import DescribeTransactionsRequest
from triokafka.protocol.api.elect_leaders import ElectLeadersRequest, TopicPartitions
from triokafka.protocol.api.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from triokafka.protocol.api.list_config_resources import ListConfigResourcesRequest
from triokafka.protocol.api.list_partition_reassignments import ListPartitionReassignmentsRequest
from triokafka.protocol.api.list_transactions import ListTransactionsRequest
from triokafka.protocol.api.unregister_broker import UnregisterBrokerRequest
from triokafka.protocol.api.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from triokafka.protocol.message import Request
from triokafka.security.acl import CLUSTER_NAME, AclOperation, ResourceType
from triokafka.structs import TopicPartition
from triokafka.world.memory import DiskFault

UNKNOWN = errors.UnknownTopicOrPartitionError.code
NOT_NEEDED = errors.ElectionNotNeededError.code
DISABLED = errors.SecurityDisabledError.code
CLUSTER_DENIED = errors.ClusterAuthorizationFailedError.code


class DenyCluster(Authorizer):
    """Allows nothing that concerns the cluster, and no producers of the topic ``shut``."""

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        if resource_type is ResourceType.CLUSTER:
            assert name == CLUSTER_NAME
            return False
        return name != "shut"


async def elect(node: Node, version: int, topics: list[TopicPartitions] | None, kind: int = 0) -> dict[str, list[int]]:
    response = await node.call(ElectLeadersRequest(election_type=kind, topic_partitions=topics), version)
    assert response.error_code == 0
    return {
        topic.topic: [partition.error_code for partition in topic.partition_result]
        for topic in response.replica_election_results
    }


@pytest.mark.parametrize("version", range(3))
async def test_election_says_for_each_partition_why_nothing_changed(version: int) -> None:
    """(KIP-460)"""
    async with running_node() as node:
        await node.create("t", 2)
        asked = [TopicPartitions(topic="t", partitions=[0, 1, 7]), TopicPartitions(topic="none", partitions=[0])]
        assert await elect(node, version, asked) == {"t": [NOT_NEEDED, NOT_NEEDED, UNKNOWN], "none": [UNKNOWN]}


async def test_election_of_all_partitions_omits_those_with_the_preferred_leader() -> None:
    """Partitions, not topics: so does Kafka."""
    async with running_node() as node:
        await node.create("t", 2)
        assert await elect(node, 2, None) == {"t": []}
        assert await elect(node, 2, None, kind=1) == {"t": []}
        response = await node.call(ElectLeadersRequest(election_type=9, topic_partitions=None), 2)
        assert response.error_code == errors.InvalidRequestError.code


@pytest.mark.parametrize("version", range(2))
async def test_reassignment_to_where_the_partition_is_succeeds_and_changes_nothing(version: int) -> None:
    """(KIP-455)"""
    async with running_node() as node:
        await node.create("t")
        offset = node.broker.image.offset
        request = AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(
                    name="t",
                    partitions=[
                        ReassignablePartition(partition_index=0, replicas=[1]),
                        ReassignablePartition(partition_index=5, replicas=[1]),
                    ],
                ),
                ReassignableTopic(name="none", partitions=[ReassignablePartition(partition_index=0, replicas=[1])]),
            ]
        )
        response = await node.call(request, version)
        assert [[p.error_code for p in topic.partitions] for topic in response.responses] == [[0, UNKNOWN], [UNKNOWN]]
        assert node.broker.image.offset == offset
        listed = await node.call(ListPartitionReassignmentsRequest(), 0)
        assert (listed.error_code, listed.topics) == (0, [])


async def test_reassignment_to_a_broker_that_is_not_there_is_refused_and_so_is_cancelling_none() -> None:
    async with running_node() as node:
        await node.create("t", 3)
        wanted: list[list[int] | None] = [[2], [], None]
        request = AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(
                    name="t",
                    partitions=[
                        ReassignablePartition(partition_index=number, replicas=replicas)
                        for number, replicas in enumerate(wanted)
                    ],
                )
            ]
        )
        (topic,) = (await node.call(request, 1)).responses
        invalid = errors.InvalidReplicationAssignmentError.code
        assert [p.error_code for p in topic.partitions] == [
            invalid,
            invalid,
            errors.NoReassignmentInProgressError.code,
        ]
        assert "no such broker is registered" in (topic.partitions[0].error_message or "")


@pytest.mark.parametrize("version", range(3))
async def test_quorum_is_this_node(version: int) -> None:
    async with running_node() as node:
        request = DescribeQuorumRequest(
            topics=[
                TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)]),
                TopicData(topic_name="t", partitions=[PartitionData(partition_index=0)]),
            ]
        )
        response = await node.call(request, version)
        ((partition,), (wrong,)) = (topic.partitions for topic in response.topics)
        assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 1, 1)
        assert partition.high_watermark == node.broker.image.offset + 1
        (voter,) = partition.current_voters
        assert (voter.replica_id, voter.log_end_offset) == (1, partition.high_watermark)
        assert wrong.error_code == UNKNOWN
        if version >= 2:
            assert voter.replica_directory_id == node.process.controller.metadata.identity.directory_ids["/data"]
            assert [found.node_id for found in response.nodes] == [1]


@pytest.mark.parametrize("version", range(3))
async def test_feature_that_is_not_known_or_level_out_of_range_changes_nothing(version: int) -> None:
    """(KIP-584, KIP-1022)"""
    async with running_node() as node:
        features = dict(node.broker.image.features)
        offset = node.broker.image.offset
        for name, level in (("metadata.version", 99), ("metadata.version", 24), ("no.such", 1), ("kraft.version", 0)):
            update = FeatureUpdateKey(feature=name, max_version_level=level)
            request = UpdateFeaturesRequest(feature_updates=[update])
            response = await node.call(request, version)
            assert response.error_code == errors.InvalidUpdateVersionError.code, name
            assert "The update failed for all features" in (response.error_message or "")
            assert [result.feature for result in response.results] == ([name] if version < 2 else [])
        same = [FeatureUpdateKey(feature="metadata.version", max_version_level=25)]
        assert (await node.call(UpdateFeaturesRequest(feature_updates=same), version)).error_code == 0
        assert (dict(node.broker.image.features), node.broker.image.offset) == (features, offset)


async def test_log_directories_report_their_partitions() -> None:
    """(KIP-113, KIP-827)"""
    for version in range(1, 6):
        async with running_node(log_dirs=("/one", "/two")) as node:
            await node.create("t", 3)
            await node.produce("t", batch(b"x" * 100), partition=1)
            response = await node.call(DescribeLogDirsRequest(topics=None), version)
            assert [result.log_dir for result in response.results] == ["/one", "/two"]
            held = {
                (topic.name, partition.partition_index): partition.partition_size
                for result in response.results
                for topic in result.topics
                for partition in topic.partitions
            }
            assert set(held) == {("t", 0), ("t", 1), ("t", 2)}
            assert held["t", 1] > 100 and held["t", 0] == 0
            some = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic="t", partitions=[2, 9])])
            found = [
                partition.partition_index
                for result in (await node.call(some, version)).results
                for topic in result.topics
                for partition in topic.partitions
            ]
            assert found == [2]


async def test_relative_directories_are_described_and_accepted_by_their_absolute_paths() -> None:
    """kafka-reassign-partitions accepts only absolute paths, and takes them from DescribeLogDirs (KIP-113)."""
    async with running_node(log_dirs=("one", "two")) as node:
        await node.create("t")
        shown = [result.log_dir for result in (await node.call(DescribeLogDirsRequest(topics=None), 5)).results]
        assert shown == ["/one", "/two"]
        for path in shown:
            wanted = AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name="t", partitions=[0])])
            moved = await node.call(AlterReplicaLogDirsRequest(dirs=[wanted]), 2)
            assert moved.results[0].partitions[0].error_code == 0


async def test_directory_that_failed_says_so_and_holds_nothing() -> None:
    world = MemoryWorld()
    async with running_node(world=world, log_dirs=("/one", "/two")) as node:
        await node.create("t", 2)
        lost = next(n for n in (0, 1) if node.broker.logs.directory_of(TopicPartition("t", n)) == "/two")
        world.disk.inject(DiskFault("write", "/two/*", errno.EIO))
        assert (await node.produce("t", batch(b"x"), partition=lost)).error_code == errors.KafkaStorageError.code
        await trio.testing.wait_all_tasks_blocked()
        one, two = (await node.call(DescribeLogDirsRequest(topics=None), 5)).results
        assert (one.log_dir, one.error_code) == ("/one", 0)
        assert (two.log_dir, two.error_code) == ("/two", errors.KafkaStorageError.code)
        assert one.topics and not two.topics
        wanted = AlterReplicaLogDir(path="/two", topics=[AlterReplicaLogDirTopic(name="t", partitions=[1 - lost])])
        moved = await node.call(AlterReplicaLogDirsRequest(dirs=[wanted]), 2)
        assert moved.results[0].partitions[0].error_code == errors.KafkaStorageError.code


async def test_replica_stays_where_it_is_wanted_and_directories_must_exist() -> None:
    """(KIP-113)"""
    async with running_node(log_dirs=("/one",)) as node:
        await node.create("t")

        async def move(path: str, topic: str = "t") -> int:
            wanted = AlterReplicaLogDir(path=path, topics=[AlterReplicaLogDirTopic(name=topic, partitions=[0])])
            response = await node.call(AlterReplicaLogDirsRequest(dirs=[wanted]), 2)
            return response.results[0].partitions[0].error_code

        assert await move("/one") == 0
        assert await move("/nowhere") == errors.LogDirNotFoundError.code
        assert await move("/one", "none") == errors.ReplicaNotAvailableError.code


async def test_log_moves_while_clients_use_it() -> None:
    """The moved log serves readers that already wait; a restart finds it (KIP-113)."""
    world = MemoryWorld()
    async with running_node(world=world, log_dirs=("/one", "/two")) as node:
        await node.create("t", 1, **{"flush.messages": "1"})
        (here,) = [path for path in ("/one", "/two") if node.broker.logs.directory_of(TopicPartition("t", 0)) == path]
        there = "/two" if here == "/one" else "/one"
        for number in range(20):
            assert (await node.produce("t", batch(b"%d" % number), acks=-1)).base_offset == number
        wanted = AlterReplicaLogDir(path=there, topics=[AlterReplicaLogDirTopic(name="t", partitions=[0])])
        fetched, is_moved, listener = [], trio.Event(), node.broker.logs.listener
        assert listener is not None
        tell = listener.log_moved

        def moved_log(topic_partition: TopicPartition, log: PartitionLog) -> None:
            tell(topic_partition, log)
            is_moved.set()

        listener.log_moved = moved_log  # type: ignore[method-assign]
        async with trio.open_nursery() as nursery:

            async def wait_for_the_next() -> None:
                fetched.append(await node.fetch("t", 20, max_wait_ms=60_000))

            nursery.start_soon(wait_for_the_next)
            await trio.testing.wait_all_tasks_blocked()
            moved = await node.call(AlterReplicaLogDirsRequest(dirs=[wanted]), 2)
            assert moved.results[0].partitions[0].error_code == 0
            (future,) = node.broker.logs.mover.future_logs()
            assert (future.directory, future.behind) == (there, 20)
            shown = (await node.call(DescribeLogDirsRequest(topics=None), 5)).results
            assert [
                (result.log_dir, p.is_future_key) for result in shown for t in result.topics for p in t.partitions
            ] in (
                [("/one", here == "/two"), ("/two", here == "/one")],
                [(there, False)],
            )
            with trio.fail_after(30):
                await is_moved.wait()
            assert node.broker.logs.directory_of(TopicPartition("t", 0)) == there
            assert not fetched
            assert (await node.produce("t", batch(b"next"), acks=-1)).base_offset == 20
        assert fetched
        assert not list(node.broker.logs.mover.future_logs())
    async with running_node(world=world, log_dirs=("/one", "/two")) as node:
        assert node.broker.logs.directory_of(TopicPartition("t", 0)) == there
        assert (await node.produce("t", batch(b"last"), acks=-1)).base_offset == 21


async def test_the_rate_of_moves_is_set_while_the_broker_runs() -> None:
    """`replica.alter.log.dirs.io.max.bytes.per.second`, of a broker or of all."""
    async with running_node(log_dirs=("/one", "/two")) as node:
        mover = node.broker.logs.mover
        assert mover.bytes_per_second == float("inf")
        for name, value, rate in (("", "500", 500), ("1", "200", 200), ("1", None, 500), ("", None, float("inf"))):
            config = AlterableConfig(
                name="replica.alter.log.dirs.io.max.bytes.per.second",
                config_operation=0 if value else 1,
                value=value,
            )
            resource = AlterConfigsResource(resource_type=4, resource_name=name, configs=[config])
            answer = await node.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
            assert answer.responses[0].error_code == 0
            assert mover.bytes_per_second == rate


async def test_producers_of_a_partition_are_described() -> None:
    """(KIP-664)"""
    async with running_node() as node:
        await node.create("t")
        sent = await node.produce(
            "t", batch(b"a", b"b", producer_id=4000, producer_epoch=3, base_sequence=0, timestamp=1_700_000_000_000)
        )
        assert sent.error_code == 0
        request = DescribeProducersRequest(
            topics=[TopicRequest(name="t", partition_indexes=[0]), TopicRequest(name="none", partition_indexes=[0])]
        )
        response = await node.call(request, 0)
        ((known,), (unknown,)) = (topic.partitions for topic in response.topics)
        (producer,) = known.active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (4000, 3, 1)
        assert (producer.current_txn_start_offset, producer.coordinator_epoch) == (-1, -1)
        assert unknown.error_code == UNKNOWN
        hosted = node.broker.replicas.find("t", 0)
        assert hosted is not None
        hosted.is_leader = False
        ((known,), _) = (topic.partitions for topic in (await node.call(request, 0)).topics)
        assert known.error_code == 0 and known.active_producers == [producer]  # followers answer, too


async def test_broker_that_lives_is_registered_again_after_it_was_unregistered() -> None:
    async with running_node(broker_heartbeat_interval_ms=1, broker_session_timeout_ms=5_000) as node:
        before = node.broker.lifecycle.broker_epoch
        assert (await node.call(UnregisterBrokerRequest(broker_id=7), 0)).error_code == (
            errors.BrokerIdNotRegisteredError.code
        )
        assert (await node.call(UnregisterBrokerRequest(broker_id=1), 0)).error_code == 0
        assert 1 not in node.broker.image.brokers or node.broker.image.brokers[1].broker_epoch > before
        with trio.fail_after(5):
            while 1 not in node.broker.image.brokers or node.broker.image.brokers[1].fenced:
                await trio.sleep(0.001)
        assert node.broker.lifecycle.broker_epoch > before


async def test_without_transactional_ids_the_lists_are_empty() -> None:
    """(KIP-664)"""
    async with running_node() as node:
        await node.broker.topic_creation.ensure("__transaction_state")
        listed = await node.call(ListTransactionsRequest(state_filters=["Ongoing", "Odd"]), 2)
        assert (listed.error_code, listed.transaction_states, listed.unknown_state_filters) == (0, [], ["Odd"])
        bad = await node.call(ListTransactionsRequest(transactional_id_pattern="("), 2)
        assert bad.error_code == errors.InvalidRegularExpressionError.code
        described = await node.call(DescribeTransactionsRequest(transactional_ids=["a"]), 0)
        assert [(t.transactional_id, t.error_code) for t in described.transaction_states] == [
            ("a", errors.TransactionalIdNotFoundError.code)
        ]


@pytest.mark.parametrize("version", range(1, 4))
async def test_access_rules_are_answered_as_by_kafka_without_an_authorizer(version: int) -> None:
    async with running_node() as node:
        described = await node.call(
            DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1), version
        )
        assert (described.error_code, described.error_message) == (
            DISABLED,
            "No Authorizer is configured on the broker",
        )
        rule = AclCreation(resource_type=2, resource_name="t", principal="User:a", host="*", operation=3)
        created = await node.call(CreateAclsRequest(creations=[rule, rule]), version)
        assert [result.error_code for result in created.results] == [DISABLED] * 2
        deleted = await node.call(DeleteAclsRequest(filters=[DeleteAclsFilter(resource_type_filter=2)]), version)
        assert [result.error_code for result in deleted.filter_results] == [DISABLED]


async def test_resources_that_have_a_configuration_are_listed() -> None:
    """(KIP-1142)"""
    async with running_node() as node:
        await node.create("t")
        everything = await node.call(ListConfigResourcesRequest(), 1)
        found = {(r.resource_type, r.resource_name) for r in everything.config_resources}
        assert {(2, "t"), (4, "1"), (8, "1")} <= found
        assert (await node.call(ListConfigResourcesRequest(), 0)).config_resources == []
        wrong = await node.call(ListConfigResourcesRequest(resource_types=[2, 99]), 1)
        assert wrong.error_code == errors.UnsupportedVersionError.code


async def test_cluster_operations_without_permission_are_refused() -> None:
    async with running_node(world=memory_world(), authorizer=DenyCluster()) as node:
        for name in ("open", "shut"):
            await node.create(name)
        requests: list[Request[Any]] = [
            ElectLeadersRequest(topic_partitions=None),
            AlterPartitionReassignmentsRequest(),
            ListPartitionReassignmentsRequest(),
            DescribeQuorumRequest(),
            UpdateFeaturesRequest(),
            UnregisterBrokerRequest(broker_id=7),
            DescribeAclsRequest(),
            DescribeLogDirsRequest(topics=None),
            ListConfigResourcesRequest(),
        ]
        for request in requests:
            response = await node.call(request, type(request).versions.max)
            assert response.error_code == CLUSTER_DENIED, type(request).__name__
        created = await node.call(CreateAclsRequest(creations=[AclCreation(resource_type=2)]), 3)
        assert [result.error_code for result in created.results] == [CLUSTER_DENIED]
        asked = [TopicRequest(name=name, partition_indexes=[0]) for name in ("open", "shut")]
        producers = await node.call(DescribeProducersRequest(topics=asked), 0)
        assert [topic.partitions[0].error_code for topic in producers.topics] == [
            0,
            errors.TopicAuthorizationFailedError.code,
        ]
        await node.broker.topic_creation.ensure("__transaction_state")
        transactions = await node.call(DescribeTransactionsRequest(transactional_ids=["open", "shut"]), 0)
        assert [t.error_code for t in transactions.transaction_states] == [
            errors.TransactionalIdNotFoundError.code,
            errors.TransactionalIdAuthorizationFailedError.code,
        ]
        first = await node.call(ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="t", partitions=[0])]), 0)
        assert first.replica_election_results[0].partition_result[0].error_code == CLUSTER_DENIED
