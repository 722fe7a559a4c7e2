"""The fast path of a record into an open batch: the compiled and the plain implementation behave the same."""

from __future__ import annotations

import gc
import importlib
import inspect
import time
import weakref
from collections.abc import Coroutine
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

import triokafka
from triokafka import kernels
from triokafka.client.producer.batch import ProducerBatch
from triokafka.client.producer.partition_stream import PartitionStream
from triokafka.client.producer.settled_event import SettledEvent
from triokafka.errors import IllegalStateError, KafkaError, ProtocolError
from triokafka.records import BatchBuilder
from triokafka.structs import TopicPartition

NAME = "triokafka.client.producer._fast_path"
MODULES = [importlib.import_module(kernels.TWINS[NAME])]
if kernels.implementation() == "compiled":
    MODULES.append(importlib.import_module(NAME))
both = pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rpartition(".")[2])

WALL_MS = 1_700_000_000_123
BATCH_BYTES = 400


def open_batch(created_at: float = 100.0) -> ProducerBatch:
    return ProducerBatch(
        TopicPartition("orders", 0),
        (1,),
        BatchBuilder(BATCH_BYTES),
        reserved=0,
        created_at=created_at,
        new_event=SettledEvent,
    )


def _end(module: ModuleType, number: int) -> Any:
    class Queue(module.QueueTail):  # type: ignore[name-defined]
        topic_partition = TopicPartition("orders", number)

    return Queue()


class FastPath:
    """A fast path to a topic of three partitions, each with an open batch; partition 2 is the sticky one."""

    def __init__(self, module: ModuleType, *, enabled: bool = True, system_clock: bool = False) -> None:
        self.ends = [_end(module, number) for number in range(3)]
        for end in self.ends:
            end.open = open_batch()
        self.topic = module.TopicQueues()
        self.topic.queues = list(self.ends)
        self.topic.sticky = 2
        clocks = (
            (lambda: time.time_ns() // 1_000_000, lambda: 100.25) if system_clock else (lambda: WALL_MS, lambda: 100.25)
        )
        self.long: list[Any] = []
        self.asked: list[Any] = []
        self.following: Any = None
        self.way = module.FastPath(
            {"orders": self.topic},
            *clocks,
            system_clock,
            enabled,
            self.next_queue,
            self.take_the_slow_path,
            self.take_the_slow_path_now,
        )

    def next_queue(self, *arguments: Any) -> Any:
        self.asked.append(arguments)
        return self.following

    async def take_the_slow_path(self, *arguments: Any) -> Any:
        self.long.append(arguments)
        if arguments[1] == "wrong":
            raise TypeError("the value is a str")
        await trio.sleep(0)
        return "long"

    def take_the_slow_path_now(self, *arguments: Any) -> Any:
        self.long.append(arguments)
        return "long"

    def append(
        self, topic: Any, value: Any, key: Any = None, partition: Any = None, headers: Any = (), **others: Any
    ) -> Any:
        return self.way.append(
            topic, value, key, partition, others.get("timestamp_ms"), headers, others.get("on_delivery")
        )

    def counts(self) -> list[int]:
        return [end.open.count for end in self.ends]


def metadata_of(delivery: Any) -> Any:
    """Return the metadata of a delivery once its batch is acknowledged; None for no delivery."""
    if delivery is None:
        return None
    return delivery.metadata_in(SimpleNamespace(**SETTLED), 7)


SETTLED: dict[str, Any] = {
    "topic_partition": TopicPartition("orders", 1),
    "base_offset": 40,
    "log_append_time": -1,
    "attempts": 2,
    "settled_at": 101.0,
    "created_at": 100.0,
}

things = st.one_of(
    st.none(),
    st.binary(max_size=60),
    st.binary(max_size=60).map(bytearray),
    st.binary(max_size=60).map(memoryview),  # type: ignore[arg-type]
    st.binary(min_size=2, max_size=60).map(lambda data: memoryview(data)[::2]),
    st.sampled_from(["text", 5, 1.5, [b"x"]]),
)
numbers = st.one_of(st.none(), st.integers(-3, 4), st.booleans(), st.sampled_from([10**30, -(10**30), "0", 1.0]))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["orders", "others", None, 5]), things, things, numbers, st.sampled_from([(), None, []])
        )
    )
)
def test_both_implementations_accept_and_reject_the_same_records(records: list[Any]) -> None:
    ways = [FastPath(module) for module in MODULES]
    for topic, value, key, partition, headers in records:
        answers = [metadata_of(way.append(topic, value, key, partition, headers)) for way in ways]
        assert answers.count(answers[0]) == len(answers), (topic, value, key, partition)
    batches = [[bytes(end.open.build()) if end.open.count else b"" for end in way.ends] for way in ways]
    assert batches.count(batches[0]) == len(batches)


@both
def test_record_goes_to_its_partition_the_one_of_its_key_or_the_sticky_one(module: ModuleType) -> None:
    way = FastPath(module)
    assert way.append("orders", b"v", partition=1) is not None
    assert way.counts() == [0, 1, 0]
    assert way.append("orders", b"v") is not None
    assert way.counts() == [0, 1, 1]
    assert (
        way.append("orders", b"v", key=b"21") is not None
    )  # Java's hash is -973932308: 0, without its sign and modulo 3
    assert way.counts() == [1, 1, 1]


@both
def test_record_without_room_goes_into_a_new_batch(module: ModuleType) -> None:
    """The new batch is in the record's own partition, or in the current sticky one."""
    way = FastPath(module)
    full, other = way.ends[0], way.ends[1]
    way.following = other
    large = bytes(300)
    assert way.append("orders", large, partition=0) is not None
    delivery = way.append("orders", large, b"key", partition=0)
    assert (metadata_of(delivery).serialized_key_size, metadata_of(delivery).serialized_value_size) == (3, 300)
    assert way.asked == [(full, None, b"key", large, ())]
    assert way.counts() == [1, 1, 0]
    way.topic.sticky = 0
    other.open = open_batch()
    assert way.append("orders", large) is not None
    assert way.asked[1] == (full, way.topic, None, large, ())
    assert way.counts() == [1, 1, 0]
    full.open = None
    other.open = open_batch()
    assert way.append("orders", large, partition=0) is not None
    assert way.asked[2][0] is full, "without a batch there is no room"
    way.following = None
    assert way.append("orders", large, partition=0) is None
    assert len(way.asked) == 4


@both
def test_no_batch_is_opened_for_a_mutable_or_missing_value(module: ModuleType) -> None:
    way = FastPath(module)
    way.following = way.ends[1]
    way.ends[0].open = None
    for value in (bytearray(b"abc"), memoryview(b"abc"), "text", 5):
        assert way.append("orders", value, partition=0) is None
        assert way.append("orders", None, value, partition=0) is None
    assert way.asked == []


@both
@pytest.mark.parametrize(
    "arguments",
    [
        {"topic": "others"},
        {"topic": 5},
        {"topic": []},
        {"partition": 3},
        {"partition": -1},
        {"partition": 10**30},
        {"partition": True},
        {"partition": "0"},
        {"key": "text", "partition": 0},
        {"key": bytearray(b"k")},
        {"value": 5},
        {"value": memoryview(b"abcd")[::2]},
        {"headers": [("h", b"v")]},
        {"timestamp_ms": 5},
        {"on_delivery": "no function"},
        {"value": bytes(1000)},
    ],
    ids=lambda given: str(given).partition(" at 0x")[0],
)
def test_unusual_records_take_the_slow_path(module: ModuleType, arguments: dict[str, Any]) -> None:
    way = FastPath(module)
    way.append("orders", b"first", partition=0)
    way.append("orders", b"first", partition=2)
    before = way.counts()
    assert way.append(**{"topic": "orders", "value": b"v"} | arguments) is None
    assert way.counts() == before


@both
def test_nothing_takes_the_fast_path_without_an_open_batch_or_when_it_is_disabled(module: ModuleType) -> None:
    way = FastPath(module)
    way.ends[2].open = None
    assert way.append("orders", b"v") is None
    assert module.BoundFastPath(way.way, way.ends[2]).append(b"v", None, None, (), None) is None
    assert module.BoundFastPath(way.way, way.ends[1]).append(b"v", None, None, (), None) is not None
    assert module.BoundFastPath(way.way, way.ends[1]).append(b"v", None, 5, (), None) is None
    disabled = FastPath(module, enabled=False)
    assert disabled.append("orders", b"v") is None
    assert module.BoundFastPath(disabled.way, disabled.ends[1]).append(b"v", None, None, (), None) is None


@both
def test_closed_batch_takes_no_more_records(module: ModuleType) -> None:
    way = FastPath(module)
    way.append("orders", b"v", partition=0)
    way.ends[0].open.close()
    assert way.append("orders", b"v", partition=0) is None


@both
def test_delivery_has_the_offset_the_size_and_the_latency_of_its_record(module: ModuleType) -> None:
    way = FastPath(module)
    metadata = metadata_of(way.append("orders", bytearray(b"four"), memoryview(b"no"), 1))
    assert metadata == ("orders", 1, 47, WALL_MS, 2, 4, 2, pytest.approx(750.0))
    assert metadata_of(way.append("orders", None, None, 1))[4:6] == (-1, -1)


@both
def test_timestamp_is_the_system_time_in_the_real_world(module: ModuleType) -> None:
    way = FastPath(module, system_clock=True)
    before = time.time_ns() // 1_000_000
    timestamp = metadata_of(way.append("orders", b"v", partition=0)).timestamp
    assert before <= timestamp <= time.time_ns() // 1_000_000


@both
def test_latency_is_from_the_records_own_time_and_never_negative(module: ModuleType) -> None:
    way = FastPath(module, system_clock=True)
    [early, late] = [metadata_of(way.append("orders", b"v", partition=0)) for _ in range(2)]
    assert 0.0 <= late.latency_ms <= early.latency_ms <= 1000.0
    delivery = way.append("orders", b"v", partition=0)
    settled_too_early = SimpleNamespace(**SETTLED | {"settled_at": SETTLED["created_at"] - 5})
    assert delivery.metadata_in(settled_too_early, 0).latency_ms == 0.0


@both
async def test_delivery_may_be_awaited_by_several_tasks_and_repeatedly(module: ModuleType) -> None:
    way = FastPath(module)
    delivery = way.append("orders", b"v", partition=0)
    seen = []

    async def wait() -> None:
        seen.append(await delivery)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        assert not delivery.done
        with pytest.raises(IllegalStateError, match="neither acknowledged nor failed yet"):
            delivery.result()
        way.ends[0].open.settle(5, now=100.5)
    assert seen == [await delivery, delivery.result()]
    assert (delivery.topic, delivery.partition, delivery.done) == ("orders", 0, True)
    assert repr(delivery) == "<Delivery orders-0 settled>"


@both
async def test_cancelled_wait_leaves_the_delivery_unchanged(module: ModuleType) -> None:
    way = FastPath(module)
    delivery = way.append("orders", b"v", partition=0)
    with trio.CancelScope() as scope:
        scope.cancel()
        await delivery
    assert scope.cancelled_caught
    way.ends[0].open.settle(5, now=100.5)
    assert (await delivery).offset == 5


@both
async def test_failure_is_raised_as_a_copy_with_its_cause_and_keeps_no_frame_alive(module: ModuleType) -> None:
    """The garbage collector does not track deliveries, so an error must not reference its delivery."""
    way = FastPath(module)
    batch = way.ends[0].open
    delivery = way.append("orders", b"v", partition=0)
    error = ProtocolError("nonsense", path="here", offset=3)
    error.__cause__ = KafkaError("why")
    batch.settle(error=error)

    class Local:
        pass

    async def fail() -> weakref.ref[Local]:
        local = Local()
        awaited = delivery
        try:
            await awaited
        except ProtocolError as caught:
            assert (str(caught), caught.offset, caught.__cause__) == (str(error), 3, error.__cause__)
            assert caught is not error
        return weakref.ref(local)

    left = await fail()
    gc.collect()
    assert left() is None
    assert error.__traceback__ is None
    assert batch.unobserved_failures == 0


# ---------------------------------------------------------------- send is a coroutine function


@both
async def test_send_takes_the_fast_path_where_possible_and_otherwise_the_slow_path(module: ModuleType) -> None:
    way = FastPath(module)
    bound = module.BoundFastPath(way.way, way.ends[1])
    for delivery in (
        await way.way.send("orders", b"v", partition=1),
        await bound.send(b"v"),
        way.way.send_nowait("orders", b"v", partition=1),
        bound.send_nowait(b"v", key=b"k"),
    ):
        assert type(delivery) is module.Delivery
    assert way.counts() == [0, 4, 0]
    for answer in (
        await way.way.send("others", b"v", key=b"k", partition=3),
        await way.way.send("orders", b"v", timestamp_ms=5, headers=[("h", b"")], on_delivery=print),
        await bound.send(5, key=b"k"),
        await bound.send(b"v", timestamp_ms=5, headers=[("h", b"")]),
        way.way.send_nowait("others", b"v"),
        bound.send_nowait(b"v", timestamp_ms=6),
        await bound.send(bytes(1000), on_delivery=print),
    ):
        assert answer == "long"
    assert way.long == [
        ("others", b"v", b"k", 3, None, (), None),
        ("orders", b"v", None, None, 5, [("h", b"")], print),
        ("orders", 5, b"k", 1, None, (), None),
        ("orders", b"v", None, 1, 5, [("h", b"")], None),
        ("others", b"v", None, None, None, (), None),
        ("orders", b"v", None, 1, 6, (), None),
        ("orders", bytes(1000), None, 1, None, (), print),
    ]
    assert way.counts() == [0, 4, 0]


@both
async def test_delivery_callbacks_run_for_records_of_the_fast_path(module: ModuleType) -> None:
    """Each callback runs once, in the order of the records."""
    way = FastPath(module)
    bound = module.BoundFastPath(way.way, way.ends[1])
    calls_madedata_of: list[tuple[str, int]] = []

    def on_delivery(name: str) -> Any:
        return lambda metadata, error: calls_madedata_of.append((name, metadata.offset))

    way.way.append("orders", b"v", None, 1, None, (), on_delivery("append"))
    bound.append(b"v", None, None, (), on_delivery("bound append"))
    await way.way.send("orders", b"v", partition=1, on_delivery=on_delivery("send"))
    way.way.send_nowait("orders", b"v", partition=1, on_delivery=on_delivery("send_nowait"))
    await bound.send(b"v", on_delivery=on_delivery("bound send"))
    bound.send_nowait(b"v", on_delivery=on_delivery("bound send_nowait"))
    assert (way.counts(), way.long, calls_madedata_of) == ([0, 6, 0], [], [])
    way.ends[1].open.settle(40)
    names = ["append", "bound append", "send", "send_nowait", "bound send", "bound send_nowait"]
    assert calls_madedata_of == [(name, 40 + number) for number, name in enumerate(names)]


@both
async def test_send_is_started_and_run_as_any_async_function(module: ModuleType) -> None:
    way = FastPath(module)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(way.way.send, "orders", b"v")
        nursery.start_soon(way.way.send, "others", b"v")
        nursery.start_soon(partial(way.way.send, key=b"21"), "orders", b"v")
    assert way.counts() == [1, 0, 1]
    assert len(way.long) == 1
    coroutine = way.way.send("orders", b"v")
    assert isinstance(coroutine, Coroutine)
    coroutine.close()


@both
async def test_record_is_appended_when_the_coroutine_is_awaited_not_before(module: ModuleType) -> None:
    way = FastPath(module)
    first = way.way.send("orders", b"first", partition=0)
    second = way.way.send("orders", b"second", partition=0)
    assert way.counts() == [0, 0, 0]
    assert (await second).metadata_in(SimpleNamespace(**SETTLED), 0).serialized_value_size == 6
    assert (await first).metadata_in(SimpleNamespace(**SETTLED), 0).serialized_value_size == 5


@both
def test_coroutine_that_is_never_awaited_sends_nothing_and_warns(module: ModuleType) -> None:
    way = FastPath(module)
    with pytest.warns(RuntimeWarning, match="send' was never awaited"):
        way.way.send("orders", b"v", partition=0)
        gc.collect()
    assert way.counts() == [0, 0, 0]


@both
async def test_coroutine_is_awaited_once_only(module: ModuleType) -> None:
    way = FastPath(module)
    for topic in ("orders", "others"):
        coroutine = way.way.send(topic, b"v")
        await coroutine
        with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
            await coroutine
        with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
            coroutine.throw(ValueError())
        coroutine.close()
    closed = way.way.send("orders", b"v")
    closed.close()
    with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
        await closed
    assert way.counts() == [0, 0, 1]


@both
async def test_cancelled_slow_path_ends_where_it_waits(module: ModuleType) -> None:
    way = FastPath(module)
    with trio.CancelScope() as scope:
        scope.cancel()
        await way.way.send("others", b"v")
    assert scope.cancelled_caught
    with trio.CancelScope() as scope:
        scope.cancel()
        await way.way.send("orders", b"v")  # this send does not wait
    assert not scope.cancelled_caught
    with pytest.raises(TypeError, match="the value is a str"):
        await way.way.send("orders", "wrong")


@both
def test_coroutine_can_be_driven_by_hand_like_a_python_coroutine(module: ModuleType) -> None:
    way = FastPath(module)
    fresh = way.way.send("orders", b"v")
    with pytest.raises(TypeError, match="can't send non-None value to a just-started coroutine"):
        fresh.send(5)
    fresh.close()
    with pytest.raises(StopIteration) as short:
        way.way.send("orders", b"v").send(None)
    assert type(short.value.value) is module.Delivery
    with pytest.raises(ValueError, match="early"):
        way.way.send("orders", b"v").throw(ValueError("early"))
    waiting = way.way.send("others", b"v")
    assert waiting.cr_await is None
    waiting.send(None)
    assert waiting.cr_frame is not None
    assert waiting.cr_await is not None
    waiting.close()
    assert waiting.cr_frame is None


@both
def test_send_of_a_producer_has_the_signature_of_its_class(module: ModuleType) -> None:
    for function, method in (
        (triokafka.Producer.send, module.FastPath.send),
        (triokafka.Producer.send_nowait, module.FastPath.send_nowait),
        (PartitionStream.send, module.BoundFastPath.send),
        (PartitionStream.send_nowait, module.BoundFastPath.send_nowait),
    ):
        ours, theirs = (list(inspect.signature(each).parameters.values())[1:] for each in (function, method))
        assert [(p.name, p.kind, p.default) for p in ours] == [(p.name, p.kind, p.default) for p in theirs]
