"""When rebalance listeners are called, and what they may do, with and without a group."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
import trio

import triokafka
from tests.support.cancellation import cancelled_at_each_checkpoint
from tests.support.scripted_reading import ReadableBroker, ReadableCluster, client_of
from tests.support.simulated import simulated
from triokafka.errors import IllegalStateError, LogTruncationError, NoOffsetForPartitionError
from triokafka.structs import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
U0 = TopicPartition("u", 0)


async def started(**topics: int) -> tuple[ReadableCluster, ReadableBroker, dict[str, Any]]:
    cluster = ReadableCluster(**topics)
    options = await client_of(cluster, auto_offset_reset="earliest", metadata_max_age_ms=1_000)
    broker = cluster.brokers[1]
    assert isinstance(broker, ReadableBroker)
    return cluster, broker, options


class SlowListener(triokafka.ConsumerRebalanceListener):
    """Records each call at its end, after ``seconds``."""

    def __init__(self, seconds: float = 0) -> None:
        self.seconds = seconds
        self.calls: list[tuple[str, list[TopicPartition]]] = []

    async def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
        await trio.sleep(self.seconds)
        self.calls.append(("assigned", sorted(assigned)))

    async def on_partitions_revoked(self, revoked: Sequence[TopicPartition]) -> None:
        await trio.sleep(self.seconds)
        self.calls.append(("revoked", sorted(revoked)))


@simulated
async def test_listener_without_a_group_is_called_for_every_change() -> None:
    cluster, _, options = await started(t=1, u=1)
    listener = SlowListener()
    async with triokafka.Consumer(**options) as consumer:
        consumer.subscribe(["t", "u"], listener=listener)
        await consumer.poll(timeout_ms=1_000)
        cluster.topics["t"] = 2
        await consumer.poll(timeout_ms=3_000)
        del cluster.topics["u"]
        await consumer.poll(timeout_ms=3_000)
        assert listener.calls == [("assigned", [T0, U0]), ("assigned", [T1]), ("revoked", [U0])]
        consumer.unsubscribe()
        consumer.assign([U0])
        await consumer.poll(timeout_ms=100)
        assert listener.calls[3:] == [("revoked", [T0, T1])]
        consumer.unsubscribe()
        consumer.subscribe(["t"], listener=listener)
        await consumer.poll(timeout_ms=1_000)
    assert listener.calls[4:] == [("assigned", [T0, T1]), ("revoked", [T0, T1])]


@simulated
async def test_without_a_group_a_cancelled_listener_is_called_again() -> None:
    cluster, _, options = await started(t=2)
    cluster.write("t", 0, [b"0"])
    listener = SlowListener(seconds=2)
    async with triokafka.Consumer(**options) as consumer:
        consumer.subscribe(["t"], listener=listener)
        for _ in range(3):
            with trio.move_on_after(1):
                await consumer.poll(timeout_ms=60_000)
        assert consumer.assignment() == {T0, T1}
        assert listener.calls == []
        assert [record.value for record in (await consumer.poll(timeout_ms=60_000))[T0]] == [b"0"]
        assert listener.calls == [("assigned", [T0, T1])]
        cluster.topics["t"] = 1
        for _ in range(5):
            with trio.move_on_after(1):
                await consumer.poll(timeout_ms=60_000)
        assert listener.calls == [("assigned", [T0, T1])]
        assert consumer.assignment() == {T0, T1}, "a revoked partition stays until the listener returns"
        await consumer.poll(timeout_ms=3_000)
        assert listener.calls[1:] == [("revoked", [T1])]
        assert consumer.assignment() == {T0}


@pytest.mark.parametrize("group", [None, "g"])
@pytest.mark.parametrize("when", ["on_partitions_assigned", "on_partitions_revoked"])
@simulated
async def test_a_listener_may_end_its_own_subscription(group: str | None, when: str) -> None:
    """Nothing is assigned afterwards, and another subscription starts over."""
    cluster, _, options = await started(t=1, u=1)
    cluster.write("t", 0, [b"0"])
    calls: list[str] = []
    gone: list[TopicPartition] = []

    class Leaving(triokafka.ConsumerRebalanceListener):
        def on_partitions_assigned(self, assigned: Any) -> None:
            calls.append("on_partitions_assigned")
            if when == calls[-1]:
                consumer.unsubscribe()

        def on_partitions_revoked(self, revoked: Any) -> None:
            gone.extend(revoked)
            if revoked:
                calls.append("on_partitions_revoked")
                if when == calls[-1]:
                    consumer.unsubscribe()

    async with triokafka.Consumer(**options, group_id=group) as consumer:
        consumer.subscribe(["t", "u"], listener=Leaving())
        with suppress(IllegalStateError):  # nothing is left to read
            await consumer.poll(timeout_ms=3_000)
        del cluster.topics["u"]
        for _ in range(3):
            with suppress(IllegalStateError):
                await consumer.poll(timeout_ms=3_000)
        assert not consumer.assignment()
        assert not consumer.subscription()
        assert calls[-1] == "on_partitions_revoked"
        assert sorted(gone) == [T0, U0], "each partition was revoked once"
        listener = SlowListener()
        consumer.subscribe(["t"], listener=listener)
        with trio.fail_after(60):
            while not consumer.assignment():
                await consumer.poll(timeout_ms=1_000)
        assert ("assigned", [T0]) in listener.calls


@pytest.mark.parametrize("group", [None, "g"])
@simulated
async def test_failing_listener_without_a_group_is_logged(group: str | None, caplog: pytest.LogCaptureFixture) -> None:
    cluster, _, options = await started(t=1)
    cluster.write("t", 0, [b"0"])

    class OngoingFailure(triokafka.ConsumerRebalanceListener):
        async def on_partitions_assigned(self, assigned: Any) -> None:
            async with trio.open_nursery():
                raise LookupError("no database")

        def on_partitions_revoked(self, revoked: Any) -> None:
            raise trio.TooSlowError

    async with triokafka.Consumer(**options, group_id=group) as consumer:
        consumer.subscribe(["t"], listener=OngoingFailure())
        with trio.fail_after(30):
            assert (await anext(consumer)).value == b"0"
    assert "on_partitions_assigned of the rebalance listener failed for ['t-0']" in caplog.text
    assert "on_partitions_revoked of the rebalance listener failed for ['t-0']" in caplog.text


@pytest.mark.parametrize("group", [None, "g"])
@simulated
async def test_a_listener_may_seek_after_a_slow_database_query(group: str | None) -> None:
    """Until it returns, a missing position is not an error, even when the listener is cancelled and called again."""
    cluster, _, options = await started(t=2)
    for number in (0, 1):
        cluster.write("t", number, [b"0", b"1", b"2"])

    class FromDatabase(triokafka.ConsumerRebalanceListener):
        async def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
            await trio.sleep(2)
            for partition in assigned:
                consumer.seek(partition, 1 + partition.partition)

    async with triokafka.Consumer(**{**options, "auto_offset_reset": "none"}, group_id=group) as consumer:
        consumer.subscribe(["t"], listener=FromDatabase())
        for _ in range(3):
            with trio.move_on_after(1):
                await consumer.poll(timeout_ms=60_000)
        with trio.fail_after(60):
            found = {(record.partition, record.offset) for record in [await anext(consumer) for _ in range(3)]}
        assert found == {(0, 1), (0, 2), (1, 2)}


@simulated
async def test_a_missing_position_is_raised_when_the_listener_does_not_seek() -> None:
    _, _, options = await started(t=1)
    asked: list[type[Exception]] = []

    class Asking(triokafka.ConsumerRebalanceListener):
        async def on_partitions_assigned(self, assigned: Sequence[TopicPartition]) -> None:
            try:
                await consumer.position(T0)
            except NoOffsetForPartitionError as error:
                asked.append(type(error))

    async with triokafka.Consumer(**{**options, "auto_offset_reset": "none"}, group_id="g") as consumer:
        consumer.subscribe(["t"], listener=Asking())
        for _ in range(2):
            with pytest.raises(NoOffsetForPartitionError):
                await consumer.poll(timeout_ms=30_000)
    assert asked == [NoOffsetForPartitionError]


@simulated
async def test_an_error_about_positions_before_a_seek_is_ignored() -> None:
    cluster, _, options = await started(t=1)
    cluster.write("t", 0, [b"0", b"1", b"2"])
    async with triokafka.Consumer(**{**options, "auto_offset_reset": "none"}) as consumer:
        consumer.assign([T0])
        await trio.sleep(5)
        consumer.seek(T0, 1)
        assert (await anext(consumer)).value == b"1"
        await anext(consumer)
        cluster.epoch_ends[T0, 0] = (0, 1)
        cluster.move("t", 0, 1)
        await trio.sleep(5)
        consumer.seek(T0, 0)
        assert (await anext(consumer)).value == b"0"
        await anext(consumer)
        cluster.move("t", 0, 1)
        await trio.sleep(5)
        with pytest.raises(LogTruncationError):
            await consumer.poll(timeout_ms=60_000)


@pytest.mark.parametrize("group", [None, "g"])
@simulated
async def test_polls_cancelled_anywhere_call_the_listener_for_every_change_in_order(group: str | None) -> None:
    _, _, options = await started(t=1, u=1)
    listener = SlowListener(seconds=0.01)
    async with triokafka.Consumer(**options, group_id=group) as consumer:
        consumer.subscribe(["t", "u"], listener=listener)

        async def until_called() -> None:
            while len(consumer.assignment()) != 2 or consumer.engine._rebalancer.has_calls:
                await consumer.poll(timeout_ms=10)

        async def nothing() -> None:
            return

        await cancelled_at_each_checkpoint(until_called, nothing, limit=2_000)
        assert [call for call in listener.calls if call[1]] == [("assigned", [T0, U0])]
        consumer.unsubscribe()
        with pytest.raises(IllegalStateError):
            await consumer.poll(timeout_ms=100)
        assert [call for call in listener.calls if call[1]] == [("assigned", [T0, U0]), ("revoked", [T0, U0])]
