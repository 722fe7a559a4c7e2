"""Follower fetchers: their requests, and the effect of responses on a partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.testing

from tests.unit.broker_stub.replica.logs import NOW_MS, batch, open_log
from triokafka import errors
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.broker_stub.purgatory.delayed_operation import Purgatory
from triokafka.broker_stub.replica.fetcher.fetcher_config import FetcherConfig
from triokafka.broker_stub.replica.fetcher.fetcher_state import FetcherState, FetchResult
from triokafka.broker_stub.replica.fetcher.fetcher_task import FetcherTask
from triokafka.broker_stub.replica.fetcher.follower_log import FollowerLog, NextStep
from triokafka.broker_stub.replica.hosted_partitions import HostedPartitions
from triokafka.broker_stub.replica.partition import Partition
from triokafka.broker_stub.replica.replica_traffic import ReplicaTraffic
from triokafka.network.fetch_sessions.fetch_session_handler import FetchPlan
from triokafka.network.response_waiter import ResponseWaiter
from triokafka.protocol.api.fetch import EpochEndOffset, FetchableTopicResponse, FetchResponse, PartitionData
from triokafka.structs import TopicPartition
from triokafka.world.memory import MemoryStorage
from triokafka.world.system import RealWorld

NODE, LEADER = 2, 1


class Follower:
    """A fetcher of one broker."""

    def __init__(self) -> None:
        none = Purgatory("none", now_ms=0)
        self.throttled = False
        self.traffic = ReplicaTraffic()
        self.hosted = HostedPartitions(none, none, none, None, lambda: 0.0, Partition.isr_refused)
        self.state = FetcherState(max_bytes=1000, backoff_seconds=1.0, throttled=lambda key: self.throttled)
        self.data = FollowerLog(self.state, self.hosted, self.traffic, node_id=NODE, wall_ms=lambda: NOW_MS)

    def follow(self, name: str = "t", *, epoch: int = 3, log: PartitionLog | None = None) -> Partition:
        log = open_log(name) if log is None else log
        partition = Partition(log.topic_partition, UUID(int=1 + ord(name[0])), node_id=NODE, log=log)
        partition.make_follower(leader_id=LEADER, leader_epoch=epoch, partition_epoch=1, replicas=(LEADER, NODE))
        self.state.add(partition)
        return partition

    def plan(self, now: float = 0.0) -> FetchPlan:
        found = self.state.plan(now)
        assert found is not None
        return found

    def apply(
        self, partition: Partition, data: PartitionData, plan: FetchPlan | None = None, *, now: float = 0.0
    ) -> NextStep:
        key = partition.topic_partition
        return self.data.apply(FetchResult(key, (self.plan(now) if plan is None else plan).targets[key], data), now)


def leaders_log(*epochs: int) -> PartitionLog:
    """A log with one record in each of these epochs, one after the other."""
    log = open_log("leader")
    for epoch in epochs:
        log.append_as_leader(batch(b"%d" % epoch), leader_epoch=epoch, now_ms=NOW_MS)
    return log


def records(log: PartitionLog, offset: int = 0) -> bytes:
    return bytes(log.read(offset, 10_000).records)


def record(log: PartitionLog, offset: int) -> bytes:
    """The batch of one record."""
    return bytes(log.read(offset, 1).records)


def result(
    content: bytes = b"",
    *,
    code: int = 0,
    high_watermark: int = 0,
    start: int = 0,
    diverging: tuple[int, int] = (-1, -1),
) -> PartitionData:
    epoch, end = diverging
    return PartitionData(
        partition_index=0,
        error_code=code,
        high_watermark=high_watermark,
        log_start_offset=start,
        diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end),
        records=content,
    )


def test_a_follower_has_the_leaders_bytes() -> None:
    follower, there = Follower(), leaders_log(1, 1, 3)
    partition = follower.follow()
    assert follower.apply(partition, result(records(there), high_watermark=2)) is NextStep.CONTINUE
    assert records(partition.log) == records(there)
    assert partition.log.leader_epochs.entries() == [(1, 0), (3, 2)]
    assert partition.high_watermark == 2
    target = follower.plan().targets[partition.topic_partition]
    assert (target.fetch_offset, target.last_fetched_epoch, target.current_leader_epoch) == (3, 3, 3)
    assert follower.traffic.replication_bytes_in == len(records(there))


def test_high_watermark_is_bounded_by_the_log_and_the_start_follows_it() -> None:
    follower, there = Follower(), leaders_log(1, 1, 1)
    partition = follower.follow()
    follower.apply(partition, result(records(there), high_watermark=9, start=2))
    assert (partition.high_watermark, partition.log.log_start_offset) == (3, 2)
    follower.apply(partition, result(high_watermark=9, start=5))
    assert partition.log.log_start_offset == 2, "the start never passes the high watermark"


def test_a_result_is_applied_once() -> None:
    follower, there = Follower(), leaders_log(1)
    partition = follower.follow()
    plan = follower.plan()
    for _ in range(2):
        follower.apply(partition, result(records(there)), plan)
    assert partition.log.log_end_offset == 1


def test_damaged_records_of_the_leader_are_reported_once_a_minute_with_its_id(caplog: pytest.LogCaptureFixture) -> None:
    """Every fetch finds them again, each second."""
    follower, good = Follower(), records(leaders_log(1))
    partition = follower.follow()
    damaged = bytearray(good)
    damaged[-1] ^= 1
    for second in range(0, 70, 2):
        follower.apply(partition, result(bytes(damaged)), now=float(second))
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert "t-0: replicating from offset 0 failed" in messages[0] and f"broker {LEADER}, may be damaged" in messages[0]
    assert partition.log.log_end_offset == 0
    follower.apply(partition, result(good), now=70.0)
    assert partition.log.log_end_offset == 1


def test_repeated_diverging_result_does_not_truncate_newer_records() -> None:
    """The log ends at the same offset again, with records of another epoch."""
    follower, there = Follower(), leaders_log(1, 2)
    partition = follower.follow(log=follower_log(1, 1))
    plan = follower.plan()
    diverged = result(diverging=(1, 1))
    follower.apply(partition, diverged, plan)
    assert partition.log.log_end_offset == 1
    follower.apply(partition, result(records(there, 1)))
    assert records(partition.log) == records(there)
    follower.apply(partition, diverged, plan)
    assert records(partition.log) == records(there)


@pytest.mark.parametrize("change", ["removed", "new epoch", "leads"])
def test_a_late_result_changes_nothing(change: str) -> None:
    follower, there = Follower(), leaders_log(1)
    partition = follower.follow()
    plan = follower.plan()
    if change == "removed":
        follower.state.remove(partition.topic_partition)
    elif change == "new epoch":
        partition.make_follower(leader_id=LEADER, leader_epoch=4, partition_epoch=2, replicas=(LEADER, NODE))
        follower.state.add(partition)
    else:
        partition.make_leader(
            leader_epoch=4, partition_epoch=2, replicas=(LEADER, NODE), in_sync_replicas=(LEADER, NODE)
        )
    follower.apply(partition, result(records(there)), plan)
    assert partition.log.log_end_offset == 0


def follower_log(*epochs: int) -> PartitionLog:
    log = open_log("t")
    log.append_as_follower(records(leaders_log(*epochs)), now_ms=NOW_MS)
    return log


@pytest.mark.parametrize(
    ("own", "diverging", "end"),
    [
        ((1, 1, 2, 2), (1, 2), 2),  # the leader ended epoch 1 at 2
        ((1, 1, 1, 1), (1, 3), 3),  # epoch 1 goes on here, and not there
        ((1, 1, 3, 3), (2, 4), 2),  # epoch 2 is not here: truncate to the end of 1, and ask again
        ((1, 1), (-1, 1), 1),
    ],
)
def test_a_diverging_log_is_truncated(own: tuple[int, ...], diverging: tuple[int, int], end: int) -> None:
    follower = Follower()
    partition = follower.follow(epoch=5, log=follower_log(*own))
    follower.apply(partition, result(high_watermark=9, start=1, diverging=diverging))
    assert partition.log.log_end_offset == end
    assert (partition.high_watermark, partition.log.log_start_offset) == (0, 0), "only records move them"
    assert follower.plan().targets[partition.topic_partition].fetch_offset == end


def test_an_epoch_in_which_this_broker_wrote_nothing_is_forgotten() -> None:
    """Otherwise the leader, which does not know the epoch, would answer for ever that the logs diverge."""
    follower = Follower()
    log = follower_log(1, 1)
    log.leader_epochs.assign(2, 2)
    partition = follower.follow(epoch=5, log=log)
    assert follower.plan().targets[partition.topic_partition].last_fetched_epoch == 2
    follower.apply(partition, result(diverging=(1, 2)))
    assert follower.plan().targets[partition.topic_partition].last_fetched_epoch == 1
    assert log.log_end_offset == 2


def test_an_offset_that_the_leader_does_not_have_is_looked_up() -> None:
    follower = Follower()
    partition = follower.follow(epoch=5, log=follower_log(1, 1, 1))
    assert follower.apply(partition, result(code=errors.OffsetOutOfRangeError.code)) is NextStep.LOOK_UP
    (position,) = follower.state.positions([partition.topic_partition])
    assert not follower.data.needs_leader_start(position, 2), "an unclean leader ends earlier"
    assert partition.log.log_end_offset == 2
    assert follower.data.needs_leader_start(position, 9)
    follower.data.begin_at_leader_start(position, 1)
    assert partition.log.log_end_offset == 2, "this log has the leader's start"
    follower.data.begin_at_leader_start(position, 7)
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (7, 7)
    assert partition.high_watermark == 7
    assert follower.plan().targets[partition.topic_partition].fetch_offset == 7


def test_a_partition_with_an_error_rests_and_the_others_continue() -> None:
    follower = Follower()
    first, second = follower.follow("a"), follower.follow("b")
    follower.apply(first, result(code=errors.KafkaStorageError.code))
    assert list(follower.plan(0.5).targets) == [second.topic_partition]
    assert set(follower.plan(1.0).targets) == {first.topic_partition, second.topic_partition}


@pytest.mark.parametrize(
    "error", [errors.UnknownLeaderEpochError, errors.NotLeaderForPartitionError, errors.UnknownTopicIdError]
)
def test_a_leader_that_does_not_know_of_a_change_yet_is_asked_again_soon(
    error: type[errors.BrokerResponseError],
) -> None:
    """Acknowledgements wait for the follower: the back-off of a second would stop every producer after an election."""
    follower, there = Follower(), leaders_log(1, 1)
    partition = follower.follow()
    refused, rests, now = result(code=error.code), list[float](), 0.0
    for _ in range(8):
        follower.apply(partition, refused, now=now)
        ready = follower.state.next_ready()
        assert ready is not None and follower.state.plan(ready - 0.001) is None
        rests.append(round(ready - now, 3))
        now = ready
    assert rests == [0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.0, 1.0]
    assert follower.state.waits_shortly
    for _ in range(2_000):
        follower.apply(partition, refused, now=now)
        now += 1.0
    follower.apply(partition, result(records(there), high_watermark=2), now=now)
    follower.apply(partition, refused, now=now)
    ready = follower.state.next_ready()
    assert ready is not None and round(ready - now, 3) == 0.02


def test_bad_bytes_are_fetched_again() -> None:
    follower, there = Follower(), leaders_log(1, 1)
    partition = follower.follow()
    bad = bytearray(records(there))
    bad[-1] ^= 1
    follower.apply(partition, result(bytes(bad)))
    assert partition.log.log_end_offset == 0
    assert follower.state.plan(0.5) is None
    follower.apply(partition, result(records(there)), follower.plan(1.0))
    assert partition.log.log_end_offset == 2


def test_a_fenced_epoch_ends_the_fetching_until_metadata_arrives() -> None:
    follower = Follower()
    partition = follower.follow()
    follower.apply(partition, result(code=errors.FencedLeaderEpochError.code))
    assert partition.topic_partition not in follower.state


def test_partitions_with_records_go_to_the_end() -> None:
    follower, there = Follower(), leaders_log(1)
    first, second = follower.follow("a"), follower.follow("b")
    follower.apply(first, result(records(there)))
    assert list(follower.plan().targets) == [second.topic_partition, first.topic_partition]


def test_throttle_delays_only_partitions_out_of_sync() -> None:
    follower, there = Follower(), leaders_log(1, 1)
    first = follower.follow("a")
    follower.follow("b")
    follower.apply(first, result(records(there), high_watermark=2))
    follower.throttled = True
    assert list(follower.plan().targets) == [first.topic_partition]


def test_after_an_early_answer_without_news_the_fetcher_waits_shortly() -> None:
    state = Follower().state
    state.note_news(news=False, early=False)
    assert not state.waits_shortly
    state.note_news(news=False, early=True)
    assert state.waits_shortly
    for _ in range(10):
        state.note_news(news=False, early=True)
    assert not state.waits_shortly


class Channel:
    """A leader that answers one fetch after the other; ``on_fetch`` is called with the offset of each."""

    def __init__(self, *answers: PartitionData, on_fetch: Callable[[int], None] = lambda offset: None) -> None:
        self.fetched_from: list[int] = []
        self.is_ready = True
        self._answers = list(answers)
        self._on_fetch = on_fetch

    async def run(self) -> None:
        await trio.sleep_forever()

    def close(self) -> None:
        pass

    async def submit(self, request: Any, *, api: Any = None, timeout_ms: float | None = None) -> ResponseWaiter:
        (partition,) = request(16).topics[0].partitions
        self.fetched_from.append(partition.fetch_offset)
        self._on_fetch(partition.fetch_offset)
        waiter = ResponseWaiter()
        if self._answers:
            answer = FetchableTopicResponse(topic_id=UUID(int=1 + ord("t")), partitions=[self._answers.pop(0)])
            waiter.done(FetchResponse(session_id=7, responses=[answer]), None)
        return waiter


def fetcher_task(follower: Follower, channel: Channel) -> FetcherTask:
    return FetcherTask(
        "fetcher", follower.state, follower.data, channel, FetcherConfig(), RealWorld(), node_id=NODE,
        broker_epoch=lambda: 5, until_flushed=follower.hosted.until_flushed,
    )  # fmt: skip


async def run_until_blocked(task: FetcherTask) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(task.run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


async def test_below_the_high_watermark_the_next_fetch_does_not_wait_for_the_append() -> None:
    """The record before the high watermark is appended first: the leader acknowledges records with the fetch after."""
    follower, there = Follower(), leaders_log(1, 1, 1)
    partition = follower.follow()
    ends: list[int] = []
    channel = Channel(
        *(result(record(there, offset), high_watermark=3) for offset in range(3)),
        on_fetch=lambda offset: ends.append(partition.log.log_end_offset),
    )
    await run_until_blocked(fetcher_task(follower, channel))
    assert list(zip(channel.fetched_from, ends, strict=True)) == [(0, 0), (1, 0), (2, 1), (3, 3)]
    assert records(partition.log) == records(there)


async def test_without_a_free_connection_the_next_fetch_follows_the_append() -> None:
    follower, there = Follower(), leaders_log(1, 1, 1)
    partition = follower.follow()
    ends: list[int] = []
    channel = Channel(
        result(record(there, 0), high_watermark=3), on_fetch=lambda offset: ends.append(partition.log.log_end_offset)
    )
    channel.is_ready = False
    await run_until_blocked(fetcher_task(follower, channel))
    assert (channel.fetched_from, ends) == ([0, 1], [0, 1])


async def test_after_an_append_that_failed_the_fetch_that_was_sent_ahead_counts_for_nothing() -> None:
    """A batch that is missing in the log is fetched again, and nothing is appended after the gap."""
    follower, there = Follower(), leaders_log(1, 1, 1)
    partition = follower.follow()
    damaged = bytearray(record(there, 0))
    damaged[-1] ^= 1
    channel = Channel(
        result(bytes(damaged), high_watermark=3),
        result(record(there, 1), high_watermark=3),
    )
    task = fetcher_task(follower, channel)
    await run_until_blocked(task)
    assert (channel.fetched_from, partition.log.log_end_offset) == ([0, 1], 0)
    now = trio.current_time() + 5  # after the back-off
    assert follower.plan(now).targets[partition.topic_partition].fetch_offset == 0


def test_fetch_is_not_sent_ahead_of_results_that_decide_where_it_continues() -> None:
    follower, there = Follower(), leaders_log(1, 1, 1)
    partition = follower.follow()
    key = partition.topic_partition
    sent = follower.plan().targets[key]
    for data in (
        result(records(there), high_watermark=3),
        result(records(there)[:20], high_watermark=9),
        result(high_watermark=9),
        result(code=errors.OffsetOutOfRangeError.code, high_watermark=9),
        result(records(there), high_watermark=9, diverging=(1, 0)),
        result(bytes(100), high_watermark=9),
    ):
        assert follower.state.plan_ahead([FetchResult(key, sent, data)], 0.0) is None
    ahead = follower.state.plan_ahead([FetchResult(key, sent, result(records(there), high_watermark=4))], 0.0)
    assert ahead is not None and ahead.targets[key].fetch_offset == 3


async def test_with_flush_messages_the_next_fetch_waits_until_the_records_are_on_disk() -> None:
    """The leader counts them as replicated with that fetch, and acknowledges them."""
    follower, channel = Follower(), Channel(result(records(leaders_log(1))))
    log = PartitionLog.open(
        MemoryStorage(crashable=False),
        "/data/t-0",
        TopicPartition("t", 0),
        LogConfig(flush_messages=1),
        now_ms=NOW_MS,
        request_flush=lambda flusher: True,  # later, in a thread
    )
    partition = follower.follow(log=log)
    follower.hosted.online[partition.topic_partition] = partition
    task = fetcher_task(follower, channel)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(task.run)
        await trio.testing.wait_all_tasks_blocked()
        assert (log.log_end_offset, channel.fetched_from) == (1, [0])
        log.flush()
        follower.hosted.flushed(partition.topic_partition)
        await trio.testing.wait_all_tasks_blocked()
        assert channel.fetched_from == [0, 1]
        nursery.cancel_scope.cancel()
