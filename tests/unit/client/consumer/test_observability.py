"""A consumer's hooks, health and metrics, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import triokafka
from tests.support.scripted_broker import CLOSE
from tests.support.scripted_group import GroupBroker, GroupCluster
from tests.support.scripted_reading import ReadableBroker, ReadableCluster, client_of
from tests.support.simulated import current_simulation, simulated
from triokafka.errors import RebalanceInProgressError
from triokafka.protocol.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from triokafka.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from triokafka.structs import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
GROUP_EVENTS = ("on_rebalance_started", "on_partitions_revoked", "on_partitions_lost", "on_partitions_assigned")


class Watcher(triokafka.Hooks):
    """Records its calls, by event."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        for name in (*GROUP_EVENTS, "on_fetch", "on_heartbeat", "on_heartbeat_late", "on_commit"):
            setattr(self, name, lambda *args, name=name: self.events.append((name, *args)))

    def of(self, *names: str) -> list[tuple[Any, ...]]:
        return [event for event in self.events if event[0] in names]


async def started(cluster: ReadableCluster) -> tuple[Any, dict[str, Any]]:
    options = await client_of(cluster, auto_offset_reset="earliest")
    return cluster.brokers[1], options


async def take(consumer: triokafka.Consumer, count: int) -> None:
    with trio.fail_after(60):
        for _ in range(count):
            await anext(consumer)


@simulated
async def test_hooks_receive_rebalances_heartbeats_fetches_and_commits() -> None:
    cluster = ReadableCluster(t=1)
    broker, options = await started(cluster)
    assert isinstance(broker, ReadableBroker)
    cluster.write("t", 0, [b"0", b"1", b"2"])
    watcher = Watcher()

    class Listener(triokafka.ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            await trio.sleep(2 if revoked else 0)

    async with triokafka.Consumer(**options, group_id="g", hooks=watcher) as consumer:
        consumer.subscribe("t", listener=Listener())
        await take(consumer, 3)
        assert [event[:3] for event in watcher.of(*GROUP_EVENTS)] == [
            ("on_rebalance_started", "g", "first join"),
            ("on_partitions_assigned", "g", (T0,)),
        ]
        await consumer.poll(timeout_ms=4_000)
        assert all(error is None and 0 <= seconds < 1 for _, _, seconds, error in watcher.of("on_heartbeat"))
        watcher.events.clear()
        broker.script(HeartbeatRequest, HeartbeatResponse(error_code=RebalanceInProgressError.code))
        await consumer.poll(timeout_ms=10_000)
        started_, revoked, assigned = watcher.of(*GROUP_EVENTS)
        assert started_[0] == "on_rebalance_started" and "rebalanc" in started_[2]
        assert revoked[:3] == ("on_partitions_revoked", "g", (T0,)) and revoked[3] == pytest.approx(2, abs=0.1)
        assert assigned[:3] == ("on_partitions_assigned", "g", (T0,)) and assigned[3] == pytest.approx(2, abs=0.1)
        assert any(isinstance(event[3], RebalanceInProgressError) for event in watcher.of("on_heartbeat"))
        (_, group, offsets, _, error) = watcher.of("on_commit")[0]
        assert (group, offsets[T0].offset, error) == ("g", 3, None)
        metrics = consumer.metrics()
        assert metrics["rebalance_latency_last"] == metrics["rebalance_latency_max"] == assigned[3]
        assert metrics["rebalance_latency_total"] >= assigned[3]
        watcher.events.clear()
        cluster.write("t", 0, [b"3"])
        await take(consumer, 1)
        brought = [event for event in watcher.of("on_fetch") if event[3]]
        assert [(node.node_id, partitions) for _, node, partitions, _, _ in brought] == [(1, 1)]
    assert [event[2] for event in watcher.of(*GROUP_EVENTS)] == [(T0,)]  # closing revokes, too


@simulated
async def test_hooks_receive_revoked_and_lost_partitions_under_the_consumer_protocol() -> None:
    cluster = GroupCluster(t=2)
    broker, options = await started(cluster)
    assert isinstance(broker, GroupBroker)
    watcher = Watcher()
    async with triokafka.Consumer("t", **options, group_id="g", group_protocol="consumer", hooks=watcher) as consumer:
        await consumer.poll(timeout_ms=3_000)
        cluster.assign(T1)
        await consumer.poll(timeout_ms=3_000)
        broker.script(ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse(error_code=110))
        await consumer.poll(timeout_ms=3_000)
        events = [(event[0], event[2]) for event in watcher.of(*GROUP_EVENTS)]
        assert events == [
            ("on_rebalance_started", "joining"),
            ("on_partitions_assigned", (T0, T1)),
            ("on_rebalance_started", "partitions are to be given up"),
            ("on_partitions_revoked", (T0,)),
            ("on_partitions_assigned", ()),
            ("on_partitions_lost", (T1,)),
            ("on_rebalance_started", "joining"),
            ("on_partitions_assigned", (T1,)),
        ]
        assert consumer.metrics()["lost_partitions_total"] == 1


@simulated
async def test_hooks_receive_late_heartbeats_of_a_blocked_loop() -> None:
    cluster = ReadableCluster(t=1)
    _, options = await started(cluster)
    watcher = Watcher()
    async with triokafka.Consumer("t", **options, group_id="g", hooks=watcher) as consumer:
        await consumer.poll(timeout_ms=4_000)
        clock = trio.lowlevel.current_clock()
        clock.jump(20)  # type: ignore[attr-defined]
        await consumer.poll(timeout_ms=1_000)
        [(_, group, seconds)] = watcher.of("on_heartbeat_late")
        assert group == "g" and 16 < seconds <= 20


@simulated
async def test_hooks_receive_failed_heartbeats_with_their_error() -> None:
    cluster = ReadableCluster(t=1)
    broker, options = await started(cluster)
    watcher = Watcher()
    async with triokafka.Consumer("t", **options, group_id="g", hooks=watcher) as consumer:
        await consumer.poll(timeout_ms=2_000)
        broker.script(HeartbeatRequest, CLOSE)
        await consumer.poll(timeout_ms=5_000)
        assert [event[3] is None for event in watcher.of("on_heartbeat")].count(False) == 1


@simulated
async def test_health_and_metrics_show_lag_lead_and_ages() -> None:
    cluster = ReadableCluster(t=2)
    _, options = await started(cluster)
    cluster.write("t", 0, [b"%d" % number for number in range(10)])
    cluster.starts[T0] = 2
    async with triokafka.Consumer("t", **options, group_id="g", max_poll_records=3) as consumer:
        before = consumer.health()
        assert before.last_fetch_age is before.last_heartbeat_age is before.assignment_age is None
        assert consumer.metrics()["records_lead_min"] == -1
        await take(consumer, 3)
        health = consumer.health()
        one = health.partitions[T0]
        assert (one.position, one.high_watermark, one.log_start_offset) == (5, 10, 2)
        assert (one.lag, one.lead) == (5, 3)
        await trio.sleep(4)
        await consumer.poll()
        metrics = consumer.metrics()
        assert 0 <= metrics["last_heartbeat_seconds_ago"] <= 3
        assert 0 <= metrics["last_fetch_seconds_ago"] <= 1
        assert metrics["last_poll_seconds_ago"] == 0
        assert metrics["assignment_age_seconds"] > 0
        assert metrics["records_lag_max"] == metrics["records_lag"]
        assert metrics["records_lead_min"] == 0  # nothing was written to the other partition
        assert metrics["troubles"] == 0


@simulated
async def test_health_gives_the_reason_for_unreachable_brokers_until_one_responds() -> None:
    broker, options = await started(ReadableCluster(t=1))
    port = broker.stop()
    async with triokafka.Consumer("t", **options) as consumer:
        assert await consumer.poll(timeout_ms=2_000) == {}
        health = consumer.health()
        assert health.metadata_age is None and not health.healthy
        assert "could not connect to bootstrap server" in health.troubles[0]
        await broker.start(current_simulation().nursery, port)
        await consumer.poll(timeout_ms=5_000)
        health = consumer.health()
        assert health.healthy, health.troubles
        assert health.metadata_age is not None and health.metadata_age < 5
