"""The admin client on real sockets: our own broker, or the one that ``TRIOKAFKA_TEST_BOOTSTRAP`` names."""

from __future__ import annotations

import pytest
import trio

import triokafka
from triokafka.client.admin import AlterConfig, ConfigOperation, ConfigSource, NewPartitions
from triokafka.errors import (
    GroupIdNotFoundError,
    InvalidConfigurationError,
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    KafkaError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from triokafka.structs import OffsetAndMetadata, TopicPartition

ConfigResource = triokafka.ConfigResource
NewTopic = triokafka.NewTopic


def admin_of(bootstrap: str) -> triokafka.AdminClient:
    return triokafka.AdminClient(bootstrap_servers=bootstrap, default_api_timeout_ms=20_000)


async def test_topics_are_created_listed_described_and_deleted(bootstrap: str, topic: str) -> None:
    with trio.fail_after(60):
        async with admin_of(bootstrap) as admin:
            created = await admin.create_topics([NewTopic(topic, 3, 1, {"retention.ms": "1000"}), topic + "-b"])
            assert created[topic].num_partitions == 3
            assert topic in [listing.name for listing in await admin.list_topics()]
            description = (await admin.describe_topics([topic]))[topic]
            assert [p.partition for p in description.partitions] == [0, 1, 2]
            assert description.topic_id == created[topic].topic_id
            assert all(p.leader is not None and len(p.isr) == 1 for p in description.partitions)
            await admin.delete_topics([topic, created[topic + "-b"].topic_id])
            gone = await admin.describe_topics([topic])
            with pytest.raises(UnknownTopicOrPartitionError):
                _ = gone[topic]
            assert list(gone.errors) == [topic]


async def test_one_failed_item_raises_its_error_and_several_raise_a_group(bootstrap: str, topic: str) -> None:
    with trio.fail_after(60):
        async with admin_of(bootstrap) as admin:
            await admin.create_topics([topic])
            with pytest.raises(TopicAlreadyExistsError, match=topic):
                await admin.create_topics([topic, topic + "-new"])
            assert (await admin.describe_topics([topic + "-new"]))[topic + "-new"]
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
            assert len((await admin.describe_topics([topic]))[topic].partitions) == 4
            with pytest.raises(InvalidPartitionsError):
                await admin.create_partitions({topic: 2})


async def test_configurations_are_described_and_altered(bootstrap: str, topic: str) -> None:
    resource = ConfigResource.topic(topic)

    async def value(name: str) -> str | None:
        return (await admin.describe_configs([resource]))[resource][name].value

    with trio.fail_after(60):
        async with admin_of(bootstrap) as admin:
            await admin.create_topics([topic])
            await admin.incremental_alter_configs({resource: {"retention.ms": "5000", "cleanup.policy": "delete"}})
            assert await value("retention.ms") == "5000"
            entry = (await admin.describe_configs([resource], keys=["retention.ms"], include_synonyms=True))[resource]
            assert entry["retention.ms"].source is ConfigSource.TOPIC
            assert entry["retention.ms"].synonyms
            append = AlterConfig("cleanup.policy", "compact", ConfigOperation.APPEND)
            await admin.incremental_alter_configs({resource: [append]})
            assert await value("cleanup.policy") == "delete,compact"
            await admin.incremental_alter_configs({resource: {"retention.ms": None}})
            assert await value("retention.ms") != "5000"
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


async def test_unreachable_cluster_gives_a_sentence_in_time() -> None:
    with trio.fail_after(20):
        async with triokafka.AdminClient(bootstrap_servers="127.0.0.1:1", default_api_timeout_ms=1000) as admin:
            with pytest.raises(KafkaError, match=r"127\.0\.0\.1:1: Connection refused"):
                await admin.list_topics()
