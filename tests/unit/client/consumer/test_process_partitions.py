"""Parallel handling of partitions: order, commits without gaps, rebalances, failures, cancellation."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import triokafka
from tests.support.scripted_group import GroupBroker, GroupCluster
from tests.support.scripted_reading import client_of
from tests.support.simulated import simulated
from triokafka.client.consumer.finished_prefix import FinishedPrefix
from triokafka.errors import (
    CoordinatorLoadInProgressError,
    IllegalStateError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from triokafka.protocol.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from triokafka.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from triokafka.structs import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def started(records: int = 20) -> tuple[GroupCluster, GroupBroker, dict[str, Any]]:
    cluster = GroupCluster(t=2)
    options = await client_of(
        cluster, auto_offset_reset="earliest", group_id="g", group_protocol="consumer", enable_auto_commit=False
    )
    for partition in (0, 1):
        cluster.write("t", partition, [b"%d" % number for number in range(records)])
    broker = cluster.brokers[1]
    assert isinstance(broker, GroupBroker)
    return cluster, broker, options


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.permutations(range(12)), st.integers(1, 9))
def test_committable_offset_is_below_all_unfinished_records(order: list[int], step: int) -> None:
    prefix = FinishedPrefix()
    assert prefix.next_offset is None
    for number in range(12):
        prefix.begin(5 + number * step)
    assert prefix.next_offset == 5
    left = set(range(12))
    for number in order:
        prefix.finish(5 + number * step)
        left.discard(number)
        assert prefix.is_complete is not bool(left)
        assert prefix.next_offset == (5 + min(left) * step if left else 5 + 11 * step + 1)


@simulated
async def test_partitions_are_handled_in_parallel_and_each_in_order() -> None:
    cluster, _, options = await started()
    handled: dict[int, list[int]] = defaultdict(list)
    done = trio.Event()

    async def handle(record: triokafka.ConsumerRecord) -> None:
        await trio.sleep(1 if record.partition else 3)
        handled[record.partition].append(record.offset)
        if len(handled[0]) + len(handled[1]) == 40:
            done.set()

    async with triokafka.Consumer("t", **options) as consumer, trio.open_nursery() as nursery:
        nursery.start_soon(triokafka.process_partitions, consumer, handle)
        before = trio.current_time()
        await done.wait()
        assert trio.current_time() - before < 62  # not 80
        nursery.cancel_scope.cancel()
    assert handled == {0: list(range(20)), 1: list(range(20))}
    assert cluster.committed == {T0: 20, T1: 20}


@simulated
async def test_a_slow_record_delays_only_the_commits_of_the_records_behind_it() -> None:
    cluster, _, options = await started()
    handled: list[int] = []

    async def handle(record: triokafka.ConsumerRecord) -> None:
        if record.partition == 0 and record.offset == 3:
            await trio.sleep(100)
        handled.append(record.offset)

    async with triokafka.Consumer("t", **options) as consumer:
        with trio.move_on_after(50):
            await triokafka.process_partitions(consumer, handle, tasks_per_partition=4)
    assert len(handled) == 39
    assert cluster.committed == {T0: 3, T1: 20}


@simulated
async def test_no_more_records_are_handled_at_once_than_allowed_and_the_member_stays() -> None:
    cluster, broker, options = await started()
    in_hand = most = 0

    async def handle(record: triokafka.ConsumerRecord) -> None:
        nonlocal in_hand, most
        in_hand += 1
        most = max(most, in_hand)
        await trio.sleep(20)
        in_hand -= 1

    async with triokafka.Consumer("t", **options, max_poll_interval_ms=10_000) as consumer:
        with trio.move_on_after(110):
            await triokafka.process_partitions(consumer, handle, tasks_per_partition=10, max_records_in_hand=8)
        assert consumer.paused() == frozenset()
    assert most == 8
    assert [beat.member_epoch for beat in broker.beats].count(-1) == 1
    assert cluster.committed == {T0: 20, T1: 20}


@simulated
async def test_started_records_are_finished_and_committed_before_the_revocation() -> None:
    cluster, _, options = await started()
    calls: list[tuple[str, int]] = []
    handled: set[tuple[int, int]] = set()

    class Listener(triokafka.ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            calls.append(("revoked", cluster.committed.get(T0, 0)))

    async def handle(record: triokafka.ConsumerRecord) -> None:
        await trio.sleep(1)
        handled.add((record.partition, record.offset))

    async with triokafka.Consumer(**options) as consumer, trio.open_nursery() as nursery:
        consumer.subscribe("t", listener=Listener())

        async def process() -> None:
            await triokafka.process_partitions(consumer, handle, commit_interval_ms=600_000, max_records_in_hand=10)

        nursery.start_soon(process)
        await trio.sleep(2.5)
        cluster.assign(T1)
        while consumer.assignment() != {T1}:
            await trio.sleep(0.1)
        [(_, committed)] = calls
        assert committed == len([1 for partition, _ in handled if partition == 0]) > 0
        await trio.sleep(40)
        assert {offset for partition, offset in handled if partition == 1} == set(range(20))
        nursery.cancel_scope.cancel()


@simulated
async def test_unstarted_records_are_left_to_the_next_owner() -> None:
    """The revocation waits only for records whose handling has begun."""
    cluster, _, options = await started()
    handled: set[tuple[int, int]] = set()

    async def handle(record: triokafka.ConsumerRecord) -> None:
        await trio.sleep(10)
        handled.add((record.partition, record.offset))

    async with triokafka.Consumer("t", **options) as consumer, trio.open_nursery() as nursery:

        async def process() -> None:
            await triokafka.process_partitions(consumer, handle, tasks_per_partition=3, commit_interval_ms=600_000)

        nursery.start_soon(process)
        await trio.sleep(15)
        cluster.assign(T1)
        with trio.fail_after(8):
            while consumer.assignment() != {T1}:
                await trio.sleep(0.1)
        assert cluster.committed == {T0: 6}
        await trio.sleep(60)
        assert {offset for partition, offset in handled if partition == 0} == set(range(6))
        assert {offset for partition, offset in handled if partition == 1} == set(range(20))
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("begun_is_finished", [False, True])
@simulated
async def test_run_cancelled_during_a_revocation_leaves_unstarted_records_to_the_next_run(
    begun_is_finished: bool,
) -> None:
    """The partitions were not revoked in the end."""
    cluster, broker, options = await started(6)
    handled: list[tuple[int, int]] = []
    real = broker._answers[OffsetCommitRequest]

    async def slow(request: OffsetCommitRequest) -> Any:
        await trio.sleep(2)
        return real(request)

    async def handle(record: triokafka.ConsumerRecord) -> None:
        await trio.sleep(10)
        handled.append((record.partition, record.offset))

    async with triokafka.Consumer("t", **options) as consumer:
        with trio.move_on_after(21 if begun_is_finished else 18):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(triokafka.process_partitions, consumer, handle)
                await trio.sleep(15)
                broker.script(OffsetCommitRequest, slow)
                cluster.assign(T1)
                await trio.sleep(2)
                cluster.assign(T0, T1)
                await trio.sleep_forever()
        with trio.move_on_after(80):
            await triokafka.process_partitions(consumer, handle)
    assert {offset for partition, offset in handled if partition == 0} == set(range(6))
    assert cluster.committed == {T0: 6, T1: 6}


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seconds=st.lists(st.integers(0, 5), min_size=16, max_size=16),
    fails=st.integers(0, 15) | st.none(),
    tasks=st.integers(1, 4),
    in_hand=st.integers(1, 20),
    ends_after=st.integers(0, 30),
)
def test_commits_stop_at_the_first_gap_whatever_fails_or_is_cancelled(
    seconds: list[int], fails: int | None, tasks: int, in_hand: int, ends_after: int
) -> None:
    """The next run handles the records behind the gap again."""

    async def main() -> None:
        cluster, _, options = await started(8)
        done: dict[TopicPartition, set[int]] = {T0: set(), T1: set()}

        async def handle(record: triokafka.ConsumerRecord) -> None:
            number = record.offset + 8 * record.partition
            await trio.sleep(seconds[number])
            if number == fails:
                raise ZeroDivisionError
            done[TopicPartition(record.topic, record.partition)].add(record.offset)

        async with triokafka.Consumer("t", **options) as consumer:
            with trio.move_on_after(ends_after), suppress(ZeroDivisionError):
                await triokafka.process_partitions(
                    consumer, handle, tasks_per_partition=tasks, max_records_in_hand=in_hand, commit_interval_ms=2_500
                )
            for partition, finished in done.items():
                first_gap = next(offset for offset in range(9) if offset not in finished)
                assert cluster.committed.get(partition, 0) == first_gap
                if partition in consumer.assignment():
                    assert await consumer.position(partition) == first_gap

    simulated(main)()


@simulated
async def test_records_of_lost_partitions_are_no_longer_handled() -> None:
    _, broker, options = await started()
    handled: list[tuple[int, int]] = []

    async def handle(record: triokafka.ConsumerRecord) -> None:
        await trio.sleep(5)
        handled.append((record.partition, record.offset))

    async with triokafka.Consumer("t", **options) as consumer:
        with trio.move_on_after(12):
            await triokafka.process_partitions(consumer, handle, commit_interval_ms=600_000)
        before = len(handled)
        assert before == 4
        with trio.move_on_after(8):
            broker.script(
                ConsumerGroupHeartbeatRequest,
                ConsumerGroupHeartbeatResponse(error_code=110, member_epoch=0, heartbeat_interval_ms=0),
            )
            await triokafka.process_partitions(consumer, handle)
        # Handling restarted at the group's committed offsets; nothing of the old membership continued.
        assert handled[before:] == [(0, 2), (1, 2)] or handled[before:] == [(1, 2), (0, 2)]


@simulated
async def test_run_after_a_cancelled_one_begins_with_unfinished_records() -> None:
    _, _, options = await started(5)
    handled: list[tuple[int, int]] = []

    async def handle(record: triokafka.ConsumerRecord) -> None:
        await trio.sleep(2)
        handled.append((record.partition, record.offset))

    async with triokafka.Consumer("t", **options) as consumer:
        for seconds in (5, 5, 3, 50):
            with trio.move_on_after(seconds):
                await triokafka.process_partitions(consumer, handle)
    assert sorted(handled) == [(partition, offset) for partition in (0, 1) for offset in range(5)]


@simulated
async def test_error_of_a_handler_ends_the_run_and_finished_records_are_committed() -> None:
    cluster, _, options = await started()

    async def handle(record: triokafka.ConsumerRecord) -> None:
        await trio.sleep(1)
        if (record.partition, record.offset) == (1, 4):
            raise ZeroDivisionError

    async with triokafka.Consumer("t", **options) as consumer:
        with pytest.raises(ZeroDivisionError):
            await triokafka.process_partitions(consumer, handle, commit_interval_ms=600_000)
    assert cluster.committed[T1] == 4
    assert cluster.committed[T0] in (4, 5)


@simulated
async def test_a_consumer_with_auto_commit_is_refused() -> None:
    _, _, options = await started()
    async with triokafka.Consumer("t", **{**options, "enable_auto_commit": True}) as consumer:
        with pytest.raises(IllegalStateError, match="enable_auto_commit=False"):
            await triokafka.process_partitions(consumer, lambda record: trio.sleep(0))


@simulated
async def test_a_run_cancelled_during_a_revocation_leaves_no_pending_handlers() -> None:
    """The next call runs the listener again, when no handler is running."""
    cluster, _, options = await started()

    async def handle(record: triokafka.ConsumerRecord) -> None:
        await trio.sleep(30)

    async with triokafka.Consumer("t", **options) as consumer:
        with trio.move_on_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(triokafka.process_partitions, consumer, handle)
                await trio.sleep(2)
                cluster.assign(T1)
                await trio.sleep_forever()
        with trio.fail_after(5):
            while consumer.assignment() != {T1}:
                await consumer.poll(timeout_ms=100)


@simulated
async def test_a_failed_commit_is_covered_by_the_next_one() -> None:
    cluster, broker, options = await started(3)
    real = broker._answers[OffsetCommitRequest]
    refuses = True

    def commit(request: OffsetCommitRequest) -> Any:
        response = real(request)
        if refuses:
            cluster.committed.clear()
            for topic in response.topics:
                for partition in topic.partitions:
                    partition.error_code = CoordinatorLoadInProgressError.code
        return response

    broker._answers[OffsetCommitRequest] = commit

    async def handle(record: triokafka.ConsumerRecord) -> None:
        pass

    options.update(request_timeout_ms=1_000, default_api_timeout_ms=1_000, close_timeout_ms=1_000)
    async with triokafka.Consumer("t", **options) as consumer, trio.open_nursery() as nursery:
        nursery.start_soon(triokafka.process_partitions, consumer, handle)
        await trio.sleep(5)
        assert cluster.committed == {}
        refuses = False
        await trio.sleep(5)
        assert cluster.committed == {T0: 3, T1: 3}
        nursery.cancel_scope.cancel()


@simulated
async def test_permanently_refused_commits_end_the_run() -> None:
    _, broker, options = await started(3)
    broker._answers[OffsetCommitRequest] = lambda request: OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=29)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )

    async def handle(record: triokafka.ConsumerRecord) -> None:
        pass

    async with triokafka.Consumer("t", **options) as consumer:
        with trio.fail_after(10), pytest.raises(TopicAuthorizationFailedError, match="commit"):
            await triokafka.process_partitions(consumer, handle)


@simulated
async def test_partitions_of_deleted_topics_do_not_block_commits() -> None:
    cluster, broker, options = await started(3)
    real = broker._answers[OffsetCommitRequest]

    def commit(request: OffsetCommitRequest) -> Any:
        response = real(request)
        for partition in response.topics[0].partitions:
            if partition.partition_index == 0:
                partition.error_code = UnknownTopicOrPartitionError.code
        return response

    broker._answers[OffsetCommitRequest] = commit

    async def handle(record: triokafka.ConsumerRecord) -> None:
        pass

    async with triokafka.Consumer("t", **options) as consumer, trio.open_nursery() as nursery:
        nursery.start_soon(triokafka.process_partitions, consumer, handle)
        await trio.sleep(5)
        cluster.write("t", 1, [b"more"])
        await trio.sleep(5)
        assert cluster.committed[T1] == 4
        nursery.cancel_scope.cancel()


@simulated
async def test_room_for_more_records_does_not_cancel_the_users_listener() -> None:
    cluster, _, options = await started(1)
    cluster.write("t", 1, [b"more"] * 40)
    calls: list[str] = []

    class Listener(triokafka.ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            calls.append("begun")
            await trio.sleep(3)
            calls.append("done")

    async def handle(record: triokafka.ConsumerRecord) -> None:
        await trio.sleep(1)

    async with triokafka.Consumer(**options) as consumer, trio.open_nursery() as nursery:
        consumer.subscribe("t", listener=Listener())

        async def process() -> None:
            await triokafka.process_partitions(consumer, handle, max_records_in_hand=4)

        nursery.start_soon(process)
        await trio.sleep(4.5)
        cluster.assign(T1)
        await trio.sleep(20)
        assert calls == ["begun", "done"]
        nursery.cancel_scope.cancel()


@simulated
async def test_running_handlers_of_lost_partitions_still_count_against_the_limit() -> None:
    _, broker, options = await started(100)
    now = most = 0

    async def handle(record: triokafka.ConsumerRecord) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        with trio.CancelScope(shield=True):
            await trio.sleep(0.5)
        now -= 1

    async with triokafka.Consumer("t", **options) as consumer, trio.open_nursery() as nursery:

        async def process() -> None:
            await triokafka.process_partitions(consumer, handle, max_records_in_hand=4, tasks_per_partition=10)

        nursery.start_soon(process)
        for _ in range(6):
            await trio.sleep(3.3)
            broker.script(
                ConsumerGroupHeartbeatRequest,
                ConsumerGroupHeartbeatResponse(error_code=110, member_epoch=0, heartbeat_interval_ms=0),
            )
        await trio.sleep(3)
        most = 0
        await trio.sleep(5)
        assert 0 < most <= 4
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("name", ["tasks_per_partition", "max_records_in_hand", "commit_interval_ms"])
async def test_limits_below_one_are_refused(name: str) -> None:
    consumer = triokafka.Consumer("t", group_id="g", enable_auto_commit=False)
    with pytest.raises(ValueError, match=f"{name}=0"):
        await triokafka.process_partitions(consumer, lambda record: trio.sleep(0), **{name: 0})


@simulated
async def test_error_of_a_handler_during_cancellation_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    _, _, options = await started(1)

    async def handle(record: triokafka.ConsumerRecord) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ZeroDivisionError("while undoing it")

    async with triokafka.Consumer("t", **options) as consumer:
        with trio.move_on_after(5):
            await triokafka.process_partitions(consumer, handle)
    assert "while undoing it" in caplog.text
