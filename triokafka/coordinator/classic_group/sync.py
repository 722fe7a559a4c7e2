"""SyncGroup: the leader sends the assignment, and every member receives its part."""

from __future__ import annotations

from triokafka.coordinator.classic_group import rebalance
from triokafka.coordinator.classic_group.classic_group import ClassicGroup
from triokafka.coordinator.classic_group.member import Member
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.classic_group.stored_group import group_change
from triokafka.coordinator.group.append_errors import group_append_error
from triokafka.coordinator.group.config import GroupCoordinatorConfig
from triokafka.coordinator.group.group_counters import GroupCounters
from triokafka.coordinator.group.records import GroupEffects
from triokafka.coordinator.runtime.reply import Reply
from triokafka.errors import (
    BrokerResponseError,
    InconsistentGroupProtocolError,
    KafkaError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from triokafka.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse


def sync(
    group: ClassicGroup,
    request: SyncGroupRequest,
    reply: Reply[SyncGroupResponse],
    *,
    config: GroupCoordinatorConfig,
    counters: GroupCounters,
    effects: GroupEffects,
) -> None:
    """Handle SyncGroup of a member of the new generation; the leader's request carries the assignment of all."""
    try:
        member = _checked(group, request)
    except BrokerResponseError as error:
        effects.answer(reply, SyncGroupResponse(error_code=error.code))
        return
    rebalance.start_session(group, member, effects)
    rebalance.sync_arrived(group, member.member_id, effects)
    if group.state is GroupState.STABLE:
        effects.answer(reply, _assigned(group, member))
        return
    older, member.sync_reply = member.sync_reply, reply
    if older is not None:
        effects.answer(older, SyncGroupResponse(error_code=RebalanceInProgressError.code))
    # A leader may repeat its SyncGroup after a timeout, with a different assignment, while the commit of the first is
    # still undecided. Only one assignment per generation is appended.
    if member.member_id == group.leader_id and group.storing_generation != group.generation:
        _store(group, request, config, counters, effects)


def _checked(group: ClassicGroup, request: SyncGroupRequest) -> Member:
    """Return the member that syncs. Checks in Kafka's order and raises the first error."""
    if group.state is GroupState.DEAD:
        raise UnknownMemberIdError(f"group {group.group_id!r} is dead")
    member = group.member_of_generation(request.member_id, request.group_instance_id, request.generation_id)
    for asked, actual in ((request.protocol_type, group.protocol_type), (request.protocol_name, group.protocol)):
        if asked is not None and asked != actual:
            raise InconsistentGroupProtocolError(
                f"group {group.group_id!r} uses protocol {actual!r}; the request names {asked!r}"
            )
    if group.state is GroupState.PREPARING_REBALANCE:
        raise RebalanceInProgressError(f"group {group.group_id!r} is rebalancing")
    return member


def _store(
    group: ClassicGroup,
    request: SyncGroupRequest,
    config: GroupCoordinatorConfig,
    counters: GroupCounters,
    effects: GroupEffects,
) -> None:
    """Append the assignment; members that the leader omitted get an empty one."""
    assignments = {a.member_id: bytes(a.assignment) for a in request.assignments if a.member_id in group.members}
    generation = group.generation
    group.storing_generation = generation

    def still_wanted() -> bool:
        return group.state is GroupState.COMPLETING_REBALANCE and group.generation == generation

    def committed(later: GroupEffects) -> None:
        if not still_wanted():
            return
        group.storing_generation = None
        group.transition_to(GroupState.STABLE, later.at.wall_ms)
        counters.completed_rebalances += 1
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            rebalance.answer_sync(group, member, _assigned(group, member), later)

    def failed(error: KafkaError, later: GroupEffects) -> None:
        if not still_wanted():
            return
        group.storing_generation = None
        rebalance.fail_syncs(group, group_append_error(error), later)
        rebalance.prepare_rebalance(group, f"the assignment could not be stored: {error}", config, later)

    effects.write(group_change(group, assignments))
    effects.on_committed, effects.on_failed = committed, failed


def _assigned(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )
