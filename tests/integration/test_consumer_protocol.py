"""Our consumers under the consumer protocol (KIP-848) over real connections, against our broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import consumer_protocol_groups as groups
from tests.support.broker_process import broker_process

QUICK = {
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.regex.refresh.interval.ms": "10000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
}


@pytest.fixture(scope="module")
def quick_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with broker_process(tmp_path_factory.mktemp("broker") / "data", settings=QUICK) as address:
        yield address


async def test_our_members_and_librdkafkas_share_a_topic_and_read_no_record_twice(
    quick_broker: str, topic: str, group: str
) -> None:
    await groups.beside_librdkafka(quick_broker, topic, group)


@pytest.mark.parametrize("strategy", ["cooperative-sticky", pytest.param("range", marks=pytest.mark.long)])
async def test_a_group_changes_to_the_consumer_protocol_member_by_member_and_back(
    quick_broker: str, topic: str, group: str, strategy: str
) -> None:
    await groups.upgraded_and_back(quick_broker, topic, group, strategy)


async def test_the_coordinator_matches_topics_including_later_ones(quick_broker: str, topic: str, group: str) -> None:
    await groups.with_a_pattern(quick_broker, topic, group)


async def test_a_static_member_that_returns_finds_its_partitions(quick_broker: str, topic: str, group: str) -> None:
    await groups.with_static_members(quick_broker, topic, group)
