"""The mirror and MirrorMaker 2 read each other's records; the mirror copies from and to Apache Kafka."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
import trio
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.jvm import apache_kafka
from tests.interop.mirror_maker import mirror_maker, mirror_records
from tests.support.broker_process import broker_process
from tests.support.read_back import read_all
from triokafka.mirror import Mirror, MirrorOptions
from triokafka.mirror.failover import GroupCheckpoint, read_checkpoints

pytestmark = pytest.mark.interop

PATIENCE = 120
TOPICS = {"orders": 2}
REMOTE = {"west.orders": 2}


@pytest.fixture(scope="module")
def west() -> Iterator[str]:
    with broker_process() as bootstrap:
        write(bootstrap, 1_000)
        commit(bootstrap, "billing", {0: 123, 1: 400})
        yield bootstrap


def write(bootstrap: str, count: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for created in admin.create_topics([NewTopic(topic, parts, 1) for topic, parts in TOPICS.items()]).values():
        created.result(PATIENCE)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(count):
        producer.produce("orders", b"%d" % number, key=b"k", partition=number % 2, headers=[("n", b"%d" % number)])
    assert producer.flush(PATIENCE) == 0


def commit(bootstrap: str, group: str, positions: dict[int, int]) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    offsets = [confluent_kafka.TopicPartition("orders", number, offset) for number, offset in positions.items()]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


async def mirror(west: str, east: str, **more: object) -> None:
    options = MirrorOptions(
        source={"bootstrap_servers": west},
        target={"bootstrap_servers": east},
        source_alias="west",
        target_alias="east",
        **more,  # type: ignore[arg-type]
    )
    with trio.fail_after(PATIENCE):
        await Mirror(options).run(until_caught_up=True)


async def values(bootstrap: str, topics: dict[str, int]) -> list[list[bytes | None]]:
    found = await read_all(bootstrap, topics, isolation_level="read_committed")
    return [[value for _, value in entries] for _, entries in sorted(found.items())]


async def test_java_reads_our_checkpoints_syncs_and_heartbeats(west: str) -> None:
    with broker_process() as east:
        await mirror(west, east, heartbeat_interval_ms=1, commit_interval_ms=200)
        translated = await trio.to_thread.run_sync(mirror_records, "translate", east, "west", "billing")
        assert translated.split("\n")[:2] == ["west.orders-0 123", "west.orders-1 400"]
        syncs = await trio.to_thread.run_sync(mirror_records, "syncs", west, "mm2-offset-syncs.east.internal")
        assert "OffsetSync{topicPartition=orders-0, upstreamOffset=499, downstreamOffset=499}" in syncs
        beats = await trio.to_thread.run_sync(mirror_records, "heartbeats", east, "heartbeats")
        assert set(beats.splitlines()) == {"west east"}


async def test_we_read_the_checkpoints_of_mirror_maker(west: str, tmp_path: Path) -> None:
    with broker_process() as east, mirror_maker(tmp_path, west, east, topics="orders", groups="billing"):
        found: list[GroupCheckpoint] = []
        with trio.fail_after(PATIENCE):
            while {one.partition for one in found} != {0, 1}:
                await trio.sleep(0.5)  # there is no event for the end of the other program's work
                found = await read_checkpoints({"bootstrap_servers": east}, "west")
        assert {(one.group, one.topic, one.partition, one.upstream_offset) for one in found} == {
            ("billing", "west.orders", 0, 123),
            ("billing", "west.orders", 1, 400),
        }
        assert all(0 <= one.offset <= one.upstream_offset for one in found), "MirrorMaker rounds down to an offset sync"
        assert await values(east, REMOTE) == await values(west, TOPICS)
        command = [sys.executable, "-m", "triokafka", "mirror", "offsets", "--target", east, "--source-alias", "west"]
        shown = await trio.run_process([*command, "--json", "--apply"], capture_stdout=True)
        assert len(json.loads(shown.stdout)) == 2


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_mirror_copies_to_apache_kafka_and_back(west: str, tmp_path: Path, exactly_once: bool) -> None:
    with apache_kafka(tmp_path) as kafka, broker_process() as east:
        await mirror(west, kafka, exactly_once=exactly_once, sync_group_offsets=True)
        assert await values(kafka, REMOTE) == await values(west, TOPICS)
        assert committed(kafka, "west.orders") == [123, 400]
        options = MirrorOptions(
            source={"bootstrap_servers": kafka},
            target={"bootstrap_servers": east},
            naming="identity",
            exactly_once=exactly_once,
            sync_group_offsets=True,
        )
        with trio.fail_after(PATIENCE):
            await Mirror(options).run(until_caught_up=True)
        assert await values(east, REMOTE) == await values(west, TOPICS)
        assert committed(east, "west.orders") == [123, 400]


def committed(bootstrap: str, topic: str) -> list[int]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "billing"})
    found = consumer.committed([confluent_kafka.TopicPartition(topic, number) for number in range(2)], PATIENCE)
    consumer.close()
    return [one.offset for one in found]
