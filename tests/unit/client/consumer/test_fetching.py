"""The fetcher's requests: partitions, brokers and limits, against a scripted broker in virtual time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import trio

import triokafka
from tests.support.scripted_broker import CLOSE
from tests.support.scripted_reading import ReadableBroker, ReadableCluster, client_of
from tests.support.simulated import simulated
from triokafka.client.consumer.completed_fetch import end_of
from triokafka.protocol.api.fetch import AbortedTransaction, FetchRequest, FetchResponse
from triokafka.records import encode_batch
from triokafka.structs import OffsetAndMetadata, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"


async def started(
    partitions: int = 1, *, nodes: int = 1
) -> tuple[ReadableCluster, list[ReadableBroker], dict[str, Any]]:
    cluster = ReadableCluster(t=partitions)
    options = await client_of(cluster, nodes=nodes, auto_offset_reset="earliest")
    brokers = [broker for broker in cluster.brokers.values() if isinstance(broker, ReadableBroker)]
    return cluster, brokers, options


def asked_offsets(broker: ReadableBroker, partition: int) -> list[int]:
    return [
        p.fetch_offset
        for request in broker.seen(FetchRequest)
        for topic in request.topics
        for p in topic.partitions
        if p.partition == partition
    ]


@simulated
async def test_fetching_ahead_stops_at_the_bound_and_continues_when_there_is_room() -> None:
    """The bound is ``prefetch_max_bytes`` over all partitions."""
    cluster, _, options = await started(4)
    for partition in range(4):
        for _ in range(20):
            cluster.write("t", partition, [b"x" * 900])
    async with triokafka.Consumer(**options, prefetch_max_bytes=4_000, max_partition_fetch_bytes=1_500) as consumer:
        consumer.assign([TopicPartition("t", number) for number in range(4)])
        await trio.sleep(5)
        assert 0 < consumer.metrics()["fetch_buffer_bytes"] <= 4_000 + 1_000
        seen: Counter[int] = Counter()
        while seen.total() < 80:
            for partition, records in (await consumer.poll(timeout_ms=5_000, max_records=1)).items():  # type: ignore[assignment]
                seen[partition.partition] += len(records)  # type: ignore[attr-defined]
            assert consumer.metrics()["fetch_buffer_bytes"] <= 4_000 + 1_000
        assert set(seen.values()) == {20}


@simulated
async def test_a_limit_of_0_bytes_fetches_one_batch_at_a_time() -> None:
    """A broker returns the first batch whatever its size."""
    cluster, _, options = await started(1)
    for _ in range(3):
        cluster.write("t", 0, [b"x" * 900])
    async with triokafka.Consumer(**options, max_partition_fetch_bytes=0) as consumer:
        consumer.assign([T0])
        for offset in range(3):
            assert [r.offset for r in (await consumer.poll(timeout_ms=5_000))[T0]] == [offset]


@simulated
async def test_paused_data_does_not_block_other_partitions() -> None:
    cluster, _, options = await started(2)
    for partition in range(2):
        for _ in range(10):
            cluster.write("t", partition, [b"x" * 900])
    async with triokafka.Consumer(**options, prefetch_max_bytes=1_000, max_partition_fetch_bytes=900) as consumer:
        consumer.assign([T0])
        await trio.sleep(1)
        consumer.pause(T0)
        consumer.assign([T0, T1])
        got = 0
        with trio.fail_after(60):
            while got < 10:
                polled = await consumer.poll(timeout_ms=1_000)
                assert set(polled) <= {T1}
                got += sum(map(len, polled.values()))
        consumer.resume(T0)
        assert [r.offset for r in (await consumer.poll(timeout_ms=5_000))[T0]] == [0]


@simulated
async def test_busy_and_idle_partitions_do_not_delay_each_other() -> None:
    cluster, _, options = await started(2)
    for _ in range(200):
        cluster.write("t", 0, [b"x" * 500])
    async with triokafka.Consumer(**options, max_partition_fetch_bytes=1_000, fetch_max_wait_ms=500) as consumer:
        consumer.assign([T0, T1])
        await consumer.poll(timeout_ms=1_000, max_records=1)
        before = trio.current_time()
        got = 1
        late_seen = False
        while got < 200:
            polled = await consumer.poll(timeout_ms=5_000, max_records=5)
            got += len(polled.get(T0, ()))
            late_seen = late_seen or T1 in polled
            if got > 100 and not cluster.ends[T1]:
                cluster.write("t", 1, [b"late"])
            await trio.sleep(0.01)
        assert trio.current_time() - before < 5, "no fetch waited for the idle partition"
        assert late_seen, "the idle partition is fetched although the busy one has data"


@simulated
async def test_aborted_transactions_are_left_out_under_read_committed() -> None:
    cluster, [broker], options = await started()
    mine: dict[str, Any] = {"transactional": True, "producer_id": 7, "producer_epoch": 0}
    cluster.write("t", 0, [b"aborted"], base_sequence=0, **mine)
    cluster.write("t", 0, [b"plain"])
    cluster.batches[T0].append(
        bytes(encode_batch([(1, ABORT, b"\0\0\0\0\0\0", [])], base_offset=2, control=True, **mine))
    )
    cluster.ends[T0] = 3
    cluster.write("t", 0, [b"committed"], base_sequence=1, **mine)
    cluster.batches[T0].append(
        bytes(encode_batch([(1, COMMIT, b"\0\0\0\0\0\0", [])], base_offset=4, control=True, **mine))
    )
    cluster.ends[T0] = 5

    async def with_aborted(request: FetchRequest) -> FetchResponse:
        response, _ = broker.fetch_now(request)
        for topic in response.responses:
            for partition in topic.partitions:
                partition.aborted_transactions = [AbortedTransaction(producer_id=7, first_offset=0)]
        return response

    for isolation, expected in (
        ("read_committed", [b"plain", b"committed"]),
        ("read_uncommitted", [b"aborted", b"plain", b"committed"]),
    ):
        broker.script(FetchRequest, with_aborted)
        async with triokafka.Consumer(**options, isolation_level=isolation) as consumer:
            consumer.assign([T0])
            assert [r.value for r in (await consumer.poll(timeout_ms=5_000))[T0]] == expected
            await consumer.poll(timeout_ms=0)
            assert await consumer.position(T0) == 5
            assert broker.seen(FetchRequest)[-1].isolation_level == (isolation == "read_committed")
        broker._scripts.clear()


@pytest.mark.parametrize("first", [1, 2])
@simulated
async def test_records_put_back_are_not_dropped_because_of_an_earlier_abort(first: int) -> None:
    cluster, [broker], options = await started()
    mine: dict[str, Any] = {"transactional": True, "producer_id": 7, "producer_epoch": 0}
    cluster.write("t", 0, [b"aborted"], **mine)
    marker = encode_batch([(1, ABORT, b"\0\0\0\0\0\0", [])], base_offset=1, control=True, **mine)
    cluster.batches[T0].append(bytes(marker))
    cluster.ends[T0] = 2
    cluster.write("t", 0, [b"1", b"2", b"3"], **mine)

    async def with_aborted(request: FetchRequest) -> FetchResponse:
        response, _ = broker.fetch_now(request)
        response.responses[0].partitions[0].aborted_transactions = [AbortedTransaction(producer_id=7, first_offset=0)]
        return response

    broker.script(FetchRequest, with_aborted)
    async with triokafka.Consumer(**options, isolation_level="read_committed") as consumer:
        consumer.assign([T0])
        got = [(await anext(consumer)).value for _ in range(first)]
        got += [r.value for r in (await consumer.poll(timeout_ms=1_000)).get(T0, [])]
        assert got == [b"1", b"2", b"3"]


@simulated
async def test_the_preferred_replica_is_read_when_the_leader_names_it() -> None:
    cluster, [leader, follower], options = await started(nodes=2)
    cluster.write("t", 0, [b"0", b"1"])

    async def redirect(request: FetchRequest) -> FetchResponse:
        response, _ = leader.fetch_now(request)
        for topic in response.responses:
            for partition in topic.partitions:
                partition.preferred_read_replica = 2
                partition.records = b""
        return response

    async def serve(request: FetchRequest) -> FetchResponse:
        cluster.leaders[T0] = 2
        response, _ = follower.fetch_now(request)
        cluster.leaders[T0] = 1
        return response

    leader.script(FetchRequest, redirect)
    follower.script(FetchRequest, serve)
    async with triokafka.Consumer(**options, client_rack="here") as consumer:
        consumer.assign([T0])
        assert [r.value for r in (await consumer.poll(timeout_ms=5_000))[T0]] == [b"0", b"1"]
        assert leader.seen(FetchRequest)[0].rack_id == "here"
        assert asked_offsets(follower, 0)[0] == 0


class PreferredReplica:
    """A leader (1) that redirects consumers in the rack of the preferred replica (2) to that replica."""

    def __init__(self, cluster: ReadableCluster, leader: ReadableBroker, follower: ReadableBroker) -> None:
        self.redirects = True
        self._cluster = cluster
        self._leader = leader
        self._follower = follower
        leader._answers[FetchRequest] = self._redirect
        follower._answers[FetchRequest] = self._serve

    async def _redirect(self, request: FetchRequest) -> FetchResponse:
        if not self.redirects:
            return await ReadableBroker.fetch(self._leader, request)
        response, _ = self._leader.fetch_now(request)
        for topic in response.responses:
            for partition in topic.partitions:
                partition.preferred_read_replica = 2
                partition.records = b""
        return response

    async def _serve(self, request: FetchRequest) -> FetchResponse:
        self._cluster.leaders[T0] = 2  # a follower responds as the leader does
        try:
            response, found = self._follower.fetch_now(request)
        finally:
            self._cluster.leaders[T0] = 1
        if not found:
            await trio.sleep(request.max_wait_ms / 1000)
        return response

    def fetches(self) -> tuple[int, int]:
        """Return the number of fetches from each of them."""
        return len(self._leader.seen(FetchRequest)), len(self._follower.seen(FetchRequest))


@simulated
async def test_the_preferred_replica_expires() -> None:
    cluster, [leader, follower], options = await started(nodes=2)
    preferred = PreferredReplica(cluster, leader, follower)
    cluster.write("t", 0, [b"0"])
    async with triokafka.Consumer(**options, client_rack="here", metadata_max_age_ms=10_000) as consumer:
        consumer.assign([T0])
        assert [r.value for r in (await consumer.poll(timeout_ms=5_000))[T0]] == [b"0"]
        await trio.sleep(9)
        assert preferred.fetches()[0] == 1
        await trio.sleep(2)
        assert preferred.fetches()[0] == 2  # the leader was asked again, and named the replica again
        cluster.write("t", 0, [b"1"])
        assert [r.value for r in (await consumer.poll(timeout_ms=5_000))[T0]] == [b"1"]
        assert preferred.fetches()[0] == 2


@pytest.mark.parametrize("how", ["gone", "out of range", "not a replica any more", "cut off"])
@simulated
async def test_consumer_returns_to_the_leader_when_the_preferred_replica_fails(how: str) -> None:
    cluster, [leader, follower], options = await started(nodes=2)
    preferred = PreferredReplica(cluster, leader, follower)
    cluster.write("t", 0, [b"0"])
    async with triokafka.Consumer(**options, client_rack="here") as consumer:
        consumer.assign([T0])
        assert [r.value for r in (await consumer.poll(timeout_ms=5_000))[T0]] == [b"0"]
        preferred.redirects = False
        cluster.write("t", 0, [b"1"])
        if how == "gone":
            follower.stop()
        elif how == "cut off":
            follower.script(FetchRequest, *[CLOSE] * 100)
        else:
            follower.script(FetchRequest, *[follower.fetch_with(p0=1 if how == "out of range" else 9)] * 100)
        got: list[Any] = []
        with trio.fail_after(5):
            while len(got) < 1:
                got += [r.value for r in (await consumer.poll(timeout_ms=5_000)).get(T0, [])]
        assert got == [b"1"]
        assert await consumer.position(T0) == 2  # not reset: the leader decides which offsets are in range
        await trio.sleep(2)
        assert consumer.health().healthy


@simulated
async def test_interceptors_get_records_and_commits_and_their_errors_stop_nothing() -> None:
    cluster, _, options = await started()
    cluster.write("t", 0, [b"a", b"b", b"c"])
    committed: list[Any] = []

    class OnlyB(triokafka.ConsumerInterceptor):
        def on_consume(self, records: Any) -> Any:
            return {partition: [r for r in found if r.value == b"b"] for partition, found in records.items()}

        def on_commit(self, offsets: Any) -> None:
            committed.append(dict(offsets))

    class Broken(triokafka.ConsumerInterceptor):
        def on_consume(self, records: Any) -> Any:
            raise RuntimeError("broken")

    interceptors = [Broken(), OnlyB()]
    async with triokafka.Consumer(
        **options, group_id="g", enable_auto_commit=False, interceptors=interceptors
    ) as consumer:
        consumer.assign([T0])
        assert [r.value for r in (await consumer.poll(timeout_ms=5_000))[T0]] == [b"b"]
        await consumer.commit()
        assert committed == [{T0: OffsetAndMetadata(3, "", 0)}]
        consumer.seek(T0, 0)
        assert (await anext(consumer)).value == b"b"


def test_the_end_of_fetched_bytes_is_found_without_decoding() -> None:
    first = bytes(encode_batch([(1, None, b"v", []), (1, None, b"w", [])], base_offset=5))
    second = bytes(encode_batch([(1, None, b"v", [])], base_offset=9))
    assert end_of(first) == 7
    assert end_of(first + second) == 10
    assert end_of(first + second[:-1]) == 7, "a partial batch at the end does not count"
    assert end_of(first[:40]) is None
    assert end_of(b"") is None
    assert end_of(b"\0" * 100) is None


@pytest.mark.parametrize("how", ["named long ago", "gone"])
@simulated
async def test_any_number_of_partitions_leaves_the_preferred_replica_at_once(how: str) -> None:
    many = 600
    cluster, [leader, follower], options = await started(many, nodes=2)

    def answer(request: FetchRequest, *, redirects: bool) -> FetchResponse:
        response, _ = leader.fetch_now(request)
        for topic in response.responses:
            for partition in topic.partitions:
                partition.preferred_read_replica = 2 if redirects else -1
        return response

    async def redirect(request: FetchRequest) -> FetchResponse:
        return answer(request, redirects=True)

    async def serve(request: FetchRequest) -> FetchResponse:
        await cluster.changed(request.max_wait_ms / 1000)
        return answer(request, redirects=False)

    leader._answers[FetchRequest] = redirect
    follower._answers[FetchRequest] = serve
    async with triokafka.Consumer(**options, client_rack="here", metadata_max_age_ms=10_000) as consumer:
        consumer.assign([TopicPartition("t", number) for number in range(many)])
        assert await consumer.poll(timeout_ms=5_000) == {}
        assert len(asked_offsets(follower, many - 1)) > 1
        before = len(leader.seen(FetchRequest))
        if how == "gone":
            leader._answers[FetchRequest] = serve
            del cluster.brokers[2]
            await consumer.engine.network.refresh_metadata()
        assert await consumer.poll(timeout_ms=11_000) == {}
        assert len(leader.seen(FetchRequest)) > before
