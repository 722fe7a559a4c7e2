"""Scenarios that a producer must pass with every broker, selected by the broker's features.

Each takes the `Peer` and an unused topic name. `scenarios_for` leaves out those that need a missing feature; `lacking`
returns these with the feature.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow
import pytest
import trio

import triokafka
from tests.support.client_scenario import CODECS
from tests.support.fault_proxy import ProxyTrouble, proxied_world
from tests.support.producer_ledger import Promise
from tests.support.producer_workload import Workload
from tests.support.read_back import Entries, read_all, read_all_with_confluent, read_all_with_kafka_python
from tests.support.waiting import eventually
from triokafka.errors import MessageSizeTooLargeError, UnknownTopicOrPartitionError
from triokafka.structs import TopicPartition

CREATES_TOPICS: Final = "topics are created as asked, with their configuration"
STAMPS: Final = "message.timestamp.type=LogAppendTime"
LIMITS_SIZES: Final = "max.message.bytes, and MESSAGE_TOO_LARGE"
DROPS_REPEATS: Final = "sequence numbers are checked, and repeats dropped"
KAFKA_PYTHON: Final = "kafka-python can read from it"
KNOWS_NO_TOPIC: Final = "an unknown topic stays unknown when the client forbids its creation"
EVERYTHING: Final = frozenset({CREATES_TOPICS, STAMPS, LIMITS_SIZES, DROPS_REPEATS, KNOWS_NO_TOPIC, KAFKA_PYTHON})

PARTITIONS = 3
LIMIT = 60.0


@dataclass(frozen=True)
class Peer:
    """A broker or cluster. ``partitions`` is the partition count of topics that it creates automatically."""

    bootstrap: str
    features: frozenset[str] = EVERYTHING
    replicas: int = 1
    partitions: int = PARTITIONS
    options: dict[str, Any] = field(default_factory=dict)

    def producer(self, **options: Any) -> triokafka.Producer:
        """Return a producer for it."""
        return triokafka.Producer(
            bootstrap_servers=self.bootstrap, **{"max_block_ms": 30_000, **self.options, **options}
        )

    async def prepare(self, topic: str, **configs: str) -> int:
        """Create the topic, if possible; return its number of partitions."""
        if CREATES_TOPICS not in self.features:
            async with self.producer() as producer:
                return len(await producer.partitions_for(topic))
        async with triokafka.AdminClient(bootstrap_servers=self.bootstrap) as admin:
            await admin.create_topics([triokafka.NewTopic(topic, PARTITIONS, self.replicas, configs)])

            async def is_led() -> bool:
                try:
                    described = (await admin.describe_topics([topic]))[topic]
                except UnknownTopicOrPartitionError:
                    return False  # this node does not know it yet
                return len(described.partitions) == PARTITIONS and all(p.leader for p in described.partitions)

            await eventually(is_led)
        return PARTITIONS


Scenario = Callable[[Peer, str], Awaitable[None]]
_SCENARIOS: dict[str, tuple[Scenario, frozenset[str]]] = {}


def needs(*features: str) -> Callable[[Scenario], Scenario]:
    """Register a scenario with the features that it needs from a broker."""

    def register(scenario: Scenario) -> Scenario:
        _SCENARIOS[scenario.__name__] = scenario, frozenset(features)
        return scenario

    return register


def scenarios_for(features: frozenset[str] = EVERYTHING) -> list[str]:
    """Return the names of the scenarios for a broker."""
    return [name for name, (_, needed) in _SCENARIOS.items() if needed <= features]


def lacking(features: frozenset[str]) -> dict[str, frozenset[str]]:
    """Return the remaining scenarios, each with the missing features."""
    return {name: needed - features for name, (_, needed) in _SCENARIOS.items() if not needed <= features}


async def run(name: str, peer: Peer, topic: str) -> None:
    """Run one scenario, within a minute."""
    scenario, _ = _SCENARIOS[name]
    with trio.fail_after(LIMIT):
        await scenario(peer, topic)


async def _both_readings(peer: Peer, topics: dict[str, int]) -> Entries:
    """Read with our consumer; kafka-python, or librdkafka if kafka-python cannot read, must read the same."""
    ours = await read_all(peer.bootstrap, topics)
    read_theirs = read_all_with_kafka_python if KAFKA_PYTHON in peer.features else read_all_with_confluent
    assert await read_theirs(peer.bootstrap, topics) == ours
    return ours


# -------------------------------------------------------------------- one way of sending at a time


@needs()
async def records_of_every_codec_come_back_in_order(peer: Peer, topic: str) -> None:
    await peer.prepare(topic)
    for codec in CODECS:
        async with peer.producer(compression_type=codec, batch_size=2_000) as producer:
            deliveries = [
                await producer.send(topic, b"%s %d" % (codec.encode(), i), partition=0, headers=[("n", b"%d" % i)])
                for i in range(300)
            ]
            offsets = [(await delivery).offset for delivery in deliveries]
        assert offsets == list(range(offsets[0], offsets[0] + 300))
    found = (await _both_readings(peer, {topic: 1}))[TopicPartition(topic, 0)]
    assert [value for _, value in found] == [b"%s %d" % (codec.encode(), i) for codec in CODECS for i in range(300)]


@needs()
async def every_setting_of_acks_works(peer: Peer, topic: str) -> None:
    await peer.prepare(topic)
    for number, acks in enumerate((0, 1, "all")):
        async with peer.producer(acks=acks, enable_idempotence=False) as producer:
            metadata = await (await producer.send(topic, b"value", partition=0))
            if acks == 0:
                # The outcome is unknown; leave only once the broker has the record.
                assert metadata.offset == -1
                await eventually_written(peer, topic)
            else:
                assert metadata.offset == number


async def eventually_written(peer: Peer, topic: str) -> None:
    """Wait until the first record is in the topic."""

    async def is_written() -> bool:
        async with triokafka.Consumer(bootstrap_servers=peer.bootstrap) as consumer:
            partition = TopicPartition(topic, 0)
            return bool((await consumer.end_offsets([partition]))[partition])

    await eventually(is_written)


@needs()
async def columns_of_lists_and_arrow_arrays_come_back(peer: Peer, topic: str) -> None:
    await peer.prepare(topic)
    async with peer.producer() as producer:
        listed = await producer.send_many(topic, [b"%d" % i for i in range(5_000)], partition=0)
        assert await listed == {(topic, 0): (0, 4_999)}
        arrow = pyarrow.array([b"%d" % i for i in range(5_000, 8_000)])
        assert await (await producer.send_many(topic, arrow, partition=0)) == {(topic, 0): (5_000, 7_999)}
    found = (await _both_readings(peer, {topic: 1}))[TopicPartition(topic, 0)]
    assert found == [(i, b"%d" % i) for i in range(8_000)]


@needs()
async def many_tasks_share_a_producer(peer: Peer, topic: str) -> None:
    await peer.prepare(topic)
    offsets: list[int] = []
    async with peer.producer(linger_ms=1) as producer:

        async def one(number: int) -> None:
            for _ in range(10):
                offsets.append((await (await producer.send(topic, b"%d" % number, partition=0))).offset)

        async with trio.open_nursery() as nursery:
            for number in range(30):
                nursery.start_soon(one, number)
    assert sorted(offsets) == list(range(300))


@needs()
async def every_way_to_send_is_in_order_once_each(peer: Peer, topic: str) -> None:
    """Run `tests/support/producer_workload.py` without faults."""
    topics = {topic: await peer.prepare(topic)}
    workload = Workload(random.Random(topic), topics, records=2_000, callers=5, pause=0.005)
    await workload.run(peer.producer(batch_size=1_000, linger_ms=1, buffer_memory=50_000))
    assert not workload.ledger.failed
    workload.ledger.check(await _both_readings(peer, topics), Promise.EXACTLY_ONCE)


# -------------------------------------------------------------------- features of some brokers


@needs(STAMPS, CREATES_TOPICS)
async def broker_stamps_records_of_a_log_append_time_topic(peer: Peer, topic: str) -> None:
    await peer.prepare(topic, **{"message.timestamp.type": "LogAppendTime"})
    async with peer.producer() as producer:
        metadata = await (await producer.send(topic, b"v", timestamp_ms=1))
    assert metadata.timestamp > 1_600_000_000_000


@needs(LIMITS_SIZES, CREATES_TOPICS)
async def batch_that_is_too_large_is_split_and_a_record_that_is_fails(peer: Peer, topic: str) -> None:
    """KIP-126."""
    await peer.prepare(topic, **{"max.message.bytes": "2000"})
    async with peer.producer(batch_size=10_000, linger_ms=50) as producer:
        small = [await producer.send(topic, b"%d" % i * 100, partition=0) for i in range(80)]
        large = await producer.send(topic, b"x" * 5_000, partition=0)
        behind = await producer.send(topic, b"behind", partition=0)
        with pytest.raises(MessageSizeTooLargeError):
            await large
        assert [(await delivery).offset for delivery in small] == list(range(80))
        assert (await behind).offset == 80
    found = (await _both_readings(peer, {topic: 1}))[TopicPartition(topic, 0)]
    assert [value for _, value in found] == [*(b"%d" % i * 100 for i in range(80)), b"behind"]


@needs(KNOWS_NO_TOPIC)
async def unknown_topic_without_automatic_creation_gives_a_sentence(peer: Peer, topic: str) -> None:
    async with peer.producer(allow_auto_create_topics=False, max_block_ms=1_500) as producer:
        with pytest.raises(UnknownTopicOrPartitionError, match=f"topic '{topic}' does not exist"):
            await producer.send(topic, b"v")


# -------------------------------------------------------------------- broken connections


async def _through_broken_connections(peer: Peer, topic: str, promise: Promise, **options: Any) -> int:
    """Run five schedules at once, each with its own topic; return how many records are in the log more than once."""
    repeats = 0

    async def one(number: int) -> None:
        nonlocal repeats
        chance = random.Random(number)
        topics = {f"{topic}-{number}": await peer.prepare(f"{topic}-{number}")}
        workload = Workload(chance, topics, records=400, pause=0.02)
        async with proxied_world() as world, trio.open_nursery() as nursery:
            stale = promise is Promise.EXACTLY_ONCE
            faults = ProxyTrouble(world, chance, count=12, pause=0.05, stale=stale, longest=0.6)
            producer = peer.producer(
                world=world,
                batch_size=400,
                buffer_memory=8_000,
                linger_ms=1,
                compression_type=chance.choice(["none", "lz4"]),
                request_timeout_ms=400,
                retry_backoff_ms=10,
                reconnect_backoff_ms=10,
                reconnect_backoff_max_ms=100,
                **options,
            )
            await workload.run(producer, during=lambda: nursery.start_soon(faults.run))
            nursery.cancel_scope.cancel()
        assert not workload.ledger.failed
        repeats += workload.ledger.check(await read_all(peer.bootstrap, topics), promise, most_in_batch=200)

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(one, number)
    return repeats


@needs(DROPS_REPEATS)
async def broken_connections_repeat_nothing_with_idempotence(peer: Peer, topic: str) -> None:
    """Most faults are responses lost after the records were written."""
    await _through_broken_connections(peer, topic, Promise.EXACTLY_ONCE)


@needs(DROPS_REPEATS)
async def broken_connections_repeat_nothing_with_one_request_in_flight(peer: Peer, topic: str) -> None:
    await _through_broken_connections(peer, topic, Promise.EXACTLY_ONCE, max_in_flight_requests_per_connection=1)


@needs()
async def broken_connections_lose_nothing_without_idempotence(peer: Peer, topic: str) -> None:
    # It is random whether a response is lost after its records were written: few runs lose none, a dozen always lose
    # some.
    for attempt in range(4):
        name = f"{topic}-{attempt}"
        if await _through_broken_connections(peer, name, Promise.AT_LEAST_ONCE, enable_idempotence=False):
            return
    raise AssertionError("nothing was repeated: the faults do not bite")


# -------------------------------------------------------------------- brokers that end, start and move

KINDS: Final[dict[str, tuple[Promise, dict[str, Any]]]] = {
    "idempotent-5": (Promise.EXACTLY_ONCE, {}),
    "idempotent-1": (Promise.EXACTLY_ONCE, {"max_in_flight_requests_per_connection": 1}),
    "compressed": (Promise.EXACTLY_ONCE, {"compression_type": "lz4"}),
    "plain-1": (Promise.IN_ORDER, {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1}),
    "plain-5": (Promise.AT_LEAST_ONCE, {"enable_idempotence": False}),
    "acks-0": (Promise.AT_MOST_ONCE, {"acks": 0}),
}
"""Producers that run through the same faults, each with a topic of that name."""


class Progress:
    """Counts the callbacks of all producers, so that a thread can wait until more records are settled."""

    def __init__(self) -> None:
        self.callbacks = 0
        self._more = trio.Event()

    def count(self) -> None:
        """Count one more callback."""
        self.callbacks += 1
        self._more.set()

    async def wait_for(self, callbacks: int) -> None:
        """Wait until there have been ``callbacks`` more than now."""
        goal = self.callbacks + callbacks
        while self.callbacks < goal:
            self._more = trio.Event()
            await self._more.wait()

    def wait_in_thread(self, callbacks: int) -> None:
        """Do the same as `wait_for`, in a thread that trio started."""
        trio.from_thread.run(self.wait_for, callbacks)


async def through_trouble(peer: Peer, disrupt: Callable[[Callable[[int], None]], object]) -> None:
    """Run producers of all `KINDS` until ``disrupt``, which runs in a thread, is over.

    ``disrupt`` is called with a function that waits until this many more records are settled. At the end all logs must
    meet their guarantees, according to three readers.
    """
    progress = Progress()
    workloads = {name: Workload(random.Random(name), {name: 3}, records=2_000, pause=0.05) for name in KINDS}
    over = trio.Event()

    async def produce(name: str) -> None:
        workload = workloads[name]
        producer = peer.producer(
            batch_size=600,
            linger_ms=2,
            request_timeout_ms=4_000,
            retry_backoff_ms=20,
            reconnect_backoff_max_ms=200,
            close_timeout_ms=120_000,
            **KINDS[name][1],
        )
        workload.ledger.on_callback = progress.count
        await workload.run(producer, during=lambda: workload.go_on_until(over))

    for name in KINDS:
        await peer.prepare(name)
    async with trio.open_nursery() as nursery:
        for name in KINDS:
            nursery.start_soon(produce, name)
        await trio.to_thread.run_sync(disrupt, progress.wait_in_thread)
        over.set()
    for name, (promise, _) in KINDS.items():
        ledger = workloads[name].ledger
        if promise is not Promise.AT_MOST_ONCE:
            assert not ledger.failed, f"{name}: {list(ledger.failed.items())[:3]}"
        entries = await read_all(peer.bootstrap, {name: 3})
        repeats = ledger.check(entries, promise, most_in_batch=200)
        print(f"{name}: {len(ledger.acknowledged)} acknowledged, {repeats} repeated")
        assert await read_all_with_kafka_python(peer.bootstrap, {name: 3}) == entries
        assert await read_all_with_confluent(peer.bootstrap, {name: 3}) == entries
