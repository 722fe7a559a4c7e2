"""Heartbeats, sessions and leaving: how the coordinator knows that a member is there."""

from __future__ import annotations

from triokafka.coordinator.config import GroupCoordinatorConfig
from triokafka.coordinator.group import rounds
from triokafka.coordinator.group.classic import ClassicGroup
from triokafka.coordinator.group.state import GroupState
from triokafka.coordinator.stored import GroupTurn
from triokafka.errors import BrokerResponseError, RebalanceInProgressError, UnknownMemberIdError
from triokafka.protocol.api.heartbeat import HeartbeatRequest
from triokafka.protocol.api.leave_group import MemberIdentity, MemberResponse


def heartbeat(group: ClassicGroup, request: HeartbeatRequest, turn: GroupTurn) -> int:
    """A member says that it is alive; the error code tells it what to do next.

    While members are joining it is told to rejoin, and its session goes on. While the assignment is awaited it is fine:
    a client may heartbeat from the moment its join is answered.

    Raises:
        UnknownMemberIdError: the group is gone or empty, or has no such member or instance.
        FencedInstanceIdError: the instance belongs to another process now.
        IllegalGenerationError: the member is of an older generation.
    """
    if group.state in (GroupState.DEAD, GroupState.EMPTY):
        raise UnknownMemberIdError(f"group {group.group_id!r} has no members")
    member = group.member_of_generation(request.member_id, request.group_instance_id, request.generation_id)
    rounds.start_session(group, member, turn)
    return RebalanceInProgressError.code if group.state is GroupState.PREPARING_REBALANCE else 0


def session_over(group: ClassicGroup, member_id: str, config: GroupCoordinatorConfig, turn: GroupTurn) -> None:
    """A member's session ended without a sign of it. One that the coordinator keeps waiting is not dead."""
    if member_id in group.pending_members:
        # It was never part of a generation: a round may have waited for it, but nobody need rebalance.
        rounds.drop_member(group, member_id, turn)
        rounds.maybe_complete_join(group, turn)
        return
    member = group.members.get(member_id)
    if member is None:
        return
    if member.is_waiting:
        rounds.start_session(group, member, turn)
        return
    rounds.member_gone(group, member_id, f"{member_id} was silent for too long", config, turn)


def leave(
    group: ClassicGroup, leavers: list[MemberIdentity], config: GroupCoordinatorConfig, turn: GroupTurn
) -> list[MemberResponse]:
    """Members leave, or are removed by an administrator who names their instances; each has its own answer."""
    before = len(group.members)
    responses = [_leave_one(group, leaver, turn) for leaver in leavers]
    gone = [response for response in responses if not response.error_code]
    if gone and len(group.members) == before:  # only such as were promised an id
        rounds.maybe_complete_join(group, turn)
    elif gone:
        reasons = [leaver.reason for leaver in leavers if leaver.reason]
        names = ", ".join(response.member_id or response.group_instance_id or "" for response in gone[:5])
        rounds.after_departure(group, f"{names} left" + (f"; it says: {reasons[0]}" if reasons else ""), config, turn)
    return responses


def _leave_one(group: ClassicGroup, leaver: MemberIdentity, turn: GroupTurn) -> MemberResponse:
    member_id, error_code = leaver.member_id, 0
    try:
        if group.state is GroupState.DEAD:
            raise UnknownMemberIdError(f"group {group.group_id!r} is gone")
        if not member_id:
            owner = group.static_members.get(leaver.group_instance_id or "")
            if owner is None:
                raise UnknownMemberIdError(f"group {group.group_id!r} has no instance {leaver.group_instance_id!r}")
            member_id = owner
        elif member_id not in group.pending_members:
            group.member_for(member_id, leaver.group_instance_id)
        rounds.drop_member(group, member_id, turn)
    except BrokerResponseError as error:
        error_code = error.code
    return MemberResponse(member_id=leaver.member_id, group_instance_id=leaver.group_instance_id, error_code=error_code)
