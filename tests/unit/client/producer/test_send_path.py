"""The path of a record through a producer: the order of the steps, the tasks that run them, and their waits."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import trio

import triokafka
from tests.support.scripted_broker import SILENCE
from tests.support.scripted_producing import memory_is_whole, scripted
from tests.support.simulated import simulated
from triokafka.errors import BufferTimeoutError, TopicAuthorizationFailedError, UnknownTopicOrPartitionError
from triokafka.protocol.api.metadata import MetadataRequest
from triokafka.protocol.api.produce import ProduceRequest
from triokafka.records import iter_batches


class Watcher(triokafka.ProducerInterceptor, triokafka.Serializer[bytes], triokafka.Partitioner):
    """All plug-ins in one class, which records the order of their calls."""

    def __init__(self, steps: list[str]) -> None:
        self.steps = steps
        self.producer: triokafka.Producer | None = None

    def configure(self, config: Any, is_key: bool = False) -> None:
        pass

    def close(self) -> None:
        pass

    def on_send(self, record: triokafka.ProducerRecord) -> triokafka.ProducerRecord:
        assert self.producer is not None
        known = "orders" in self.producer._client.cluster.topics
        self.steps.append(f"on_send, topic {'known' if known else 'unknown'}")
        return dataclasses.replace(record, value=b"changed")

    def serialize(self, topic: str, value: bytes, headers: Any = None) -> bytes:
        assert self.producer is not None
        assert topic in self.producer._client.cluster.topics
        self.steps.append(f"serialize {value.decode()}")
        return value + b"!"

    def partition(self, topic: str, key: Any, value: Any, partitions: Any, available: Any) -> int:
        self.steps.append(f"partition {bytes(key).decode()} {bytes(value).decode()}")
        return 1

    def on_acknowledgement(self, metadata: triokafka.RecordMetadata, error: Exception | None) -> None:
        self.steps.append("on_acknowledgement")


@simulated
async def test_steps_of_a_send_are_in_kafkas_order() -> None:
    steps: list[str] = []
    watcher = Watcher(steps)
    options: dict[str, Any] = {"interceptors": [watcher], "key_serializer": watcher, "value_serializer": watcher}
    async with scripted(orders=2) as s, s.producer(**options, partitioner=watcher) as producer:
        watcher.producer = producer
        delivery = await producer.send("orders", b"v", key=b"k", on_delivery=lambda *_: steps.append("callback"))
        assert (await delivery).partition == 1
        steps.append("awaited")
    assert steps == [
        "on_send, topic unknown",
        "serialize k",
        "serialize changed",
        "partition k! changed!",
        "on_acknowledgement",
        "callback",
        "awaited",
    ]


@simulated
async def test_only_background_tasks_talk_to_brokers_and_call_back() -> None:
    async with scripted() as s, s.producer(batch_size=200) as producer:
        tasks: list[str] = []
        await (await producer.send("orders", b"warm"))
        [channel] = [c for c in producer._client._brokers.channels() if c.node.node_id == 1]
        submit = channel.submit

        def noting(*args: Any, **options: Any) -> None:
            tasks.append(trio.lowlevel.current_task().name)
            submit(*args, **options)

        channel.submit = noting  # type: ignore[method-assign]
        task_names: list[str] = []
        for _ in range(20):
            await producer.send(
                "orders", b"x" * 90, on_delivery=lambda *_: task_names.append(trio.lowlevel.current_task().name)
            )
        await producer.flush()
        assert len(tasks) == 20
        assert trio.lowlevel.current_task().name not in tasks
        assert len(set(tasks)) == 2, "only the sender and the connection send requests"
        assert len(task_names) == 20
        assert trio.lowlevel.current_task().name not in task_names


@simulated
async def test_client_id_is_in_every_request_and_is_generated_if_not_configured() -> None:
    async with scripted() as s:
        for client_id, expected in ((None, "triokafka-producer-1"), (None, "triokafka-producer-2"), ("mine", "mine")):
            s.broker.headers.clear()
            async with s.producer(client_id=client_id) as producer:
                await producer.send("orders", b"a")
            assert {header.client_id for header in s.broker.headers} == {expected}
            assert len(s.broker.headers) >= 4


@simulated
async def test_waits_for_metadata_and_memory_share_one_time_limit() -> None:
    async with scripted(nodes=2) as s, trio.open_nursery() as nursery:
        s.cluster.move("orders", 0, 2)

        async def create_later() -> None:
            await trio.sleep(2)
            s.cluster.topics["late"] = 1

        with pytest.raises(ExceptionGroup):
            async with s.producer(
                max_block_ms=3000, buffer_memory=1000, batch_size=1000, close_timeout_ms=0
            ) as producer:
                await producer.partitions_for("orders")
                s.cluster.brokers[2].script(ProduceRequest, *[SILENCE] * 9)
                await producer.send("orders", b"x" * 900)
                nursery.start_soon(create_later)
                started = trio.current_time()
                with pytest.raises(BufferTimeoutError, match="max_block_ms"):
                    await producer.send("late", b"x" * 900)
                assert trio.current_time() - started == pytest.approx(3, abs=0.01)
        assert memory_is_whole(producer)


@simulated
async def test_sender_is_woken_per_batch_not_per_record() -> None:
    async with scripted() as s, s.producer(batch_size=2000, linger_ms=1000) as producer:
        await (await producer.send("orders", b"warm"))
        steps = 0
        step = producer._sender.step

        def counting(now: float) -> float:
            nonlocal steps
            steps += 1
            return step(now)

        producer._sender.step = counting  # type: ignore[method-assign]
        await producer.send("orders", b"x" * 100)
        await trio.sleep(0.1)
        assert steps >= 1, "a new batch wakes the sender, which must learn when the linger ends"
        steps = 0
        for _ in range(15):
            await producer.send("orders", b"x" * 100)
            await trio.lowlevel.checkpoint()
        assert steps == 0
        for _ in range(3):
            await producer.send("orders", b"x" * 100)
        await trio.sleep(0.1)
        assert steps >= 1, "a full batch wakes the sender"


@simulated
async def test_batch_is_sent_when_its_linger_ends_even_while_others_wait_longer() -> None:
    async with scripted(orders=2) as s, s.producer(linger_ms=100, retry_backoff_ms=5_000) as producer:
        for partition in (0, 1):
            await (await producer.send("orders", b"warm", partition=partition))
        s.broker.script(ProduceRequest, s.broker.refuse(19, 0))
        await producer.send("orders", b"again", partition=0)
        await trio.sleep(0.5)
        assert producer._accumulator.active, "the refused batch waits for its back-off"
        started = trio.current_time()
        await (await producer.send("orders", b"x", partition=1))
        assert trio.current_time() - started == pytest.approx(0.1, abs=0.05)


@simulated
async def test_partitions_for_uses_known_metadata_or_requests_it() -> None:
    async with scripted(orders=3) as s, s.producer(max_block_ms=2000) as producer:
        s.cluster.move("orders", 2, -1)
        partitions = await producer.partitions_for("orders")
        assert [(one.partition, one.leader) for one in partitions] == [(0, 1), (1, 1), (2, -1)]
        asked = len(s.broker.seen(MetadataRequest))
        assert list(await producer.partitions_for("orders")) == list(partitions)
        assert len(s.broker.seen(MetadataRequest)) == asked
        started = trio.current_time()
        with pytest.raises(UnknownTopicOrPartitionError):
            await producer.partitions_for("nowhere")
        assert trio.current_time() - started == pytest.approx(2, abs=0.2)
        s.cluster.topic_errors["secret"] = 29
        with pytest.raises(TopicAuthorizationFailedError):
            await producer.partitions_for("secret")
        s.cluster.move("orders", 2, 1)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@simulated
async def test_whole_batches_are_compressed_in_every_codec(codec: str) -> None:
    async with scripted() as s, s.producer(compression_type=codec, linger_ms=100) as producer:
        deliveries = [await producer.send("orders", b"a value that repeats itself") for _ in range(50)]
        assert (await deliveries[49]).offset == 49
        [request] = s.produced
        [batch] = iter_batches(request.topic_data[0].partition_data[0].records)
        assert batch.record_count == 50
        assert (batch.size < 500) == (codec != "none")
        assert s.cluster.values("orders") == [b"a value that repeats itself"] * 50


@simulated
async def test_request_timeout_is_sent_to_the_broker() -> None:
    async with scripted() as s:
        async with s.producer(request_timeout_ms=7_000, acks=1) as producer:
            await producer.send("orders", b"a")
        [request] = s.produced
        assert (request.timeout_ms, request.acks) == (7_000, 1)
