"""Topics that are deleted and recreated while a consumer reads them are new topics, read from the start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
import trio

import triokafka
from tests.support.simulated import current_simulation, simulated
from triokafka.client.consumer.recreated_topics import RecreatedTopics
from triokafka.client.consumer.subscription_state import EARLIEST, LATEST, SubscriptionState
from triokafka.network.cluster import Cluster, PartitionMetadata, TopicMetadata
from triokafka.structs import TopicPartition
from triokafka.testing import running_broker
from triokafka.testing.simulated_world import SimulatedWorld

if TYPE_CHECKING:
    pass

T0 = TopicPartition("t", 0)


class Topics:
    """Our own broker at ``broker:9092``, and the operations on its topics."""

    def __init__(self, admin: triokafka.AdminClient, producer: triokafka.Producer) -> None:
        self._admin = admin
        self._producer = producer

    async def make(self, name: str, values: list[bytes]) -> None:
        await self._admin.create_topics([triokafka.NewTopic(name, 1, 1)])
        await self.write(name, values)

    async def write(self, name: str, values: list[bytes]) -> None:
        await self._producer.send_many(name, values, partition=0)
        await self._producer.flush()

    async def delete(self, name: str) -> None:
        await self._admin.delete_topics([name])


def numbers(prefix: bytes, count: int) -> list[bytes]:
    return [b"%s%d" % (prefix, number) for number in range(count)]


async def values(consumer: triokafka.Consumer, count: int) -> list[bytes]:
    with trio.fail_after(120):
        return [(await anext(consumer)).value for _ in range(count)]


def with_topics(test: Any) -> Any:
    """Run a test in a simulated world, with `Topics` and the options of a consumer."""

    @simulated
    async def run(**given: Any) -> None:
        simulation = current_simulation()

        async def process(world: SimulatedWorld) -> None:
            async with running_broker(
                world=world,
                listeners="PLAINTEXT://broker:9092",
                offsets_topic_num_partitions=1,
                group_initial_rebalance_delay_ms=0,
                auto_create_topics_enable=False,
            ):
                await trio.sleep_forever()

        simulation.host("broker").start(process)
        other: dict[str, Any] = {"bootstrap_servers": "broker:9092", "world": simulation.host("other").world}
        async with triokafka.AdminClient(**other) as admin, triokafka.Producer(**other) as producer:
            mine = {"bootstrap_servers": "broker:9092", "world": simulation.host("mine").world}
            await test(Topics(admin, producer), {**mine, "auto_offset_reset": "earliest"}, **given)

    return run


KINDS: dict[str, dict[str, Any]] = {
    "by hand": {},
    "by hand, with a group": {"group_id": "g"},
    "alone": {},
    "eager": {"group_id": "g", "partition_assignment_strategy": ["range"]},
    "cooperative": {"group_id": "g", "partition_assignment_strategy": ["cooperative-sticky"]},
    "consumer": {"group_id": "g", "group_protocol": "consumer"},
}


@pytest.mark.parametrize("pattern", [False, True])
@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_recreated_topic_is_read_from_its_beginning(kind: str, seen: bool, pattern: bool) -> None:
    """This holds whether or not the consumer noticed the deletion; a position in the old topic is invalid in the new
    one.
    """

    @with_topics
    async def run(topics: Topics, options: dict[str, Any]) -> None:
        await topics.make("t", numbers(b"a", 5))
        async with triokafka.Consumer(
            **options, **KINDS[kind], metadata_max_age_ms=1_000 if seen else 300_000
        ) as consumer:
            if kind.startswith("by hand"):
                consumer.assign([T0])
            elif pattern:
                consumer.subscribe(pattern="t.*")
            else:
                consumer.subscribe(["t"])
            assert await values(consumer, 5) == numbers(b"a", 5)
            await topics.delete("t")
            if seen:
                await consumer.poll(timeout_ms=10_000)
            await topics.make("t", numbers(b"b", 9))
            assert await values(consumer, 9) == numbers(b"b", 9)
            await topics.write("t", [b"last"])
            assert await values(consumer, 1) == [b"last"]

    if not (pattern and kind.startswith("by hand")):
        run()


def test_stale_metadata_do_not_count_as_a_recreated_topic() -> None:
    """Neither do metadata without topic ids or without the topic; another subscription resets the watch."""
    subscription = SubscriptionState()
    watch = RecreatedTopics(subscription)

    def cluster(number: int | None) -> Cluster:
        partitions = {0: PartitionMetadata(0, 1)}
        topics = {} if number is None else {"t": TopicMetadata("t", UUID(int=number), partitions=partitions)}
        return Cluster({}, topics)

    subscription.assign([T0])
    detected = [bool(watch.find(cluster(number))) for number in (1, None, 1, 2, 0, 1, 2, None, 3, 2, 1, 3)]
    assert detected == [False, False, False, True, False, False, False, False, True, False, False, False]
    subscription.assign([])
    assert not watch.find(cluster(4))
    subscription.assign([T0])
    assert not watch.find(cluster(5))


def test_pause_and_seek_survive_a_reset_of_positions() -> None:
    subscription = SubscriptionState(EARLIEST)
    subscription.assign([T0, TopicPartition("t", 1), TopicPartition("u", 0)])
    for partition in subscription.assignment:
        subscription.seek(partition, 7)
    subscription.pause([T0])
    subscription.request_reset(TopicPartition("t", 1), LATEST)
    subscription.start_over("t")
    assert [(str(p), state.position, state.reset_to, state.paused) for p, state in subscription] == [
        ("t-0", None, None, True),
        ("t-1", None, LATEST, False),
        ("u-0", 7, None, False),
    ]
    assert subscription.finished({}).keys() == {TopicPartition("u", 0)}
