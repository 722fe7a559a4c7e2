"""A coordinator without a broker: manual clocks, a log that fails or lags on demand, and requests of members.

All calls are synchronous: a request returns its `Reply`, which is set once the coordinator has answered.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeVar

from tests.support.in_steps import done
from triokafka.coordinator.classic_group.classic_group import ClassicGroup
from triokafka.coordinator.classic_group.join import Joiner
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.consumer_group import heartbeat as consumer_heartbeat
from triokafka.coordinator.consumer_group import leaving as consumer_leaving
from triokafka.coordinator.consumer_group.heartbeat import Beat
from triokafka.coordinator.group import group_administration as admin
from triokafka.coordinator.group import membership_requests as operations
from triokafka.coordinator.group.config import GroupCoordinatorConfig
from triokafka.coordinator.group.coordinator_type import group_coordinator_type
from triokafka.coordinator.group.group_counters import GroupCounters
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.records import Change, CommittedOffset, OffsetKey, decode
from triokafka.coordinator.group.topics_view import TopicFilter, TopicsView, any_topic
from triokafka.coordinator.offsets import commit as commits
from triokafka.coordinator.offsets import delete as deletes
from triokafka.coordinator.offsets import fetch as fetches
from triokafka.coordinator.runtime.coordinator_log import (
    CoordinatorRecord,
    LogRecord,
    TransactionalProducer,
    TransactionalRecords,
    TransactionEnd,
    TransactionMarker,
)
from triokafka.coordinator.runtime.coordinator_runtime import CoordinatorRuntime
from triokafka.coordinator.runtime.coordinator_task import CoordinatorTask
from triokafka.coordinator.runtime.reply import Reply
from triokafka.errors import BrokerResponseError, KafkaError
from triokafka.protocol.api.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from triokafka.protocol.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from triokafka.protocol.api.delete_groups import DeletableGroupResult
from triokafka.protocol.api.describe_groups import DescribedGroup
from triokafka.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from triokafka.protocol.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from triokafka.protocol.api.leave_group import MemberIdentity, MemberResponse
from triokafka.protocol.api.list_groups import ListedGroup
from triokafka.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from triokafka.protocol.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from triokafka.protocol.api.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)
from triokafka.protocol.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from triokafka.world import Listener, Stream, World

T = TypeVar("T")

PARTITION = 3
TOPIC_IDS = {"orders": uuid.UUID(int=11), "bills": uuid.UUID(int=12)}


class StillWorld(World):
    """A world whose clocks move only on request. It has no network, no storage and no threads."""

    def __init__(self) -> None:
        self.random = random.Random(0)
        self.clock = 1_000.0
        self.ids = 0

    def now(self) -> float:
        return self.clock

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + round(self.clock * 1000)

    def deadline(self, at: float) -> float:
        return at

    def random_bytes(self, size: int) -> bytes:
        self.ids += 1
        return self.ids.to_bytes(size, "big")

    async def resolve(self, host: str, port: int) -> list[tuple[str, int]]:
        raise NotImplementedError

    async def connect(self, host: str, port: int) -> Stream:  # type: ignore[override]
        raise NotImplementedError

    async def listen(self, host: str, port: int) -> Listener:  # type: ignore[override]
        raise NotImplementedError

    async def run_in_thread(self, function: Callable[..., T], *args: Any) -> T:
        raise NotImplementedError


class ScriptedLog:
    """A log in memory. Without ``commits_at_once`` the high watermark does not advance.

    ``fails_with`` makes appends raise: the next ``failures_left`` of them, or all (None). ``unreadable`` makes reads
    raise. ``ends`` are the offsets after each batch; ``compacted`` are the offsets of removed records.
    """

    def __init__(self) -> None:
        self.records: dict[int, list[CoordinatorRecord]] = {}
        self.ends: list[int] = []
        self.compacted: set[int] = set()
        self.unreadable: Exception | None = None
        self.high_watermarks: dict[int, int] = {}
        self.fails_with: Exception | None = None
        self.failures_left: int | None = None
        self.commits_at_once = True
        self.appends = 0
        self.producers: dict[tuple[int, int], int] = {}
        self.markers: dict[tuple[int, int], TransactionEnd] = {}

    def append_in_transaction(
        self, partition: int, producer: TransactionalProducer, records: Sequence[CoordinatorRecord], timestamp_ms: int
    ) -> int:
        end = self.append(partition, records, timestamp_ms)
        for offset in range(end - len(records), end):
            self.producers[partition, offset] = producer.producer_id
        return end

    def append_marker(self, partition: int, marker: TransactionMarker, timestamp_ms: int) -> int:
        end = self.append(partition, [CoordinatorRecord(b"", None)], timestamp_ms)
        self.markers[partition, end - 1] = TransactionEnd(marker.producer_id, end - 1, marker.commits)
        return end

    def append(self, partition: int, records: Sequence[CoordinatorRecord], timestamp_ms: int) -> int:
        if self.fails_with is not None and self.will_fail:
            if self.failures_left is not None:
                self.failures_left -= 1
            raise self.fails_with
        self.appends += 1
        stored = self.records.setdefault(partition, [])
        stored.extend(records)
        self.ends.append(len(stored))
        if self.commits_at_once:
            self.high_watermarks[partition] = len(stored)
        return len(stored)

    @property
    def will_fail(self) -> bool:
        """Whether the next append raises."""
        return self.fails_with is not None and self.failures_left != 0

    def lose_uncommitted(self, partition: int) -> None:
        """Drop the records above the high watermark, as a leader change does."""
        high_watermark = self.high_watermark(partition)
        del self.records.setdefault(partition, [])[high_watermark:]
        self.ends = [end for end in self.ends if end <= high_watermark]
        for notes in (self.producers, self.markers):
            for key in [key for key in notes if key[0] == partition and key[1] >= high_watermark]:
                del notes[key]

    def compact(self, partition: int) -> None:
        """Keep the last record of each key without tombstones, below the high watermark."""
        committed = self.records.get(partition, [])[: self.high_watermark(partition)]
        last = {record.key: offset for offset, record in enumerate(committed)}
        for offset, record in enumerate(committed):
            if last[record.key] != offset or record.value is None:
                self.compacted.add(offset)

    def read_all(self, partition: int) -> Iterator[Sequence[LogRecord] | TransactionalRecords | TransactionEnd]:
        if self.unreadable is not None:
            raise self.unreadable
        records = enumerate(self.records.get(partition, []))
        stored = [(offset, record) for offset, record in records if offset not in self.compacted]
        if self.producers or self.markers:
            for offset, record in stored:
                yield self._piece(partition, offset, record)
            return
        for start in range(0, len(stored), 7):
            yield [(offset, record.key, record.value) for offset, record in stored[start : start + 7]]

    def _piece(
        self, partition: int, offset: int, record: CoordinatorRecord
    ) -> Sequence[LogRecord] | TransactionalRecords | TransactionEnd:
        records = [(offset, record.key, record.value)]
        if (partition, offset) in self.markers:
            return self.markers[partition, offset]
        if (partition, offset) in self.producers:
            return TransactionalRecords(self.producers[partition, offset], records)
        return records

    def high_watermark(self, partition: int) -> int:
        return self.high_watermarks.get(partition, 0)


class Topics:
    """The existing topics. Tests create, grow and delete them."""

    def __init__(self, ids: dict[str, uuid.UUID] | None = None) -> None:
        self.ids = dict(TOPIC_IDS if ids is None else ids)
        self.partitions = dict.fromkeys(self.ids, 4)
        self.version = 1

    def set(self, name: str, partitions: int) -> None:
        """Create a topic, or set its number of partitions."""
        self.version += 1
        self.ids.setdefault(name, uuid.UUID(int=1_000 + self.version))
        self.partitions[name] = partitions

    def delete(self, name: str) -> None:
        """Delete a topic. A recreated topic of the same name gets another id."""
        self.version += 1
        del self.ids[name], self.partitions[name]

    def names(self) -> list[str]:
        return list(self.ids)

    def partition_count(self, name: str) -> int:
        return self.partitions.get(name, 0)

    def topic_id(self, name: str) -> uuid.UUID | None:
        return self.ids.get(name)

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        return next((name for name, known in self.ids.items() if known == topic_id), None)


class LargeTopics:
    """The same topics with 100,000 partitions each, so that commits on any partition are valid."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def __getattr__(self, name: str) -> Any:
        return getattr(self._topics, name)

    def partition_count(self, name: str) -> int:
        return 100_000 if self._topics.topic_id(name) else 0


def subscription(*topics: str, version: int = 0) -> bytes:
    """Encode a consumer's subscription: version, topics, no user data."""
    names = b"".join(len(topic).to_bytes(2, "big") + topic.encode() for topic in topics)
    return version.to_bytes(2, "big") + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


RANGE = ("range", subscription("orders"))
ROUND_ROBIN = ("roundrobin", subscription("orders"))


class Rig:
    """One loaded shard under a runtime, and the requests of members and tools."""

    new_world: type[StillWorld] = StillWorld

    def __init__(self, log: Any = None, **config: Any) -> None:
        self.world = self.new_world()
        self.log: Any = ScriptedLog() if log is None else log
        self.topics = Topics()
        self.config = GroupCoordinatorConfig(**{"group_initial_rebalance_delay_ms": 3_000, **config})
        self.epoch = 0
        self.new_reply: Callable[[], Reply[Any]] = Reply
        self.settings: dict[str, dict[str, str]] = {}
        """Configuration overrides by group."""
        self.task: CoordinatorTask[GroupShard, Change] = CoordinatorTask(
            self.world,
            self.log,
            group_coordinator_type(
                self.config,
                lambda: str(self.world.uuid()),
                self.topics,
                lambda group_id: self.settings.get(group_id, {}),
                GroupCounters(),
            ),
            partitions=self.config.offsets_topic_num_partitions,
        )
        self.runtime: CoordinatorRuntime[GroupShard, Change] = self.task.runtime
        self.load()

    # --- the broker's side ---

    def load(self) -> None:
        """Load the partition from its log, in a new leader epoch."""
        self.epoch += 1
        self.runtime.load(PARTITION, self.epoch)
        self.runtime.load_all()

    def restart(self) -> None:
        """Unload and load the partition, which drops everything that is not in the log."""
        self.runtime.unload(PARTITION)
        self.load()

    def commit_log(self) -> None:
        """Advance the high watermark to the log end."""
        self.log.high_watermarks[PARTITION] = len(self.log.records.get(PARTITION, []))
        self.runtime.high_watermark_changed(PARTITION, self.log.high_watermarks[PARTITION])

    def pass_time(self, seconds: float) -> None:
        """Advance the clock; every deadline fires at its own time."""
        end = self.world.clock + seconds
        while (due := self.runtime.next_deadline()) <= end:
            self.world.clock = max(self.world.clock, due)
            self.runtime.fire_due()
        self.world.clock = end

    @property
    def shard(self) -> GroupShard:
        return self.runtime.read(PARTITION, lambda shard: shard)

    def group(self, group_id: str = "g") -> ClassicGroup:
        return self.shard.groups[group_id]

    def state(self, group_id: str = "g") -> GroupState:
        return self.group(group_id).state

    def changes(self) -> list[Change | None]:
        """Return the decoded records of the log."""
        return [decode(record.key, record.value) for record in self.log.records.get(PARTITION, [])]

    # --- requests of clients ---

    def ask(self, operation: Callable[..., None], reply: Reply[T], **arguments: Any) -> Reply[T]:
        """Run an operation; if it raises, fail the reply with the error."""
        bound = partial(operation, reply=reply, **arguments)
        try:
            self.runtime.write(PARTITION, lambda shard, effects: bound(shard=shard, effects=effects))
        except KafkaError as error:
            reply.fail(error)
        return reply

    def join(
        self,
        member_id: str = "",
        *,
        group_id: str = "g",
        instance_id: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = (RANGE,),
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        version: int = 3,
        client_id: str = "client",
    ) -> Reply[JoinGroupResponse]:
        """Send JoinGroup. Version 3 does not require a known member id."""
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=metadata) for name, metadata in protocols],
        )
        joiner = Joiner.of(request, version=version, client_id=client_id, client_host="/127.0.0.1")
        return self.ask(operations.join, self.new_reply(), joiner=joiner)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group_id: str = "g",
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> Reply[SyncGroupResponse]:
        """Send SyncGroup."""
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=name, assignment=assigned)
                for name, assigned in (assignments or {}).items()
            ],
        )
        return self.ask(operations.sync, self.new_reply(), request=request)

    def heartbeat(
        self, member_id: str, generation: int, *, group_id: str = "g", instance_id: str | None = None
    ) -> Reply[HeartbeatResponse]:
        """Send Heartbeat."""
        request = HeartbeatRequest(
            group_id=group_id, member_id=member_id, generation_id=generation, group_instance_id=instance_id
        )
        return self.ask(operations.heartbeat, self.new_reply(), request=request)

    def beat(
        self, beat: Beat, *, group_id: str = "g", may_describe: TopicFilter = any_topic
    ) -> Reply[ConsumerGroupHeartbeatResponse]:
        """Send ConsumerGroupHeartbeat of a member that stays."""
        return self.ask(
            consumer_heartbeat.heartbeat, self.new_reply(), group_id=group_id, beat=beat, may_describe=may_describe
        )

    def last_beat(
        self, member_id: str, epoch: int = -1, *, instance_id: str | None = None, group_id: str = "g"
    ) -> Reply[ConsumerGroupHeartbeatResponse]:
        """Send ConsumerGroupHeartbeat of a member that leaves."""
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id, member_id=member_id, member_epoch=epoch, instance_id=instance_id
        )
        return self.ask(consumer_leaving.leave, self.new_reply(), request=request)

    def describe_consumer_group(self, group_id: str = "g") -> Reply[DescribedConsumerGroup]:
        """Send ConsumerGroupDescribe for one group."""
        return self.ask(admin.describe_consumer_group, self.new_reply(), group_id=group_id)

    def leave(self, *leavers: str | tuple[str, str], group_id: str = "g") -> Reply[list[MemberResponse]]:
        """Send LeaveGroup for member ids or pairs of member id and instance id."""
        identities = [
            MemberIdentity(member_id=leaver)
            if isinstance(leaver, str)
            else MemberIdentity(member_id=leaver[0], group_instance_id=leaver[1])
            for leaver in leavers
        ]
        return self.ask(operations.leave, self.new_reply(), group_id=group_id, leavers=identities)

    def commit(
        self,
        member_id: str = "",
        generation: int = -1,
        offsets: dict[tuple[str, int], int] | None = None,
        *,
        group_id: str = "g",
        instance_id: str | None = None,
        metadata: str | None = "",
        leader_epoch: int = -1,
        retention_ms: int = -1,
        version: int = 8,
    ) -> Reply[OffsetCommitResponse]:
        """Send OffsetCommit; by default offset 5 on partition 0 of ``orders``."""
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=TOPIC_IDS.get(topic, uuid.UUID(int=99)),
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_metadata=metadata,
                            committed_leader_epoch=leader_epoch,
                        )
                    ],
                )
                for (topic, partition), offset in (offsets if offsets is not None else {("orders", 0): 5}).items()
            ],
        )
        return self.commit_request(request, version, LargeTopics(self.topics))

    def commit_request(
        self, request: OffsetCommitRequest, version: int, topics: TopicsView | None = None
    ) -> Reply[OffsetCommitResponse]:
        """Send OffsetCommit; ``topics`` defaults to the rig's own."""
        known, response = done(commits.resolve_topics(request, version, topics or self.topics))
        steps = commits.prepare(
            request, known, metadata_max_bytes=self.config.offset_metadata_max_bytes, now_ms=self.world.wall_ms()
        )
        return self.ask(
            commits.commit,
            self.new_reply(),
            request=request,
            known=known,
            prepared=done(steps),
            response=response,
            version=version,
        )

    def delete_offsets(self, *keys: tuple[str, int], group_id: str = "g") -> Reply[OffsetDeleteResponse]:
        """Send OffsetDelete."""
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=partition)]
                )
                for topic, partition in keys
            ],
        )
        return self.ask(deletes.delete_offsets, self.new_reply(), request=request, topics=self.topics)

    def delete_group(self, group_id: str = "g") -> Reply[DeletableGroupResult]:
        """Send DeleteGroups for one group."""
        return self.ask(admin.delete, self.new_reply(), group_id=group_id)  # type: ignore[arg-type]

    def describe(self, group_id: str = "g", version: int = 5) -> DescribedGroup:
        """Send DescribeGroups for one group."""
        return self.runtime.read(PARTITION, lambda shard: admin.describe(shard, group_id, version))

    def list_groups(self) -> list[ListedGroup]:
        """Send ListGroups."""
        return self.runtime.read(PARTITION, lambda shard: admin.list_groups(shard, shard.group_ids(), (), ()))

    def listed_groups(self) -> list[str]:
        """Return the ids of the groups of ListGroups."""
        return [group.group_id for group in self.list_groups()]

    def fetch(self, *keys: tuple[str, int], group_id: str = "g", version: int = 8) -> OffsetFetchResponseGroup:
        """Send OffsetFetch for the given partitions, or for all when none is given."""
        topics = [
            OffsetFetchRequestTopics(
                name=topic,
                topic_id=TOPIC_IDS.get(topic, uuid.UUID(int=99)) if version >= 10 else uuid.UUID(int=0),
                partition_indexes=[partition],
            )
            for topic, partition in keys
        ]
        asked = OffsetFetchRequestGroup(group_id=group_id, topics=topics or None)
        return self.runtime.read(PARTITION, lambda shard: done(fetches.fetch_group(shard, asked, version, self.topics)))

    def offset(self, topic: str = "orders", partition: int = 0, *, group_id: str = "g") -> int:
        """Return one committed offset; -1 when there is none."""
        return self.fetch((topic, partition), group_id=group_id).topics[0].partitions[0].committed_offset

    def newest(self, topic: str = "orders", partition: int = 0, group_id: str = "g") -> CommittedOffset | None:
        """Return one offset in the shard's newest state, committed or not."""
        return dict(self.shard.offsets.newest(group_id)).get(OffsetKey(group_id, topic, partition))

    # --- groups in a given state ---

    def joined_group(self, size: int = 2, *, group_id: str = "g", **arguments: Any) -> tuple[list[str], int]:
        """Return the members (leader first) and the generation of a new group in CompletingRebalance."""
        replies = [self.join(group_id=group_id, **arguments) for _ in range(size)]
        for _ in range(size + 1):
            self.pass_time(self.config.group_initial_rebalance_delay_ms / 1000)
        answers = [reply.value for reply in replies]
        assert [answer.error_code for answer in answers] == [0] * size
        answers.sort(key=lambda answer: answer.member_id != answer.leader)
        return [answer.member_id for answer in answers], answers[0].generation_id

    def stable_group(self, size: int = 2, *, group_id: str = "g", **arguments: Any) -> tuple[list[str], int]:
        """Return the members (leader first) and the generation of a new stable group. Each member's assignment is its
        own id, as bytes."""
        members, generation = self.joined_group(size, group_id=group_id, **arguments)
        leader = members[0]
        replies = [self.sync(member, generation, group_id=group_id) for member in members[1:]]
        replies.append(
            self.sync(leader, generation, {member: member.encode() for member in members}, group_id=group_id)
        )
        assert [reply.value.error_code for reply in replies] == [0] * size
        return members, generation


def code(reply: Reply[Any]) -> int | None:
    """Return the error code of a response, or of a raised error; None without a response."""
    if not reply.is_set:
        return None
    try:
        value = reply.value
    except BrokerResponseError as error:
        return error.code
    if isinstance(value, list):
        codes = {item.error_code for item in value}
        assert len(codes) == 1
        return int(codes.pop())
    if isinstance(value, (OffsetCommitResponse, OffsetDeleteResponse)):
        codes = {partition.error_code for topic in value.topics for partition in topic.partitions}
        assert len(codes) == 1
        return int(codes.pop())
    return int(value.error_code)
