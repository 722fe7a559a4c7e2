"""Every public call, cancelled at its 1st, 2nd … nth checkpoint: the consumer continues as if it had not been made."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

import triokafka
from tests.support.cancellation import cancelled_at_each_checkpoint
from tests.support.scripted_reading import ReadableBroker, ReadableCluster, started_for_consumer
from tests.support.simulated import simulated
from triokafka.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from triokafka.protocol.api.leave_group import LeaveGroupRequest
from triokafka.structs import TopicPartition

T0 = TopicPartition("t", 0)
CALLS: dict[str, Callable[[triokafka.Consumer], Awaitable[object]]] = {
    "position": lambda consumer: consumer.position(T0),
    "commit": lambda consumer: consumer.commit(),
    "commit of an offset": lambda consumer: consumer.commit({T0: 2}),
    "committed": lambda consumer: consumer.committed(T0),
    "committed of several": lambda consumer: consumer.committed([T0]),
    "beginning_offsets": lambda consumer: consumer.beginning_offsets([T0]),
    "end_offsets": lambda consumer: consumer.end_offsets([T0]),
    "offsets_for_times": lambda consumer: consumer.offsets_for_times({T0: 1_002}),
    "partitions_for_topic": lambda consumer: consumer.partitions_for_topic("t"),
    "topics": lambda consumer: consumer.topics(),
}


async def started(records: int = 0) -> tuple[ReadableCluster, ReadableBroker, dict[str, Any]]:
    cluster, broker, options = await started_for_consumer()
    if records:
        cluster.write("t", 0, [b"%d" % number for number in range(records)])
    return cluster, broker, options


async def one_record(consumer: triokafka.Consumer) -> list[bytes]:
    return [(await anext(consumer)).value]


async def polled(consumer: triokafka.Consumer) -> list[bytes]:
    found: list[bytes] = []
    while not found:
        found = [r.value for r in (await consumer.poll(timeout_ms=1_000, max_records=1)).get(T0, [])]
    return found


async def polled_arrow(consumer: triokafka.Consumer) -> list[bytes]:
    found: list[bytes] = []
    while not found:
        found = (await consumer.poll_arrow(timeout_ms=1_000, max_records=1)).column("value").to_pylist()
    return found


async def batch(consumer: triokafka.Consumer) -> list[bytes]:
    values: list[bytes] = (await anext(consumer.batches())).values()
    return values


@pytest.mark.parametrize("take", [one_record, polled, polled_arrow, batch])
@simulated
async def test_taking_records_cancelled_anywhere_loses_none_and_repeats_none(
    take: Callable[[triokafka.Consumer], Awaitable[list[bytes]]],
) -> None:
    cluster, _, options = await started()
    got: list[bytes] = []
    written = 0
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0])

        async def operation() -> None:
            nonlocal written
            cluster.write("t", 0, [b"%d" % written])
            written += 1
            got.extend(await take(consumer))

        async def check() -> None:
            with trio.fail_after(30):
                while len(got) < written:
                    got.extend(await take(consumer))
            assert got == [b"%d" % number for number in range(written)]
            assert consumer.health().healthy

        for _ in range(3):
            await cancelled_at_each_checkpoint(operation, check)
        await check()


@pytest.mark.parametrize("name", CALLS)
@simulated
async def test_lookups_and_commits_cancelled_anywhere_leave_the_consumer_unchanged(name: str) -> None:
    call = CALLS[name]
    cluster, _, options = await started(5)
    async with triokafka.Consumer("t", **options, group_id="g", enable_auto_commit=False) as consumer:
        got = await one_record(consumer)

        async def check() -> None:
            with trio.fail_after(10):
                assert await consumer.position(T0) == len(got)
                await call(consumer)
            assert consumer.health().healthy

        await cancelled_at_each_checkpoint(lambda: call(consumer), check)
        for _ in range(4):
            got += await one_record(consumer)
        assert got == [b"%d" % number for number in range(5)]
        await consumer.commit()
        assert cluster.committed == {T0: 5}


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@simulated
async def test_poll_cancelled_anywhere_in_a_rebalance_calls_the_listener_for_every_change(strategy: str) -> None:
    cluster, broker, options = await started()
    held: set[TopicPartition] = set()
    got: list[bytes] = []
    written = 0

    class Listener(triokafka.ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            await trio.sleep(0.1)
            held.difference_update(revoked)

        async def on_partitions_assigned(self, assigned: Any) -> None:
            await trio.sleep(0.1)
            held.update(assigned)

    async with triokafka.Consumer(
        **options, group_id="g", auto_commit_interval_ms=100_000, partition_assignment_strategy=[strategy]
    ) as consumer:
        consumer.subscribe("t", listener=Listener())
        await consumer.poll(timeout_ms=3_000)

        async def operation() -> None:
            nonlocal written
            cluster.write("t", 0, [b"%d" % written])
            written += 1
            broker.script(HeartbeatRequest, HeartbeatResponse(error_code=27))
            await trio.sleep(4)
            got.extend(await polled(consumer))

        async def check() -> None:
            with trio.fail_after(60):
                while len(got) < written:
                    got.extend(await polled(consumer))
            assert got == [b"%d" % number for number in range(written)]
            assert held == set(consumer.assignment()) == {T0}

        await cancelled_at_each_checkpoint(operation, check)
        await check()


@simulated
async def test_closing_cancelled_anywhere_still_commits_and_leaves() -> None:
    cluster, broker, options = await started(3)
    left = 0

    async def live() -> None:
        async with triokafka.Consumer("t", **options, group_id="g") as consumer:
            with trio.CancelScope(shield=True):
                await one_record(consumer)
                await one_record(consumer)
            await trio.lowlevel.checkpoint()

    async def check() -> None:
        nonlocal left
        left += 1
        await trio.sleep(0.1)
        assert len(broker.seen(LeaveGroupRequest)) == left
        assert cluster.committed[T0] in (1, 2)
        cluster.committed.clear()

    await cancelled_at_each_checkpoint(live, check)
    assert left > 3
