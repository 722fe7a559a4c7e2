"""Consumer groups of our own members against a real broker process: joining, leaving, crashing, resuming."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import trio

import triokafka
from tests.support.waiting import eventually
from triokafka.structs import TopicPartition

PARTITIONS = 6
RECORDS = 600
QUICK: dict[str, Any] = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 300, "auto_offset_reset": "earliest"}


@pytest.fixture
async def filled(bootstrap: str, topic: str) -> str:
    """Create a topic with numbered records in every partition."""
    async with triokafka.AdminClient(bootstrap_servers=bootstrap) as admin:
        await admin.create_topics([triokafka.NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)])
    async with triokafka.Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(RECORDS):
            await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
    return topic


class Member:
    """One consumer in its own task; ``seen`` counts the records that it handled."""

    def __init__(self, bootstrap: str, topic: str, group: str, **options: Any) -> None:
        self.seen: Counter[tuple[int, int]] = Counter()
        self.consumer = triokafka.Consumer(topic, bootstrap_servers=bootstrap, group_id=group, **{**QUICK, **options})
        self.scope = trio.CancelScope()
        self.gone = trio.Event()

    async def run(self) -> None:
        try:
            with self.scope:
                async with self.consumer:
                    async for record in self.consumer:
                        self.seen[record.partition, record.offset] += 1
        finally:
            self.gone.set()

    async def leave(self) -> None:
        self.scope.cancel()
        await self.gone.wait()


def sizes(*members: Member) -> list[int]:
    return sorted(len(member.consumer.assignment()) for member in members)


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
async def test_members_share_the_partitions_as_they_come_and_go(
    bootstrap: str, filled: str, group: str, strategy: str
) -> None:
    make = lambda: Member(bootstrap, filled, group, partition_assignment_strategy=[strategy])  # noqa: E731
    async with trio.open_nursery() as nursery:
        first, second, third = make(), make(), make()
        nursery.start_soon(first.run)
        await eventually(lambda: sizes(first) == [PARTITIONS])
        nursery.start_soon(second.run)
        await eventually(lambda: sizes(first, second) == [3, 3])
        nursery.start_soon(third.run)
        await eventually(lambda: sizes(first, second, third) == [2, 2, 2])
        assigned = [partition for member in (first, second, third) for partition in member.consumer.assignment()]
        assert sorted(assigned) == [TopicPartition(filled, number) for number in range(PARTITIONS)]
        await second.leave()
        await eventually(lambda: sizes(first, third) == [3, 3])
        seen = first.seen + second.seen + third.seen
        await eventually(lambda: len(first.seen + second.seen + third.seen) == RECORDS)
        assert len(seen) <= RECORDS
        await first.leave()
        await third.leave()
    # Every member left cleanly, after committing all but the record that it was handling.
    again = Counter((first.seen + second.seen + third.seen).values())
    assert sum(count for times, count in again.items() if times > 1) <= 4 * PARTITIONS


async def test_a_dead_members_partitions_go_to_the_others_after_its_session(
    bootstrap: str, filled: str, group: str
) -> None:
    async with trio.open_nursery() as nursery:
        first, dead = Member(bootstrap, filled, group), Member(bootstrap, filled, group)
        nursery.start_soon(first.run)
        nursery.start_soon(dead.run)
        await eventually(lambda: sizes(first, dead) == [3, 3])
        member = dead.consumer._engine.membership
        assert member is not None

        async def send_nothing(*_: object) -> None:
            """Stand in for a dead process, which sends no leave request."""

        member._send_leave = send_nothing  # type: ignore[attr-defined]
        dead.consumer._engine.committer.commit_finished = send_nothing  # type: ignore[assignment, method-assign]
        await dead.leave()
        assert sizes(first) == [3]
        await eventually(lambda: sizes(first) == [PARTITIONS])
        await eventually(lambda: len(first.seen + dead.seen) == RECORDS)
        await first.leave()


async def test_a_static_member_returns_to_its_partitions_without_a_rebalance(
    bootstrap: str, filled: str, group: str
) -> None:
    async with trio.open_nursery() as nursery:
        first = Member(bootstrap, filled, group, group_instance_id="one")
        second = Member(bootstrap, filled, group, group_instance_id="two")
        nursery.start_soon(first.run)
        nursery.start_soon(second.run)
        await eventually(lambda: sizes(first, second) == [3, 3])
        before = first.consumer.health().generation
        held = second.consumer.assignment()
        await second.leave()
        back = Member(bootstrap, filled, group, group_instance_id="two")
        nursery.start_soon(back.run)
        await eventually(lambda: sizes(back) == [3])
        assert back.consumer.assignment() == held
        assert first.consumer.health().generation == before
        await first.leave()
        await back.leave()


async def test_a_group_resumes_where_it_has_committed(bootstrap: str, filled: str, group: str) -> None:
    seen: Counter[tuple[int, int]] = Counter()
    for take in (200, 250, 150):
        async with triokafka.Consumer(filled, bootstrap_servers=bootstrap, group_id=group, **QUICK) as consumer:
            with trio.fail_after(60):
                for _ in range(take):
                    record = await anext(consumer)
                    seen[record.partition, record.offset] += 1
    assert len(seen) == RECORDS
    assert set(seen.values()) == {1}


async def test_offsets_are_found_by_time_and_at_both_ends(bootstrap: str, topic: str) -> None:
    async with triokafka.Producer(bootstrap_servers=bootstrap) as producer:
        for number in range(10):
            await producer.send(topic, b"v", partition=0, timestamp_ms=1_700_000_000_000 + number * 1_000)
    tp = TopicPartition(topic, 0)
    async with triokafka.Consumer(bootstrap_servers=bootstrap) as consumer:
        assert await consumer.beginning_offsets([tp]) == {tp: 0}
        assert await consumer.end_offsets([tp]) == {tp: 10}
        found = (await consumer.offsets_for_times({tp: 1_700_000_003_500}))[tp]
        assert found is not None
        assert (found.offset, found.timestamp) == (4, 1_700_000_004_000)
        assert await consumer.offsets_for_times({tp: 1_800_000_000_000}) == {tp: None}
        assert await consumer.partitions_for_topic(topic) is not None
        assert await consumer.partitions_for_topic("no-such-topic") is None
