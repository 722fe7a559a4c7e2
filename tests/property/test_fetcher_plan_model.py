"""A fetcher that checks only changed partitions sends the same requests as one that checks all partitions."""

from __future__ import annotations

from random import Random
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.broker_stub.replica.logs import NOW_MS, batch, open_log
from triokafka.broker_stub.replica.fetcher.fetcher_state import FetcherState
from triokafka.broker_stub.replica.partition import Partition
from triokafka.network.fetch_sessions.fetch_session_handler import FetchPlan, FetchSessionHandler, FetchTarget
from triokafka.structs import TopicPartition

NODE, LEADER = 2, 1
NAMES = ("a", "b", "c", "d", "e")
BYTES = 1000


class Model:
    """A fetcher, and a second session that is given all targets each time."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.throttled: set[str] = set()
        self.state = FetcherState(
            max_bytes=BYTES, backoff_seconds=1.0, throttled=lambda key: key.topic in self.throttled
        )
        self.session = FetchSessionHandler()
        self.now = 0.0
        self.partitions: dict[str, Partition] = {}
        self.topics = 0
        self.idle = 0

    def targets(self) -> dict[TopicPartition, FetchTarget]:
        positions = sorted(self.state._positions.items(), key=lambda item: item[1].place)
        return {
            key: FetchTarget(
                position.fetch_offset,
                BYTES,
                position.leader_epoch,
                position.partition.topic_id,
                position.last_fetched_epoch,
                position.partition.log.log_start_offset,
            )
            for key, position in positions
            if position.delayed_until <= self.now and (position.in_sync or key.topic not in self.throttled)
        }

    def add(self, name: str) -> None:
        self.topics += 1
        log = open_log(name)
        partition = Partition(log.topic_partition, UUID(int=self.topics), node_id=NODE, log=log)
        partition.make_follower(leader_id=LEADER, leader_epoch=3, partition_epoch=1, replicas=(LEADER, NODE))
        self.partitions[name] = partition
        self.state.add(partition)

    def happen(self) -> None:
        """Change a partition in a random way."""
        chance, state = self.chance, self.state
        name = chance.choice(NAMES)
        partition = self.partitions.get(name)
        if partition is None:
            self.add(name)
            return
        key = partition.topic_partition
        match chance.randrange(11):
            case 0 | 1 | 2:  # records from the leader
                data = batch(b"v")
                partition.log.append_as_leader(data, leader_epoch=chance.choice((3, 4)), now_ms=NOW_MS)
                state.advanced(key, lag=chance.choice((0, 0, 5)), with_records=True)
            case 3:
                state.advanced(key, lag=chance.choice((0, 0, 5)), with_records=False)
            case 4:
                state.delay(key, self.now)
            case 5:
                state.delay_for_metadata(key, self.now)
            case 6:
                state.remove(key)
                del self.partitions[name]
            case 7:
                self.add(name)
            case 8:
                partition.log.truncate_to(chance.randint(0, partition.log.log_end_offset))
                for position in state.positions([key]):
                    position.resume()
            case 9:  # retention
                partition.log.advance_log_start_offset(chance.randint(0, partition.log.log_end_offset))
            case 10:
                self.throttled ^= {name}

    def fetch(self) -> None:
        self.now += self.chance.choice((0, 0.1, 2))
        targets = self.targets()
        plan = self.state.plan(self.now)
        expected = self.session.plan(targets) if targets else None
        assert (plan is None) == (expected is None)
        if plan is None or expected is None:
            return
        assert _parts(plan) == _parts(expected)
        self.idle += not self.state._unsettled
        match self.chance.randrange(8):
            case 0:
                self.state.failed(self.now)
                self.session.failed()
            case 1:
                assert not self.state.answered(0, 70)
                assert not self.session.answered(0, 70)
            case 2:  # the leader has no room for a session
                assert self.state.answered(0, 0) and self.session.answered(0, 0)
            case _:
                assert self.state.answered(9, 0) and self.session.answered(9, 0)
                for key in plan.send:
                    if self.chance.random() < 0.7:
                        self.state.advanced(key, lag=0, with_records=False)


def _parts(plan: FetchPlan) -> tuple[object, ...]:
    forgotten = sorted((str(key), topic_id) for key, topic_id in plan.forget)
    return plan.session_id, plan.epoch, list(plan.send.items()), forgotten, dict(plan.targets)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_fetcher_sends_the_same_requests_as_one_that_checks_all_partitions(seed: int) -> None:
    model = Model(seed)
    for _ in range(80):
        if model.chance.random() < 0.4:
            model.happen()
        else:
            model.fetch()


def test_idle_partitions_are_not_checked() -> None:
    model = Model(1)
    for name in NAMES:
        model.add(name)
    for _ in range(30):
        model.fetch()
    assert model.idle > 10
    assert all(len(partition.log.changes) == 1 for partition in model.partitions.values())
