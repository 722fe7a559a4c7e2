"""`triokafka.asyncio.AIOKafkaAdminClient`, against a broker."""

from __future__ import annotations

import pytest

from tests.support.asyncio_programs import run
from triokafka.asyncio import AIOKafkaAdminClient, AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from triokafka.asyncio.admin import NewPartitions, NewTopic, RecordsToDelete
from triokafka.asyncio.admin.config_resource import ConfigResource, ConfigResourceType
from triokafka.asyncio.errors import IllegalArgumentError, InvalidPartitionsError


def test_topics_are_created_described_extended_and_deleted(bootstrap: str, topic: str) -> None:
    async def program() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        wanted = NewTopic(topic, 2, 1, topic_configs={"retention.ms": "12345"})
        assert (await admin.create_topics([wanted])).topic_errors == [(topic, 0, None)]
        assert (await admin.create_topics([wanted])).topic_errors[0][1] == 36
        assert topic in await admin.list_topics()
        (described,) = await admin.describe_topics([topic])
        assert [one["partition"] for one in described["partitions"]] == [0, 1]
        await admin.create_partitions({topic: NewPartitions(3)})
        with pytest.raises(InvalidPartitionsError):
            await admin.create_partitions({topic: NewPartitions(1)})
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        (configs,) = await admin.describe_configs([resource])
        assert {entry[0]: entry[1] for entry in configs.resources[0][4]}["retention.ms"] == "12345"
        await admin.alter_configs([ConfigResource("topic", topic, {"retention.ms": "99"})])
        (configs,) = await admin.describe_configs([ConfigResource("topic", topic, {"retention.ms": None})])
        assert [entry[:2] for entry in configs.resources[0][4]] == [("retention.ms", "99")]
        assert (await admin.describe_cluster())["brokers"]
        assert (await admin.delete_topics([topic])).topic_error_codes == [(topic, 0)]
        await admin.close()
        await admin.close()

    run(program())
    with pytest.raises(IllegalArgumentError):
        NewTopic(topic, 1, 1, replica_assignments={0: [1]})


def test_groups_and_records_are_administered(bootstrap: str, topic: str, group: str) -> None:
    async def program() -> None:
        partition = TopicPartition(topic, 0)
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for _ in range(3):
                await producer.send_and_wait(topic, b"x")
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        async with AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest"
        ) as consumer:
            await consumer.getone()
            await consumer.commit()
            assert (group, "consumer") in await admin.list_consumer_groups()
            (described,) = await admin.describe_consumer_groups([group])
            assert described.groups[0][1:3] == (group, "Stable")
            assert len(described.groups[0][5]) == 1
            assert await admin.list_consumer_group_offsets(group) == {partition: (1, "")}
            other = TopicPartition(topic, 7)
            asked = await admin.list_consumer_group_offsets(group, partitions=[other, partition])
            assert asked == {other: (-1, ""), partition: (1, "")}
            assert await admin.find_coordinator(group) >= 0
        assert await admin.delete_records({partition: RecordsToDelete(2)}) == {partition: 2}
        await admin.close()

    run(program())
