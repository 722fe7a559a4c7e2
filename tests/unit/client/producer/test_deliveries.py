"""The results and errors of deliveries."""

from __future__ import annotations

import pytest
import trio

import triokafka
from tests.support.scripted_producing import scripted
from tests.support.simulated import simulated
from triokafka.errors import MetadataNotReadyError, RecordListTooLargeError
from triokafka.protocol.api.produce import ProduceRequest


@simulated
async def test_delivery_counts_the_attempts_and_the_time_from_its_own_send() -> None:
    async with scripted() as s, s.producer(linger_ms=50, retry_backoff_ms=100, retry_backoff_max_ms=100) as producer:
        await (await producer.send("orders", b"first of all"))
        s.broker.script(ProduceRequest, s.broker.refuse(19))
        early = await producer.send("orders", b"early")
        await trio.sleep(0.020)
        late = await producer.send("orders", b"late", timestamp_ms=5)
        later = producer.send_nowait("orders", b"later")
        metadata_of_all = [await delivery for delivery in (early, late, later)]
        assert [metadata.attempts for metadata in metadata_of_all] == [2, 2, 2]
        assert metadata_of_all[0].latency_ms - metadata_of_all[1].latency_ms == pytest.approx(20)
        assert metadata_of_all[1].latency_ms == pytest.approx(metadata_of_all[2].latency_ms)
        # the rest of the linger time, the back-off, two round trips
        assert 30 + 80 < metadata_of_all[1].latency_ms < 30 + 120 + 20
        again = await (await producer.send("orders", b"again"))
        assert again.attempts == 1
        assert 50 <= again.latency_ms < 60


@simulated
async def test_callback_gets_the_same_metadata_as_the_awaiting_task() -> None:
    calls: list[object] = []
    async with scripted() as s, s.producer() as producer:
        delivery = await producer.send("orders", b"v", key=b"k", on_delivery=lambda *args: calls.append(args))
        metadata = await delivery
        assert calls == [(metadata, None)]
        assert metadata.latency_ms > 0


@simulated
async def test_record_of_send_nowait_has_deliveries_of_one_part() -> None:
    async with scripted() as s, s.producer() as producer:
        with pytest.raises(MetadataNotReadyError):
            producer.send_nowait_as_deliveries("orders", b"v")
        await producer.partitions_for("orders")
        deliveries = producer.send_nowait_as_deliveries("orders", b"v", key=b"k", partition=0, timestamp_ms=5)
        assert [part.positions for part in deliveries.parts()] == [range(0, 1)]
        assert await deliveries == {triokafka.TopicPartition("orders", 0): (0, 0)}
        assert [(await delivery).timestamp for delivery in deliveries] == [5]


@simulated
async def test_record_of_send_nowait_is_written_before_the_call_returns() -> None:
    """This holds even if the sender has other work then, and while it waits for a linger time."""
    for linger_ms, on_their_way in ((0, [1, 2]), (50, [0, 0])):
        async with scripted() as s, s.producer(linger_ms=linger_ms) as producer:
            await (await producer.send("orders", b"first"))
            await trio.sleep(1)
            sent, found = [], []
            for value in (b"a", b"b"):
                sent.append(producer.send_nowait_as_deliveries("orders", value))
                found.append(producer.metrics()["requests_in_flight"])
            assert found == on_their_way
            for number, deliveries in enumerate(sent, 1):
                assert await deliveries == {triokafka.TopicPartition("orders", 0): (number, number)}


@simulated
async def test_failure_that_many_records_share_is_raised_as_one() -> None:
    """This holds even if each was sent alone because of an interceptor."""
    for interceptors in ([], [triokafka.ProducerInterceptor()]):
        async with scripted() as s, s.producer(linger_ms=10, interceptors=interceptors) as producer:
            s.broker.script(ProduceRequest, s.broker.refuse(18))
            deliveries = await producer.send_many("orders", [b"a", b"b", b"c"])
            with pytest.raises(RecordListTooLargeError, match="3 records for orders-0"):
                await deliveries


@simulated
async def test_each_task_that_awaits_a_failure_has_an_error_of_its_own() -> None:
    errors: list[Exception] = []
    async with scripted() as s, s.producer(linger_ms=10) as producer:
        s.broker.script(ProduceRequest, s.broker.refuse(18))
        one = await producer.send("orders", b"a")
        many = await producer.send_many("orders", [b"b", b"c"])

        async def wait(delivery: triokafka.Delivery | triokafka.Deliveries) -> None:
            try:
                await delivery
            except RecordListTooLargeError as error:
                errors.append(error)

        async with trio.open_nursery() as nursery:
            for delivery in (one, one, many, many):
                nursery.start_soon(wait, delivery)
    assert len({id(error) for error in errors}) == 4
    assert len({str(error) for error in errors}) == 1
