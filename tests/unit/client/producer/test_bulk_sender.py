"""send_many: every kind of column, spread over partitions, and the state after a bad record."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

import triokafka
from tests.support.cancellation import cancelled_at_each_checkpoint
from tests.support.scripted_broker import ScriptedCluster
from tests.support.scripted_producing import Setup, memory_is_whole, scripted
from tests.support.simulated import simulated
from tests.unit.records.arrow_forms import TYPES, array_of, cut, forms
from triokafka.client.producer.partitioner import Partitioner, murmur2  # type: ignore[attr-defined]
from triokafka.errors import MessageSizeTooLargeError, SerializationError, UnknownTopicOrPartitionError
from triokafka.structs import TopicPartition
from triokafka.testing import Simulation, run_simulation

START_MS = 1_700_000_000_000


def rows(s: Setup, partition: int = 0) -> list[tuple[Any, ...]]:
    return [(r.key, r.value, r.timestamp, list(r.headers)) for r in s.cluster.log[TopicPartition("orders", partition)]]


def by_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


@simulated
async def test_arrow_columns_of_every_kind_arrive_as_lists_do() -> None:
    contents = [b"a", None, b"", b"x" * 40, b"twelve bytes"]
    async with scripted() as s, s.producer() as producer:
        count = 0
        for kind in TYPES:
            whole = array_of(contents, kind)
            for form in [*forms(whole), *forms(cut(whole, [1, 4]))]:
                await (await producer.send_many("orders", form, keys=whole))
                count += 1
        assert s.cluster.values("orders") == contents * count
        assert [record.key for record in s.cluster.log[TopicPartition("orders", 0)]] == contents * count


@simulated
async def test_every_argument_may_differ_per_record() -> None:
    async with scripted(orders=3) as s, s.producer(linger_ms=5) as producer:
        deliveries = await producer.send_many(
            "orders",
            [b"0", None, b"2", b"3", b"4"],
            keys=[b"k", b"l", None, b"k", b"m"],
            partition=[2, 0, 2, None, 0],
            timestamp_ms=[10, 20, None, 5, 40],
            headers=[[("h", b"1")], [], (), [("a", None), ("b", b"")], [("h", bytearray(b"2"))]],
        )
        ranges = await deliveries
        place = by_key(b"k", 3)
        expected = [
            (2, (b"k", b"0", 10, [("h", b"1")])),
            (0, (b"l", None, 20, [])),
            (2, (None, b"2", rows(s, 2)[1][2], [])),
            (place, (b"k", b"3", 5, [("a", None), ("b", b"")])),
            (0, (b"m", b"4", 40, [("h", b"2")])),
        ]
        for partition in range(3):
            assert rows(s, partition) == [row for number, row in expected if number == partition]
        assert rows(s, 2)[1][2] >= START_MS
        metadata = [await delivery for delivery in deliveries]
        assert [m.partition for m in metadata] == [2, 0, 2, place, 0]
        assert [m.timestamp for m in metadata][:2] == [10, 20]
        assert [m.serialized_key_size for m in metadata] == [1, 1, -1, 1, 1]
        assert [m.serialized_value_size for m in metadata] == [1, -1, 1, 1, 1]
        for number in {2, 0, place}:
            offsets = [m.offset for m in metadata if m.partition == number]
            assert offsets == list(range(len(offsets)))
            assert ranges[TopicPartition("orders", number)] == (0, len(offsets) - 1)


@simulated
async def test_partitions_and_times_may_be_arrow_columns() -> None:
    async with scripted(orders=2) as s, s.producer() as producer:
        for kind in (pa.int32(), pa.int64(), pa.uint8()):
            for unit, of_ms in (("s", 1 / 1000), ("ms", 1), ("us", 1000), ("ns", 1_000_000)):
                times = pa.array([round(5_000 * of_ms), None, round(7_000 * of_ms)], pa.timestamp(unit, "UTC"))
                places = pa.chunked_array([pa.array([1], kind), pa.array([0, 1], kind)])
                await (await producer.send_many("orders", [b"a", b"b", b"c"], partition=places, timestamp_ms=times))
                assert [row[1:3] for row in rows(s, 1)[-2:]] == [(b"a", 5_000), (b"c", 7_000)]
                assert rows(s, 0)[-1][2] >= START_MS
        await (await producer.send_many("orders", [b"z"], partition=1, timestamp_ms=pa.array([9])))
        assert rows(s, 1)[-1][2] == 9


@simulated
async def test_headers_may_be_the_same_for_all_or_an_arrow_column() -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    arrow = pa.array([[{"key": "a", "value": b"1"}], None], kind)
    async with scripted() as s, s.producer() as producer:
        await producer.send_many("orders", [b"0", b"1"], headers=[("h", b"x"), ("h", None)])
        await producer.send_many("orders", pa.array([b"2", b"3"]), headers=arrow)
        await producer.flush()
        assert [row[3] for row in rows(s)] == [[("h", b"x"), ("h", None)]] * 2 + [[("a", b"1")], []]
        with pytest.raises(TypeError, match="headers as an Arrow array must be lists of structs"):
            await producer.send_many("orders", [b"0"], headers=pa.array([1]))


@simulated
async def test_records_of_a_key_stay_in_order_over_many_batches() -> None:
    async with scripted(orders=8) as s, s.producer(batch_size=500, linger_ms=0) as producer:
        keys = [b"key %d" % (number % 13) for number in range(3_000)]
        values = [b"%d" % number for number in range(3_000)]
        deliveries = await producer.send_many("orders", pa.array(values), keys=pa.array(keys))
        await deliveries
        for partition in range(8):
            expected = [(k, v) for k, v in zip(keys, values, strict=True) if by_key(k, 8) == partition]
            assert [row[:2] for row in rows(s, partition)] == expected
        log = {record.value: record.offset for tp in s.cluster.log for record in s.cluster.log[tp]}
        for number, delivery in enumerate(deliveries):
            metadata = delivery.result()
            assert metadata.partition == by_key(keys[number], 8)
            assert s.cluster.values("orders", metadata.partition)[metadata.offset] == values[number]
        assert len(log) == 3_000


@simulated
async def test_open_batches_are_filled_up() -> None:
    async with scripted(orders=2) as s, s.producer(linger_ms=1_000) as producer:
        for number in range(2):
            await producer.send("orders", b"first", partition=number)
        for _ in range(3):
            await producer.send_many("orders", [b"a", b"b"], partition=[0, 1])
            await producer.send_many("orders", [b"c"], partition=0)
        await producer.flush()
        assert producer.metrics()["batch_total"] == 2


@simulated
async def test_deliveries_are_right_while_others_send_to_the_same_partitions() -> None:
    async with scripted(orders=2) as s, s.producer(batch_size=300, linger_ms=1) as producer:
        results: dict[bytes, list[Any]] = {}

        async def one(name: bytes) -> None:
            values = [name + b"%d" % number for number in range(400)]
            deliveries = await producer.send_many("orders", values, partition=[number % 2 for number in range(400)])
            await deliveries
            results[name] = [(value, delivery.result()) for value, delivery in zip(values, deliveries, strict=True)]

        async with trio.open_nursery() as nursery:
            for name in (b"a", b"b", b"c"):
                nursery.start_soon(one, name)
        for name, acknowledged in results.items():
            assert len(acknowledged) == 400
            for value, metadata in acknowledged:
                assert s.cluster.values("orders", metadata.partition)[metadata.offset] == value
            for partition in range(2):
                own = [value for value in s.cluster.values("orders", partition) if value and value.startswith(name)]
                assert own == [value for value, metadata in acknowledged if metadata.partition == partition]


BAD_VALUE = [b"0", b"1", b"2", 3, b"4"]


@pytest.mark.parametrize(
    ("columns", "error", "message", "accepted"),
    [
        ({"values": BAD_VALUE}, SerializationError, "record 3 of 5: the value is a int", 3),
        ({"values": BAD_VALUE, "partition": [0, 1, 0, 1, 0]}, SerializationError, "record 3 of 5: the value", 3),
        ({"values": [b"x"] * 3, "keys": [b"k", "k", b"k"]}, SerializationError, "record 1 of 3: the key is a str", 1),
        ({"values": [b"x"] * 3, "headers": [[], [], [("h", 7)]]}, TypeError, "record 2 of 3: headers are pairs", 2),
        ({"values": [b"x"] * 3, "headers": [[], [("\ud800", b"")], []]}, UnicodeEncodeError, "surrogates", 1),
        ({"values": [b"x", b"y" * 30_000]}, MessageSizeTooLargeError, "record 1 of 2: a record of up to 300", 1),
        ({"values": [b"x"] * 3, "partition": [0, 1, 9]}, UnknownTopicOrPartitionError, "record 2 of 3: .* no part", 2),
        ({"values": [b"x"] * 3, "partition": [0, -1, 1]}, ValueError, "record 1 of 3: partition=-1 is not the num", 0),
        ({"values": [b"x"] * 3, "partition": [0, True, 1]}, TypeError, "record 1 of 3: partition=True is not the", 0),
        ({"values": [b"x"] * 3, "partition": pa.array([0, -1, 1])}, ValueError, "partition: number 1 of the colu", 0),
        ({"values": [b"x"] * 3, "partition": pa.array(["0"] * 3)}, TypeError, "partition: an Arrow array of type", 0),
        ({"values": [b"x"] * 2, "timestamp_ms": [5, -5]}, ValueError, "record 1 of 2: timestamp_ms=-5 is not a", 0),
        ({"values": [b"x"] * 2, "timestamp_ms": "ab"}, TypeError, "timestamp_ms='ab' is not a number of", 0),
        ({"values": pa.array([1, 2])}, TypeError, "values: an Arrow array of type 'l' is not one of binary", 0),
        ({"values": {b"a": b"b"}}, TypeError, "values must be a sequence or an Arrow array", 0),
        ({"values": [b"x"] * 2, "keys": pa.array([b"x"])}, ValueError, "got 2 values but 1 keys", 0),
        ({"values": [b"x"] * 2, "headers": [[]]}, ValueError, "got 2 values but 1 headers", 0),
    ],
    ids=lambda given: repr(given)[:40],
)
@simulated
async def test_bad_record_is_named_and_those_before_it_are_sent(
    columns: dict[str, Any], error: type[Exception], message: str, accepted: int
) -> None:
    async with scripted(orders=2) as s:
        async with s.producer(max_request_size=20_000) as producer:
            with pytest.raises(error, match=message) as raised:
                await producer.send_many("orders", **columns)
            count = len(columns["values"])
            if accepted:
                assert f"send_many accepted {accepted} of {count} records" in "".join(raised.value.__notes__)
            await producer.flush()
            assert memory_is_whole(producer)
        assert sum(len(s.cluster.log[TopicPartition("orders", partition)]) for partition in range(2)) == accepted


@simulated
async def test_broken_arrow_column_raises_where_it_is_broken() -> None:
    offsets = pa.py_buffer(struct.pack("<5i", 0, 3, 2**30, 3, 6))
    broken = pa.Array.from_buffers(pa.binary(), 4, [None, offsets, pa.py_buffer(b"abcdef")])
    async with scripted(orders=2) as s, s.producer() as producer:
        for partition in (0, [1, 1, 1, 1]):
            with pytest.raises(ValueError, match="record 1 of 4: the Arrow array is broken"):
                await producer.send_many("orders", broken, partition=partition)
        with pytest.raises(ValueError, match="record 1 of 4: the Arrow array is broken"):
            await producer.send_many("orders", [b"v"] * 4, keys=broken)
        await producer.flush()
        assert sum(len(log) for log in s.cluster.log.values()) == 3
        assert memory_is_whole(producer)


@simulated
async def test_buffers_of_python_objects_are_sent_too() -> None:
    every_other = memoryview(b"a-b-c-")[::2]
    numbers = memoryview(b"\x01\x00\x02\x00").cast("H")
    async with scripted(orders=2) as s, s.producer() as producer:
        values = [b"0", every_other, b"2", numbers]
        first = await producer.send_many("orders", values, partition=0)
        second = await producer.send_many("orders", values, keys=[b"k", every_other, None, b"k"])
        third = await producer.send_many("orders", [b"v"], headers=[[("h", every_other)]])
        await third
        assert await first == {("orders", 0): (0, 3)}
        assert s.cluster.values("orders")[:4] == [b"0", b"abc", b"2", b"\x01\x00\x02\x00"]
        metadata = [await delivery for delivery in second]
        assert [m.partition for m in metadata][:2] == [by_key(b"k", 2), by_key(b"abc", 2)]
        assert [m.serialized_value_size for m in metadata] == [1, 3, 1, 4]
        assert [m.serialized_key_size for m in metadata] == [1, 3, -1, 1]


@simulated
async def test_new_partitions_are_found() -> None:
    async with scripted(orders=1) as s, s.producer() as producer:
        await (await producer.send("orders", b"first"))
        s.cluster.topics["orders"] = 4
        await (await producer.send_many("orders", [b"a", b"b", b"c"], partition=[0, 3, 0]))
        assert s.cluster.values("orders") == [b"first", b"a", b"c"]
        assert s.cluster.values("orders", 3) == [b"b"]


@simulated
async def test_send_many_cancelled_anywhere_has_accepted_exactly_the_first_records() -> None:
    async with scripted(orders=3) as s:
        options = {"batch_size": 100, "linger_ms": 0, "buffer_memory": 600}
        async with s.producer(**options) as producer:
            values = [b"%02d" % number * 10 for number in range(40)]

            async def send() -> int:
                return len(await producer.send_many("orders", values, keys=[value[:2] for value in values]))

            async def check() -> None:
                await producer.flush()
                assert memory_is_whole(producer)
                found = {value for tp in s.cluster.log for value in s.cluster.values("orders", tp.partition)}
                assert found == set(values[: len(found)])
                s.cluster.log.clear()
                s.cluster.sequences.clear()

            options_checked, cancelled = await cancelled_at_each_checkpoint(send, check)
            assert options_checked == 40
            assert cancelled > 5


class Last(Partitioner):
    def partition(self, topic: str, key: Any, value: Any, partitions: Any, available: Any) -> int:
        return len(partitions) - 1


@simulated
async def test_plugins_see_each_record_of_send_many() -> None:
    seen: list[Any] = []

    class Interceptor(triokafka.ProducerInterceptor):
        def on_send(self, record: Any) -> Any:
            seen.append(record.value)
            return None if record.value == 2 else record

    async with scripted(orders=3) as s:
        async with s.producer(
            value_serializer=lambda number: b"%d" % number, partitioner=Last(), interceptors=[Interceptor()]
        ) as producer:
            deliveries = await producer.send_many("orders", pa.array([1, 2, 3]), timestamp_ms=pa.array([5, None, 7]))
            assert [(await delivery).offset for delivery in deliveries] == [0, -1, 1]
            with pytest.raises(SerializationError, match="record 1 of 2"):
                await producer.send_many("orders", [1, b"x"])
        assert s.cluster.values("orders", 2) == [b"1", b"3", b"1"]
        assert seen == [1, 2, 3, 1, b"x"]


@simulated
async def test_deliveries_know_attempts_latency_and_sizes() -> None:
    async with scripted(orders=2) as s, s.producer(linger_ms=100) as producer:
        deliveries = await producer.send_many("orders", pa.array([b"abc", None]), partition=[0, 1], keys=[None, b"k"])
        first, second = [await delivery for delivery in deliveries]
        assert (first.serialized_key_size, first.serialized_value_size) == (-1, 3)
        assert (second.serialized_key_size, second.serialized_value_size) == (1, -1)
        assert first.attempts == second.attempts == 1
        assert 100 <= first.latency_ms < 200
        assert s.cluster.values("orders") == [b"abc"]


texts = st.text(max_size=8).map(str.encode)
times = st.integers(0, 2**40)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(0, 60), st.integers(1, 4), st.integers(0, 2**32))
def test_any_columns_arrive_as_if_sent_one_by_one(data: st.DataObject, count: int, partitions: int, seed: int) -> None:
    def column(of: Any) -> list[Any]:
        return data.draw(st.lists(of, min_size=count, max_size=count))

    def as_column(contents: list[Any]) -> Any:
        if data.draw(st.booleans()):
            return contents
        whole = array_of(contents, data.draw(st.sampled_from(TYPES)))
        if data.draw(st.booleans()):
            whole = cut(whole, data.draw(st.lists(st.integers(0, count), max_size=3)))
        return data.draw(st.sampled_from(list(forms(whole))))

    values = column(st.one_of(st.none(), texts, st.just(b"x" * 150)))
    keys = data.draw(st.one_of(st.none(), st.just(column(st.one_of(st.none(), texts)))))
    places = data.draw(
        st.one_of(st.none(), st.integers(0, partitions - 1), st.just(column(st.integers(0, partitions - 1))))
    )
    stamps = data.draw(st.one_of(st.just(5), st.just(column(times))))
    own = data.draw(
        st.one_of(st.none(), st.just(column(st.lists(st.tuples(texts.map(bytes.decode), texts), max_size=2))))
    )
    arguments = (as_column(values), None if keys is None else as_column(keys))

    async def main(simulation: Simulation) -> None:
        cluster = ScriptedCluster(orders=partitions)
        address = await cluster.start(simulation.nursery, simulation.host("broker").world)
        async with triokafka.Producer(
            bootstrap_servers=address,
            world=simulation.host("client").world,
            batch_size=data.draw(st.sampled_from([200, 16_384])),
            buffer_memory=100_000,
        ) as producer:
            deliveries = await producer.send_many(
                "orders",
                arguments[0],
                keys=arguments[1],
                partition=places,
                timestamp_ms=stamps,
                headers=own if own is not None else (),
            )
            await deliveries
            metadata = [delivery.result() for delivery in deliveries]
        assert len(metadata) == count
        next_offsets = [0] * partitions
        for number, record_metadata in enumerate(metadata):
            record = cluster.log[TopicPartition("orders", record_metadata.partition)][record_metadata.offset]
            key = None if keys is None else keys[number]
            assert (record.key, record.value) == (key, values[number])
            assert (
                record.timestamp == record_metadata.timestamp == (stamps if isinstance(stamps, int) else stamps[number])
            )
            assert list(record.headers) == ([] if own is None else own[number])
            assert record_metadata.offset == next_offsets[record_metadata.partition]
            next_offsets[record_metadata.partition] += 1
            if places is not None:
                assert record_metadata.partition == (places if isinstance(places, int) else places[number])
            elif key is not None:
                assert record_metadata.partition == by_key(key, partitions)

    run_simulation(main, seed=seed)


@simulated
async def test_send_many_nowait_sends_the_first_records_and_leaves_the_rest() -> None:
    async with scripted(orders=2) as s, s.producer(buffer_memory=4_000, batch_size=1_000, linger_ms=5) as producer:
        with pytest.raises(triokafka.errors.MetadataNotReadyError):
            producer.send_many_nowait("orders", [b"early"])
        await producer.send("orders", b"0", partition=0)
        values = [b"%d" % number + b"x" * 90 for number in range(100)]
        for options in ({"partition": 0}, {"partition": [0, 1] * 50}, {"keys": values}):
            await producer.flush()
            before = {number: len(rows(s, number)) for number in range(2)}
            accepted = producer.send_many_nowait("orders", values, **options)
            assert 0 < len(accepted) < 100, "the buffer is full"
            assert len(list(accepted)) == len(accepted)
            await accepted
            sent = [row[1] for number in range(2) for row in rows(s, number)[before[number] :]]
            assert sorted(sent) == sorted(values[: len(accepted)])


@simulated
async def test_send_many_nowait_stops_at_a_record_that_cannot_be_sent() -> None:
    async with scripted() as s, s.producer(max_request_size=1_000) as producer:
        await producer.send("orders", b"0")
        values = [b"1", b"2", b"x" * 2_000, b"3"]
        try:
            accepted = producer.send_many_nowait("orders", values)
        except MessageSizeTooLargeError as error:
            accepted = error.accepted  # type: ignore[attr-defined]
        assert len(accepted) == 2
        with pytest.raises(MessageSizeTooLargeError, match="record 0 of 2"):
            await producer.send_many("orders", values[2:])
        await producer.flush()
        assert s.cluster.values("orders") == [b"0", b"1", b"2"]


@simulated
async def test_send_many_nowait_accepts_nothing_with_serializers() -> None:
    async with scripted() as s, s.producer(value_serializer=str.encode) as producer:
        await producer.send("orders", "0")
        assert len(producer.send_many_nowait("orders", ["1", "2"])) == 0
