"""The reading half of the scripted broker: logs, offsets, and a group of one member, for tests of consumers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import trio

from tests.support.scripted_broker import ScriptedBroker, ScriptedCluster
from tests.support.simulated import current_simulation
from triokafka.protocol.api.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from triokafka.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from triokafka.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from triokafka.protocol.api.leave_group import LeaveGroupRequest, LeaveGroupResponse
from triokafka.protocol.api.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from triokafka.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from triokafka.protocol.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from triokafka.protocol.api.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from triokafka.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse
from triokafka.records import encode_batch, iter_batches
from triokafka.structs import TopicPartition
from triokafka.world import World


def numbers(first: int, last: int) -> list[bytes]:
    """Return the values ``first`` to ``last`` - 1 of records, as text."""
    return [b"%d" % number for number in range(first, last)]


class ReadableCluster(ScriptedCluster):
    """A cluster with logs as stored bytes, committed offsets, and at most one group member."""

    def __init__(self, **topics: int) -> None:
        super().__init__(**topics)
        self.batches: dict[TopicPartition, list[bytes]] = defaultdict(list)
        self.ends: dict[TopicPartition, int] = defaultdict(int)
        self.starts: dict[TopicPartition, int] = defaultdict(int)
        self.committed: dict[TopicPartition, int] = {}
        self.commits: list[dict[TopicPartition, int]] = []
        self.generation = 0
        self.members = 0
        self.epoch_ends: dict[tuple[TopicPartition, int], tuple[int, int]] = {}
        self._grown = trio.Event()

    def write(self, topic: str, partition: int, values: Sequence[bytes | None], *, gap: int = 0, **batch: Any) -> None:
        """Append one batch; the ``gap`` offsets before it have no record."""
        tp = TopicPartition(topic, partition)
        base = self.ends[tp] + gap
        records: list[Any] = [(1_000 + base + i, b"k", value, []) for i, value in enumerate(values)]
        batch.setdefault("leader_epoch", self.leader_epochs[tp])
        self.batches[tp].append(bytes(encode_batch(records, base_offset=base, **batch)))
        self.ends[tp] = base + len(values)
        self.grew()

    def grew(self) -> None:
        """Wake waiting fetches."""
        self._grown.set()
        self._grown = trio.Event()

    async def changed(self, seconds: float) -> None:
        """Wait for more data, at most ``seconds``."""
        with trio.move_on_after(seconds):
            await self._grown.wait()

    def read(self, tp: TopicPartition, offset: int, max_bytes: int) -> bytes:
        """Return whole batches from the one that contains ``offset``."""
        out = b""
        for batch in self.batches[tp]:
            if next(iter(iter_batches(batch))).last_offset >= offset:
                if out and len(out) + len(batch) > max_bytes:
                    break
                out += batch
        return out

    async def start(self, nursery: trio.Nursery, world: World, *, nodes: int = 1) -> str:
        """Start brokers 1 to ``nodes``; return the address of the first."""
        for node_id in range(1, nodes + 1):
            await ReadableBroker(self, node_id, world).start(nursery)
        return self.brokers[1].address


class ReadableBroker(ScriptedBroker):
    """One broker of a `ReadableCluster`; it serves the requests of consumers."""

    cluster: ReadableCluster

    def __init__(self, cluster: ReadableCluster, node_id: int, world: World) -> None:
        super().__init__(cluster, node_id, world)
        self.api_versions.update(
            {1: (4, 17), 2: (1, 9), 8: (2, 9), 9: (1, 9), 11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5), 23: (2, 4)}
        )
        self._answers: dict[type[Any], Callable[[Any], Any]] = {
            FetchRequest: self.fetch,
            ListOffsetsRequest: self.list_offsets,
            OffsetFetchRequest: self.offset_fetch,
            OffsetCommitRequest: self.offset_commit,
            JoinGroupRequest: self.join_group,
            SyncGroupRequest: self.sync_group,
            HeartbeatRequest: lambda request: HeartbeatResponse(),
            LeaveGroupRequest: lambda request: LeaveGroupResponse(),
            OffsetForLeaderEpochRequest: self.leader_epochs,
        }

    def _behave(self, request: Any, header: Any) -> Any:
        answer = self._answers.get(type(request))
        return answer(request) if answer is not None else super()._behave(request, header)

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        """Fetch without a session: every response is full, once there is data or the time limit has passed."""
        response, found = self.fetch_now(request)
        if not found:
            await self.cluster.changed(request.max_wait_ms / 1000)
            response, _ = self.fetch_now(request)
        return response

    def fetch_now(self, request: FetchRequest, errors: dict[int, int] | None = None) -> tuple[FetchResponse, bool]:
        """Return the present data, and whether there is any; ``errors`` by partition number."""
        cluster = self.cluster
        names = {topic_id: name for name, topic_id in cluster.topic_ids.items()}
        found = given = False
        room = request.max_bytes
        topics = []
        for topic in request.topics:
            name = topic.topic or names[topic.topic_id]
            answers = []
            for p in topic.partitions:
                tp = TopicPartition(name, p.partition)
                code = (errors or {}).get(p.partition, 0)
                if not code and cluster.leaders[tp] != self.node_id:
                    code = 6
                if not code and not cluster.starts[tp] <= p.fetch_offset <= cluster.ends[tp]:
                    code = 1
                records = b"" if code else cluster.read(tp, p.fetch_offset, min(p.partition_max_bytes, room))
                if len(records) > room and given:
                    records = b""  # only the first batch of a response may be larger than requested
                room -= len(records)
                given = given or bool(records)
                found = found or bool(records) or bool(code)
                answers.append(
                    PartitionData(
                        partition_index=p.partition,
                        error_code=code,
                        high_watermark=cluster.ends[tp],
                        last_stable_offset=cluster.ends[tp],
                        log_start_offset=cluster.starts[tp],
                        records=records,
                    )
                )
            topics.append(FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=answers))
        return FetchResponse(responses=topics), found

    def fetch_with(self, **errors: int) -> Callable[[FetchRequest], Awaitable[FetchResponse]]:
        """Return a scripted response to Fetch in which partitions (``p0=6``) fail."""

        async def answer(request: FetchRequest) -> FetchResponse:
            return self.fetch_now(request, {int(name[1:]): code for name, code in errors.items()})[0]

        return answer

    def list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        """Return the first or last offset, or look up a time: the record at offset n has timestamp 1000 + n."""
        topics = []
        for topic in request.topics:
            answers = []
            for p in topic.partitions:
                tp = TopicPartition(topic.name, p.partition_index)
                start, end = self.cluster.starts[tp], self.cluster.ends[tp]
                offset = {-2: start, -1: end}.get(p.timestamp, max(start, p.timestamp - 1_000))
                if p.timestamp >= 0 and offset >= end:
                    offset = -1
                code = 0 if self.cluster.leaders[tp] == self.node_id else 6
                answers.append(
                    ListOffsetsPartitionResponse(
                        partition_index=p.partition_index,
                        error_code=code,
                        offset=offset,
                        timestamp=p.timestamp,
                        leader_epoch=self.cluster.leader_epochs[tp],
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        return ListOffsetsResponse(topics=topics)

    def offset_fetch(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        """Return committed offsets, in the form of version 8 and later."""
        [group] = request.groups
        topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=number,
                        committed_offset=self.cluster.committed.get(TopicPartition(topic.name, number), -1),
                        metadata="",
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in group.topics or ()
        ]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id=group.group_id, topics=topics)])

    def offset_commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        """Commit; refuse a group's old generation."""
        code = 0
        if request.member_id and request.generation_id_or_member_epoch != self.cluster.generation:
            code = 22
        topics = []
        commit: dict[TopicPartition, int] = {}
        for topic in request.topics:
            answers = []
            for p in topic.partitions:
                commit[TopicPartition(topic.name, p.partition_index)] = p.committed_offset
                answers.append(OffsetCommitResponsePartition(partition_index=p.partition_index, error_code=code))
            topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=answers))
        if not code:
            self.cluster.commits.append(commit)
            self.cluster.committed.update(commit)
        return OffsetCommitResponse(topics=topics)

    def join_group(self, request: JoinGroupRequest) -> JoinGroupResponse:
        """Join: the only member is the leader."""
        if not request.member_id:
            self.cluster.members += 1
            return JoinGroupResponse(error_code=79, member_id=f"member-{self.cluster.members}", protocol_name="")
        self.cluster.generation += 1
        chosen = request.protocols[0]
        return JoinGroupResponse(
            generation_id=self.cluster.generation,
            protocol_type="consumer",
            protocol_name=chosen.name,
            leader=request.member_id,
            member_id=request.member_id,
            members=[JoinGroupResponseMember(member_id=request.member_id, metadata=chosen.metadata)],
        )

    def sync_group(self, request: SyncGroupRequest) -> SyncGroupResponse:
        """Sync: return the leader's plan."""
        [plan] = [item.assignment for item in request.assignments]
        return SyncGroupResponse(protocol_type="consumer", protocol_name=request.protocol_name, assignment=plan)

    def leader_epochs(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        """Return the values in ``epoch_ends``, or else the end of the log."""
        topics = []
        for topic in request.topics:
            answers = []
            for p in topic.partitions:
                tp = TopicPartition(topic.topic, p.partition)
                epoch, end = self.cluster.epoch_ends.get((tp, p.leader_epoch), (p.leader_epoch, self.cluster.ends[tp]))
                answers.append(EpochEndOffset(partition=p.partition, leader_epoch=epoch, end_offset=end))
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
        return OffsetForLeaderEpochResponse(topics=topics)


async def client_of(cluster: ScriptedCluster, *, nodes: int = 1, **options: Any) -> dict[str, Any]:
    """Start a cluster in the test's simulation; return a client's options: the cluster's address, and ``options``."""
    simulation = current_simulation()
    address = await cluster.start(simulation.nursery, simulation.host("broker").world, nodes=nodes)
    return {"bootstrap_servers": address, "world": simulation.host("client").world, **options}


async def started(
    partitions: int = 1, *, nodes: int = 1, **options: Any
) -> tuple[ReadableCluster, ReadableBroker, dict[str, Any]]:
    """Start a cluster with topic ``t``; return it, its first broker, and the options of a client."""
    cluster = ReadableCluster(t=partitions)
    options = await client_of(cluster, nodes=nodes, **options)
    broker = cluster.brokers[1]
    assert isinstance(broker, ReadableBroker)
    return cluster, broker, options


async def started_for_consumer(
    partitions: int = 1, *, nodes: int = 1
) -> tuple[ReadableCluster, ReadableBroker, dict[str, Any]]:
    """Do the same as `started`, for a consumer that reads from the beginning."""
    return await started(partitions, nodes=nodes, auto_offset_reset="earliest")
