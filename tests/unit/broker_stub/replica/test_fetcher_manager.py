"""`FetcherManager`: which fetcher follows which partition, and changes of ``num.replica.fetchers``."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.unit.broker_stub.clusters import broker, replayed
from tests.unit.broker_stub.replica.logs import NOW_MS, batch, open_log
from tests.unit.broker_stub.replica.test_fetcher import records
from triokafka.broker_stub.metadata import MetadataImage
from triokafka.broker_stub.purgatory.delayed_operation import Purgatory
from triokafka.broker_stub.replica.fetcher.fetcher_config import FetcherConfig
from triokafka.broker_stub.replica.fetcher.fetcher_manager import FetcherManager
from triokafka.broker_stub.replica.hosted_partitions import HostedPartitions
from triokafka.broker_stub.replica.partition import Partition
from triokafka.broker_stub.replica.replica_traffic import ReplicaTraffic
from triokafka.broker_stub.replica.replication_quota import ReplicationQuota
from triokafka.network.response_waiter import ResponseWaiter
from triokafka.protocol.api.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from triokafka.protocol.stored.cluster_metadata import BrokerEndpoint
from triokafka.structs import Node, TopicPartition
from triokafka.world.system import RealWorld

NODE, LEADER = 2, 1
EPOCH = 3
PARTITIONS = 12
TOPIC_ID = UUID(int=7)


class Leader:
    """The logs of a leader, and the open connections to it."""

    def __init__(self) -> None:
        self.logs = [open_log("t", number) for number in range(PARTITIONS)]
        self.channels: list[Channel] = []
        self.appended = 0

    def append(self) -> None:
        """Append a record to every partition, and answer the fetches that wait."""
        for log in self.logs:
            log.append_as_leader(batch(b"%d" % self.appended), leader_epoch=EPOCH, now_ms=NOW_MS)
        self.appended += 1
        for channel in self.channels:
            channel.answer()

    def connect(self, node: Node) -> Channel:
        assert node.node_id == LEADER
        self.channels.append(Channel(self))
        return self.channels[-1]

    @property
    def followed(self) -> list[tuple[int, ...]]:
        """The partitions that each open connection fetches."""
        return sorted(tuple(sorted(channel.offsets)) for channel in self.channels)


class Channel:
    """One fetcher's connection. The leader has no fetch sessions, so that a fetch names all its partitions."""

    is_ready = False

    def __init__(self, leader: Leader) -> None:
        self.offsets: dict[int, int] = {}
        self.partition_max_bytes = 0
        self._leader = leader
        self._waiter: ResponseWaiter | None = None

    async def run(self) -> None:
        await trio.sleep_forever()

    def close(self) -> None:
        self._leader.channels.remove(self)

    async def submit(self, request: Any, *, api: Any = None, timeout_ms: float | None = None) -> ResponseWaiter:
        fetch: FetchRequest = request(16)
        partitions = [one for topic in fetch.topics for one in topic.partitions]
        self.offsets = {one.partition: one.fetch_offset for one in partitions}
        (self.partition_max_bytes,) = {one.partition_max_bytes for one in partitions}
        waiter = self._waiter = ResponseWaiter()
        self.answer()
        return waiter

    def answer(self) -> None:
        """Answer the fetch that waits, if there are records: one batch of each partition."""
        logs = self._leader.logs
        found = [
            PartitionData(
                partition_index=number,
                high_watermark=logs[number].log_end_offset,
                log_start_offset=0,
                records=bytes(logs[number].read(offset, 1).records),
            )
            for number, offset in self.offsets.items()
            if offset < logs[number].log_end_offset
        ]
        if found and self._waiter is not None:
            waiter, self._waiter = self._waiter, None
            answers = [FetchableTopicResponse(topic_id=TOPIC_ID, partitions=found)]
            waiter.done(FetchResponse(session_id=0, responses=answers), None)


class Follower:
    """A broker that follows all partitions of the leader."""

    def __init__(self) -> None:
        none = Purgatory("none", now_ms=0)
        self.hosted = HostedPartitions(none, none, none, None, lambda: 0.0, Partition.isr_refused)
        quota = ReplicationQuota("follower", NODE)
        self.manager = FetcherManager(NODE, RealWorld(), self.hosted, ReplicaTraffic(), quota)
        registered = broker(LEADER)
        registered.end_points = [BrokerEndpoint(name="PLAINTEXT", host="leader", port=9092)]
        self.image: MetadataImage = replayed([registered])

    def follow(self) -> None:
        for number in range(PARTITIONS):
            log = open_log("t", number)
            partition = Partition(log.topic_partition, TOPIC_ID, node_id=NODE, log=log)
            partition.make_follower(leader_id=LEADER, leader_epoch=EPOCH, partition_epoch=1, replicas=(LEADER, NODE))
            self.hosted.online[log.topic_partition] = partition
        self.manager.follow(self.hosted.online.values(), self.image)

    def logs(self) -> list[bytes]:
        return [records(partition.log) for partition in self.hosted.online.values()]

    def set_fetchers(self, number: int) -> None:
        self.manager.reconfigure(FetcherConfig(num_fetchers=number), self.image)

    def fetcher_names(self) -> list[str]:
        return [name for name, _ in self.manager.lags_by_fetcher()]


@asynccontextmanager
async def replicating(fetchers: int) -> AsyncIterator[tuple[Leader, Follower]]:
    """Run the fetchers of a follower."""
    leader, follower = Leader(), Follower()

    async def run() -> None:
        await follower.manager.run(
            FetcherConfig(num_fetchers=fetchers),
            listener="PLAINTEXT",
            image=lambda: follower.image,
            broker_epoch=lambda: 5,
            connect=leader.connect,
        )

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await wait_all_tasks_blocked()
        follower.follow()
        leader.append()
        await wait_all_tasks_blocked()
        yield leader, follower
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("fetchers", [1, 2, 3, 5])
async def test_partitions_are_spread_over_the_fetchers_of_a_leader(fetchers: int) -> None:
    async with replicating(fetchers) as (leader, follower):
        assert follower.fetcher_names() == [f"ReplicaFetcherThread-{number}-{LEADER}" for number in range(fetchers)]
        assert Counter(number for one in leader.followed for number in one) == Counter(range(PARTITIONS))
        sizes = [len(one) for one in leader.followed]
        assert len(sizes) == fetchers and max(sizes) - min(sizes) <= 1
        assert follower.logs() == [records(log) for log in leader.logs]


@pytest.mark.parametrize(
    ("fetchers", "expected"),
    [(3, [(1, 4, 7, 10), (2, 5, 8, 11), (0, 3, 6, 9)]), (5, [(4, 9), (0, 5, 10), (1, 6, 11), (2, 7), (3, 8)])],
)
async def test_partition_has_the_same_fetcher_in_every_process(fetchers: int, expected: list[tuple[int, ...]]) -> None:
    """Python's hash of a text differs between processes."""
    async with replicating(fetchers) as (_leader, follower):
        found = [tuple(sorted(key.partition for key in lags)) for _, lags in follower.manager.lags_by_fetcher()]
        assert found == expected


async def test_changed_number_of_fetchers_loses_and_doubles_nothing() -> None:
    async with replicating(1) as (leader, follower):
        for number in (3, 1, 2, 1):
            leader.append()  # the fetchers that end have not applied its records yet
            follower.set_fetchers(number)
            leader.append()
            await wait_all_tasks_blocked()
            assert Counter(number for one in leader.followed for number in one) == Counter(range(PARTITIONS))
            assert len(leader.channels) == len(follower.manager) == number
            assert follower.logs() == [records(log) for log in leader.logs]
        assert {partition.log.log_end_offset for partition in follower.hosted.online.values()} == {leader.appended}


async def test_fetchers_run_on_when_their_options_are_the_same() -> None:
    async with replicating(2) as (leader, follower):
        before = list(leader.channels)
        follower.set_fetchers(2)
        await wait_all_tasks_blocked()
        assert leader.channels == before


async def test_other_options_apply_to_every_fetcher_at_once() -> None:
    async with replicating(2) as (leader, follower):
        before = list(leader.channels)
        follower.manager.reconfigure(FetcherConfig(num_fetchers=2, fetch_max_bytes=2_000), follower.image)
        leader.append()
        await wait_all_tasks_blocked()
        assert len(leader.channels) == 2 and not set(before) & set(leader.channels)
        assert {channel.partition_max_bytes for channel in leader.channels} == {2_000}
        assert follower.logs() == [records(log) for log in leader.logs]


async def test_fetcher_without_partitions_ends() -> None:
    async with replicating(3) as (leader, follower):
        follower.manager.remove([TopicPartition("t", number) for number in range(0, PARTITIONS, 3)])
        await wait_all_tasks_blocked()
        assert len(leader.channels) == len(follower.manager) == 2
        assert {number % 3 for one in leader.followed for number in one} == {1, 2}
