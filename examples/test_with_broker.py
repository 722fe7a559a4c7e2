"""Tests with a real broker in the test's own process, for any client. Run with: pytest examples

The fixture ``kafka_broker`` comes with the package: one broker for the whole session, so tests use separate topics and
groups. ``running_broker`` gives a test a broker of its own, with its own options.
"""

from __future__ import annotations

from typing import Any

import triokafka
from triokafka.testing import running_broker


def test_orders_reach_the_topic(kafka_broker: Any) -> None:
    from kafka import KafkaConsumer, KafkaProducer  # kafka-python, but it may be any client in any language

    producer = KafkaProducer(bootstrap_servers=kafka_broker.bootstrap_servers)
    producer.send("example-orders", b"two coffees").get(timeout=10)
    producer.close()

    consumer = KafkaConsumer(
        "example-orders",
        bootstrap_servers=kafka_broker.bootstrap_servers,
        auto_offset_reset="earliest",
        consumer_timeout_ms=10_000,
    )
    assert next(consumer).value == b"two coffees"
    consumer.close()


async def test_new_topics_have_three_partitions() -> None:
    async with (
        running_broker(num_partitions=3) as broker,
        triokafka.AdminClient(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        await admin.create_topics([triokafka.NewTopic("payments")])
        description = (await admin.describe_topics(["payments"]))["payments"]
    assert len(description.partitions) == 3
