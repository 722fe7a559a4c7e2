"""A producer's plug-ins: created, configured, called in order, closed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

import triokafka
from tests.support.scripted_producing import scripted
from tests.support.simulated import simulated
from triokafka.errors import ConfigurationError, SerializationError
from triokafka.protocol.api.produce import ProduceRequest
from triokafka.structs import TopicPartition

EVENTS: list[Any] = []


@pytest.fixture(autouse=True)
def _no_events() -> None:
    EVENTS.clear()


class Shouting(triokafka.Serializer[str]):
    """A serializer that records its calls, and adds a header."""

    def configure(self, config: Mapping[str, Any], is_key: bool) -> None:
        self.is_key = is_key
        EVENTS.append(("configure", is_key, config["acks"], config["client_id"], config.get("loudness")))

    def serialize(self, topic: str, value: str, headers: Any = None) -> bytes:
        headers.append(("by", b"key" if self.is_key else b"value"))
        return f"{topic}:{value.upper()}".encode()

    def close(self) -> None:
        EVENTS.append(("close", self.is_key))


class Interceptor(triokafka.ProducerInterceptor):
    def configure(self, config: Mapping[str, Any]) -> None:
        EVENTS.append(("configured", config["client_id"]))

    def close(self) -> None:
        EVENTS.append("interceptor closed")
        raise RuntimeError("a bad interceptor")


class Cannot(triokafka.ProducerInterceptor):
    def configure(self, config: Mapping[str, Any]) -> None:
        raise LookupError("no such thing")


class ToTheLast(triokafka.Partitioner):
    def configure(self, config: Mapping[str, Any]) -> None:
        EVENTS.append("partitioner configured")

    def partition(self, topic: str, key: Any, value: Any, partitions: Any, available: Any) -> int:
        return partitions[-1]  # type: ignore[no-any-return]

    def close(self) -> None:
        EVENTS.append("partitioner closed")


@simulated
async def test_serializer_classes_are_instantiated_configured_called_with_the_topic_and_closed() -> None:
    async with scripted() as s:
        async with s.producer(
            key_serializer=Shouting,
            value_serializer=f"{__name__}:Shouting",
            client_id="me",
            plugin_options={"loudness": 11},
        ) as producer:
            await producer.send("orders", "v", key="k", headers=[("mine", b"1")])
        [record] = s.cluster.log[TopicPartition("orders", 0)]
        assert (record.key, record.value) == (b"orders:K", b"orders:V")
        assert record.headers == (("mine", b"1"), ("by", b"key"), ("by", b"value"))
    assert EVENTS[:2] == [("configure", True, -1, "me", 11), ("configure", False, -1, "me", 11)]
    assert sorted(EVENTS[2:]) == [("close", False), ("close", True)]


@simulated
async def test_serializer_objects_are_not_configured_and_do_not_see_null() -> None:
    serializer = Shouting()
    serializer.is_key = False
    async with scripted() as s:
        async with s.producer(value_serializer=serializer) as producer:
            await producer.send("orders", None)
            producer.send_nowait("orders", "v")
        assert s.cluster.values("orders") == [None, b"orders:V"]
    assert EVENTS == [("close", False)]


@simulated
async def test_headers_added_by_a_serializer_do_not_change_the_callers() -> None:
    serializer = Shouting()
    serializer.is_key = True
    headers = [("mine", b"1")]
    async with scripted() as s:
        async with s.producer(value_serializer=serializer) as producer:
            for _ in range(2):
                await producer.send("orders", "v", headers=headers)
        assert {len(record.headers) for record in s.cluster.log[TopicPartition("orders", 0)]} == {2}
    assert headers == [("mine", b"1")]


@simulated
async def test_built_in_serializers_are_configured_from_the_plugin_options() -> None:
    async with scripted() as s:
        async with s.producer(
            key_serializer=triokafka.LongSerializer,
            value_serializer=triokafka.StringSerializer,
            plugin_options={"value_serializer_encoding": "latin-1"},
        ) as producer:
            await producer.send("orders", "ü", key=1)
        [record] = s.cluster.log[TopicPartition("orders", 0)]
        assert (record.key, record.value) == (b"\0" * 7 + b"\x01", b"\xfc")


@pytest.mark.parametrize(
    ("serializer", "value", "message"),
    [
        (
            triokafka.IntegerSerializer,
            "7",
            r"value_serializer IntegerSerializer\(\) failed on a str for topic 'orders'",
        ),
        (lambda value: value["x"], {"y": 1}, "failed on a dict for topic 'orders': 'x'"),
        (str.upper, "text", "returned a str for a str, not bytes"),
        (None, {"y": 1}, "the value is a dict, not bytes"),
    ],
)
@simulated
async def test_value_that_cannot_be_serialized_names_type_serializer_and_topic(
    serializer: Any, value: Any, message: str
) -> None:
    async with scripted() as s, s.producer(value_serializer=serializer) as producer:
        with pytest.raises(SerializationError, match=message):
            await producer.send("orders", value)
        with pytest.raises(SerializationError, match=message):
            producer.send_nowait("orders", value)


def test_unused_plugin_option_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    triokafka.Producer(value_serializer=Shouting, plugin_options={"loudness": 1, "loudnes": 2})
    assert "plugin_options: no plug-in read loudnes; check the spelling" in caplog.text


def test_failing_configuration_of_a_plugin_closes_the_earlier_ones_and_names_it() -> None:
    with pytest.raises(ConfigurationError, match=r"interceptors: .*Cannot.* could not be configured: LookupError"):
        triokafka.Producer(interceptors=[Interceptor, Cannot], client_id="me")
    assert EVENTS == [("configured", "me"), "interceptor closed"]


def test_plugins_of_a_refused_producer_are_never_created() -> None:
    with pytest.raises(ConfigurationError, match="security_protocol"):
        triokafka.Producer(interceptors=[Interceptor], security_protocol="TLS")
    assert EVENTS == []


@simulated
async def test_plugins_are_configured_and_closed_even_if_one_fails_to_close() -> None:
    async with (
        scripted(orders=3) as s,
        s.producer(interceptors=[Interceptor, Interceptor()], partitioner=ToTheLast) as producer,
    ):
        assert (await (await producer.send("orders", b"a", key=b"k"))).partition == 2
    [first, second, third, *closed] = EVENTS
    assert first == second == ("configured", "triokafka-producer-1")
    assert third == "partitioner configured"
    assert closed == ["partitioner closed", "interceptor closed", "interceptor closed"]


class Chain(triokafka.ProducerInterceptor):
    def __init__(self, name: str, answer: Any = "") -> None:
        self.name = name
        self.answer = answer

    def on_send(self, record: triokafka.ProducerRecord) -> Any:
        EVENTS.append((self.name, record.value))
        if isinstance(self.answer, BaseException):
            raise self.answer
        if isinstance(self.answer, str):
            return dataclasses.replace(record, value=record.value + self.answer.encode())
        return self.answer

    def on_acknowledgement(self, metadata: triokafka.RecordMetadata, error: Exception | None) -> None:
        EVENTS.append((self.name, metadata.topic_partition, metadata.offset, type(error)))

    def on_send_error(self, record: triokafka.ProducerRecord, error: Exception) -> None:
        EVENTS.append((self.name, record.partition, type(error)))


@simulated
async def test_each_interceptor_gets_the_record_of_the_previous_one() -> None:
    async with scripted() as s:
        async with s.producer(interceptors=[Chain("a", "1"), Chain("b", ValueError()), Chain("c", "2")]) as producer:
            await producer.send("orders", b"v")
        assert EVENTS[:3] == [("a", b"v"), ("b", b"v1"), ("c", b"v1")]
        assert s.cluster.values("orders") == [b"v12"]


@pytest.mark.parametrize("nonsense", [b"bytes", 7, False])
@simulated
async def test_interceptor_result_that_is_no_record_is_logged_and_ignored(
    nonsense: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted() as s:
        async with s.producer(interceptors=[Chain("a", nonsense), Chain("b", "!")]) as producer:
            await producer.send("orders", b"v")
        assert s.cluster.values("orders") == [b"v!"]
    assert f"returned a {type(nonsense).__name__} from on_send, not a ProducerRecord" in caplog.text


@simulated
async def test_dropped_record_is_not_sent_and_its_delivery_shows_it() -> None:
    calls: list[Any] = []
    async with scripted() as s:
        async with s.producer(interceptors=[Chain("a", None), Chain("b")]) as producer:
            delivery = await producer.send("orders", b"v", on_delivery=lambda *args: calls.append(args))
            assert (
                producer.send_nowait("orders", b"v").result() == await delivery == ("orders", -1, -1, -1, -1, -1, 0, -1)
            )
            assert (delivery.done, delivery.topic, delivery.partition) == (True, "orders", -1)
            deliveries = await producer.send_many("orders", [b"x", b"y"])
            assert {metadata.offset for metadata in [await one for one in deliveries]} == {-1}
        assert s.produced == []
    assert [event[0] for event in EVENTS] == ["a"] * 4
    assert calls == []


@simulated
async def test_interceptors_get_the_acknowledgement_before_the_user_and_failures_with_a_placeholder() -> None:
    async with scripted() as s, s.producer(interceptors=[Chain("a")], linger_ms=0) as producer:
        await producer.send("orders", b"v", on_delivery=lambda metadata, error: EVENTS.append("user"))
        await producer.flush()
        s.broker.script(ProduceRequest, s.broker.refuse(18))
        with pytest.raises(triokafka.errors.RecordListTooLargeError):
            await (await producer.send("orders", b"v"))
    partition = TopicPartition("orders", 0)
    assert EVENTS[1:3] == [("a", partition, 0, type(None)), "user"]
    assert EVENTS[-1] == ("a", partition, -1, triokafka.errors.RecordListTooLargeError)


@simulated
async def test_interceptors_get_a_failed_send_with_the_chosen_partition() -> None:
    options: dict[str, Any] = {"interceptors": [Chain("a")], "max_request_size": 1000, "partitioner": ToTheLast}
    async with scripted(orders=3) as s, s.producer(**options) as producer:
        with pytest.raises(triokafka.errors.MessageSizeTooLargeError):
            await producer.send("orders", b"v" * 2000)
        with pytest.raises(TypeError):
            await producer.send("orders", b"v", key=7)
        with pytest.raises(triokafka.errors.MessageSizeTooLargeError):
            producer.send_nowait("orders", b"v" * 2000)
    assert [event[1:] for event in EVENTS if len(event) == 3] == [
        (2, triokafka.errors.MessageSizeTooLargeError),
        (None, SerializationError),
        (2, triokafka.errors.MessageSizeTooLargeError),
    ]


@pytest.mark.parametrize(("listens", "raised"), [(True, 0), (False, 1)])
@simulated
async def test_an_interceptor_without_error_method_hides_no_failure(listens: bool, raised: int) -> None:
    interceptor = Chain("a") if listens else Interceptor()
    failures: list[Exception] = []
    async with scripted() as s:
        try:
            async with s.producer(interceptors=[interceptor]) as producer:
                s.broker.script(ProduceRequest, s.broker.refuse(18))
                await producer.send("orders", b"v")
        except ExceptionGroup as group:
            failures += group.exceptions
    assert len(failures) == raised


class Tracing(triokafka.ProducerInterceptor):
    def on_send(self, record: triokafka.ProducerRecord) -> triokafka.ProducerRecord:
        assert isinstance(record.headers, tuple)
        return dataclasses.replace(record, headers=[*record.headers, ("trace", b"1")])


@simulated
async def test_headers_added_by_an_interceptor_are_sent_and_do_not_change_the_callers() -> None:
    headers = [("mine", b"1")]
    async with scripted() as s:
        async with s.producer(interceptors=[Tracing]) as producer:
            await producer.send("orders", b"v", headers=headers)
            await producer.send_many("orders", [b"v"], headers=headers)
        for record in s.cluster.log[TopicPartition("orders", 0)]:
            assert record.headers == (("mine", b"1"), ("trace", b"1"))
    assert headers == [("mine", b"1")]


class Unexpected(BaseException):
    """An exception that is no `Exception`, like pytest's own outcomes."""


@simulated
async def test_base_exception_of_an_interceptor_leaves_send_and_no_record_is_accepted() -> None:
    async with scripted() as s:
        async with s.producer(interceptors=[Chain("a", Unexpected())]) as producer:
            with pytest.raises(Unexpected):
                await producer.send("orders", b"v")
            with pytest.raises(Unexpected):
                producer.send_nowait("orders", b"v")
        assert s.produced == []
