"""Logs that changed after a range was planned: recreated topics (KIP-516) and truncation by a new leader (KIP-320).

In virtual time.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
import trio

from tests.support.scripted_broker import CLOSE
from tests.support.scripted_reading import ReadableBroker, ReadableCluster, client_of
from tests.support.simulated import simulated
from triokafka.client.range_session import RangeLostError, RangeSession
from triokafka.client.reader import RangeReader
from triokafka.errors import KafkaTimeoutError
from triokafka.protocol.api.fetch import FetchRequest
from triokafka.protocol.api.metadata import MetadataRequest, MetadataResponse
from triokafka.protocol.api.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from triokafka.structs import TopicPartition

T0 = TopicPartition("t", 0)
OLD, NEW = UUID(int=100), UUID(int=200)
# The prefetch is small, so that most of a range is fetched after the events in its middle.
LITTLE: dict[str, Any] = {"max_partition_fetch_bytes": 200, "prefetch_max_bytes": 400, "batch_rows": 10}


async def started(nodes: int = 1) -> tuple[ReadableCluster, list[ReadableBroker], dict[str, Any]]:
    """Return a cluster with a log of a hundred records in ten batches, led by broker 1."""
    cluster = ReadableCluster(t=1)
    options = await client_of(cluster, nodes=nodes)
    write(cluster, b"old", 0)
    brokers = [each for each in cluster.brokers.values() if isinstance(each, ReadableBroker)]
    return cluster, brokers, options


def write(cluster: ReadableCluster, prefix: bytes, start: int) -> None:
    for batch in range(start, 100, 10):
        cluster.write("t", 0, [prefix + b" %d" % number for number in range(batch, batch + 10)])


def cut_and_rewrite(cluster: ReadableCluster, offset: int) -> None:
    """Make broker 2 the leader: its log ends at the offset, and other records are written there."""
    cluster.epoch_ends[T0, 0] = (0, offset)
    cluster.move("t", 0, 2)
    del cluster.batches[T0][offset // 10 :]
    cluster.ends[T0] = offset
    write(cluster, b"new", offset)


def recreated(cluster: ReadableCluster) -> None:
    cluster.topic_ids["t"] = NEW
    cluster.batches[T0].clear()
    cluster.ends[T0] = 0
    write(cluster, b"new", 0)


def values(prefix: bytes, start: int, end: int) -> list[bytes]:
    return [prefix + b" %d" % number for number in range(start, end)]


async def read(reader: RangeReader, most: int = 1_000) -> list[bytes]:
    found: list[bytes] = []
    with trio.fail_after(300):
        while len(found) < most:
            try:
                batch = await anext(reader)
            except StopAsyncIteration:
                break
            found += batch.column("value").to_pylist()
    return found


async def wait_for_new_leader(session: RangeSession) -> None:
    session.network.request_metadata_update()
    await trio.sleep(5)


# -------------------------------------------------------------------- truncation


@simulated
async def test_truncation_of_read_records_is_a_loss_and_no_replacement_is_returned_silently() -> None:
    cluster, (_, second), options = await started(2)
    async with RangeReader({T0: (0, 100)}, **LITTLE, **options) as reader:
        found = await read(reader, 50)
        cut_and_rewrite(cluster, 40)
        with pytest.raises(RangeLostError, match="from offset 40 on the new leader has other records") as lost:
            while True:
                found += (await anext(reader)).column("value").to_pylist()
        assert found == values(b"old", 0, len(found)), "only records fetched before"
        assert (lost.value.partition, lost.value.position) == (T0, len(found))
        assert (lost.value.is_truncated, lost.value.is_recreated) == (True, False)
        with pytest.raises(RangeLostError):
            await anext(reader)
        reader.go_on_at(T0, len(found))
        assert await read(reader) == values(b"new", len(found), 100)
    asked = [partition for each in second.seen(OffsetForLeaderEpochRequest) for partition in each.topics[0].partitions]
    assert [(each.leader_epoch, each.current_leader_epoch) for each in asked] == [(0, 1)]


@simulated
async def test_data_prefetched_from_a_former_leader_is_fetched_again() -> None:
    """It may be truncated, although all returned records still exist."""
    cluster, _, options = await started(2)
    async with RangeReader({T0: (0, 100)}, **LITTLE, **options) as reader:
        assert await read(reader, 20) == values(b"old", 0, 20)
        await trio.sleep(5)
        state = reader.session.subscription.state(T0)
        assert (reader.session.fetcher.buffer.fetch_offset(T0, state) or 0) > 20, "the fetched data waits in the buffer"
        cut_and_rewrite(cluster, 20)
        await wait_for_new_leader(reader.session)
        assert await read(reader) == values(b"new", 20, 100)


@simulated
async def test_a_new_leader_with_the_same_log_costs_no_record_and_one_request() -> None:
    cluster, (_, second), options = await started(2)
    async with RangeReader({T0: (0, 100)}, **LITTLE, **options) as reader:
        found = await read(reader, 50)
        cluster.move("t", 0, 2)
        assert found + await read(reader) == values(b"old", 0, 100)
    assert len(second.seen(OffsetForLeaderEpochRequest)) == 1


@pytest.mark.parametrize("answer", [(-1, -1), (-1, 100)], ids=["knows nothing", "has only epochs before"])
@simulated
async def test_a_leader_without_the_epoch_counts_as_truncated(answer: tuple[int, int]) -> None:
    cluster, _, options = await started(2)
    cluster.epoch_ends[T0, 0] = answer
    async with RangeReader({T0: (0, 100)}, **LITTLE, **options) as reader:
        await read(reader, 50)
        cluster.move("t", 0, 2)
        with pytest.raises(RangeLostError, match="from an unknown offset on"):
            await read(reader)


@simulated
async def test_brokers_without_leader_epochs_are_read_without_validation() -> None:
    """Brokers before Kafka 2.1 do not report them."""
    cluster, brokers, options = await started(2)
    for broker in brokers:
        del broker.api_versions[23]
    async with RangeReader({T0: (0, 100)}, **LITTLE, **options) as reader:
        found = await read(reader, 50)
        cluster.move("t", 0, 2)
        assert found + await read(reader) == values(b"old", 0, 100)


@simulated
async def test_an_epoch_lookup_that_fails_is_repeated() -> None:
    cluster, (_, second), options = await started(2)
    second.script(OffsetForLeaderEpochRequest, CLOSE, CLOSE)
    async with RangeReader({T0: (0, 100)}, **LITTLE, **options) as reader:
        found = await read(reader, 50)
        cut_and_rewrite(cluster, 40)
        with pytest.raises(RangeLostError) as lost:
            found += await read(reader)
        assert lost.value.is_truncated
    assert len(second.seen(OffsetForLeaderEpochRequest)) == 3


@simulated
async def test_a_reader_abandoned_during_validation_leaves_no_data_to_the_next() -> None:
    cluster, (_, second), options = await started(2)

    async def never(request: OffsetForLeaderEpochRequest) -> None:
        await trio.sleep_forever()

    second.script(OffsetForLeaderEpochRequest, never)
    little: dict[str, Any] = {name: value for name, value in LITTLE.items() if name != "batch_rows"}
    async with RangeSession(**little, **options) as session:
        async with RangeReader({T0: (0, 100)}, session=session, batch_rows=10) as reader:
            await read(reader, 20)
            cut_and_rewrite(cluster, 10)
            await wait_for_new_leader(session)
            assert session.subscription.state(T0).validating
        async with RangeReader({T0: (0, 100)}, session=session) as reader:
            assert await read(reader) == values(b"old", 0, 10) + values(b"new", 10, 100)


# -------------------------------------------------------------------- recreated topics


@simulated
async def test_topic_recreated_before_the_read_is_a_loss_if_its_id_is_known() -> None:
    cluster, (broker,), options = await started()
    recreated(cluster)
    async with RangeReader({T0: (0, 100)}, topic_ids={"t": OLD}, **options) as reader:
        with pytest.raises(RangeLostError, match="recreated after the range 0 to 100 was chosen") as lost:
            await anext(reader)
        assert (lost.value.is_recreated, lost.value.position) == (True, 0)
        await trio.sleep(5)
        fetched = len(broker.seen(FetchRequest))
        reader.go_on_at(T0, 0)
        assert await read(reader) == values(b"new", 0, 100)
        assert len(broker.seen(FetchRequest)) == fetched, "the log is not fetched twice"
    async with RangeReader({T0: (0, 100)}, topic_ids={"t": NEW}, **options) as reader:
        assert await read(reader) == values(b"new", 0, 100)
    async with RangeReader({T0: (0, 100)}, **options) as reader:
        assert await read(reader) == values(b"new", 0, 100), "without an id, the present topic is read"


@simulated
async def test_an_open_session_detects_a_recreated_topic_before_it_fetches() -> None:
    """A Spark worker reads for many tasks, and its metadata may be old."""
    cluster, (broker,), options = await started()
    async with RangeSession(**options) as session:
        for known, expected in ((OLD, OLD), (OLD, NEW), (NEW, OLD)):
            if (known, expected) == (OLD, NEW):
                recreated(cluster)
            fetches = len(broker.seen(FetchRequest))
            async with RangeReader({T0: (0, 100)}, session=session, topic_ids={"t": expected}) as reader:
                if expected == cluster.topic_ids["t"]:
                    prefix = b"old" if expected == OLD else b"new"
                    assert await read(reader) == values(prefix, 0, 100)
                    assert {each.topics[0].topic_id for each in broker.seen(FetchRequest)[fetches:]} == {expected}
                else:
                    with pytest.raises(RangeLostError):
                        await anext(reader)


@pytest.mark.parametrize("answers", [1, 2])
@simulated
async def test_stale_metadata_of_one_broker_is_not_a_recreated_topic(answers: int) -> None:
    """The broker describes the topic before the planned one; only two equal responses are accepted."""
    _, (broker,), options = await started()

    def behind(request: MetadataRequest) -> MetadataResponse:
        response = broker.metadata(request)
        for topic in response.topics:
            topic.topic_id = UUID(int=50)
        return response

    broker.script(MetadataRequest, *[behind] * answers)
    async with RangeReader({T0: (0, 100)}, topic_ids={"t": OLD}, **options) as reader:
        if answers == 1:
            assert await read(reader) == values(b"old", 0, 100)
        else:
            with pytest.raises(RangeLostError):
                await read(reader)


@simulated
async def test_leader_in_an_error_response_does_not_confirm_the_topic_id() -> None:
    """A leader from an error response (KIP-951) is merged into the known metadata; it is not a second response about
    the topic id.
    """
    _, (broker,), options = await started()
    asked = trio.Event()

    def behind(request: MetadataRequest) -> MetadataResponse:
        response = broker.metadata(request)
        for topic in response.topics:
            topic.topic_id = UUID(int=50)
        asked.set()
        return response

    broker.script(MetadataRequest, behind)
    async with RangeReader({T0: (0, 100)}, topic_ids={"t": OLD}, **options) as reader:
        await asked.wait()
        metadata = reader.session.network.metadata
        while not metadata.version:
            await trio.sleep(0.001)
        assert metadata.update_leader(T0, 1, 7, None)
        assert await read(reader) == values(b"old", 0, 100)


@simulated
async def test_fetches_by_name_are_not_returned_before_the_topic_ids_were_checked_again() -> None:
    """Before Fetch 13 (Kafka 3.1) an open session fetches by topic name: here the whole range of the new topic arrives
    before any metadata. The reader must not end as if these were the planned records.
    """
    cluster, (broker,), options = await started()
    broker.api_versions[1] = (4, 12)
    async with RangeSession(**options) as session:
        async with RangeReader({T0: (0, 100)}, session=session, topic_ids={"t": OLD}) as reader:
            assert await read(reader) == values(b"old", 0, 100)
        recreated(cluster)
        async with RangeReader({T0: (0, 50)}, session=session, topic_ids={"t": OLD}) as reader:
            found = []
            with pytest.raises(RangeLostError, match="recreated after the range 0 to 50 was chosen") as lost:
                while True:
                    found += (await anext(reader)).column("value").to_pylist()
            assert found == values(b"new", 0, 50), "the recreated topic is detected only then"
            assert (lost.value.is_recreated, lost.value.position) == (True, 50)
            with pytest.raises(RangeLostError):
                await anext(reader)
            reader.go_on_at(T0, 50)
            with pytest.raises(StopAsyncIteration):
                await anext(reader)
        async with RangeReader({T0: (0, 50)}, session=session, topic_ids={"t": NEW}) as reader:
            assert await read(reader) == values(b"new", 0, 50)


@simulated
async def test_a_reader_that_cannot_confirm_its_topic_times_out() -> None:
    """The topic was recreated, and is deleted before a second response confirms that."""
    cluster, (broker,), options = await started()
    broker.api_versions[1] = (4, 12)
    async with RangeSession(**options, default_api_timeout_ms=20_000) as session:
        async with RangeReader({T0: (0, 100)}, session=session, topic_ids={"t": OLD}) as reader:
            assert await read(reader) == values(b"old", 0, 100)
        recreated(cluster)

        def the_last_time(request: MetadataRequest) -> MetadataResponse:
            answer = broker.metadata(request)
            cluster.topics.clear()
            return answer

        broker.script(MetadataRequest, the_last_time)
        async with RangeReader({T0: (0, 100)}, session=session, topic_ids={"t": OLD}) as reader:
            began_at = options["world"].now()
            with pytest.raises(KafkaTimeoutError, match="whether one was recreated"), trio.fail_after(300):
                async for _ in reader:
                    pass
            assert options["world"].now() - began_at < 30


@pytest.mark.parametrize(("fetch", "has_ids", "asks"), [(12, True, True), (12, False, False), (17, True, False)])
@simulated
async def test_ids_are_checked_again_only_where_necessary(fetch: int, has_ids: bool, asks: bool) -> None:
    cluster, (broker,), options = await started()
    broker.api_versions[1] = (4, fetch)
    if not has_ids:
        cluster.topic_ids.clear()
    async with RangeReader({T0: (0, 100)}, **options) as reader:
        assert len(await read(reader, 100)) == 100
        await trio.sleep(1)
        before = len(broker.seen(MetadataRequest))
        assert await read(reader) == []
        assert len(broker.seen(MetadataRequest)) == before + asks


@simulated
async def test_brokers_without_topic_ids_are_read_without_validation() -> None:
    """These are brokers before Kafka 2.8, also if a reader got an id before their downgrade."""
    cluster, _, options = await started()
    cluster.topic_ids.clear()
    async with RangeReader({T0: (0, 100)}, topic_ids={"t": OLD}, **options) as reader:
        assert await read(reader) == values(b"old", 0, 100)
