"""Compression in worker threads: when it is used, and that only the time that it saves is noticeable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

import triokafka
from tests.support.scripted_broker import ScriptedCluster
from tests.support.scripted_producing import memory_is_whole, scripted
from tests.support.simulated import simulated
from triokafka.client.producer.batch import ProducerBatch
from triokafka.client.producer.compressor import MOST_THREADS, ThreadCompressor, bytes_per_second
from triokafka.client.producer.settled_event import SettledEvent
from triokafka.errors import KafkaError, KafkaTimeoutError
from triokafka.protocol.api.produce import ProduceRequest
from triokafka.records import BatchBuilder, builder
from triokafka.structs import TopicPartition
from triokafka.testing import Simulation, run_simulation

LARGE = b"0123456789" * 2_000  # gzip takes longer for it than a hand-over to a thread


class Threads:
    """Worker threads that the test starts and ends. A started one cannot be cancelled."""

    def __init__(self, world: Any, *, held: bool = True) -> None:
        self.running = 0
        self.most = 0
        self.calls = 0
        self.sizes: list[int] = []
        self.failure: Exception | None = None
        self._gate = trio.Event()
        self._begun = trio.Event()
        if not held:
            self._gate.set()
        world.run_in_thread = self._run

    async def _run(self, function: Callable[..., Any], *args: Any) -> Any:
        await trio.lowlevel.checkpoint_if_cancelled()
        if self.failure is not None:
            raise self.failure
        self.calls += 1
        self.sizes.append(len(args[0]))
        self.running += 1
        self.most = max(self.most, self.running)
        self._begun.set()
        try:
            with trio.CancelScope(shield=True):
                await self._gate.wait()
                await trio.lowlevel.checkpoint()
            return function(*args)
        finally:
            self.running -= 1

    async def begun(self) -> None:
        """Wait until a thread runs."""
        await self._begun.wait()

    def release(self) -> None:
        """Let all threads end, including later ones."""
        self._gate.set()


@simulated
async def test_large_batch_is_compressed_in_a_thread_and_a_small_one_is_not() -> None:
    async with scripted() as s, s.producer(compression_type="gzip", linger_ms=1) as producer:
        threads = Threads(s.world, held=False)
        await (await producer.send("orders", b"small"))
        assert threads.calls == 0
        await (await producer.send("orders", LARGE))
        assert threads.calls == 1
        assert s.cluster.values("orders") == [b"small", LARGE]
        assert memory_is_whole(producer)


@pytest.mark.parametrize("codec", ["none", "snappy"])
@simulated
async def test_no_thread_where_it_would_not_help(codec: str) -> None:
    async with scripted() as s, s.producer(compression_type=codec) as producer:
        threads = Threads(s.world, held=False)
        for _ in range(50):
            await producer.send("orders", LARGE)
        await producer.flush()
        assert threads.calls == 0
        assert s.cluster.values("orders") == [LARGE] * 50


@simulated
async def test_batch_in_a_thread_stays_in_order() -> None:
    """Later batches of the partition wait for it; other partitions do not."""
    async with scripted(orders=2) as s, s.producer(compression_type="gzip", linger_ms=0) as producer:
        threads = Threads(s.world)
        large = await producer.send("orders", LARGE, partition=0)
        await threads.begun()
        small = await producer.send("orders", b"small", partition=0)
        await (await producer.send("orders", b"other", partition=1))
        await trio.sleep(1)
        assert not large.done
        assert not small.done
        assert s.cluster.values("orders", 0) == []
        threads.release()
        await small
        assert s.cluster.values("orders", 0) == [LARGE, b"small"]


@simulated
async def test_closed_batches_are_compressed_also_while_their_broker_takes_none() -> None:
    async with scripted() as s, s.producer(compression_type="gzip", linger_ms=0) as producer:
        threads = Threads(s.world, held=False)
        s.cluster.leaders[TopicPartition("orders", 0)] = -1
        deliveries = [await producer.send("orders", LARGE) for _ in range(4)]
        await threads.begun()
        assert not deliveries[0].done
        s.cluster.move("orders", 0, 1)
        for delivery in deliveries:
            await delivery


@simulated
async def test_memory_of_a_batch_that_expires_in_a_thread_is_released_when_the_thread_is_done() -> None:
    """If the memory were reused earlier, the thread would compress the bytes of other records."""
    options = {"compression_type": "gzip", "linger_ms": 0, "delivery_timeout_ms": 2_000, "request_timeout_ms": 1_000}
    async with scripted() as s, s.producer(**options) as producer:
        threads = Threads(s.world)
        delivery = await producer.send("orders", LARGE)
        await threads.begun()
        with pytest.raises(KafkaTimeoutError, match="delivery_timeout_ms"):
            await delivery
        assert not memory_is_whole(producer)
        threads.release()
        await (await producer.send("orders", b"next"))
        assert s.cluster.values("orders") == [b"next"]
        assert memory_is_whole(producer)


@simulated
async def test_batch_that_expires_in_the_queue_is_removed() -> None:
    options = {"compression_type": "gzip", "linger_ms": 0, "delivery_timeout_ms": 2_000, "request_timeout_ms": 1_000}
    async with scripted() as s, s.producer(batch_size=5_000, **options) as producer:
        threads = Threads(s.world, held=False)
        await (await producer.send("orders", b"x"))
        s.cluster.leaders[TopicPartition("orders", 0)] = -1
        await producer._client.refresh_metadata(timeout_ms=1_000)
        deliveries = [await producer.send("orders", b"y" * 4_000) for _ in range(3)]
        compressor = producer._accumulator.queues.compressor
        assert compressor is not None
        assert compressor.waiting == 2
        for delivery in deliveries:
            with pytest.raises(KafkaTimeoutError):
                await delivery
        assert compressor.waiting == 0
        assert threads.calls == 0
        assert memory_is_whole(producer)


@simulated
async def test_leaving_waits_for_the_thread_and_releases_the_memory_once() -> None:
    async with scripted() as s:
        producer = s.producer(compression_type="gzip", linger_ms=0, close_timeout_ms=500)
        threads = Threads(s.world)
        async with trio.open_nursery() as nursery:
            with pytest.raises(ExceptionGroup, match="1 records were not delivered") as left:
                async with producer:
                    await producer.send("orders", LARGE)
                    await threads.begun()

                    async def end() -> None:
                        await trio.sleep(2)
                        assert not memory_is_whole(producer)
                        threads.release()

                    nursery.start_soon(end)
        assert left.group_contains(KafkaTimeoutError, match="close_timeout_ms=500")
        assert memory_is_whole(producer)


@simulated
async def test_cancelled_body_still_delivers_batches_in_compression() -> None:
    async with scripted() as s:
        threads = Threads(s.world)
        with trio.CancelScope() as scope:
            # The virtual clock does not wait for threads, and may advance meanwhile.
            producer = s.producer(compression_type="gzip", linger_ms=0, close_stall_timeout_ms=30_000)
            async with trio.open_nursery() as nursery, producer:
                await producer.send("orders", LARGE)
                await threads.begun()

                async def end() -> None:
                    with trio.CancelScope(shield=True):
                        await trio.sleep(0.5)
                        threads.release()

                nursery.start_soon(end)
                scope.cancel()
                await trio.sleep_forever()
        assert scope.cancelled_caught
        assert s.cluster.values("orders") == [LARGE]
        assert memory_is_whole(producer)


@simulated
async def test_producer_that_fails_waits_for_its_threads_memory_too() -> None:
    async with scripted() as s:
        producer = s.producer(compression_type="gzip", linger_ms=0)
        threads = Threads(s.world)
        async with producer:
            delivery = await producer.send("orders", LARGE)
            await threads.begun()
            producer._fail(KafkaError("as a test wants it"))
            with pytest.raises(KafkaError, match="as a test wants it"):
                await delivery
            assert not memory_is_whole(producer)
            threads.release()
        assert memory_is_whole(producer)


@pytest.mark.parametrize("size", [20, 20_000])
@simulated
async def test_batch_on_which_the_codec_fails_fails_alone(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds in the event loop and in a thread."""
    compress = builder.compress  # type: ignore[attr-defined]

    def failing(codec: int, data: Any, level: int | None) -> bytes:
        if b"poison" in bytes(data):
            raise RuntimeError("the codec is broken")
        return compress(codec, data, level)

    monkeypatch.setattr(builder, "compress", failing)
    async with scripted() as s, s.producer(compression_type="gzip", linger_ms=0) as producer:
        good, bad = b"good".ljust(size), b"poison".ljust(size)
        first = await producer.send("orders", good)
        await producer.flush()
        poisoned = await producer.send("orders", bad)
        await producer.flush()
        last = await producer.send("orders", good)
        with pytest.raises(KafkaError, match=r"1 records for .* could not be compressed with gzip: .*codec is broken"):
            await poisoned
        assert ((await first).offset, (await last).offset) == (0, 1)
        assert memory_is_whole(producer)


@simulated
async def test_batch_on_which_the_codec_fails_affects_no_other_batch_of_its_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compress = builder.compress  # type: ignore[attr-defined]

    def failing(codec: int, data: Any, level: int | None) -> bytes:
        if b"poison" in bytes(data):
            raise RuntimeError("the codec is broken")
        return compress(codec, data, level)

    monkeypatch.setattr(builder, "compress", failing)
    options = {"compression_type": "lz4", "linger_ms": 1, "batch_size": 60_000}
    async with scripted(orders=3) as s, s.producer(**options) as producer:
        threads = Threads(s.world, held=False)
        values = [b"good" * 14_900, b"poison" * 9_900, b"fine" * 14_900]
        deliveries = list(await producer.send_many("orders", values, partition=[0, 1, 2]))
        await producer.flush()
        assert threads.sizes == [3]
        assert [delivery.done for delivery in deliveries] == [True] * 3
        with pytest.raises(KafkaError, match="the codec is broken"):
            deliveries[1].result()
        assert [s.cluster.values("orders", partition) for partition in range(3)] == [values[:1], [], values[2:]]
        assert memory_is_whole(producer)


@simulated
async def test_batches_fail_when_no_thread_can_be_started() -> None:
    async with scripted() as s, s.producer(compression_type="gzip", linger_ms=0) as producer:
        threads = Threads(s.world)
        threads.failure = RuntimeError("can't start new thread")
        with pytest.raises(KafkaError, match="can't start new thread"):
            await (await producer.send("orders", LARGE))
        threads.failure = None
        threads.release()
        await (await producer.send("orders", LARGE))
        assert memory_is_whole(producer)


@simulated
async def test_few_threads_compress_several_batches_per_job() -> None:
    async with scripted(orders=20) as s, s.producer(compression_type="gzip", linger_ms=1) as producer:
        threads = Threads(s.world)
        values = [bytes([65 + number % 7]) * 15_000 for number in range(200)]
        deliveries = await producer.send_many("orders", values, partition=[number % 20 for number in range(200)])
        await threads.begun()
        threads.release()
        await deliveries
        assert threads.most == MOST_THREADS
        assert 0 < threads.calls < 80
        for partition in range(20):
            assert s.cluster.values("orders", partition) == values[partition::20]


@simulated
async def test_split_batch_is_compressed_again() -> None:
    async with scripted() as s, s.producer(compression_type="gzip", linger_ms=10, batch_size=65_536) as producer:
        s.broker.script(ProduceRequest, s.broker.refuse(10))
        deliveries = await producer.send_many("orders", [LARGE] * 5)
        await deliveries
        assert producer.metrics()["batch_split_total"] == 1
        assert s.cluster.values("orders") == [LARGE] * 5
        assert memory_is_whole(producer)


def test_speed_depends_on_codec_and_level() -> None:
    assert bytes_per_second("gzip", None) < bytes_per_second("zstd", None) < bytes_per_second("lz4", 9)
    assert bytes_per_second("zstd", 19) < bytes_per_second("zstd", 9) < bytes_per_second("zstd", -5)
    assert bytes_per_second("lz4", 3) < bytes_per_second("lz4", None)
    assert bytes_per_second("snappy", None) == float("inf")


@pytest.mark.parametrize(
    ("codec", "cpus", "pays"), [("gzip", 2, True), ("lz4", 2, False), ("zstd", 2, False), ("lz4", 4, True)]
)
def test_fast_codecs_go_to_threads_only_where_there_are_processors_for_them(codec: str, cpus: int, pays: bool) -> None:
    compressor, started = line(codec, cpus)
    compressor.enqueue(closed_batch(1_000_000))
    assert compressor.hand_over() is pays
    assert len(started) == pays


def line(codec: str = "gzip", cpus: int = 4) -> tuple[ThreadCompressor, list[Callable[[], Awaitable[None]]]]:
    started: list[Callable[[], Awaitable[None]]] = []
    world = SimpleNamespace(cpus=cpus)
    return ThreadCompressor(codec, None, world=world, start_task=started.append, on_done=lambda *_: None), started  # type: ignore[arg-type]


def closed_batch(size: int) -> ProducerBatch:
    made = BatchBuilder(size + 200, compression="gzip")
    made.append(0, None, bytes(size))
    batch = ProducerBatch(TopicPartition("t", 0), (1,), made, reserved=0, created_at=0.0, new_event=SettledEvent)
    batch.close()
    return batch


def test_queue_is_handed_over_once_it_is_worth_a_thread() -> None:
    compressor, started = line()
    batches = [closed_batch(3_000) for _ in range(5)]
    for batch in batches[:3]:
        compressor.enqueue(batch)
        compressor.enqueue(batch)
    assert not compressor.hand_over()
    compressor.enqueue(batches[3])
    assert compressor.hand_over()
    assert compressor.hand_over()
    assert (compressor.waiting, len(started)) == (4, 1), "one thread is enough for all batches"
    compressor.withdraw(batches[0])
    compressor.withdraw(batches[0])
    assert not compressor.hand_over()


sizes = st.sampled_from([10, 100, 5_000, 20_000])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 2), sizes),
        st.tuples(st.just("wait"), st.sampled_from([0.0, 0.001, 0.1]), st.none()),
        st.tuples(st.just("flush"), st.none(), st.none()),
    ),
    max_size=60,
)


@settings(max_examples=40, deadline=None)
@given(steps, st.sampled_from(["gzip", "lz4", "zstd"]), st.sampled_from([0, 5]), st.integers(0, 2**32), st.booleans())
def test_order_and_memory_are_the_same_however_long_threads_take(
    script: list[Any], codec: str, linger: int, seed: int, idempotent: bool
) -> None:
    async def main(simulation: Simulation) -> None:
        cluster = ScriptedCluster(orders=3)
        address = await cluster.start(simulation.nursery, simulation.host("broker").world)
        sent: list[list[bytes]] = [[], [], []]
        producer = triokafka.Producer(
            bootstrap_servers=address,
            world=simulation.host("client").world,
            compression_type=codec,
            linger_ms=linger,
            batch_size=30_000,
            buffer_memory=150_000,
            enable_idempotence=idempotent,
            max_in_flight_requests_per_connection=5 if idempotent else 1,
        )
        async with producer:
            for action, first, second in script:
                if action == "send":
                    value = b"%d " % len(sent[first]) + simulation.random.randbytes(second // 2) * 2
                    sent[first].append(value)
                    await producer.send("orders", value, partition=first)
                elif action == "wait":
                    await trio.sleep(first)
                else:
                    await producer.flush()
        assert [cluster.values("orders", partition) for partition in range(3)] == sent
        assert memory_is_whole(producer)

    run_simulation(main, seed=seed)
