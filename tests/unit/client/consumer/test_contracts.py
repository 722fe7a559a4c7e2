"""General guarantees of a consumer: independence of brokers, group membership, and the storage of offsets."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection
from typing import Any, ClassVar

import pytest
import trio

import triokafka
from tests.support.scripted_broker import CLOSE, SILENCE
from tests.support.scripted_reading import ReadableBroker, ReadableCluster, started_for_consumer
from tests.support.simulated import current_simulation, simulated
from triokafka.assignors import Assignment, PartitionAssignor
from triokafka.errors import ConfigurationError, UnknownTopicOrPartitionError
from triokafka.protocol.api.api_versions import ApiVersionsRequest
from triokafka.protocol.api.fetch import FetchRequest, FetchResponse
from triokafka.protocol.api.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from triokafka.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from triokafka.protocol.api.join_group import JoinGroupRequest
from triokafka.protocol.api.leave_group import LeaveGroupRequest
from triokafka.protocol.api.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from triokafka.protocol.api.metadata import MetadataRequest
from triokafka.protocol.api.offset_commit import OffsetCommitRequest
from triokafka.protocol.api.offset_fetch import OffsetFetchRequest
from triokafka.protocol.api.sync_group import SyncGroupRequest
from triokafka.structs import OffsetAndMetadata, TopicPartition
from triokafka.testing import running_broker
from triokafka.testing.simulated_world import SimulatedWorld

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def start_broker(partitions: int = 1, records: int = 0) -> None:
    """Run our own broker at ``broker:9092``, with so many records in each partition of ``t``."""
    simulation = current_simulation()

    async def process(world: SimulatedWorld) -> None:
        async with running_broker(
            world=world,
            listeners="PLAINTEXT://broker:9092",
            num_partitions=partitions,
            offsets_topic_num_partitions=1,
            group_initial_rebalance_delay_ms=0,
        ):
            await trio.sleep_forever()

    simulation.host("broker").start(process)
    async with triokafka.Producer(bootstrap_servers="broker:9092", world=simulation.host("producer").world) as producer:
        for number in range(partitions):
            await producer.send_many("t", [b"%d" % n for n in range(max(1, records))], partition=number)


def member(host: str, **options: Any) -> triokafka.Consumer:
    world = current_simulation().host(host).world
    given = {
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 500,
    }
    return triokafka.Consumer(bootstrap_servers="broker:9092", world=world, client_id=host, **{**given, **options})


async def values(consumer: triokafka.Consumer, count: int) -> list[bytes]:
    with trio.fail_after(120):
        return [(await anext(consumer)).value for _ in range(count)]


# ---------------------------------------------------------------- the calls


@simulated
async def test_calls_of_all_kinds_work_together_without_naming_a_broker() -> None:
    """Subscribe, assign, commit, seek, poll, pause and resume."""
    await start_broker(2, records=4)
    async with member("a", enable_auto_commit=False) as consumer:
        consumer.subscribe(["t"])
        assert sorted(await values(consumer, 8)) == sorted([b"0", b"1", b"2", b"3"] * 2)
        await consumer.commit()
        consumer.pause(T0)
        consumer.seek(T0, 2)
        consumer.seek(T1, 3)
        assert list(await consumer.poll(timeout_ms=1_000)) == [T1]
        consumer.resume(T0)
        assert [record.offset for record in (await consumer.poll(timeout_ms=1_000))[T0]] == [2, 3]
        assert await consumer.poll(timeout_ms=100) == {}
        consumer.unsubscribe()
        consumer.assign([T0])
        assert await consumer.position(T0) == 4  # the group's committed offset
        consumer.seek_to_beginning(T0)
        assert await values(consumer, 1) == [b"0"]
        consumer.seek_to_end()
        assert await consumer.position(T0) == 4


@simulated
async def test_consumers_that_feed_workers_commit_only_finished_records() -> None:
    """Records that are still queued when the program ends are read again."""
    await start_broker(2, records=30)
    done: Counter[tuple[int, int]] = Counter()

    async def run(for_seconds: float) -> None:
        send, receive = trio.open_memory_channel[tuple[triokafka.Consumer, triokafka.ConsumerRecord]](10)

        async def feed(host: str) -> None:
            async with member(host, enable_auto_commit=False, max_poll_records=5) as consumer:
                consumer.subscribe(["t"])
                async for record in consumer:
                    await send.send((consumer, record))

        async def work() -> None:
            async for consumer, record in receive:
                await trio.sleep(0.1)
                done[record.partition, record.offset] += 1
                # Each partition belongs to one worker, so that every earlier record is finished.
                consumer.commit_nowait({TopicPartition("t", record.partition): record.offset + 1})

        with trio.move_on_after(for_seconds):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(feed, "a")
                nursery.start_soon(feed, "b")
                nursery.start_soon(work)

    await run(3)
    assert 0 < len(done) < 60
    async with member("watcher") as watcher:
        found = await watcher.committed([T0, T1])
    for partition, offset in found.items():
        assert all(done[partition.partition, before] for before in range(0 if offset is None else offset.offset))
    await run(30)
    assert done.keys() == {(partition, offset) for partition in (0, 1) for offset in range(30)}


@simulated
async def test_metrics_of_each_client_are_separate() -> None:
    """This includes producers."""
    _, broker, options = await started_for_consumer()
    del options["auto_offset_reset"]
    async with triokafka.Producer(**options) as producer, triokafka.Consumer(**options) as consumer:
        await producer.partitions_for("t")
        await consumer.topics()
        async with triokafka.Consumer(**options) as second:
            await second.topics()
    assert {header.client_id for header in broker.headers} == {
        "triokafka-producer-1",
        "triokafka-consumer-1",
        "triokafka-consumer-2",
    }


# ---------------------------------------------------------------- membership


@simulated
async def test_a_member_connects_to_brokers_only_and_to_the_coordinator_for_its_group() -> None:
    """No other service stores, watches or decides anything."""
    cluster, broker, options = await started_for_consumer()
    cluster.write("t", 0, [b"0"])
    async with triokafka.Consumer("t", **options, group_id="g") as consumer:
        await values(consumer, 1)
        await consumer.commit()
        await trio.sleep(10)
    assert {type(request) for request in broker.requests} == {
        ApiVersionsRequest,
        MetadataRequest,
        FindCoordinatorRequest,
        JoinGroupRequest,
        SyncGroupRequest,
        HeartbeatRequest,
        OffsetFetchRequest,
        ListOffsetsRequest,
        FetchRequest,
        OffsetCommitRequest,
        LeaveGroupRequest,
    }
    with pytest.raises(ConfigurationError, match="zookeeper_connect"):
        triokafka.Consumer("t", **options, group_id="g", zookeeper_connect="localhost:2181")  # type: ignore[call-arg]


class Weighted(PartitionAssignor):
    """Assigns as many partitions as each member announces in its user data, and returns to each the count of the
    others.
    """

    name = "weighted"
    assigned_by: ClassVar[list[str]] = []

    def __init__(self, host: str, weight: int) -> None:
        self.host = host
        self.weight = weight
        self.assignments: list[tuple[list[TopicPartition], bytes | None, int]] = []

    def user_data(self, topics: Collection[str]) -> bytes | None:
        return b"%d" % self.weight

    def assign(self, members: Any, partitions: Any, racks: Any = None) -> dict[str, Assignment]:
        self.assigned_by.append(self.host)
        left = [TopicPartition(topic, number) for topic in sorted(partitions) for number in range(partitions[topic])]
        assigned = {}
        for member_id in sorted(members):
            count = int(members[member_id].user_data)
            assigned[member_id] = Assignment(left[:count], b"%d with others" % (sum(partitions.values()) - count))
            left = left[count:]
        return assigned

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        self.assignments.append((list(assignment.partitions), assignment.user_data, generation))


@simulated
async def test_a_custom_assignor_runs_at_the_leader_without_the_brokers_knowledge() -> None:
    """Its user data travels with the subscription and the assignment, and each member is notified."""
    await start_broker(6)
    one, two = Weighted("a", 4), Weighted("b", 2)
    Weighted.assigned_by.clear()
    async with (
        member("a", partition_assignment_strategy=[one]) as a,
        member("b", partition_assignment_strategy=[two]) as b,
    ):
        a.subscribe(["t"])
        b.subscribe(["t"])

        async def go_on(consumer: triokafka.Consumer) -> None:
            while True:
                await consumer.poll(timeout_ms=100)

        with trio.move_on_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(go_on, a)
                nursery.start_soon(go_on, b)
                while (len(a.assignment()), len(b.assignment())) != (4, 2):
                    await trio.sleep(0.1)
                nursery.cancel_scope.cancel()
        assert (len(a.assignment()), len(b.assignment())) == (4, 2)
        assert not a.assignment() & b.assignment()
        generation = a.health().generation
        for assignor, consumer, others in ((one, a, b"2 with others"), (two, b, b"4 with others")):
            partitions, data, of_generation = assignor.assignments[-1]
            assert (frozenset(partitions), data, of_generation) == (consumer.assignment(), others, generation)
        assert len(set(Weighted.assigned_by)) == 1, "one member leads"


@simulated
async def test_members_of_different_groups_use_the_coordinators_of_their_groups() -> None:
    simulation = current_simulation()
    cluster = ReadableCluster(t=1)
    address = await cluster.start(simulation.nursery, simulation.host("broker").world, nodes=3)
    brokers = {node_id: broker for node_id, broker in cluster.brokers.items() if isinstance(broker, ReadableBroker)}
    shards = {"two": 2, "three": 3}

    def find(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        found = []
        for group in request.coordinator_keys:
            host, port = brokers[shards[group]].address.split(":")
            found.append(Coordinator(key=group, node_id=shards[group], host=host, port=int(port)))
        return FindCoordinatorResponse(coordinators=found)

    for broker in brokers.values():
        broker.script(FindCoordinatorRequest, *[find] * 10)
    for group in shards:
        async with triokafka.Consumer(
            "t", bootstrap_servers=address, world=simulation.host("client").world, group_id=group
        ) as consumer:
            with trio.fail_after(30):
                while not consumer.assignment():
                    await consumer.poll(timeout_ms=1_000)
    for request_type in (JoinGroupRequest, SyncGroupRequest, LeaveGroupRequest):
        asked = {node_id: {r.group_id for r in broker.seen(request_type)} for node_id, broker in brokers.items()}
        assert asked == {1: set(), 2: {"two"}, 3: {"three"}}


@pytest.mark.parametrize("group", [None, "g"])
@simulated
async def test_partitions_assigned_by_hand_are_independent_of_groups(group: str | None) -> None:
    """No member joins; a coordinator is looked up only if offsets are committed."""
    cluster, broker, options = await started_for_consumer()
    cluster.write("t", 0, [b"0", b"1"])
    async with triokafka.Consumer(**options, group_id=group) as consumer:
        consumer.assign([T0])
        assert await values(consumer, 2) == [b"0", b"1"]
        await trio.sleep(30)
        await consumer.poll(timeout_ms=1_000)
    assert not broker.seen(JoinGroupRequest)
    assert not broker.seen(HeartbeatRequest)
    assert not broker.seen(LeaveGroupRequest)
    assert bool(broker.seen(FindCoordinatorRequest)) == (group is not None)


@simulated
async def test_a_poll_ends_in_time_whatever_the_group_waits_for() -> None:
    """The coordinator lookup, the rebalance and the positions continue in the background."""
    for stage in (FindCoordinatorRequest, JoinGroupRequest, SyncGroupRequest, OffsetFetchRequest, ListOffsetsRequest):
        cluster, broker, options = await started_for_consumer()
        cluster.write("t", 0, [b"0"])

        async def late(request: Any, broker: ReadableBroker = broker) -> Any:
            await trio.sleep(3)
            return CLOSE

        broker.script(stage, late)
        async with triokafka.Consumer("t", **options, group_id="g") as consumer:
            for _ in range(20):
                before = trio.current_time()
                assert await consumer.poll(timeout_ms=100) == {}
                assert trio.current_time() - before == pytest.approx(0.1)
            assert await values(consumer, 1) == [b"0"]


@simulated
async def test_heartbeats_are_sent_only_by_a_member_of_a_generation() -> None:
    _, broker, options = await started_for_consumer()
    options["connections_max_silence_ms"] = -1  # the join is not repeated, however long it takes
    async with triokafka.Consumer("t", **options, group_id="g", heartbeat_interval_ms=1_000) as consumer:
        joined = trio.Event()

        async def join_late(request: JoinGroupRequest) -> Any:
            await joined.wait()
            return broker.join_group(request)

        broker.script(JoinGroupRequest, broker.join_group, join_late)  # the first response only assigns a member id
        await consumer.poll(timeout_ms=20_000)
        assert not broker.seen(HeartbeatRequest), "a heartbeat was sent before the join"
        joined.set()
        await consumer.poll(timeout_ms=5_500)
        assert 4 <= len(broker.seen(HeartbeatRequest)) <= 6
        # The member is removed, and the second join is held: while it joins, it sends no heartbeats.
        broker.script(HeartbeatRequest, HeartbeatResponse(error_code=25))
        broker.script(JoinGroupRequest, *[SILENCE] * 3)
        await consumer.poll(timeout_ms=3_000)
        before = len(broker.seen(HeartbeatRequest))
        await consumer.poll(timeout_ms=20_000)
        assert len(broker.seen(HeartbeatRequest)) == before
        consumer.unsubscribe()
        await trio.sleep(20)
        assert len(broker.seen(HeartbeatRequest)) == before


@simulated
async def test_eager_rebalance_stops_all_members() -> None:
    """All partitions are revoked first, and assigned again."""
    await start_broker(4, records=2_000)
    events: list[tuple[str, str, int]] = []

    class Listener(triokafka.ConsumerRebalanceListener):
        def __init__(self, host: str) -> None:
            self.host = host

        def on_partitions_revoked(self, revoked: Any) -> None:
            events.append((self.host, "revoked", len(revoked)))

        def on_partitions_assigned(self, assigned: Any) -> None:
            events.append((self.host, "assigned", len(assigned)))

    async def read(host: str) -> None:
        async with member(host, partition_assignment_strategy=["range"], max_poll_records=3) as consumer:
            consumer.subscribe(["t"], listener=Listener(host))
            while True:
                if await consumer.poll(timeout_ms=100):
                    events.append((host, "reads", len(consumer.assignment())))
                await trio.sleep(0.01)

    with trio.move_on_after(12):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, "a")
            await trio.sleep(3)
            nursery.start_soon(read, "b")
    of_a = [(call, count) for host, call, count in events if host == "a"]
    rebalances = [event for event in of_a if event[0] != "reads"]
    assert rebalances[:4] == [("revoked", 0), ("assigned", 4), ("revoked", 4), ("assigned", 2)]
    given_up = events.index(("a", "revoked", 4))
    assigned = [index for index, event in enumerate(events) if event[1:] == ("assigned", 2)]
    assert len(assigned) == 2
    assert not [event for event in events[given_up : min(assigned)] if event[1] == "reads"]


# ---------------------------------------------------------------- offsets


@simulated
async def test_committed_offsets_are_records_of_an_internal_topic() -> None:
    """Any client may read them there; a consumer may also store offsets elsewhere."""
    await start_broker(1, records=5)
    async with member("a", enable_auto_commit=False) as consumer:
        consumer.assign([T0])
        await consumer.commit({T0: OffsetAndMetadata(3, "by hand")})
    async with member("b", group_id=None, exclude_internal_topics=False) as reader:
        offsets = TopicPartition("__consumer_offsets", 0)
        reader.assign([offsets])
        [record] = (await reader.poll(timeout_ms=5_000))[offsets]
        assert b"g" in record.key and b"by hand" in record.value
        # Elsewhere: without a group, no offset is fetched or committed.
        reader.assign([T0])
        reader.seek(T0, 3)
        assert await values(reader, 2) == [b"3", b"4"]


@simulated
async def test_committed_offsets_are_fetched_again_after_a_background_commit() -> None:
    """An earlier committed offset is never returned from a cache."""
    _, broker, options = await started_for_consumer()
    async with triokafka.Consumer(**options, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([T0])
        await consumer.commit({T0: 1})
        assert await consumer.committed(T0) == OffsetAndMetadata(1)
        done = trio.Event()
        consumer.commit_nowait({T0: 2}, on_done=lambda offsets, error: done.set())
        await done.wait()
        before = len(broker.seen(OffsetFetchRequest))
        assert await consumer.committed(T0) == OffsetAndMetadata(2)
        assert len(broker.seen(OffsetFetchRequest)) == before + 1


# ---------------------------------------------------------------- fetching


@simulated
async def test_records_positions_and_topics_come_from_the_responsible_brokers() -> None:
    cluster, broker, options = await started_for_consumer(2)
    cluster.write("t", 0, [b"0", b"1"])
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0])
        assert await values(consumer, 2) == [b"0", b"1"]
        assert await consumer.beginning_offsets([T0]) == {T0: 0}
        assert await consumer.end_offsets([T0]) == {T0: 2}
        assert await consumer.topics() == {"t": [0, 1]}
        with pytest.raises(UnknownTopicOrPartitionError):
            await consumer.end_offsets([TopicPartition("nothing", 0)], timeout_ms=2_000)
    assert broker.seen(FetchRequest) and broker.seen(ListOffsetsRequest) and broker.seen(MetadataRequest)


@simulated
async def test_failed_fetch_is_retried_and_its_data_is_decoded_lazily() -> None:
    cluster, broker, options = await started_for_consumer()
    cluster.write("t", 0, [b"0", b"1"])
    read: list[bytes] = []

    def deserialize(data: bytes) -> bytes:
        read.append(data)
        return data

    broker.script(FetchRequest, CLOSE, CLOSE)
    async with triokafka.Consumer(**options, value_deserializer=deserialize) as consumer:
        consumer.assign([T0])
        await consumer.position(T0)
        await trio.sleep(5)
        assert {p.fetch_offset for q in broker.seen(FetchRequest)[:3] for t in q.topics for p in t.partitions} == {0}
        assert consumer.metrics()["fetch_buffer_bytes"] > 0
        assert not read
        assert await values(consumer, 2) == [b"0", b"1"]
        assert read == [b"0", b"1"]


@simulated
async def test_buffered_paused_and_unpositioned_partitions_are_not_fetched() -> None:
    cluster, broker, options = await started_for_consumer(3)
    for number in range(3):
        for _ in range(3):
            cluster.write("t", number, [b"x" * 400])
    t2 = TopicPartition("t", 2)

    def no_leader(request: ListOffsetsRequest) -> ListOffsetsResponse:
        response = broker.list_offsets(request)
        for topic in response.topics:
            for partition in topic.partitions:
                partition.error_code = 5
        return response

    broker.script(ListOffsetsRequest, *[no_leader] * 100)
    async with triokafka.Consumer(**options, max_partition_fetch_bytes=500) as consumer:
        consumer.assign([T0, T1, t2])
        consumer.seek(T0, 0)
        consumer.seek(T1, 0)
        consumer.pause(T1)
        await trio.sleep(5)
        asked: dict[int, list[int]] = defaultdict(list)
        for request in broker.seen(FetchRequest):
            for topic in request.topics:
                for partition in topic.partitions:
                    asked[partition.partition].append(partition.fetch_offset)
        assert set(asked) == {0}, "1 is paused, 2 has no position"
        assert asked[0] == sorted(set(asked[0]))
        assert len(asked[0]) <= 2, "more is buffered than one response may return"


@simulated
async def test_a_fetch_may_wait_at_the_broker_for_longer_than_the_request_timeout() -> None:
    """A wait that the request allows does not count as silence of the broker."""
    cluster, broker, options = await started_for_consumer()

    async def slow(request: FetchRequest) -> FetchResponse:
        await trio.sleep(request.max_wait_ms / 1000)
        return broker.fetch_now(request)[0]

    broker.script(FetchRequest, *[slow] * 10)
    async with triokafka.Consumer(**options, request_timeout_ms=1_000, fetch_max_wait_ms=5_000) as consumer:
        consumer.assign([T0])
        assert await consumer.poll(timeout_ms=2_000) == {}
        connections = broker.connection_count
        assert await consumer.poll(timeout_ms=10_000) == {}
        assert not consumer.health().troubles
        cluster.write("t", 0, [b"0"])
        assert await values(consumer, 1) == [b"0"]
        assert broker.connection_count == connections


async def test_async_for_uses_the_anext_of_a_subclass() -> None:
    class Renamed(triokafka.Consumer):
        async def __anext__(self) -> triokafka.ConsumerRecord:
            raise StopAsyncIteration

    consumer = Renamed(bootstrap_servers="localhost:1")
    assert [record async for record in consumer] == []
