"""JoinGroup: a member joins the next generation.

A dynamic member first receives an id and rejoins with it (KIP-394). A static member is identified by its instance id
and takes its place back without a rebalance (KIP-345).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from triokafka.coordinator.config import GroupCoordinatorConfig
from triokafka.coordinator.group import rounds
from triokafka.coordinator.group.append_errors import group_append_error
from triokafka.coordinator.group.classic import ClassicGroup
from triokafka.coordinator.group.member import Member, MemberProtocol
from triokafka.coordinator.group.state import GroupState
from triokafka.coordinator.group.stored import group_change
from triokafka.coordinator.stored import GroupTurn
from triokafka.coordinator.turn import Reply
from triokafka.errors import (
    BrokerResponseError,
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    KafkaError,
    MemberIdRequiredError,
    UnknownMemberIdError,
)
from triokafka.protocol.api.join_group import JoinGroupRequest, JoinGroupResponse
from triokafka.protocol.primitives import MAX_STRING


class Joiner(NamedTuple):
    """One JoinGroup request with its sender.

    ``requires_known_id``: the client supports MEMBER_ID_REQUIRED (v4 and later). ``can_skip_assignment``: a restarted
    static leader supports ``skip_assignment`` in the response (v9 and later, KIP-814).
    """

    request: JoinGroupRequest
    protocols: tuple[MemberProtocol, ...]
    client_id: str
    client_host: str
    requires_known_id: bool
    can_skip_assignment: bool

    @classmethod
    def of(cls, request: JoinGroupRequest, *, version: int, client_id: str, client_host: str) -> Joiner:
        """Read a request. v0 has no rebalance timeout; the session timeout serves for both."""
        return cls(
            request=request,
            protocols=tuple(MemberProtocol(p.name, bytes(p.metadata)) for p in request.protocols),
            client_id=client_id,
            client_host=client_host,
            requires_known_id=version >= 4 and request.group_instance_id is None,
            can_skip_assignment=version >= 9,
        )

    @property
    def rebalance_timeout_ms(self) -> int:
        """The member's rebalance timeout, in milliseconds."""
        timeout_ms = self.request.rebalance_timeout_ms
        return timeout_ms if timeout_ms >= 0 else self.request.session_timeout_ms

    def member_id(self, suffix: str) -> str:
        """Return a new member id; cuts the prefix so that the id fits records and responses of every version."""
        prefix = self.client_id if self.request.group_instance_id is None else self.request.group_instance_id
        room = MAX_STRING - len(suffix) - 1
        if len(prefix) * 4 > room:  # UTF-8 takes at most 4 bytes per character; skips encoding the usual short prefix
            prefix = prefix.encode()[:room].decode(errors="ignore")
        return f"{prefix}-{suffix}"


def join(
    group: ClassicGroup,
    joiner: Joiner,
    reply: Reply[JoinGroupResponse],
    *,
    config: GroupCoordinatorConfig,
    new_id: Callable[[], str],
    turn: GroupTurn,
) -> None:
    """Handle a JoinGroup on ``group``. ``new_id`` returns the random part of a member id."""
    request = joiner.request
    if group.state is GroupState.DEAD:
        _refuse(reply, UnknownMemberIdError, request.member_id, turn)
    elif not _has_room(group, request, config):
        # Drop the sender if it was a member that rejoined too late for a place; no timer would end it otherwise.
        rounds.drop_member(group, request.member_id, turn)
        _refuse(reply, GroupMaxSizeReachedError, "", turn)
        rounds.maybe_complete_join(group, turn)
    elif not group.supports(request.protocol_type, joiner.protocols):
        _refuse(reply, InconsistentGroupProtocolError, request.member_id, turn)
    elif request.member_id:
        _join_known(group, joiner, reply, config, turn)
    else:
        _join_unknown(group, joiner, joiner.member_id(new_id()), reply, config, turn)


def _has_room(group: ClassicGroup, request: JoinGroupRequest, config: GroupCoordinatorConfig) -> bool:
    """Whether the group has a place for the sender.

    During a rebalance, the members that rejoin first get the places. Static members keep theirs, under any member id.
    """
    if len(group.members) < config.group_max_size:
        return True
    known_as = request.member_id
    if request.group_instance_id is not None:
        known_as = group.static_members.get(request.group_instance_id, known_as)
    member = group.members.get(known_as)
    if group.state is GroupState.PREPARING_REBALANCE:
        if member is not None and (member.awaits_join or member.is_static):
            return True
        absent = [m for m in group.static_members.values() if not group.members[m].awaits_join]
        return group.joins_waiting + len(absent) < config.group_max_size
    return member is not None


def _join_unknown(
    group: ClassicGroup,
    joiner: Joiner,
    member_id: str,
    reply: Reply[JoinGroupResponse],
    config: GroupCoordinatorConfig,
    turn: GroupTurn,
) -> None:
    request = joiner.request
    if joiner.requires_known_id:
        # A parked join whose connection breaks would leave a member whose id no client knows. So a new member gets its
        # id first, and only a join with an id is parked (KIP-394).
        if len(group.pending_members) >= config.group_max_promised_members:
            rounds.drop_member(group, next(iter(group.pending_members)), turn)
        group.pending_members[member_id] = None
        rounds.set_session(group, member_id, request.session_timeout_ms, turn)
        _refuse(reply, MemberIdRequiredError, member_id, turn)
        return
    instance_id = request.group_instance_id
    if instance_id is not None and instance_id in group.static_members:
        _replace_static(group, group.members[group.static_members[instance_id]], joiner, member_id, reply, config, turn)
    else:
        _add_member(group, joiner, member_id, reply, config, turn)


def _join_known(
    group: ClassicGroup,
    joiner: Joiner,
    reply: Reply[JoinGroupResponse],
    config: GroupCoordinatorConfig,
    turn: GroupTurn,
) -> None:
    request = joiner.request
    if request.member_id in group.pending_members and request.group_instance_id is None:
        _add_member(group, joiner, request.member_id, reply, config, turn)
        return
    try:
        member = group.member_for(request.member_id, request.group_instance_id)
    except BrokerResponseError as error:
        _refuse(reply, type(error), request.member_id, turn)
        return
    is_leader = member.member_id == group.leader_id
    unchanged = member.protocols == joiner.protocols
    if group.state is GroupState.COMPLETING_REBALANCE and unchanged:
        # The member did not receive its response.
        roster = rounds.member_roster(group) if is_leader else []
        turn.answer(reply, rounds.joined(group, member.member_id, roster))
        rounds.start_session(group, member, turn)
        return
    if group.state is GroupState.STABLE and unchanged and not is_leader:
        turn.answer(reply, rounds.joined(group, member.member_id, []))
        rounds.start_session(group, member, turn)
        return
    _update(group, member, joiner, reply, turn)
    reason = "the leader rejoined" if is_leader and unchanged else "the metadata of a member changed"
    rounds.rebalance_or_complete(group, f"{reason} ({member.member_id}{_reason_suffix(request)})", config, turn)


def _add_member(
    group: ClassicGroup,
    joiner: Joiner,
    member_id: str,
    reply: Reply[JoinGroupResponse],
    config: GroupCoordinatorConfig,
    turn: GroupTurn,
) -> None:
    request = joiner.request
    member = Member(
        member_id,
        instance_id=request.group_instance_id,
        client_id=joiner.client_id,
        client_host=joiner.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=joiner.rebalance_timeout_ms,
        protocols=joiner.protocols,
    )
    member.is_new = True
    if group.state is GroupState.PREPARING_REBALANCE and group.initial_delay is not None:
        group.member_arrived = True
    group.add(member, request.protocol_type, reply)
    # A member cannot heartbeat while its first join is parked; this bounds how long a dead client delays the rebalance.
    rounds.set_session(group, member_id, config.new_member_join_timeout_ms, turn)
    rounds.rebalance_or_complete(group, f"{member_id} joins{_reason_suffix(request)}", config, turn)


def _update(
    group: ClassicGroup, member: Member, joiner: Joiner, reply: Reply[JoinGroupResponse], turn: GroupTurn
) -> None:
    group.update(
        member,
        protocols=joiner.protocols,
        session_timeout_ms=joiner.request.session_timeout_ms,
        rebalance_timeout_ms=joiner.rebalance_timeout_ms,
    )
    rounds.park_join(group, member, reply, turn)


def _replace_static(
    group: ClassicGroup,
    member: Member,
    joiner: Joiner,
    member_id: str,
    reply: Reply[JoinGroupResponse],
    config: GroupCoordinatorConfig,
    turn: GroupTurn,
) -> None:
    """Give a static member's place to its restarted process and fence the old one. A stable group stays stable unless
    the protocol changes."""
    old_id, old_leader, before = member.member_id, group.leader_id, _Traits.of(member)
    replaced = Member(
        old_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=member.protocols,
    )
    replaced.join_reply, replaced.sync_reply = group.take_join(member), member.sync_reply
    member.sync_reply = None
    rounds.answer_waiting(group, replaced, FencedInstanceIdError.code, turn)
    turn.timers.cancel(rounds.session_timer(group, old_id))
    group.rename_static(member, member_id)
    member.client_id, member.client_host = joiner.client_id, joiner.client_host
    _update(group, member, joiner, reply, turn)
    rounds.start_session(group, member, turn)
    reason = f"static member {member.instance_id} restarted as {member_id}{_reason_suffix(joiner.request)}"

    if group.state is GroupState.STABLE and group.select_protocol() == group.protocol:
        turn.note(f"group {group.group_id!r}: {reason}")
        generation = group.generation

        def stored(later: GroupTurn) -> None:
            _answer_replaced(group, member, old_leader, joiner, later)

        def not_stored(error: KafkaError, later: GroupTurn) -> None:
            is_gone = group.state is GroupState.DEAD or group.members.get(member_id) is not member
            if is_gone or group.generation != generation:
                return
            waiting = group.take_join(member)
            if not turn.appended:
                later.timers.cancel(rounds.session_timer(group, member_id))
                group.rename_static(member, old_id)
                before.restore(group, member)
            rounds.start_session(group, member, later)
            if waiting is not None:
                later.answer(waiting, JoinGroupResponse(error_code=group_append_error(error)))

        turn.write(group_change(group, {m.member_id: m.assignment for m in group.members.values()}))
        turn.on_committed, turn.on_failed = stored, not_stored
    else:
        # The leader is assigning partitions to the old member id, so the group must rebalance.
        rounds.rebalance_or_complete(group, reason, config, turn)


def _answer_replaced(
    group: ClassicGroup, member: Member, old_leader: str | None, joiner: Joiner, turn: GroupTurn
) -> None:
    if group.state is not GroupState.STABLE:
        return  # another rebalance has begun; the parked join is part of it
    waiting = group.take_join(member)
    if waiting is None:
        return
    is_leader = member.member_id == group.leader_id
    if joiner.can_skip_assignment:
        roster = rounds.member_roster(group) if is_leader else []
        response = rounds.joined(group, member.member_id, roster, skip_assignment=is_leader)
    else:
        # Naming the old id as leader keeps a client without skip_assignment from assigning in a stable group.
        response = rounds.joined(group, member.member_id, [], leader=old_leader or "")
    turn.answer(waiting, response)
    rounds.start_session(group, member, turn)


class _Traits(NamedTuple):
    """A static member's traits before its replacement, to restore them when the append fails."""

    protocols: tuple[MemberProtocol, ...]
    session_timeout_ms: int
    rebalance_timeout_ms: int
    client_id: str
    client_host: str

    @classmethod
    def of(cls, member: Member) -> _Traits:
        return cls(
            member.protocols,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
            member.client_id,
            member.client_host,
        )

    def restore(self, group: ClassicGroup, member: Member) -> None:
        group.update(
            member,
            protocols=self.protocols,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
        )
        member.client_id, member.client_host = self.client_id, self.client_host


def _refuse(reply: Reply[JoinGroupResponse], error: type[BrokerResponseError], member_id: str, turn: GroupTurn) -> None:
    turn.answer(reply, JoinGroupResponse(error_code=error.code, member_id=member_id))


def _reason_suffix(request: JoinGroupRequest) -> str:
    return f"; reason: {request.reason}" if request.reason else ""
