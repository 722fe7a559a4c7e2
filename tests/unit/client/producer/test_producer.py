"""The producer against a scripted broker, in virtual time."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import trio
import trio.testing

import triokafka
from tests.support.scripted_broker import CLOSE, CLOSE_AFTER, SILENCE, Raw
from tests.support.scripted_producing import scripted
from tests.support.simulated import current_simulation, simulated
from triokafka.errors import (
    BufferFullError,
    ClosedError,
    ClusterAuthorizationFailedError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    MetadataNotReadyError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from triokafka.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from triokafka.protocol.api.metadata import MetadataRequest
from triokafka.protocol.api.produce import ProduceRequest
from triokafka.records import iter_batches
from triokafka.structs import TopicPartition


@simulated
async def test_record_is_delivered_with_its_offset() -> None:
    async with scripted() as s, s.producer() as producer:
        first = await producer.send("orders", b"a", key=b"k", timestamp_ms=1234, headers=[("h", b"x"), ("n", None)])
        second = await producer.send("orders", b"b")
        metadata = await first
        assert metadata[:6] == ("orders", 0, 0, 1234, 1, 1)
        assert (await second).offset == 1
        assert await first == metadata
        record = s.cluster.log[TopicPartition("orders", 0)][0]
        assert (record.key, record.value, record.headers) == (b"k", b"a", (("h", b"x"), ("n", None)))


@simulated
async def test_entering_the_block_connects_nothing() -> None:
    async with scripted() as s:
        async with s.producer():
            await trio.sleep(10)
        assert s.broker.connection_count == 0


@simulated
async def test_leaving_the_block_sends_accepted_records() -> None:
    async with scripted() as s:
        async with s.producer(linger_ms=60_000, request_timeout_ms=1000) as producer:
            await producer.send("orders", b"a")
        assert s.cluster.values("orders") == [b"a"]


@simulated
async def test_cancelled_body_still_sends_accepted_records() -> None:
    async with scripted() as s:
        with trio.CancelScope() as scope:
            async with s.producer(linger_ms=1000) as producer:
                await producer.send("orders", b"a")
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert s.cluster.values("orders") == [b"a"]


@simulated
async def test_the_bodys_exception_leaves_as_itself_with_a_note_about_lost_records() -> None:
    async with scripted() as s:
        s.broker.script(ProduceRequest, s.broker.refuse(18))
        with pytest.raises(ValueError, match="mine") as caught:
            async with s.producer() as producer:
                await producer.send("orders", b"a")
                raise ValueError("mine")
        assert "1 records were not delivered" in caught.value.__notes__[0]


@simulated
async def test_unhandled_failures_are_raised_together_when_the_block_is_left() -> None:
    async with scripted() as s:
        s.broker.script(ProduceRequest, s.broker.refuse(18), s.broker.refuse(18))
        with pytest.raises(ExceptionGroup, match="2 records were not delivered") as caught:
            async with s.producer() as producer:
                await producer.send("orders", b"a")
                await producer.flush()
                await producer.send("orders", b"b")
        assert [type(error) for error in caught.value.exceptions] == [RecordListTooLargeError] * 2


@simulated
async def test_awaited_failure_is_raised_only_by_the_await() -> None:
    async with scripted() as s:
        s.broker.script(ProduceRequest, s.broker.refuse(18))
        async with s.producer() as producer:
            delivery = await producer.send("orders", b"a")
            with pytest.raises(RecordListTooLargeError, match="orders-0"):
                await delivery


@simulated
async def test_failure_passed_to_a_callback_is_not_raised_again() -> None:
    calls: list[Any] = []
    async with scripted() as s:
        s.broker.script(ProduceRequest, s.broker.refuse(18))
        async with s.producer() as producer:
            await producer.send("orders", b"a", on_delivery=lambda *args: calls.append(args))
    [(metadata, error)] = calls
    assert metadata is None
    assert isinstance(error, RecordListTooLargeError)


@simulated
async def test_callbacks_run_in_the_order_of_their_records_and_one_that_raises_stops_no_other() -> None:
    calls: list[int] = []

    def callback(metadata: Any, error: Any) -> None:
        calls.append(metadata.offset)
        if metadata.offset == 1:
            raise RuntimeError("a bad callback")

    async with scripted() as s:
        async with s.producer(on_delivery=callback) as producer:
            for i in range(4):
                await producer.send("orders", b"%d" % i)
        assert calls == [0, 1, 2, 3]


@simulated
async def test_linger_collects_records_into_one_request() -> None:
    async with scripted() as s:
        async with s.producer(linger_ms=100) as producer:
            await producer.send("orders", b"warm")
            await producer.flush()
            for i in range(5):
                await producer.send("orders", b"%d" % i)
                await trio.sleep(0.01)
            await trio.sleep(1)
            assert len(s.broker.seen(ProduceRequest)) == 2
        assert s.cluster.values("orders") == [b"warm", b"0", b"1", b"2", b"3", b"4"]


@simulated
async def test_flush_sends_at_once_and_waits_for_the_answers() -> None:
    async with scripted() as s, s.producer(linger_ms=50_000) as producer:
        delivery = await producer.send("orders", b"a")
        started = trio.current_time()
        await producer.flush()
        assert delivery.done
        assert trio.current_time() - started < 10


@simulated
async def test_full_batch_is_sent_without_waiting_for_linger() -> None:
    async with scripted() as s, s.producer(linger_ms=50_000, batch_size=1000) as producer:
        for _ in range(3):
            await producer.send("orders", b"x" * 400)
        await s.broker.wait_for(ProduceRequest)
        await trio.sleep(1)
        assert len(s.cluster.values("orders")) == 2


@simulated
async def test_record_larger_than_a_batch_is_sent_alone() -> None:
    async with scripted() as s, s.producer(batch_size=100) as producer:
        assert (await (await producer.send("orders", b"x" * 5000))).offset == 0


@simulated
async def test_record_larger_than_max_request_size_is_refused_and_nothing_is_buffered() -> None:
    async with scripted() as s, s.producer(max_request_size=1000) as producer:
        with pytest.raises(MessageSizeTooLargeError, match="max_request_size=1000"):
            await producer.send("orders", b"x" * 2000)
        assert producer.metrics()["buffer_available_bytes"] == producer.metrics()["buffer_total_bytes"]
        assert (await (await producer.send("orders", b"x" * 500))).offset == 0


@pytest.mark.parametrize("code", [2, 3, 5, 6, 7, 13, 19, 20, 56])
@simulated
async def test_retriable_error_is_retried_until_it_works(code: int) -> None:
    async with scripted() as s, s.producer() as producer:
        s.broker.script(ProduceRequest, s.broker.refuse(code), s.broker.refuse(code))
        delivery = await producer.send("orders", b"a")
        assert (await delivery).offset == 0
        assert len(s.broker.seen(ProduceRequest)) == 3
        assert producer.metrics()["record_retry_total"] == 2


@simulated
async def test_partitions_of_one_request_succeed_and_fail_independently() -> None:
    async with scripted(orders=2) as s, s.producer(linger_ms=100) as producer:
        s.broker.script(ProduceRequest, s.broker.refuse(18, 1))
        good = await producer.send("orders", b"a", partition=0)
        bad = await producer.send("orders", b"b", partition=1)
        assert (await good).offset == 0
        with pytest.raises(RecordListTooLargeError):
            await bad
        assert len(s.broker.seen(ProduceRequest)) == 1


@simulated
async def test_stale_metadata_error_triggers_a_metadata_refresh_and_the_new_leader_is_used() -> None:
    async with scripted(nodes=2) as s, s.producer() as producer:
        await (await producer.send("orders", b"a"))
        s.cluster.move("orders", 0, 2)
        assert (await (await producer.send("orders", b"b"))).offset == 1
        assert len(s.cluster.brokers[2].seen(ProduceRequest)) == 1


@simulated
async def test_new_leader_in_the_error_response_is_used_without_back_off() -> None:
    """KIP-951."""
    from triokafka.protocol.api.produce import LeaderIdAndEpoch, NodeEndpoint

    async with scripted(nodes=2) as s, s.producer(retry_backoff_ms=1000, retry_backoff_max_ms=1000) as producer:
        await (await producer.send("orders", b"a"))
        s.cluster.move("orders", 0, 2)

        def moved(request: ProduceRequest) -> Any:
            answer = s.broker.produce(request)
            assert answer is not None
            answer.responses[0].partition_responses[0].current_leader = LeaderIdAndEpoch(leader_id=2, leader_epoch=1)
            host, port = s.cluster.brokers[2].address.split(":")
            answer.node_endpoints = [NodeEndpoint(node_id=2, host=host, port=int(port))]
            return answer

        s.broker.script(ProduceRequest, moved)
        started = trio.current_time()
        assert (await (await producer.send("orders", b"b"))).offset == 1
        assert trio.current_time() - started < 0.5


@pytest.mark.parametrize("fault", [CLOSE, CLOSE_AFTER])
@simulated
async def test_connection_lost_with_a_request_in_flight_loses_and_repeats_nothing(fault: object) -> None:
    async with scripted() as s:
        async with s.producer(linger_ms=0, batch_size=200) as producer:
            s.broker.script(ProduceRequest, fault)
            deliveries = [await producer.send("orders", b"%03d" % i + b"x" * 50) for i in range(20)]
            offsets = [(await delivery).offset for delivery in deliveries]
        assert [value[:3] for value in s.cluster.values("orders") if value] == [b"%03d" % i for i in range(20)]
        assert all(offset in (-1, i) for i, offset in enumerate(offsets))


@simulated
async def test_silent_broker_ends_the_connection_after_the_request_timeout() -> None:
    async with scripted() as s, s.producer(request_timeout_ms=2000) as producer:
        s.broker.script(ProduceRequest, SILENCE)
        delivery = await producer.send("orders", b"a")
        started = trio.current_time()
        assert (await delivery).offset == 0
        assert 2 <= trio.current_time() - started < 4
        assert s.cluster.values("orders") == [b"a"]


@pytest.mark.parametrize(
    "nonsense",
    [Raw(b"\x00\x00\x00\x04\x7f\xff\xff\xff"), Raw(b"\x00\x00\x00\x02\x00\x00"), Raw(b"\xff\xff\xff\xff")],
    ids=["unknown correlation id", "too short", "negative size"],
)
@simulated
async def test_malformed_response_ends_the_connection_and_loses_no_record(nonsense: Raw) -> None:
    async with scripted() as s, s.producer() as producer:
        s.broker.script(ProduceRequest, nonsense)
        assert (await (await producer.send("orders", b"a"))).offset == 0
        assert s.broker.connection_count >= 2


@simulated
async def test_response_without_the_partition_is_retried() -> None:
    from triokafka.protocol.api.produce import ProduceResponse

    async with scripted() as s, s.producer() as producer:
        s.broker.script(ProduceRequest, ProduceResponse(responses=[]))
        assert (await (await producer.send("orders", b"a"))).offset == 0


@simulated
async def test_undelivered_record_fails_after_the_delivery_timeout() -> None:
    async with scripted() as s, s.producer(delivery_timeout_ms=5000, request_timeout_ms=1000) as producer:
        await (await producer.send("orders", b"a"))
        port = s.broker.stop()
        started = trio.current_time()
        delivery = await producer.send("orders", b"b")
        with pytest.raises(KafkaTimeoutError, match="delivery_timeout_ms"):
            await delivery
        assert trio.current_time() - started == pytest.approx(5, abs=0.5)
        assert producer.metrics()["buffer_available_bytes"] == producer.metrics()["buffer_total_bytes"]
        await s.broker.start(current_simulation().nursery, port)
        assert (await (await producer.send("orders", b"c"))).offset == 1


@simulated
async def test_close_timeout_holds_when_no_broker_answers() -> None:
    async with scripted() as s:
        started = trio.current_time()
        with pytest.raises(ExceptionGroup, match="1 records were not delivered") as caught:
            async with s.producer(close_timeout_ms=3000) as producer:
                await producer.partitions_for("orders")
                s.broker.stop()
                await producer.send("orders", b"a")
        assert trio.current_time() - started == pytest.approx(3, abs=0.5)
        assert "close_timeout_ms=3000" in str(caught.value.exceptions[0])


@simulated
async def test_acks_0_completes_when_written_and_has_no_offset() -> None:
    async with scripted() as s:
        async with s.producer(acks=0) as producer:
            metadata = await (await producer.send("orders", b"a"))
            assert metadata.offset == -1
            await s.broker.wait_for(ProduceRequest)
        assert s.cluster.values("orders") == [b"a"]


@simulated
async def test_unknown_topic_is_an_error_after_max_block_ms() -> None:
    async with scripted() as s, s.producer(max_block_ms=3000) as producer:
        started = trio.current_time()
        with pytest.raises(UnknownTopicOrPartitionError, match="'nope' does not exist"):
            await producer.send("nope", b"a")
        assert trio.current_time() - started == pytest.approx(3, abs=0.2)


@simulated
async def test_topic_that_is_created_meanwhile_is_found() -> None:
    async with scripted() as s, s.producer() as producer, trio.open_nursery() as nursery:

        async def create_later() -> None:
            await trio.sleep(2)
            s.cluster.topics["late"] = 1

        nursery.start_soon(create_later)
        assert (await (await producer.send("late", b"a"))).offset == 0


@simulated
async def test_unauthorized_topic_is_an_error_at_once() -> None:
    async with scripted() as s, s.producer() as producer:
        s.cluster.topic_errors["orders"] = 29
        started = trio.current_time()
        with pytest.raises(TopicAuthorizationFailedError, match="orders"):
            await producer.send("orders", b"a")
        assert trio.current_time() - started < 1


@simulated
async def test_unknown_partition_is_refused_after_a_metadata_refresh() -> None:
    async with scripted() as s, s.producer() as producer:
        await producer.send("orders", b"a")
        before = len(s.broker.seen(MetadataRequest))
        with pytest.raises(UnknownTopicOrPartitionError, match="has no partition 7"):
            await producer.send("orders", b"a", partition=7)
        assert len(s.broker.seen(MetadataRequest)) == before + 1
        s.cluster.topics["orders"] = 8
        assert (await (await producer.send("orders", b"a", partition=7))).partition == 7


@simulated
async def test_unreachable_broker_is_named_with_every_address_tried() -> None:
    async with scripted() as s:
        s.broker.stop()
        async with s.producer(max_block_ms=2000) as producer:
            with pytest.raises(KafkaTimeoutError, match=rf"{s.address}.*refused"):
                await producer.send("orders", b"a")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"value": "text"}, "the value is a str, not bytes"),
        ({"value": b"v", "key": 7}, "the key is a int, not bytes"),
        ({"value": b"v", "headers": [("h", "text")]}, "headers are pairs"),
        ({"value": b"v", "headers": [b"h"]}, "headers are pairs"),
    ],
)
@simulated
async def test_non_bytes_arguments_are_refused_by_name(arguments: dict[str, Any], message: str) -> None:
    async with scripted() as s, s.producer(linger_ms=1000) as producer:
        for _ in range(2):  # with and without an open batch
            with pytest.raises(TypeError, match=message):
                await producer.send("orders", **arguments)
            with pytest.raises(TypeError, match=message):
                producer.send_nowait("orders", **arguments)
            await producer.send("orders", b"good")
        await producer.flush()
        assert s.cluster.values("orders") == [b"good", b"good"]


@simulated
async def test_header_name_that_is_not_a_string_is_refused_before_a_batch_is_opened() -> None:
    async with scripted() as s, s.producer() as producer:
        with pytest.raises(UnicodeEncodeError):
            await producer.send("orders", b"a", headers=[("\ud800", b"x")])
        assert (await (await producer.send("orders", b"a"))).offset == 0


@simulated
async def test_negative_timestamp_and_partition_are_refused() -> None:
    async with scripted() as s, s.producer() as producer:
        with pytest.raises(ValueError, match="timestamp_ms=-5"):
            await producer.send("orders", b"a", timestamp_ms=-5)
        with pytest.raises(ValueError, match="partition=-1"):
            await producer.send("orders", b"a", partition=-1)


@simulated
async def test_sending_outside_of_the_block_is_refused() -> None:
    async with scripted() as s:
        producer = s.producer()
        with pytest.raises(ClosedError):
            await producer.send("orders", b"a")
        async with producer:
            stream = await producer.bind("orders", 0)
            await stream.send(b"a")
        for call in (producer.send("orders", b"a"), stream.send(b"a"), producer.flush()):
            with pytest.raises(ClosedError):
                await call
        with pytest.raises(ClosedError):
            producer.send_nowait("orders", b"a")


@simulated
async def test_send_nowait_without_metadata_requests_them_and_raises() -> None:
    async with scripted() as s, s.producer() as producer:
        with pytest.raises(MetadataNotReadyError):
            producer.send_nowait("orders", b"a")
        await producer.partitions_for("orders")
        assert (await producer.send_nowait("orders", b"a")).offset == 0


@simulated
async def test_send_nowait_refuses_when_the_buffer_is_full() -> None:
    async with scripted() as s, s.producer(buffer_memory=3000, batch_size=1000) as producer:
        await producer.partitions_for("orders")
        sent = 0
        with pytest.raises(BufferFullError, match="buffer_memory=3000"):
            for _ in range(100):
                producer.send_nowait("orders", b"x" * 500)
                sent += 1
        await producer.flush()
        assert len(s.cluster.values("orders")) == sent


@simulated
async def test_idempotent_producer_numbers_records_through_retries() -> None:
    async with scripted() as s, s.producer(linger_ms=0, batch_size=150) as producer:
        s.broker.script(ProduceRequest, s.broker.refuse(7), CLOSE_AFTER, s.broker.refuse(19))
        for i in range(30):
            await producer.send("orders", b"%02d" % i + b"x" * 40)
        await producer.flush()
        assert [v[:2] for v in s.cluster.values("orders") if v] == [b"%02d" % i for i in range(30)]


@simulated
async def test_lost_producer_state_starts_a_new_epoch() -> None:
    """The errors are UNKNOWN_PRODUCER_ID, and a sequence that the broker forgot (KIP-360)."""
    async with scripted() as s, s.producer(linger_ms=0) as producer:
        await (await producer.send("orders", b"a"))
        s.broker.script(ProduceRequest, s.broker.refuse(59))
        await (await producer.send("orders", b"b"))
        s.cluster.sequences.clear()
        await (await producer.send("orders", b"c"))
        assert s.cluster.values("orders") == [b"a", b"b", b"c"]


@simulated
async def test_record_refused_permanently_does_not_stop_those_behind_it() -> None:
    async with scripted() as s, s.producer(linger_ms=0, batch_size=100) as producer:
        await (await producer.send("orders", b"a"))
        s.broker.script(ProduceRequest, s.broker.refuse(18))
        deliveries = [await producer.send("orders", b"%d" % i + b"x" * 60) for i in range(5)]
        with pytest.raises(RecordListTooLargeError):
            await deliveries[0]
        for delivery in deliveries[1:]:
            await delivery
        assert [v[:1] for v in s.cluster.values("orders")[1:] if v] == [b"1", b"2", b"3", b"4"]


@simulated
async def test_refused_producer_id_fails_the_producer_and_all_its_records() -> None:
    async with scripted() as s:
        s.broker.script(InitProducerIdRequest, InitProducerIdResponse(error_code=31, producer_id=-1, producer_epoch=0))
        async with s.producer() as producer:
            delivery = await producer.send("orders", b"a")
            with pytest.raises(ClusterAuthorizationFailedError):
                await delivery
            with pytest.raises(ClusterAuthorizationFailedError):
                await producer.send("orders", b"b")
            with pytest.raises(ClusterAuthorizationFailedError):
                await producer.flush()


@simulated
async def test_broker_without_producer_ids_is_served_without_idempotence() -> None:
    async with scripted() as s:
        del s.broker.api_versions[22]
        async with s.producer() as producer:
            assert (await (await producer.send("orders", b"a"))).offset == 0
        async with s.producer(enable_idempotence=True) as producer:
            delivery = await producer.send("orders", b"a")
            with pytest.raises(KafkaError, match="InitProducerId"):
                await delivery


@simulated
async def test_too_large_batch_is_split_and_keeps_its_order() -> None:
    """KIP-126."""
    async with scripted() as s, s.producer(linger_ms=100) as producer:

        def at_most_five(request: ProduceRequest) -> Any:
            from triokafka.records import iter_batches

            [batch] = iter_batches(request.topic_data[0].partition_data[0].records or b"")
            return s.broker.produce(request, {0: 10} if batch.record_count > 5 else None)

        s.broker.script(ProduceRequest, *[at_most_five] * 50)
        deliveries = [await producer.send("orders", b"%02d" % i) for i in range(20)]
        offsets = [(await delivery).offset for delivery in deliveries]
        assert offsets == list(range(20))
        assert s.cluster.values("orders") == [b"%02d" % i for i in range(20)]
        assert producer.metrics()["buffer_available_bytes"] == producer.metrics()["buffer_total_bytes"]


@simulated
async def test_single_record_that_is_too_large_for_the_broker_fails() -> None:
    async with scripted() as s, s.producer() as producer:
        s.broker.script(ProduceRequest, s.broker.refuse(10))
        with pytest.raises(MessageSizeTooLargeError):
            await (await producer.send("orders", b"a"))


@simulated
async def test_errors_of_single_records_reach_their_deliveries() -> None:
    """KIP-467."""
    from triokafka.errors import InvalidRecordError
    from triokafka.protocol.api.produce import BatchIndexAndErrorMessage

    async with scripted() as s, s.producer(linger_ms=100) as producer:

        def second_is_bad(request: ProduceRequest) -> Any:
            answer = s.broker.produce(request, {0: 87})
            assert answer is not None
            partition = answer.responses[0].partition_responses[0]
            partition.error_message = "one record was bad"
            partition.record_errors = [BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="no key")]
            return answer

        s.broker.script(ProduceRequest, second_is_bad)
        first, second = [await producer.send("orders", value) for value in (b"a", b"b")]
        with pytest.raises(InvalidRecordError, match="no key"):
            await second
        with pytest.raises(InvalidRecordError, match="one record was bad"):
            await first


@simulated
async def test_throttled_producer_waits_as_long_as_the_broker_asked() -> None:
    """KIP-219."""
    async with scripted() as s, s.producer(linger_ms=0) as producer:
        s.broker.throttle_time_ms = 3000
        await (await producer.send("orders", b"a"))
        s.broker.throttle_time_ms = 0
        started = trio.current_time()
        await (await producer.send("orders", b"b"))
        assert trio.current_time() - started == pytest.approx(3, abs=0.2)


@simulated
async def test_bound_stream_sends_to_its_partition() -> None:
    async with scripted(orders=3) as s, s.producer() as producer:
        stream = await producer.bind("orders", partition=2)
        first = await stream.send(b"a")
        second = stream.send_nowait(b"b", key=b"k")
        assert (await first).partition == 2
        assert (await second).offset == 1
        with pytest.raises(UnknownTopicOrPartitionError):
            await producer.bind("orders", 3)


@simulated
async def test_serializers_are_not_called_for_none() -> None:
    async with scripted() as s:
        async with s.producer(key_serializer=str.encode, value_serializer=lambda v: b"%d" % v) as producer:
            await producer.send("orders", 42, key="k")
            await producer.send("orders", None, key="k")
        assert [(r.key, r.value) for r in s.cluster.log[TopicPartition("orders", 0)]] == [(b"k", b"42"), (b"k", None)]


@simulated
async def test_serializer_that_does_not_return_bytes_is_named() -> None:
    async with scripted() as s, s.producer(value_serializer=str.upper) as producer:
        with pytest.raises(TypeError, match=r"value_serializer.*returned a str"):
            await producer.send("orders", "text")


@simulated
async def test_keyed_records_go_to_javas_partitions() -> None:
    async with scripted(orders=10) as s, s.producer() as producer:
        delivery = await producer.send("orders", b"a", key=b"foobar")
        assert (await delivery).partition == (-790332482 & 0x7FFFFFFF) % 10


@simulated
async def test_keyless_records_stick_to_a_partition_per_batch_and_reach_all() -> None:
    """KIP-480, KIP-794."""
    async with scripted(orders=4) as s:
        async with s.producer(batch_size=2000, linger_ms=10) as producer:
            for _ in range(400):
                await producer.send("orders", b"x" * 100)
        counts = [len(s.cluster.values("orders", partition)) for partition in range(4)]
        assert sum(counts) == 400
        assert min(counts) >= 50
        assert len(s.broker.seen(ProduceRequest)) < 40


async def _send_from_two_tasks(producer: triokafka.Producer) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(producer.send, "orders", b"x" * 20)


@simulated
async def test_two_tasks_that_find_the_batch_full_share_the_next_one() -> None:
    async with scripted() as s, s.producer(batch_size=200, linger_ms=100) as producer:
        await producer.send("orders", b"x" * 125)
        await trio.sleep(0.01)  # enough time since the last yield that both yield before they open a batch
        await _send_from_two_tasks(producer)
        await producer.flush()
        assert len(s.broker.seen(ProduceRequest)) == 2


@simulated
async def test_two_tasks_that_wait_for_memory_share_one_batch_and_release_the_rest() -> None:
    async with scripted() as s, s.producer(batch_size=200, buffer_memory=400, linger_ms=10_000) as producer:
        for _ in range(2):
            await producer.send("orders", b"x" * 130)
        await _send_from_two_tasks(producer)
        await producer.flush()
        assert [len(list(iter_batches(r.topic_data[0].partition_data[0].records))) for r in s.produced] == [1, 1, 1]
        assert producer.metrics()["buffer_available_bytes"] == 400


@simulated
async def test_large_record_that_waited_for_memory_does_not_wait_again_behind_small_ones() -> None:
    """The batch that the small records opened meanwhile is closed, and the memory is used for the next one."""
    async with (
        scripted(orders=2) as s,
        s.producer(batch_size=400, buffer_memory=800, linger_ms=0, enable_idempotence=False) as producer,
        trio.open_nursery() as nursery,
    ):
        await producer.partitions_for("orders")
        done: dict[str, float] = {}
        started = trio.current_time()

        async def send(name: str, size: int, partition: int) -> None:
            await producer.send("orders", b"x" * size, partition=partition)
            done[name] = trio.current_time() - started

        def after(seconds: float, throttle_time_ms: int) -> Any:
            async def answer(request: ProduceRequest) -> Any:
                await trio.sleep(seconds)
                response = s.broker.produce(request)
                assert response is not None
                response.throttle_time_ms = throttle_time_ms
                return response

            return answer

        s.broker.script(ProduceRequest, after(1, 5000), after(1, 0))
        for partition in range(2):
            await send("first", 200, partition)
            await trio.sleep(0.1)
        for name, size, partition in (("small", 10, 0), ("large", 300, 0), ("behind", 10, 1)):
            nursery.start_soon(send, name, size, partition)
            await trio.testing.wait_all_tasks_blocked()
    assert 1 < done["small"] < 2 < done["large"] < 3 < 5 < done["behind"]


@simulated
async def test_open_batch_takes_records_while_another_send_waits_for_memory() -> None:
    async with scripted(orders=2) as s, s.producer(batch_size=200, buffer_memory=500, linger_ms=10_000) as producer:
        s.broker.script(ProduceRequest, SILENCE)
        await producer.send("orders", b"small", partition=0)
        async with trio.open_nursery() as nursery:

            async def large() -> None:
                await producer.send("orders", b"x" * 400, partition=1)

            nursery.start_soon(large)
            await trio.testing.wait_all_tasks_blocked()
            with trio.fail_after(0.001):
                await producer.send("orders", b"small too", partition=0)
        await producer.flush()
        assert s.cluster.values("orders", 0) == [b"small", b"small too"]


@simulated
async def test_bug_in_the_sender_fails_pending_and_later_calls() -> None:
    """Nothing hangs, and the body is not cancelled."""
    async with (
        scripted() as s,
        s.producer(linger_ms=1000, batch_size=200, buffer_memory=200, max_block_ms=1e6) as producer,
    ):
        await producer.partitions_for("orders")
        delivery = await producer.send("orders", b"x" * 100)
        errors: list[str] = []

        async def expect_failure(topic: str) -> None:
            with pytest.raises(KafkaError) as caught:
                await producer.send(topic, b"x" * 100)
            errors.append(str(caught.value))

        def broken(now: float) -> float:
            raise RuntimeError("a bug")

        async with trio.open_nursery() as nursery:
            producer._sender.step = broken  # type: ignore[method-assign]
            nursery.start_soon(expect_failure, "orders")  # waits for memory
            nursery.start_soon(expect_failure, "unknown")  # waits for metadata
        assert errors == ["a background task of the producer failed: RuntimeError('a bug')"] * 2
        with pytest.raises(KafkaError, match="a bug"):
            await delivery
        with pytest.raises(KafkaError, match="a bug"):
            await producer.flush()
        with pytest.raises(KafkaError, match="a bug"):
            producer.send_nowait("orders", b"y")


@simulated
async def test_bug_in_handling_an_answer_fails_the_producer_instead_of_hanging() -> None:
    async with scripted() as s, s.producer() as producer:

        def broken(*args: Any) -> None:
            raise RuntimeError("a bug")

        producer._sender._answers.answered = broken  # type: ignore[assignment, method-assign]
        delivery = await producer.send("orders", b"a")
        with pytest.raises(KafkaError, match="a bug"):
            await delivery


class _Recorder(triokafka.ProducerInterceptor):
    def __init__(self) -> None:
        self.told: list[Any] = []

    def on_send(self, record: triokafka.ProducerRecord) -> triokafka.ProducerRecord | None:
        if record.value == b"drop":
            return None
        if record.value == b"raise":
            raise RuntimeError("a bad interceptor")
        return dataclasses.replace(record, value=(record.value or b"") + b"!")

    def on_acknowledgement(self, metadata: Any, error: Exception | None) -> None:
        self.told.append((metadata and metadata.offset, error and type(error).__name__))
        raise RuntimeError("a bad interceptor")

    def on_send_error(self, record: triokafka.ProducerRecord, error: Exception) -> None:
        self.told.append((record.value, type(error).__name__))

    def close(self) -> None:
        self.told.append("closed")


@simulated
async def test_interceptors_change_drop_and_observe_records_and_their_errors_break_nothing() -> None:
    recorder = _Recorder()
    async with scripted() as s:
        async with s.producer(interceptors=[recorder, recorder], max_request_size=1000) as producer:
            await (await producer.send("orders", b"a"))
            await (await producer.send("orders", b"raise"))
            dropped = await producer.send("orders", b"drop")
            assert dropped.done
            assert (await dropped)[:4] == ("orders", -1, -1, -1)
            with pytest.raises(MessageSizeTooLargeError):
                await producer.send("orders", b"x" * 2000)
        assert s.cluster.values("orders") == [b"a!!", b"raise"]
    assert recorder.told[:4] == [(0, None)] * 2 + [(1, None)] * 2
    assert [metadata_calls[1] for metadata_calls in recorder.told[4:6]] == ["MessageSizeTooLargeError"] * 2
    assert recorder.told[6:] == ["closed", "closed"]


class _ByLength(triokafka.Partitioner):
    def __init__(self) -> None:
        self.batches: list[tuple[str, int]] = []

    def partition(self, topic: str, key: Any, value: Any, partitions: Any, available: Any) -> int:
        return len(value) if len(value) < 50 else 99

    def on_new_batch(self, topic: str, partition: int) -> None:
        self.batches.append((topic, partition))


@simulated
async def test_partition_of_the_users_partitioner_must_exist() -> None:
    partitioner = _ByLength()
    async with scripted(orders=4) as s, s.producer(partitioner=partitioner) as producer:
        assert (await (await producer.send("orders", b"xxx", key=b"k"))).partition == 3
        assert (await (await producer.send("orders", b"xxx", partition=1))).partition == 1
        assert partitioner.batches == [("orders", 3), ("orders", 1)]
        with pytest.raises(ValueError, match="chose partition 99 of 'orders', which has 4"):
            await producer.send("orders", b"x" * 60)


@simulated
async def test_topic_deleted_while_sending_fails_its_records_and_no_others() -> None:
    async with (
        scripted(orders=1, other=1) as s,
        s.producer(delivery_timeout_ms=3000, request_timeout_ms=1000) as producer,
    ):
        await (await producer.send("orders", b"a"))
        del s.cluster.topics["orders"]
        s.broker.script(ProduceRequest, s.broker.refuse(3))
        lost = await producer.send("orders", b"b")
        other = await producer.send("other", b"c")
        assert (await other).offset == 0
        with pytest.raises(KafkaTimeoutError):
            await lost
        assert producer.metrics()["buffer_available_bytes"] == producer.metrics()["buffer_total_bytes"]


@simulated
async def test_memory_stays_bounded_while_the_broker_is_silent_and_nothing_is_lost() -> None:
    async with scripted() as s:
        async with s.producer(buffer_memory=20_000, batch_size=1000, request_timeout_ms=5000, linger_ms=0) as producer:
            await (await producer.send("orders", b"warm"))
            s.broker.script(ProduceRequest, *[SILENCE] * 3)
            with trio.move_on_after(12):
                for i in range(10_000):
                    await producer.send("orders", b"%06d" % i + b"x" * 100)
            assert producer._accumulator.pool.in_use <= 20_000
            sent = producer.metrics()["record_send_total"]
        values = [value[:6] for value in s.cluster.values("orders")[1:] if value]
        assert values == [b"%06d" % i for i in range(len(values))]
        assert len(values) >= sent - 1
