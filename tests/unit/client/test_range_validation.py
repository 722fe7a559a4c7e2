"""Logs that are not what a range was chosen from any more: topics made anew (KIP-516), leaders that cut what was read
(KIP-320). In virtual time."""

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
# Little is fetched ahead, so that most of a range comes after what happens in its middle.
LITTLE: dict[str, Any] = {"max_partition_fetch_bytes": 200, "prefetch_max_bytes": 400, "batch_rows": 10}


async def started(nodes: int = 1) -> tuple[ReadableCluster, list[ReadableBroker], dict[str, Any]]:
    """A log of a hundred records in ten batches, whose first leader is broker 1."""
    cluster = ReadableCluster(t=1)
    options = await client_of(cluster, nodes=nodes)
    write(cluster, b"old", 0)
    brokers = [each for each in cluster.brokers.values() if isinstance(each, ReadableBroker)]
    return cluster, brokers, options


def write(cluster: ReadableCluster, prefix: bytes, start: int) -> None:
    for batch in range(start, 100, 10):
        cluster.write("t", 0, [prefix + b" %d" % number for number in range(batch, batch + 10)])


def cut_and_rewrite(cluster: ReadableCluster, offset: int) -> None:
    """Broker 2 leads, which lacks what is behind the offset, and others write there."""
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


async def learns_of_it(session: RangeSession) -> None:
    session.network.request_metadata_update()
    await trio.sleep(5)


# -------------------------------------------------------------------- truncation


@simulated
async def test_records_that_were_read_and_cut_off_are_a_loss_and_none_of_others_comes_unsaid() -> None:
    cluster, (_, second), options = await started(2)
    async with RangeReader({T0: (0, 100)}, **LITTLE, **options) as reader:
        found = await read(reader, 50)
        cut_and_rewrite(cluster, 40)
        with pytest.raises(RangeLostError, match="from offset 40 on the new leader has other records") as lost:
            while True:
                found += (await anext(reader)).column("value").to_pylist()
        assert found == values(b"old", 0, len(found)), "what was fetched before, and no other"
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
    """It may be truncated, although all returned records are there."""
    cluster, _, options = await started(2)
    async with RangeReader({T0: (0, 100)}, **LITTLE, **options) as reader:
        assert await read(reader, 20) == values(b"old", 0, 20)
        await trio.sleep(5)
        state = reader.session.subscription.state(T0)
        assert (reader.session.fetcher.buffer.fetch_offset(T0, state) or 0) > 20, "it waits"
        cut_and_rewrite(cluster, 20)
        await learns_of_it(reader.session)
        assert await read(reader) == values(b"new", 20, 100)


@simulated
async def test_a_leader_that_has_followed_costs_no_record_and_one_question() -> None:
    cluster, (_, second), options = await started(2)
    async with RangeReader({T0: (0, 100)}, **LITTLE, **options) as reader:
        found = await read(reader, 50)
        cluster.move("t", 0, 2)
        assert found + await read(reader) == values(b"old", 0, 100)
    assert len(second.seen(OffsetForLeaderEpochRequest)) == 1


@pytest.mark.parametrize("answer", [(-1, -1), (-1, 100)], ids=["knows nothing", "has only epochs before"])
@simulated
async def test_a_leader_that_does_not_have_the_epoch_has_other_records(answer: tuple[int, int]) -> None:
    cluster, _, options = await started(2)
    cluster.epoch_ends[T0, 0] = answer
    async with RangeReader({T0: (0, 100)}, **LITTLE, **options) as reader:
        await read(reader, 50)
        cluster.move("t", 0, 2)
        with pytest.raises(RangeLostError, match="from an unknown offset on"):
            await read(reader)


@simulated
async def test_brokers_that_know_no_epochs_are_read_as_they_are() -> None:
    """Before Kafka 2.1 this is unknown."""
    cluster, brokers, options = await started(2)
    for broker in brokers:
        del broker.api_versions[23]
    async with RangeReader({T0: (0, 100)}, **LITTLE, **options) as reader:
        found = await read(reader, 50)
        cluster.move("t", 0, 2)
        assert found + await read(reader) == values(b"old", 0, 100)


@simulated
async def test_a_request_to_a_leader_that_does_not_answer_at_once_is_repeated() -> None:
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
async def test_a_reader_given_up_while_epochs_are_compared_leaves_nothing_to_the_next() -> None:
    cluster, (_, second), options = await started(2)

    async def never(request: OffsetForLeaderEpochRequest) -> None:
        await trio.sleep_forever()

    second.script(OffsetForLeaderEpochRequest, never)
    little: dict[str, Any] = {name: value for name, value in LITTLE.items() if name != "batch_rows"}
    async with RangeSession(**little, **options) as session:
        async with RangeReader({T0: (0, 100)}, session=session, batch_rows=10) as reader:
            await read(reader, 20)
            cut_and_rewrite(cluster, 10)
            await learns_of_it(session)
            assert session.subscription.state(T0).validating
        async with RangeReader({T0: (0, 100)}, session=session) as reader:
            assert await read(reader) == values(b"old", 0, 10) + values(b"new", 10, 100)


# -------------------------------------------------------------------- topics made anew


@simulated
async def test_topic_recreated_before_the_reader_begins_is_a_loss_when_its_id_is_known() -> None:
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
        assert len(broker.seen(FetchRequest)) == fetched, "it was fetched already, and is not fetched twice"
    async with RangeReader({T0: (0, 100)}, topic_ids={"t": NEW}, **options) as reader:
        assert await read(reader) == values(b"new", 0, 100)
    async with RangeReader({T0: (0, 100)}, **options) as reader:
        assert await read(reader) == values(b"new", 0, 100), "without an id it is the topic that there is"


@simulated
async def test_an_open_session_notices_it_too_and_requests_nothing_before_it_is_sure() -> None:
    """A Spark worker reads for many tasks, and what it knows is old."""
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
async def test_one_broker_that_is_behind_is_not_believed(answers: int) -> None:
    """It describes the topic before the planned one; two equal answers are accepted."""
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
async def test_news_of_a_leader_say_nothing_of_the_topic() -> None:
    """What brokers say with a refusal (KIP-951) is put beside what was known, and is no second answer about its id."""
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
async def test_answers_by_name_are_not_used_before_the_topic_ids_were_checked_again() -> None:
    """Before Fetch 13 (Kafka 3.1) an open session gives what the topic of that name has now: here all of the range
    comes before any metadata. The reader does not end as if it were what was wanted."""
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
            assert found == values(b"new", 0, 50), "that it is another topic shows only then"
            assert (lost.value.is_recreated, lost.value.position) == (True, 50)
            with pytest.raises(RangeLostError):
                await anext(reader)
            reader.go_on_at(T0, 50)
            with pytest.raises(StopAsyncIteration):
                await anext(reader)
        async with RangeReader({T0: (0, 50)}, session=session, topic_ids={"t": NEW}) as reader:
            assert await read(reader) == values(b"new", 0, 50)


@simulated
async def test_a_reader_that_cannot_learn_which_topic_it_has_read_ends_with_its_time() -> None:
    """The topic is another one, and deleted before a second answer confirms it."""
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
async def test_ids_are_checked_again_only_where_it_says_something(fetch: int, has_ids: bool, asks: bool) -> None:
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
async def test_brokers_that_give_no_ids_are_read_as_they_are() -> None:
    """Before Kafka 2.8; also when a reader gets an id from before their downgrade."""
    cluster, _, options = await started()
    cluster.topic_ids.clear()
    async with RangeReader({T0: (0, 100)}, topic_ids={"t": OLD}, **options) as reader:
        assert await read(reader) == values(b"old", 0, 100)
