"""Sessions of bounded reads: shared connections, cleanup between reads, and lost records. In virtual time."""

from __future__ import annotations

import pytest
import trio

from tests.support.scripted_reading import numbers, started
from tests.support.simulated import simulated
from triokafka.client.range_session import RangeLostError, RangeSession
from triokafka.client.reader import RangeReader
from triokafka.errors import ClosedError, IllegalStateError, KafkaTimeoutError
from triokafka.protocol.api.fetch import FetchRequest, FetchResponse
from triokafka.structs import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


async def offsets(reader: RangeReader) -> list[int]:
    found: list[int] = []
    with trio.fail_after(300):
        async with reader:
            async for batch in reader:
                found += batch.column("offset").to_pylist()
    return found


@simulated
async def test_readers_one_after_the_other_share_connections() -> None:
    """A Spark worker reads for many tasks."""
    cluster, broker, options = await started(2)
    cluster.write("t", 0, numbers(0, 30))
    cluster.write("t", 1, numbers(0, 30))
    async with RangeSession(**options) as session:
        assert await offsets(RangeReader({T0: (0, 10)}, session=session)) == list(range(10))
        connections = len(broker.connections)
        assert await offsets(RangeReader({T1: (5, 9)}, session=session)) == list(range(5, 9))
        assert await offsets(RangeReader({T0: (20, 30)}, session=session)) == list(range(20, 30))
        assert await offsets(RangeReader({T0: (0, 30)}, session=session)) == list(range(30))
        assert len(broker.connections) == connections


@simulated
async def test_an_abandoned_read_leaves_no_data_to_the_next() -> None:
    cluster, _, options = await started(2)
    for batch in range(20):
        cluster.write("t", 0, numbers(batch * 10, batch * 10 + 10))
    cluster.write("t", 1, numbers(0, 5))
    async with RangeSession(max_partition_fetch_bytes=200, **options) as session:
        for _ in range(3):
            async with RangeReader({T0: (0, 200)}, session=session, batch_rows=3) as reader:
                batch = await anext(reader)
                assert batch.column("offset").to_pylist() == [0, 1, 2]  # type: ignore[attr-defined]
            assert await offsets(RangeReader({T1: (1, 4)}, session=session)) == [1, 2, 3]
            async with RangeReader({T0: (0, 200)}, session=session) as reader:
                await anext(reader)
            await trio.sleep(30)
            assert session.fetcher.buffer.total_bytes == 0, "an idle session fetches and holds nothing"


@simulated
async def test_a_session_serves_one_reader_at_a_time_and_has_the_options() -> None:
    cluster, _, options = await started()
    cluster.write("t", 0, numbers(0, 5))
    async with RangeSession(**options) as session:
        async with RangeReader({T0: (0, 5)}, session=session):
            with pytest.raises(IllegalStateError, match="in use by another reader"):
                async with RangeReader({T0: (0, 5)}, session=session):
                    pass
        with pytest.raises(ValueError, match="uses the session's world and options"):
            RangeReader({T0: (0, 5)}, session=session, client_id="a")
        reader = RangeReader({T0: (0, 5)}, session=session)
    with pytest.raises(ClosedError):
        await anext(reader)


@simulated
async def test_empty_responses_do_not_end_a_range() -> None:
    """Slow storage may return an empty response although records exist: they arrive later, or the read fails."""
    cluster, _, options = await started()
    cluster.write("t", 0, numbers(0, 5))
    cluster.ends[T0] = 8
    with pytest.raises(KafkaTimeoutError, match="is at offset 5 of 8"):
        await offsets(RangeReader({T0: (0, 8)}, default_api_timeout_ms=3_000, **options))
    found: list[int] = []
    async with trio.open_nursery() as nursery:

        async def read() -> None:
            found.extend(await offsets(RangeReader({T0: (0, 8)}, default_api_timeout_ms=60_000, **options)))

        nursery.start_soon(read)
        await trio.sleep(5)
        assert not found
        cluster.ends[T0] = 5
        cluster.write("t", 0, numbers(5, 8))
    assert found == list(range(8))


@simulated
async def test_a_response_that_ends_within_a_batch_does_not_end_the_range() -> None:
    """The records of the batch are fetched again."""
    cluster, broker, options = await started()
    cluster.write("t", 0, numbers(0, 5))

    async def torn(request: FetchRequest) -> FetchResponse:
        response, _ = broker.fetch_now(request)
        answer = response.responses[0].partitions[0]
        answer.records = (answer.records or b"")[:40]
        return response

    broker.script(FetchRequest, torn)
    assert await offsets(RangeReader({T0: (0, 3)}, **options)) == [0, 1, 2]
    broker.script(FetchRequest, torn)
    async with RangeReader({T0: (1, 3)}, **options) as reader:
        assert [record.offset for record in await reader.next_records()] == [1, 2]


@simulated
async def test_lost_records_are_an_error_and_can_be_skipped() -> None:
    cluster, _, options = await started(2)
    cluster.write("t", 0, numbers(0, 5))
    cluster.write("t", 0, numbers(5, 10))
    cluster.write("t", 1, numbers(0, 5))
    cluster.starts[T0] = 5
    found: list[tuple[int, int]] = []
    async with RangeReader({T0: (2, 9), T1: (0, 5)}, **options) as reader:
        losses = 0
        while True:
            try:
                async for batch in reader:
                    found += zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True)
                break
            except RangeLostError as lost:
                losses += 1
                assert (lost.partition, lost.position) == (T0, 2)
                assert await reader.session.log_bounds(T0) == (5, 10)
                with pytest.raises(ValueError, match="cannot go back to 1"):
                    reader.go_on_at(T0, 1)
                reader.go_on_at(T0, 5)
    assert losses == 1
    assert sorted(found) == [(0, n) for n in range(5, 9)] + [(1, n) for n in range(5)]


@simulated
async def test_skipping_a_wholly_lost_range_ends_the_read() -> None:
    cluster, _, options = await started()
    cluster.write("t", 0, numbers(0, 10))
    cluster.starts[T0] = 8
    async with RangeReader({T0: (2, 6)}, **options) as reader:
        with pytest.raises(RangeLostError):
            await anext(reader)
        reader.go_on_at(T0, 8)
        with pytest.raises(StopAsyncIteration):
            await anext(reader)
        assert reader.position(T0) == 6
