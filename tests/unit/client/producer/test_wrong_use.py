"""Wrong use of a producer: the right error from the right call, no other record lost, all memory released."""

from __future__ import annotations

import array
from typing import Any

import pytest
import trio
import trio.testing

import triokafka
from tests.support.scripted_broker import SILENCE
from tests.support.scripted_producing import memory_is_whole, scripted
from tests.support.simulated import simulated
from triokafka.errors import (
    ClosedError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    ProtocolError,
    SerializationError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from triokafka.protocol.api.api_versions import ApiVersionsRequest
from triokafka.protocol.api.produce import ProduceRequest
from triokafka.structs import TopicPartition

NOT_BYTES: list[Any] = ["text", 7, 7.5, True, [b"x"], {"a": 1}, object(), array.array("i", [1]), range(3)]

WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    *[({"value": one}, SerializationError, f"the value is a {type(one).__name__}, not bytes") for one in NOT_BYTES],
    *[({"key": one}, SerializationError, f"the key is a {type(one).__name__}, not bytes") for one in NOT_BYTES],
    ({"topic": None}, TypeError, "topic=None is not the name"),
    ({"topic": b"orders"}, TypeError, "topic=b'orders' is not the name"),
    ({"topic": ["orders"]}, TypeError, r"topic=\['orders'\] is not the name"),
    ({"topic": ""}, ValueError, "topic='' is not the name"),
    ({"partition": -1}, ValueError, "partition=-1 is not the number of a partition"),
    ({"partition": True}, TypeError, "partition=True is not the number"),
    ({"partition": False}, TypeError, "partition=False is not the number"),
    ({"partition": 0.0}, TypeError, "partition=0.0 is not the number"),
    ({"partition": "0"}, TypeError, "partition='0' is not the number"),
    ({"partition": 3}, UnknownTopicOrPartitionError, "no partition 3: it has 3, numbered from 0"),
    ({"timestamp_ms": -1}, ValueError, "timestamp_ms=-1"),
    ({"timestamp_ms": 2**63}, ValueError, "timestamp_ms="),
    ({"timestamp_ms": True}, ValueError, "timestamp_ms=True"),
    ({"timestamp_ms": 1.5}, ValueError, "timestamp_ms=1.5"),
    ({"headers": {"a": b"x"}}, TypeError, "headers are a list of pairs"),
    ({"headers": "ab"}, TypeError, "headers are a list of pairs"),
    ({"headers": 7}, TypeError, "headers are a list of pairs"),
    ({"headers": ["ab"]}, TypeError, "headers are pairs"),
    ({"headers": [("a", b"x", 1)]}, TypeError, "headers are pairs"),
    ({"headers": [(b"a", b"x")]}, TypeError, "headers are pairs"),
    ({"headers": [("a", "x")]}, TypeError, "headers are pairs"),
    ({"headers": [(None, b"x")]}, TypeError, "headers are pairs"),
    ({"headers": [("\ud800", b"x")]}, ValueError, "surrogates"),
    ({"headers": [("h", b"x" * 2_000_000)]}, MessageSizeTooLargeError, "max_request_size=1048576"),
    ({"value": b"x" * 1_048_576}, MessageSizeTooLargeError, "max_request_size=1048576"),
    ({"on_delivery": 7}, TypeError, "on_delivery=7 is not a function"),
]


@pytest.mark.parametrize(
    ("wrong", "error", "message"), WRONG, ids=lambda given: repr(given).partition(" at 0x")[0][:50]
)
@simulated
async def test_unsendable_records_are_refused_at_the_call(
    wrong: dict[str, Any], error: type[Exception], message: str
) -> None:
    """This holds with and without an open batch, and for every send method."""
    arguments = {"topic": "orders", "value": b"v", "partition": 1, **wrong}
    async with scripted(orders=3) as s, s.producer(linger_ms=1000) as producer:
        await producer.partitions_for("orders")
        for _ in range(2):
            with pytest.raises(error, match=message):
                await producer.send(**arguments)
            with pytest.raises(error, match=message):
                producer.send_nowait(**arguments)
            await producer.send("orders", b"good", partition=1)
        await producer.flush()
        assert s.cluster.values("orders", 1) == [b"good", b"good"]
        assert memory_is_whole(producer)


class AlwaysRaises:
    """Raises in every method."""

    def __len__(self) -> int:
        raise ZeroDivisionError

    __iter__ = __index__ = __hash__ = __len__


JUNK: list[Any] = [
    *[
        None,
        True,
        -1,
        0,
        1.5,
        float("nan"),
        10**30,
        "",
        "x",
        "\ud800",
        b"",
        b"x",
        object(),
        int,
        AlwaysRaises(),
        Exception(),
    ],
    *[
        [],
        ["x"],
        [None],
        [()],
        [(1, 2)],
        [("a", b"b")],
        [("a", AlwaysRaises())],
        {},
        {"a": b"b"},
        set(),
        range(2),
        iter([1]),
    ],
]


@pytest.mark.parametrize("argument", ["topic", "value", "key", "partition", "timestamp_ms", "headers", "on_delivery"])
@simulated
async def test_no_argument_breaks_the_producer(argument: str) -> None:
    """The call raises or the record is sent; no other record is lost, and all memory is released."""
    async with scripted(orders=2) as s, s.producer(max_block_ms=200, linger_ms=1, batch_size=500) as producer:
        stream = await producer.bind("orders", 0)
        sent: list[triokafka.Delivery] = []
        for junk in JUNK:
            given = {"topic": "orders", "value": b"v", argument: junk}
            columns = {"values" if name == "value" else name: value for name, value in given.items()}
            columns |= {"keys": columns.pop("key")} if "key" in columns else {}
            columns = {name: [b"v", b"v"] if value == b"v" else value for name, value in columns.items()}
            bound = {name: value for name, value in given.items() if name not in ("topic", "partition")}
            for call, arguments in (
                (producer.send, given),
                (producer.send_nowait, given),
                (stream.send, bound),
                (stream.send_nowait, bound),
                (producer.send_many, columns),
            ):
                try:
                    result: Any = call(**arguments)
                    if not isinstance(result, triokafka.Delivery):
                        result = await result
                except (KafkaError, TypeError, ValueError, ZeroDivisionError):
                    continue
                sent += [result] if isinstance(result, triokafka.Delivery) else list(result)
        sent.append(await producer.send("orders", b"good", partition=1))
        for delivery in sent:
            assert (await delivery).offset >= 0
        assert memory_is_whole(producer)
        assert s.cluster.values("orders", 1)[-1] == b"good"


@pytest.mark.parametrize(
    "headers",
    [
        None,
        [],
        (),
        iter([("a", b"x")]),
        (pair for pair in [("a", b"x")]),
        [["a", b"x"]],
        [("a", memoryview(b"x"))],
        [("a", bytearray(b"x"))],
    ],
    ids=lambda given: type(given).__name__,
)
@simulated
async def test_headers_may_be_any_iterable_of_pairs(headers: Any) -> None:
    async with scripted() as s:
        async with s.producer() as producer:
            await producer.send("orders", b"v", headers=headers)
        [record] = s.cluster.log[TopicPartition("orders", 0)]
        assert record.headers in ((("a", b"x"),), ())
        assert bool(record.headers) == (headers not in (None, [], ()))


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (bytearray(b"abcd"), b"abcd"),
        (memoryview(b"abcd"), b"abcd"),
        (memoryview(b"aXbXcXdX")[::2], b"abcd"),
        (memoryview(array.array("H", [1, 2])), array.array("H", [1, 2]).tobytes()),
        (memoryview(bytes(range(4))).cast("B", (2, 2)), bytes(range(4))),
        (b"", b""),
    ],
    ids=["bytearray", "memoryview", "strided", "two bytes an item", "two dimensions", "empty"],
)
@simulated
async def test_every_view_of_bytes_is_sent_as_its_bytes(value: Any, data: bytes) -> None:
    async with scripted() as s:
        async with s.producer(linger_ms=100) as producer:
            for _ in range(2):  # without and with an open batch
                metadata = await producer.send("orders", value, key=value)
                producer.send_nowait("orders", value, key=value, headers=[("h", value)])
            assert (await metadata)[4:6] == (len(data), len(data))
        assert [(r.key, r.value) for r in s.cluster.log[TopicPartition("orders", 0)]] == [(data, data)] * 4


@simulated
async def test_changing_a_buffer_after_send_does_not_change_the_record() -> None:
    value = bytearray(b"before")
    async with scripted() as s:
        async with s.producer(linger_ms=100) as producer:
            for _ in range(2):
                await producer.send("orders", value)
                value[:] = b"before"
            value[:] = b"after!"
        assert s.cluster.values("orders") == [b"before", b"before"]


class Index:
    """An integer of another type, such as numpy's."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value

    def __lt__(self, other: int) -> bool:
        return self.value < other

    def __eq__(self, other: object) -> bool:
        return self.value == other

    def __hash__(self) -> int:
        return hash(self.value)


@simulated
async def test_partitions_may_be_integers_of_other_types() -> None:
    async with scripted(orders=3) as s, s.producer() as producer:
        for _ in range(2):
            metadata = await (await producer.send("orders", b"v", partition=Index(2)))  # type: ignore[arg-type]
            assert metadata.partition == 2


@pytest.mark.parametrize("name", ["a/b", "..", "x" * 250])
@simulated
async def test_topic_name_that_kafka_does_not_allow_is_refused(name: str) -> None:
    async with scripted() as s, s.producer() as producer:
        s.cluster.topic_errors[name] = 17
        with pytest.raises(InvalidTopicError):
            await producer.send(name, b"v")


@simulated
async def test_one_wrong_value_among_many_is_named_and_those_before_it_are_sent() -> None:
    async with scripted() as s:
        async with s.producer() as producer:
            with pytest.raises(TypeError, match="the value is a str"):
                await producer.send_many("orders", [b"a", b"b", "c", b"d"])
            with pytest.raises(TypeError, match="the key is a int"):
                await producer.send_many("orders", [b"e", b"f"], keys=[b"k", 7], partition=0)
            await producer.flush()
            assert memory_is_whole(producer)
        assert s.cluster.values("orders") == [b"a", b"b", b"e"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"values": b"abc"}, TypeError, "values must be a sequence"),
        ({"values": "abc"}, TypeError, "values must be a sequence"),
        ({"values": 7}, TypeError, "values must be a sequence"),
        ({"values": [b"a"], "keys": b"k"}, TypeError, "keys must be a sequence"),
        ({"values": [b"a"], "keys": [b"k", b"l"]}, ValueError, "1 values but 2 keys"),
        ({"values": [b"a"], "partition": [0, 0]}, ValueError, "1 values but 2 partition"),
        ({"values": [b"a"], "timestamp_ms": [1, 2]}, ValueError, "1 values but 2 timestamp_ms"),
        ({"values": [b"a"], "partition": True}, TypeError, "partition=True is not the number"),
        ({"values": [b"a"], "partition": [True]}, TypeError, "partition=True is not the number"),
        ({"values": [b"a"], "partition": -1}, ValueError, "partition=-1 is not the number"),
        ({"values": [b"a"], "partition": 3}, UnknownTopicOrPartitionError, "no partition 3"),
        ({"values": [b"a"], "timestamp_ms": -1}, ValueError, "timestamp_ms=-1"),
        ({"values": [b"a"], "timestamp_ms": [-1]}, ValueError, "timestamp_ms=-1"),
    ],
    ids=lambda given: repr(given).partition(" at 0x")[0][:50],
)
@simulated
async def test_columns_that_cannot_be_sent_are_refused(
    arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    async with scripted(orders=3) as s, s.producer() as producer:
        for _ in range(2):
            with pytest.raises(error, match=message):
                await producer.send_many("orders", **arguments)
            await (await producer.send("orders", b"v", partition=0))
        assert memory_is_whole(producer)


# ---------------------------------------------------------------- too large


@simulated
async def test_record_larger_than_all_memory_is_refused_by_name() -> None:
    async with scripted() as s, s.producer(buffer_memory=20_000) as producer:
        for send in (producer.send, producer.send_nowait):
            with pytest.raises(MessageSizeTooLargeError, match="buffer_memory=20000"):
                result: Any = send("orders", b"x" * 30_000)
                await result
            await (await producer.send("orders", b"x"))
        assert memory_is_whole(producer)


@pytest.mark.parametrize("codec", ["gzip", "lz4"])
@simulated
async def test_small_memory_serves_records_that_compress_well(codec: str) -> None:
    """A batch of well compressed records may be larger than ``batch_size``, but never larger than the memory."""
    async with scripted() as s:
        async with s.producer(buffer_memory=20_000, compression_type=codec, linger_ms=0) as producer:
            for _ in range(300):
                await producer.send("orders", b"x" * 500)
        assert len(s.cluster.values("orders")) == 300


@simulated
async def test_record_that_is_too_large_for_the_broker_fails_alone() -> None:
    async with scripted(orders=2) as s, s.producer(linger_ms=50) as producer:
        s.broker.script(ProduceRequest, s.broker.refuse(10, 1))
        small = await producer.send("orders", b"a", partition=0)
        large = await producer.send("orders", b"b", partition=1)
        assert (await small).offset == 0
        with pytest.raises(MessageSizeTooLargeError, match="orders-1"):
            await large
        assert (await (await producer.send("orders", b"c", partition=1))).offset == 0
        assert memory_is_whole(producer)


# ---------------------------------------------------------------- before, inside and after the block


async def _every_call_raises(
    producer: triokafka.Producer, stream: triokafka.PartitionStream | None, error: type[Exception], message: str
) -> None:
    calls: list[Any] = [
        lambda: producer.send("orders", b"v"),
        lambda: producer.send_nowait("orders", b"v"),
        lambda: producer.send_many("orders", [b"v"]),
        lambda: producer.bind("orders", 0),
        lambda: producer.flush(),
        lambda: producer.partitions_for("orders"),
    ]
    if stream is not None:
        calls += [lambda: stream.send(b"v"), lambda: stream.send_nowait(b"v")]
    for call in calls:
        with pytest.raises(error, match=message):
            await call()
    assert producer.metrics()["buffer_total_bytes"]
    producer.health()


@simulated
async def test_every_call_outside_of_the_block_is_refused() -> None:
    async with scripted() as s:
        producer = s.producer()
        await _every_call_raises(producer, None, ClosedError, "use it inside its async with block")
        async with producer:
            stream = await producer.bind("orders", 0)
            await stream.send(b"a")
        await _every_call_raises(producer, stream, ClosedError, "use it inside its async with block")
        assert s.cluster.values("orders") == [b"a"]


@simulated
async def test_a_producer_can_be_entered_once() -> None:
    async with scripted() as s:
        producer = s.producer()
        async with producer:
            with pytest.raises(ClosedError, match="one async with block"):
                async with producer:
                    raise AssertionError("not reached")
            assert (await (await producer.send("orders", b"a"))).offset == 0
        with pytest.raises(ClosedError, match="create a new producer"):
            async with producer:
                raise AssertionError("not reached")


@simulated
async def test_background_failure_is_raised_by_every_later_call_with_its_cause() -> None:
    async with scripted() as s, s.producer(linger_ms=1000) as producer:
        stream = await producer.bind("orders", 0)
        bug = RuntimeError("a bug")

        def broken(now: float) -> float:
            raise bug

        delivery = await producer.send("orders", b"a")
        producer._sender.step = broken  # type: ignore[method-assign]
        producer._wakeup.wake()
        with pytest.raises(KafkaError, match="a bug") as caught:
            await delivery
        assert caught.value.__cause__ is bug
        await _every_call_raises(producer, stream, KafkaError, "a background task of the producer failed.*a bug")
        assert producer.health().failure is bug
        assert memory_is_whole(producer)


@simulated
async def test_tasks_of_other_nurseries_may_send_and_get_an_error_after_the_end() -> None:
    async with scripted() as s, trio.open_nursery() as outer:
        ended: list[int] = []

        async def work(number: int, producer: triokafka.Producer) -> None:
            sent = 0
            with pytest.raises(ClosedError):
                while True:
                    await producer.send("orders", b"%d" % number)
                    sent += 1
                    await trio.sleep(0.1)
            ended.append(sent)

        async with s.producer(linger_ms=0) as producer:
            for number in range(3):
                outer.start_soon(work, number, producer)
            await trio.sleep(1)
        while len(ended) < 3:
            await trio.sleep(0.1)
        assert sorted(s.cluster.values("orders")) == sorted(b"%d" % n for n in range(3) for _ in range(ended[n]))  # type: ignore[type-var]


@simulated
async def test_waiting_senders_fail_when_the_block_is_left() -> None:
    """They wait for memory and for metadata, with a silent broker and a close timeout."""
    async with scripted() as s, trio.open_nursery() as outer:
        refused_topics: list[str] = []

        async def wait(topic: str, producer: triokafka.Producer) -> None:
            with pytest.raises(ClosedError):
                await producer.send(topic, b"x" * 800)
            refused_topics.append(topic)

        with pytest.raises(ExceptionGroup, match="were not delivered"):
            async with s.producer(buffer_memory=1000, batch_size=1000, close_timeout_ms=2000) as producer:
                await producer.partitions_for("orders")
                s.broker.script(ProduceRequest, *[SILENCE] * 9)
                await producer.send("orders", b"x" * 800)
                outer.start_soon(wait, "orders", producer)
                outer.start_soon(wait, "nowhere", producer)
                await trio.testing.wait_all_tasks_blocked()
        while len(refused_topics) < 2:
            await trio.sleep(0.01)
        assert memory_is_whole(producer)


# ---------------------------------------------------------------- deleted and unauthorized topics


@simulated
async def test_topic_that_becomes_unauthorized_fails_its_records_by_name_and_no_others() -> None:
    async with scripted(orders=1, other=1) as s, s.producer(linger_ms=50) as producer:
        await producer.partitions_for("orders")
        await producer.partitions_for("other")

        def deny_orders(request: ProduceRequest) -> Any:
            answer = s.broker.produce(request, None)
            assert answer is not None
            names = {topic_id: name for name, topic_id in s.cluster.topic_ids.items()}
            for topic in answer.responses:
                if (topic.name or names[topic.topic_id]) == "orders":
                    s.cluster.log[TopicPartition("orders", 0)].clear()
                    topic.partition_responses[0].error_code = 29
                    topic.partition_responses[0].base_offset = -1
            return answer

        s.broker.script(ProduceRequest, deny_orders)
        denied = await producer.send("orders", b"a")
        other = await producer.send("other", b"b")
        assert (await other).offset == 0
        with pytest.raises(TopicAuthorizationFailedError, match="orders-0"):
            await denied
        assert memory_is_whole(producer)


@simulated
async def test_topic_recreated_while_sending_gets_the_records() -> None:
    import uuid

    async with scripted() as s, s.producer(linger_ms=0) as producer:
        await (await producer.send("orders", b"old"))
        s.cluster.topic_ids["orders"] = uuid.UUID(int=999)
        s.cluster.log.clear()
        s.cluster.sequences.clear()
        s.broker.script(ProduceRequest, s.broker.refuse(100))
        assert (await (await producer.send("orders", b"new"))).offset == 0
        assert s.cluster.values("orders") == [b"new"]


@simulated
async def test_expired_record_names_its_last_error() -> None:
    async with scripted() as s, s.producer(delivery_timeout_ms=3000, request_timeout_ms=1000) as producer:
        s.broker.script(ProduceRequest, *[s.broker.refuse(19)] * 1000)
        with pytest.raises(KafkaTimeoutError, match=r"after \d+ attempts.*NotEnoughReplicasError"):
            await (await producer.send("orders", b"a"))
        assert memory_is_whole(producer)


@simulated
async def test_error_of_an_unsent_record_names_the_unreachable_broker() -> None:
    async with scripted() as s, s.producer(delivery_timeout_ms=3000, request_timeout_ms=1000) as producer:
        await (await producer.send("orders", b"a"))
        s.broker.stop()
        with pytest.raises(KafkaTimeoutError, match=r"never sent.*broker 1.*refused"):
            await (await producer.send("orders", b"b"))


@simulated
async def test_error_of_an_unsent_record_names_the_leaderless_partition() -> None:
    async with scripted() as s, s.producer(delivery_timeout_ms=3000, request_timeout_ms=1000) as producer:
        await (await producer.send("orders", b"a"))
        s.cluster.move("orders", 0, -1)
        await producer._client.refresh_metadata()
        with pytest.raises(KafkaTimeoutError, match=r"never sent.*has no leader"):
            await (await producer.send("orders", b"b"))


@simulated
async def test_error_of_an_unsent_record_names_the_deleted_topic_or_partition() -> None:
    options = {"delivery_timeout_ms": 3000, "request_timeout_ms": 1000, "linger_ms": 100}
    async with scripted(orders=3, other=1) as s, s.producer(**options) as producer:
        await producer.partitions_for("orders")
        await producer.partitions_for("other")
        late = [await producer.send("orders", b"a", partition=2), await producer.send("other", b"a")]
        s.cluster.topics["orders"] = 1
        del s.cluster.topics["other"]
        await producer._client.refresh_metadata()
        with pytest.raises(KafkaTimeoutError, match="'orders' no longer has partition 2"):
            await late[0]
        with pytest.raises(KafkaTimeoutError, match="the cluster does not have the topic 'other'"):
            await late[1]
        assert memory_is_whole(producer)


@simulated
async def test_failure_of_the_network_client_fails_pending_and_later_calls() -> None:
    bug = RuntimeError("a bug in the metadata")

    def broken(*_: Any, **__: Any) -> None:
        raise bug

    async with scripted() as s, s.producer(linger_ms=5_000, request_timeout_ms=1_000) as producer:
        stream = await producer.bind("orders", 0)
        delivery = await stream.send(b"a")
        producer._client.metadata.update_in_steps = broken  # type: ignore[assignment, method-assign]
        producer._client.request_metadata_update()
        with trio.fail_after(1), pytest.raises(KafkaError, match="a bug in the metadata"):
            await delivery
        await _every_call_raises(producer, stream, KafkaError, "a bug in the metadata")
        health = producer.health()
        assert (health.state, health.healthy) == ("failed", False)
        assert memory_is_whole(producer)


@simulated
async def test_failure_of_the_network_client_is_raised_by_an_idle_producer() -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("a bug in the metadata")

    async with scripted() as s, s.producer() as producer:
        producer._client.metadata.update_in_steps = broken  # type: ignore[assignment, method-assign]
        for topic in ("orders", "orders", "other"):
            with trio.fail_after(1), pytest.raises(KafkaError, match="a bug in the metadata"):
                await producer.send(topic, b"a")
        await trio.testing.wait_all_tasks_blocked()
        assert not producer.health().healthy


@pytest.mark.parametrize(
    "failure",
    [ProtocolError("no sense", path="A.b", offset=3), KafkaError("a reason"), TopicAuthorizationFailedError("secret")],
    ids=lambda error: type(error).__name__,
)
@simulated
async def test_every_call_after_a_failure_raises_a_new_error_with_the_same_message(failure: KafkaError) -> None:
    """If tasks raised one shared error object, its traceback would be mixed up."""
    async with scripted() as s, s.producer() as producer:
        producer._fail(failure)
        raised: list[KafkaError] = []
        for _ in range(2):
            with pytest.raises(type(failure)) as caught:
                await producer.send("orders", b"v")
            raised.append(caught.value)
        assert [str(error) for error in raised] == [str(failure)] * 2
        assert [error.__cause__ for error in raised] == [failure] * 2
        assert raised[0] is not raised[1]


@simulated
async def test_error_of_an_unsent_record_names_the_throttling_broker() -> None:
    """KIP-219."""
    async with scripted() as s, s.producer(delivery_timeout_ms=3000, request_timeout_ms=1000) as producer:
        s.broker.throttle_time_ms = 60_000
        await (await producer.send("orders", b"a"))
        with pytest.raises(KafkaTimeoutError, match=r"never sent; broker 1 throttles the producer for another 57 s"):
            await (await producer.send("orders", b"b"))
        [broker] = [broker for broker in producer.health().brokers if broker.connected]
        assert broker.throttled_for == pytest.approx(57, abs=0.1)


@simulated
async def test_broker_that_accepts_the_connection_and_sends_nothing_is_named() -> None:
    async with scripted() as s, s.producer(max_block_ms=500) as producer:
        s.broker.script(ApiVersionsRequest, SILENCE)
        with pytest.raises(KafkaTimeoutError, match=f"bootstrap server {s.address} has not answered yet"):
            await producer.send("orders", b"a")
