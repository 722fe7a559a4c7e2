"""The group coordinator of one broker: one method per API, from protocol message to protocol message.

Membership is here; requests for offsets are in `offset_requests`, those for administrators in `tool_requests`. A method
validates what needs no group, sends the request to the shard of the group, and turns errors into the API's own error
response.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final
from uuid import UUID

from triokafka.coordinator.classic_group.join import Joiner
from triokafka.coordinator.consumer_group import heartbeat as heartbeats
from triokafka.coordinator.consumer_group import operations as consumer_groups
from triokafka.coordinator.group import membership as operations
from triokafka.coordinator.group.admin_requests import ToolRequests
from triokafka.coordinator.group.append_errors import coordinator_error, group_append_error
from triokafka.coordinator.group.config import GroupCoordinatorConfig, GroupSettings, no_settings
from triokafka.coordinator.group.members import KnownMember, end_session, known_members
from triokafka.coordinator.group.metrics import GroupCounts, count_groups
from triokafka.coordinator.group.offset_requests import OffsetRequests
from triokafka.coordinator.group.requests import check_group_id, client_message
from triokafka.coordinator.group.topics_view import TopicFilter, TopicsView, any_topic
from triokafka.coordinator.offsets import deleted_topics
from triokafka.coordinator.runtime.coordinator_log import CoordinatorLog
from triokafka.coordinator.runtime.reply import Reply
from triokafka.errors import (
    CoordinatorLoadInProgressError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    KafkaError,
    RebalanceInProgressError,
)
from triokafka.protocol.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from triokafka.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from triokafka.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse
from triokafka.protocol.api.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from triokafka.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse
from triokafka.world import World

_FIRST_BATCHED_LEAVE: Final = 3
_FIRST_SYNC_WITH_PROTOCOL: Final = 5


class GroupCoordinator(OffsetRequests, ToolRequests):
    """Groups and their offsets, on the partitions of ``__consumer_offsets`` that this broker leads.

    The broker calls `load` and `unload` when leadership changes and `high_watermark_changed` when records are
    committed, and runs `run` in its nursery. Every answer waits until the state behind it is committed.

    Cancelling a waiting request (its client disconnected) undoes nothing: a member that has joined stays in the group
    until its session expires.

    Args:
        log: the partitions of ``__consumer_offsets``.
        topics: the current names, ids and partition counts of topics.
        own_settings: configuration overrides per group, under Kafka's names.
    """

    def __init__(
        self,
        world: World,
        log: CoordinatorLog,
        topics: TopicsView,
        config: GroupCoordinatorConfig | None = None,
        own_settings: GroupSettings = no_settings,
    ) -> None:
        super().__init__(world, log, topics, config or GroupCoordinatorConfig(), own_settings)

    # --- the broker's side ---

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
        """Return the members of a group, sorted by member id; an empty list when the group does not exist.

        Raises:
            NotCoordinatorError: this broker does not coordinate the group.
            CoordinatorLoadInProgressError: the group's partition is still loading.
        """
        return self.runtime.read(self.partition_for(group_id), lambda shard: known_members(shard, group_id))

    def expire_member(self, group_id: str, member_id: str) -> None:
        """Expire a member's session now, as if the member had been silent for its session timeout; for tests.

        A member whose JoinGroup waits for an answer counts as alive and gets a new session, as on a real expiry.

        Raises:
            UnknownMemberIdError: the group has no such member.
            NotCoordinatorError: this broker does not coordinate the group.
            CoordinatorLoadInProgressError: the group's partition is still loading.
        """
        self.runtime.write(
            self.partition_for(group_id), lambda shard, effects: end_session(shard, group_id, member_id, effects)
        )
        self.runtime.fire_due()

    async def run(self) -> None:
        """Load shards and fire deadlines until cancelled; then fail all waiting requests."""
        try:
            await self.runtime.run()
        finally:
            self.stop()

    def stop(self) -> None:
        """See `CoordinatorRuntime.stop`."""
        self.runtime.stop()

    def topics_deleted(self, topics: Mapping[UUID, str]) -> None:
        """Remove all committed offsets of deleted topics, given by id and name. A loading shard does so once loaded."""
        self.runtime.write_everywhere(lambda shard, effects: deleted_topics.topics_deleted(shard, topics, effects))

    def count_groups(self) -> GroupCounts:
        """Count groups by state, and offsets, in the shards of this broker. Takes time linear in the groups."""
        partitions = self.runtime.active_partitions()
        return count_groups([self.runtime.read(partition, lambda shard: shard) for partition in partitions])

    # --- membership ---

    async def join_group(
        self, request: JoinGroupRequest, *, version: int, client_id: str = "", client_host: str = ""
    ) -> JoinGroupResponse:
        """Handle JoinGroup. Waits until the rebalance completes: at most the largest rebalance timeout of a member."""
        try:
            check_group_id(request.group_id)
            limits = self.config.group_min_session_timeout_ms, self.config.group_max_session_timeout_ms
            if not limits[0] <= request.session_timeout_ms <= limits[1]:
                raise InvalidSessionTimeoutError(
                    f"session timeout {request.session_timeout_ms} ms is not within {limits[0]} to {limits[1]} ms"
                )
            joiner = Joiner.of(request, version=version, client_id=client_id, client_host=client_host)
            reply: Reply[JoinGroupResponse] = Reply()
            return await self.ask(request.group_id, partial(operations.join, joiner=joiner, reply=reply), reply)
        except KafkaError as error:
            return JoinGroupResponse(error_code=group_append_error(error), member_id=request.member_id)

    async def sync_group(
        self, request: SyncGroupRequest, *, version: int = _FIRST_SYNC_WITH_PROTOCOL - 1
    ) -> SyncGroupResponse:
        """Handle SyncGroup. Waits until the leader's assignment is stored: at most the rebalance timeout."""
        try:
            check_group_id(request.group_id)
            if version >= _FIRST_SYNC_WITH_PROTOCOL and None in (request.protocol_type, request.protocol_name):
                raise InconsistentGroupProtocolError("SyncGroup v5 and later must name protocol_type and protocol_name")
            reply: Reply[SyncGroupResponse] = Reply()
            return await self.ask(request.group_id, partial(operations.sync, request=request, reply=reply), reply)
        except CoordinatorLoadInProgressError:
            # The rebalance was soft state and is lost. The member only needs to rejoin, on this broker.
            return SyncGroupResponse(error_code=RebalanceInProgressError.code)
        except KafkaError as error:
            return SyncGroupResponse(error_code=group_append_error(error))

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        """Handle Heartbeat. While the shard loads, every heartbeat succeeds, so that members need not rejoin after a
        failover."""
        try:
            check_group_id(request.group_id)
            reply: Reply[HeartbeatResponse] = Reply()
            operation = partial(operations.heartbeat, request=request, reply=reply)
            return await self.ask(request.group_id, operation, reply)
        except CoordinatorLoadInProgressError:
            return HeartbeatResponse()
        except KafkaError as error:
            return HeartbeatResponse(error_code=coordinator_error(error))

    async def leave_group(self, request: LeaveGroupRequest, *, version: int) -> LeaveGroupResponse:
        """Handle LeaveGroup. Before v3 one member leaves, and the response carries its error."""
        batched = version >= _FIRST_BATCHED_LEAVE
        leavers = request.members if batched else [MemberIdentity(member_id=request.member_id)]
        try:
            check_group_id(request.group_id)
            reply: Reply[list[MemberResponse]] = Reply()
            operation = partial(operations.leave, group_id=request.group_id, leavers=leavers, reply=reply)
            members = await self.ask(request.group_id, operation, reply)
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
        """Handle ConsumerGroupHeartbeat (KIP-848). Waits until its changes are committed."""
        try:
            heartbeats.check(request, version, self.config.group_consumer_assignors)
            reply: Reply[ConsumerGroupHeartbeatResponse] = Reply()
            if heartbeats.leaves(request):
                return await self.ask(
                    request.group_id, partial(consumer_groups.leave, request=request, reply=reply), reply
                )
            member_id = request.member_id or str(self.world.uuid())
            beat = heartbeats.Beat.of(request, member_id=member_id, client_id=client_id, client_host=client_host)
            operation = partial(
                consumer_groups.heartbeat,
                group_id=request.group_id,
                beat=beat,
                reply=reply,
                may_describe=may_describe,
            )
            return await self.ask(request.group_id, operation, reply)
        except KafkaError as error:
            code = coordinator_error(error)
            message = client_message(error) if code == getattr(error, "code", None) else None
            return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)
