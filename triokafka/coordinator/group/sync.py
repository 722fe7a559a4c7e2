"""SyncGroup: the leader sends the assignment, and every member receives its part."""

from __future__ import annotations

from triokafka.coordinator.config import GroupCoordinatorConfig
from triokafka.coordinator.group import rounds
from triokafka.coordinator.group.append_errors import group_append_error
from triokafka.coordinator.group.classic import ClassicGroup
from triokafka.coordinator.group.member import Member
from triokafka.coordinator.group.state import GroupState
from triokafka.coordinator.group.stored import group_change
from triokafka.coordinator.metrics import GroupCounters
from triokafka.coordinator.stored import GroupTurn
from triokafka.coordinator.turn import Reply
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
    turn: GroupTurn,
) -> None:
    """Handle SyncGroup of a member of the new generation; the leader's request carries the assignment of all."""
    try:
        member = _checked(group, request)
    except BrokerResponseError as error:
        turn.answer(reply, SyncGroupResponse(error_code=error.code))
        return
    rounds.start_session(group, member, turn)
    rounds.sync_arrived(group, member.member_id, turn)
    if group.state is GroupState.STABLE:
        turn.answer(reply, _assigned(group, member))
        return
    older, member.sync_reply = member.sync_reply, reply
    if older is not None:
        turn.answer(older, SyncGroupResponse(error_code=RebalanceInProgressError.code))
    # A leader may repeat its SyncGroup after a timeout, with a different assignment, while the commit of the first is
    # still undecided. Only one assignment per generation is appended.
    if member.member_id == group.leader_id and group.storing_generation != group.generation:
        _store(group, request, config, counters, turn)


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
    turn: GroupTurn,
) -> None:
    """Append the assignment; members that the leader omitted get an empty one."""
    assignments = {a.member_id: bytes(a.assignment) for a in request.assignments if a.member_id in group.members}
    generation = group.generation
    group.storing_generation = generation

    def still_wanted() -> bool:
        return group.state is GroupState.COMPLETING_REBALANCE and group.generation == generation

    def committed(later: GroupTurn) -> None:
        if not still_wanted():
            return
        group.storing_generation = None
        group.transition_to(GroupState.STABLE, later.at.wall_ms)
        counters.completed_rebalances += 1
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            rounds.answer_sync(group, member, _assigned(group, member), later)

    def failed(error: KafkaError, later: GroupTurn) -> None:
        if not still_wanted():
            return
        group.storing_generation = None
        rounds.fail_syncs(group, group_append_error(error), later)
        rounds.prepare_rebalance(group, f"the assignment could not be stored: {error}", config, later)

    turn.write(group_change(group, assignments))
    turn.on_committed, turn.on_failed = committed, failed


def _assigned(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )
