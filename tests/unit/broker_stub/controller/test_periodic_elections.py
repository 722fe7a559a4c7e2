"""The elections that the active controller makes at intervals: preferred leaders, and leaders of offline partitions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, cast

import pytest
import trio

from tests.unit.broker_stub.clusters import CONFIG, broker, cluster, replayed, topic
from triokafka.broker_stub.controller.configuration_control import ConfigurationControl
from triokafka.broker_stub.controller.controller_state import ControllerState
from triokafka.broker_stub.controller.event_queue import EventQueue
from triokafka.broker_stub.controller.leader_balancing import LeaderBalancing, imbalanced_brokers, preferred_leaders
from triokafka.broker_stub.controller.offline_partition_elections import OfflinePartitionElections
from triokafka.broker_stub.controller.outcome import Outcome
from triokafka.broker_stub.log.config import LogConfig
from triokafka.broker_stub.metadata import MetadataImage
from triokafka.errors import KafkaError, KafkaStorageError, NotControllerError
from triokafka.protocol.message import Struct

INTERVAL = 300.0


class Controlled:
    """A controller's state whose queue commits each change at once, or refuses the first ones with ``failures``."""

    def __init__(self, image: MetadataImage, *failures: KafkaError) -> None:
        self.committed = image
        self.attempts: list[float] = []
        self.configuration = ConfigurationControl(CONFIG)
        self._failures = list(failures)

    async def submit(self, name: str, compute: Callable[[MetadataImage], Outcome[Any]]) -> Any:
        self.attempts.append(trio.current_time())
        if self._failures:
            raise self._failures.pop(0)
        outcome = compute(self.committed)
        self.change(*outcome.records)
        return outcome.response

    def change(self, *records: Struct) -> None:
        self.committed = replayed(records, self.committed)

    def leaders(self) -> list[int]:
        return [partition.leader for _, partition in self.committed.partitions()]

    @property
    def state(self) -> ControllerState:
        return cast(ControllerState, self)

    @property
    def queue(self) -> EventQueue:
        return cast(EventQueue, cast(Any, self))


def displaced(count: int, of: int) -> MetadataImage:
    """Partitions that prefer broker 1, some of which broker 2 leads; broker 2 leads all that prefer it."""
    return cluster(
        topic("moved", *([1, 2] for _ in range(count)), leader=2, number=1),
        topic("stayed", *([1, 2] for _ in range(of - count)), number=2),
        topic("other", [2, 1], number=3),
        brokers=(1, 2),
    )


class TestImbalance:
    @pytest.mark.parametrize(
        ("count", "of", "percentage", "imbalanced"),
        [
            (1, 10, 10, False),  # exactly the percentage
            (2, 20, 10, False),
            (3, 20, 10, True),
            (1, 9, 10, True),
            (0, 10, 10, False),
            (0, 10, 0, False),
            (1, 1000, 0, True),
            (10, 10, 100, False),
        ],
    )
    def test_broker_is_imbalanced_above_the_percentage(
        self, count: int, of: int, percentage: int, imbalanced: bool
    ) -> None:
        image = displaced(count, of)
        assert imbalanced_brokers(image, percentage) == ({1} if imbalanced else set())
        moved = preferred_leaders(image, lambda name: LogConfig(), percentage=percentage)
        assert [record.leader for record in moved] == [1] * (count if imbalanced else 0)

    def test_only_the_leaders_of_imbalanced_brokers_move(self) -> None:
        """Broker 1 leads 8 of the 10 partitions that prefer it, broker 2 leads 9 of its 10."""
        records = [
            *topic("of-1", *([1, 2] for _ in range(8)), number=1),
            *topic("from-1", [1, 2], [1, 2], leader=2, number=2),
            *topic("of-2", *([2, 1] for _ in range(9)), number=3),
            *topic("from-2", [2, 1], leader=1, number=4),
        ]
        image = cluster(records, brokers=(1, 2))
        moved = preferred_leaders(image, lambda name: LogConfig(), percentage=10)
        assert {(record.topic_id.int, record.leader) for record in moved} == {(2, 1)}

    def test_partition_without_a_leader_counts_but_is_not_moved(self) -> None:
        image = cluster(topic("t", [1, 2], isr=[1], leader=-1), broker(1, fenced=True), brokers=(2,))
        assert imbalanced_brokers(image, 10) == {1}
        assert preferred_leaders(image, lambda name: LogConfig(), percentage=10) == []


class TestLeaderBalancing:
    async def test_preferred_replicas_lead_again_after_the_interval(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        controlled = Controlled(displaced(2, 10))
        balancing = LeaderBalancing(controlled.state, controlled.queue, interval=INTERVAL, percentage=10)
        nursery.start_soon(balancing.run)
        await trio.sleep(INTERVAL - 1)
        assert not controlled.attempts
        await trio.sleep(2)
        assert controlled.leaders() == [1] * 10 + [2]
        await trio.sleep(10 * INTERVAL)
        assert len(controlled.attempts) == 1, "a balanced cluster needs no change"

    async def test_brokers_within_the_percentage_are_left_alone(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
    ) -> None:
        controlled = Controlled(displaced(1, 10))
        balancing = LeaderBalancing(controlled.state, controlled.queue, interval=INTERVAL, percentage=10)
        nursery.start_soon(balancing.run)
        await trio.sleep(10 * INTERVAL)
        assert not controlled.attempts


class TestUncleanElections:
    def offline(self, **configs: str) -> MetadataImage:
        """A partition whose only in-sync replica is on a broker that is gone."""
        named = {name.replace("_", "."): value for name, value in configs.items()}
        records = topic("t", [1, 2], isr=[1], leader=-1, configs=named)
        return cluster(records, broker(1, fenced=True), brokers=(2,))

    async def test_partition_gets_a_leader_once_its_topic_allows_it(
        self, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        controlled = Controlled(self.offline(unclean_leader_election_enable="false"))
        nursery.start_soon(OfflinePartitionElections(controlled.state, controlled.queue, interval=INTERVAL).run)
        await trio.sleep(2 * INTERVAL + 1)
        assert controlled.leaders() == [-1]
        allowed = self.offline(unclean_leader_election_enable="true")
        controlled.committed = allowed
        await trio.sleep(INTERVAL - 2)
        assert controlled.leaders() == [-1]
        await trio.sleep(2)
        partition = controlled.committed.topics["t"].partitions[0]
        assert (partition.leader, partition.isr, partition.leader_recovery_state) == (2, (2,), 1)
        assert "in 1 partitions a replica leads that may lack records" in caplog.text
        attempts = len(controlled.attempts)
        await trio.sleep(10 * INTERVAL)
        assert len(controlled.attempts) == attempts, "every partition has a leader"


@pytest.mark.parametrize("task", ["balancing", "unclean"])
async def test_failed_election_is_logged_and_tried_again_at_the_next_check(
    task: str, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    failures = (KafkaStorageError("the disk is full"), NotControllerError("another node"))
    if task == "balancing":
        controlled = Controlled(displaced(10, 10), *failures)
        run = LeaderBalancing(controlled.state, controlled.queue, interval=INTERVAL, percentage=10).run
    else:
        image = TestUncleanElections().offline(unclean_leader_election_enable="true")
        controlled = Controlled(image, *failures)
        run = OfflinePartitionElections(controlled.state, controlled.queue, interval=INTERVAL).run
    nursery.start_soon(run)
    began = trio.current_time()
    await trio.sleep(3 * INTERVAL + 1)
    assert [at - began for at in controlled.attempts] == pytest.approx([INTERVAL, 2 * INTERVAL, 3 * INTERVAL], abs=0.1)
    assert -1 not in controlled.leaders() and controlled.leaders()[0] in (1, 2)
    assert caplog.text.count("the next check tries again") == 2
    assert {record.levelno for record in caplog.records} >= {logging.ERROR}
