"""Our consumers under the consumer protocol (KIP-848) in groups that Apache Kafka coordinates."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import triokafka
from tests.interop import jvm
from tests.support import consumer_protocol_groups as groups
from tests.support.waiting import eventually
from triokafka.errors import (
    GroupMaxSizeReachedError,
    InvalidRegularExpressionError,
    UnsupportedAssignorError,
    UnsupportedVersionError,
)

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with jvm.apache_kafka(
        tmp_path_factory.mktemp("kafka"),
        group_consumer_heartbeat_interval_ms="300",
        group_consumer_min_heartbeat_interval_ms="200",
        group_consumer_max_size="8",
    ) as bootstrap:
        yield bootstrap


async def test_our_members_and_librdkafkas_share_a_topic_and_read_no_record_twice(kafka: str) -> None:
    await groups.beside_librdkafka(kafka, "shared", "shared")


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_a_group_changes_to_the_consumer_protocol_member_by_member_and_back(kafka: str, strategy: str) -> None:
    await groups.upgraded_and_back(kafka, f"over-{strategy}", f"over-{strategy}", strategy)


async def test_the_coordinator_matches_topics_including_later_ones(kafka: str) -> None:
    await groups.with_a_pattern(kafka, "matched", "matched")


async def test_a_static_member_that_returns_finds_its_partitions(kafka: str) -> None:
    await groups.with_static_members(kafka, "static", "static")


async def test_javas_consumer_takes_half_and_leaves_it(kafka: str, tmp_path: Path) -> None:
    group = groups.Group(kafka, "java", "java")
    async with group.running():
        await group.start("a", **groups.CONSUMER)
        await group.start("b", **groups.CONSUMER)
        await eventually(lambda: group.sizes() == [3, 3], "ours have it all")
        command = [
            "java",
            *jvm.QUICK_START,
            "-Xmx256m",
            "-cp",
            f"{jvm.jars()}/*",
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
        ]
        options = ["--bootstrap-server", kafka, "--topic", "java", "--group", "java"]
        output = tmp_path / "out.txt"
        with output.open("wb") as out, (tmp_path / "err.txt").open("wb") as error_output:
            java = subprocess.Popen(
                [*command, *options, "--command-property", "group.protocol=consumer"], stdout=out, stderr=error_output
            )
        try:
            await eventually(lambda: group.sizes() == [2, 2], "Java's has a third")
            await group.produce()
            await eventually(
                lambda: len(group.seen) + len(output.read_bytes().splitlines()) == groups.RECORDS, "all is read"
            )
        finally:
            java.terminate()
            java.wait(groups.TIMEOUT)
        await eventually(lambda: group.sizes() == [3, 3], "it has left")
        assert set(group.seen.values()) == {1}


async def test_refusal_of_the_coordinator_is_raised_with_its_message(kafka: str) -> None:
    options: dict[str, Any] = {"bootstrap_servers": kafka, **groups.CONSUMER}
    async with triokafka.Consumer("t", group_id="refused", group_remote_assignor="sticky", **options) as consumer:
        with pytest.raises(UnsupportedAssignorError, match="sticky"):
            await consumer.poll(timeout_ms=20_000)
    async with triokafka.Consumer(group_id="refused", **options) as consumer:
        consumer.subscribe(pattern=triokafka.SubscriptionPattern("(unfinished"))
        with pytest.raises(InvalidRegularExpressionError, match="unfinished"):
            await consumer.poll(timeout_ms=20_000)
    group = groups.Group(kafka, "full", "full")
    async with group.running():
        for number in range(8):
            await group.start(str(number), **groups.CONSUMER)
        await eventually(lambda: all(m.health().generation > 0 for m in group.members.values()), "eight have joined")
        async with triokafka.Consumer("full", group_id="full", **options) as consumer:
            with pytest.raises(GroupMaxSizeReachedError, match="8"):
                await consumer.poll(timeout_ms=20_000)


async def test_cluster_without_the_feature_raises_an_error_with_a_remedy(tmp_path: Path) -> None:
    with jvm.apache_kafka(tmp_path, group_coordinator_rebalance_protocols="classic") as bootstrap:
        async with triokafka.Consumer("t", bootstrap_servers=bootstrap, group_id="g", **groups.CONSUMER) as consumer:
            with pytest.raises(UnsupportedVersionError, match="group_protocol='classic'"):
                await consumer.poll(timeout_ms=20_000)
