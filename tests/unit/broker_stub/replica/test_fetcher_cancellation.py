"""A fetcher that is cancelled at any checkpoint, also with a fetch on its way that it has sent ahead.

A fetcher ends when its partitions get another leader, or other options. The next one continues with the same logs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

import trio

from tests.support.cancellation import cancelled_at_each_checkpoint
from tests.support.scripted_broker import ScriptedBroker, ScriptedCluster
from tests.support.simulated import current_simulation, simulated
from tests.unit.broker_stub.replica.logs import open_log
from tests.unit.broker_stub.replica.test_fetcher import NODE, Follower, leaders_log, record, records, result
from triokafka import errors
from triokafka.broker_stub.log.partition_log import PartitionLog
from triokafka.broker_stub.replica.fetcher.fetcher_config import FetcherConfig
from triokafka.broker_stub.replica.fetcher.fetcher_task import FetcherTask
from triokafka.broker_stub.work_budget import BUDGET
from triokafka.network.node_channel import NodeChannel
from triokafka.protocol.api.fetch import FetchableTopicResponse, FetchRequest, FetchResponse
from triokafka.structs import Node

PARTITIONS = BUDGET + 10
"""So many that there is a checkpoint while a response is applied."""
RECORDS = 6


class Leader:
    """A leader with fetch sessions. All its partitions have the same log; a response has one record of each.

    ``on_end`` is called with a fetch that says that the follower has everything.
    """

    def __init__(self) -> None:
        self.log = leaders_log(*[1] * RECORDS)
        self.on_end: Callable[[], None] = lambda: None
        self.refused = 0
        """Fetches that did not fit their session."""
        self._epochs: list[int] = []
        self._offsets: list[dict[int, int]] = []

    def answer(self, request: FetchRequest) -> FetchResponse:
        number = request.session_id - 1
        if request.session_epoch == 0:
            number = len(self._epochs)
            self._epochs.append(0)
            self._offsets.append({})
        if number not in range(len(self._epochs)) or request.session_epoch != self._epochs[number]:
            self.refused += 1
            return FetchResponse(error_code=errors.InvalidFetchSessionEpochError.code, responses=[])
        self._epochs[number] += 1
        offsets = self._offsets[number]
        for topic in request.topics:
            offsets.update((partition.partition, partition.fetch_offset) for partition in topic.partitions)
        if set(offsets.values()) == {RECORDS}:
            self.on_end()
        partitions = []
        for partition, offset in offsets.items():
            data = result(record(self.log, offset) if offset < RECORDS else b"", high_watermark=RECORDS)
            data.partition_index = partition
            partitions.append(data)
        topics = [FetchableTopicResponse(topic_id=UUID(int=1 + ord("t")), partitions=partitions)]
        return FetchResponse(session_id=number + 1, responses=topics)


async def replicate(peer: ScriptedBroker, leader: Leader, follower: Follower, logs: Sequence[PartitionLog]) -> None:
    """Run a fetcher until the logs have all records."""
    host, _, port = peer.address.rpartition(":")
    world = current_simulation().host("own").world
    for log in logs:
        follower.follow(log=log)
    channel = NodeChannel(Node(peer.node_id, host, int(port)), world=world, client_id="fetcher")
    task = FetcherTask(
        "fetcher", follower.state, follower.data, channel, FetcherConfig(), world, node_id=NODE,
        broker_epoch=lambda: 5, until_flushed=follower.hosted.until_flushed,
    )  # fmt: skip
    leader.on_end = task.cancel_scope.cancel
    try:
        await task.run()
    finally:
        assert not channel.is_ready


@simulated
async def test_fetcher_cancelled_at_any_checkpoint_leaves_logs_that_the_next_fetcher_continues() -> None:
    """No record is lost, none is appended twice, and the next fetcher begins a session of its own."""
    simulation = current_simulation()
    leader, cluster = Leader(), ScriptedCluster()
    await cluster.start(simulation.nursery, simulation.host("peer").world)
    peer = cluster.brokers[1]
    peer.api_versions[1] = (4, 17)
    peer.script(FetchRequest, *[leader.answer] * 10_000)
    whole = records(leader.log)
    follower, logs = Follower(), list[PartitionLog]()
    ahead_of_logs = 0

    async def once() -> None:
        nonlocal follower, logs
        follower, logs = Follower(), [open_log("t", number) for number in range(PARTITIONS)]
        await replicate(peer, leader, follower, logs)

    async def check() -> None:
        nonlocal ahead_of_logs
        ends = {log.topic_partition: log.log_end_offset for log in logs}
        positions = follower.state.positions(ends)
        ahead_of_logs += any(one.fetch_offset > ends[one.partition.topic_partition] for one in positions)
        assert all(whole.startswith(records(log)) for log in logs)
        with trio.fail_after(5):
            await replicate(peer, leader, Follower(), logs)
        assert all(records(log) == whole for log in logs)
        assert not leader.refused

    _, cancelled = await cancelled_at_each_checkpoint(once, check, limit=1_000)
    assert all(records(log) == whole for log in logs)
    assert ahead_of_logs >= RECORDS - 2, "while the records before a fetch on its way were not appended yet"
    assert cancelled > 2 * RECORDS
