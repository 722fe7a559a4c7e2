"""Which batches a request checks on the event loop, and which in a thread."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.broker_stub.log.builders import NOW, batch
from triokafka.broker_stub.log import LogConfig
from triokafka.broker_stub.log.prevalidation import prevalidate
from triokafka.broker_stub.log.validation import Prepared
from triokafka.errors import InvalidRecordError
from triokafka.structs import TopicPartition

CONFIG = LogConfig()


class CountingWorld:
    """Runs the functions for a thread, and counts them; each reading of the clock takes ``step`` seconds."""

    def __init__(self, step: float = 0.0) -> None:
        self.in_threads: list[TopicPartition] = []
        self._step = step
        self._now = 0.0

    def now(self) -> float:
        self._now += self._step
        return self._now

    def wall_ms(self) -> int:
        return NOW

    async def run_in_thread(self, work: Callable[..., Any], *arguments: Any) -> Any:
        if arguments:
            self.in_threads += arguments[0]
        return work(*arguments)

    def release_free_memory(self) -> None:
        """Do nothing: the test allocates little."""


def partition(number: int) -> TopicPartition:
    return TopicPartition("orders", number)


def numbers(size: int) -> bytes:
    """Hexadecimal digits, which zstd halves and the others hardly compress."""
    return random.Random(size).randbytes(size // 2).hex().encode()


async def checked(world: CountingWorld, *batches: bytearray, config: LogConfig = CONFIG) -> list[Any]:
    wanted = {partition(number): (data, config) for number, data in enumerate(batches)}
    found = await prevalidate(world, wanted)  # type: ignore[arg-type]
    assert {key: each.data for key, each in found.items()} == {key: data for key, (data, _) in wanted.items()}
    return [found[partition(number)].result for number in range(len(batches))]


@pytest.mark.parametrize("codec", ["lz4", "zstd", "snappy"])
async def test_batch_as_large_as_producers_fill_it_is_checked_on_the_event_loop(codec: str) -> None:
    world = CountingWorld()
    (result,) = await checked(world, batch(numbers(1_000_000), compression=codec))
    assert isinstance(result, Prepared)
    assert world.in_threads == []


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
async def test_batch_that_decompresses_to_more_is_checked_in_a_thread(codec: str) -> None:
    world = CountingWorld()
    small, large = batch(b"a", compression=codec), batch(bytes(3_000_000), compression=codec)
    assert len(large) < 32_768
    results = await checked(world, small, large)
    assert all(isinstance(result, Prepared) for result in results)
    assert world.in_threads == [partition(1)]


async def test_batch_of_gzip_is_checked_in_a_thread_sooner() -> None:
    world = CountingWorld()
    await checked(world, batch(bytes(300_000), compression="gzip"), batch(bytes(300_000), compression="lz4"))
    assert world.in_threads == [partition(0)]


async def test_batch_that_the_topic_recompresses_is_checked_in_a_thread_sooner() -> None:
    world = CountingWorld()
    data = batch(bytes(300_000), compression="lz4")
    await checked(world, data, config=LogConfig(compression_type="zstd"))
    assert world.in_threads == [partition(0)]


async def test_request_of_many_batches_leaves_the_event_loop_after_two_milliseconds() -> None:
    world = CountingWorld(step=0.0006)
    results = await checked(world, *(batch(b"a", compression="lz4") for _ in range(10)))
    assert len(results) == 10 and all(isinstance(result, Prepared) for result in results)
    assert world.in_threads == [partition(number) for number in range(4, 10)]


async def test_small_batch_that_is_refused_needs_no_thread() -> None:
    world = CountingWorld()
    data = batch(b"a" * 100, compression="lz4")
    without_key = batch(b"a" * 100, key=None, compression="lz4")
    results = await checked(world, data, without_key, config=LogConfig(cleanup_policy=("compact",)))
    assert isinstance(results[0], Prepared) and isinstance(results[1], InvalidRecordError)
    assert results[1].record_errors == [(0, "a record of a compacted topic needs a key")]  # type: ignore[attr-defined]
    assert world.in_threads == []


@pytest.mark.parametrize("config", [CONFIG, LogConfig(compression_type="zstd")], ids=["as sent", "compressed anew"])
async def test_very_large_batch_is_checked_alone(config: LogConfig) -> None:
    """The usual threads leave it to the thread that checks one request at a time."""
    world = CountingWorld()
    results = await checked(world, batch(bytes(20_000_000), compression="lz4"), config=config)
    assert isinstance(results[0], Prepared)
    assert world.in_threads == [partition(0), partition(0)]
