"""A scripted group of one member under the consumer protocol (KIP-848); the test sets its target assignment."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any
from uuid import UUID

import trio

from tests.support.scripted_reading import ReadableBroker, ReadableCluster
from triokafka.protocol.api.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from triokafka.protocol.api.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from triokafka.protocol.api.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from triokafka.protocol.api.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from triokafka.structs import TopicPartition
from triokafka.world import World

UNKNOWN_TOPIC_ID = 100
STALE_MEMBER_EPOCH = 113


class GroupCluster(ReadableCluster):
    """A cluster whose group has one member; ``generation`` is its epoch, ``interval_ms`` its heartbeat interval."""

    def __init__(self, **topics: int) -> None:
        super().__init__(**topics)
        self.target = {TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)}
        self.acknowledged: list[set[TopicPartition]] = []
        self.interval_ms = 1_000
        self._sent_assignment: set[TopicPartition] | None = None
        self._names: dict[UUID, str] = {}

    async def start(self, nursery: trio.Nursery, world: World, *, nodes: int = 1) -> str:
        for node_id in range(1, nodes + 1):
            await GroupBroker(self, node_id, world).start(nursery)
        return self.brokers[1].address

    def assign(self, *partitions: TopicPartition) -> None:
        """Assign these partitions to the member with its next heartbeat."""
        self.target = set(partitions)

    def beat(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        """Return the response to a heartbeat, with the assignment and a new epoch if it has changed."""
        if request.member_epoch < 0:
            self._sent_assignment = None
            return ConsumerGroupHeartbeatResponse(member_epoch=request.member_epoch, heartbeat_interval_ms=0)
        self._names.update((topic_id, name) for name, topic_id in self.topic_ids.items())
        if request.topic_partitions is not None and request.member_epoch:
            self.acknowledged.append(
                {TopicPartition(self._names[t.topic_id], n) for t in request.topic_partitions for n in t.partitions}
            )
        everything = request.rebalance_timeout_ms >= 0
        sends_assignment = everything or self._sent_assignment != self.target
        if not request.member_epoch or self._sent_assignment != self.target:
            self.generation += 1
        self._sent_assignment = set(self.target)
        by_id: dict[UUID, list[int]] = {}
        for topic, number in sorted(self.target):
            by_id.setdefault(self.topic_ids[topic], []).append(number)
        topics = [TopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in by_id.items()]
        return ConsumerGroupHeartbeatResponse(
            member_id=request.member_id,
            member_epoch=self.generation,
            heartbeat_interval_ms=self.interval_ms,
            assignment=Assignment(topic_partitions=topics) if sends_assignment else None,
        )


class GroupBroker(ReadableBroker):
    """One broker of a `GroupCluster`; it does not know the topics of ``hidden_ids``."""

    cluster: GroupCluster

    def __init__(self, cluster: GroupCluster, node_id: int, world: World) -> None:
        super().__init__(cluster, node_id, world)
        self.api_versions[68] = (0, 1)
        self.hidden_ids: set[UUID] = set()
        self._answers[ConsumerGroupHeartbeatRequest] = cluster.beat

    @property
    def beats(self) -> list[ConsumerGroupHeartbeatRequest]:
        """The heartbeats so far."""
        return self.seen(ConsumerGroupHeartbeatRequest)

    async def beats_until(self, condition: Callable[[ConsumerGroupHeartbeatRequest], bool]) -> None:
        """Wait for a heartbeat that meets a condition."""
        count = len(self.beats)
        while True:
            count += 1
            if condition((await self.wait_for(ConsumerGroupHeartbeatRequest, count))[count - 1]):
                return

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        """Fetch; respond to the id of a deleted topic as any broker does."""
        with suppress(KeyError):
            return await super().fetch(request)
        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic_id=topic.topic_id,
                    partitions=[
                        PartitionData(partition_index=p.partition, error_code=UNKNOWN_TOPIC_ID, high_watermark=-1)
                        for p in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def offset_commit(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        """Commit; refuse an old epoch as stale."""
        response = super().offset_commit(request)
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    partition.error_code = STALE_MEMBER_EPOCH
        return response

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        """Return metadata, also for topics requested by id."""
        names = {topic_id: name for name, topic_id in self.cluster.topic_ids.items()}
        unknown: list[Any] = []
        known: list[Any] = []
        for topic in request.topics or ():
            if topic.name is None:
                topic.name = None if topic.topic_id in self.hidden_ids else names.get(topic.topic_id)
            (unknown if topic.name is None else known).append(topic)
        if request.topics is not None:
            request.topics = known
        response = super().metadata(request)
        for topic in unknown:
            response.topics.append(
                MetadataResponseTopic(error_code=UNKNOWN_TOPIC_ID, name=None, topic_id=topic.topic_id, partitions=[])
            )
        return response
