"""Delivery callbacks: when they run, what they may do, and how their exceptions are handled."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import triokafka
from tests.support.scripted_broker import SILENCE
from tests.support.scripted_producing import memory_is_whole, scripted
from tests.support.simulated import simulated
from triokafka.errors import BufferFullError, ClosedError, KafkaTimeoutError, RecordListTooLargeError
from triokafka.protocol.api.produce import ProduceRequest
from triokafka.structs import RecordMetadata


class OutcomeOfATest(BaseException):
    """An exception that is no `Exception`, like pytest's own outcomes."""


@simulated
async def test_each_record_has_one_call_with_metadata_or_error() -> None:
    calls: list[Any] = []
    async with scripted(orders=2) as s, s.producer(linger_ms=10) as producer:
        s.broker.script(ProduceRequest, s.broker.refuse(18, 1))
        for number in range(6):
            await producer.send("orders", b"v", partition=number % 2, on_delivery=lambda *args: calls.append(args))
        await producer.flush()
    good, bad = [one for one in calls if one[1] is None], [one for one in calls if one[0] is None]
    assert [(metadata.partition, metadata.offset) for metadata, _ in good] == [(0, 0), (0, 1), (0, 2)]
    assert [type(error) for _, error in bad] == [RecordListTooLargeError] * 3


@simulated
async def test_callbacks_run_before_awaiting_tasks_continue() -> None:
    order: list[str] = []
    async with scripted() as s, s.producer() as producer:
        delivery = await producer.send("orders", b"v", on_delivery=lambda *_: order.append("callback"))
        assert not delivery.done
        await delivery
        order.append("awaited")
    assert order == ["callback", "awaited"]


@simulated
async def test_callback_added_late_is_called_at_once() -> None:
    async with scripted() as s, s.producer() as producer:
        delivery = await producer.send("orders", b"v")
        metadata = await delivery
        calls: list[Any] = []
        delivery.add_callback(lambda *args: calls.append(args))
        assert calls == [(metadata, None)]


@simulated
async def test_callback_of_a_record_replaces_the_producers_in_every_send_method() -> None:
    calls: list[tuple[str, int]] = []

    def own(metadata: RecordMetadata | None, _: Exception | None) -> None:
        assert metadata is not None
        calls.append(("own", metadata.offset))

    async with scripted() as s, s.producer(on_delivery=lambda m, e: calls.append(("all", m.offset))) as producer:
        stream = await producer.bind("orders", 0)
        await producer.send("orders", b"0", on_delivery=own)
        producer.send_nowait("orders", b"1")
        await producer.send_many("orders", [b"2", b"3"])
        await producer.send_many("orders", [b"4"], on_delivery=own)
        await stream.send(b"5")
        await stream.send(b"6", on_delivery=own)
        stream.send_nowait(b"7", on_delivery=own)
    assert calls == [
        ("own", 0),
        ("all", 1),
        ("all", 2),
        ("all", 3),
        ("own", 4),
        ("all", 5),
        ("own", 6),
        ("own", 7),
    ]


@simulated
async def test_callbacks_may_send() -> None:
    async with scripted() as s:
        async with s.producer(linger_ms=0) as producer:

            def again(metadata: Any, error: Any) -> None:
                if metadata.offset < 5:
                    producer.send_nowait("orders", b"%d" % (metadata.offset + 1), on_delivery=again)

            await producer.send("orders", b"0", on_delivery=again)
            await trio.sleep(10)
        assert s.cluster.values("orders") == [b"%d" % number for number in range(6)]


@simulated
async def test_callback_that_sends_into_a_full_buffer_or_a_closing_producer_gets_an_error() -> None:
    errors: list[type[BaseException]] = []
    async with scripted() as s, s.producer(buffer_memory=1000, batch_size=1000) as producer:

        def again(metadata: Any, error: Any) -> None:
            try:
                producer.send_nowait("orders", b"x" * 900)
            except Exception as refused:
                errors.append(type(refused))

        delivery = await producer.send("orders", b"x" * 900, on_delivery=again)
        await delivery
        await producer.send("orders", b"x" * 900, on_delivery=again)
    assert errors == [BufferFullError, ClosedError]


@simulated
async def test_callback_may_end_the_block_from_within() -> None:
    """Leaving does not wait for its own callback."""
    async with scripted() as s:
        with trio.CancelScope() as scope:
            async with s.producer(linger_ms=0) as producer:
                await producer.send("orders", b"a", on_delivery=lambda *_: scope.cancel())
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert s.cluster.values("orders") == [b"a"]
        assert memory_is_whole(producer)


@simulated
async def test_callback_that_raises_is_logged_and_the_others_run(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    def callback(metadata: Any, error: Any) -> None:
        calls.append(metadata.offset)
        raise RuntimeError("a bad callback")

    async with scripted() as s, s.producer(linger_ms=10, on_delivery=callback) as producer:
        deliveries = [await producer.send("orders", b"v") for _ in range(3)]
        assert (await deliveries[2]).offset == 2
    assert calls == [0, 1, 2]
    assert caplog.text.count("a delivery callback for orders-0 failed") == 3


@pytest.mark.parametrize("accident", ["acknowledged", "refused", "expired", "closed"])
@simulated
async def test_base_exception_of_a_callback_ends_the_block_after_all_callbacks(accident: str) -> None:
    """Nothing hangs, all memory is released, and the records of others are delivered."""
    calls: list[Any] = []

    def callback(metadata: Any, error: Any) -> None:
        calls.append(metadata or error)
        if len(calls) == 1:
            raise OutcomeOfATest

    producers: list[triokafka.Producer] = []
    async with scripted(orders=1, other=1) as s:
        with pytest.raises(BaseExceptionGroup) as caught:
            async with s.producer(
                linger_ms=10, delivery_timeout_ms=3000, request_timeout_ms=2000, close_timeout_ms=1000
            ) as producer:
                producers.append(producer)
                await producer.partitions_for("orders")
                await producer.partitions_for("other")
                if accident == "refused":
                    s.broker.script(ProduceRequest, s.broker.refuse(18))
                elif accident != "acknowledged":
                    s.broker.script(ProduceRequest, *[SILENCE] * 9)
                for _ in range(3):
                    await producer.send("orders", b"v", on_delivery=callback)
                if accident != "closed":
                    await trio.sleep_forever()
        assert caught.group_contains(OutcomeOfATest)
        assert len(calls) == 3
        assert memory_is_whole(producers[0])
        expected = {"acknowledged": triokafka.RecordMetadata, "refused": RecordListTooLargeError}
        assert {type(one) for one in calls} == {expected.get(accident, KafkaTimeoutError)}
