"""What each membership request does to the shard that keeps its group: find or make the group, and pass the request on.

The operations on offsets have the same shape and are in ``offsets/``; those of tools are in ``group/admin.py``.
"""

from __future__ import annotations

from triokafka.coordinator.consumer_group import classic_members
from triokafka.coordinator.group import join as joins
from triokafka.coordinator.group import liveness
from triokafka.coordinator.group import sync as syncs
from triokafka.coordinator.group.classic import ClassicGroup
from triokafka.coordinator.group.join import Joiner
from triokafka.coordinator.shard import GroupShard
from triokafka.coordinator.stored import GroupTurn
from triokafka.coordinator.turn import Reply
from triokafka.errors import UnknownMemberIdError
from triokafka.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from triokafka.protocol.api.join_group import JoinGroupResponse
from triokafka.protocol.api.leave_group import MemberIdentity, MemberResponse
from triokafka.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse


def join(shard: GroupShard, joiner: Joiner, reply: Reply[JoinGroupResponse], turn: GroupTurn) -> None:
    """A member joins; one without an id makes the group if need be, also in the place of a consumer
    group that has no members. One that has some takes it in as it is."""
    request = joiner.request
    consumer_group = shard.consumer_groups.get(request.group_id)
    if consumer_group is not None:
        if consumer_group.profiles:
            classic_members.join(shard, consumer_group, joiner, reply, turn)
            return
        for change in consumer_group.removal():
            turn.write(change)
    group = shard.groups.get(request.group_id)
    if group is None and request.member_id:
        raise UnknownMemberIdError(f"there is no group {request.group_id!r}")
    if group is None or not shard.is_stored(request.group_id):
        group = shard.create(request.group_id, turn)
    joins.join(group, joiner, reply, config=shard.config, new_id=shard.new_id, turn=turn)


def sync(shard: GroupShard, request: SyncGroupRequest, reply: Reply[SyncGroupResponse], turn: GroupTurn) -> None:
    """A member wants its assignment, or brings everybody's."""
    consumer_group = shard.consumer_groups.get(request.group_id)
    if consumer_group is not None:
        classic_members.sync(shard, consumer_group, request, reply, turn)
        return
    syncs.sync(_group(shard, request.group_id), request, reply, config=shard.config, counters=shard.counters, turn=turn)


def heartbeat(shard: GroupShard, request: HeartbeatRequest, reply: Reply[HeartbeatResponse], turn: GroupTurn) -> None:
    """A member is alive."""
    consumer_group = shard.consumer_groups.get(request.group_id)
    if consumer_group is not None:
        classic_members.heartbeat(shard, consumer_group, request, reply, turn)
        return
    error_code = liveness.heartbeat(_group(shard, request.group_id), request, turn)
    turn.answer(reply, HeartbeatResponse(error_code=error_code))


def leave(
    shard: GroupShard,
    group_id: str,
    leavers: list[MemberIdentity],
    reply: Reply[list[MemberResponse]],
    turn: GroupTurn,
) -> None:
    """Members leave, or are removed."""
    consumer_group = shard.consumer_groups.get(group_id)
    if consumer_group is not None:
        turn.answer(reply, classic_members.leave(shard, consumer_group, leavers, turn))
        return
    turn.answer(reply, liveness.leave(_group(shard, group_id), leavers, shard.config, turn))


def _group(shard: GroupShard, group_id: str) -> ClassicGroup:
    group = shard.groups.get(group_id)
    if group is None:
        raise UnknownMemberIdError(f"there is no group {group_id!r}")
    return group
