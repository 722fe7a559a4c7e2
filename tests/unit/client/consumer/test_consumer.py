"""The consumer against a scripted broker, in virtual time."""

from __future__ import annotations

import itertools
import sys
import uuid
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
import trio
import trio.testing

import triokafka
from tests.support.cancellation import cancelled_at_each_checkpoint
from tests.support.scripted_broker import CLOSE
from tests.support.scripted_reading import ReadableBroker, ReadableCluster, numbers, started_for_consumer
from tests.support.simulated import current_simulation, simulated
from triokafka.errors import (
    CommitFailedError,
    ConfigurationError,
    CorruptRecordError,
    IllegalStateError,
    KafkaTimeoutError,
    LogTruncationError,
    MaxPollIntervalExceededError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
    TopicAuthorizationFailedError,
    UnsupportedCodecError,
    WakeupError,
)
from triokafka.protocol.api.fetch import FetchRequest
from triokafka.protocol.api.find_coordinator import FindCoordinatorRequest
from triokafka.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from triokafka.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse
from triokafka.protocol.api.leave_group import LeaveGroupRequest
from triokafka.protocol.api.list_offsets import ListOffsetsRequest
from triokafka.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from triokafka.protocol.api.sync_group import SyncGroupRequest
from triokafka.structs import OffsetAndMetadata, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def committed(partition: TopicPartition, code: int) -> OffsetCommitResponseTopic:
    answer = OffsetCommitResponsePartition(partition_index=partition.partition, error_code=code)
    return OffsetCommitResponseTopic(name=partition.topic, partitions=[answer])


async def take(consumer: triokafka.Consumer, count: int) -> list[bytes]:
    with trio.fail_after(120):
        return [(await anext(consumer)).value for _ in range(count)]


# ---------------------------------------------------------------- records


@simulated
async def test_a_poll_without_time_left_lets_other_tasks_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise a consumer whose many partitions take as long to check as the timeout would never fetch."""
    _, _, options = await started_for_consumer()
    world = options["world"]
    now = world.now
    seconds = itertools.count()
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0])
        assert not await consumer.poll(timeout_ms=2_000)
        with monkeypatch.context() as slow, trio.testing.assert_checkpoints():
            slow.setattr(world, "now", lambda: now() + next(seconds))
            assert not await consumer.poll(timeout_ms=500)


@simulated
async def test_poll_returns_records_in_order_and_nothing_when_the_time_is_over() -> None:
    cluster, _, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 10))
    cluster.write("t", 0, numbers(10, 15))
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0])
        got = await consumer.poll(timeout_ms=5_000, max_records=12)
        assert [record.value for record in got[T0]] == numbers(0, 12)
        assert [record.offset for record in got[T0]] == list(range(12))
        assert await consumer.position(T0) == 12
        assert [record.value for record in (await consumer.poll(timeout_ms=0))[T0]] == numbers(12, 15)
        before = trio.current_time()
        assert await consumer.poll(timeout_ms=3_000) == {}
        assert trio.current_time() - before == pytest.approx(3, abs=0.01)


@simulated
async def test_iteration_waits_for_records_and_crosses_partitions() -> None:
    cluster, _, options = await started_for_consumer(2)
    cluster.write("t", 0, numbers(0, 3))
    cluster.write("t", 1, numbers(10, 12))
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0, T1])
        assert sorted(await take(consumer, 5)) == sorted([*numbers(0, 3), *numbers(10, 12)])

        async def later() -> None:
            await trio.sleep(7)
            cluster.write("t", 1, [b"late"])

        current_simulation().nursery.start_soon(later)
        assert await take(consumer, 1) == [b"late"]


@simulated
async def test_the_next_fetch_is_sent_while_records_are_handled() -> None:
    cluster, broker, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 10))
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0])
        await take(consumer, 1)
        await broker.wait_for(FetchRequest, 2)
        assert broker.seen(FetchRequest)[1].topics[0].partitions[0].fetch_offset == 10


@simulated
async def test_compaction_gaps_and_control_batches_are_skipped() -> None:
    cluster, _, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 2))
    cluster.write("t", 0, numbers(5, 7), gap=3)
    cluster.write("t", 0, [b"\0\0\0\0\0\0"], control=True, transactional=True, producer_id=1, producer_epoch=0)
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0])
        records = [await anext(consumer) for _ in range(4)]
        assert [record.offset for record in records] == [0, 1, 5, 6]
        assert await consumer.poll(timeout_ms=100) == {}
        assert await consumer.position(T0) == 8


@simulated
async def test_batches_are_decoded_on_request() -> None:
    cluster, _, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 10))
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0])
        batches = consumer.batches()
        batch = await anext(batches)
        assert (batch.topic_partition, batch.start_offset, batch.next_offset) == (T0, 0, 10)
        assert batch.values() == numbers(0, 10)
        assert [record.offset for record in batch.records()] == list(range(10))
        assert batch.to_arrow(columns=["offset"]).column("offset").to_pylist() == list(range(10))
        assert await consumer.position(T0) == 10


@simulated
async def test_poll_arrow_gathers_partitions_and_is_empty_on_timeout() -> None:
    cluster, _, options = await started_for_consumer(2)
    cluster.write("t", 0, numbers(0, 4))
    cluster.write("t", 1, numbers(10, 12))
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0, T1])
        await trio.sleep(1)
        batch = await consumer.poll_arrow(timeout_ms=1_000)
        assert sorted(batch.column("value").to_pylist()) == sorted([*numbers(0, 4), *numbers(10, 12)])
        empty = await consumer.poll_arrow(timeout_ms=10)
        assert empty.num_rows == 0
        assert empty.schema == batch.schema


@simulated
async def test_calls_of_different_shapes_share_one_position() -> None:
    cluster, _, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 10))
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0])
        assert await take(consumer, 3) == numbers(0, 3)
        assert await consumer.position(T0) == 3
        assert [r.value for r in (await consumer.poll(max_records=2))[T0]] == numbers(3, 5)
        assert (await consumer.poll_arrow(max_records=2)).column("value").to_pylist() == numbers(5, 7)
        assert await take(consumer, 1) == numbers(7, 8)
        assert (await anext(consumer.batches())).values() == numbers(8, 10)


@simulated
async def test_deserializers_apply_and_a_poison_record_stays_until_it_is_skipped() -> None:
    cluster, _, options = await started_for_consumer()
    cluster.write("t", 0, [b"1", b"2", b"x", b"4", None])
    async with triokafka.Consumer(**options, value_deserializer=int) as consumer:
        consumer.assign([T0])
        assert [r.value for r in (await consumer.poll(timeout_ms=1_000))[T0]] == [1, 2]
        for _ in range(2):
            with pytest.raises(RecordDeserializationError, match="offset 2 of t-0"):
                await consumer.poll(timeout_ms=1_000)
        consumer.seek(T0, 3)
        assert [r.value for r in (await consumer.poll(timeout_ms=1_000))[T0]] == [4, None]


@simulated
@pytest.mark.parametrize("how", ["poll", "iterate"])
async def test_poison_records_may_be_skipped(how: str, caplog: pytest.LogCaptureFixture) -> None:
    cluster, _, options = await started_for_consumer()
    cluster.write("t", 0, [b"x", b"x"])
    cluster.write("t", 0, [b"1", b"x", b"4", b"x"])
    cluster.write("t", 0, [b"x", b"7"])
    async with triokafka.Consumer(
        **options, group_id="g", value_deserializer=int, deserialization_error_policy="skip", max_poll_records=2
    ) as consumer:
        consumer.assign([T0])
        values: list[Any] = []
        while len(values) < 3:
            if how == "iterate":
                values.append((await anext(consumer)).value)
            else:
                values += [record.value for record in (await consumer.poll(timeout_ms=1_000)).get(T0, ())]
        assert values == [1, 4, 7]
        assert consumer.metrics()["records_skipped_total"] == 5
    assert "skipped the record at offset 3 of t-0" in caplog.text
    assert cluster.committed[T0] == 8


@simulated
async def test_skipped_offsets_are_committed() -> None:
    cluster, _, options = await started_for_consumer()
    cluster.write("t", 0, [b"x"] * 10)
    async with triokafka.Consumer(
        **options, group_id="g", value_deserializer=int, deserialization_error_policy="skip"
    ) as consumer:
        consumer.assign([T0])
        assert await consumer.poll(timeout_ms=6_000) == {}
        assert cluster.committed[T0] == 10


@simulated
async def test_poison_records_may_be_returned_undecoded() -> None:
    cluster, _, options = await started_for_consumer()
    cluster.write("t", 0, [b"1", b"x", b"3"])
    async with triokafka.Consumer(**options, value_deserializer=int, deserialization_error_policy="raw") as consumer:
        consumer.assign([T0])
        one, poison, three = (record.value for record in (await consumer.poll(timeout_ms=1_000))[T0])
    assert (one, poison, three) == (1, b"x", 3)
    assert isinstance(poison, triokafka.UndeserializedBytes)
    assert isinstance(poison.error, ValueError)


class Topical(triokafka.Deserializer[str]):
    """A deserializer that records its calls."""

    events: ClassVar[list[Any]] = []

    def configure(self, config: Mapping[str, Any], is_key: bool) -> None:
        self.events.append(("configure", is_key, config["group_id"], config["prefix"]))

    def deserialize(self, topic: str, data: bytes, headers: Any = None) -> str:
        self.events.append((topic, bytes(data), headers))
        return f"{topic}:{data.decode()}"

    def close(self) -> None:
        self.events.append("close")


@simulated
async def test_deserializers_are_configured_get_the_topic_never_get_null_and_are_closed() -> None:
    cluster, _, options = await started_for_consumer()
    cluster.write("t", 0, [b"1", None])
    Topical.events.clear()
    async with triokafka.Consumer(
        **options,
        key_deserializer=triokafka.StringDeserializer(),
        value_deserializer=Topical,
        plugin_options={"prefix": "x"},
    ) as consumer:
        consumer.assign([T0])
        records = (await consumer.poll(timeout_ms=1_000))[T0]
        assert [(r.key, r.value) for r in records] == [("k", "t:1"), ("k", None)]
    assert Topical.events == [("configure", False, None, "x"), ("t", b"1", []), "close"]


# ---------------------------------------------------------------- positions


@simulated
async def test_seek_drops_fetched_records() -> None:
    cluster, _, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 10))
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0])
        await take(consumer, 2)
        consumer.seek(T0, 7)
        assert await take(consumer, 1) == [b"7"]
        consumer.seek_to_beginning()
        assert await take(consumer, 1) == [b"0"]
        consumer.seek_to_end(T0)
        assert await consumer.position(T0) == 10
        with pytest.raises(ValueError, match="negative"):
            consumer.seek(T0, -1)
        with pytest.raises(IllegalStateError, match="t-1 is not assigned"):
            consumer.seek(T1, 1)


@simulated
async def test_paused_partitions_return_nothing_and_keep_fetched_records() -> None:
    cluster, broker, options = await started_for_consumer(2)
    cluster.write("t", 0, numbers(0, 3))
    cluster.write("t", 1, numbers(10, 13))
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0, T1])
        await trio.sleep(1)
        consumer.pause(T0)
        assert consumer.paused() == {T0}
        assert set(await consumer.poll(timeout_ms=1_000)) == {T1}
        assert await consumer.poll(timeout_ms=1_000) == {}
        fetches = len(broker.seen(FetchRequest))
        consumer.resume(T0)
        assert [r.value for r in (await consumer.poll(timeout_ms=0))[T0]] == numbers(0, 3)
        assert len(broker.seen(FetchRequest)) == fetches


@simulated
async def test_reading_starts_at_the_committed_offset_else_by_the_policy() -> None:
    cluster, _, options = await started_for_consumer(2)
    for partition in (0, 1):
        cluster.write("t", partition, numbers(0, 10))
    cluster.committed[T0] = 6
    options |= {"group_id": "g", "enable_auto_commit": False}
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0, T1])
        assert (await consumer.position(T0), await consumer.position(T1)) == (6, 0)
    async with triokafka.Consumer(**{**options, "auto_offset_reset": "latest"}) as consumer:
        consumer.assign([T0, T1])
        assert (await consumer.position(T0), await consumer.position(T1)) == (6, 10)


@simulated
async def test_without_a_policy_a_missing_position_is_an_error_until_one_is_given() -> None:
    cluster, _, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 3))
    async with triokafka.Consumer(**{**options, "auto_offset_reset": "none"}, group_id="g") as consumer:
        consumer.assign([T0])
        for _ in range(2):
            with pytest.raises(NoOffsetForPartitionError, match="t-0"):
                await consumer.poll(timeout_ms=1_000)
        consumer.seek(T0, 1)
        assert [r.value for r in (await consumer.poll(timeout_ms=1_000))[T0]] == numbers(1, 3)


@simulated
async def test_a_position_outside_the_log_is_reset_or_raised() -> None:
    cluster, _, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 10))
    cluster.starts[T0] = 4
    cluster.batches[T0].clear()
    cluster.ends[T0] = 10
    cluster.write("t", 0, [b"new"])
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 1)
        assert await take(consumer, 1) == [b"new"]
    async with triokafka.Consumer(**{**options, "auto_offset_reset": "none"}) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 99)
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError, match="offset 99 of t-0"):
                await consumer.poll(timeout_ms=1_000)


@pytest.mark.parametrize("shape", ["poll", "iterate", "arrow", "batches"])
@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
@simulated
async def test_position_beyond_a_truncated_log_is_reset_by_the_policy(policy: str, shape: str) -> None:
    """Records fetched before are returned first, whatever the call."""
    cluster, _, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 3))
    shown: list[bytes] = []

    async def read() -> None:
        with trio.move_on_after(5):
            if shape == "poll":
                shown.extend(r.value for rs in (await consumer.poll(timeout_ms=1_000)).values() for r in rs)
            elif shape == "iterate":
                shown.append((await anext(consumer)).value)
            elif shape == "arrow":
                shown.extend((await consumer.poll_arrow(timeout_ms=1_000, columns=["value"]))["value"].to_pylist())
            else:
                shown.extend(record.value for record in (await anext(consumer.batches())).records())

    async with triokafka.Consumer(**{**options, "auto_offset_reset": policy}) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 0)
        while len(shown) < 3:
            await read()
        # Retention deletes the next records, and more, before they are read.
        cluster.ends[T0] = cluster.starts[T0] = 10
        cluster.write("t", 0, numbers(10, 12))
        if policy == "none":
            for _ in range(2):
                with pytest.raises(OffsetOutOfRangeError, match="offset 3 of t-0"):
                    await read()
            consumer.seek(T0, 11)
        else:
            await read()
            await consumer.position(T0)
        cluster.write("t", 0, numbers(12, 13))
        for _ in range(3):
            await read()
    following = {"earliest": numbers(10, 13), "latest": numbers(12, 13), "none": numbers(11, 13)}
    assert shown == numbers(0, 3) + following[policy]


@simulated
async def test_offset_resets_that_lead_out_of_range_again_are_repeated_with_pauses() -> None:
    """A broker may report a log start behind the log end."""
    cluster, broker, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 3))
    cluster.starts[T0] = 10
    async with triokafka.Consumer(**{**options, "auto_offset_reset": "earliest"}) as consumer:
        consumer.assign([T0])
        with trio.move_on_after(2):
            while True:
                assert not await consumer.poll(timeout_ms=500)
        assert 2 < len(broker.seen(FetchRequest)) < 50


@simulated
async def test_new_leader_validates_the_position() -> None:
    cluster, _, options = await started_for_consumer(nodes=2)
    cluster.write("t", 0, numbers(0, 5))
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0])
        await take(consumer, 5)
        cluster.move("t", 0, 2)
        cluster.write("t", 0, [b"after"])
        assert await take(consumer, 1) == [b"after"]


@simulated
async def test_a_truncated_log_moves_the_position_back_to_the_truncation_point() -> None:
    cluster, _, options = await started_for_consumer(nodes=2)
    cluster.write("t", 0, numbers(0, 3))
    cluster.write("t", 0, numbers(3, 5))
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0])
        await take(consumer, 5)
        cluster.move("t", 0, 2)
        cluster.epoch_ends[T0, 0] = (0, 3)
        cluster.batches[T0].pop()
        cluster.ends[T0] = 3
        cluster.write("t", 0, [b"other"])
        assert [(r.offset, r.value) for r in [await anext(consumer)]] == [(3, b"other")]


@pytest.mark.parametrize("known", [True, False])
@simulated
async def test_without_a_policy_a_truncated_log_is_an_error_until_one_seeks(known: bool) -> None:
    """No record is read that replaced a truncated one."""
    cluster, _, options = await started_for_consumer(nodes=2)
    cluster.write("t", 0, numbers(0, 3))
    cluster.write("t", 0, numbers(3, 5))
    async with triokafka.Consumer(**{**options, "auto_offset_reset": "none"}) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 0)
        await take(consumer, 5)
        cluster.move("t", 0, 2)
        cluster.epoch_ends[T0, 0] = (0, 3) if known else (-1, -1)
        cluster.batches[T0].pop()
        cluster.ends[T0] = 3
        cluster.write("t", 0, [b"another 3", b"another 4", b"5"])
        for _ in range(3):
            with pytest.raises(LogTruncationError, match="t-0 at position 5") as caught:
                await consumer.poll(timeout_ms=5_000)
        assert caught.value.divergent_offsets == {T0: 3 if known else None}
        consumer.seek(T0, 3)
        assert await take(consumer, 3) == [b"another 3", b"another 4", b"5"]


def cut_and_rewrite(cluster: ReadableCluster, at: int) -> None:
    """Make broker 2 the leader; its log of ten one-record batches differs from offset ``at`` on."""
    cluster.move("t", 0, 2)
    cluster.epoch_ends[T0, 0] = (0, at)
    del cluster.batches[T0][at:]
    cluster.ends[T0] = at
    for number in range(at, 10):
        cluster.write("t", 0, [b"new %d" % number])


async def learns_of_the_leader(consumer: triokafka.Consumer) -> None:
    """Wait until the consumer knows the new leader; it sends no other fetch in between."""
    network = consumer._engine.network
    network.request_metadata_update()
    while network.cluster.leader_for(T0) != 2:
        await trio.sleep(0.01)


@pytest.mark.parametrize("how", ["poll", "iteration", "columns", "batches"])
@simulated
async def test_records_prefetched_from_a_former_leader_are_fetched_again(how: str) -> None:
    """The new leader has all records up to the position, but perhaps not the prefetched ones."""
    cluster, _, options = await started_for_consumer(nodes=2)
    for number in range(10):
        cluster.write("t", 0, [b"old %d" % number])
    if how == "batches":
        options["max_partition_fetch_bytes"] = len(cluster.batches[T0][0]) * 2
    async with triokafka.Consumer(**options, max_poll_records=10) as consumer:
        consumer.assign([T0])

        async def read(most: int) -> list[Any]:
            if how == "poll":
                return [r.value for r in (await consumer.poll(timeout_ms=60_000, max_records=most)).get(T0, [])]
            if how == "columns":
                arrow = await consumer.poll_arrow(timeout_ms=60_000, max_records=most)
                return list(arrow.column("value").to_pylist())
            if how == "batches":
                return (await anext(consumer.batches())).values()
            return await take(consumer, 1)

        got = await read(2)
        while len(got) < 2:
            got += await read(2 - len(got))
        await trio.sleep(5)
        state = consumer._engine.subscription.state(T0)
        assert (consumer._engine.fetcher.buffer.fetch_offset(T0, state) or 0) > 2, "more was prefetched"
        cut_and_rewrite(cluster, 2)
        await learns_of_the_leader(consumer)
        while len(got) < 10:
            got += await read(10)
        assert got == [b"old 0", b"old 1", *(b"new %d" % number for number in range(2, 10))]


@simulated
async def test_batches_carry_the_leader_epoch_up_to_which_they_were_read() -> None:
    """The batches are not decoded, but the position must still be validated with a new leader."""
    cluster, _, options = await started_for_consumer(nodes=2)
    for number in range(10):
        cluster.write("t", 0, [b"old %d" % number])
    async with triokafka.Consumer(**{**options, "auto_offset_reset": "none"}) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 0)
        assert len((await anext(consumer.batches())).values()) == 10
        cut_and_rewrite(cluster, 5)
        with pytest.raises(LogTruncationError, match="t-0 at position 10"):
            await consumer.poll(timeout_ms=60_000)


@simulated
async def test_leaders_report_where_epochs_end() -> None:
    cluster, _, options = await started_for_consumer(nodes=2)
    for epoch in (1, 1, 3):
        cluster.write("t", 0, [b"value"], leader_epoch=epoch)
    cluster.epoch_ends[T0, 2] = (1, 2)
    cluster.epoch_ends[T0, 9] = (-1, -1)
    async with triokafka.Consumer(**{**options, "auto_offset_reset": "earliest"}) as consumer:
        assert await consumer.epoch_ends({T0: 2}) == {T0: OffsetAndMetadata(2, "", 1)}
        assert await consumer.epoch_ends({T0: 9}) == {T0: None}
        consumer.assign([T0])
        batch = await anext(consumer.batches())
        assert (batch.next_offset, batch.leader_epoch) == (3, 3)


@simulated
async def test_late_response_of_a_former_leader_is_ignored() -> None:
    cluster, broker, options = await started_for_consumer(nodes=2)
    for number in range(10):
        cluster.write("t", 0, [b"old %d" % number])
    asked, go_on = trio.Event(), trio.Event()

    async def late(request: FetchRequest) -> Any:
        answer, _ = broker.fetch_now(request)
        asked.set()
        await go_on.wait()
        return answer

    broker.script(FetchRequest, late)
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0])
        assert not await consumer.poll(timeout_ms=0)
        await asked.wait()
        cut_and_rewrite(cluster, 0)
        metadata = consumer._engine.network.metadata
        metadata.update_leader(T0, 2, 1, None)  # as another broker would report
        go_on.set()
        assert await take(consumer, 10) == [b"new %d" % number for number in range(10)]


@pytest.mark.parametrize("policy", ["earliest", "none"])
@simulated
async def test_a_longer_log_without_the_epoch_that_was_read_counts_as_truncated(policy: str) -> None:
    """The whole epoch was truncated, and the epoch before it is longer there."""
    cluster, _, options = await started_for_consumer(nodes=2)
    for number in range(6):
        cluster.write("t", 0, [b"old %d" % number], leader_epoch=number // 3)
    cluster.leader_epochs[T0] = 1
    async with triokafka.Consumer(**{**options, "auto_offset_reset": policy}, max_poll_records=1) as consumer:
        consumer.assign([T0])
        consumer.seek(T0, 0)
        assert await take(consumer, 5) == [b"old %d" % number for number in range(5)]
        cluster.move("t", 0, 2)
        cluster.epoch_ends[T0, 1] = cluster.epoch_ends[T0, 0] = (0, 9)
        del cluster.batches[T0][3:]
        cluster.ends[T0] = 3
        for number in range(3, 10):
            cluster.write("t", 0, [b"new %d" % number])
        await learns_of_the_leader(consumer)
        if policy == "none":
            with pytest.raises(LogTruncationError, match="up to offset 3") as caught:
                await take(consumer, 1)
            assert caught.value.divergent_offsets == {T0: 3}
            consumer.seek(T0, 3)
        assert await take(consumer, 7) == [b"new %d" % number for number in range(3, 10)]


@simulated
async def test_an_epoch_from_list_offsets_need_not_exist_in_other_logs() -> None:
    """ListOffsets returns the leader's own epoch, in which no record may have been written."""
    cluster, _, options = await started_for_consumer(nodes=2)
    for number in range(5):
        cluster.write("t", 0, [b"%d" % number])
    cluster.leader_epochs[T0] = 1
    async with triokafka.Consumer(**{**options, "auto_offset_reset": "latest"}) as consumer:
        consumer.assign([T0])
        assert await consumer.position(T0) == 5
        consumer._engine.subscription.default_reset = None
        cluster.epoch_ends[T0, 1] = (0, 5)
        cluster.move("t", 0, 2)
        cluster.write("t", 0, [b"5"])
        assert await take(consumer, 1) == [b"5"]


# ---------------------------------------------------------------- errors


@simulated
async def test_corrupt_batch_is_named_and_the_records_before_it_are_returned() -> None:
    cluster, _, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 3))
    cluster.write("t", 0, numbers(3, 6))
    broken = bytearray(cluster.batches[T0][1])
    broken[-2] ^= 1
    cluster.batches[T0][1] = bytes(broken)
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0])
        assert [r.value for r in (await consumer.poll(timeout_ms=1_000))[T0]] == numbers(0, 3)
        for call in (consumer.poll, consumer.poll_arrow):
            with pytest.raises(CorruptRecordError, match=r"t-0 at offset 3: .*; .* seek to 6 to skip it"):
                await call(timeout_ms=1_000)
        consumer.seek(T0, 0)
        assert (await anext(consumer.batches())).values() == numbers(0, 3)
        with pytest.raises(CorruptRecordError, match="t-0 at offset 3") as caught:
            await anext(consumer.batches())
        assert caught.value.next_offset == 6
        consumer.seek(T0, caught.value.next_offset)
        cluster.write("t", 0, [b"good"])
        assert await take(consumer, 1) == [b"good"]


@pytest.mark.parametrize("most", [1, 3])
@simulated
async def test_rows_are_returned_once_when_the_limit_ends_just_before_a_corrupt_batch(most: int) -> None:
    cluster, _, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 3))
    cluster.write("t", 0, numbers(3, 6))
    broken = bytearray(cluster.batches[T0][1])
    broken[-2] ^= 1
    cluster.batches[T0][1] = bytes(broken)
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0])
        got: list[bytes] = []
        for _ in range(3 // most):
            got += (await consumer.poll_arrow(timeout_ms=1_000, max_records=most)).column("value").to_pylist()
            assert await consumer.position(T0) == len(got)
        assert got == numbers(0, 3)
        with pytest.raises(CorruptRecordError, match="t-0 at offset 3"):
            await consumer.poll_arrow(timeout_ms=1_000, max_records=most)


@pytest.mark.parametrize("how", ["records", "arrow"])
@pytest.mark.parametrize("partition", [0, 1])
@simulated
async def test_batch_with_a_missing_codec_does_not_hide_earlier_records(
    monkeypatch: pytest.MonkeyPatch, how: str, partition: int
) -> None:
    cluster, _, options = await started_for_consumer(partitions=2)
    cluster.write("t", 0, numbers(0, 3))
    cluster.write("t", partition, numbers(3, 6), compression="snappy")
    monkeypatch.setitem(sys.modules, "cramjam", None)
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0, T1])
        got: list[bytes] = []
        with pytest.raises(UnsupportedCodecError, match="snappy needs the package"):
            while len(got) <= 3:
                if how == "arrow":
                    got += (await consumer.poll_arrow(timeout_ms=1_000)).column("value").to_pylist()
                else:
                    found = await consumer.poll(timeout_ms=1_000)
                    got += [record.value for records in found.values() for record in records]
        assert got == numbers(0, 3)
        assert await consumer.position(T0) == 3


@pytest.mark.parametrize("how", ["records", "arrow", "iteration", "batches"])
@simulated
async def test_corrupt_batches_may_be_skipped(how: str, caplog: pytest.LogCaptureFixture) -> None:
    cluster, _, options = await started_for_consumer()
    for first in range(0, 15, 3):
        cluster.write("t", 0, numbers(first, first + 3))
    for index in (0, 2, 4):
        broken = bytearray(cluster.batches[T0][index])
        broken[-2] ^= 1
        cluster.batches[T0][index] = bytes(broken)
    good = [*numbers(3, 6), *numbers(9, 12)]
    async with triokafka.Consumer(
        **options, group_id="g", corrupt_batch_policy="skip", auto_commit_interval_ms=1_000
    ) as consumer:
        consumer.assign([T0])
        got: list[Any] = []
        with trio.move_on_after(5):
            while True:
                if how == "records":
                    got += [r.value for r in (await consumer.poll(timeout_ms=1_000)).get(T0, [])]
                elif how == "arrow":
                    got += (await consumer.poll_arrow(timeout_ms=1_000)).column("value").to_pylist()
                elif how == "iteration":
                    got.append((await anext(consumer)).value)
                else:
                    got += (await anext(consumer.batches())).values()
        assert got == good
        assert await consumer.position(T0) == 15
        assert consumer.metrics()["batches_skipped_total"] == 3
        assert "skipped offsets 6 to 8 of t-0" in caplog.text
        await trio.sleep(2)
        assert cluster.committed[T0] == 15


@pytest.mark.parametrize("policy", ["raise", "skip"])
@simulated
async def test_a_corrupt_batch_behind_one_without_records_is_the_one_to_skip(policy: str) -> None:
    cluster, _, options = await started_for_consumer()
    cluster.write("t", 0, [b"\0\0\0\1"], transactional=True, control=True)
    cluster.write("t", 0, numbers(0, 3))
    cluster.write("t", 0, [b"good"])
    broken = bytearray(cluster.batches[T0][1])
    broken[-2] ^= 1
    cluster.batches[T0][1] = bytes(broken)
    async with triokafka.Consumer(**options, corrupt_batch_policy=policy) as consumer:
        consumer.assign([T0])
        if policy == "raise":
            for call in (consumer.poll, consumer.poll_arrow):
                with pytest.raises(CorruptRecordError, match=r"seek to 4 to skip it") as caught:
                    await call(timeout_ms=1_000)
                assert caught.value.next_offset == 4
        else:
            assert await take(consumer, 1) == [b"good"]
            assert consumer.metrics()["batches_skipped_total"] == 1


@simulated
async def test_an_error_of_one_partition_waits_for_the_records_of_another() -> None:
    cluster, broker, options = await started_for_consumer(2)
    cluster.write("t", 1, numbers(0, 3))
    broker.script(FetchRequest, broker.fetch_with(p0=29))
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T1, T0])
        assert list(await consumer.poll(timeout_ms=1_000)) == [T1]
        with pytest.raises(TopicAuthorizationFailedError, match="t-0"):
            await consumer.poll(timeout_ms=1_000)
        cluster.write("t", 0, [b"allowed now"])
        assert await take(consumer, 1) == [b"allowed now"]


@simulated
async def test_corruption_reported_by_the_broker_is_raised_with_partition_and_offset() -> None:
    """CORRUPT_MESSAGE: every further fetch would get the same bytes. `seek` goes past them."""
    cluster, broker, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 3))
    broker.script(FetchRequest, broker.fetch_with(p0=CorruptRecordError.code))
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0])
        with pytest.raises(CorruptRecordError, match="t-0 at offset 0"):
            await consumer.poll(timeout_ms=1_000)
        consumer.seek(T0, 1)
        assert await take(consumer, 2) == numbers(1, 3)


@simulated
async def test_a_lookup_that_keeps_failing_surfaces_with_its_cause() -> None:
    """After ``default_api_timeout_ms`` the wait ends with an error that gives the cause."""
    cluster, broker, options = await started_for_consumer()
    broker.script(ListOffsetsRequest, *[CLOSE] * 1_000)
    async with triokafka.Consumer(**options, default_api_timeout_ms=5_000) as consumer:
        consumer.assign([T0])
        with pytest.raises(KafkaTimeoutError, match=r"looking up the positions .* has failed for [56] s"):
            await anext(consumer)
        assert not consumer.health().healthy
        broker._scripts.clear()
        cluster.write("t", 0, [b"back"])
        assert await take(consumer, 1) == [b"back"]
        assert consumer.health().healthy


@simulated
async def test_unreachable_brokers_surface_too() -> None:
    _, broker, options = await started_for_consumer()
    broker.stop()
    async with triokafka.Consumer("t", **options, group_id="g", default_api_timeout_ms=5_000) as consumer:
        with pytest.raises(KafkaTimeoutError, match="joining group 'g' has failed"):
            await anext(consumer)


@simulated
async def test_a_failed_background_task_surfaces_in_every_call() -> None:
    _, _, options = await started_for_consumer()
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0])

        def explode() -> None:
            raise RuntimeError("boom")

        consumer._engine.fetcher._planner.round = lambda *_: explode()  # type: ignore[assignment]
        for _ in range(2):
            with pytest.raises(triokafka.KafkaError, match="boom"):
                await consumer.poll(timeout_ms=60_000)


@simulated
async def test_one_task_at_a_time() -> None:
    _, _, options = await started_for_consumer()
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: consumer.poll(timeout_ms=1_000), name="first")
            await trio.sleep(0.1)
            with pytest.raises(IllegalStateError, match=r"task 'first' is in the middle of poll"):
                await consumer.poll()
        assert await consumer.poll() == {}


# ---------------------------------------------------------------- groups and commits


@simulated
async def test_a_member_joins_reads_commits_and_leaves() -> None:
    cluster, broker, options = await started_for_consumer(2)
    cluster.write("t", 0, numbers(0, 4))
    async with triokafka.Consumer("t", **options, group_id="g") as consumer:
        assert await take(consumer, 4) == numbers(0, 4)
        assert consumer.assignment() == {T0, T1}
        await consumer.commit()
        assert cluster.committed[T0] == 4
        assert await consumer.committed(T0) == OffsetAndMetadata(4)
        assert (await consumer.committed([T1]))[T1] is not None
    first, second = broker.seen(JoinGroupRequest)
    assert (first.member_id, second.member_id) == ("", "member-1")
    [leave] = broker.seen(LeaveGroupRequest)
    assert leave.members[0].member_id == "member-1"


@simulated
async def test_auto_commit_never_passes_the_current_record() -> None:
    """A record is finished once the next one is requested."""
    cluster, _, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 10))
    async with triokafka.Consumer("t", **options, group_id="g", auto_commit_interval_ms=1_000) as consumer:
        await take(consumer, 3)
        await trio.sleep(10)
        assert cluster.committed[T0] == 2
        await take(consumer, 1)
        await trio.sleep(2)
        assert cluster.committed[T0] == 3
        await consumer.poll(max_records=2)
        await trio.sleep(2)
        assert cluster.committed[T0] == 4
        await consumer.poll(max_records=4)
        await trio.sleep(2)
        assert cluster.committed[T0] == 6
    assert cluster.committed[T0] == 10
    assert len({repr(commit) for commit in cluster.commits}) == len(cluster.commits)


@pytest.mark.parametrize("ending", [ValueError, trio.Cancelled])
@simulated
async def test_leaving_by_an_exception_does_not_commit_the_current_record(ending: type[BaseException]) -> None:
    cluster, broker, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 10))
    with trio.CancelScope() as scope:
        try:
            async with triokafka.Consumer("t", **options, group_id="g") as consumer:
                await take(consumer, 3)
                if ending is ValueError:
                    raise ValueError("the handler failed")
                scope.cancel()
                await trio.sleep(1)
        except ValueError as error:
            assert str(error) == "the handler failed"
    assert cluster.committed[T0] == 2
    assert broker.seen(LeaveGroupRequest)


@simulated
async def test_without_auto_commit_nothing_is_committed_by_itself() -> None:
    cluster, broker, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 3))
    async with triokafka.Consumer("t", **options, group_id="g", enable_auto_commit=False) as consumer:
        await take(consumer, 3)
        await trio.sleep(30)
    assert not broker.seen(OffsetCommitRequest)


@simulated
async def test_commit_needs_a_group_and_membership() -> None:
    cluster, broker, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 3))
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0])
        with pytest.raises(IllegalStateError, match="group_id"):
            await consumer.commit()
    async with triokafka.Consumer(**options, group_id="g") as consumer:
        consumer.assign([T0])
        await consumer.commit({T0: 2})
        assert broker.seen(OffsetCommitRequest)[-1].generation_id_or_member_epoch == -1
    async with triokafka.Consumer("t", **options, group_id="g") as consumer:
        await take(consumer, 1)
        cluster.generation += 1
        with pytest.raises(CommitFailedError, match="has rebalanced"):
            await consumer.commit()
        assert await take(consumer, 1) == [b"2"]
        assert len(broker.seen(JoinGroupRequest)) == 3


@simulated
async def test_commits_are_retried_when_the_coordinator_moves() -> None:
    cluster, broker, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 3))
    async with triokafka.Consumer("t", **options, group_id="g", enable_auto_commit=False) as consumer:
        await take(consumer, 3)
        broker.script(OffsetCommitRequest, CLOSE)
        await consumer.commit()
        assert cluster.committed[T0] == 3
        assert len(broker.seen(FindCoordinatorRequest)) == 2
        broker.script(OffsetCommitRequest, *[CLOSE] * 1_000)
        with pytest.raises(KafkaTimeoutError, match="commit to group 'g' did not succeed in time"):
            await consumer.commit(timeout_ms=3_000)


class Listener(triokafka.ConsumerRebalanceListener):
    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str]]] = []

    def on_partitions_revoked(self, revoked: Any) -> None:
        self.calls.append(("revoked", [str(one) for one in revoked]))

    async def on_partitions_assigned(self, assigned: Any) -> None:
        await trio.sleep(0.5)
        self.calls.append(("assigned", [str(one) for one in assigned]))

    async def on_partitions_lost(self, lost: Any) -> None:
        self.calls.append(("lost", [str(one) for one in lost]))


@simulated
async def test_commits_in_the_background_keep_their_order_and_go_together() -> None:
    cluster, broker, options = await started_for_consumer(2)
    cluster.write("t", 0, numbers(0, 30))
    results: list[tuple[dict[int, int], Any]] = []

    def on_done(offsets: Any, error: Any) -> None:
        results.append(({partition.partition: offset.offset for partition, offset in offsets.items()}, error))

    async with triokafka.Consumer("t", **options, group_id="g", enable_auto_commit=False) as consumer:
        for _ in range(30):
            await take(consumer, 1)
            consumer.commit_nowait(on_done=on_done)
        consumer.commit_nowait({T1: 0})
        await consumer.commit({T0: 12})
        assert cluster.committed == {T0: 12, T1: 0}
        assert len(broker.seen(OffsetCommitRequest)) <= 4
        assert results[-1] == ({0: 30, 1: 0}, None)
        consumer.commit_nowait({T0: 20})
    assert cluster.committed[T0] == 20
    assert [commit[T0] for commit in cluster.commits if T0 in commit][-3:] == [30, 12, 20]


@pytest.mark.parametrize("count", [2, 1_000])
@simulated
async def test_log_line_about_an_assignment_lists_few_partitions(count: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    _, _, options = await started_for_consumer(count)
    async with triokafka.Consumer("t", **options, group_id="g") as consumer:
        await consumer.poll(timeout_ms=1_000)
        assert len(consumer.assignment()) == count
    (line,) = [line for line in caplog.messages if "assigned" in line]
    assert line.endswith(": assigned t-0, t-1" if count == 2 else ", t-19 and 980 others")


@simulated
async def test_failed_background_commit_is_reported_to_its_callback_or_logged(caplog: pytest.LogCaptureFixture) -> None:
    cluster, broker, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 3))
    results: list[Any] = []
    async with triokafka.Consumer("t", **options, group_id="g", enable_auto_commit=False) as consumer:
        with pytest.raises(IllegalStateError, match=r"commit_nowait\(\) needs a group_id"):
            async with triokafka.Consumer(**options) as alone:
                alone.commit_nowait()
        await take(consumer, 3)
        broker.script(HeartbeatRequest, HeartbeatResponse(error_code=25))
        await trio.sleep(4)
        consumer.commit_nowait(on_done=lambda offsets, error: results.append(type(error)))
        await trio.sleep(1)
        consumer.commit_nowait()
        await trio.sleep(1)
    assert results == [CommitFailedError]
    assert "commit_nowait of 1 partitions failed" in caplog.text


@simulated
async def test_open_commits_fail_when_the_consumer_is_closed() -> None:
    """The coordinator still gets the leave request, although it does not answer commits."""
    cluster, broker, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 5))
    results: list[tuple[dict[int, int], Any]] = []
    listened: list[str] = []

    def on_done(offsets: Any, error: Any) -> None:
        results.append(({partition.partition: offset.offset for partition, offset in offsets.items()}, error))

    class Listener(triokafka.ConsumerRebalanceListener):
        async def on_partitions_revoked(self, revoked: Any) -> None:
            if revoked:
                listened.append("begun")
                await trio.sleep(1)
                listened.append("done")
                await trio.sleep_forever()

    async with triokafka.Consumer(**options, group_id="g", close_timeout_ms=20_000) as consumer:
        consumer.subscribe("t", listener=Listener())
        await take(consumer, 5)
        broker.script(OffsetCommitRequest, *[OffsetCommitResponse(topics=[committed(T0, 14)])] * 1_000)
        consumer.commit_nowait({T0: 1}, on_done=on_done)
        await trio.sleep(1)
        consumer.commit_nowait({T0: 2}, on_done=on_done)
        before = trio.current_time()
    assert trio.current_time() - before <= 20
    assert [offsets for offsets, _ in results] == [{0: 2}]
    assert isinstance(results[0][1], KafkaTimeoutError) and "closed" in str(results[0][1])
    assert listened == ["begun", "done"]
    assert len(broker.seen(LeaveGroupRequest)) == 1


@simulated
async def test_commit_from_the_callback_of_a_failed_last_commit_is_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No caller waits for a response that cannot arrive."""
    _, broker, options = await started_for_consumer()
    results: list[Any] = []

    def again(offsets: Any, error: Any) -> None:
        results.append(type(error))
        consumer.commit_nowait({T0: 3}, on_done=again)

    async with triokafka.Consumer(**options, group_id="g", close_timeout_ms=2_000) as consumer:
        consumer.assign([T0])
        broker.script(OffsetCommitRequest, *[OffsetCommitResponse(topics=[committed(T0, 14)])] * 1_000)
        consumer.commit_nowait({T0: 2}, on_done=again)
        await trio.sleep(0.1)
    assert results == [KafkaTimeoutError]
    assert "ClosedError: the consumer is closed" in caplog.text


@pytest.mark.parametrize(("partitions", "threads"), [(10, 0), (1_000, 1)])
@simulated
async def test_a_leader_computes_a_large_assignment_in_a_thread(partitions: int, threads: int) -> None:
    """Heartbeats and the application continue meanwhile."""
    _, _, options = await started_for_consumer(partitions)
    world = options["world"]
    run_in_thread = world.run_in_thread
    ran: list[Any] = []

    async def run(function: Any, *args: Any) -> Any:
        ran.append(function)
        return await run_in_thread(function, *args)

    world.run_in_thread = run
    async with triokafka.Consumer("t", **options, group_id="g") as consumer:
        await consumer.poll(timeout_ms=5_000)
        assert len(consumer.assignment()) == partitions
    assert len(ran) == threads


@pytest.mark.parametrize("fails", [False, True])
@simulated
async def test_assignment_computed_in_a_thread_does_not_affect_the_next_membership(fails: bool) -> None:
    """The thread is not stopped when the consumer leaves: its result and its error are ignored, and no other thread
    uses the assignor meanwhile.
    """
    _, broker, options = await started_for_consumer(1_000)
    began, goes_on = trio.Event(), trio.Event()
    inside: list[Any] = []
    failed: list[Any] = []
    most = 0

    async def run(function: Any) -> Any:
        nonlocal most
        inside.append(function)
        most = max(most, len(inside))
        with trio.CancelScope(shield=True):
            began.set()
            await goes_on.wait()
        inside.remove(function)
        if fails and not failed:
            failed.append(function)
            raise ConfigurationError("the assignment is wrong")
        return function()

    options["world"].run_in_thread = run
    async with triokafka.Consumer("t", **options, group_id="g") as consumer:
        await consumer.poll(timeout_ms=1_000)
        await began.wait()
        consumer.unsubscribe()
        await trio.sleep(1)
        consumer.subscribe("t")
        await consumer.poll(timeout_ms=1_000)
        goes_on.set()
        await consumer.poll(timeout_ms=5_000)
        assert len(consumer.assignment()) == 1_000
        synced = broker.seen(SyncGroupRequest)
        assert [[given.member_id for given in sync.assignments] for sync in synced] == [[synced[0].member_id]]
    assert most == 1
    assert len(failed) == fails


@simulated
async def test_heartbeat_responses_announce_a_rebalance() -> None:
    cluster, broker, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 10))
    listener = Listener()
    async with triokafka.Consumer(**options, group_id="g") as consumer:
        consumer.subscribe(["t"], listener=listener)
        await take(consumer, 3)
        broker.script(HeartbeatRequest, HeartbeatResponse(error_code=27))
        await trio.sleep(4)
        assert listener.calls == [("revoked", []), ("assigned", ["t-0"])]
        consumer.pause(T0)
        got = await consumer.poll(timeout_ms=5_000)
        assert listener.calls[2:] == [("revoked", ["t-0"]), ("assigned", ["t-0"])]
        assert cluster.committed[T0] == 3
        assert consumer.paused() == set()
        assert [record.value for record in got[T0]] == numbers(3, 10)
    assert listener.calls[-1] == ("revoked", ["t-0"])


@simulated
async def test_a_removed_member_loses_its_partitions_and_joins_as_a_new_one() -> None:
    cluster, broker, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 10))
    listener = Listener()
    async with triokafka.Consumer(**options, group_id="g") as consumer:
        consumer.subscribe("t", listener=listener)
        await take(consumer, 3)
        broker.script(HeartbeatRequest, HeartbeatResponse(error_code=25))
        await trio.sleep(4)
        with pytest.raises(CommitFailedError, match="not a member"):
            await consumer.commit()
        assert await consumer.poll(timeout_ms=5_000)
        assert ("lost", ["t-0"]) in listener.calls
        assert broker.seen(JoinGroupRequest)[-2].member_id == ""
    assert not [commit for commit in cluster.commits if commit[T0] == 3 and commit is cluster.commits[0]]


@simulated
async def test_stuck_loop_loses_its_partitions_and_gets_the_reason() -> None:
    cluster, broker, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 10))
    async with triokafka.Consumer("t", **options, group_id="g", max_poll_interval_ms=60_000) as consumer:
        await take(consumer, 1)
        await trio.sleep(59)
        await take(consumer, 1)
        await trio.sleep(61)
        assert broker.seen(LeaveGroupRequest)
        with pytest.raises(MaxPollIntervalExceededError, match="max_poll_interval_ms=60000"):
            while True:
                await anext(consumer)
        assert await take(consumer, 1)


@simulated
async def test_waiting_for_records_does_not_count_as_a_stuck_loop() -> None:
    _, broker, options = await started_for_consumer()
    async with triokafka.Consumer("t", **options, group_id="g", max_poll_interval_ms=10_000) as consumer:
        assert await consumer.poll(timeout_ms=60_000) == {}
    assert len(broker.seen(HeartbeatRequest)) >= 15
    assert len(broker.seen(LeaveGroupRequest)) == 1


@simulated
async def test_a_short_poll_does_not_delay_the_join() -> None:
    """Joining continues in the background, between calls that do not wait."""
    cluster, _, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 3))
    async with triokafka.Consumer("t", **options, group_id="g") as consumer:
        polls = 0
        while not (got := await consumer.poll(timeout_ms=0)):
            polls += 1
            await trio.sleep(0.01)
            assert polls < 100
    assert [r.value for r in got[T0]] == numbers(0, 3)


@simulated
async def test_a_new_subscription_rejoins_and_an_old_one_ends() -> None:
    simulation = current_simulation()
    cluster = ReadableCluster(t=1, u=1)
    address = await cluster.start(simulation.nursery, simulation.host("broker").world)
    cluster.write("t", 0, [b"t"])
    cluster.write("u", 0, [b"u"])
    world = simulation.host("client").world
    async with triokafka.Consumer(
        bootstrap_servers=address, world=world, group_id="g", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(["t"])
        assert await take(consumer, 1) == [b"t"]
        consumer.subscribe(["u"])
        assert await take(consumer, 1) == [b"u"]
        assert consumer.assignment() == {TopicPartition("u", 0)}
        with pytest.raises(IllegalStateError, match="unsubscribe"):
            consumer.assign([T0])
        consumer.unsubscribe()
        assert consumer.assignment() == set()
        consumer.assign([T0])
        assert await consumer.position(T0) == 1


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
@simulated
async def test_an_assignment_for_an_earlier_subscription_is_skipped(strategy: str) -> None:
    simulation = current_simulation()
    cluster = ReadableCluster(t=1, u=1)
    address = await cluster.start(simulation.nursery, simulation.host("broker").world)
    broker = cluster.brokers[1]
    assert isinstance(broker, ReadableBroker)
    world = simulation.host("client").world

    async def slow(request: SyncGroupRequest) -> Any:
        await trio.sleep(5)
        return broker.sync_group(request)

    broker.script(SyncGroupRequest, slow)
    async with triokafka.Consumer(
        "t", bootstrap_servers=address, world=world, group_id="g", partition_assignment_strategy=[strategy]
    ) as consumer:
        await consumer.poll(timeout_ms=2_000)
        consumer.subscribe("u")
        with trio.fail_after(30):
            while not consumer.assignment():
                await consumer.poll(timeout_ms=1_000)
        assert consumer.assignment() == {TopicPartition("u", 0)}


@simulated
async def test_a_pattern_follows_topics_that_appear() -> None:
    simulation = current_simulation()
    cluster = ReadableCluster(orders_eu=1, audit=1)
    address = await cluster.start(simulation.nursery, simulation.host("broker").world)
    world = simulation.host("client").world
    groups: tuple[dict[str, Any], ...] = ({"group_id": "g"}, {})
    for group in groups:
        cluster.topics.pop("orders_us", None)
        async with triokafka.Consumer(
            bootstrap_servers=address, world=world, metadata_max_age_ms=10_000, auto_offset_reset="earliest", **group
        ) as consumer:
            consumer.subscribe(pattern="orders_.*")
            await consumer.poll(timeout_ms=1_000)
            assert consumer.subscription() == {"orders_eu"}
            cluster.topics["orders_us"] = 2
            await consumer.poll(timeout_ms=15_000)
            await consumer.poll(timeout_ms=1_000)
            assert len(consumer.assignment()) == 3


@pytest.mark.parametrize("code", [27, 25], ids=["the group rebalances", "the member was put out"])
@simulated
async def test_a_rebalance_started_by_another_member_uses_the_present_topics_of_a_pattern(code: int) -> None:
    """Another member has seen a new topic. With an old topic list, this member would join now, and again much later."""
    cluster, broker, options = await started_for_consumer()
    async with triokafka.Consumer(**options, group_id="g", metadata_max_age_ms=3_000_000) as consumer:
        consumer.subscribe(pattern="t|u")
        await consumer.poll(timeout_ms=10_000)
        assert consumer.assignment() == {T0}
        cluster.topics["u"] = 1
        broker.script(HeartbeatRequest, HeartbeatResponse(error_code=code))
        await consumer.poll(timeout_ms=20_000)
        assert consumer.assignment() == {T0, TopicPartition("u", 0)}
        assert len(broker.seen(SyncGroupRequest)) == 2


@simulated
async def test_partitions_that_are_added_are_assigned() -> None:
    cluster, _, options = await started_for_consumer()
    async with triokafka.Consumer("t", **options, group_id="g", metadata_max_age_ms=10_000) as consumer:
        await consumer.poll(timeout_ms=1_000)
        cluster.topics["t"] = 2
        await consumer.poll(timeout_ms=15_000)
        await consumer.poll(timeout_ms=1_000)
        assert consumer.assignment() == {T0, T1}


@simulated
async def test_refusal_of_a_member_is_raised() -> None:
    _, broker, options = await started_for_consumer()
    async with triokafka.Consumer("t", **options, group_id="g") as consumer:
        broker.script(JoinGroupRequest, JoinGroupResponse(error_code=23, protocol_name=""))
        with pytest.raises(triokafka.errors.InconsistentGroupProtocolError, match="group 'g'"):
            await consumer.poll(timeout_ms=5_000)
        await consumer.poll(timeout_ms=5_000)
        assert consumer.assignment() == {T0}


# ---------------------------------------------------------------- cancellation


@simulated
async def test_another_task_can_end_a_wait_and_no_record_is_lost() -> None:
    cluster, _, options = await started_for_consumer()
    async with triokafka.Consumer(**options) as consumer:
        consumer.assign([T0])

        async def later() -> None:
            await trio.sleep(3)
            consumer.wakeup()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(later)
            before = trio.current_time()
            with pytest.raises(WakeupError):
                await anext(consumer)
            assert trio.current_time() - before == 3
        cluster.write("t", 0, numbers(0, 5))
        await trio.sleep(1)
        consumer.wakeup()
        consumer.wakeup()  # a second call changes nothing
        with pytest.raises(WakeupError):
            await consumer.poll(timeout_ms=1_000)
        assert await take(consumer, 5) == numbers(0, 5)


@simulated
async def test_a_listener_is_not_ended_by_a_wakeup() -> None:
    cluster, _, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 5))
    results: list[int] = []

    class Listener(triokafka.ConsumerRebalanceListener):
        async def on_partitions_assigned(self, assigned: Any) -> None:
            consumer.wakeup()
            results.append(await consumer.position(T0))
            await trio.sleep(1)
            results.append(-1)

    async with triokafka.Consumer(**options, group_id="g") as consumer:
        consumer.subscribe("t", listener=Listener())
        got: list[Any] = []
        with pytest.raises(WakeupError):
            while True:
                got += [r.value for r in (await consumer.poll(timeout_ms=30_000)).get(T0, [])]
        assert results == [0, -1]
        assert got + await take(consumer, 5 - len(got)) == numbers(0, 5)


@simulated
async def test_a_cancelled_poll_loses_no_record() -> None:
    cluster, _, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 100))
    async with triokafka.Consumer("t", **options, group_id="g") as consumer:
        seen: list[bytes] = []

        async def nothing() -> None:
            await trio.sleep(0.01)

        while len(seen) < 100:
            got, _ = await cancelled_at_each_checkpoint(
                lambda: consumer.poll(timeout_ms=10_000, max_records=30), nothing
            )
            seen += [record.value for records in got.values() for record in records]
        assert seen == numbers(0, 100)


@simulated
async def test_a_cancelled_join_continues_and_its_result_is_used() -> None:
    cluster, broker, options = await started_for_consumer()
    cluster.write("t", 0, [b"here"])
    async with triokafka.Consumer("t", **options, group_id="g") as consumer:
        with trio.move_on_after(0.0001):
            await anext(consumer)
        await trio.sleep(5)
        assert await take(consumer, 1) == [b"here"]
        assert len(broker.seen(JoinGroupRequest)) == 2


@simulated
async def test_a_cancelled_commit_leaves_the_next_one_in_order() -> None:
    cluster, _, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 3))
    async with triokafka.Consumer("t", **options, group_id="g", enable_auto_commit=False) as consumer:
        await take(consumer, 3)

        async def check() -> None:
            await consumer.commit({T0: 1})
            assert cluster.committed[T0] == 1

        await cancelled_at_each_checkpoint(lambda: consumer.commit({T0: 2}), check)
        assert cluster.committed[T0] == 2


@simulated
async def test_a_cancelled_listener_is_called_again() -> None:
    cluster, _, options = await started_for_consumer()
    cluster.write("t", 0, [b"here"])
    listener = Listener()
    async with triokafka.Consumer(**options, group_id="g") as consumer:
        consumer.subscribe("t", listener=listener)
        with trio.move_on_after(0.3):
            await anext(consumer)
        assert await take(consumer, 1) == [b"here"]
        assert listener.calls == [("revoked", []), ("assigned", ["t-0"])]


@simulated
async def test_no_record_is_returned_between_the_last_commit_and_the_rebalance() -> None:
    cluster, broker, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 10))
    async with triokafka.Consumer("t", **options, group_id="g", auto_commit_interval_ms=60_000) as consumer:
        await consumer.poll(timeout_ms=1_000, max_records=4)
        broker.script(HeartbeatRequest, HeartbeatResponse(error_code=27))
        await trio.sleep(4)
        assert await consumer.poll(timeout_ms=0) == {}
        got = await consumer.poll(timeout_ms=5_000)
        assert cluster.commits[0] == {T0: 4}
        assert [record.value for record in got[T0]] == numbers(4, 10)


@simulated
async def test_problems_of_moved_partitions_disappear_from_the_health() -> None:
    cluster, _, options = await started_for_consumer(2, nodes=2)
    cluster.move("t", 0, 2)
    cluster.write("t", 1, numbers(0, 3))
    other = cluster.brokers[2]
    async with triokafka.Consumer(**options, default_api_timeout_ms=5_000) as consumer:
        consumer.assign([T0, T1])
        await consumer.poll(timeout_ms=1_000)
        other.stop()
        await consumer.poll(timeout_ms=2_000)
        assert any("broker 2" in problem for problem in consumer.health().troubles)
        cluster.move("t", 0, 1)
        for _ in range(3):
            await consumer.poll(timeout_ms=5_000)
        assert consumer.health().healthy


@simulated
async def test_a_fenced_member_stays_out() -> None:
    _, broker, options = await started_for_consumer()
    async with triokafka.Consumer("t", **options, group_id="g", group_instance_id="one") as consumer:
        await consumer.poll(timeout_ms=1_000)
        broker.script(HeartbeatRequest, HeartbeatResponse(error_code=82))
        await trio.sleep(4)
        joins = len(broker.seen(JoinGroupRequest))
        for _ in range(2):
            with pytest.raises(triokafka.errors.FencedInstanceIdError):
                await consumer.poll(timeout_ms=1_000)
        assert len(broker.seen(JoinGroupRequest)) == joins


@simulated
async def test_failing_auto_commit_shows_in_the_health_and_stops_no_poll() -> None:
    cluster, broker, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 5))
    options |= {"group_id": "g", "auto_commit_interval_ms": 1_000, "default_api_timeout_ms": 5_000}
    async with triokafka.Consumer("t", **options) as consumer:
        await take(consumer, 3)
        broker.script(OffsetCommitRequest, *[CLOSE] * 10_000)
        await consumer.poll(timeout_ms=60_000, max_records=1)
        await trio.sleep(40)
        assert any("auto-commit" in problem for problem in consumer.health().troubles)
        await consumer.poll(timeout_ms=1_000)
        broker._scripts.clear()
        await trio.sleep(40)
        assert consumer.health().healthy


@simulated
async def test_an_auto_commit_that_is_forbidden_shows_in_the_health_as_long_as_there_is_something_to_commit() -> None:
    """A retry may not help, and the log alone would hide the problem."""
    cluster, broker, options = await started_for_consumer()
    cluster.write("t", 0, numbers(0, 5))
    async with triokafka.Consumer(**options, group_id="g", auto_commit_interval_ms=1_000) as consumer:
        consumer.assign([T0])
        await take(consumer, 3)
        broker.script(OffsetCommitRequest, *[OffsetCommitResponse(topics=[committed(T0, 29)])] * 100)
        await trio.sleep(5)
        assert ["not allowed to commit" in problem for problem in consumer.health().troubles] == [True]
        assert await take(consumer, 1) == [b"3"]
        consumer.unsubscribe()
        await trio.sleep(5)
        assert consumer.health().healthy


@simulated
async def test_a_topic_that_does_not_exist_surfaces_and_may_still_be_created() -> None:
    cluster, _, options = await started_for_consumer()
    options |= {"default_api_timeout_ms": 5_000}
    groups: tuple[dict[str, Any], ...] = ({"group_id": "g"}, {})
    for group in groups:
        cluster.topics.pop("nope", None)
        async with triokafka.Consumer("nope", **options, **group) as consumer:
            with pytest.raises(KafkaTimeoutError, match=r"finding topic 'nope' has failed for [56] s"):
                await anext(consumer)
            cluster.topics["nope"] = 1
            cluster.topic_ids["nope"] = uuid.UUID(int=9)
            cluster.write("nope", 0, [b"here"])
            assert await take(consumer, 1) == [b"here"]
            assert consumer.health().healthy


@simulated
async def test_a_missing_topic_beside_others_only_shows_in_the_health() -> None:
    cluster, _, options = await started_for_consumer()
    async with triokafka.Consumer("t", "nope", **options, group_id="g", default_api_timeout_ms=5_000) as consumer:
        assert await consumer.poll(timeout_ms=20_000) == {}
        assert any("'nope'" in problem for problem in consumer.health().troubles)
        cluster.write("t", 0, [b"here"])
        assert await take(consumer, 1) == [b"here"]


@simulated
async def test_a_forbidden_topic_is_an_error_at_once() -> None:
    cluster, _, options = await started_for_consumer()
    cluster.topic_errors["t"] = 29
    async with triokafka.Consumer("t", **options, group_id="g") as consumer:
        with pytest.raises(TopicAuthorizationFailedError, match="topic 't'"):
            await consumer.poll(timeout_ms=5_000)


@simulated
async def test_blocked_event_loop_is_distinguished_from_a_silent_coordinator(caplog: pytest.LogCaptureFixture) -> None:
    """A blocked event loop sends no heartbeats; one log line names the loop as the cause, not the coordinator."""
    _, broker, options = await started_for_consumer()
    async with triokafka.Consumer("t", **options, group_id="g") as consumer:
        await consumer.poll(timeout_ms=1_000)
        clock = trio.lowlevel.current_clock()
        assert isinstance(clock, trio.testing.MockClock)
        clock.jump(70)  # no task ran in between
        await trio.sleep(1)
        assert "the Trio loop was blocked" in caplog.text
        assert "the coordinator has not answered" not in caplog.text
        assert await consumer.poll(timeout_ms=1_000) == {}
        assert broker.seen(HeartbeatRequest)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_may_be_made_and_subscribed_before_trio_runs(protocol: str) -> None:
    consumer = triokafka.Consumer("t", group_id="g", group_protocol=protocol)
    assert consumer.subscription() == {"t"}
    assert consumer.health().state == "new"
    assert consumer.health().last_poll_age is None
    consumer.unsubscribe()
    consumer.assign([T0])
    assert consumer.assignment() == {T0}
