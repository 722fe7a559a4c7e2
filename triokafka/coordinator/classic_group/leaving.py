"""LeaveGroup: classic members leave, or an administrator removes them."""

from __future__ import annotations

from triokafka.coordinator.classic_group import rebalance
from triokafka.coordinator.classic_group.classic_group import ClassicGroup
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.group.config import GroupCoordinatorConfig
from triokafka.coordinator.group.records import GroupEffects
from triokafka.errors import BrokerResponseError, UnknownMemberIdError
from triokafka.protocol.api.leave_group import MemberIdentity, MemberResponse


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
