"""Batches that are large when decompressed: a thread handles them, in order and bounded, and errors name the remedy."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from tests.support.cancellation import cancelled_at_each_checkpoint
from tests.support.scripted_reading import ReadableCluster, started
from tests.support.simulated import simulated
from triokafka import Consumer, TopicPartition
from triokafka.client.reader import RangeReader
from triokafka.errors import CorruptRecordError, DecompressedSizeError
from triokafka.records import RecordDecoder, encode_batch

_MB = 1 << 20
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
CODECS = ["gzip", "snappy", "lz4", "zstd"]


def large(first: int, records: int = 4) -> list[bytes]:
    """Return values of 2 MiB that compress well and contain their number."""
    return [b"%d " % number + bytes(2 * _MB) for number in range(first, first + records)]


def names(values: list[bytes | None]) -> list[int]:
    return [int(value.split()[0].rstrip(b"\0")) for value in values if value is not None]


def fill(cluster: ReadableCluster, codec: str) -> None:
    """A small batch, two large ones, a small one: records 0 to 9."""
    cluster.write("t", 0, [b"0"])
    cluster.write("t", 0, large(1), compression=codec)
    cluster.write("t", 0, large(5), compression=codec)
    cluster.write("t", 0, [b"9"], compression=codec)


class Threads:
    """Counts what a world runs in threads."""

    def __init__(self, world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs = 0
        run = world.run_in_thread

        async def counted(function: Callable[..., Any], *arguments: Any) -> Any:
            self.runs += 1
            return await run(function, *arguments)

        monkeypatch.setattr(world, "run_in_thread", counted)


async def _iterate(consumer: Consumer) -> list[bytes | None]:
    return [(await anext(consumer)).value for _ in range(10)]


async def _poll(consumer: Consumer) -> list[bytes | None]:
    values: list[bytes | None] = []
    while len(values) < 10:
        values += [r.value for records in (await consumer.poll(timeout_ms=1_000)).values() for r in records]
    return values


async def _poll_without_waiting(consumer: Consumer) -> list[bytes | None]:
    values: list[bytes | None] = []
    while len(values) < 10:
        values += [r.value for records in (await consumer.poll()).values() for r in records]
        await trio.sleep(0.01)
    return values


async def _poll_arrow(consumer: Consumer) -> list[bytes | None]:
    values: list[bytes | None] = []
    while len(values) < 10:
        values += (await consumer.poll_arrow(timeout_ms=1_000)).column("value").to_pylist()
    return values


READS: dict[str, Callable[[Consumer], Awaitable[list[bytes | None]]]] = {
    "async for": _iterate,
    "poll": _poll,
    "poll(0)": _poll_without_waiting,
    "poll_arrow": _poll_arrow,
}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("read", READS)
@simulated
async def test_large_batches_are_decompressed_in_a_thread_and_stay_in_order(
    read: str, codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, _, options = await started()
    fill(cluster, codec)
    threads = Threads(options["world"], monkeypatch)
    async with Consumer(**options, auto_offset_reset="earliest") as consumer:
        consumer.assign([T0])
        assert names(await READS[read](consumer)) == list(range(10))
    assert threads.runs == 2


@simulated
async def test_small_batches_need_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, _, options = await started()
    for number in range(10):
        cluster.write("t", 0, [b"%d" % number], compression="zstd")
    threads = Threads(options["world"], monkeypatch)
    async with Consumer("t", **options, auto_offset_reset="earliest") as consumer:
        assert names(await _poll(consumer)) == list(range(10))
    assert threads.runs == 0


@pytest.mark.parametrize("codec", CODECS)
@simulated
async def test_range_reader_decompresses_large_batches_in_a_thread(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, _, options = await started()
    fill(cluster, codec)
    threads = Threads(options["world"], monkeypatch)
    async with RangeReader({T0: (0, 10)}, **options) as reader:
        values = [value async for batch in reader for value in batch.column("value").to_pylist()]
    assert names(values) == list(range(10))
    async with RangeReader({T0: (0, 10)}, **options) as reader:
        rows: list[bytes | None] = []
        while records := await reader.next_records(3):
            rows += [record.value for record in records]
    assert names(rows) == list(range(10))
    assert threads.runs == 4


@simulated
async def test_calls_cancelled_anywhere_lose_and_repeat_nothing() -> None:
    cluster, _, options = await started()
    fill(cluster, "zstd")
    seen: list[bytes | None] = []
    async with Consumer(**options, auto_offset_reset="earliest", max_poll_records=3) as consumer:
        consumer.assign([T0])

        async def read() -> None:
            while len(seen) < 10:
                seen.extend(r.value for rs in (await consumer.poll(timeout_ms=5)).values() for r in rs)

        async def nothing() -> None: ...

        await cancelled_at_each_checkpoint(read, nothing, limit=500)
    assert names(seen) == list(range(10))


@simulated
async def test_seek_while_a_thread_decompresses_wins() -> None:
    cluster, _, options = await started()
    fill(cluster, "zstd")
    world = options["world"]
    run = world.run_in_thread
    async with Consumer(**options, auto_offset_reset="earliest", max_poll_records=3) as consumer:
        consumer.assign([T0])
        assert names([(await anext(consumer)).value]) == [0]

        async def seek_meanwhile(function: Callable[..., Any], *arguments: Any) -> Any:
            world.run_in_thread = run
            result = await run(function, *arguments)
            consumer.seek(T0, 6)
            return result

        world.run_in_thread = seek_meanwhile
        assert names([(await anext(consumer)).value for _ in range(4)]) == [6, 7, 8, 9]


@simulated
async def test_paused_partitions_keep_no_decompressed_batch() -> None:
    partitions = 20
    cluster, _, options = await started(partitions)
    for number in range(partitions):
        cluster.write("t", number, large(0), compression="zstd")
    async with Consumer("t", **options, auto_offset_reset="earliest", max_poll_records=1) as consumer:
        for _ in range(partitions):
            (partition,) = await consumer.poll(timeout_ms=5_000)
            consumer.pause(partition)
        holding = [data for data in consumer.engine.fetcher.buffer._queue if data._decoder.holds_unpacked]
        assert len(holding) <= 1
        consumer.resume(*consumer.paused())
        seen: dict[TopicPartition, list[bytes | None]] = {}
        while sum(map(len, seen.values())) < 3 * partitions:
            for partition, records in (await consumer.poll(timeout_ms=5_000, max_records=100)).items():
                seen.setdefault(partition, []).extend(record.value for record in records)
        assert {tuple(names(values)) for values in seen.values()} == {(1, 2, 3)}


@pytest.mark.parametrize("arrow", [False, True])
@simulated
async def test_one_call_decompresses_no_further_batch_after_max_poll_bytes(arrow: bool) -> None:
    cluster, _, options = await started()
    for number in range(10):
        cluster.write("t", 0, [b"%d " % number + bytes(_MB)], compression="zstd")
    async with Consumer(**options, auto_offset_reset="earliest", max_poll_bytes=3 * _MB) as consumer:
        consumer.assign([T0])
        counts: list[int] = []
        while sum(counts) < 10:
            if arrow:
                counts.append((await consumer.poll_arrow(timeout_ms=1_000)).num_rows)
            else:
                counts.append(sum(map(len, (await consumer.poll(timeout_ms=1_000)).values())))
        assert counts == [3, 3, 3, 1]


@pytest.mark.parametrize("policy", ["raise", "skip"])
@pytest.mark.parametrize("codec", CODECS)
@simulated
async def test_batch_above_the_limit_is_an_error_that_names_it_and_the_configuration(codec: str, policy: str) -> None:
    cluster, _, options = await started()
    fill(cluster, codec)
    limit = 5 * _MB
    async with Consumer(
        **options, auto_offset_reset="earliest", max_decompressed_batch_bytes=limit, corrupt_batch_policy=policy
    ) as consumer:
        consumer.assign([T0])
        assert (await anext(consumer)).value == b"0"
        for _ in range(2):
            with pytest.raises(DecompressedSizeError) as raised:
                await consumer.poll(timeout_ms=5_000)
            for part in ("t-0 at offset 1", "offsets 1 to 4 (4 records", str(limit), "max_decompressed_batch_bytes"):
                assert part in str(raised.value)
            assert raised.value.next_offset == 5
        with pytest.raises(DecompressedSizeError, match="max_decompressed_batch_bytes"):
            await consumer.poll_arrow(timeout_ms=5_000)
        consumer.seek(T0, 9)
        assert (await anext(consumer)).value == b"9"
    async with RangeReader({T0: (1, 9)}, **options, max_decompressed_batch_bytes=limit) as reader:
        with pytest.raises(DecompressedSizeError, match="max_decompressed_batch_bytes"):
            await anext(reader)


@simulated
async def test_damage_found_in_the_thread_is_raised_with_its_place() -> None:
    cluster, _, options = await started()
    fill(cluster, "zstd")
    damaged = bytearray(cluster.batches[T0][1])
    damaged[-20] ^= 0xFF
    cluster.batches[T0][1] = bytes(damaged)
    async with Consumer(**options, auto_offset_reset="earliest", check_crcs=False) as consumer:
        consumer.assign([T0])
        assert (await anext(consumer)).value == b"0"
        with pytest.raises(CorruptRecordError, match="t-0 at offset 1"):
            await anext(consumer)


@pytest.mark.parametrize("codec", CODECS)
def test_decoder_stops_before_a_large_batch_until_it_is_supplied(codec: str) -> None:
    def batch(values: list[bytes], base: int, **more: Any) -> bytes:
        return bytes(encode_batch([(1, None, value, []) for value in values], base_offset=base, **more))

    data = batch([b"0"], 0) + batch(large(1), 1, compression=codec) + batch([b"5"], 5, compression=codec)
    decoder = RecordDecoder(data, topic="t", inline_bytes=_MB)
    assert names([record.value for record in decoder.take()]) == [0]
    assert decoder.is_waiting and not decoder.exhausted and not decoder.at_end
    assert decoder.take() == []
    assert decoder.next_offset == 1
    decoder.supply(decoder.unpacking()())
    assert not decoder.is_waiting and decoder.holds_unpacked
    assert names([record.value for record in decoder.take(2)]) == [1, 2]
    assert names([record.value for record in decoder.take()]) == [3, 4, 5]
    assert decoder.exhausted and not decoder.holds_unpacked
