"""JoinGroup: a member asks to be part of the next generation.

Dynamic members first get an id and come back with it (KIP-394); static members are known by their instance and take
their place back without a rebalance (KIP-345).
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
    """One JoinGroup request: what it says and who sent it.

    ``requires_known_id``: the client understands MEMBER_ID_REQUIRED (v4+). ``can_skip_assignment``: a restarted static
    leader understands that the assignment is not its business yet (v9+, KIP-814).
    """

    request: JoinGroupRequest
    protocols: tuple[MemberProtocol, ...]
    client_id: str
    client_host: str
    requires_known_id: bool
    can_skip_assignment: bool

    @classmethod
    def of(cls, request: JoinGroupRequest, *, version: int, client_id: str, client_host: str) -> Joiner:
        """Read a request. Before v1 it has no rebalance timeout; the session timeout serves for both."""
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
        """How long the member asks a round to wait for it."""
        timeout_ms = self.request.rebalance_timeout_ms
        return timeout_ms if timeout_ms >= 0 else self.request.session_timeout_ms

    def member_id(self, suffix: str) -> str:
        """An id for the member that a record and an answer of any version can hold, however long its name is."""
        prefix = self.client_id if self.request.group_instance_id is None else self.request.group_instance_id
        room = MAX_STRING - len(suffix) - 1
        if len(prefix) * 4 > room:  # no character takes more bytes; most names are far from that long
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
    """Let a member join ``group``. ``new_id`` gives the random part of a member id."""
    request = joiner.request
    if group.state is GroupState.DEAD:
        _refuse(reply, UnknownMemberIdError, request.member_id, turn)
    elif not _has_room(group, request, config):
        # Also one that was a member, and rejoins too late for a place: nothing would end it otherwise.
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
    """Whether the member may come in.

    While members are joining, the places go to those who come first. Static members have theirs, under whatever id.
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
        # A client whose connection breaks while it is parked would leave a member that nobody knows; so it gets its id
        # first, and only a join with an id is parked (KIP-394).
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
        # Its answer was lost on the way.
        roster = rounds.member_roster(group) if is_leader else []
        turn.answer(reply, rounds.joined(group, member.member_id, roster))
        rounds.start_session(group, member, turn)
        return
    if group.state is GroupState.STABLE and unchanged and not is_leader:
        turn.answer(reply, rounds.joined(group, member.member_id, []))
        rounds.start_session(group, member, turn)
        return
    _update(group, member, joiner, reply, turn)
    reason = "the leader rejoins" if is_leader and unchanged else "a member's metadata changed"
    rounds.rebalance_or_complete(group, f"{reason} ({member.member_id}{_said(request)})", config, turn)


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
    # It cannot heartbeat while its first join is parked, so this bounds how long a client that is gone holds the round.
    rounds.set_session(group, member_id, config.new_member_join_timeout_ms, turn)
    rounds.rebalance_or_complete(group, f"{member_id} joins{_said(request)}", config, turn)


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
    """A static member restarted. Whoever held its place is fenced; in a stable group nobody else notices."""
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
    reason = f"static member {member.instance_id} restarted as {member_id}{_said(joiner.request)}"

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
        # While the assignment is being computed it is computed for the old id; only a new round helps.
        rounds.rebalance_or_complete(group, reason, config, turn)


def _answer_replaced(
    group: ClassicGroup, member: Member, old_leader: str | None, joiner: Joiner, turn: GroupTurn
) -> None:
    if group.state is not GroupState.STABLE:
        return  # another round has begun, and the parked join is part of it
    waiting = group.take_join(member)
    if waiting is None:
        return
    is_leader = member.member_id == group.leader_id
    if joiner.can_skip_assignment:
        roster = rounds.member_roster(group) if is_leader else []
        response = rounds.joined(group, member.member_id, roster, skip_assignment=is_leader)
    else:
        # Naming the old id as the leader keeps a client that cannot skip from assigning in a stable group.
        response = rounds.joined(group, member.member_id, [], leader=old_leader or "")
    turn.answer(waiting, response)
    rounds.start_session(group, member, turn)


class _Traits(NamedTuple):
    """What a static member was before it was replaced, to put it back when that could not be stored."""

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


def _said(request: JoinGroupRequest) -> str:
    return f"; it says: {request.reason}" if request.reason else ""
