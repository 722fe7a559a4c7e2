"""The leader's assignment: its strategy, and its thread, for which a closing consumer does not wait."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection
from typing import Any

import pytest
import trio

import triokafka
from tests.support.scripted_reading import ReadableBroker, ReadableCluster
from triokafka.assignors import Assignment, PartitionAssignor, RangeAssignor
from triokafka.errors import KafkaError, KafkaTimeoutError
from triokafka.protocol.api.leave_group import LeaveGroupRequest
from triokafka.protocol.api.sync_group import SyncGroupRequest
from triokafka.world.system import RealWorld

MANY = 1_000
"""Number of partitions from which on a thread computes the assignment."""


class StuckAssignor(RangeAssignor):
    """Assigns once the test releases it."""

    name = "stuck"

    def __init__(self) -> None:
        self.began = threading.Event()
        self.goes_on = threading.Event()
        self.ended = threading.Event()

    def assign(self, *args: Any) -> dict[str, Assignment]:
        self.began.set()
        self.goes_on.wait(60)
        assigned = super().assign(*args)
        self.ended.set()
        return assigned


async def _until_assigning(consumer: triokafka.Consumer, assignor: StuckAssignor) -> None:
    with trio.fail_after(30):
        while not assignor.began.is_set():
            await consumer.poll(timeout_ms=1)


@pytest.mark.parametrize("how", ["left", "cancelled", "left by an error"])
async def test_a_consumer_is_left_while_its_leader_assigns_in_a_thread_that_does_not_end(how: str) -> None:
    """It leaves its group meanwhile."""
    cluster = ReadableCluster(t=MANY)
    assignor = StuckAssignor()
    world = RealWorld()
    async with trio.open_nursery() as nursery:
        address = await cluster.start(nursery, world)
        broker = cluster.brokers[1]
        assert isinstance(broker, ReadableBroker)
        try:
            # If the consumer waited for the thread, closing would take a minute, or never end.
            with trio.fail_after(30), trio.CancelScope() as scope:
                async with triokafka.Consumer(
                    "t", bootstrap_servers=address, group_id="g", partition_assignment_strategy=[assignor]
                ) as consumer:
                    await _until_assigning(consumer, assignor)
                    if how == "cancelled":
                        scope.cancel()
                        await trio.sleep_forever()
                    elif how == "left by an error":
                        raise LookupError("the program's own")
        except LookupError:
            assert how == "left by an error"
        assert scope.cancelled_caught == (how == "cancelled")
        assert not assignor.ended.is_set()
        assert len(broker.seen(LeaveGroupRequest)) == 1
        assert not broker.seen(SyncGroupRequest)
        # Its assignment is ignored.
        assignor.goes_on.set()
        assert await trio.to_thread.run_sync(assignor.ended.wait, 30)
        nursery.cancel_scope.cancel()


async def test_new_subscription_is_joined_after_the_assignor_thread_ends() -> None:
    """The assignor is not used from two threads at once."""
    cluster = ReadableCluster(t=MANY)
    calls: list[str] = []

    class Watched(StuckAssignor):
        def user_data(self, topics: Collection[str]) -> bytes | None:
            calls.append("asked before the end" if self.began.is_set() and not self.ended.is_set() else "asked")
            return None

    assignor = Watched()
    async with trio.open_nursery() as nursery:
        address = await cluster.start(nursery, RealWorld())
        with trio.fail_after(60):
            async with triokafka.Consumer(
                "t", bootstrap_servers=address, group_id="g", partition_assignment_strategy=[assignor]
            ) as consumer:
                await _until_assigning(consumer, assignor)
                consumer.unsubscribe()
                consumer.subscribe("t")
                await consumer.poll(timeout_ms=200)
                assert not consumer.assignment()
                assignor.goes_on.set()
                while not consumer.assignment():
                    await consumer.poll(timeout_ms=20)
                assert len(consumer.assignment()) == MANY
        nursery.cancel_scope.cancel()
    assert set(calls) == {"asked"}


async def test_assignor_that_does_not_return_is_reported() -> None:
    """A caller that waits for records gets an error instead of waiting silently."""
    cluster = ReadableCluster(t=MANY)
    assignor = StuckAssignor()
    async with trio.open_nursery() as nursery:
        address = await cluster.start(nursery, RealWorld())
        options: dict[str, Any] = {
            "bootstrap_servers": address,
            "group_id": "g",
            "partition_assignment_strategy": [assignor],
        }
        with trio.fail_after(60):
            async with triokafka.Consumer("t", **options, default_api_timeout_ms=200) as consumer:
                await _until_assigning(consumer, assignor)
                for _ in range(2):
                    with pytest.raises(KafkaTimeoutError, match=r"assigning the partitions of group 'g'.*'stuck'"):
                        await consumer.poll(timeout_ms=60_000)
                consumer.unsubscribe()
                assert not any("assigning" in problem for problem in consumer.health().troubles)
                consumer.subscribe("t")
                with pytest.raises(KafkaTimeoutError, match=r"assigning the partitions of group 'g'.*'stuck'"):
                    await consumer.poll(timeout_ms=60_000)
                assignor.goes_on.set()
                while not consumer.assignment():
                    with contextlib.suppress(KafkaTimeoutError):  # the thread may take its time to return
                        await consumer.poll(timeout_ms=20)
                assert not any("assigning" in problem for problem in consumer.health().troubles)
        nursery.cancel_scope.cancel()


async def test_error_of_an_assignor_in_a_thread_reaches_the_caller() -> None:

    class OngoingFailure(PartitionAssignor):
        name = "failing"

        def assign(self, *args: Any) -> dict[str, Assignment]:
            raise LookupError("no such rule")

    cluster = ReadableCluster(t=MANY)
    async with trio.open_nursery() as nursery:
        address = await cluster.start(nursery, RealWorld())
        with trio.fail_after(30):
            async with triokafka.Consumer(
                "t", bootstrap_servers=address, group_id="g", partition_assignment_strategy=[OngoingFailure()]
            ) as consumer:
                with pytest.raises(KafkaError, match="no such rule"):
                    while True:
                        await consumer.poll(timeout_ms=1_000)
        nursery.cancel_scope.cancel()
