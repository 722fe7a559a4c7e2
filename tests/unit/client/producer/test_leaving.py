"""Leaving a producer's block: accepted records are delivered or reported within the close timeout, whatever the brokers
do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

import triokafka
from tests.support.scripted_broker import CLOSE, SILENCE
from tests.support.scripted_producing import Setup, memory_is_whole, scripted
from tests.support.simulated import current_simulation, simulated
from triokafka.errors import ClosedError, KafkaTimeoutError
from triokafka.protocol.api.api_versions import ApiVersionsRequest
from triokafka.protocol.api.init_producer_id import InitProducerIdRequest
from triokafka.protocol.api.metadata import MetadataRequest
from triokafka.protocol.api.produce import ProduceRequest


def _never_answers(s: Setup) -> None:
    s.broker.script(ProduceRequest, *[SILENCE] * 99)


def _answers_late(s: Setup) -> None:
    async def late(request: ProduceRequest) -> Any:
        await trio.sleep(60)
        return s.broker.produce(request)

    s.broker.script(ProduceRequest, *[late] * 99)


def _always_closes(s: Setup) -> None:
    s.broker.script(ProduceRequest, *[CLOSE] * 9999)


def _gives_no_id(s: Setup) -> None:
    s.broker.script(InitProducerIdRequest, *[SILENCE] * 99)


def _is_gone(s: Setup) -> None:
    s.broker.stop()


def _is_cut_off(s: Setup) -> None:
    current_simulation().network.partition("client", "broker")


def _always_refuses(s: Setup) -> None:
    s.broker.script(ProduceRequest, *[s.broker.refuse(19)] * 9999)


WHY = {
    _never_answers: "the broker has not answered",
    _answers_late: "the broker has not answered",
    _always_closes: "closed the connection",
    _is_gone: "refused",
    _always_refuses: "NotEnoughReplicasError",
}
ACCIDENTS = [_never_answers, _answers_late, _always_closes, _gives_no_id, _is_gone, _is_cut_off, _always_refuses]


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("body", ["ends", "raises", "is cancelled"])
@pytest.mark.parametrize("accident", ACCIDENTS)
@simulated
async def test_close_timeout_holds_and_undelivered_records_are_reported(
    accident: Callable[[Setup], None], body: str, codec: str
) -> None:
    """A block that is left early does not wait if no acknowledgement arrives."""
    seconds, bound = (3, "close_timeout_ms=3000") if body == "ends" else (0.8, "close_stall_timeout_ms=800")
    calls: list[Any] = []
    async with scripted(orders=3) as s:
        producer = s.producer(close_timeout_ms=3000, close_stall_timeout_ms=800, linger_ms=100, compression_type=codec)
        deliveries: list[triokafka.Delivery] = []
        left_at = 0.0
        with trio.CancelScope() as scope:
            try:
                async with producer:
                    await producer.partitions_for("orders")
                    accident(s)
                    for number in range(6):
                        deliveries.append(await producer.send("orders", b"x" * 16_000, partition=number % 3))
                    await producer.send("orders", b"x", on_delivery=lambda *args: calls.append(args))
                    left_at = trio.current_time()
                    if body == "raises":
                        raise ZeroDivisionError
                    if body == "is cancelled":
                        scope.cancel()
                        await trio.sleep_forever()
            except ExceptionGroup as group:
                assert body == "ends"
                assert "6 records were not delivered" in str(group)
                assert all(isinstance(error, KafkaTimeoutError) for error in group.exceptions)
            except ZeroDivisionError as error:
                assert "6 records were not delivered" in error.__notes__[0]
            else:
                assert body == "is cancelled"
        assert scope.cancelled_caught == (body == "is cancelled")
        assert trio.current_time() - left_at == pytest.approx(seconds, abs=0.01)
        for delivery in deliveries:
            with pytest.raises(KafkaTimeoutError, match=bound + r"\).*" + WHY.get(accident, "")):  # type: ignore[arg-type]
                await delivery
        [(metadata, error)] = calls  # type: ignore[misc]
        assert metadata is None
        assert isinstance(error, KafkaTimeoutError)
        assert memory_is_whole(producer)


@pytest.mark.parametrize("body", ["raises", "is cancelled"])
@simulated
async def test_block_that_is_left_early_delivers_as_long_as_acknowledgements_come(body: str) -> None:
    async with scripted() as s:

        async def slow(request: ProduceRequest) -> Any:
            await trio.sleep(0.6)
            return s.broker.produce(request)

        s.broker.script(ProduceRequest, *[slow] * 10)
        started = trio.current_time()
        with trio.CancelScope() as scope:
            try:
                async with s.producer(
                    linger_ms=60_000, batch_size=100, max_in_flight_requests_per_connection=1
                ) as producer:
                    for number in range(5):
                        await producer.send("orders", b"%d" % number + b"x" * 80)
                    if body == "raises":
                        raise ZeroDivisionError
                    scope.cancel()
                    await trio.sleep_forever()
            except ZeroDivisionError as left:
                assert not hasattr(left, "__notes__")
        assert [int(value[:1]) for value in s.cluster.values("orders") if value] == [0, 1, 2, 3, 4]
        assert trio.current_time() - started > 5 * 0.6


@pytest.mark.parametrize("request_type", [ApiVersionsRequest, MetadataRequest])
@simulated
async def test_block_without_records_is_left_at_once_whatever_the_broker_does(request_type: Any) -> None:
    async with scripted() as s:
        s.broker.script(request_type, *[SILENCE] * 99)
        started = trio.current_time()
        with trio.move_on_after(5):
            async with s.producer() as producer:
                await producer.send("orders", b"a")
        assert trio.current_time() - started == pytest.approx(5, abs=0.01)


@simulated
async def test_leaving_waits_for_requests_in_flight_and_retries() -> None:
    async with scripted() as s:
        started = trio.current_time()
        async with s.producer(linger_ms=60_000, request_timeout_ms=4000, retry_backoff_ms=500) as producer:
            s.broker.script(ProduceRequest, SILENCE, s.broker.refuse(7), CLOSE)
            delivery = await producer.send("orders", b"a")
        assert (await delivery).attempts == 4
        assert 4 < trio.current_time() - started < 10
        assert s.cluster.values("orders") == [b"a"]


@simulated
async def test_close_timeout_of_zero_drops_unsent_records() -> None:
    async with scripted() as s:
        started = trio.current_time()
        with pytest.raises(ExceptionGroup, match="1 records were not delivered"):
            async with s.producer(close_timeout_ms=0, linger_ms=1000) as producer:
                await producer.send("orders", b"a")
        assert trio.current_time() - started < 0.1
        assert memory_is_whole(producer)


@simulated
async def test_cancelled_flush_leaves_the_records_in_flight() -> None:
    async with scripted() as s:
        async with s.producer(request_timeout_ms=3000) as producer:
            s.broker.script(ProduceRequest, SILENCE)
            delivery = await producer.send("orders", b"a")
            with trio.move_on_after(1) as scope:
                await producer.flush()
            assert scope.cancelled_caught
            assert not delivery.done
        assert (await delivery).offset == 0


@simulated
async def test_flush_does_not_wait_for_later_records_and_several_may_wait() -> None:
    async with scripted() as s, s.producer(linger_ms=10_000) as producer, trio.open_nursery() as nursery:
        await producer.partitions_for("orders")

        async def late(request: ProduceRequest) -> Any:
            await trio.sleep(1)
            return s.broker.produce(request)

        s.broker.script(ProduceRequest, late)
        first = await producer.send("orders", b"a")
        sent: list[triokafka.Delivery] = []
        flushed: list[list[bool]] = []

        async def flush() -> None:
            await producer.flush()
            flushed.append([delivery.done for delivery in sent])

        for _ in range(3):
            nursery.start_soon(flush)
        await trio.sleep(0.5)
        sent += [first, await producer.send("orders", b"b")]
        while len(flushed) < 3:
            await trio.sleep(0.1)
        assert flushed == [[True, False]] * 3
        await producer.flush()
        assert sent[1].done


@simulated
async def test_records_sent_too_late_are_refused_not_forgotten() -> None:
    """A send that starts while the block is left is either delivered or raises."""
    async with scripted() as s, trio.open_nursery() as outer:
        accepted: list[bytes] = []
        refused: list[bytes] = []

        async def send(number: int, producer: triokafka.Producer) -> None:
            await trio.sleep(number / 1000)
            value = b"%d" % number
            try:
                await producer.send("orders", value)
            except ClosedError:
                refused.append(value)
            else:
                accepted.append(value)

        async with s.producer(batch_size=200, linger_ms=0) as producer:
            for number in range(100):
                outer.start_soon(send, number, producer)
            await trio.sleep(0.05)
        await trio.sleep(1)
        assert len(accepted) + len(refused) == 100
        assert accepted
        assert refused
        assert s.cluster.values("orders") == accepted
