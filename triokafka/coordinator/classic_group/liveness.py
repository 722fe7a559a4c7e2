"""Liveness of classic members: heartbeats, session expiry and LeaveGroup."""

from __future__ import annotations

from triokafka.coordinator.classic_group import rebalance
from triokafka.coordinator.classic_group.classic_group import ClassicGroup
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.group.config import GroupCoordinatorConfig
from triokafka.coordinator.group.records import GroupEffects
from triokafka.errors import BrokerResponseError, RebalanceInProgressError, UnknownMemberIdError
from triokafka.protocol.api.heartbeat import HeartbeatRequest
from triokafka.protocol.api.leave_group import MemberIdentity, MemberResponse


def heartbeat(group: ClassicGroup, request: HeartbeatRequest, effects: GroupEffects) -> int:
    """Extend the member's session and return the error code of the Heartbeat response.

    While members are joining, the code is REBALANCE_IN_PROGRESS. While the group waits for the leader's assignment, the
    heartbeat succeeds: a client may heartbeat as soon as its JoinGroup is answered.

    Raises:
        UnknownMemberIdError: the group is dead or empty, or has no such member or instance.
        FencedInstanceIdError: another member now has the instance id.
        IllegalGenerationError: the request is from another generation.
    """
    if group.state in (GroupState.DEAD, GroupState.EMPTY):
        raise UnknownMemberIdError(f"group {group.group_id!r} has no members")
    member = group.member_of_generation(request.member_id, request.group_instance_id, request.generation_id)
    rebalance.start_session(group, member, effects)
    return RebalanceInProgressError.code if group.state is GroupState.PREPARING_REBALANCE else 0


def session_over(group: ClassicGroup, member_id: str, config: GroupCoordinatorConfig, effects: GroupEffects) -> None:
    """Handle an expired session: remove the member, unless it waits for an answer from the coordinator."""
    if member_id in group.pending_members:
        # A pending member was in no generation: a rebalance may have waited for it, but none need start.
        rebalance.drop_member(group, member_id, effects)
        rebalance.maybe_complete_join(group, effects)
        return
    member = group.members.get(member_id)
    if member is None:
        return
    if member.is_waiting:
        rebalance.start_session(group, member, effects)
        return
    rebalance.member_gone(group, member_id, f"the session of {member_id} expired", config, effects)


def leave(
    group: ClassicGroup, leavers: list[MemberIdentity], config: GroupCoordinatorConfig, effects: GroupEffects
) -> list[MemberResponse]:
    """Remove members that leave, or that an administrator removes by instance id; each has its own response."""
    before = len(group.members)
    responses = [_leave_one(group, leaver, effects) for leaver in leavers]
    gone = [response for response in responses if not response.error_code]
    if gone and len(group.members) == before:  # only pending members left
        rebalance.maybe_complete_join(group, effects)
    elif gone:
        reasons = [leaver.reason for leaver in leavers if leaver.reason]
        names = ", ".join(response.member_id or response.group_instance_id or "" for response in gone[:5])
        rebalance.after_departure(
            group, f"{names} left" + (f"; reason: {reasons[0]}" if reasons else ""), config, effects
        )
    return responses


def _leave_one(group: ClassicGroup, leaver: MemberIdentity, effects: GroupEffects) -> MemberResponse:
    member_id, error_code = leaver.member_id, 0
    try:
        if group.state is GroupState.DEAD:
            raise UnknownMemberIdError(f"group {group.group_id!r} is dead")
        if not member_id:
            owner = group.static_members.get(leaver.group_instance_id or "")
            if owner is None:
                raise UnknownMemberIdError(f"group {group.group_id!r} has no instance {leaver.group_instance_id!r}")
            member_id = owner
        elif member_id not in group.pending_members:
            group.member_for(member_id, leaver.group_instance_id)
        rebalance.drop_member(group, member_id, effects)
    except BrokerResponseError as error:
        error_code = error.code
    return MemberResponse(member_id=leaver.member_id, group_instance_id=leaver.group_instance_id, error_code=error_code)
