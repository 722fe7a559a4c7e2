"""Bounded reads against a scripted broker, in virtual time: the whole range, or an error."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
import trio

from tests.support.cancellation import cancelled_at_each_checkpoint
from tests.support.scripted_broker import CLOSE
from tests.support.scripted_reading import numbers, started
from tests.support.simulated import simulated
from triokafka.client.range_bounds import Bound, resolve_ranges
from triokafka.client.range_session import OffsetRange, RangeLostError
from triokafka.client.reader import RangeReader, read_topic
from triokafka.errors import (
    ConfigurationError,
    CorruptRecordError,
    IllegalStateError,
    KafkaTimeoutError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from triokafka.protocol.api.fetch import FetchRequest
from triokafka.protocol.api.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from triokafka.structs import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def offsets(reader: RangeReader) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    with trio.fail_after(120):
        async with reader:
            async for batch in reader:
                assert batch.num_rows
                found += zip(batch.column("partition").to_pylist(), batch.column("offset").to_pylist(), strict=True)
    return found


@simulated
async def test_exactly_the_range_of_every_partition_is_read() -> None:
    cluster, broker, options = await started(2)
    for partition in (0, 1):
        for batch in range(5):
            cluster.write("t", partition, numbers(batch * 10, batch * 10 + 10))
    found = await offsets(RangeReader({T0: (7, 33), T1: (0, 50)}, max_partition_fetch_bytes=250, **options))
    assert sorted(found) == [(0, n) for n in range(7, 33)] + [(1, n) for n in range(50)]
    assert [n for partition, n in found if partition == 0] == list(range(7, 33))
    asked = [p.fetch_offset for r in broker.seen(FetchRequest) for p in r.topics[0].partitions if p.partition == 0]
    assert max(asked) < 33, "no offset behind the end is fetched"


@simulated
async def test_batches_have_at_most_the_requested_rows() -> None:
    cluster, _, options = await started()
    cluster.write("t", 0, numbers(0, 25))
    cluster.write("t", 0, numbers(25, 50))
    rows = []
    async with RangeReader({T0: (0, 47)}, batch_rows=10, **options) as reader:
        async for batch in reader:
            rows.append(batch.num_rows)
            assert reader.position(T0) == sum(rows)
    assert rows == [10, 10, 10, 10, 7]


@simulated
async def test_a_batch_ends_at_its_byte_limit_however_few_rows_it_has() -> None:
    """Fetches are bounded by compressed size; decompressed records may be a hundred times as large."""
    cluster, _, options = await started()
    for _ in range(10):
        cluster.write("t", 0, [bytes(10_000)] * 2, compression="lz4")
    rows = []
    async with RangeReader({T0: (1, 20)}, batch_bytes=30_000, **options) as reader:
        async for batch in reader:
            rows.append(batch.num_rows)
    assert rows == [3, 4, 4, 4, 4], "two batches of the broker each; one record of the first is before the range"


@simulated
async def test_records_may_be_returned_as_lists() -> None:
    cluster, _, options = await started(2)
    cluster.write("t", 0, numbers(0, 25))
    cluster.write("t", 1, numbers(0, 5))
    seen = []
    async with RangeReader({T0: (3, 20), T1: (0, 5)}, **options) as reader:
        while records := await reader.next_records(10):
            assert len({record.partition for record in records}) == 1
            seen += [(record.partition, record.offset) for record in records]
    assert sorted(seen) == [(0, n) for n in range(3, 20)] + [(1, n) for n in range(5)]


@simulated
async def test_a_range_that_ends_with_offsets_without_records_ends() -> None:
    """Compaction gaps and control batches are passed by their next offset."""
    cluster, _, options = await started()
    cluster.write("t", 0, numbers(0, 5))
    cluster.write("t", 0, [b"\0\0\0\0\0\0"], control=True, transactional=True, producer_id=1, producer_epoch=0)
    cluster.write("t", 0, [b"far"], gap=10)
    assert await offsets(RangeReader({T0: (0, 6)}, **options)) == [(0, n) for n in range(5)]
    assert await offsets(RangeReader({T0: (0, 12)}, **options)) == [(0, n) for n in range(5)]
    assert await offsets(RangeReader({T0: (5, 12)}, **options)) == []
    assert await offsets(RangeReader({T0: (5, 17)}, **options)) == [(0, 16)]


@simulated
async def test_empty_ranges_end_at_once() -> None:
    _, broker, options = await started()
    assert await offsets(RangeReader({T0: (5, 5)}, **options)) == []
    assert await offsets(RangeReader({}, **options)) == []
    assert not broker.seen(FetchRequest)
    for bad in ((-1, 4), (5, 4)):
        with pytest.raises(ValueError, match="cannot be read"):
            RangeReader({T0: bad}, **options)


@simulated
async def test_a_deleted_start_is_an_error_that_names_it() -> None:
    cluster, _, options = await started()
    cluster.write("t", 0, numbers(0, 5))
    cluster.starts[T0] = 3
    with pytest.raises(OffsetOutOfRangeError, match="t-0: offset 1 of the range 1 to 5"):
        await offsets(RangeReader({T0: (1, 5)}, **options))


@simulated
async def test_an_end_that_is_never_reached_is_an_error_with_the_position() -> None:
    cluster, _, options = await started()
    cluster.write("t", 0, numbers(0, 5))
    reader = RangeReader({T0: (0, 9)}, default_api_timeout_ms=4_000, **options)
    async with reader:
        assert (await anext(reader)).num_rows == 5
        with pytest.raises(KafkaTimeoutError, match="t-0 is at offset 5 of 9"):
            await anext(reader)
        cluster.write("t", 0, numbers(5, 9))
        assert (await anext(reader)).num_rows == 4
        with pytest.raises(StopAsyncIteration):
            await anext(reader)


@simulated
async def test_a_lost_connection_only_delays_the_read() -> None:
    cluster, broker, options = await started()
    cluster.write("t", 0, numbers(0, 5))
    broker.script(FetchRequest, CLOSE, CLOSE, broker.fetch_with(p0=6))
    assert len(await offsets(RangeReader({T0: (0, 5)}, **options))) == 5


@simulated
async def test_corrupt_bytes_end_the_read_after_the_batches_before_them() -> None:
    cluster, _, options = await started()
    cluster.write("t", 0, numbers(0, 5))
    cluster.write("t", 0, numbers(5, 10))
    broken = bytearray(cluster.batches[T0][1])
    broken[-2] ^= 1
    cluster.batches[T0][1] = bytes(broken)
    async with RangeReader({T0: (0, 10)}, **options) as reader:
        assert (await anext(reader)).num_rows == 5
        for _ in range(2):
            with pytest.raises(CorruptRecordError, match="t-0 at offset 5"):
                await anext(reader)


async def corrupt_between(marker: bool = False) -> dict[str, Any]:
    """Return three batches of five records in one response; the one from offset 5 (with a marker before it, 6) on is
    corrupt.
    """
    cluster, _, options = await started()
    cluster.write("t", 0, numbers(0, 5))
    if marker:
        cluster.write("t", 0, [b"\0\0\0\0\0\0"], control=True, transactional=True, producer_id=1, producer_epoch=0)
    for _ in range(2):
        cluster.write("t", 0, numbers(5, 10))
    broken = bytearray(cluster.batches[T0][-2])
    broken[-2] ^= 1
    cluster.batches[T0][-2] = bytes(broken)
    return options


@simulated
async def test_corrupt_batch_after_the_range_is_not_read() -> None:
    """A reader that skips a corrupt batch reads up to it, and fetches it with the others."""
    options = await corrupt_between()
    for end in (3, 5):
        assert await offsets(RangeReader({T0: (0, end)}, **options)) == [(0, n) for n in range(end)]
        async with RangeReader({T0: (1, end)}, **options) as reader:
            assert [record.offset for record in await reader.next_records()] == list(range(1, end))
            assert await reader.next_records() == []


@simulated
@pytest.mark.parametrize("start", [0, 4, 5])
async def test_corrupt_batch_after_a_marker_at_the_end_of_the_range_is_not_read(start: int) -> None:
    options = await corrupt_between(marker=True)
    assert await offsets(RangeReader({T0: (start, 6)}, batch_rows=5, **options)) == [(0, n) for n in range(start, 5)]
    async with RangeReader({T0: (start, 6)}, **options) as reader:
        assert [record.offset for record in await reader.next_records(5 - start or 1)] == list(range(start, 5))
        assert await reader.next_records() == []


@simulated
@pytest.mark.parametrize("end", [6, 7, 10])
async def test_records_before_corrupt_bytes_are_returned_even_if_the_range_ends_in_them(end: int) -> None:
    options = await corrupt_between()
    async with RangeReader({T0: (0, end)}, **options) as reader:
        assert (await anext(reader)).num_rows == 5
        with pytest.raises(CorruptRecordError, match="t-0 at offset 5"):
            await anext(reader)
    async with RangeReader({T0: (0, end)}, **options) as reader:
        assert len(await reader.next_records()) == 5
        with pytest.raises(CorruptRecordError, match="t-0 at offset 5"):
            await reader.next_records()


@simulated
@pytest.mark.parametrize("rows", [1, 5])
async def test_rows_are_returned_once_when_their_batch_ends_just_before_corrupt_bytes(rows: int) -> None:
    options = await corrupt_between()
    async with RangeReader({T0: (0, 15)}, batch_rows=rows, **options) as reader:
        for read in range(rows, 6, rows):
            assert (await anext(reader)).column("offset").to_pylist() == list(range(read - rows, read))
            assert reader.position(T0) == read
        for _ in range(2):
            with pytest.raises(CorruptRecordError, match="t-0 at offset 5"):
                await anext(reader)


@simulated
async def test_an_error_of_one_partition_waits_for_the_rows_of_another() -> None:
    cluster, broker, options = await started(2)
    cluster.write("t", 0, numbers(0, 5))
    broker.script(FetchRequest, broker.fetch_with(p1=29))
    async with RangeReader({T0: (0, 5), T1: (0, 5)}, **options) as reader:
        assert (await anext(reader)).num_rows == 5
        with pytest.raises(TopicAuthorizationFailedError, match="t-1"):
            await anext(reader)


@simulated
async def test_a_cancelled_read_loses_nothing() -> None:
    cluster, _, options = await started()
    cluster.write("t", 0, numbers(0, 30))
    async with RangeReader({T0: (0, 30)}, batch_rows=10, **options) as reader:

        async def nothing() -> None:
            await trio.sleep(0.01)

        rows = []
        for _ in range(3):
            batch, _ = await cancelled_at_each_checkpoint(lambda: anext(reader), nothing)
            rows += batch.column("offset").to_pylist()
    assert rows == list(range(30))


@simulated
async def test_bounds_may_be_ends_times_or_offsets() -> None:
    cluster, _, options = await started(2)

    async def ranges(start: Bound, end: Bound) -> dict[TopicPartition, OffsetRange]:
        return (await resolve_ranges(["t"], start, end, **options)).ranges

    for partition in (0, 1):
        cluster.write("t", partition, numbers(0, 10))
    cluster.starts[T1] = 4
    assert await ranges("earliest", "latest") == {T0: (0, 10), T1: (4, 10)}
    at = datetime.fromtimestamp(1.006, tz=UTC)  # the record at offset 6
    assert await ranges(at, "latest") == {T0: (6, 10), T1: (6, 10)}
    late = datetime.fromtimestamp(5_000, tz=UTC)
    assert await ranges(late, late) == {T0: (10, 10), T1: (10, 10)}
    assert await ranges({T0: 2, T1: -2}, {T0: -1, T1: 7}) == {T0: (2, 10), T1: (4, 7)}
    assert await ranges({T0: 2}, "latest") == {T0: (2, 10)}
    ms = int(at.timestamp() * 1000)
    assert await ranges(ms, "latest") == {T0: (6, 10), T1: (6, 10)}
    mixed = {0: at, 1: "latest"}
    assert await ranges({0: 1, 1: "earliest"}, mixed) == {T0: (1, 6), T1: (4, 10)}  # type: ignore[arg-type]
    for bound, sentence in (
        ({2: 0}, "no partition t-2: topic 't' has 0 to 1"),
        ({TopicPartition("u", 0): 0}, "not a partition of t"),
        ({0: "first"}, "start='first'"),
        (-3, "start=-3"),
        (True, "start=True"),
    ):
        with pytest.raises((ConfigurationError, UnknownTopicOrPartitionError), match=sentence):
            await resolve_ranges(["t"], bound, "latest", **options)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="start='first'"):
        await resolve_ranges(["t"], "first", "latest", **options)  # type: ignore[arg-type]
    with pytest.raises(UnknownTopicOrPartitionError, match="'u'"):
        await resolve_ranges(["u"], "earliest", "latest", default_api_timeout_ms=2_000, **options)


@simulated
async def test_bounds_belong_to_the_topic_that_existed_before_the_request() -> None:
    """KIP-516: a topic recreated between the metadata request and the offset request is another topic."""
    cluster, broker, options = await started()
    cluster.write("t", 0, numbers(0, 10))
    before = cluster.topic_ids["t"]

    async def make_anew(request: ListOffsetsRequest) -> ListOffsetsResponse:
        cluster.topic_ids["t"] = UUID(int=7)
        return broker.list_offsets(request)

    broker.script(ListOffsetsRequest, make_anew)
    ranges, topic_ids = await resolve_ranges(["t"], "earliest", "latest", **options)
    assert (ranges, topic_ids) == ({T0: (0, 10)}, {"t": before})
    with pytest.raises(RangeLostError, match="deleted and recreated"):
        await offsets(RangeReader(ranges, topic_ids=topic_ids, **options))


@simulated
async def test_topics_of_brokers_without_topic_ids_are_read_by_name() -> None:
    """Before Kafka 2.8."""
    cluster, _, options = await started()
    cluster.topic_ids.clear()
    cluster.write("t", 0, numbers(0, 10))
    ranges, topic_ids = await resolve_ranges(["t"], "earliest", "latest", **options)
    assert topic_ids == {}
    assert await offsets(RangeReader(ranges, topic_ids=topic_ids, **options)) == [(0, n) for n in range(10)]


async def test_reading_for_code_without_trio_refuses_to_block_trio() -> None:
    with pytest.raises(IllegalStateError, match="RangeReader"):
        read_topic("t")
