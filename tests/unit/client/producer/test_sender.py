"""The sender's reaction to responses, lost connections and nodes that accept nothing, against a scripted broker."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from tests.support.scripted_broker import CLOSE, SILENCE
from tests.support.scripted_producing import memory_is_whole, scripted
from tests.support.simulated import current_simulation, simulated
from tests.unit.client.producer.test_accumulator import Bench
from triokafka.client.producer.counters import COUNTERS
from triokafka.client.producer.sender import Sender
from triokafka.client.producer.wakeup import Wakeup
from triokafka.errors import (
    BrokerResponseError,
    ClosedError,
    ClusterAuthorizationFailedError,
    InvalidProducerEpochError,
    InvalidRecordError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    ProducerFencedError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
    TransactionalIdAuthorizationFailedError,
    UnsupportedForMessageFormatError,
    UnsupportedVersionError,
)
from triokafka.hooks import Hooks
from triokafka.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from triokafka.protocol.api.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    ProduceRequest,
    ProduceResponse,
)
from triokafka.records import iter_batches
from triokafka.structs import TopicPartition


def epochs(requests: list[Any]) -> list[int]:
    """Return the producer epochs of the first batch of each request."""
    return [
        next(iter(iter_batches(request.topic_data[0].partition_data[0].records))).producer_epoch for request in requests
    ]


# ---------------------------------------------------------------- the effects of errors


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (31, ClusterAuthorizationFailedError),
        (35, UnsupportedVersionError),
        (53, TransactionalIdAuthorizationFailedError),
        (90, ProducerFencedError),
    ],
)
@simulated
async def test_error_that_ends_the_producer_id_fails_the_producer(code: int, error: type) -> None:
    async with scripted(orders=1, other=1) as s, s.producer() as producer:
        await (await producer.send("other", b"warm"))
        s.broker.script(ProduceRequest, s.broker.refuse(code))
        with pytest.raises(error):
            await (await producer.send("orders", b"a"))
        with pytest.raises(error):
            await producer.send("other", b"b")
        with pytest.raises(error):
            await producer.flush()
        assert memory_is_whole(producer)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (10, MessageSizeTooLargeError),
        (18, RecordListTooLargeError),
        (29, TopicAuthorizationFailedError),
        (43, UnsupportedForMessageFormatError),
        (47, InvalidProducerEpochError),
        (87, InvalidRecordError),
        (-1, BrokerResponseError),
    ],
)
@simulated
async def test_any_other_error_fails_its_batch_and_nothing_else(code: int, error: type) -> None:
    async with scripted(orders=2) as s, s.producer(linger_ms=10) as producer:
        await (await producer.send("orders", b"warm", partition=0))
        s.broker.script(ProduceRequest, s.broker.refuse(code, 0))
        bad = await producer.send("orders", b"bad", partition=0)
        good = await producer.send("orders", b"good", partition=1)
        with pytest.raises(error, match="orders-0"):
            await bad
        assert (await good).offset == 0
        assert (await (await producer.send("orders", b"later", partition=0))).offset == 1
        assert s.cluster.values("orders", 0) == [b"warm", b"later"]
        assert memory_is_whole(producer)


@simulated
async def test_fatal_error_leaves_the_other_results_of_its_response_unchanged() -> None:
    """Written records are acknowledged, although the producer has failed."""
    async with scripted(orders=2) as s, s.producer(linger_ms=10) as producer:
        await producer.partitions_for("orders")
        s.broker.script(ProduceRequest, s.broker.refuse(31, 0))
        bad = await producer.send("orders", b"bad", partition=0)
        good = await producer.send("orders", b"good", partition=1)
        with pytest.raises(ClusterAuthorizationFailedError):
            await bad
        assert (await good).offset == 0
        assert memory_is_whole(producer)


@simulated
async def test_without_a_producer_id_no_error_is_fatal() -> None:
    async with scripted() as s, s.producer(enable_idempotence=False) as producer:
        s.broker.script(ProduceRequest, s.broker.refuse(31))
        with pytest.raises(ClusterAuthorizationFailedError):
            await (await producer.send("orders", b"a"))
        assert (await (await producer.send("orders", b"b"))).offset == 0


@simulated
async def test_producer_whose_epoch_is_too_old_gets_a_new_id() -> None:
    """Another client writes under its id, so that bumping the epoch would never catch up."""
    async with scripted() as s, s.producer(linger_ms=0) as producer:
        await (await producer.send("orders", b"a"))
        s.broker.script(ProduceRequest, s.broker.refuse(47))
        with pytest.raises(InvalidProducerEpochError):
            await (await producer.send("orders", b"b"))
        assert (await (await producer.send("orders", b"c"))).offset == 1
        assert len(s.broker.seen(InitProducerIdRequest)) == 2
        assert producer.metrics()["producer_id_total"] == 2


@simulated
async def test_used_up_epochs_are_followed_by_a_new_id() -> None:
    """KIP-360."""
    async with scripted() as s, s.producer(linger_ms=0) as producer:
        s.broker.script(
            InitProducerIdRequest, InitProducerIdResponse(error_code=0, producer_id=5, producer_epoch=32_767)
        )
        await (await producer.send("orders", b"a"))
        s.broker.script(ProduceRequest, s.broker.refuse(18))
        with pytest.raises(RecordListTooLargeError):
            await (await producer.send("orders", b"b"))
        assert (await (await producer.send("orders", b"c"))).offset == 1
        assert len(s.broker.seen(InitProducerIdRequest)) == 2


@simulated
async def test_records_in_a_batch_with_a_bad_record_get_their_own_error() -> None:
    """KIP-467."""
    async with scripted() as s, s.producer(linger_ms=100) as producer:

        def second_is_bad(request: ProduceRequest) -> Any:
            answer = s.broker.produce(request, {0: 87})
            assert answer is not None
            partition = answer.responses[0].partition_responses[0]
            partition.error_message = "one record was bad"
            partition.record_errors = [
                BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="no key"),
                BatchIndexAndErrorMessage(batch_index=77, batch_index_error_message="no such record"),
            ]
            return answer

        s.broker.script(ProduceRequest, second_is_bad)
        first, second, third = [await producer.send("orders", value) for value in (b"a", b"b", b"c")]
        with pytest.raises(InvalidRecordError, match="a record for orders-0 was refused: no key"):
            await second
        for innocent in (first, third):
            with pytest.raises(
                InvalidRecordError, match="not written, because 1 other records of the same batch of 3 for orders-0"
            ):
                await innocent
        assert (await (await producer.send("orders", b"a"))).offset == 0


# ---------------------------------------------------------------- requests


@simulated
async def test_each_node_gets_one_request_with_all_its_batches() -> None:
    async with (
        scripted(nodes=2, orders=4, other=2) as s,
        s.producer(linger_ms=50, request_timeout_ms=7000) as producer,
    ):
        for topic, partition in (("orders", 1), ("orders", 3), ("other", 1)):
            s.cluster.move(topic, partition, 2)
        await producer.partitions_for("orders")
        await producer.partitions_for("other")
        for topic, partition in (
            ("orders", 0),
            ("orders", 1),
            ("orders", 2),
            ("orders", 3),
            ("other", 0),
            ("other", 1),
        ):
            await producer.send(topic, b"x", partition=partition)
        await producer.flush()
        for node, partitions in ((1, [0, 2]), (2, [1, 3])):
            [request] = s.cluster.brokers[node].seen(ProduceRequest)
            assert (request.acks, request.timeout_ms) == (-1, 7000)
            assert [p.index for p in request.topic_data[0].partition_data] == partitions
            assert len(request.topic_data) == 2


@simulated
async def test_many_tasks_share_a_producer_and_its_sticky_partition() -> None:
    """No lock is needed, because no task yields between finding a batch and appending to it."""
    async with scripted(orders=3) as s:
        async with s.producer(linger_ms=1, batch_size=500, buffer_memory=3000) as producer:

            async def work(name: int) -> None:
                for number in range(30):
                    await producer.send("orders", b"%d %d " % (name, number) + b"x" * 50)

            async with trio.open_nursery() as nursery:
                for name in range(20):
                    nursery.start_soon(work, name)
            await producer.flush()
            assert memory_is_whole(producer)
        found = [value for partition in range(3) for value in s.cluster.values("orders", partition)]
        assert len(found) == len(set(found)) == 600
        assert all(len(s.cluster.values("orders", partition)) > 50 for partition in range(3))


class _Node:
    """A network client with one broker that accepts requests or does not."""

    def __init__(self, cluster: Any) -> None:
        self.config = SimpleNamespace(request_timeout_ms=1000, client_id="test")
        self.api_versions: dict[int, Any] = {}
        self.metadata = SimpleNamespace(use_topic=lambda *args: self.calls.append("use topic"))
        self.cluster = cluster
        self.takes_requests = True
        self.calls: list[Any] = []

    def ready_channel(self, node: int, now: float) -> _Node | None:
        self.calls.append("ready?")
        return self if self.takes_requests else None

    def is_ready(self, now: float) -> bool:
        return self.takes_requests

    def hold(self) -> None:
        pass

    def let_go(self) -> None:
        pass

    def ready_delay(self, node: int) -> float:
        return 0.7

    def channel_error(self, node: int) -> None:
        return None

    def request_metadata_update(self) -> None:
        self.calls.append("update")

    def version_for(self, *_: Any, **__: Any) -> int:
        return 9

    def submit(self, *args: Any, **_: Any) -> None:
        self.calls.append("submit")


def _sender_over(bench: Bench) -> tuple[Sender, _Node]:
    node = _Node(bench.cluster)
    world: Any = SimpleNamespace(now=lambda: 0.0)
    sender = Sender(
        bench.accumulator,
        node,  # type: ignore[arg-type]
        world=world,
        wakeup=Wakeup(world),
        acks=-1,
        retries=5,
        idempotence_required=False,
        start_identity_task=lambda: None,
        on_fatal=lambda error: None,
    )
    return sender, node


def test_batch_stays_queued_while_its_node_accepts_nothing_and_the_sender_checks_again_in_time() -> None:
    """Checking for readiness starts the connection."""
    bench = Bench()
    batch = bench.batch()
    bench.close()
    sender, node = _sender_over(bench)
    node.takes_requests = False
    assert sender.step(0.0) == 0.7
    assert node.calls == ["ready?"]
    assert not batch.on_wire
    node.takes_requests = True
    assert sender.step(0.7) > 1
    assert batch.on_wire
    assert node.calls[:3] == ["ready?", "ready?", "submit"]


def test_expired_batches_are_not_sent() -> None:
    bench = Bench()
    batch = bench.batch()
    bench.close()
    sender, node = _sender_over(bench)
    sender.step(200.0)
    assert batch.failed
    assert "submit" not in node.calls


def test_unknown_leader_triggers_a_metadata_refresh_and_the_topic_stays_in_use() -> None:
    bench = Bench([-1])
    bench.batch()
    sender, node = _sender_over(bench)
    sender.step(0.0)
    assert node.calls == ["use topic", "update"]


# ---------------------------------------------------------------- acks=0


@simulated
async def test_acks_0_does_not_retry_and_reports_unwritten_records() -> None:
    """The log may have gaps."""
    async with scripted() as s:
        outcomes: list[tuple[bytes, Exception | None]] = []
        async with s.producer(acks=0, linger_ms=0, batch_size=100, delivery_timeout_ms=60_000) as producer:
            await producer.partitions_for("orders")
            deliveries = []
            for number in range(120):
                if number % 20 == 10:
                    s.broker.cut()
                value = b"%04d" % number + b"x" * 60
                deliveries.append((value, await producer.send("orders", value)))
            for value, delivery in deliveries:
                try:
                    assert (await delivery).offset == -1
                    outcomes.append((value, None))
                except KafkaError as error:
                    outcomes.append((value, error))
            await trio.sleep(5)
            assert memory_is_whole(producer)
            assert producer.metrics()["record_retry_total"] == 0
        values = s.cluster.values("orders")
        assert len(values) == len(set(values))
        assert values == sorted(values)  # type: ignore[type-var]
        assert len(outcomes) == 120
        assert all(isinstance(error, KafkaConnectionError) for _, error in outcomes if error is not None)


@simulated
async def test_acks_0_waits_for_a_broker_that_is_away() -> None:
    """No byte was written to a connection, so no duplicate is possible: this does not count as an attempt."""
    async with scripted() as s:
        async with s.producer(acks=0, linger_ms=0) as producer:
            await producer.partitions_for("orders")
            port = s.broker.stop()
            delivery = await producer.send("orders", b"a")
            await trio.sleep(10)
            assert not delivery.done
            await s.broker.start(current_simulation().nursery, port)
            assert (await delivery).offset == -1
            await s.broker.wait_for(ProduceRequest)
        assert s.cluster.values("orders") == [b"a"]


@simulated
async def test_request_refused_by_the_connection_costs_no_attempt() -> None:
    """This holds even without retries."""
    async with scripted() as s, s.producer(enable_idempotence=False, retries=0, linger_ms=0) as producer:
        await (await producer.send("orders", b"a"))
        [channel] = [c for c in producer._client._brokers.channels() if c.node.node_id == 1]
        submit = channel.submit
        refusals = 0

        def refuse(*args: Any, **kwargs: Any) -> None:
            nonlocal refusals
            refusals += 1
            if refusals > 3:
                submit(*args, **kwargs)
            else:
                raise KafkaConnectionError("it has just ended")

        channel.submit = refuse  # type: ignore[method-assign]
        metadata = await (await producer.send("orders", b"b"))
        assert (metadata.offset, metadata.attempts, refusals) == (1, 1, 4)
        assert producer.metrics()["request_total"] == 2


# ---------------------------------------------------------------- retries and their back-off


@simulated
async def test_back_off_doubles_with_jitter_up_to_its_maximum() -> None:
    async with scripted() as s, s.producer(linger_ms=0, retry_backoff_ms=100, retry_backoff_max_ms=1000) as producer:
        await (await producer.send("orders", b"a"))
        at: list[float] = []

        def refuse(request: ProduceRequest) -> Any:
            at.append(trio.current_time())
            return s.broker.produce(request, {0: 19})

        s.broker.script(ProduceRequest, *[refuse] * 7)
        await (await producer.send("orders", b"b"))
        waits = [later - earlier for earlier, later in itertools.pairwise(at)]
        for wait, middle in zip(waits, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0], strict=True):
            assert 0.8 * middle <= wait <= 1.2 * middle + 0.02
        assert (
            len({round(wait / middle, 3) for wait, middle in zip(waits, [0.1, 0.2, 0.4, 0.8, 1, 1], strict=True)}) > 3
        )


@simulated
async def test_each_partition_backs_off_independently() -> None:
    async with (
        scripted(orders=2) as s,
        s.producer(linger_ms=0, retry_backoff_ms=5000, retry_backoff_max_ms=5000) as producer,
    ):
        await producer.partitions_for("orders")
        s.broker.script(ProduceRequest, s.broker.refuse(19, 0))
        waiting = await producer.send("orders", b"a", partition=0)
        await s.broker.wait_for(ProduceRequest)
        started = trio.current_time()
        await (await producer.send("orders", b"b", partition=1))
        assert trio.current_time() - started < 1
        await waiting
        assert trio.current_time() - started > 3


@simulated
async def test_new_leader_is_tried_at_once_by_every_waiting_batch() -> None:
    """Only the first refusal names the new leader (KIP-951)."""
    async with (
        scripted(nodes=2) as s,
        s.producer(linger_ms=0, batch_size=100, retry_backoff_ms=8000, retry_backoff_max_ms=8000) as producer,
    ):
        await (await producer.send("orders", b"a"))
        named = 0

        def moved(request: ProduceRequest) -> Any:
            nonlocal named
            answer = s.broker.produce(request)
            assert answer is not None
            partition = answer.responses[0].partition_responses[0]
            if partition.error_code == 6 and not named:
                named += 1
                partition.current_leader = LeaderIdAndEpoch(leader_id=2, leader_epoch=1)
                host, port = s.cluster.brokers[2].address.split(":")
                answer.node_endpoints = [NodeEndpoint(node_id=2, host=host, port=int(port))]
            return answer

        s.broker.script(ProduceRequest, *[moved] * 20)
        deliveries = [await producer.send("orders", b"%d" % i + b"x" * 60) for i in range(5)]
        s.cluster.move("orders", 0, 2)
        started = trio.current_time()
        for delivery in deliveries:
            await delivery
        assert named == 1
        assert trio.current_time() - started < 2
        assert [v[:1] for v in s.cluster.values("orders") if v] == [b"a", b"0", b"1", b"2", b"3", b"4"]


@simulated
async def test_retries_are_counted_and_bounded() -> None:
    async with scripted() as s, s.producer(enable_idempotence=False, retries=2, retry_backoff_ms=1) as producer:
        s.broker.script(ProduceRequest, *[s.broker.refuse(19)] * 3)
        with pytest.raises(KafkaError, match="orders-0"):
            await (await producer.send("orders", b"a"))
        assert len(s.produced) == 3
        assert producer.metrics()["record_retry_total"] == 2


@simulated
async def test_producer_id_is_requested_again_with_growing_back_off() -> None:
    async with scripted() as s, s.producer(linger_ms=0) as producer:
        at: list[float] = []

        def not_yet(request: InitProducerIdRequest) -> Any:
            at.append(trio.current_time())
            return InitProducerIdResponse(error_code=14, producer_id=-1, producer_epoch=-1)

        s.broker.script(InitProducerIdRequest, *[not_yet] * 5, CLOSE)
        assert (await (await producer.send("orders", b"a"))).offset == 0
        waits = [later - earlier for earlier, later in itertools.pairwise(at)]
        for wait, middle in zip(waits, [0.1, 0.2, 0.4, 0.8], strict=True):
            assert 0.8 * middle <= wait <= 1.2 * middle + 0.02
        assert len(s.broker.seen(InitProducerIdRequest)) == 7


# ---------------------------------------------------------------- time


@simulated
async def test_expired_batch_in_flight_releases_its_memory_with_the_response() -> None:
    async with (
        scripted() as s,
        s.producer(linger_ms=0, delivery_timeout_ms=2000, request_timeout_ms=2000) as producer,
    ):
        await (await producer.send("orders", b"a"))
        s.broker.script(ProduceRequest, s.broker.refuse(19), SILENCE)
        lost = await producer.send("orders", b"b")
        with pytest.raises(KafkaTimeoutError):
            await lost
        assert not memory_is_whole(producer)  # the request is still in flight, on a connection that has 100 ms left
        assert (await (await producer.send("orders", b"c"))).offset == 1
        assert memory_is_whole(producer)
        assert s.cluster.values("orders") == [b"a", b"c"]
        assert producer.metrics()["record_expired_total"] == 1


@simulated
async def test_batches_expire_in_order_of_creation_including_split_ones() -> None:
    eventsed_values: list[bytes] = []
    async with (
        scripted() as s,
        s.producer(linger_ms=50, delivery_timeout_ms=3000, request_timeout_ms=1000) as producer,
    ):
        await (await producer.send("orders", b"warm"))
        s.broker.script(ProduceRequest, s.broker.refuse(10), *[s.broker.refuse(19)] * 1000)

        def note(value: bytes) -> Any:
            return lambda metadata, error: eventsed_values.append(value)

        for number in range(4):
            await producer.send("orders", b"%d" % number, on_delivery=note(b"%d" % number))
        await trio.sleep(0.5)
        for number in range(4, 8):
            await producer.send("orders", b"%d" % number, on_delivery=note(b"%d" % number))
        await trio.sleep(10)
    assert eventsed_values == [b"%d" % number for number in range(8)]


@simulated
async def test_throttled_node_gets_no_requests_and_the_others_do() -> None:
    """KIP-219."""
    async with scripted(nodes=2, orders=2) as s, s.producer(linger_ms=0) as producer:
        s.cluster.move("orders", 1, 2)
        await producer._client.metadata_for(["orders"])
        s.broker.throttle_time_ms = 4000
        await (await producer.send("orders", b"a", partition=0))
        s.broker.throttle_time_ms = 0
        started = trio.current_time()
        held = await producer.send("orders", b"b", partition=0)
        await (await producer.send("orders", b"c", partition=1))
        assert trio.current_time() - started < 1
        await held
        assert trio.current_time() - started == pytest.approx(4, abs=0.2)
        metrics = producer.metrics()
        assert (metrics["throttle_seconds_total"], metrics["throttle_seconds_max"]) == (4, 4)


@simulated
async def test_sender_sleeps_while_a_broker_is_away_and_while_a_batch_lingers() -> None:
    async with scripted() as s, s.producer(linger_ms=5000) as producer:
        await producer.partitions_for("orders")
        steps = 0
        step = producer._sender.step

        def counted(now: float) -> float:
            nonlocal steps
            steps += 1
            return step(now)

        producer._sender.step = counted  # type: ignore[method-assign]
        started = trio.current_time()
        await (await producer.send("orders", b"a"))
        assert trio.current_time() - started == pytest.approx(5, abs=0.1)
        assert steps < 10
        port = s.broker.stop()
        steps = 0
        delivery = await producer.send("orders", b"b")
        await trio.sleep(60)
        assert 5 < steps < 500
        await s.broker.start(current_simulation().nursery, port)
        assert (await delivery).offset == 1


@simulated
async def test_two_flushes_do_not_end_each_other() -> None:
    """One flush is cancelled; the other still sends everything at once."""
    async with scripted(orders=2) as s, s.producer(linger_ms=50_000, retry_backoff_ms=1000) as producer:
        await producer.partitions_for("orders")
        s.broker.script(ProduceRequest, s.broker.refuse(19))
        await producer.send("orders", b"a", partition=0)
        started = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(producer.flush)
            with trio.move_on_after(0.1):
                await producer.flush()
            assert producer._accumulator.flushes == 1
            delivery = await producer.send("orders", b"b", partition=1)
        await delivery
        assert trio.current_time() - started < 5
        assert producer._accumulator.flushes == 0


@simulated
async def test_callback_may_send_the_next_record() -> None:
    async with scripted() as s:
        async with s.producer(linger_ms=0, buffer_memory=400, batch_size=200) as producer:
            await producer.partitions_for("orders")
            done = trio.Event()

            def then_send(number: int) -> Any:
                def callback(metadata: Any, error: Exception | None) -> None:
                    assert error is None
                    if number == 20:
                        done.set()
                    else:
                        producer.send_nowait("orders", b"%d" % number, on_delivery=then_send(number + 1))

                return callback

            await producer.send("orders", b"0", on_delivery=then_send(1))
            await done.wait()
            assert memory_is_whole(producer)
        assert s.cluster.values("orders") == [b"%d" % number for number in range(20)]


@simulated
async def test_slow_broker_is_avoided_by_records_without_key_until_it_answers() -> None:
    """KIP-794."""
    async with (
        scripted(nodes=2, orders=2) as s,
        s.producer(
            linger_ms=0,
            batch_size=200,
            partitioner_availability_timeout_ms=1000,
            request_timeout_ms=20_000,
            max_in_flight_requests_per_connection=1,
        ) as producer,
    ):
        s.cluster.move("orders", 1, 2)
        await producer._client.metadata_for(["orders"])
        s.cluster.brokers[2].script(ProduceRequest, SILENCE)
        await producer.send("orders", b"stuck", partition=1)
        await trio.sleep(0.5)
        for _ in range(4):
            await producer.send("orders", b"behind", partition=1)
            await trio.sleep(0.5)
        where = set()
        for _ in range(40):
            where.add((await producer.send("orders", b"x" * 150)).partition)
            await trio.sleep(0.01)
        assert where == {0}
        await trio.sleep(30)
        for _ in range(40):
            where.add((await producer.send("orders", b"x" * 150)).partition)
            await trio.sleep(0.01)
        assert where == {0, 1}


# ---------------------------------------------------------------- unused topics


@simulated
async def test_topics_used_once_leave_nothing_behind() -> None:
    names = [f"t{number}" for number in range(30)]
    async with (
        scripted(kept=1, **dict.fromkeys(names, 3)) as s,
        s.producer(
            linger_ms=0, metadata_max_idle_ms=5000, metadata_max_age_ms=1000, compression_type="gzip"
        ) as producer,
    ):
        for name in names:
            await (await producer.send(name, b"once", key=b"k"))
        for _ in range(20):
            await (await producer.send("kept", b"again"))
            await trio.sleep(1)
        queues = producer._accumulator.queues
        assert len(queues) == 1
        assert len(queues._ratios) == 1
        assert list(producer._topics.by_name) == ["kept"]


@simulated
async def test_topic_used_again_after_it_was_forgotten_starts_a_new_epoch() -> None:
    """Sequence numbers from 0 under the old epoch would count as duplicates, and the records would be dropped."""
    async with (
        scripted(orders=1, other=1) as s,
        s.producer(linger_ms=0, metadata_max_idle_ms=5000, metadata_max_age_ms=1000) as producer,
    ):
        for number in range(3):
            await (await producer.send("orders", b"%d" % number))
        for _ in range(20):
            await (await producer.send("other", b"x"))
            await trio.sleep(1)
        for number in range(3, 6):
            assert (await (await producer.send("orders", b"%d" % number))).offset == number
        assert s.cluster.values("orders") == [b"%d" % number for number in range(6)]
        assert epochs(s.produced)[-1] == 1
        assert producer.metrics()["epoch_bump_total"] == 1


@simulated
async def test_bound_stream_keeps_its_topic_in_use() -> None:
    async with (
        scripted(orders=1, other=1) as s,
        s.producer(linger_ms=0, metadata_max_idle_ms=5000, metadata_max_age_ms=1000) as producer,
    ):
        stream = await producer.bind("orders", 0)
        await (await stream.send(b"0"))
        for _ in range(20):
            await (await producer.send("other", b"x"))
            await trio.sleep(1)
        await (await stream.send(b"1"))
        await (await producer.send("orders", b"2", partition=0))
        assert s.cluster.values("orders") == [b"0", b"1", b"2"]
        assert producer.metrics()["epoch_bump_total"] == 0


# ---------------------------------------------------------------- closing


@simulated
async def test_leaving_needs_no_new_epoch() -> None:
    """The queues of topics that are forgotten then had sequence numbers."""
    async with scripted(orders=1, other=1) as s:
        async with s.producer(linger_ms=5000) as producer:
            await producer.send("other", b"x")
            await producer.flush()
            await producer.send("orders", b"a")
        assert producer.metrics()["epoch_bump_total"] == 0
        assert epochs(s.produced) == [0, 0]


@simulated
async def test_sends_that_wait_for_memory_are_refused_when_the_producer_is_closed() -> None:
    async with scripted() as s:
        errors: list[Exception] = []
        async with trio.open_nursery() as nursery:
            async with s.producer(
                batch_size=200,
                buffer_memory=500,
                linger_ms=0,
                request_timeout_ms=20_000,
                connections_max_silence_ms=-1,
                close_timeout_ms=60_000,
            ) as producer:
                await (await producer.send("orders", b"warm"))
                s.broker.script(ProduceRequest, SILENCE)

                async def wait_for_memory() -> None:
                    try:
                        await producer.send("orders", b"x" * 350)
                    except ClosedError as error:
                        errors.append(error)

                await producer.send("orders", b"x" * 100)
                nursery.start_soon(wait_for_memory)
                await trio.testing.wait_all_tasks_blocked()
                assert producer.metrics()["waiting_threads"] == 1
                left_at = trio.current_time()
            assert trio.current_time() - left_at > 10
        assert len(errors) == 1
        assert "nothing was accepted" in str(errors[0])
        assert len(s.cluster.values("orders")) == 2


# ---------------------------------------------------------------- hooks and metrics


class Recorder(Hooks):
    def __init__(self) -> None:
        self.events: list[Any] = []

    def on_batch_sealed(self, topic_partition: TopicPartition, records: int, size: int, compressed_size: int) -> None:
        self.events.append(("sealed", topic_partition, records, size, compressed_size))

    def on_batch_retried(self, topic_partition: TopicPartition, records: int, attempt: int, error: Exception) -> None:
        self.events.append(("retried", topic_partition, records, attempt, type(error).__name__))

    def on_batch_acknowledged(
        self, topic_partition: TopicPartition, records: int, size: int, base_offset: int, attempts: int, seconds: float
    ) -> None:
        self.events.append(("acknowledged", topic_partition, records, size, base_offset, attempts))
        assert 0 < seconds < 10

    def on_batch_failed(self, topic_partition: TopicPartition, records: int, error: Exception) -> None:
        self.events.append(("failed", topic_partition, records, type(error).__name__))


@simulated
async def test_hooks_receive_the_events_of_every_batch() -> None:
    recorder = Recorder()
    tp = TopicPartition("orders", 0)
    async with scripted() as s, s.producer(linger_ms=50, compression_type="gzip", hooks=recorder) as producer:
        s.broker.script(ProduceRequest, s.broker.refuse(19), s.broker.produce, s.broker.refuse(18))
        for _ in range(10):
            await producer.send("orders", b"x" * 100)
        await producer.flush()
        with pytest.raises(RecordListTooLargeError):
            await (await producer.send("orders", b"y"))
    [sealed, retried, acknowledged, *rest] = recorder.events
    assert sealed[:3] == ("sealed", tp, 10)
    assert sealed[3] > 1000 > 500 > sealed[4] > 61
    assert retried == ("retried", tp, 10, 1, "NotEnoughReplicasError")
    assert acknowledged == ("acknowledged", tp, 10, sealed[4], 0, 2)
    assert [event[0] for event in rest] == ["sealed", "failed"]
    assert rest[1] == ("failed", tp, 1, "RecordListTooLargeError")


@simulated
async def test_counters_add_up() -> None:
    async with scripted() as s, s.producer(linger_ms=20, compression_type="gzip") as producer:
        s.broker.script(ProduceRequest, s.broker.refuse(19), CLOSE, s.broker.produce, s.broker.refuse(18))
        for _ in range(10):
            await producer.send("orders", b"x" * 100)
        await producer.flush()
        with pytest.raises(RecordListTooLargeError):
            await (await producer.send("orders", b"y"))
        await trio.sleep(0.1)  # the sender handles the refusal the next time it runs
        metrics = producer.metrics()
        assert set(COUNTERS) <= set(metrics)
        assert {
            name: metrics[name] for name in COUNTERS if not name.endswith(("_max", "byte_total", "seconds_total"))
        } == {
            "record_send_total": 10,
            "record_error_total": 1,
            "record_expired_total": 0,
            "record_retry_total": 20,
            "batch_total": 2,
            "batch_retry_total": 2,
            "batch_split_total": 0,
            "batch_error_total": 1,
            "duplicate_batch_total": 0,
            "request_total": 4,
            "request_error_total": 1,
            "requests_in_flight": 0,
            "epoch_bump_total": 1,
            "producer_id_total": 1,
        }
        assert metrics["byte_total"] > metrics["compressed_byte_total"] > 0
        assert metrics["record_byte_total"] > 1000 > metrics["compressed_byte_total"]
        assert 0.02 <= metrics["queue_seconds_max"] <= metrics["queue_seconds_total"] < 1
        assert 0 < metrics["request_seconds_max"] <= metrics["request_seconds_total"]


@simulated
async def test_response_by_topic_id_is_matched_to_its_request_after_the_topic_was_recreated() -> None:
    """The metadata of that moment do not matter."""
    async with scripted() as s, s.producer(linger_ms=0) as producer:
        await (await producer.send("orders", b"a"))

        async def late(request: ProduceRequest) -> ProduceResponse | None:
            answer = s.broker.produce(request)
            producer._client.metadata.forget_topic("orders")
            return answer

        s.broker.script(ProduceRequest, late)
        assert (await (await producer.send("orders", b"b"))).offset == 1
        assert s.cluster.values("orders") == [b"a", b"b"]


@simulated
@pytest.mark.parametrize("idempotent", [True, False])
async def test_batch_is_repeated_over_a_new_connection_only_when_the_broker_detects_duplicates(
    idempotent: bool,
) -> None:
    """A second copy without a sequence number would be appended after the first."""
    async with scripted() as s, s.producer(linger_ms=0, enable_idempotence=idempotent) as producer:
        await (await producer.send("orders", b"warm"))

        async def slowly(request: ProduceRequest) -> Any:
            await trio.sleep(12)
            return s.broker.produce(request)

        s.broker.script(ProduceRequest, slowly)
        await (await producer.send("orders", b"late"))
        assert len(s.broker.seen(ProduceRequest)) == (3 if idempotent else 2)
