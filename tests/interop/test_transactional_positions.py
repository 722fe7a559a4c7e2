"""Offsets that transactions committed, aborted or left open at Apache Kafka have the same state on our broker
(KIP-447).

The data directory moves from Kafka to our broker in the middle of a transaction.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop import jvm
from tests.interop.test_group_records import SETTINGS, ours
from tests.support.group_offsets import committed_offsets

pytestmark = pytest.mark.interop

GROUP, TIMEOUT = "billing", 30.0
UNSTABLE = 88


def transaction(bootstrap: str, name: str, *positions: tuple[int, int]) -> Producer:
    """Return a producer with an open transaction that has offsets of partitions of ``t``."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(TIMEOUT)
    producer.begin_transaction()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    offsets = [TopicPartition("t", partition, offset) for partition, offset in positions]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT)
    consumer.close()
    return producer


def positions(bootstrap: str, *, stable: bool) -> dict[int, int]:
    """Return the committed offset of each partition, or its error as a negative number."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = [TopicPartition("t", number) for number in range(6)]
    found = committed_offsets(admin, GROUP, asked, require_stable=stable, request_timeout=TIMEOUT)
    return {one.partition: one.offset if one.error is None else -one.error.code() for one in found}


def test_offsets_of_ended_transactions_count_and_open_ones_are_unstable_after_the_move(tmp_path: Path) -> None:
    jvm.require("mvn", "java")
    settings: dict[str, Any] = {name.replace(".", "_"): value for name, value in SETTINGS.items()}
    with jvm.apache_kafka(tmp_path, **settings) as bootstrap:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("t", 6, 1)])["t"].result(TIMEOUT)
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False})
        consumer.commit(offsets=[TopicPartition("t", number, 10 + number) for number in range(4)], asynchronous=False)
        consumer.close()
        transaction(bootstrap, "commits", (0, 100)).commit_transaction(TIMEOUT)
        transaction(bootstrap, "aborts", (1, 101), (4, 104)).abort_transaction(TIMEOUT)
        open_one = transaction(bootstrap, "open", (2, 102), (5, 105))
        expected = {0: 100, 1: 11, 2: 12, 3: 13, 4: -1001, 5: -1001}
        stable = {**expected, 2: -UNSTABLE, 5: -UNSTABLE}
        assert positions(bootstrap, stable=False) == expected
        assert positions(bootstrap, stable=True) == stable
    with ours(tmp_path) as bootstrap:
        assert positions(bootstrap, stable=False) == expected
        assert positions(bootstrap, stable=True) == stable
    del open_one
