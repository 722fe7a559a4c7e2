"""The admin client on real sockets: with our own broker, or with the one that ``TRIOKAFKA_TEST_BOOTSTRAP`` names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
import trio

import triokafka
from triokafka.client.admin import (
    AlterConfig,
    ConfigOperation,
    ConfigResourceType,
    ConfigSource,
    ElectionType,
    NewPartitions,
    QuotaEntity,
    QuotaMatch,
    TopicDescription,
    TopicPartitionReplica,
)
from triokafka.errors import (
    BrokerIdNotRegisteredError,
    BrokerNotAvailableError,
    GroupIdNotFoundError,
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    KafkaError,
    LogDirNotFoundError,
    NoReassignmentInProgressError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from triokafka.structs import OffsetAndMetadata, TopicPartition

T = TypeVar("T")

ConfigResource = triokafka.ConfigResource
NewTopic = triokafka.NewTopic


def admin_of(bootstrap: str) -> triokafka.AdminClient:
    return triokafka.AdminClient(bootstrap_servers=bootstrap, default_api_timeout_ms=20_000)


async def eventually(ask: Callable[[], Awaitable[T]], accept: Callable[[T], bool]) -> T:
    """Repeat a request until its response is accepted: Apache Kafka's brokers learn of a change after its
    acknowledgement.
    """
    with trio.fail_after(60):
        while not accept(found := await ask()):
            await trio.sleep(0.02)
    return found


async def described(admin: triokafka.AdminClient, topic: str, partitions: int = 1) -> TopicDescription:
    """Return the topic's description once it has that many partitions."""
    found = await eventually(
        lambda: admin.describe_topics([topic]),
        lambda answer: not answer.errors and len(answer[topic].partitions) == partitions,
    )
    return found[topic]


async def test_topics_are_created_listed_described_and_deleted(bootstrap: str, topic: str) -> None:
    with trio.fail_after(60):
        async with admin_of(bootstrap) as admin:
            created = await admin.create_topics([NewTopic(topic, 3, 1, {"retention.ms": "1000"}), topic + "-b"])
            assert created[topic].num_partitions == 3
            description = await described(admin, topic, 3)
            await described(admin, topic + "-b")
            assert topic in [listing.name for listing in await admin.list_topics()]
            assert [p.partition for p in description.partitions] == [0, 1, 2]
            assert description.topic_id == created[topic].topic_id
            assert all(p.leader is not None and len(p.isr) == 1 for p in description.partitions)
            await admin.delete_topics([topic, created[topic + "-b"].topic_id])
            gone = await eventually(lambda: admin.describe_topics([topic]), lambda answer: bool(answer.errors))
            with pytest.raises(UnknownTopicOrPartitionError):
                _ = gone[topic]
            assert list(gone.errors) == [topic]


async def test_one_failed_item_raises_its_error_and_several_raise_a_group(bootstrap: str, topic: str) -> None:
    with trio.fail_after(60):
        async with admin_of(bootstrap) as admin:
            await admin.create_topics([topic])
            with pytest.raises(TopicAlreadyExistsError, match=topic):
                await admin.create_topics([topic, topic + "-new"])
            await described(admin, topic + "-new")
            with pytest.raises(ExceptionGroup) as caught:
                await admin.create_topics([topic, NewTopic(topic + "-2", 1, 99)])
            kinds = {type(error) for error in caught.value.exceptions}
            assert kinds == {TopicAlreadyExistsError, InvalidReplicationFactorError}
            with pytest.raises(UnknownTopicOrPartitionError):
                await admin.delete_topics(["no-such-topic"])


async def test_validating_creates_nothing(bootstrap: str, topic: str) -> None:
    with trio.fail_after(60):
        async with admin_of(bootstrap) as admin:
            await admin.create_topics([topic], validate_only=True)
            assert (await admin.describe_topics([topic])).errors


async def test_partitions_are_added(bootstrap: str, topic: str) -> None:
    with trio.fail_after(60):
        async with admin_of(bootstrap) as admin:
            await admin.create_topics([topic])
            await admin.create_partitions({topic: 3})
            await admin.create_partitions({topic: NewPartitions(4)})
            await described(admin, topic, 4)
            with pytest.raises(InvalidPartitionsError):
                await admin.create_partitions({topic: 2})


async def test_configurations_are_described_and_altered(bootstrap: str, topic: str) -> None:
    resource = ConfigResource.topic(topic)

    async def is_set(name: str, value: str, expected: bool = True) -> None:
        await eventually(
            lambda: admin.describe_configs([resource]),
            lambda answer: (answer[resource][name].value == value) is expected,
        )

    with trio.fail_after(60):
        async with admin_of(bootstrap) as admin:
            await admin.create_topics([topic])
            await described(admin, topic)
            await admin.incremental_alter_configs({resource: {"retention.ms": "5000", "cleanup.policy": "delete"}})
            await is_set("retention.ms", "5000")
            entry = (await admin.describe_configs([resource], keys=["retention.ms"], include_synonyms=True))[resource]
            assert entry["retention.ms"].source is ConfigSource.TOPIC
            assert entry["retention.ms"].synonyms
            append = AlterConfig("cleanup.policy", "compact", ConfigOperation.APPEND)
            await admin.incremental_alter_configs({resource: [append]})
            await is_set("cleanup.policy", "delete,compact")
            await admin.incremental_alter_configs({resource: {"retention.ms": None}})
            await is_set("retention.ms", "5000", expected=False)
            with pytest.raises(InvalidConfigurationError, match=topic):
                await admin.incremental_alter_configs({resource: {"retention.ms": "soon"}})
            broker = ConfigResource.broker((await admin.describe_cluster()).nodes[0].node_id)
            assert (await admin.describe_configs([broker]))[broker]


async def test_cluster_is_described(bootstrap: str) -> None:
    with trio.fail_after(60):
        async with admin_of(bootstrap) as admin:
            cluster = await admin.describe_cluster()
            assert cluster.cluster_id
            assert cluster.controller in cluster.nodes


async def test_offsets_are_found_and_records_deleted(bootstrap: str, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with trio.fail_after(60):
        async with admin_of(bootstrap) as admin, triokafka.Producer(bootstrap_servers=bootstrap) as producer:
            await admin.create_topics([NewTopic(topic, 1)])
            for i in range(10):
                await (await producer.send(topic, b"%d" % i, timestamp_ms=1_700_000_000_000 + 10 * i))

            async def offset(spec: str | int) -> int:
                return (await admin.list_offsets({partition: spec}))[partition].offset

            assert await offset("earliest") == 0
            assert await offset("latest") == 10
            assert await offset(1_700_000_000_035) == 4
            assert await offset(1_800_000_000_000) == -1
            assert await offset("max_timestamp") == 9
            assert await admin.delete_records({partition: 6}) == {partition: 6}
            assert await offset("earliest") == 6
            with pytest.raises(OffsetOutOfRangeError):
                await admin.delete_records({partition: 1000})
            missing = await admin.list_offsets({TopicPartition(topic, 9): "latest", partition: "latest"})
            assert missing[partition].offset == 10
            with pytest.raises(UnknownTopicOrPartitionError):
                _ = missing[TopicPartition(topic, 9)]
        with pytest.raises(ValueError, match="not an offset to look up"):
            await admin.list_offsets({partition: "newest"})


async def test_groups_and_their_offsets_are_managed(bootstrap: str, topic: str, group: str) -> None:
    partition = TopicPartition(topic, 0)
    with trio.fail_after(60):
        async with admin_of(bootstrap) as admin:
            await admin.create_topics([NewTopic(topic, 2)])
            await admin.alter_group_offsets(
                group, {partition: OffsetAndMetadata(3, "mine"), TopicPartition(topic, 1): 5}
            )
            found = await admin.list_group_offsets(group)
            assert {tp: (o.offset, o.metadata) for tp, o in found.items()} == {
                partition: (3, "mine"),
                TopicPartition(topic, 1): (5, ""),
            }
            assert list(await admin.list_group_offsets(group, [partition])) == [partition]
            assert group in [listing.group_id for listing in await admin.list_groups()]
            description = (await admin.describe_groups([group]))[group]
            assert (description.state, description.members) == ("Empty", ())
            await admin.delete_group_offsets(group, [partition])
            assert list(await admin.list_group_offsets(group)) == [TopicPartition(topic, 1)]
            await admin.delete_groups([group])
            assert await admin.list_group_offsets(group) == {}
            with pytest.raises(GroupIdNotFoundError, match=group):
                await admin.delete_groups([group])


async def test_unreachable_cluster_raises_a_descriptive_error_in_time() -> None:
    with trio.fail_after(20):
        async with triokafka.AdminClient(bootstrap_servers="127.0.0.1:1", default_api_timeout_ms=1000) as admin:
            with pytest.raises(KafkaError, match=r"127\.0\.0\.1:1: Connection refused"):
                await admin.list_topics()


async def test_leaders_and_reassignments_are_requested(bootstrap: str, topic: str) -> None:
    """KIP-455, KIP-460. With one broker, no replica can move."""
    with trio.fail_after(60):
        async with admin_of(bootstrap) as admin:
            await admin.create_topics([NewTopic(topic, 2)])
            await described(admin, topic, 2)
            zero, one, nine = (TopicPartition(topic, number) for number in (0, 1, 9))
            assert await admin.elect_leaders([zero, one]) == []
            assert await admin.elect_leaders() == []
            with pytest.raises(UnknownTopicOrPartitionError):
                await admin.elect_leaders([zero, nine], election_type=ElectionType.UNCLEAN)
            node = (await admin.describe_cluster()).nodes[0].node_id
            await admin.alter_partition_reassignments({zero: [node]})
            assert await admin.list_partition_reassignments([zero, one]) == {}
            with pytest.raises(ExceptionGroup) as caught:
                await admin.alter_partition_reassignments({zero: [node + 1000], one: None})
            assert {type(error) for error in caught.value.exceptions} == {
                InvalidReplicationAssignmentError,
                NoReassignmentInProgressError,
            }


async def test_producers_of_a_partition_are_described(bootstrap: str, topic: str) -> None:
    """KIP-664."""
    with trio.fail_after(60):
        async with admin_of(bootstrap) as admin:
            await admin.create_topics([NewTopic(topic, 1)])
            async with triokafka.Producer(bootstrap_servers=bootstrap) as producer:
                for _ in range(3):
                    await (await producer.send(topic, b"v"))
            (found,) = (await admin.describe_producers([TopicPartition(topic, 0)]))[TopicPartition(topic, 0)]
            assert (found.producer_id >= 0, found.last_sequence, found.current_transaction_start_offset) == (
                True,
                2,
                -1,
            )


async def test_quotas_are_set_described_and_deleted(bootstrap: str, topic: str) -> None:
    """KIP-546."""
    entity = QuotaEntity.of(user=topic, client_id=None)
    with trio.fail_after(60):
        async with admin_of(bootstrap) as admin:
            await admin.alter_client_quotas({entity: {"producer_byte_rate": 1e6, "request_percentage": 50}})
            values = {"producer_byte_rate": 1e6, "request_percentage": 50.0}
            default: dict[str, str | QuotaMatch] = {"user": topic, "client_id": QuotaMatch.DEFAULT}
            await eventually(lambda: admin.describe_client_quotas(default), lambda found: found == {entity: values})
            assert await admin.describe_client_quotas({"user": topic}, strict=True) == {}
            await admin.alter_client_quotas({entity: {"producer_byte_rate": None, "request_percentage": None}})
            either: dict[str, str | QuotaMatch] = {"user": topic, "client_id": QuotaMatch.ANY}
            await eventually(lambda: admin.describe_client_quotas(either), lambda found: found == {})
            with pytest.raises(InvalidRequestError):
                await admin.alter_client_quotas({entity: {"no_such_quota": 1}})
    with pytest.raises(ValueError, match="'group' is not a part"):
        QuotaEntity.of(group="g")


async def test_directories_features_and_quorum_are_described(bootstrap: str, topic: str) -> None:
    """KIP-113, KIP-584, KIP-595."""
    with trio.fail_after(60):
        async with admin_of(bootstrap) as admin:
            await admin.create_topics([NewTopic(topic, 1)])
            await described(admin, topic)
            tp = TopicPartition(topic, 0)
            node = (await admin.describe_cluster()).nodes[0].node_id
            directories = (await admin.describe_log_dirs(partitions=[tp]))[node]
            (path,) = (path for path, found in directories.items() if tp in found.replicas)
            assert directories[path].error is None and directories[path].replicas[tp].size == 0
            await admin.alter_replica_log_dirs({TopicPartitionReplica(topic, 0, node): path})
            with pytest.raises(LogDirNotFoundError):
                await admin.alter_replica_log_dirs({TopicPartitionReplica(topic, 0, node): "/no/such/directory"})
            features = await admin.describe_features()
            (broker, *_) = (await admin.describe_cluster()).nodes
            assert (await admin.describe_features(node_id=broker.node_id)).finalized == features.finalized
            with pytest.raises(BrokerNotAvailableError):
                await admin.describe_features(node_id=9_999)
            level = features.finalized["metadata.version"].max_version
            assert features.supported["metadata.version"].max_version >= level
            await admin.update_features({"metadata.version": level}, validate_only=True)
            with pytest.raises(InvalidUpdateVersionError):
                await admin.update_features({"no.such.feature": 1})
            quorum = await admin.describe_metadata_quorum()
            assert quorum.leader_id in [voter.replica_id for voter in quorum.voters]
            with pytest.raises(BrokerIdNotRegisteredError):
                await admin.unregister_broker(4711)


async def test_resources_with_a_configuration_are_listed_and_values_reset(bootstrap: str, topic: str) -> None:
    """KIP-1142."""
    resource = ConfigResource.topic(topic)
    with trio.fail_after(60):
        async with admin_of(bootstrap) as admin:
            await admin.create_topics([NewTopic(topic, 1, configs={"retention.ms": "7"})])
            await eventually(
                lambda: admin.list_config_resources([ConfigResourceType.TOPIC]), lambda found: resource in found
            )
            await admin.reset_configs({resource: ["retention.ms"]})
            await eventually(
                lambda: admin.describe_configs([resource]), lambda found: found[resource]["retention.ms"].is_default
            )
            group = ConfigResource.group(topic)
            await admin.incremental_alter_configs({group: {"consumer.session.timeout.ms": "46000"}})
            found = await eventually(
                lambda: admin.describe_configs([group]),
                lambda answer: answer[group]["consumer.session.timeout.ms"].value == "46000",
            )
            assert found[group]["consumer.session.timeout.ms"].source is ConfigSource.GROUP
            assert group in await admin.list_config_resources([ConfigResourceType.GROUP])
            await admin.reset_configs({group: ["consumer.session.timeout.ms"]})


async def test_members_are_removed_from_a_group(bootstrap: str, topic: str, group: str) -> None:
    """KIP-345."""
    with trio.fail_after(60):
        async with admin_of(bootstrap) as admin:
            await admin.create_topics([NewTopic(topic, 1)])
            async with triokafka.Consumer(
                topic, bootstrap_servers=bootstrap, group_id=group, group_instance_id="still-here"
            ) as consumer:
                while not consumer.assignment():
                    await consumer.poll(timeout_ms=100)
                with pytest.raises(UnknownMemberIdError):
                    await admin.remove_group_members(group, ["nobody"])
                await admin.remove_group_members(group, group_instance_ids=["still-here"], reason="maintenance")
                assert (await admin.describe_groups([group]))[group].members == ()


async def test_several_groups_are_described_and_their_offsets_read_at_once(
    bootstrap: str, topic: str, group: str
) -> None:
    """KIP-699, KIP-709, KIP-848. The groups have a member, have only offsets, and do not exist."""
    simple, missing = f"{group}-simple", f"{group}-nobody"
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with trio.fail_after(60):
        async with admin_of(bootstrap) as admin:
            await admin.create_topics([NewTopic(topic, 2)])
            await described(admin, topic, 2)
            await admin.alter_group_offsets(simple, {zero: 3, one: 4})
            async with triokafka.Consumer(topic, bootstrap_servers=bootstrap, group_id=group) as consumer:
                while not consumer.assignment():
                    await consumer.poll(timeout_ms=100)
                found = await admin.describe_groups([group, simple, missing])
                (member,) = found[group].members
                assert (found[group].state, set(member.assignment)) == ("Stable", {zero, one})
                assert (found[simple].state, found[simple].members) == ("Empty", ())
                assert isinstance(found.errors.get(missing), GroupIdNotFoundError) or found[missing].state == "Dead"
                by_broker = await admin.list_groups_by_broker(states=["Stable"], types=["classic", "consumer"])
                assert not by_broker.errors
                listed = {listing.group_id for node in by_broker for listing in by_broker[node]}
                assert group in listed and simple not in listed
                offsets = await admin.list_offsets_of_groups([group, simple, missing], {simple: [one]})
                assert {tp: o.offset for tp, o in offsets[simple].items()} == {one: 4}
                assert (offsets[missing], offsets.errors) == ({}, {})
                assert await admin.remove_all_group_members(group) == 1
