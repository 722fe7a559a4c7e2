"""The lz4 compressor beside the event loop: its thread, its jobs, and that only the time that it saves is
noticeable.
"""

from __future__ import annotations

import importlib
import os
import random
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given, settings
from hypothesis import strategies as st

import triokafka
from tests.support.scripted_broker import ScriptedCluster
from tests.support.scripted_producing import memory_is_whole, scripted
from tests.support.simulated import simulated
from tests.unit.client.producer.test_accumulator import Bench
from triokafka import kernels
from triokafka.client.producer import compressor, lz4_compressor
from triokafka.client.producer.batch import ProducerBatch
from triokafka.client.producer.compressor import ThreadCompressor, compressor_for
from triokafka.client.producer.lz4_compressor import MOST_BYTES, MOST_GIVEN, WORTH_GIVING_BYTES, Lz4Compressor
from triokafka.client.producer.settled_event import SettledEvent
from triokafka.records import BatchBuilder, compress, decode_records
from triokafka.structs import TopicPartition
from triokafka.testing import Simulation, run_simulation
from triokafka.world import World
from triokafka.world.system import RealWorld

NAMES = ["plain_lz4_worker", "_lz4_worker"] if kernels.implementation() == "compiled" else ["plain_lz4_worker"]
TEXT = b"".join(b'{"number": %d, "name": "somebody %d"}' % (i, i * 7) for i in range(20_000))


@pytest.fixture(params=NAMES)
def kind(request: pytest.FixtureRequest) -> Any:
    """The worker class of each implementation."""
    return importlib.import_module(f"triokafka.client.producer.{request.param}").Lz4Worker


@contextmanager
def serving(kind: Any, idle: float = 30.0) -> Iterator[tuple[Any, int]]:
    """Run a worker in its thread; yield it with the read end of its bell."""
    bell, descriptor = os.pipe()
    worker = kind(*(lz4_compressor.functions() or (0, 0)), descriptor)
    assert not worker.push(bytearray(10), 0, 5), "no thread serves yet"
    thread = threading.Thread(target=worker.serve, args=(idle,))
    thread.start()
    try:
        while not worker.serving:
            pass
        yield worker, bell
    finally:
        worker.stop()
        thread.join()
        os.close(bell)
        os.close(descriptor)
    assert not worker.serving
    assert not worker.push(bytearray(10), 0, 5)


def collect(worker: Any, bell: int, count: int) -> list[int]:
    """Return the results of so many jobs."""
    found: list[int] = []
    while len(found) < count:
        os.read(bell, 100)
        found += worker.finished()
    return found


def test_jobs_are_done_in_place_and_in_order(kind: Any) -> None:
    pieces = [TEXT[: 1000 * (i + 1)] for i in range(12)]
    buffers = [bytearray(b"header" + piece + bytes(100)) for piece in pieces]
    with serving(kind) as (worker, bell):
        for buffer, piece in zip(buffers, pieces, strict=True):
            assert worker.push(buffer, 6, 6 + len(piece))
        sizes = collect(worker, bell, len(pieces))
        assert worker.finished() == []
    for buffer, piece, size in zip(buffers, pieces, sizes, strict=True):
        assert buffer[6 : 6 + size] == compress("lz4", piece)
        assert buffer[:6] == b"header"


def test_incompressible_batch_is_unchanged(kind: Any) -> None:
    noise = bytearray(os.urandom(70_000))
    before = bytes(noise)
    with serving(kind) as (worker, bell):
        assert worker.push(noise, 0, len(noise))
        assert worker.push(bytearray(noise + bytes(100)), 0, len(noise))
        first, second = collect(worker, bell, 2)
    assert (first, noise) == (-1, before)
    assert second > len(noise)


def test_worker_accepts_no_more_jobs_than_it_has_room_for(kind: Any) -> None:
    with serving(kind) as (worker, bell):
        accepted = [worker.push(bytearray(TEXT[:5_000]), 0, 5_000) for _ in range(40)]
        assert accepted == [True] * 16 + [False] * 24, "only collected jobs make room"
        assert len(collect(worker, bell, 16)) == 16
        assert worker.push(bytearray(TEXT[:5_000]), 0, 5_000)


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (5, 4), (0, 11), (11, 11)])
def test_range_outside_of_the_buffer_is_refused(kind: Any, start: int, end: int) -> None:
    with serving(kind) as (worker, _), pytest.raises(ValueError, match="of a buffer of 10"):
        worker.push(bytearray(10), start, end)


def test_thread_ends_by_itself_when_it_is_idle(kind: Any) -> None:
    bell, descriptor = os.pipe()
    worker = kind(*(lz4_compressor.functions() or (0, 0)), descriptor)
    worker.serve(0.01)
    assert not worker.serving
    os.close(bell)
    os.close(descriptor)


def test_worker_stopped_before_it_serves_ends_at_once(kind: Any) -> None:
    worker = kind(*(lz4_compressor.functions() or (0, 0)), -1)
    worker.stop()
    worker.serve(1_000.0)
    assert not worker.serving


# ------------------------------------------------------------------------ which batches it gets


class ManualWorker:
    """A worker whose jobs the test starts."""

    def __init__(self, *_: object) -> None:
        self.serving = True
        self.done = 0
        self.jobs: list[tuple[bytearray, int, int]] = []
        self.results: list[int] = []
        ManualWorker.last = self

    last: ManualWorker

    def push(self, buffer: bytearray, start: int, end: int) -> bool:
        if self.serving:
            self.jobs.append((buffer, start, end))
        return self.serving

    def do(self, count: int = 1) -> None:
        for _ in range(min(count, len(self.jobs))):
            buffer, start, end = self.jobs.pop(0)
            packed = compress("lz4", bytes(buffer[start:end]))
            fits = len(packed) <= len(buffer) - start
            if fits:
                buffer[start : start + len(packed)] = packed
            self.results.append(len(packed) if fits else -1)
            self.done += 1

    def finished(self) -> list[int]:
        results, self.results = self.results, []
        return results


def closed_batch(size: int, value: bytes = TEXT) -> ProducerBatch:
    """Return a closed batch with a record of so many bytes."""
    made = BatchBuilder(size + 200, compression="lz4", buffer=bytearray(size + 300))
    made.append(0, None, (value * (size // len(value) + 1))[:size])
    batch = ProducerBatch(TopicPartition("t", 0), (1,), made, reserved=0, created_at=0.0, new_event=SettledEvent)
    batch.close()
    return batch


class CompressorSetup:
    """An `Lz4Compressor` with a worker that already serves."""

    def __init__(self) -> None:
        self.started: list[Callable[[], Awaitable[None]]] = []
        self.done: list[ProducerBatch] = []
        self.compressor = Lz4Compressor(
            world=SimpleNamespace(),  # type: ignore[arg-type]
            start_task=self.started.append,
            on_done=lambda batch, error: self.done.append(batch),
            wake=lambda: None,
        )
        self.worker = ManualWorker()
        self.compressor._worker = self.worker  # type: ignore[assignment]


def test_thread_gets_only_batches_worth_the_hand_over() -> None:
    setup = CompressorSetup()
    small, good, huge = (
        closed_batch(WORTH_GIVING_BYTES - 200),
        closed_batch(WORTH_GIVING_BYTES),
        closed_batch(MOST_BYTES),
    )
    for batch in (small, good, huge):
        setup.compressor.enqueue(batch)
        setup.compressor.enqueue(batch)
    assert [batch.in_thread for batch in (small, good, huge)] == [False, True, False]
    assert setup.compressor.waiting == 1
    setup.worker.do()
    assert not setup.compressor.hand_over(), "the event loop compresses the other batches"
    assert setup.done == [good]
    assert not good.in_thread
    assert good.compressed
    setup.compressor.enqueue(good)
    assert setup.compressor.waiting == 0, "the batch is already compressed"
    (record,) = decode_records(good.build())
    assert record.value == (TEXT * 2)[:WORTH_GIVING_BYTES]


def test_event_loop_compresses_when_the_thread_is_behind() -> None:
    setup = CompressorSetup()
    batches = [closed_batch(WORTH_GIVING_BYTES) for _ in range(MOST_GIVEN + 2)]
    for batch in batches:
        setup.compressor.enqueue(batch)
    assert [batch.in_thread for batch in batches] == [True] * MOST_GIVEN + [False] * 2
    assert [batch.compressed for batch in batches] == [False] * MOST_GIVEN + [True] * 2
    setup.worker.do(2)
    later = closed_batch(WORTH_GIVING_BYTES)
    setup.compressor.enqueue(later)
    assert later.in_thread, "finished jobs are collected first"
    assert setup.done == batches[:2]


def test_event_loop_compresses_batches_that_do_not_fit() -> None:
    setup = CompressorSetup()
    batch = closed_batch(WORTH_GIVING_BYTES, os.urandom(WORTH_GIVING_BYTES))
    assert batch.builder is not None
    builder = BatchBuilder(batch.builder.size, compression="lz4", buffer=batch.builder.buffer[: batch.builder.size])
    builder.append(0, None, os.urandom(batch.builder.size - 80))
    batch.builder = builder
    setup.compressor.enqueue(batch)
    setup.worker.do()
    setup.compressor.hand_over()
    assert not batch.in_thread
    assert not batch.compressed
    batch.compress()
    assert batch.compressed


def test_first_batch_starts_the_thread_once_and_is_compressed_elsewhere() -> None:
    setup = CompressorSetup()
    setup.worker.serving = False
    for _ in range(3):
        batch = closed_batch(WORTH_GIVING_BYTES)
        setup.compressor.enqueue(batch)
        assert not batch.in_thread
    assert len(setup.started) == 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.just("enqueue"), st.just("do"), st.just("collect"), st.just("stop")), max_size=40))
def test_batches_are_returned_once_and_complete(steps: list[str]) -> None:
    setup = CompressorSetup()
    batches: list[ProducerBatch] = []
    for step in steps:
        if step == "enqueue":
            batches.append(closed_batch(WORTH_GIVING_BYTES + len(batches)))
            setup.compressor.enqueue(batches[-1])
        elif step == "do":
            setup.worker.do()
        elif step == "collect":
            setup.compressor.hand_over()
        else:
            setup.worker.serving = False
        assert sum(batch.in_thread for batch in batches) == setup.compressor.waiting <= MOST_GIVEN
    setup.worker.do(len(batches))
    setup.compressor.hand_over()
    assert not any(batch.in_thread for batch in batches)
    assert len(setup.done) == len(set(setup.done))
    for number, batch in enumerate(batches):
        (record,) = decode_records(batch.build())
        assert len(record.value or b"") == WORTH_GIVING_BYTES + number


class MachineWorld(SimpleNamespace):
    """A world on a machine with so many processors."""

    has_doorbells = True


@pytest.mark.skipif(kernels.implementation() == "plain", reason="the plain twins never serve beside the event loop")
@pytest.mark.parametrize(
    ("codec", "level", "cpus", "expected"),
    [
        ("lz4", None, 2, Lz4Compressor),
        ("lz4", 9, 8, Lz4Compressor),
        ("lz4", 3, 8, ThreadCompressor),
        ("lz4", None, 1, ThreadCompressor),
        ("zstd", None, 8, ThreadCompressor),
    ],
)
def test_only_fast_lz4_on_several_processors(codec: str, level: int | None, cpus: int, expected: type) -> None:
    def made(world: Any) -> object:
        return compressor_for(
            codec, level, world=world, start_task=lambda work: None, on_done=lambda *_: None, wake=lambda: None
        )

    assert type(made(MachineWorld(cpus=cpus))) is expected
    assert type(made(SimpleNamespace(cpus=cpus, has_doorbells=False))) is ThreadCompressor


# ------------------------------------------------------------------------ the task


class Tasks:
    """An `Lz4Compressor` with its task, in a nursery, with the real thread."""

    def __init__(self, nursery: trio.Nursery, world: World) -> None:
        self.done: list[ProducerBatch] = []
        self.woken = trio.Event()
        self.compressor = Lz4Compressor(
            world=world,
            start_task=nursery.start_soon,
            on_done=lambda batch, error: self.done.append(batch),
            wake=self._wake,
        )

    def _wake(self) -> None:
        self.woken.set()
        self.woken = trio.Event()

    async def give(self, batch: ProducerBatch) -> None:
        """Enqueue the batch repeatedly until the thread serves."""
        with trio.fail_after(30):
            while True:
                self.compressor.enqueue(batch)
                if batch.in_thread:
                    return
                await trio.sleep(0.001)


needs_functions = pytest.mark.skipif(lz4_compressor.functions() is None, reason="liblz4 cannot be called directly")


@needs_functions
async def test_bell_wakes_the_event_loop_when_a_batch_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lz4_compressor, "IDLE_SECONDS", 60)  # the event loop wakes when the thread ends, too
    async with trio.open_nursery() as nursery:
        tasks = Tasks(nursery, RealWorld())
        for _ in range(3):
            batch = closed_batch(WORTH_GIVING_BYTES)
            await tasks.give(batch)
            with trio.fail_after(30):
                while batch.in_thread:
                    await tasks.woken.wait()
            assert batch.compressed
        nursery.cancel_scope.cancel()
    assert tasks.compressor.waiting == 0


@needs_functions
async def test_cancelled_compressor_returns_its_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lz4_compressor, "IDLE_SECONDS", 60)
    with trio.fail_after(50):
        async with trio.open_nursery() as nursery:
            tasks = Tasks(nursery, RealWorld())
            batches = [closed_batch(MOST_BYTES - 1_000) for _ in range(MOST_GIVEN)]
            for batch in batches:
                await tasks.give(batch)
            nursery.cancel_scope.cancel()
    assert tasks.done == batches
    assert not any(batch.in_thread for batch in batches)
    for batch in batches:
        (record,) = decode_records(batch.build())
        assert len(record.value or b"") == MOST_BYTES - 1_000


@needs_functions
async def test_idle_thread_ends_and_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lz4_compressor, "IDLE_SECONDS", 0.001)
    async with trio.open_nursery() as nursery:
        tasks = Tasks(nursery, RealWorld())
        for _ in range(3):
            batch = closed_batch(WORTH_GIVING_BYTES)
            await tasks.give(batch)
            with trio.fail_after(30):
                while tasks.compressor._worker is not None:
                    await tasks.woken.wait()
            assert batch.compressed
            assert not nursery.child_tasks


class LimitedWorld(RealWorld):
    """A world without descriptors, or without threads."""

    missing = "descriptors"

    def doorbell(self) -> Any:
        if self.missing == "descriptors":
            raise OSError(24, "Too many open files")
        return super().doorbell()

    async def run_in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        raise RuntimeError("can't start new thread")


@needs_functions
@pytest.mark.parametrize("missing", ["descriptors", "threads"])
async def test_without_a_thread_the_event_loop_compresses(missing: str) -> None:
    world = LimitedWorld()
    world.missing = missing
    async with trio.open_nursery() as nursery:
        tasks = Tasks(nursery, world)
        for _ in range(3):
            batch = closed_batch(WORTH_GIVING_BYTES)
            tasks.compressor.enqueue(batch)
            await trio.testing.wait_all_tasks_blocked()
            assert not batch.in_thread
            batch.compress()
        assert not nursery.child_tasks


def test_batch_handed_over_at_the_last_moment_is_not_compressed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second batch does not fit a request with the first, so the accumulator offers it only when its turn comes."""
    monkeypatch.setattr(lz4_compressor, "WORTH_GIVING_BYTES", 1)
    setup = CompressorSetup()
    bench = Bench([1, 1], compressor=setup.compressor, compression_type="lz4", max_request_size=200)
    batches = [bench.batch(0, size=100), bench.batch(1, size=100)]
    assert bench.drain(10.0) == {}
    assert [batch.in_thread for batch in batches] == [True, True]
    assert [batch.compressed for batch in batches] == [False, False]
    setup.worker.do(2)
    setup.compressor.hand_over()
    assert bench.drain(10.0) == {1: batches}


# ------------------------------------------------------------------------ a producer with it


class SlowWorker(ManualWorker):
    """A slow thread in a simulated world: after each job it may ring the bell."""

    def __init__(self, chance: random.Random, bell: SilentBell) -> None:
        super().__init__()
        self.serving = False
        self._chance = chance
        self._bell = bell
        self._stopped = trio.Event()

    def stop(self) -> None:
        self._stopped.set()

    async def serve(self, idle: float) -> None:
        self.serving = True
        with trio.CancelScope(shield=True):
            while not self._stopped.is_set():
                with trio.move_on_after(self._chance.uniform(0, idle)):
                    await self._stopped.wait()
                if not self.jobs and self._chance.random() < 0.3:
                    break
                if not self._stopped.is_set():
                    self.do()
                    self._bell.ring()
            self.serving = False


class SilentBell:
    """A bell without descriptors."""

    descriptor = -1

    def __init__(self) -> None:
        self._rung = trio.Event()

    def __enter__(self) -> SilentBell:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ring(self) -> None:
        self._rung.set()

    async def wait(self) -> None:
        await self._rung.wait()
        self._rung = trio.Event()


def give_threads(world: Any, chance: random.Random, monkeypatch: pytest.MonkeyPatch) -> list[SlowWorker]:
    """Make producers of a simulated world use lz4 beside the event loop."""
    workers: list[SlowWorker] = []
    bells: list[SilentBell] = []

    def doorbell() -> SilentBell:
        bells.append(SilentBell())
        return bells[-1]

    def worker(*_: object) -> SlowWorker:
        workers.append(SlowWorker(chance, bells[-1]))
        return workers[-1]

    async def run_in_thread(function: Any, *args: Any) -> Any:
        await trio.lowlevel.checkpoint_if_cancelled()
        return await function(*args)

    world.doorbell, world.run_in_thread = doorbell, run_in_thread
    monkeypatch.setattr(compressor, "can_serve", lambda world: True)
    monkeypatch.setattr(lz4_compressor, "functions", lambda: (1, 1))
    monkeypatch.setattr(lz4_compressor, "Lz4Worker", worker)
    monkeypatch.setattr(lz4_compressor, "WORTH_GIVING_BYTES", 3_000)
    monkeypatch.setattr(lz4_compressor, "IDLE_SECONDS", 0.004)
    return workers


actions = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(0, 2), st.sampled_from([10, 100, 5_000, 20_000])),
        st.tuples(st.just("wait"), st.sampled_from([0.0, 0.001, 0.1]), st.none()),
        st.tuples(st.just("flush"), st.none(), st.none()),
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(
    actions,
    st.sampled_from([0, 5]),
    st.sampled_from([10_000, 0]),
    st.integers(0, 2**32),
    st.sampled_from([True, False]),
    st.sampled_from([150_000, 31_000]),
)
def test_order_and_memory_are_the_same_however_long_it_takes(
    script: list[Any], linger: int, patience: int, seed: int, idempotent: bool, largest: int
) -> None:
    """This holds also for a producer that is left at once: the log then has the first records, and all memory is
    released.
    """

    async def main(simulation: Simulation) -> None:
        cluster = ScriptedCluster(orders=3)
        address = await cluster.start(simulation.nursery, simulation.host("broker").world)
        world = simulation.host("client").world
        with pytest.MonkeyPatch.context() as monkeypatch:
            workers = give_threads(world, simulation.random, monkeypatch)
            sent: list[list[bytes]] = [[], [], []]
            producer = triokafka.Producer(
                bootstrap_servers=address,
                world=world,
                compression_type="lz4",
                linger_ms=linger,
                batch_size=30_000,
                buffer_memory=150_000,
                enable_idempotence=idempotent,
                max_in_flight_requests_per_connection=5 if idempotent else 1,
                close_timeout_ms=patience,
                max_request_size=largest,
            )
            with suppress(ExceptionGroup) if not patience else nullcontext():
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
            for partition, values in enumerate(sent):
                found = cluster.values("orders", partition)
                assert found == (values if patience else values[: len(found)])
            assert memory_is_whole(producer)
            assert not any(worker.serving for worker in workers)

    run_simulation(main, seed=seed)


@simulated
async def test_producer_has_the_thread_compress_its_large_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The property above checks order and memory; this test checks that the thread is used."""
    async with scripted() as s:
        workers = give_threads(s.world, random.Random(1), monkeypatch)
        async with s.producer(compression_type="lz4", batch_size=30_000) as producer:
            for number in range(400):
                await producer.send("orders", b"%d" % number * 200)
            await producer.flush()
        assert sum(worker.done for worker in workers) > 3
        assert s.cluster.values("orders") == [b"%d" % number * 200 for number in range(400)]
