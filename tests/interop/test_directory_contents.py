"""Data directories that the other broker must read: compacted topics, several segments, transactions and their aborts,
producers' sequences, log starts after deletions, configurations of topics and brokers, groups' offsets.

One program writes through Apache Kafka, and all data are read through both brokers in turn; then the reverse.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
)

from tests.interop import jvm
from tests.support.broker_process import BrokerProcess
from tests.support.group_offsets import committed_offsets
from tests.support.waiting import until
from triokafka.cli.cluster.free_ports import free_ports

pytestmark = pytest.mark.interop

TIMEOUT = 30
FIRST_TIMESTAMP = int(time.time() * 1000) - 3_600_000
SETTINGS = {
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.initial.task.delay.ms": "200",
    "log.retention.check.interval.ms": "500",
}
BY_TIME = {"segment.ms": "1000", "retention.ms": "-1"}
TOPICS = {
    "compacted": {**BY_TIME, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    "segments": BY_TIME,
    "deleted": BY_TIME,
    "configured": {"retention.ms": "-1", "max.message.bytes": "123456"},
    "sequence": {"retention.ms": "-1"},
}
FACTOR = "log.cleaner.io.buffer.load.factor"


@contextmanager
def apache(directory: Path, port: int) -> Iterator[str]:
    settings = {name.replace(".", "_"): value for name, value in SETTINGS.items()}
    with jvm.apache_kafka(directory, port=port, **settings) as bootstrap:
        wait_until_it_serves(bootstrap)
        yield bootstrap


@contextmanager
def ours(directory: Path, port: int) -> Iterator[str]:
    broker = BrokerProcess(directory / "data", listen=f"127.0.0.1:{port}", settings=SETTINGS)
    try:
        yield broker.start()
        assert broker.stop() == 0
    finally:
        broker.close()


def wait_until_it_serves(bootstrap: str) -> None:
    """Wait: Apache Kafka listens some time before it leads its partitions and has loaded its groups."""
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def serves() -> bool:
        topics = admin.list_topics(timeout=TIMEOUT).topics
        asked = {TopicPartition(name, n): OffsetSpec.latest() for name, t in topics.items() for n in t.partitions}
        try:
            for future in admin.list_offsets(asked).values() if asked else ():
                future.result(TIMEOUT)
            if "__consumer_offsets" in topics:
                committed(admin, "readers")
        except KafkaException:
            return False
        return True

    until(serves, "the broker serves")


def create(bootstrap: str, topics: dict[str, dict[str, str]]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    futures = admin.create_topics([NewTopic(name, 1, 1, config=config) for name, config in topics.items()])
    for future in futures.values():
        future.result(TIMEOUT)


def send(bootstrap: str, topic: str, rows: list[tuple[int, str | None, str | None]], **options: Any) -> None:
    """Send rows of seconds after the first time, key, and value; each row becomes a batch."""
    for second, key, value in rows:
        producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **options})
        producer.produce(topic, value, key, partition=0, timestamp=FIRST_TIMESTAMP + 1000 * second)
        assert producer.flush(TIMEOUT) == 0


def read(bootstrap: str, topic: str, isolation: str = "read_uncommitted") -> list[tuple[int, Any, Any]]:
    """Return offset, key and value of all records from the first offset to the end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
        }
    )
    found: list[Any] = []
    try:
        low, _ = consumer.get_watermark_offsets(TopicPartition(topic, 0), TIMEOUT)
        consumer.assign([TopicPartition(topic, 0, low)])
        while True:
            message = consumer.poll(TIMEOUT)
            assert message is not None, f"neither a record nor the end of {topic} arrived"
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                return found
            found.append((message.offset(), message.key(), message.value()))
    finally:
        consumer.close()


def committed(admin: AdminClient, group: str) -> dict[tuple[str, int], tuple[int, str]]:
    found = committed_offsets(admin, group)
    for partition in found:
        if partition.error is not None:
            raise KafkaException(partition.error)
    return {(p.topic, p.partition): (p.offset, p.metadata or "") for p in found}


def alter(bootstrap: str, resource: ConfigResource) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(TIMEOUT)


def change(kind: ConfigResource.Type, name: str, key: str, value: str) -> ConfigResource:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    return ConfigResource(kind, name, incremental_configs=[entry])


def write_everything(bootstrap: str) -> None:
    """Write all data that need no transactions."""
    create(bootstrap, TOPICS)
    send(bootstrap, "compacted", [(0, "a", "1"), (0, "b", "1"), (10, "a", "2"), (20, "c", "1"), (30, "z", "active")])
    until(lambda: [offset for offset, *_ in read(bootstrap, "compacted")] == [1, 2, 3, 4], "it is compacted")
    send(bootstrap, "segments", [(10 * number, None, str(number)) for number in range(6)])
    send(bootstrap, "deleted", [(10 * number, None, str(number)) for number in range(8)])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition("deleted", 0, 5)]).values():
        future.result(TIMEOUT)
    alter(bootstrap, change(ConfigResource.Type.TOPIC, "configured", "retention.ms", "1234567890"))
    alter(bootstrap, change(ConfigResource.Type.BROKER, "1", FACTOR, "0.8"))
    for group, offset in (("readers", 3), ("others", 4)):
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
        consumer.commit(offsets=[TopicPartition("segments", 0, offset, metadata=f"note {offset}")], asynchronous=False)
        consumer.close()


def seen(bootstrap: str, topics: list[str]) -> dict[str, Any]:
    """Return all data that both brokers must agree on."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody"})
    found: dict[str, Any] = {"cluster": admin.describe_cluster().result(TIMEOUT).cluster_id}
    for topic in topics:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        configs = admin.describe_configs([resource])[resource].result(TIMEOUT)
        partition = TopicPartition(topic, 0)
        newest = admin.list_offsets({partition: OffsetSpec.max_timestamp()})[partition].result(TIMEOUT)
        times = [TopicPartition(topic, 0, FIRST_TIMESTAMP + 1000 * second) for second in (0, 15, 25, 45)]
        ends = {
            level.name: admin.list_offsets({partition: OffsetSpec.latest()}, isolation_level=level)[partition]
            .result(TIMEOUT)
            .offset
            for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        }
        (description,) = admin.describe_topics(TopicCollection([topic])).values()
        found[topic] = {
            "id": str(description.result(TIMEOUT).topic_id),
            "watermarks": consumer.get_watermark_offsets(partition, TIMEOUT),
            "ends": ends,
            "newest": (newest.offset, newest.timestamp),
            "times": [consumer.offsets_for_times([one], TIMEOUT)[0].offset for one in times],
            "all": read(bootstrap, topic),
            "committed": read(bootstrap, topic, "read_committed"),
            "configs": {key: entry.value for key, entry in configs.items() if int(entry.source) == 1},
        }
    broker = ConfigResource(ConfigResource.Type.BROKER, "1")
    found["broker"] = admin.describe_configs([broker])[broker].result(TIMEOUT)[FACTOR].value
    found["groups"] = {group: committed(admin, group) for group in ("readers", "others")}
    consumer.close()
    return found


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Compare part by part, so that a failure names the part."""
    assert found.keys() == expected.keys()
    for name, part in expected.items():
        if isinstance(part, dict):
            assert_same(found[name], part)
        else:
            assert found[name] == part, name


class Sequence:
    """One idempotent producer that outlives the brokers: each must know the sequence numbers of the other."""

    def __init__(self, bootstrap: str) -> None:
        self._failures: list[Any] = []
        self._offsets: list[int] = []
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0})

    def _note(self, error: Any, message: Any) -> None:
        if error is None:
            self._offsets.append(message.offset())
        else:
            self._failures.append(error)

    def go_on(self) -> None:
        """Produce five more records."""
        for number in range(5):
            self._producer.produce("sequence", str(number), partition=0, on_delivery=self._note)
        assert self._producer.flush(TIMEOUT) == 0
        assert not self._failures
        assert self._offsets == list(range(len(self._offsets)))


def transactions(bootstrap: str) -> None:
    """Write committed and aborted transactions of two producers in turn, over several segments."""
    create(bootstrap, {"transactional": BY_TIME})
    shared = {"bootstrap.servers": bootstrap, "log_level": 0}
    producers = [Producer({**shared, "transactional.id": f"t{i}"}) for i in range(2)]
    for producer in producers:
        producer.init_transactions(TIMEOUT)
    for number in range(6):
        producer = producers[number % 2]
        producer.begin_transaction()
        for index in range(3):
            at = FIRST_TIMESTAMP + 10_000 * number
            producer.produce("transactional", f"{number}-{index}", partition=0, timestamp=at)
        assert producer.flush(TIMEOUT) == 0
        if number in (1, 2, 4):
            producer.abort_transaction(TIMEOUT)
        else:
            producer.commit_transaction(TIMEOUT)


def test_all_data_of_apache_kafka_are_read_by_our_broker_and_again_by_apache_kafka(
    tmp_path: Path,
) -> None:
    jvm.require("mvn", "java")
    (port,) = free_ports(1)
    topics = [*TOPICS, "transactional"]
    with apache(tmp_path, port) as bootstrap:
        write_everything(bootstrap)
        transactions(bootstrap)
        sequence = Sequence(bootstrap)
        sequence.go_on()
        before = seen(bootstrap, topics)
    values = [value for _, _, value in before["transactional"]["committed"]]
    assert values == [b"%d-%d" % (number, index) for number in (0, 3, 5) for index in range(3)]
    assert before["deleted"]["watermarks"] == (5, 8)
    assert list((tmp_path / "data" / "transactional-0").glob("*.txnindex"))
    assert len(list((tmp_path / "data" / "transactional-0").glob("*.log"))) > 1
    with ours(tmp_path, port) as bootstrap:
        assert_same(seen(bootstrap, topics), before)
        sequence.go_on()
        send(bootstrap, "compacted", [(40, "a", "3"), (50, "z", "active")])
        until(lambda: [offset for offset, *_ in read(bootstrap, "compacted")] == [1, 3, 4, 5, 6], "it is compacted")
        after = seen(bootstrap, topics)
    with apache(tmp_path, port) as bootstrap:
        assert_same(seen(bootstrap, topics), after)
        sequence.go_on()


def test_all_data_of_our_broker_are_read_by_apache_kafka_and_again_by_our_broker(
    tmp_path: Path,
) -> None:
    jvm.require("mvn", "java")
    (port,) = free_ports(1)
    topics = list(TOPICS)
    with ours(tmp_path, port) as bootstrap:
        write_everything(bootstrap)
        sequence = Sequence(bootstrap)
        sequence.go_on()
        before = seen(bootstrap, topics)
    with apache(tmp_path, port) as bootstrap:
        assert_same(seen(bootstrap, topics), before)
        sequence.go_on()
        transactions(bootstrap)
        topics.append("transactional")
        after = seen(bootstrap, topics)
    with ours(tmp_path, port) as bootstrap:
        assert_same(seen(bootstrap, topics), after)
        sequence.go_on()
