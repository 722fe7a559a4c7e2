"""Each fault that a test can inject, and the behaviour of librdkafka, kafka-python, aiokafka and our client.

The expected results are the table of docs/testing.md.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

import triokafka
from tests.fault_clients import CLIENTS
from tests.fault_clients.client import FaultClient
from tests.fault_clients.rows import CONSUMING, EXPECTED_CONSUMING, EXPECTED_PRODUCING, PRODUCING, Row, table
from triokafka.testing.blocking import BlockingCluster, running_cluster

PAGE = Path(__file__).parents[2] / "docs" / "testing.md"

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def clusters() -> Iterator[dict[int, BlockingCluster]]:
    """Clusters, by their number of brokers."""
    with running_cluster(1) as one, running_cluster(2) as two:
        yield {1: one, 2: two}


@pytest.mark.parametrize("name", PRODUCING)
@pytest.mark.parametrize("client", CLIENTS)
def test_records_have_the_documented_outcome(clusters: dict[int, BlockingCluster], client: str, name: str) -> None:
    row = PRODUCING[name]
    assert produced(CLIENTS[client], clusters[row.nodes], row) == EXPECTED_PRODUCING[name][client]


@pytest.mark.parametrize("name", CONSUMING)
@pytest.mark.parametrize("client", CLIENTS)
def test_group_members_read_the_documented_records(
    clusters: dict[int, BlockingCluster], client: str, name: str
) -> None:
    row = CONSUMING[name]
    assert consumed(CLIENTS[client], clusters[row.nodes], row) == EXPECTED_CONSUMING[name][client]


def test_page_shows_the_expected_outcomes() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert table(PRODUCING, EXPECTED_PRODUCING) in page
    assert table(CONSUMING, EXPECTED_CONSUMING) in page


def produced(client: FaultClient, cluster: BlockingCluster, row: Row) -> str:
    """Return the outcome of a record that is sent during the fault."""
    topic = _new_topic(cluster)
    error = client.produce(cluster.bootstrap_servers, topic, lambda: row.happens(cluster, topic, ""))  # type: ignore[arg-type]
    cluster.reset()
    # With acks=1 the record may still be above the high watermark; a later record with acks=all makes it visible.
    trio.run(_put, cluster.bootstrap_servers, topic, [b"last"])
    copies = trio.run(_values, cluster.bootstrap_servers, topic).count(b"after")
    there = {0: "not there", 1: "there once", 2: "there twice"}[copies]
    return there if error is None else f"`{error}`, {there}"


def consumed(client: FaultClient, cluster: BlockingCluster, row: Row) -> str:
    """Return the records that a member of a group reads during the fault."""
    topic = _new_topic(cluster)
    group = f"{topic}-group"
    trio.run(_put, cluster.bootstrap_servers, topic, [b"0", b"1"])

    def happens() -> None:
        row.happens(cluster, topic, group)
        trio.run(_put, cluster.bootstrap_servers, topic, [b"2", b"last"])

    values, error = client.consume(cluster.bootstrap_servers, topic, group, row.heartbeat_ms, happens)
    if b"0" in values:
        # One record may have been read before the fault.
        assert values[-4:] == [b"0", b"1", b"2", b"last"]
        reads = "begins at `auto.offset.reset`"
    else:
        assert values == [b"2", b"last"]
        reads = "reads on"
    return reads if error is None else f"{reads}, but may not commit: `{error}`"


def _new_topic(cluster: BlockingCluster) -> str:
    name = f"faults-{os.getpid()}-{next(_numbers)}"
    cluster.create_topic(name, partitions=1)
    return name


async def _put(servers: str, topic: str, values: list[bytes]) -> None:
    async with triokafka.Producer(bootstrap_servers=servers, retry_backoff_ms=10, linger_ms=0) as producer:
        for value in values:
            await (await producer.send(topic, value, partition=0))


async def _values(servers: str, topic: str) -> list[bytes | None]:
    found: list[bytes | None] = []
    async with triokafka.Consumer(bootstrap_servers=servers, group_id=None, auto_offset_reset="earliest") as consumer:
        partition = triokafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        end = (await consumer.end_offsets([partition]))[partition]
        while len(found) < end:
            for records in (await consumer.poll(timeout_ms=1000)).values():
                found += [record.value for record in records]
    return found
