"""A waiting Fetch checks only the changed partitions."""

from __future__ import annotations

from tests.unit.broker_stub.replica.logs import append, leader
from triokafka.broker_stub.purgatory.delayed_operation import Purgatory
from triokafka.broker_stub.replica.delayed_fetch import AwaitedPartition, DelayedFetch
from triokafka.broker_stub.replica.partition import Partition
from triokafka.structs import TopicPartition

KEYS = [TopicPartition("t", number) for number in range(50)]


class Waiting:
    """A follower's fetch of 50 partitions that waits for half a second."""

    def __init__(self, *, min_bytes: int = 1) -> None:
        self.partitions = {key: leader() for key in KEYS}
        self.looked_at: list[TopicPartition] = []
        self.purgatory = Purgatory("fetch", now_ms=0)
        self.operation = DelayedFetch(
            500,
            [AwaitedPartition(key, 0, 1000, 3) for key in KEYS],
            self.partition,
            min_bytes=min_bytes,
            follower=True,
            read_committed=False,
        )
        self.purgatory.try_complete_else_watch(self.operation, KEYS, 0, tried=True)
        assert self.looked_at == KEYS  # once: what came between the read and the watch must not be lost
        self.looked_at.clear()

    def partition(self, key: TopicPartition) -> Partition:
        self.looked_at.append(key)
        return self.partitions[key]


def test_change_of_one_partition_is_checked_alone() -> None:
    waiting = Waiting()
    waiting.purgatory.check_and_complete(KEYS[7])
    assert waiting.looked_at == [KEYS[7]]
    assert not waiting.operation.completed
    append(waiting.partitions[KEYS[9]], b"a")
    waiting.purgatory.check_and_complete(KEYS[9])
    assert waiting.looked_at == [KEYS[7], KEYS[9]]
    assert waiting.operation.completed


def test_fetch_that_waits_for_more_bytes_adds_up_all_partitions() -> None:
    waiting = Waiting(min_bytes=100)
    for key, completed in ((KEYS[1], False), (KEYS[2], True)):  # one batch is shorter, two are not
        append(waiting.partitions[key], b"a")
        waiting.purgatory.check_and_complete(key)
        assert waiting.operation.completed == completed


def test_fetch_waits_also_for_a_partition_that_wakes() -> None:
    waiting = Waiting()
    woken = TopicPartition("woken", 0)
    waiting.partitions[woken] = leader()
    waiting.purgatory.check_and_complete(KEYS[3])
    waiting.operation.await_also(AwaitedPartition(woken, 0, 1000, 3))
    waiting.purgatory.watch_also(waiting.operation, woken)
    waiting.purgatory.check_and_complete(woken)
    assert not waiting.operation.completed
    append(waiting.partitions[woken], b"a")
    waiting.purgatory.check_and_complete(woken)
    assert waiting.operation.completed
    waiting.purgatory.watch_also(waiting.operation, KEYS[4])  # too late, and not registered
    assert waiting.purgatory.check_and_complete(KEYS[4]) == 0


def test_change_between_the_read_and_the_watch_is_not_lost() -> None:
    waiting = Waiting()
    append(waiting.partitions[KEYS[20]], b"a")
    again = DelayedFetch(
        500,
        [AwaitedPartition(key, 0, 1000, 3) for key in KEYS],
        waiting.partition,
        min_bytes=1,
        follower=True,
        read_committed=False,
    )
    assert waiting.purgatory.try_complete_else_watch(again, KEYS, 0, tried=True)
