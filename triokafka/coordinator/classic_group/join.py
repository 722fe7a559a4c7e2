"""JoinGroup: a member joins the next generation.

A dynamic member first receives an id and rejoins with it (KIP-394). A static member is identified by its instance id
and takes its place back without a rebalance (KIP-345).
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import NamedTuple

from triokafka import errors
from triokafka.coordinator.classic_group import rebalance
from triokafka.coordinator.classic_group.classic_group import ClassicGroup
from triokafka.coordinator.classic_group.member import Member, MemberProtocol
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.classic_group.stored_group import group_change
from triokafka.coordinator.group.append_errors import group_append_error
from triokafka.coordinator.group.config import GroupCoordinatorConfig
from triokafka.coordinator.group.records import GroupEffects
from triokafka.coordinator.runtime.reply import Reply
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
    effects: GroupEffects,
) -> None:
    """Handle a JoinGroup on ``group``. ``new_id`` returns the random part of a member id."""
    _Join(group, joiner, reply, config, effects).run(new_id)


class _Join(NamedTuple):
    """One JoinGroup on one group."""

    group: ClassicGroup
    joiner: Joiner
    reply: Reply[JoinGroupResponse]
    config: GroupCoordinatorConfig
    effects: GroupEffects

    def run(self, new_id: Callable[[], str]) -> None:
        group, request, effects = self.group, self.joiner.request, self.effects
        if group.state is GroupState.DEAD:
            self._refuse(errors.UnknownMemberIdError, request.member_id)
        elif not self._has_room():
            # Drop the sender if it was a member that rejoined too late for a place; no timer would end it otherwise.
            rebalance.drop_member(group, request.member_id, effects)
            self._refuse(errors.GroupMaxSizeReachedError, "")
            rebalance.maybe_complete_join(group, effects)
        elif not group.supports(request.protocol_type, self.joiner.protocols):
            self._refuse(errors.InconsistentGroupProtocolError, request.member_id)
        elif request.member_id:
            self._join_known()
        else:
            self._join_unknown(self.joiner.member_id(new_id()))

    def _has_room(self) -> bool:
        """Whether the group has a place for the sender.

        During a rebalance, the members that rejoin first get the places. Static members keep theirs, under any member
        id.
        """
        group, request, max_size = self.group, self.joiner.request, self.config.group_max_size
        if len(group.members) < max_size:
            return True
        known_as = request.member_id
        if request.group_instance_id is not None:
            known_as = group.static_members.get(request.group_instance_id, known_as)
        member = group.members.get(known_as)
        if group.state is GroupState.PREPARING_REBALANCE:
            if member is not None and (member.awaits_join or member.is_static):
                return True
            absent = [m for m in group.static_members.values() if not group.members[m].awaits_join]
            return group.joins_waiting + len(absent) < max_size
        return member is not None

    def _join_unknown(self, member_id: str) -> None:
        group, request, effects = self.group, self.joiner.request, self.effects
        if self.joiner.requires_known_id:
            # A parked join whose connection breaks would leave a member whose id no client knows. So a new member gets
            # its id first, and only a join with an id is parked (KIP-394).
            if len(group.pending_members) >= self.config.group_max_promised_members:
                rebalance.drop_member(group, next(iter(group.pending_members)), effects)
            group.pending_members[member_id] = None
            rebalance.set_session(group, member_id, request.session_timeout_ms, effects)
            self._refuse(errors.MemberIdRequiredError, member_id)
            return
        instance_id = request.group_instance_id
        if instance_id is not None and instance_id in group.static_members:
            self._replace_static(group.members[group.static_members[instance_id]], member_id)
        else:
            self._add_member(member_id)

    def _join_known(self) -> None:
        group, request, effects = self.group, self.joiner.request, self.effects
        if request.member_id in group.pending_members and request.group_instance_id is None:
            self._add_member(request.member_id)
            return
        try:
            member = group.member_for(request.member_id, request.group_instance_id)
        except errors.BrokerResponseError as error:
            self._refuse(type(error), request.member_id)
            return
        is_leader = member.member_id == group.leader_id
        unchanged = member.protocols == self.joiner.protocols
        lost_its_response = group.state is GroupState.COMPLETING_REBALANCE
        if unchanged and (lost_its_response or (group.state is GroupState.STABLE and not is_leader)):
            roster = rebalance.member_roster(group) if is_leader else []
            effects.answer(self.reply, rebalance.joined(group, member.member_id, roster))
            rebalance.start_session(group, member, effects)
            return
        self._update(member)
        reason = "the leader rejoined" if is_leader and unchanged else "the metadata of a member changed"
        self._rebalance(f"{reason} ({member.member_id}{_reason_suffix(request)})")

    def _add_member(self, member_id: str) -> None:
        group, joiner, request = self.group, self.joiner, self.joiner.request
        member = Member(
            member_id,
            instance_id=request.group_instance_id,
            client_id=joiner.client_id,
            client_host=joiner.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=joiner.rebalance_timeout_ms,
            protocols=joiner.protocols,
            is_new=True,
        )
        if group.state is GroupState.PREPARING_REBALANCE and group.initial_delay is not None:
            group.member_arrived = True
        group.add(member, request.protocol_type, self.reply)
        # A member cannot heartbeat while its first join is parked; this bounds how long a dead client delays the
        # rebalance.
        rebalance.set_session(group, member_id, self.config.new_member_join_timeout_ms, self.effects)
        self._rebalance(f"{member_id} joins{_reason_suffix(request)}")

    def _update(self, member: Member) -> None:
        self.group.update(
            member,
            protocols=self.joiner.protocols,
            session_timeout_ms=self.joiner.request.session_timeout_ms,
            rebalance_timeout_ms=self.joiner.rebalance_timeout_ms,
        )
        rebalance.park_join(self.group, member, self.reply, self.effects)

    def _replace_static(self, member: Member, member_id: str) -> None:
        """Give a static member's place to its restarted process and fence the old one. A stable group stays stable
        unless the protocol changes."""
        group, joiner, effects = self.group, self.joiner, self.effects
        old_id, old_leader, before = member.member_id, group.leader_id, copy(member)
        group.take_join(member)
        member.sync_reply = None
        rebalance.answer_waiting(group, before, errors.FencedInstanceIdError.code, effects)
        effects.timers.cancel(rebalance.session_timer(group, old_id))
        group.rename_static(member, member_id)
        member.client_id, member.client_host = joiner.client_id, joiner.client_host
        self._update(member)
        rebalance.start_session(group, member, effects)
        reason = f"static member {member.instance_id} restarted as {member_id}{_reason_suffix(joiner.request)}"
        if group.state is not GroupState.STABLE or group.select_protocol() != group.protocol:
            # The leader is assigning partitions to the old member id, so the group must rebalance.
            self._rebalance(reason)
            return
        effects.note(f"group {group.group_id!r}: {reason}")
        generation = group.generation

        def stored(later: GroupEffects) -> None:
            _answer_replaced(group, member, old_leader, joiner, later)

        def not_stored(error: errors.KafkaError, later: GroupEffects) -> None:
            is_gone = group.state is GroupState.DEAD or group.members.get(member_id) is not member
            if is_gone or group.generation != generation:
                return
            waiting = group.take_join(member)
            if not effects.appended:
                later.timers.cancel(rebalance.session_timer(group, member_id))
                group.rename_static(member, old_id)
                _restore(group, member, before)
            rebalance.start_session(group, member, later)
            if waiting is not None:
                later.answer(waiting, JoinGroupResponse(error_code=group_append_error(error)))

        effects.write(group_change(group, {m.member_id: m.assignment for m in group.members.values()}))
        effects.on_committed, effects.on_failed = stored, not_stored

    def _rebalance(self, reason: str) -> None:
        rebalance.rebalance_or_complete(self.group, reason, self.config, self.effects)

    def _refuse(self, error: type[errors.BrokerResponseError], member_id: str) -> None:
        self.effects.answer(self.reply, JoinGroupResponse(error_code=error.code, member_id=member_id))


def _answer_replaced(
    group: ClassicGroup, member: Member, old_leader: str | None, joiner: Joiner, effects: GroupEffects
) -> None:
    if group.state is not GroupState.STABLE:
        return  # another rebalance has begun; the parked join is part of it
    waiting = group.take_join(member)
    if waiting is None:
        return
    is_leader = member.member_id == group.leader_id
    if joiner.can_skip_assignment:
        roster = rebalance.member_roster(group) if is_leader else []
        response = rebalance.joined(group, member.member_id, roster, skip_assignment=is_leader)
    else:
        # Naming the old id as leader keeps a client without skip_assignment from assigning in a stable group.
        response = rebalance.joined(group, member.member_id, [], leader=old_leader or "")
    effects.answer(waiting, response)
    rebalance.start_session(group, member, effects)


def _restore(group: ClassicGroup, member: Member, before: Member) -> None:
    """Give a member the properties that it had before another client took its place."""
    group.update(
        member,
        protocols=before.protocols,
        session_timeout_ms=before.session_timeout_ms,
        rebalance_timeout_ms=before.rebalance_timeout_ms,
    )
    member.client_id, member.client_host = before.client_id, before.client_host


def _reason_suffix(request: JoinGroupRequest) -> str:
    return f"; reason: {request.reason}" if request.reason else ""
