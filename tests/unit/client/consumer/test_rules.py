"""Rules of reading, positions and membership, as the broker sees them, in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

import triokafka
from tests.support.scripted_broker import CLOSE, SILENCE
from tests.support.scripted_reading import ReadableBroker, numbers, started_for_consumer
from tests.support.simulated import current_simulation, simulated
from triokafka.errors import (
    GroupAuthorizationFailedError,
    InvalidTopicError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    MessageSizeTooLargeError,
    RebootstrapRequiredError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    in_words,
)
from triokafka.protocol.api.fetch import FetchRequest, FetchResponse
from triokafka.protocol.api.find_coordinator import FindCoordinatorRequest
from triokafka.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from triokafka.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse
from triokafka.protocol.api.list_offsets import ListOffsetsRequest
from triokafka.protocol.api.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from triokafka.protocol.api.offset_commit import OffsetCommitRequest
from triokafka.protocol.api.offset_fetch import OffsetFetchRequest
from triokafka.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse
from triokafka.structs import OffsetAndMetadata, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def values(consumer: triokafka.Consumer, count: int) -> list[bytes]:
    with trio.fail_after(120):
        return [(await anext(consumer)).value for _ in range(count)]


# ---------------------------------------------------------------- fetching


@simulated
async def test_one_fetch_per_broker_at_a_time_for_all_its_partitions_with_the_options_limits() -> None:
    cluster, broker, options = await started_for_consumer(2)
    under_way = most = 0

    async def slow(request: FetchRequest) -> FetchResponse:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await trio.sleep(0.2)
        under_way -= 1
        return broker.fetch_now(request)[0]

    broker.script(FetchRequest, *[slow] * 50)
    async with triokafka.Consumer(
        **options, fetch_max_wait_ms=70, fetch_min_bytes=3, max_partition_fetch_bytes=5_000
    ) as consumer:
        consumer.assign([T0, T1])
        cluster.write("t", 0, numbers(0, 3))
        cluster.write("t", 1, numbers(3, 6))
        assert sorted(await values(consumer, 6)) == numbers(0, 6)
        await trio.sleep(2)
    assert most == 1
    first = broker.seen(FetchRequest)[0]
    assert (first.max_wait_ms, first.min_bytes, first.isolation_level) == (70, 3, 0)
    assert [(p.partition, p.fetch_offset, p.partition_max_bytes) for t in first.topics for p in t.partitions] == [
        (0, 0, 5_000),
        (1, 0, 5_000),
    ]
    assert {header.client_id for header in broker.headers} == {"triokafka-consumer-1"}


@simulated
async def test_records_left_by_one_call_are_returned_by_the_next_without_a_fetch() -> None:
    cluster, broker, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 10))
    async with triokafka.Consumer(**options, max_poll_records=4) as consumer:
        consumer.assign([T0])
        assert [r.value for r in (await consumer.poll(timeout_ms=5_000))[T0]] == numbers(0, 4)
        broker.script(FetchRequest, *[SILENCE] * 10)
        before = trio.current_time()
        assert [r.value for r in (await consumer.poll(timeout_ms=60_000))[T0]] == numbers(4, 8)
        assert await consumer.position(T0) == 8
        assert [r.value for r in (await consumer.poll(timeout_ms=60_000))[T0]] == numbers(8, 10)
        assert trio.current_time() == before
        assert {p.fetch_offset for q in broker.seen(FetchRequest) for t in q.topics for p in t.partitions} <= {0, 10}


@simulated
async def test_fetched_records_of_unassigned_partitions_are_dropped() -> None:
    cluster, _, options = await started_for_consumer(2)
    cluster.write("t", 0, numbers(0, 5))
    cluster.write("t", 1, numbers(5, 8))
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0, T1])
        first = await consumer.poll(timeout_ms=5_000, max_records=2)
        [(partition, records)] = first.items()
        other = T1 if partition is T0 or partition == T0 else T0
        await trio.sleep(1)
        consumer.assign([other])
        got = await consumer.poll(timeout_ms=5_000)
        assert list(got) == [other]
        consumer.assign([partition, other])  # a new state: this partition restarts, and the other continues
        assert (await consumer.poll(timeout_ms=5_000))[partition][0].offset == 0
        assert await consumer.position(other) == len(cluster.batches[other]) * (5 if other == T0 else 3)
        assert len(records) == 2


@simulated
async def test_a_seek_into_the_middle_of_a_batch_begins_there() -> None:
    cluster, _, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 10))
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 7)
        assert await values(consumer, 3) == numbers(7, 10)
        consumer.seek(T0, OffsetAndMetadata(4, "", 0))
        assert await values(consumer, 1) == numbers(4, 5)


@simulated
async def test_a_record_truncated_by_an_old_broker_is_named_with_the_limit() -> None:
    cluster, broker, options = await started_for_consumer()
    cluster.write("t", 0, [b"x" * 5_000])

    async def cut(request: FetchRequest) -> FetchResponse:
        response, _ = broker.fetch_now(request)
        partition = response.responses[0].partitions[0]
        partition.records = bytes(partition.records or b"")[: request.topics[0].partitions[0].partition_max_bytes]
        return response

    broker.script(FetchRequest, *[cut] * 10)
    async with triokafka.Consumer(**options, max_partition_fetch_bytes=1_000) as consumer:
        consumer.assign([T0])
        for _ in range(2):
            with pytest.raises(MessageSizeTooLargeError, match="offset 0 of t-0 is larger than max_partition_fetch_b"):
                await consumer.poll(timeout_ms=5_000)


# ---------------------------------------------------------------- positions


@simulated
async def test_latest_starts_at_the_log_end_of_the_lookup() -> None:
    cluster, _, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 5))
    async with triokafka.Consumer(**{**options, "auto_offset_reset": "latest"}) as consumer:
        consumer.assign([T0])
        assert await consumer.position(T0) == 5
        cluster.write("t", 0, numbers(5, 7))
        assert await values(consumer, 2) == numbers(5, 7)


@simulated
async def test_lookups_wait_for_a_leader_and_go_to_all_leaders_at_once() -> None:
    cluster, broker, options = await started_for_consumer(2, nodes=2)
    cluster.leaders[T0], cluster.leaders[T1] = -1, 2
    cluster.write("t", 0, numbers(0, 5))
    async with triokafka.Consumer(**options) as consumer:

        async def elect() -> None:
            await trio.sleep(5)
            cluster.move("t", 0, 1)

        current_simulation().nursery.start_soon(elect)
        before = trio.current_time()
        assert await consumer.end_offsets([T0, T1]) == {T0: 5, T1: 0}
        assert 5 <= trio.current_time() - before < 7
        with pytest.raises(UnknownTopicOrPartitionError):
            broker.script(ListOffsetsRequest, *[broker.list_offsets] * 3)
            await consumer.end_offsets([TopicPartition("nothing", 0)], timeout_ms=3_000)


@simulated
async def test_topics_are_requested_without_creating_them() -> None:
    _, broker, options = await started_for_consumer(2)
    async with triokafka.Consumer(**options) as consumer:
        assert await consumer.partitions_for_topic("t") == [0, 1]
        assert await consumer.partitions_for_topic("nothing") is None
        assert await consumer.topics() == {"t": [0, 1]}
        assert not any(
            request.allow_auto_topic_creation
            for request in broker.seen(MetadataRequest)
            if request.topics and "nothing" in [topic.name for topic in request.topics]
        )


def topics_failing(broker: ReadableBroker, code: int) -> Any:
    """Return a scripted response with ``code`` for each requested topic."""

    def answer(request: MetadataRequest) -> MetadataResponse:
        response = broker.metadata(request)
        names = [topic.name for topic in request.topics or ()]
        response.topics = [MetadataResponseTopic(error_code=code, name=name) for name in names]
        return response

    return answer


@simulated
async def test_topics_are_requested_again_while_their_leader_is_not_available() -> None:
    _, broker, options = await started_for_consumer(2)
    async with triokafka.Consumer(**options) as consumer:
        assert await consumer.partitions_for_topic("t") == [0, 1]
        before = trio.current_time()
        broker.script(MetadataRequest, CLOSE, topics_failing(broker, LeaderNotAvailableError.code))
        assert await consumer.partitions_for_topic("t") == [0, 1]
        assert 0.2 < trio.current_time() - before < 1
        broker.script(MetadataRequest, CLOSE)
        assert await consumer.topics() == {"t": [0, 1]}
        broker.script(MetadataRequest, MetadataResponse(error_code=RebootstrapRequiredError.code))
        assert await consumer.topics() == {"t": [0, 1]}


@simulated
async def test_permanent_metadata_errors_are_raised_at_once() -> None:
    _, broker, options = await started_for_consumer(2)
    async with triokafka.Consumer(**options) as consumer:
        for error in (InvalidTopicError, TopicAuthorizationFailedError):
            broker.script(MetadataRequest, topics_failing(broker, error.code))
            asked = len(broker.seen(MetadataRequest))
            with pytest.raises(error, match=f"topic 't': {in_words(error)}"):
                await consumer.partitions_for_topic("t")
            assert len(broker.seen(MetadataRequest)) == asked + 1


@simulated
@pytest.mark.parametrize("lost", ["silent", "gone", "says so"])
async def test_metadata_lookup_times_out_like_every_other_lookup(lost: str) -> None:
    """The error names the last failure."""
    _, broker, options = await started_for_consumer(2)
    async with triokafka.Consumer(**options, default_api_timeout_ms=4_000) as consumer:
        assert await consumer.topics() == {"t": [0, 1]}
        says = "127.0.0.1:40000"
        if lost == "gone":
            broker.stop()
        elif lost == "says so":
            says = "last error: topic 't': "
            broker.script(MetadataRequest, *[topics_failing(broker, LeaderNotAvailableError.code)] * 100)
        else:
            broker.script(MetadataRequest, *[SILENCE] * 100)
        lookups: list[tuple[float, str, Callable[[], Awaitable[object]]]] = [
            (4, "partitions of topic 't'", lambda: consumer.partitions_for_topic("t")),
            (1.5, "partitions of topic 't'", lambda: consumer.partitions_for_topic("t", timeout_ms=1_500)),
        ]
        if lost != "says so":
            lookups.append((4, "list of topics", lambda: consumer.topics()))
            lookups.append((1.5, "list of topics", lambda: consumer.topics(timeout_ms=1_500)))
            lookups.append((0, "list of topics", lambda: consumer.topics(timeout_ms=0)))
        for seconds, subject, ask in lookups:
            before = trio.current_time()
            with pytest.raises(KafkaTimeoutError, match=f"no answer in time about the {subject}; .*{says}"):
                await ask()
            assert seconds - 1.3 < trio.current_time() - before <= seconds + 0.01


# ---------------------------------------------------------------- commits


@simulated
async def test_committed_offset_is_the_next_one_to_read_with_metadata_and_epoch() -> None:
    cluster, broker, options = await started_for_consumer()
    cluster.leader_epochs[T0] = 3
    cluster.write("t", 0, numbers(0, 5))
    async with triokafka.Consumer("t", **options, group_id="g", enable_auto_commit=False) as consumer:
        await values(consumer, 2)
        await consumer.commit()
        assert cluster.committed == {T0: 2}
        await consumer.commit({T0: OffsetAndMetadata(4, "by hand", 3)})
        request = broker.seen(OffsetCommitRequest)[-1]
        [partition] = request.topics[0].partitions
        assert (partition.committed_offset, partition.committed_metadata, partition.committed_leader_epoch) == (
            4,
            "by hand",
            3,
        )
        assert request.retention_time_ms == -1
        found = await consumer.committed(T0)
        assert found is not None and found.offset == 4
        await consumer.commit({})
        assert await consumer.position(T0) == 2  # a commit does not move the position


@simulated
async def test_a_lookup_of_committed_offsets_waits_for_a_coordinator_that_loads() -> None:
    cluster, broker, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 5))
    cluster.committed[T0] = 3

    def loading(request: OffsetFetchRequest) -> Any:
        response = broker.offset_fetch(request)
        response.groups[0].error_code = 14
        return response

    broker.script(OffsetFetchRequest, loading, loading, CLOSE)
    async with triokafka.Consumer("t", **options, group_id="g") as consumer:
        assert await values(consumer, 2) == numbers(3, 5)
        assert len(broker.seen(OffsetFetchRequest)) == 4


# ---------------------------------------------------------------- membership


@simulated
async def test_the_coordinator_has_a_connection_of_its_own() -> None:
    """Heartbeats do not queue behind a fetch that the broker holds."""
    _, broker, options = await started_for_consumer()
    async with triokafka.Consumer("t", **options, group_id="g", fetch_max_wait_ms=20_000) as consumer:
        before = trio.current_time()
        await consumer.poll(timeout_ms=18_000)
        assert trio.current_time() - before == pytest.approx(18, abs=0.1)
        assert 4 <= len(broker.seen(HeartbeatRequest)) <= 6
        assert 1 <= len(broker.seen(FetchRequest)) <= 2


@simulated
async def test_no_second_heartbeat_while_one_is_unanswered() -> None:
    _, broker, options = await started_for_consumer()
    options["connections_max_silence_ms"] = -1  # the connection is not abandoned before the response arrives
    async with triokafka.Consumer("t", **options, group_id="g") as consumer:
        await consumer.poll(timeout_ms=2_000)

        async def slow(request: HeartbeatRequest) -> HeartbeatResponse:
            await trio.sleep(10)
            return HeartbeatResponse()

        broker.script(HeartbeatRequest, slow)
        seen = len(broker.seen(HeartbeatRequest))
        await consumer.poll(timeout_ms=9_000)
        assert len(broker.seen(HeartbeatRequest)) == seen + 1
        await consumer.poll(timeout_ms=9_000)
        assert len(broker.seen(HeartbeatRequest)) >= seen + 2


@pytest.mark.parametrize(("code", "error"), [(30, GroupAuthorizationFailedError), (-1, triokafka.KafkaError)])
@simulated
async def test_a_heartbeat_that_is_refused_permanently_reaches_the_caller(code: int, error: type[Exception]) -> None:
    _, broker, options = await started_for_consumer()
    async with triokafka.Consumer("t", **options, group_id="g") as consumer:
        await consumer.poll(timeout_ms=1_000)
        broker.script(HeartbeatRequest, HeartbeatResponse(error_code=code))
        with trio.fail_after(10), pytest.raises(error, match="heartbeat"):
            await consumer.poll(timeout_ms=60_000)


@simulated
async def test_one_join_at_a_time_however_many_polls_and_however_long_it_is_held() -> None:
    cluster, broker, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 3))
    joins = 0

    async def held(request: JoinGroupRequest) -> JoinGroupResponse:
        nonlocal joins
        joins += 1
        await trio.sleep(100 if request.member_id else 0)
        return broker.join_group(request)

    broker.script(JoinGroupRequest, held, held)
    options["connections_max_silence_ms"] = -1
    async with triokafka.Consumer("t", **options, group_id="g") as consumer:
        for _ in range(99):
            assert await consumer.poll(timeout_ms=1_000) == {}
        assert joins == 2  # the first one gets the member id
        assert consumer.health().state == "joining"
        assert await values(consumer, 3) == numbers(0, 3)


@simulated
async def test_a_leader_that_finds_partitions_added_during_the_rebalance_joins_once_more_and_revokes_once() -> None:
    cluster, broker, options = await started_for_consumer()
    calls: list[tuple[str, int]] = []

    class Listener(triokafka.ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            calls.append(("revoked", len(revoked)))

        def on_partitions_assigned(self, assigned: Any) -> None:
            calls.append(("assigned", len(assigned)))

    async def grows(request: Any) -> Any:
        cluster.topics["t"] = 2
        await consumer._engine.network.refresh_metadata()
        return broker.sync_group(request)

    broker.script(SyncGroupRequest, grows)
    async with triokafka.Consumer(**options, group_id="g") as consumer:
        consumer.subscribe("t", listener=Listener())
        await consumer.poll(timeout_ms=5_000)
        assert consumer.assignment() == {T0, T1}
        assert calls == [("revoked", 0), ("assigned", 2)]


@pytest.mark.parametrize("where", ["join", "sync"])
@simulated
async def test_cooperative_member_removed_while_it_rejoins_has_lost_its_partitions(where: str) -> None:
    """Otherwise its commit as a new member would overwrite a later offset of the other owner."""
    cluster, broker, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 5))
    calls: list[tuple[str, int]] = []

    class Listener(triokafka.ConsumerRebalanceListener):
        def on_partitions_revoked(self, revoked: Any) -> None:
            calls.append(("revoked", len(revoked)))

        def on_partitions_lost(self, lost: Any) -> None:
            calls.append(("lost", len(lost)))

        def on_partitions_assigned(self, assigned: Any) -> None:
            calls.append(("assigned", len(assigned)))

    async with triokafka.Consumer(
        **options, group_id="g", partition_assignment_strategy=["cooperative-sticky"], auto_commit_interval_ms=60_000
    ) as consumer:
        consumer.subscribe("t", listener=Listener())
        assert await values(consumer, 5) == numbers(0, 5)

        def overtaken(request: Any) -> Any:
            cluster.committed[T0] = 4  # by another owner
            cluster.commits.clear()
            return JoinGroupResponse(error_code=25) if where == "join" else SyncGroupResponse(error_code=25)

        broker.script(JoinGroupRequest if where == "join" else SyncGroupRequest, overtaken)
        broker.script(HeartbeatRequest, HeartbeatResponse(error_code=27))
        assert [r.value for r in (await consumer.poll(timeout_ms=8_000))[T0]] == numbers(4, 5)
        assert calls == [("assigned", 1), ("lost", 1), ("assigned", 1)]
        assert cluster.commits == []


@simulated
async def test_a_coordinator_is_looked_up_until_it_is_found() -> None:
    cluster, broker, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 3))
    broker.script(FindCoordinatorRequest, *[CLOSE] * 5)
    async with triokafka.Consumer("t", **options, group_id="g") as consumer:
        assert await values(consumer, 3) == numbers(0, 3)
        assert len(broker.seen(FindCoordinatorRequest)) == 6
        # The coordinator moves: the next heartbeat reports it, and the membership continues.
        generation = consumer.health().generation
        broker.script(HeartbeatRequest, HeartbeatResponse(error_code=16))
        await consumer.poll(timeout_ms=8_000)
        assert len(broker.seen(FindCoordinatorRequest)) == 7
        assert consumer.health().generation == generation


@simulated
async def test_auto_commit_runs_while_records_never_run_out_and_its_interval_starts_at_the_join() -> None:
    cluster, _, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 400))
    async with triokafka.Consumer("t", **options, group_id="g", auto_commit_interval_ms=1_000) as consumer:
        for number in range(400):
            assert await values(consumer, 1) == numbers(number, number + 1)
            await trio.sleep(0.01)
            assert cluster.committed.get(T0, 0) <= number
        assert len(cluster.commits) >= 3
