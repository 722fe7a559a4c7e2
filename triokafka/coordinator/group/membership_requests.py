"""The group coordinator's requests from members: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, ConsumerGroupHeartbeat.

A method validates what needs no group, sends the request to the shard of the group, and turns errors into the API's own
error response. There a function finds or creates the group, and dispatches by its protocol.
"""

from __future__ import annotations

from typing import Final

from triokafka.coordinator.classic_group import heartbeat as heartbeats
from triokafka.coordinator.classic_group import join as joins
from triokafka.coordinator.classic_group import leaving as leavings
from triokafka.coordinator.classic_group import sync as syncs
from triokafka.coordinator.classic_group.classic_group import ClassicGroup
from triokafka.coordinator.classic_group.join import Joiner
from triokafka.coordinator.consumer_group import classic_members
from triokafka.coordinator.consumer_group import heartbeat as consumer_heartbeat
from triokafka.coordinator.consumer_group import leaving as consumer_leaving
from triokafka.coordinator.consumer_group.heartbeat import Beat
from triokafka.coordinator.group.append_errors import coordinator_error, group_append_error
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.group_shards import GroupShards, check_group_id, client_message
from triokafka.coordinator.group.records import GroupEffects
from triokafka.coordinator.group.topics_view import TopicFilter, any_topic
from triokafka.coordinator.runtime.reply import Reply
from triokafka.errors import (
    CoordinatorLoadInProgressError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    KafkaError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from triokafka.protocol.api.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from triokafka.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from triokafka.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse
from triokafka.protocol.api.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from triokafka.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse

_FIRST_BATCHED_LEAVE: Final = 3
_FIRST_SYNC_WITH_PROTOCOL: Final = 5


class MembershipRequests:
    """The requests of members, one method per API."""

    def __init__(self, shards: GroupShards) -> None:
        self._shards = shards
        self._config = shards.config

    async def join_group(
        self, request: JoinGroupRequest, *, version: int, client_id: str = "", client_host: str = ""
    ) -> JoinGroupResponse:
        """Handle JoinGroup. Waits until the rebalance completes: at most the largest rebalance timeout of a member."""
        try:
            check_group_id(request.group_id)
            limits = self._config.group_min_session_timeout_ms, self._config.group_max_session_timeout_ms
            if not limits[0] <= request.session_timeout_ms <= limits[1]:
                raise InvalidSessionTimeoutError(
                    f"session timeout {request.session_timeout_ms} ms is not within {limits[0]} to {limits[1]} ms"
                )
            joiner = Joiner.of(request, version=version, client_id=client_id, client_host=client_host)
            reply: Reply[JoinGroupResponse] = Reply()
            return await self._shards.ask(
                request.group_id, lambda shard, effects: join(shard, joiner, reply, effects), reply
            )
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
            return await self._shards.ask(
                request.group_id, lambda shard, effects: sync(shard, request, reply, effects), reply
            )
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
            return await self._shards.ask(
                request.group_id, lambda shard, effects: heartbeat(shard, request, reply, effects), reply
            )
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
            members = await self._shards.ask(
                request.group_id,
                lambda shard, effects: leave(shard, request.group_id, leavers, reply, effects),
                reply,
            )
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
            consumer_heartbeat.check(request, version, self._config.group_consumer_assignors)
            reply: Reply[ConsumerGroupHeartbeatResponse] = Reply()
            if consumer_heartbeat.leaves(request):
                return await self._shards.ask(
                    request.group_id,
                    lambda shard, effects: consumer_leaving.leave(shard, request, reply, effects),
                    reply,
                )
            member_id = request.member_id or str(self._shards.world.uuid())
            beat = Beat.of(request, member_id=member_id, client_id=client_id, client_host=client_host)
            return await self._shards.ask(
                request.group_id,
                lambda shard, effects: consumer_heartbeat.heartbeat(
                    shard, request.group_id, beat, reply, effects, may_describe
                ),
                reply,
            )
        except KafkaError as error:
            code = coordinator_error(error)
            message = client_message(error) if code == getattr(error, "code", None) else None
            return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)


def join(shard: GroupShard, joiner: Joiner, reply: Reply[JoinGroupResponse], effects: GroupEffects) -> None:
    """Handle JoinGroup. A join without a member id creates the group if it does not exist, and replaces a consumer
    group that has no members. A consumer group with members takes the classic member in."""
    request = joiner.request
    consumer_group = shard.consumer_groups.get(request.group_id)
    if consumer_group is not None:
        if consumer_group.profiles:
            classic_members.join(shard, consumer_group, joiner, reply, effects)
            return
        effects.write(*consumer_group.removal())
    group = shard.groups.get(request.group_id)
    if group is None and request.member_id:
        raise UnknownMemberIdError(f"group {request.group_id!r} does not exist")
    if group is None or not shard.is_stored(request.group_id):
        group = shard.create(request.group_id, effects)
    joins.join(group, joiner, reply, config=shard.config, new_id=shard.new_id, effects=effects)


def sync(shard: GroupShard, request: SyncGroupRequest, reply: Reply[SyncGroupResponse], effects: GroupEffects) -> None:
    """Handle SyncGroup: return the member's assignment; the leader's request carries the assignment of all members."""
    consumer_group = shard.consumer_groups.get(request.group_id)
    if consumer_group is not None:
        classic_members.sync(shard, consumer_group, request, reply, effects)
        return
    syncs.sync(
        _group(shard, request.group_id), request, reply, config=shard.config, counters=shard.counters, effects=effects
    )


def heartbeat(
    shard: GroupShard, request: HeartbeatRequest, reply: Reply[HeartbeatResponse], effects: GroupEffects
) -> None:
    """Handle Heartbeat."""
    consumer_group = shard.consumer_groups.get(request.group_id)
    if consumer_group is not None:
        classic_members.heartbeat(shard, consumer_group, request, reply, effects)
        return
    error_code = heartbeats.heartbeat(_group(shard, request.group_id), request, effects)
    effects.answer(reply, HeartbeatResponse(error_code=error_code))


def leave(
    shard: GroupShard,
    group_id: str,
    leavers: list[MemberIdentity],
    reply: Reply[list[MemberResponse]],
    effects: GroupEffects,
) -> None:
    """Handle LeaveGroup: remove the given members."""
    consumer_group = shard.consumer_groups.get(group_id)
    if consumer_group is not None:
        effects.answer(reply, classic_members.leave(shard, consumer_group, leavers, effects))
        return
    group = shard.groups.get(group_id)
    if group is None:
        unknown = UnknownMemberIdError.code
        effects.answer(
            reply,
            [
                MemberResponse(
                    member_id=leaver.member_id, group_instance_id=leaver.group_instance_id, error_code=unknown
                )
                for leaver in leavers
            ],
        )
        return
    effects.answer(reply, leavings.leave(group, leavers, shard.config, effects))


def _group(shard: GroupShard, group_id: str) -> ClassicGroup:
    group = shard.groups.get(group_id)
    if group is None:
        raise UnknownMemberIdError(f"group {group_id!r} does not exist")
    return group
