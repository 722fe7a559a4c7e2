"""Heartbeat: a classic member extends its session, and learns of a rebalance."""

from __future__ import annotations

from triokafka.coordinator.classic_group import rebalance
from triokafka.coordinator.classic_group.classic_group import ClassicGroup
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.group.records import GroupEffects
from triokafka.errors import RebalanceInProgressError, UnknownMemberIdError
from triokafka.protocol.api.heartbeat import HeartbeatRequest


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
