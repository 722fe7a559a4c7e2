"""Closing a consumer whose cluster is dead, silent or unreachable takes no longer than its time limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio

import triokafka
from tests.support.scripted_broker import SILENCE
from tests.support.scripted_group import GroupBroker, GroupCluster
from tests.support.scripted_reading import ReadableBroker, ReadableCluster
from tests.support.simulated import current_simulation, simulated
from triokafka.errors import FencedInstanceIdError
from triokafka.protocol.api.fetch import FetchRequest
from triokafka.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from triokafka.protocol.api.join_group import JoinGroupRequest
from triokafka.protocol.api.leave_group import LeaveGroupRequest
from triokafka.protocol.api.offset_commit import OffsetCommitRequest
from triokafka.structs import TopicPartition
from triokafka.testing import running_broker
from triokafka.testing.simulated_world import SimulatedWorld

T0 = TopicPartition("t", 0)
SECONDS = 12
"""For closing."""


class RecordingListener(triokafka.ConsumerRebalanceListener):
    def __init__(self) -> None:
        self.calls: list[tuple[str, list[TopicPartition]]] = []

    def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
        self.calls.append(("assigned", list(assigned)))

    def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> None:
        self.calls.append(("revoked", list(revoked)))

    def on_partitions_lost(self, lost: Sequence[TopicPartition]) -> None:
        self.calls.append(("lost", list(lost)))


async def started(protocol: str, **more: Any) -> tuple[ReadableCluster, ReadableBroker, dict[str, Any]]:
    simulation = current_simulation()
    cluster = GroupCluster(t=1) if protocol == "consumer" else ReadableCluster(t=1)
    address = await cluster.start(simulation.nursery, simulation.host("broker").world)
    cluster.write("t", 0, [b"0", b"1", b"2"])
    broker = cluster.brokers[1]
    assert isinstance(broker, ReadableBroker | GroupBroker)
    options = {
        "bootstrap_servers": address,
        "world": simulation.host("client").world,
        "auto_offset_reset": "earliest",
        "group_id": "g",
        "close_timeout_ms": SECONDS * 1000,
        **({"group_protocol": "consumer"} if protocol == "consumer" else {}),
        **more,
    }
    return cluster, broker, options


@pytest.mark.parametrize("ending", ["normally", "by an error", "cancelled"])
@pytest.mark.parametrize("how", ["dead", "silent"])
@pytest.mark.parametrize("protocol", ["classic", "consumer", "by hand"])
@simulated
async def test_a_consumer_of_a_dead_cluster_is_left_in_time(protocol: str, how: str, ending: str) -> None:
    _, broker, options = await started(protocol)
    listener = RecordingListener()
    before = trio.current_time()
    try:
        with trio.CancelScope() as scope:
            async with triokafka.Consumer(**options) as consumer:
                if protocol == "by hand":
                    consumer.assign([T0])
                else:
                    consumer.subscribe(["t"], listener=listener)
                for _ in range(2):
                    await anext(consumer)
                if how == "dead":
                    broker.stop()
                else:
                    broker._behave = lambda request, header: SILENCE  # type: ignore[method-assign]
                await trio.sleep(3)
                before = trio.current_time()
                if ending == "by an error":
                    raise LookupError
                if ending == "cancelled":
                    scope.cancel()
                    await trio.sleep_forever()
    except LookupError:
        assert ending == "by an error"
    assert trio.current_time() - before <= SECONDS + 0.01
    if protocol != "by hand":
        assert [event for event, partitions in listener.calls if partitions] == ["assigned", "revoked"]


@pytest.mark.parametrize("protocol", ["classic", "consumer", "by hand"])
@simulated
async def test_a_hanging_fetch_does_not_delay_closing(protocol: str) -> None:
    cluster, broker, options = await started(protocol)
    broker.script(FetchRequest, *[SILENCE] * 10)
    async with triokafka.Consumer(**options) as consumer:
        if protocol == "by hand":
            consumer.assign([T0])
        else:
            consumer.subscribe(["t"])
        await consumer.poll(timeout_ms=5_000)
        assert consumer.assignment() == {T0}
        before = trio.current_time()
    assert trio.current_time() - before < 1
    assert not cluster.commits or cluster.committed[T0] == 0


@simulated
async def test_a_consumer_closed_while_it_joins_leaves_the_group_with_its_assigned_member_id() -> None:
    """Otherwise its group would wait for it until the session timeout."""
    _, broker, options = await started("classic")
    broker.script(JoinGroupRequest, broker.join_group, SILENCE)
    async with triokafka.Consumer("t", **options) as consumer:
        await consumer.poll(timeout_ms=2_000)
        assert len(broker.seen(JoinGroupRequest)) == 2
        before = trio.current_time()
    assert trio.current_time() - before < 1
    [leave] = broker.seen(LeaveGroupRequest)
    assert [member.member_id for member in leave.members] == ["member-1"]


@simulated
async def test_a_group_does_not_wait_for_a_member_that_was_closed_while_it_joined() -> None:
    """The coordinator holds its join, and does not read the following requests on that connection."""
    simulation = current_simulation()

    async def process(world: SimulatedWorld) -> None:
        async with running_broker(
            world=world, listeners="PLAINTEXT://broker:9092", num_partitions=4, group_initial_rebalance_delay_ms=0
        ):
            await trio.sleep_forever()

    simulation.host("broker").start(process)

    def member(host: str) -> triokafka.Consumer:
        world = simulation.host(host).world
        return triokafka.Consumer(
            "t", bootstrap_servers="broker:9092", world=world, group_id="g", partition_assignment_strategy=["range"]
        )

    async with triokafka.Producer(bootstrap_servers="broker:9092", world=simulation.host("p").world) as producer:
        await producer.partitions_for("t")
    async with member("a") as a:
        with trio.fail_after(60):
            while len(a.assignment()) < 4:
                await a.poll(timeout_ms=1_000)
        async with member("b") as b:
            await b.poll(timeout_ms=5_000)  # a does not poll, so that b has to wait
            before = trio.current_time()
        assert trio.current_time() - before < 1
        with trio.fail_after(10):
            while a.health().generation < 2 or len(a.assignment()) < 4:
                await a.poll(timeout_ms=1_000)


@simulated
async def test_retained_partitions_are_committed_while_the_join_is_held() -> None:
    """The group waits for its slowest member; the others continue to read."""
    cluster, broker, options = await started(
        "classic", partition_assignment_strategy=["cooperative-sticky"], enable_auto_commit=False
    )
    async with triokafka.Consumer("t", **options, heartbeat_interval_ms=1_000) as consumer:
        assert (await anext(consumer)).value == b"0"
        answer = trio.Event()

        async def held(request: Any) -> Any:
            await answer.wait()
            return broker.join_group(request)

        broker.script(JoinGroupRequest, held)
        broker.script(HeartbeatRequest, HeartbeatResponse(error_code=27))
        while len(broker.seen(JoinGroupRequest)) < 3:
            await consumer.poll(timeout_ms=100, max_records=1)
        cluster.write("t", 0, [b"3", b"4"])
        before = trio.current_time()
        while (position := await consumer.position(T0)) < 5:
            await consumer.poll(timeout_ms=1_000, max_records=1)
        await consumer.commit()
        assert (await consumer.committed(T0)) == triokafka.OffsetAndMetadata(position)
        assert trio.current_time() - before < 1
        answer.set()
        await consumer.poll(timeout_ms=1_000)
        assert consumer.assignment() == {T0}


@simulated
async def test_instance_fenced_during_poll_raises_and_commits_nothing_more() -> None:
    """Its partitions are lost, and it does not send a leave request either."""
    cluster, broker, options = await started("classic", group_instance_id="seat", auto_commit_interval_ms=500)
    listener = RecordingListener()
    async with triokafka.Consumer(**options, heartbeat_interval_ms=1_000) as consumer:
        consumer.subscribe(["t"], listener=listener)
        assert (await anext(consumer)).value == b"0"
        assert (await anext(consumer)).value == b"1"
        await trio.sleep(2)
        assert cluster.committed == {T0: 1}
        broker.script(HeartbeatRequest, HeartbeatResponse(error_code=82))
        commits = len(broker.seen(OffsetCommitRequest))
        for _ in range(3):
            with pytest.raises(FencedInstanceIdError):
                while True:
                    await consumer.poll(timeout_ms=5_000, max_records=1)
        await trio.sleep(5)
    assert all(request.generation_id_or_member_epoch >= 0 for request in broker.seen(OffsetCommitRequest)[commits:])
    assert len(broker.seen(JoinGroupRequest)) <= 2
    assert not broker.seen(LeaveGroupRequest)
    assert [event for event, partitions in listener.calls if partitions] == ["assigned", "lost"]
    assert cluster.committed[T0] <= 3
