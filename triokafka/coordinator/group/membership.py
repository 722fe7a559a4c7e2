"""Group membership requests on a shard: find or create the group, and dispatch by its protocol.

The operations on offsets have the same shape and are in ``offsets/``; those for administrators are in
``group/admin.py``.
"""

from __future__ import annotations

from triokafka.coordinator.classic_group import join as joins
from triokafka.coordinator.classic_group import liveness
from triokafka.coordinator.classic_group import sync as syncs
from triokafka.coordinator.classic_group.classic_group import ClassicGroup
from triokafka.coordinator.classic_group.join import Joiner
from triokafka.coordinator.consumer_group import classic_members
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.records import GroupEffects
from triokafka.coordinator.runtime.reply import Reply
from triokafka.errors import UnknownMemberIdError
from triokafka.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from triokafka.protocol.api.join_group import JoinGroupResponse
from triokafka.protocol.api.leave_group import MemberIdentity, MemberResponse
from triokafka.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse


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
    error_code = liveness.heartbeat(_group(shard, request.group_id), request, effects)
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
    effects.answer(reply, liveness.leave(group, leavers, shard.config, effects))


def _group(shard: GroupShard, group_id: str) -> ClassicGroup:
    group = shard.groups.get(group_id)
    if group is None:
        raise UnknownMemberIdError(f"group {group_id!r} does not exist")
    return group
