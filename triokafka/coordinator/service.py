"""The group coordinator of one broker: one method per API, from protocol message to protocol message.

Requests are checked here as far as that needs no group, sent to the shard that keeps the group, and what the shard
could not do is turned into the API's own error answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final, Protocol, TypeVar
from uuid import UUID

import trio

from triokafka.coordinator import operations
from triokafka.coordinator.config import GroupCoordinatorConfig, GroupSettings, no_settings
from triokafka.coordinator.consumer_group import heartbeat as heartbeats
from triokafka.coordinator.consumer_group import operations as consumer_groups
from triokafka.coordinator.group import admin
from triokafka.coordinator.group.append_errors import coordinator_error, group_append_error, offsets_append_error
from triokafka.coordinator.group.join import Joiner
from triokafka.coordinator.known_members import KnownMember, end_session, known_members
from triokafka.coordinator.log import CoordinatorLog
from triokafka.coordinator.metrics import GroupCounters, GroupCounts, count_groups
from triokafka.coordinator.offsets import commit as commits
from triokafka.coordinator.offsets import delete as deletes
from triokafka.coordinator.offsets import deleted_topics
from triokafka.coordinator.offsets import fetch as fetches
from triokafka.coordinator.partitioning import coordinator_partition
from triokafka.coordinator.runtime import CoordinatorRuntime
from triokafka.coordinator.shard import GroupShard
from triokafka.coordinator.stored import Change, GroupTurn
from triokafka.coordinator.topics import TopicFilter, TopicsView, any_topic
from triokafka.coordinator.turn import Reply
from triokafka.errors import (
    CoordinatorLoadInProgressError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    KafkaError,
    RebalanceInProgressError,
)
from triokafka.protocol.api.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from triokafka.protocol.api.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from triokafka.protocol.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from triokafka.protocol.api.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from triokafka.protocol.api.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from triokafka.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from triokafka.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse
from triokafka.protocol.api.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from triokafka.protocol.api.list_groups import ListGroupsRequest, ListGroupsResponse
from triokafka.protocol.api.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from triokafka.protocol.api.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from triokafka.protocol.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from triokafka.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse
from triokafka.world import World

T = TypeVar("T")

_FIRST_BATCHED_LEAVE: Final = 3
_FIRST_SYNC_WITH_PROTOCOL: Final = 5
_LONGEST_MESSAGE: Final = 1_000
_GROUPS_AT_ONCE: Final = 100
"""Groups that are described before others are served."""


class Operation(Protocol):
    """What a request does to the shard that keeps its group."""

    def __call__(self, *, shard: GroupShard, turn: GroupTurn) -> None:
        """Decide, without waiting."""


class GroupCoordinator:
    """Groups and their offsets, on the partitions of ``__consumer_offsets`` that this broker leads.

    The broker calls `load` and `unload` as leadership comes and goes, `high_watermark_changed` as records are
    committed, and runs `run` in its nursery. Every answer is held until what it rests on is committed.

    Cancelling a request that waits (its client hung up) takes nothing back: a member that joined has joined, and its
    session decides what becomes of it.

    Args:
        log: the partitions of ``__consumer_offsets``.
        topics: names, ids and sizes of topics, as of now.
        own_settings: what is configured for a group alone, by Kafka's names.
    """

    def __init__(
        self,
        world: World,
        log: CoordinatorLog,
        topics: TopicsView,
        config: GroupCoordinatorConfig | None = None,
        own_settings: GroupSettings = no_settings,
    ) -> None:
        self.config = config if config is not None else GroupCoordinatorConfig()
        self.partitions = self.config.offsets_topic_num_partitions
        """How many partitions ``__consumer_offsets`` has; the broker corrects it where the topic was made otherwise."""
        self.counters = GroupCounters()
        """What has happened since the coordinator was made."""
        self._world = world
        self._topics = topics
        self.runtime: CoordinatorRuntime[GroupShard, Change] = CoordinatorRuntime(
            world,
            log,
            lambda partition: GroupShard(self.config, lambda: str(world.uuid()), topics, own_settings, self.counters),
            commit_timeout_ms=self.config.offset_commit_timeout_ms,
        )

    # --- the broker's side ---

    def partition_for(self, group_id: str) -> int:
        """The partition of ``__consumer_offsets`` that keeps the group; its leader is the group's coordinator."""
        return coordinator_partition(group_id, self.partitions)

    def load(self, partition: int, leader_epoch: int) -> None:
        """See `CoordinatorRuntime.load`."""
        self.runtime.load(partition, leader_epoch)

    def unload(self, partition: int, leader_epoch: int | None = None) -> None:
        """See `CoordinatorRuntime.unload`."""
        self.runtime.unload(partition, leader_epoch)

    def high_watermark_changed(self, partition: int, offset: int) -> None:
        """See `CoordinatorRuntime.high_watermark_changed`."""
        self.runtime.high_watermark_changed(partition, offset)

    def members(self, group_id: str) -> list[KnownMember]:
        """Who is in a group now, in the order of their ids; nobody when there is no such group.

        Raises:
            NotCoordinatorError, CoordinatorLoadInProgressError: the group is not kept here, or not yet.
        """
        return self.runtime.read(self.partition_for(group_id), lambda shard: known_members(shard, group_id))

    def expire_member(self, group_id: str, member_id: str) -> None:
        """End a member's session now, as if it had been silent for its session timeout; for tests.

        One whose JoinGroup is waiting for an answer is not dead, and gets a new session, as always.

        Raises:
            UnknownMemberIdError: the group has no such member.
            NotCoordinatorError, CoordinatorLoadInProgressError: the group is not kept here, or not yet.
        """
        self.runtime.write(
            self.partition_for(group_id), lambda shard, turn: end_session(shard, group_id, member_id, turn)
        )
        self.runtime.fire_due()

    async def run(self) -> None:
        """Load shards and fire deadlines until cancelled; then nobody who waits is left without an answer."""
        try:
            await self.runtime.run()
        finally:
            self.stop()

    def stop(self) -> None:
        """See `CoordinatorRuntime.stop`."""
        self.runtime.stop()

    def topics_deleted(self, topics: Mapping[UUID, str]) -> None:
        """Topics are gone, by id and name: remove all positions on them; of shards that load, once they have."""
        self.runtime.write_everywhere(lambda shard, turn: deleted_topics.topics_deleted(shard, topics, turn))

    def count_groups(self) -> GroupCounts:
        """Groups by state, and positions, in the shards here. Takes as long as there are groups."""
        partitions = self.runtime.active_partitions()
        return count_groups([self.runtime.read(partition, lambda shard: shard) for partition in partitions])

    # --- membership ---

    async def join_group(
        self, request: JoinGroupRequest, *, version: int, client_id: str = "", client_host: str = ""
    ) -> JoinGroupResponse:
        """JoinGroup. Waits until the round is complete: at most the rebalance timeout of its slowest member."""
        try:
            _check_group_id(request.group_id)
            limits = self.config.group_min_session_timeout_ms, self.config.group_max_session_timeout_ms
            if not limits[0] <= request.session_timeout_ms <= limits[1]:
                raise InvalidSessionTimeoutError(
                    f"a session timeout of {request.session_timeout_ms} ms is not within {limits[0]} to {limits[1]}"
                )
            joiner = Joiner.of(request, version=version, client_id=client_id, client_host=client_host)
            reply: Reply[JoinGroupResponse] = Reply()
            return await self._write(request.group_id, partial(operations.join, joiner=joiner, reply=reply), reply)
        except KafkaError as error:
            return JoinGroupResponse(error_code=group_append_error(error), member_id=request.member_id)

    async def sync_group(
        self, request: SyncGroupRequest, *, version: int = _FIRST_SYNC_WITH_PROTOCOL - 1
    ) -> SyncGroupResponse:
        """SyncGroup. Waits for the leader's assignment to be stored: at most the rebalance timeout."""
        try:
            _check_group_id(request.group_id)
            if version >= _FIRST_SYNC_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
                raise InconsistentGroupProtocolError("since version 5 a member says which protocol it is to sync")
            reply: Reply[SyncGroupResponse] = Reply()
            return await self._write(request.group_id, partial(operations.sync, request=request, reply=reply), reply)
        except CoordinatorLoadInProgressError:
            # The round was soft state and is lost: the member only needs to join again, here.
            return SyncGroupResponse(error_code=RebalanceInProgressError.code)
        except KafkaError as error:
            return SyncGroupResponse(error_code=group_append_error(error))

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Heartbeat. While the shard loads it succeeds blindly, so that a failover does not make everybody rejoin."""
        try:
            _check_group_id(request.group_id)
            reply: Reply[HeartbeatResponse] = Reply()
            operation = partial(operations.heartbeat, request=request, reply=reply)
            return await self._write(request.group_id, operation, reply)
        except CoordinatorLoadInProgressError:
            return HeartbeatResponse()
        except KafkaError as error:
            return HeartbeatResponse(error_code=coordinator_error(error))

    async def leave_group(self, request: LeaveGroupRequest, *, version: int) -> LeaveGroupResponse:
        """LeaveGroup. Before v3 one member leaves, and its error is that of the response."""
        batched = version >= _FIRST_BATCHED_LEAVE
        leavers = request.members if batched else [MemberIdentity(member_id=request.member_id)]
        try:
            _check_group_id(request.group_id)
            reply: Reply[list[MemberResponse]] = Reply()
            operation = partial(operations.leave, group_id=request.group_id, leavers=leavers, reply=reply)
            members = await self._write(request.group_id, operation, reply)
        except KafkaError as error:
            return LeaveGroupResponse(error_code=coordinator_error(error))
        if batched:
            return LeaveGroupResponse(members=members)
        return LeaveGroupResponse(error_code=members[0].error_code)

    async def consumer_group_heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        *,
        version: int,
        client_id: str = "",
        client_host: str = "",
        may_describe: TopicFilter = any_topic,
    ) -> ConsumerGroupHeartbeatResponse:
        """ConsumerGroupHeartbeat (KIP-848). Waits until what it changed is committed."""
        try:
            heartbeats.check(request, version, self.config.group_consumer_assignors)
            reply: Reply[ConsumerGroupHeartbeatResponse] = Reply()
            if heartbeats.leaves(request):
                return await self._write(
                    request.group_id, partial(consumer_groups.leave, request=request, reply=reply), reply
                )
            member_id = request.member_id or str(self._world.uuid())
            beat = heartbeats.Beat.of(request, member_id=member_id, client_id=client_id, client_host=client_host)
            operation = partial(
                consumer_groups.heartbeat,
                group_id=request.group_id,
                beat=beat,
                reply=reply,
                may_describe=may_describe,
            )
            return await self._write(request.group_id, operation, reply)
        except KafkaError as error:
            code = coordinator_error(error)
            message = _told(error) if code == getattr(error, "code", None) else None
            return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)

    # --- offsets ---

    async def commit_offsets(
        self, request: OffsetCommitRequest, *, version: int, may_read: TopicFilter = any_topic
    ) -> OffsetCommitResponse:
        """OffsetCommit. Waits until the positions are committed, at most ``offset_commit_timeout_ms``."""
        known, response = commits.resolve_topics(request, version, self._topics, may_read)
        if not known:
            return response
        try:
            reply: Reply[OffsetCommitResponse] = Reply()
            operation = partial(
                commits.commit, request=request, known=known, response=response, reply=reply, version=version
            )
            return await self._write(request.group_id, operation, reply)
        except KafkaError as error:
            return commits.commit_failed(request, offsets_append_error(error))

    async def fetch_offsets(
        self, request: OffsetFetchRequest, *, version: int, may_describe: TopicFilter = any_topic
    ) -> OffsetFetchResponse:
        """OffsetFetch, of one group or several. Answers at once, with committed positions only.

        With ``require_stable`` it waits until the newest positions are committed.
        """
        asked_groups = fetches.asked_groups(request, version)
        if request.require_stable:
            pending = [self._start_stable_fetch(asked, version, may_describe) for asked in asked_groups]
            groups = [await self._settled(asked, reply) for asked, reply in zip(asked_groups, pending, strict=True)]
        else:
            groups = [self._fetch_group(asked, version, may_describe) for asked in asked_groups]
        return fetches.as_response(request, groups, version)

    def _start_stable_fetch(
        self, asked: OffsetFetchRequestGroup, version: int, may_describe: TopicFilter
    ) -> Reply[OffsetFetchResponseGroup]:
        reply: Reply[OffsetFetchResponseGroup] = Reply()

        def fetch(shard: GroupShard, turn: GroupTurn) -> None:
            found = fetches.fetch_group(shard, asked, version, self._topics, may_describe, stable=True)
            turn.answer(reply, found)

        try:
            self._start(asked.group_id, fetch)
        except KafkaError as error:
            reply.fail(error)
        return reply

    @staticmethod
    async def _settled(
        asked: OffsetFetchRequestGroup, reply: Reply[OffsetFetchResponseGroup]
    ) -> OffsetFetchResponseGroup:
        try:
            return await reply.wait()
        except KafkaError as error:
            return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=coordinator_error(error))

    def _fetch_group(
        self, asked: OffsetFetchRequestGroup, version: int, may_describe: TopicFilter
    ) -> OffsetFetchResponseGroup:
        try:
            return self.runtime.read(
                self.partition_for(asked.group_id),
                lambda shard: fetches.fetch_group(shard, asked, version, self._topics, may_describe),
            )
        except KafkaError as error:
            return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=coordinator_error(error))

    async def delete_offsets(
        self, request: OffsetDeleteRequest, *, may_read: TopicFilter = any_topic
    ) -> OffsetDeleteResponse:
        """OffsetDelete. Waits until the removal is committed."""
        try:
            _check_group_id(request.group_id)
            reply: Reply[OffsetDeleteResponse] = Reply()
            operation = partial(
                deletes.delete_offsets, request=request, reply=reply, topics=self._topics, may_read=may_read
            )
            return await self._write(request.group_id, operation, reply)
        except KafkaError as error:
            return OffsetDeleteResponse(error_code=coordinator_error(error))

    # --- tools ---

    async def describe_groups(self, request: DescribeGroupsRequest, *, version: int) -> DescribeGroupsResponse:
        """DescribeGroups. Waits for nothing; with very many groups, others are served in between."""
        response = DescribeGroupsResponse()
        for group_id in request.groups:
            response.groups.append(self._describe(group_id, version))
            if not len(response.groups) % _GROUPS_AT_ONCE:
                await trio.lowlevel.checkpoint()
        return response

    def _describe(self, group_id: str, version: int) -> DescribedGroup:
        try:
            return self.runtime.read(
                self.partition_for(group_id), lambda shard: admin.describe(shard, group_id, version)
            )
        except KafkaError as error:
            return DescribedGroup(group_id=group_id, error_code=coordinator_error(error))

    async def consumer_group_describe(self, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
        """ConsumerGroupDescribe (KIP-848). Waits until what it shows is committed."""
        replies: list[Reply[DescribedConsumerGroup] | DescribedConsumerGroup] = []
        for group_id in request.group_ids:
            reply: Reply[DescribedConsumerGroup] = Reply()
            try:
                self._start(group_id, partial(consumer_groups.describe, group_id=group_id, reply=reply))
                replies.append(reply)
            except KafkaError as error:
                replies.append(_not_described(group_id, error))
        response = ConsumerGroupDescribeResponse()
        for group_id, found in zip(request.group_ids, replies, strict=True):
            if isinstance(found, Reply):
                try:
                    found = await found.wait()
                except KafkaError as error:
                    found = _not_described(group_id, error)
            response.groups.append(found)
        return response

    async def list_groups(self, request: ListGroupsRequest) -> ListGroupsResponse:
        """ListGroups: those of the shards here. With a shard still loading the list is partial and says so."""
        states = {state.lower() for state in request.states_filter}
        types = {kind.lower() for kind in request.types_filter}
        response = ListGroupsResponse()
        try:
            self.runtime.check_running()
        except KafkaError as error:
            response.error_code = coordinator_error(error)
        for partition in self.runtime.active_partitions():
            response.groups.extend(self.runtime.read(partition, lambda shard: admin.list_groups(shard, states, types)))
        if self.runtime.is_loading:
            response.error_code = CoordinatorLoadInProgressError.code
        return response

    async def delete_groups(self, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        """DeleteGroups, with one append per shard, or several for very many positions; others are served in between.
        Waits until every removal is committed or refused. Cancelled, it may leave a group with a part of its positions.
        """
        replies: dict[str, Reply[DeletableGroupResult]] = {name: Reply() for name in request.groups_names}
        by_partition: dict[int, list[str]] = {}
        for group_id in replies:
            by_partition.setdefault(self.partition_for(group_id), []).append(group_id)
        for partition, group_ids in by_partition.items():
            await self._delete(partition, {group_id: replies[group_id] for group_id in group_ids})
        response = DeleteGroupsResponse()
        for group_id, reply in replies.items():
            try:
                result = await reply.wait()
            except KafkaError as error:
                result = DeletableGroupResult(group_id=group_id, error_code=coordinator_error(error))
            response.results.append(result)
        return response

    async def _delete(self, partition: int, replies: dict[str, Reply[DeletableGroupResult]]) -> None:
        left = list(replies)

        def delete(shard: GroupShard, turn: GroupTurn) -> None:
            nonlocal left
            left = admin.delete_groups(shard, {group_id: replies[group_id] for group_id in left}, turn)

        while left and not replies[left[0]].is_set:
            try:
                self.runtime.write(partition, delete)
            except KafkaError as error:
                # Not for those before them: they are gone, and their answers may be on the way.
                for group_id in left:
                    replies[group_id].fail(error)
            await trio.lowlevel.checkpoint()

    # --- shards ---

    def _start(self, group_id: str, operation: Operation) -> None:
        self.runtime.write(self.partition_for(group_id), lambda shard, turn: operation(shard=shard, turn=turn))

    async def _write(self, group_id: str, operation: Operation, reply: Reply[T]) -> T:
        self._start(group_id, operation)
        return await reply.wait()


def _not_described(group_id: str, error: KafkaError) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(group_id=group_id, error_code=coordinator_error(error), error_message=_told(error))


def _told(error: KafkaError) -> str:
    """What a client is told of an error, which may quote what the client has sent, however long that was."""
    return str(error)[:_LONGEST_MESSAGE]


def _check_group_id(group_id: str) -> None:
    if not group_id:
        raise InvalidGroupIdError("the group id is empty")
