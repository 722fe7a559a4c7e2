"""Fetch, in every version."""

from __future__ import annotations

import struct
from uuid import UUID

import pytest
import trio
import trio.testing

from tests.unit.broker_stub.api.node import NOW_MS, batch, marker, running_node
from tests.unit.broker_stub.test_many_partitions import HeldThreads
from triokafka import errors
from triokafka.broker_stub.request.registry import CloseConnectionError
from triokafka.protocol.api.delete_topics import DeleteTopicsRequest
from triokafka.protocol.api.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, PartitionData
from triokafka.records import decode_records, iter_batches
from triokafka.structs import Buffer


def values(records: Buffer | None) -> list[bytes | None]:
    """The values in fetched bytes."""
    return [record.value for record in decode_records(records or b"")]


@pytest.mark.parametrize("version", range(4, 19))
async def test_every_version_reads_the_produced_records(version: int) -> None:
    """From version 13 topics are named by id."""
    async with running_node() as node:
        await node.create("t", partitions=2)
        await node.produce("t", batch(b"a", b"b"))
        first, second = await node.fetch("t", 0, 0, version=version)
        assert (first.error_code, first.high_watermark, first.last_stable_offset) == (0, 2, 2)
        assert values(first.records) == [b"a", b"b"]
        assert (second.error_code, second.high_watermark) == (0, 0)
        assert second.records is not None and len(second.records) == 0
        assert first.aborted_transactions is None


async def test_partition_that_a_request_names_twice_is_read_once_from_the_last_offset() -> None:
    """As by Apache Kafka: no request makes the broker watch more partitions than there are."""
    async with running_node() as node:
        await node.create("t")
        await node.produce("t", batch(b"a", b"b"))
        for offsets, code in (((5, 0), 0), ((0, 5), errors.OffsetOutOfRangeError.code)):
            asked = [FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000) for offset in offsets]
            topics = [FetchTopic(topic="t", partitions=asked)]
            request = FetchRequest(replica_id=-1, max_wait_ms=0, max_bytes=1000, session_epoch=-1, topics=topics)
            (topic,) = (await node.call(request, 11)).responses
            assert [partition.error_code for partition in topic.partitions] == [code]


@pytest.mark.parametrize(("key", "first"), [(0, 3), (1, 4), (2, 1)])
async def test_versions_that_asked_for_old_formats_are_not_served(key: int, first: int) -> None:
    """Nothing is converted for them (KIP-896)."""
    async with running_node() as node:
        assert node.broker.dispatcher.handlers[key].versions.start == first
        slot = await node.broker.sockets.slots.acquire()
        for version in range(first):
            frame = bytearray(struct.pack(">hhih", key, version, 1, -1) + bytes(100))
            with pytest.raises(CloseConnectionError, match="is not served"):
                await node.broker.dispatcher.dispatch(
                    frame, slot=slot, principal="User:x", listener="PLAINTEXT", peer=("192.0.2.1", 5)
                )


@pytest.mark.parametrize("version", [4, 11, 12, 18])
async def test_read_committed_names_no_aborted_transactions_rather_than_null(version: int) -> None:
    async with running_node() as node:
        await node.create("t")
        (partition,) = await node.fetch("t", 0, version=version, isolation_level=1)
        assert partition.aborted_transactions == []


async def test_list_of_aborted_transactions_of_a_failure_is_null_or_empty_as_by_apache_kafka() -> None:
    async with running_node() as node:
        await node.create("t")
        for isolation_level in (0, 1):
            (beyond,) = await node.fetch("t", 99, version=12, isolation_level=isolation_level)
            assert (beyond.error_code, beyond.aborted_transactions) == (errors.OffsetOutOfRangeError.code, None)
            (unknown,) = await node.fetch("u", 0, version=12, isolation_level=isolation_level)
            assert (unknown.error_code, unknown.aborted_transactions) == (
                errors.UnknownTopicOrPartitionError.code,
                [],
            )


@pytest.mark.parametrize("version", [4, 12, 13, 18])
async def test_errors_are_per_partition_and_answer_at_once(version: int) -> None:
    async with running_node() as node:
        await node.create("t")
        await node.produce("t", batch(b"a"))
        out_of_range, unknown = await node.fetch("t", 5, 0, version=version, max_wait_ms=60_000, min_bytes=10**6)
        assert out_of_range.error_code == errors.OffsetOutOfRangeError.code
        assert unknown.error_code == errors.UnknownTopicOrPartitionError.code
        for failed in (out_of_range, unknown):
            assert (failed.high_watermark, failed.last_stable_offset, failed.log_start_offset) == (-1, -1, -1)


async def test_unknown_topic_id_is_an_error_of_its_partitions() -> None:
    """The answer does not wait, although there is nothing to read."""
    async with running_node() as node:
        await node.create("t")
        request = node.fetch_request("t", [0], version=13, max_wait_ms=10**6)
        request.topics[0].topic_id = UUID(int=99)
        response = await node.call(request, 13)
        (topic,) = response.responses
        assert (topic.topic_id, topic.partitions[0].error_code) == (UUID(int=99), errors.UnknownTopicIdError.code)


async def test_failed_partition_is_answered_at_once_although_others_have_no_data(autojump_clock: object) -> None:
    """Although the maximum wait is not over."""
    async with running_node() as node:
        await node.create("t")
        request = node.fetch_request("t", [0], version=13, max_wait_ms=30_000)
        request.topics.append(FetchTopic(topic_id=UUID(int=99), partitions=[FetchPartition(partition=0)]))
        start = trio.current_time()
        response = await node.call(request, 13)
        assert trio.current_time() == start
        codes = [partition.error_code for topic in response.responses for partition in topic.partitions]
        assert codes == [0, errors.UnknownTopicIdError.code]  # those that were read come first


@pytest.mark.parametrize("session_epoch", [-1, 0])
async def test_fetch_of_no_partition_is_answered_at_once(session_epoch: int, autojump_clock: object) -> None:
    """There is nothing to wait for, and no session to create."""
    async with running_node() as node:
        request = node.fetch_request("t", [], version=12, max_wait_ms=30_000, session_epoch=session_epoch)
        request.topics = []
        start = trio.current_time()
        response = await node.call(request, 12)
        assert trio.current_time() == start
        assert (response.error_code, response.session_id, response.responses) == (0, 0, [])


async def test_client_with_an_old_leader_epoch_learns_the_leader() -> None:
    """(KIP-951)."""
    async with running_node() as node:
        await node.create("t")
        epoch = node.broker.image.topics["t"].partitions[0].leader_epoch
        for version in (9, 12):
            request = node.fetch_request("t", [0], version=version)
            request.topics[0].partitions[0].current_leader_epoch = epoch + 1
            (partition,) = (await node.call(request, version)).responses[0].partitions
            assert partition.error_code == errors.UnknownLeaderEpochError.code


async def test_fetch_waits_for_data_and_is_answered_when_it_comes(autojump_clock: object) -> None:
    """Long before the maximum wait is over."""
    async with running_node() as node:
        await node.create("t")
        start = trio.current_time()
        async with trio.open_nursery() as nursery:
            found: list[list[bytes | None]] = []

            async def fetch() -> None:
                (partition,) = await node.fetch("t", 0, max_wait_ms=30_000)
                found.append(values(partition.records))

            nursery.start_soon(fetch)
            await trio.testing.wait_all_tasks_blocked()
            assert node.broker.replicas.fetch_purgatory.delayed == 1
            assert node.broker.sockets.slots.free == node.broker.config.num_io_threads
            await node.produce("t", batch(b"a"))
        assert found == [[b"a"]]
        assert trio.current_time() - start < 1
        assert node.broker.replicas.fetch_purgatory.delayed == 0


async def test_fetch_without_data_is_answered_empty_when_its_time_is_over(autojump_clock: object) -> None:
    async with running_node() as node:
        await node.create("t")
        start = trio.current_time()
        (partition,) = await node.fetch("t", 0, max_wait_ms=700)
        assert (partition.error_code, values(partition.records)) == (0, [])
        assert 0.69 <= trio.current_time() - start <= 0.75


async def test_fetch_waits_no_longer_than_a_connection_may_be_idle(autojump_clock: object) -> None:
    """A client that asks for weeks and goes would keep its connection for weeks."""
    for max_idle_ms, waits in ((2_000, 2), (-1, 5)):
        async with running_node(connections_max_idle_ms=max_idle_ms) as node:
            await node.create("t")
            start = trio.current_time()
            with trio.move_on_after(5):
                await node.fetch("t", 0, max_wait_ms=2**31 - 1)
            assert trio.current_time() - start == pytest.approx(waits, abs=0.05)


async def test_fetch_waits_for_its_minimum_of_bytes_over_all_partitions(autojump_clock: object) -> None:
    async with running_node() as node:
        await node.create("t", partitions=2)
        one = batch(b"x" * 100)
        done = trio.Event()

        async def fetch() -> None:
            parts = await node.fetch("t", 0, 0, max_wait_ms=60_000, min_bytes=2 * len(one))
            assert [len(part.records or b"") for part in parts] == [len(one), len(one)]
            done.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetch)
            await trio.testing.wait_all_tasks_blocked()
            await node.produce("t", one, partition=0)
            await trio.testing.wait_all_tasks_blocked()
            assert not done.is_set()
            await node.produce("t", one, partition=1)
            await done.wait()


async def test_deleting_the_topic_answers_a_waiting_fetch() -> None:
    """The error names the reason."""
    async with running_node() as node:
        await node.create("t")
        codes: list[int] = []

        async def fetch() -> None:
            (partition,) = await node.fetch("t", 0, max_wait_ms=60_000)
            codes.append(partition.error_code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetch)
            await trio.testing.wait_all_tasks_blocked()
            await node.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 4)
        assert codes == [errors.UnknownTopicOrPartitionError.code]


async def test_byte_budget_is_shared_and_the_first_batch_always_comes() -> None:
    async with running_node() as node:
        await node.create("t", partitions=3)
        for number in range(3):
            await node.produce("t", batch(b"x" * 1000), partition=number)
        one = len(batch(b"x" * 1000))
        for max_bytes, expected in ((1, [one, 0, 0]), (2 * one, [one, one, 0]), (10 * one, [one, one, one])):
            parts = await node.fetch("t", 0, 0, 0, max_bytes=max_bytes)
            assert [len(part.records or b"") for part in parts] == expected
        for limits in ({"partition_max_bytes": 10}, {"partition_max_bytes": 0}, {"max_bytes": 0}):
            parts = await node.fetch("t", 0, 0, **limits)
            assert [len(part.records or b"") for part in parts] == [one, 0]


async def test_session_answers_only_news_and_ends_when_asked() -> None:
    async with running_node() as node:
        await node.create("t", partitions=2)
        await node.produce("t", batch(b"a"))
        opened = await node.call(node.fetch_request("t", [0, 0], session_epoch=0), 11)
        assert opened.session_id > 0
        assert len(opened.responses[0].partitions) == 2

        advanced = node.fetch_request("t", [1], session_id=opened.session_id, session_epoch=1)
        nothing = await node.call(advanced, 11)
        assert (nothing.error_code, nothing.session_id, nothing.responses) == (0, opened.session_id, [])

        await node.produce("t", batch(b"b"), partition=1)
        empty = node.fetch_request("t", [], session_id=opened.session_id, session_epoch=2)
        news = await node.call(empty, 11)
        assert [(p.partition_index, values(p.records)) for p in news.responses[0].partitions] == [(1, [b"b"])]

        stale = await node.call(node.fetch_request("t", [], session_id=opened.session_id, session_epoch=2), 11)
        assert stale.error_code == errors.InvalidFetchSessionEpochError.code

        forget = node.fetch_request("t", [], session_id=opened.session_id, session_epoch=3)
        forget.forgotten_topics_data = [ForgottenTopic(topic="t", partitions=[0, 1])]
        assert (await node.call(forget, 11)).session_id == 0
        gone = await node.call(node.fetch_request("t", [], session_id=opened.session_id, session_epoch=4), 11)
        assert gone.error_code == errors.FetchSessionIdNotFoundError.code


async def test_session_by_topic_id() -> None:
    async with running_node() as node:
        await node.create("t")
        opened = await node.call(node.fetch_request("t", [0], version=17, session_epoch=0), 17)
        await node.produce("t", batch(b"a"))
        news = await node.call(
            node.fetch_request("t", [], version=17, session_id=opened.session_id, session_epoch=1), 17
        )
        (topic,) = news.responses
        assert topic.topic_id == node.broker.image.topics["t"].topic_id
        assert values(topic.partitions[0].records) == [b"a"]


async def test_incremental_fetch_waits_for_data_of_the_whole_session(autojump_clock: object) -> None:
    async with running_node() as node:
        await node.create("t", partitions=2)
        opened = await node.call(node.fetch_request("t", [0, 0], session_epoch=0), 11)
        fetched: list[int] = []

        async def fetch() -> None:
            request = node.fetch_request("t", [], session_id=opened.session_id, session_epoch=1, max_wait_ms=60_000)
            response = await node.call(request, 11)
            fetched.extend(p.partition_index for topic in response.responses for p in topic.partitions)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetch)
            await trio.testing.wait_all_tasks_blocked()
            await node.produce("t", batch(b"a"), partition=1)
        assert fetched == [1]


async def test_limit_of_the_broker_caps_the_limit_of_the_client() -> None:
    async with running_node(fetch_max_bytes=1500) as node:
        await node.create("t", partitions=2)
        for number in range(2):
            await node.produce("t", batch(b"x" * 1000), partition=number)
        parts = await node.fetch("t", 0, 0)
        assert [bool(len(part.records or b"")) for part in parts] == [True, False]


async def test_partition_asked_for_in_two_topics_keeps_their_order() -> None:
    """Answers come topic by topic, in the order asked."""
    async with running_node() as node:
        for name in ("b", "a"):
            await node.create(name)
        request = node.fetch_request("b", [0])
        request.topics.append(FetchTopic(topic="a", partitions=[FetchPartition(partition_max_bytes=100)]))
        response = await node.call(request, 11)
        assert [topic.topic for topic in response.responses] == ["b", "a"]


@pytest.mark.parametrize("version", [4, 6, 7, 12, 13, 18])
async def test_failure_of_the_whole_request_never_looks_like_an_empty_success(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions 4 to 6 have no error at the top, so every partition has it."""
    async with running_node() as node:
        await node.create("t", partitions=2)

        async def broken(*args: object, **more: object) -> None:
            raise errors.KafkaStorageError("the disks are gone")

        monkeypatch.setattr(node.broker.replicas, "read", broken)
        response = await node.call(node.fetch_request("t", [0, 0], version=version), version)
        code = errors.KafkaStorageError.code
        assert response.error_code == (code if version >= 7 else 0)
        partitions = [partition for topic in response.responses for partition in topic.partitions]
        assert [partition.error_code for partition in partitions] == ([code, code] if version < 13 else [])
        assert all(partition.high_watermark == -1 for partition in partitions)


@pytest.mark.parametrize("version", [4, 11, 18])
async def test_reader_of_committed_records_stops_at_open_transactions_and_learns_of_aborted_ones(version: int) -> None:
    """Other readers, and followers, see everything."""
    async with running_node() as node:
        await node.create("t")
        partition = node.broker.replicas.partition(("t", 0))

        def append(records: bytes | bytearray, *, from_client: bool = True) -> None:
            partition.append(records, required_acks=-1, now_ms=NOW_MS, from_client=from_client)
            node.broker.replicas.appended(partition)

        append(batch(b"a"))
        append(batch(b"lost", transactional=True, producer_id=7, producer_epoch=0, base_sequence=0))
        append(marker(7, commit=False), from_client=False)
        append(batch(b"open", transactional=True, producer_id=8, producer_epoch=0, base_sequence=0))
        append(batch(b"b"))

        async def fetch(offset: int, isolation: int) -> PartitionData:
            (found,) = await node.fetch("t", offset, version=version, isolation_level=isolation)
            return found

        seen = await fetch(0, 1)
        assert (seen.high_watermark, seen.last_stable_offset) == (5, 3)
        assert [info.base_offset for info in iter_batches(seen.records or b"")] == [0, 1, 2]
        assert [(a.producer_id, a.first_offset) for a in seen.aborted_transactions or ()] == [(7, 1)]
        everything = await fetch(0, 0)
        assert [info.base_offset for info in iter_batches(everything.records or b"")] == [0, 1, 2, 3, 4]
        assert everything.aborted_transactions is None
        waiting = await fetch(3, 1)
        assert (waiting.records, waiting.aborted_transactions) == (b"", [])

        append(marker(8, commit=True), from_client=False)
        rest = await fetch(3, 1)
        assert [info.base_offset for info in iter_batches(rest.records or b"")] == [3, 4, 5]
        assert rest.aborted_transactions == []


async def test_reader_of_committed_records_waits_for_the_end_of_a_transaction(autojump_clock: object) -> None:
    """Records of an open transaction do not end its wait."""
    async with running_node() as node:
        await node.create("t")
        partition = node.broker.replicas.partition(("t", 0))
        answers: list[int] = []

        async def fetch() -> None:
            (found,) = await node.fetch("t", 0, isolation_level=1, max_wait_ms=60_000)
            answers.append(len(list(iter_batches(found.records or b""))))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetch)
            await trio.testing.wait_all_tasks_blocked()
            sent = batch(b"a", transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
            partition.append(sent, required_acks=-1, now_ms=NOW_MS)
            node.broker.replicas.appended(partition)
            await trio.testing.wait_all_tasks_blocked()
            assert answers == []
            partition.append(marker(7, commit=True), required_acks=-1, now_ms=NOW_MS, from_client=False)
            node.broker.replicas.appended(partition)
        assert answers == [2]


async def test_more_bytes_than_an_answer_may_have_are_not_waited_for(autojump_clock: object) -> None:
    """The minimum is never above the maximum."""
    async with running_node(fetch_max_bytes=2000) as node:
        await node.create("t")
        for _ in range(3):
            await node.produce("t", batch(b"x" * 1000))
        start = trio.current_time()
        await node.fetch("t", 0, min_bytes=10**6, max_wait_ms=60_000)
        assert trio.current_time() == start


@pytest.mark.parametrize("version", [12, 13, 18])
async def test_topic_recreated_while_a_fetch_waits_is_another_one(version: int) -> None:
    """A fetch by id does not ask for the new topic (KIP-516); a fetch by name is out of its range."""
    world = HeldThreads("run")
    world.go.set()
    async with running_node(world=world) as node, trio.open_nursery() as nursery:
        await node.create("t")
        await node.produce("t", batch(b"a"))
        answers: list[PartitionData] = []

        async def fetch() -> None:
            answers.extend(await node.fetch("t", 1, version=version, max_wait_ms=60_000))

        nursery.start_soon(fetch)
        while not node.broker.replicas.fetch_purgatory.delayed:
            await trio.lowlevel.checkpoint()
        # Both wait behind another change that is being written, and so become known at the same moment.
        world.go = trio.Event()
        nursery.start_soon(node.create, "first")
        await trio.testing.wait_all_tasks_blocked()
        gone = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
        nursery.start_soon(node.broker.gateway.delete_topics, gone)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(node.create, "t")
        await trio.testing.wait_all_tasks_blocked()
        world.go.set()
        while not answers:
            await trio.lowlevel.checkpoint()
        wanted = errors.OffsetOutOfRangeError if version == 12 else errors.UnknownTopicIdError
        assert answers[0].error_code == wanted.code
