"""No silent stall: the caller gets an error with what makes no progress, since when, and why. In virtual time."""

from __future__ import annotations

import pytest
import trio

import triokafka
from tests.support.scripted_broker import CLOSE, SILENCE
from tests.support.scripted_reading import ReadableCluster, started_for_consumer
from tests.support.simulated import current_simulation, simulated
from triokafka.errors import KafkaTimeoutError
from triokafka.protocol.api.fetch import FetchRequest, FetchResponse
from triokafka.protocol.api.find_coordinator import FindCoordinatorRequest
from triokafka.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from triokafka.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse
from triokafka.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse
from triokafka.records import encode_batch
from triokafka.structs import TopicPartition

REBALANCE_IN_PROGRESS = 27
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def values(consumer: triokafka.Consumer, count: int) -> list[bytes]:
    with trio.fail_after(300):
        return [(await anext(consumer)).value for _ in range(count)]


def keep_writing(cluster: ReadableCluster, partition: TopicPartition) -> None:
    """Write a record every half second from now on."""

    async def write() -> None:
        while True:
            await trio.sleep(0.5)
            cluster.write("t", partition.partition, [b"more"])

    current_simulation().nursery.start_soon(write)


@pytest.mark.parametrize("flowing", [False, True])
@simulated
async def test_a_dead_coordinator_is_reported_whether_or_not_records_arrive(flowing: bool) -> None:
    cluster, broker, options = await started_for_consumer()
    cluster.write("t", 0, [b"first"])
    async with triokafka.Consumer(
        "t", **options, group_id="g", enable_auto_commit=False, session_timeout_ms=10_000
    ) as consumer:
        assert await values(consumer, 1) == [b"first"]
        if flowing:
            keep_writing(cluster, T0)
        broker.script(HeartbeatRequest, *[SILENCE] * 1_000)
        broker.script(FindCoordinatorRequest, *[CLOSE] * 10_000)
        silent_since = trio.current_time()
        with pytest.raises(KafkaTimeoutError, match=r"sending heartbeats to group 'g' has failed for 60 s; last: .*"):
            while True:
                await consumer.poll(timeout_ms=1_000)
        # The first silence is reported once the session has expired.
        assert 60 <= trio.current_time() - silent_since <= 60 + 10 + 5
        assert "sending heartbeats" in consumer.health().troubles[0]
        broker._scripts.clear()
        cluster.write("t", 0, [b"later"])
        await trio.sleep(20)
        assert (await consumer.poll(timeout_ms=5_000))[T0]
        assert consumer.health().healthy


@simulated
async def test_a_partition_without_a_leader_is_reported_while_the_others_are_read() -> None:
    cluster, _, options = await started_for_consumer(2)
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0, T1])
        cluster.write("t", 0, [b"0"])
        cluster.write("t", 1, [b"1"])
        await values(consumer, 2)
        cluster.leaders[T0] = -1
        keep_writing(cluster, T1)
        with pytest.raises(KafkaTimeoutError, match=r"fetching t-0 has failed for 60 s; last: .*leader"):
            while True:
                await consumer.poll(timeout_ms=1_000)
        cluster.leaders[T0] = 1
        cluster.write("t", 0, [b"again"])
        with trio.fail_after(60):
            while T0 not in await consumer.poll(timeout_ms=1_000):
                pass
        assert consumer.health().healthy


@simulated
async def test_a_fetch_without_progress_is_reported_with_the_offset() -> None:
    cluster, broker, options = await started_for_consumer(2)
    cluster.write("t", 0, [b"0"])
    cluster.write("t", 1, [b"1"])

    async def empty_for_t0(request: FetchRequest) -> FetchResponse:
        response, _ = broker.fetch_now(request)
        if not any(p.records for topic in response.responses for p in topic.partitions if p.partition_index):
            await trio.sleep(0.5)
        for topic in response.responses:
            for partition in topic.partitions:
                if not partition.partition_index:
                    partition.records = b""
        return response

    broker.script(FetchRequest, *[empty_for_t0] * 1_000)
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0, T1])
        assert await values(consumer, 1) == [b"1"]
        with pytest.raises(
            KafkaTimeoutError,
            match=r"fetching t-0 has failed for 60 s; last: the broker sends nothing from offset 0 on, .* ends at 1",
        ):
            await anext(consumer)
        assert not consumer.health().healthy
        consumer.seek_to_end(T0)
        assert await consumer.position(T0) == 1
        await trio.sleep(1)
        assert consumer.health().healthy


@pytest.mark.parametrize(
    ("sent", "description"),
    [
        (encode_batch([(0, None, b"old", ())], base_offset=0), "batches before it"),
        (encode_batch([(0, None, b"cut", ())], base_offset=1)[:-1], "a part of a batch"),
    ],
)
@simulated
async def test_records_that_do_not_advance_the_position_are_reported_with_the_offset(
    sent: bytes, description: str
) -> None:
    cluster, broker, options = await started_for_consumer()
    cluster.write("t", 0, [b"0", b"1"])

    async def other_records(request: FetchRequest) -> FetchResponse:
        response, _ = broker.fetch_now(request)
        response.responses[0].partitions[0].records = sent
        return response

    broker.script(FetchRequest, *[other_records] * 10_000)
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 1)
        with pytest.raises(
            KafkaTimeoutError, match=rf"for 60 s; last: the broker sends only {description} from offset 1"
        ):
            await anext(consumer)
        assert len(broker.seen(FetchRequest)) < 300
        broker._scripts.clear()
        assert await values(consumer, 1) == [b"1"]
        assert consumer.health().healthy


@simulated
async def test_broker_that_returns_empty_fetches_at_once_is_fetched_with_a_back_off() -> None:
    """The broker ignores the maximum wait, and the consumer would be busy with fetches."""
    cluster, broker, options = await started_for_consumer()

    async def at_once(request: FetchRequest) -> FetchResponse:
        return broker.fetch_now(request)[0]

    broker.script(FetchRequest, *[at_once] * 100_000)
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0])
        assert await consumer.poll(timeout_ms=60_000) == {}
        assert len(broker.seen(FetchRequest)) < 300
        assert consumer.health().healthy
        cluster.write("t", 0, [b"at last"])
        assert await values(consumer, 1) == [b"at last"]


@pytest.mark.parametrize(
    ("request_type", "refusal"),
    [
        (JoinGroupRequest, lambda request: JoinGroupResponse(error_code=79, member_id="m", protocol_name="")),
        (JoinGroupRequest, lambda request: JoinGroupResponse(error_code=25, protocol_name="")),
        (SyncGroupRequest, lambda request: SyncGroupResponse(error_code=27, protocol_name="")),
    ],
)
@simulated
async def test_refused_joins_are_repeated_with_a_back_off(request_type: type, refusal: object) -> None:
    cluster, broker, options = await started_for_consumer()
    cluster.write("t", 0, [b"0"])
    broker.script(request_type, *[refusal] * 100_000)
    async with triokafka.Consumer("t", **options, group_id="g") as consumer:
        assert await consumer.poll(timeout_ms=60_000) == {}
        assert len(broker.seen(JoinGroupRequest)) < 300
        broker._scripts.clear()
        assert await values(consumer, 1) == [b"0"]


@simulated
async def test_an_empty_fetch_at_the_end_of_the_log_is_not_a_stall() -> None:
    _, _, options = await started_for_consumer()
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0])
        assert await consumer.poll(timeout_ms=300_000) == {}
        assert consumer.health().healthy


@simulated
async def test_a_partition_left_out_for_lack_of_room_is_not_a_stall() -> None:
    """The caller may take any time over the buffered records, during which nothing is fetched."""
    cluster, _, options = await started_for_consumer(2)
    cluster.write("t", 0, [b"a" * 1_000])
    cluster.write("t", 1, [b"b" * 1_000, b"b" * 1_000])
    async with triokafka.Consumer(**options, prefetch_max_bytes=2_000, fetch_max_bytes=2_000) as consumer:
        consumer.assign([T1, T0])
        assert list(await consumer.poll(timeout_ms=1_000, max_records=1)) == [T1]
        await trio.sleep(100)
        assert list(await consumer.poll(timeout_ms=1_000)) == [T1]
        assert list(await consumer.poll(timeout_ms=1_000)) == [T0]


@simulated
async def test_a_partition_whose_leader_returned_during_a_fetch_is_not_a_stall() -> None:
    """Within a fetch session, responses leave out an idle partition."""
    cluster, broker, options = await started_for_consumer()

    async def in_session(request: FetchRequest) -> FetchResponse:
        response, _ = broker.fetch_now(request)
        if request.session_epoch:
            await cluster.changed(request.max_wait_ms / 1000)
            response = FetchResponse()
        response.session_id = 7
        return response

    broker._answers[FetchRequest] = in_session
    async with triokafka.Consumer(**options, fetch_max_wait_ms=20_000) as consumer:
        consumer.assign([T0])
        assert await consumer.poll(timeout_ms=5_000) == {}
        for leader, troubles in ((-1, 1), (1, 0)):
            cluster.leaders[T0] = leader
            await consumer.engine.network.refresh_metadata()
            assert await consumer.poll(timeout_ms=100) == {}
            assert len(consumer.health().troubles) == troubles
        assert await consumer.poll(timeout_ms=300_000) == {}


@simulated
async def test_a_first_join_without_a_response_shows_in_the_health_after_the_timeout() -> None:
    """Other members of the group may delay it, so that it ends no call."""
    _, broker, options = await started_for_consumer()

    async def wait_for_others(request: JoinGroupRequest) -> None:
        await trio.sleep_forever()

    broker.script(JoinGroupRequest, broker.join_group, *[wait_for_others] * 100)
    async with triokafka.Consumer("t", **options, group_id="g", default_api_timeout_ms=20_000) as consumer:
        assert await consumer.poll(timeout_ms=15_000) == {}
        assert consumer.health().healthy
        assert await consumer.poll(timeout_ms=10_000) == {}
        assert "joining group 'g' has failed for 2" in consumer.health().troubles[0]


@simulated
async def test_a_rebalance_that_waits_for_other_members_shows_in_the_health_and_ends_no_call() -> None:
    """The coordinator answers heartbeats: it is allowed to wait for other members."""
    _, broker, options = await started_for_consumer()

    async def wait_for_others(request: JoinGroupRequest) -> None:
        await trio.sleep_forever()

    async with triokafka.Consumer("t", **options, group_id="g", default_api_timeout_ms=20_000) as consumer:
        await consumer.poll(timeout_ms=5_000)
        broker.script(JoinGroupRequest, *[wait_for_others] * 100)
        broker.script(HeartbeatRequest, *[HeartbeatResponse(error_code=REBALANCE_IN_PROGRESS)] * 1_000)
        assert await consumer.poll(timeout_ms=60_000) == {}
        assert any("the coordinator waits for other members" in problem for problem in consumer.health().troubles)
        broker._scripts.clear()
        await consumer.poll(timeout_ms=60_000)
        assert consumer.health().healthy


@simulated
async def test_a_lost_join_is_sent_again_with_the_same_member_id() -> None:
    _, broker, options = await started_for_consumer()
    broker.script(JoinGroupRequest, broker.join_group, SILENCE)
    async with triokafka.Consumer("t", **options, group_id="g") as consumer:
        began = trio.current_time()
        await consumer.poll(timeout_ms=15_000)
        assert consumer.assignment() == {T0}
        assert trio.current_time() - began < 16
        first, lost, again = broker.seen(JoinGroupRequest)
        assert first.member_id == ""
        assert lost.member_id == again.member_id != ""


@pytest.mark.parametrize(("version", "joins"), [(3, 1), (4, 2)])
@simulated
async def test_a_lost_first_join_is_sent_again_only_where_it_creates_no_member(version: int, joins: int) -> None:
    _, broker, options = await started_for_consumer()
    broker.api_versions[JoinGroupRequest.api_key] = (0, version)
    broker.script(JoinGroupRequest, SILENCE)
    async with triokafka.Consumer("t", **options, group_id="g") as consumer:
        await consumer.poll(timeout_ms=15_000)
        assert [request.member_id for request in broker.seen(JoinGroupRequest)][:joins] == [""] * joins
        assert (consumer.assignment() == {T0}) is (version >= 4)


@simulated
async def test_a_lost_sync_response_does_not_start_another_rebalance() -> None:
    _, broker, options = await started_for_consumer()
    broker.script(SyncGroupRequest, SILENCE)
    async with triokafka.Consumer("t", **options, group_id="g") as consumer:
        await consumer.poll(timeout_ms=15_000)
        assert consumer.assignment() == {T0}
        assert len(broker.seen(JoinGroupRequest)) == 2  # the first for a member id
        assert len(broker.seen(SyncGroupRequest)) == 2


@simulated
async def test_an_overdue_heartbeat_is_repeated_over_a_new_connection_before_the_session_expires() -> None:
    _, broker, options = await started_for_consumer()
    async with triokafka.Consumer("t", **options, group_id="g", session_timeout_ms=6_000) as consumer:
        await consumer.poll(timeout_ms=5_000)
        connections = broker.connection_count
        broker.script(HeartbeatRequest, SILENCE)
        count = len(broker.seen(HeartbeatRequest))
        await broker.wait_for(HeartbeatRequest, count + 1)
        silent_since = trio.current_time()
        await broker.wait_for(HeartbeatRequest, count + 2)
        assert trio.current_time() - silent_since < 3
        assert broker.connection_count > connections
        assert len(broker.seen(JoinGroupRequest)) == 2
