"""Malformed and impossible responses to Produce: no record is lost, all memory is released, nothing hangs."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from typing import Any

import pytest
import trio

from tests.support.scripted_broker import CLOSE, Raw
from tests.support.scripted_producing import Setup, memory_is_whole, scripted
from tests.support.simulated import simulated
from triokafka.errors import (
    BrokerResponseError,
    KafkaTimeoutError,
    RecordListTooLargeError,
    UnknownError,
)
from triokafka.protocol.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from triokafka.protocol.api.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from triokafka.protocol.frames import encode_response

Change = Callable[[ProduceResponse], None]


def _drop_all(answer: ProduceResponse) -> None:
    answer.responses = []


def _drop_partitions(answer: ProduceResponse) -> None:
    for topic in answer.responses:
        topic.partition_responses = []


def _add_partitions(answer: ProduceResponse) -> None:
    for topic in answer.responses:
        topic.partition_responses += [
            PartitionProduceResponse(index=77, error_code=0, base_offset=5),
            PartitionProduceResponse(index=-1, error_code=18, base_offset=-1),
        ]


def _add_topics(answer: ProduceResponse) -> None:
    answer.responses = [
        TopicProduceResponse(
            name="other",
            topic_id=uuid.UUID(int=12345),
            partition_responses=[PartitionProduceResponse(index=0, error_code=18, base_offset=-1)],
        ),
        *answer.responses,
    ]


def _other_topic(answer: ProduceResponse) -> None:
    for topic in answer.responses:
        topic.name = "other"
        topic.topic_id = uuid.UUID(int=12345)


def _other_partition(answer: ProduceResponse) -> None:
    for topic in answer.responses:
        for partition in topic.partition_responses:
            partition.index += 1


def _twice_with_an_error(answer: ProduceResponse) -> None:
    for topic in answer.responses:
        topic.partition_responses += [
            PartitionProduceResponse(index=partition.index, error_code=18, base_offset=-1)
            for partition in topic.partition_responses
        ]


def _first_the_error(answer: ProduceResponse) -> None:
    for topic in answer.responses:
        topic.partition_responses = [
            PartitionProduceResponse(index=partition.index, error_code=18, base_offset=-1)
            for partition in topic.partition_responses
        ] + list(topic.partition_responses)


def _strange_leader(answer: ProduceResponse) -> None:
    for topic in answer.responses:
        for partition in topic.partition_responses:
            partition.error_code = 6
            partition.current_leader.leader_id = 4711
            partition.current_leader.leader_epoch = 9


def changed(s: Setup, change: Change, *, append: bool) -> Callable[[ProduceRequest], Any]:
    """Return a scripted response: the broker's normal one, changed."""

    def answer(request: ProduceRequest) -> Any:
        before = {partition: list(log) for partition, log in s.cluster.log.items()}, dict(s.cluster.sequences)
        response = s.broker.produce(request)
        if not append:
            s.cluster.log.clear()
            s.cluster.log.update(before[0])
            s.cluster.sequences.clear()
            s.cluster.sequences.update(before[1])
        assert response is not None
        change(response)
        return response

    return answer


@pytest.mark.parametrize("append", [True, False], ids=["written", "not written"])
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
@pytest.mark.parametrize(
    "change",
    [_drop_all, _drop_partitions, _other_topic, _other_partition, _twice_with_an_error, _first_the_error],
)
@simulated
async def test_response_without_a_clear_result_for_a_partition_counts_as_missing(
    change: Change, idempotent: bool, append: bool
) -> None:
    """The batch is sent again: the log has one copy with idempotence, one or two without it, but never none."""
    async with scripted() as s:
        async with s.producer(enable_idempotence=idempotent, linger_ms=0) as producer:
            s.broker.script(ProduceRequest, changed(s, change, append=append))
            first = await producer.send("orders", b"a")
            second = await producer.send("orders", b"b")
            assert (await second).offset in (-1, 1, 3)
            assert (await first).attempts == 2
            await producer.flush()
            assert memory_is_whole(producer)
        written = s.cluster.values("orders")
        if idempotent or not append:
            assert written == [b"a", b"b"]
        else:
            assert set(written) == {b"a", b"b"}


@pytest.mark.parametrize("change", [_add_partitions, _add_topics])
@simulated
async def test_unrequested_partitions_in_a_response_are_ignored(change: Change) -> None:
    async with scripted(orders=2, other=1) as s, s.producer(linger_ms=20) as producer:
        await producer.partitions_for("other")
        s.broker.script(ProduceRequest, changed(s, change, append=True))
        metadata = await (await producer.send("orders", b"a", partition=0))
        assert (metadata.offset, metadata.attempts) == (0, 1)
        assert (await (await producer.send("other", b"b"))).offset == 0
        assert memory_is_whole(producer)


@pytest.mark.parametrize(("code", "error"), [(999, UnknownError), (-1, UnknownError), (-32768, UnknownError)])
@simulated
async def test_unknown_error_code_is_an_error_that_names_it(code: int, error: type[BrokerResponseError]) -> None:
    async with scripted() as s, s.producer() as producer:
        s.broker.script(ProduceRequest, s.broker.refuse(code))
        with pytest.raises(error, match="orders-0 were refused" + (f".*{code}" if code != -1 else "")):
            await (await producer.send("orders", b"a"))
        assert (await (await producer.send("orders", b"b"))).offset == 0
        assert memory_is_whole(producer)


@pytest.mark.parametrize("offset", [-1, -2, -(2**63)])
@simulated
async def test_negative_offset_counts_as_unknown(offset: int) -> None:
    async with scripted() as s, s.producer() as producer:

        def negative(answer: ProduceResponse) -> None:
            answer.responses[0].partition_responses[0].base_offset = offset

        s.broker.script(ProduceRequest, changed(s, negative, append=True))
        assert (await (await producer.send("orders", b"a"))).offset == -1
        deliveries = await producer.send_many("orders", [b"b", b"c"])
        assert list(await deliveries) == [("orders", 0)]
        assert s.cluster.values("orders") == [b"a", b"b", b"c"]


@simulated
async def test_unknown_leader_in_a_response_is_ignored() -> None:
    """KIP-951."""
    async with scripted() as s, s.producer() as producer:
        s.broker.script(ProduceRequest, changed(s, _strange_leader, append=False))
        assert (await (await producer.send("orders", b"a"))).offset == 0


def _frame(correlation_id: int, body: bytes) -> Raw:
    return Raw(struct.pack(">ii", 4 + len(body), correlation_id) + body)


def _real_frame(s: Setup, request: ProduceRequest) -> bytes:
    header = s.broker.headers[-1]
    response = s.broker.produce(request)
    assert response is not None
    parts = encode_response(response, version=header.api_version, correlation_id=header.correlation_id)
    return b"".join(bytes(part) for part in parts)


def _garbage(kind: str, s: Setup) -> Callable[[ProduceRequest], Any]:
    def answer(request: ProduceRequest) -> Any:
        correlation_id = s.broker.headers[-1].correlation_id
        if kind == "wrong correlation id":
            return _frame(correlation_id + 1, b"\0" * 40)
        if kind == "garbage":
            return _frame(correlation_id, bytes(range(256)))
        if kind == "empty":
            return _frame(correlation_id, b"")
        if kind == "huge":
            return Raw(struct.pack(">i", 2**31 - 1))
        if kind == "not Kafka":
            return Raw(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        frame = _real_frame(s, request)
        if kind == "truncated":
            return Raw(struct.pack(">i", len(frame) - 4 - 7) + frame[4:-7])
        if kind == "trailing":
            return Raw(struct.pack(">i", len(frame) - 4 + 3) + frame[4:] + b"xyz")
        assert kind == "twice"
        return Raw(frame + frame)

    return answer


KINDS = ["wrong correlation id", "garbage", "empty", "huge", "not Kafka", "truncated", "trailing", "twice"]


@pytest.mark.parametrize("kind", KINDS)
@simulated
async def test_malformed_frame_ends_the_connection_and_loses_no_record(kind: str) -> None:
    """Other requests are in flight on the same connection."""
    async with scripted(orders=3) as s:
        async with s.producer(linger_ms=0, batch_size=200) as producer:
            await (await producer.send("orders", b"0", partition=0))
            s.broker.script(ProduceRequest, _garbage(kind, s))
            deliveries = [await producer.send("orders", b"%d" % n + b"x" * 60, partition=n % 3) for n in range(12)]
            for delivery in deliveries:
                assert (await delivery).offset >= -1
            assert memory_is_whole(producer)
            # Bytes after a complete response in the same frame are ignored, as a newer field would be.
            assert s.broker.connection_count == (2 if kind == "trailing" else 3)
        for partition in range(3):
            numbers = [int(bytes(v).rstrip(b"x")) for v in s.cluster.values("orders", partition) if v][partition == 0 :]
            assert numbers == list(range(partition, 12, 3))


@pytest.mark.parametrize("kind", ["garbage", "truncated", "wrong correlation id"])
@simulated
async def test_broker_with_only_malformed_responses_fails_the_record_in_time_with_the_reason(kind: str) -> None:
    async with scripted() as s, s.producer(delivery_timeout_ms=3000, request_timeout_ms=1000) as producer:
        s.broker.script(ProduceRequest, *[_garbage(kind, s)] * 500)
        started = trio.current_time()
        with pytest.raises(KafkaTimeoutError, match=r"after \d+ attempts; the last attempt"):
            await (await producer.send("orders", b"a"))
        assert trio.current_time() - started == pytest.approx(3, abs=0.1)
    assert memory_is_whole(producer)


@pytest.mark.parametrize("answer", ["an answer", "the connection's end"])
@simulated
async def test_response_to_acks_0_ends_the_connection_and_no_record_is_sent_twice(answer: str) -> None:
    async with scripted() as s:
        async with s.producer(acks=0, linger_ms=0) as producer:
            await producer.partitions_for("orders")

            def unasked(request: ProduceRequest) -> Any:
                s.broker.produce(request)
                return CLOSE if answer != "an answer" else ProduceResponse(responses=[])

            s.broker.script(ProduceRequest, unasked)
            for number in range(5):
                metadata = await (await producer.send("orders", b"%d" % number))
                assert (metadata.offset, metadata.attempts) == (-1, 1)
                await trio.sleep(1)
            assert memory_is_whole(producer)
        assert s.cluster.values("orders") == [b"0", b"1", b"2", b"3", b"4"]


@simulated
async def test_bad_result_of_one_partition_does_not_affect_the_others() -> None:
    async with scripted(orders=4) as s, s.producer(linger_ms=50) as producer:
        await producer.partitions_for("orders")

        def mixed(answer: ProduceResponse) -> None:
            [topic] = answer.responses
            by_index = {partition.index: partition for partition in topic.partition_responses}
            by_index[1].error_code, by_index[1].base_offset = 18, -1
            by_index[2].error_code, by_index[2].base_offset = 999, -1
            topic.partition_responses = [by_index[0], by_index[1], by_index[2]]

        s.broker.script(ProduceRequest, changed(s, mixed, append=True))
        good, bad, unknown, left_out = [await producer.send("orders", b"v", partition=number) for number in range(4)]
        assert (await good).offset == 0
        with pytest.raises(RecordListTooLargeError, match="orders-1"):
            await bad
        with pytest.raises(UnknownError, match="orders-2"):
            await unknown
        assert (await left_out).attempts == 2
        assert memory_is_whole(producer)


@pytest.mark.parametrize(
    "answer",
    [
        InitProducerIdResponse(producer_id=-1, producer_epoch=-1),
        InitProducerIdResponse(producer_id=-5, producer_epoch=0),
        InitProducerIdResponse(error_code=14, producer_id=-1, producer_epoch=-1),
        CLOSE,
        Raw(b"\0\0\0\x04\x7f\0\0\0"),
    ],
    ids=["no id", "negative id", "loading", "closed", "garbage"],
)
@simulated
async def test_producer_id_is_requested_until_the_producer_has_one(answer: Any) -> None:
    async with scripted() as s, s.producer() as producer:
        s.broker.script(InitProducerIdRequest, *[answer] * 3)
        started = trio.current_time()
        with trio.fail_after(60):
            assert (await (await producer.send("orders", b"a"))).offset == 0
        assert trio.current_time() - started > 0.3
        assert producer._sender.idempotence.identity.producer_id > 0
