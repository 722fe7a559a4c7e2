"""Members of a consumer group that use the classic protocol (KIP-848).

They have no leader and wait for no other member. A join is answered at once, with the member's epoch as the generation;
a sync is answered with the partitions that the member owns in it. A heartbeat tells the member to rejoin whenever it
has partitions to revoke or to receive, so it takes the same steps as other members, with one rejoin per step.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from triokafka import errors
from triokafka.coordinator.classic_group import rebalance
from triokafka.coordinator.classic_group.join import Joiner
from triokafka.coordinator.classic_group.stored_group import NEEDS_REBALANCE
from triokafka.coordinator.classic_group.subscription import CONSUMER_PROTOCOL_TYPE
from triokafka.coordinator.consumer_group import timers
from triokafka.coordinator.consumer_group.advance import Step, advance
from triokafka.coordinator.consumer_group.consumer_group import ConsumerGroup
from triokafka.coordinator.consumer_group.embedded import owned_by, write_assignment
from triokafka.coordinator.consumer_group.group_epoch import Circumstances, RequestingMember, hash_of_topics
from triokafka.coordinator.consumer_group.leaving import depart
from triokafka.coordinator.consumer_group.member import (
    JOINING,
    ClassicTraits,
    MemberProfile,
    MemberState,
    Partitions,
)
from triokafka.coordinator.consumer_group.migration import classic_group, downgrade, joined, must_downgrade
from triokafka.coordinator.consumer_group.records import EpochChange
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.records import GroupEffects
from triokafka.coordinator.group.topics_view import TopicsView
from triokafka.coordinator.runtime.reply import Reply
from triokafka.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from triokafka.protocol.api.join_group import JoinGroupResponse
from triokafka.protocol.api.leave_group import MemberIdentity, MemberResponse
from triokafka.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse
from triokafka.protocol.consumer_protocol import ConsumerProtocolSubscription

# --- JoinGroup ---


def join(
    shard: GroupShard, group: ConsumerGroup, joiner: Joiner, reply: Reply[JoinGroupResponse], effects: GroupEffects
) -> None:
    """Handle JoinGroup on a consumer group. When the last member of the consumer protocol moves its instance to the
    classic protocol, the group becomes a classic group.

    Raises:
        GroupMaxSizeReachedError: the group is full.
        InconsistentGroupProtocolError: the member is not a consumer, or shares no assignor with the other classic
            members.
        UnknownMemberIdError: the group has no member with this instance id.
        FencedInstanceIdError: another member now has the instance id.
    """
    request = joiner.request
    known_as = _known_as(group, request.member_id, request.group_instance_id)
    if known_as is None and len(group.profiles) >= shard.config.group_consumer_max_size:
        raise errors.GroupMaxSizeReachedError(f"group {group.group_id!r} is full with {len(group.profiles)} members")
    asked = _ParsedJoin.of(group, joiner, shard.topics)
    member_id = request.member_id or joiner.member_id(shard.new_id())
    if joiner.requires_known_id and not request.member_id:
        effects.answer(reply, JoinGroupResponse(error_code=errors.MemberIdRequiredError.code, member_id=member_id))
        return
    requester = RequestingMember.of(group, member_id, known_as)
    if requester.progress.epoch < JOINING:  # a static member that had left temporarily
        requester = requester._replace(progress=requester.progress._replace(epoch=JOINING, previous_epoch=JOINING))
    # The join response is the member's only news of its partitions, so it must not wait for the assignment interval.
    at = Circumstances.of(shard, group.group_id, effects)._replace(assignment_interval_ms=0)
    step = advance(group, member_id, requester, asked.profile(requester.profile), asked.owned, at)
    if (
        known_as is not None
        and group.profiles[known_as].classic is None
        and must_downgrade(group, shard.config, without=[known_as], joining=1)
    ):
        _downgrade_with(shard, group, member_id, joiner, requester, step, reply, effects)
        return
    effects.write(*step.changes)
    effects.answer(reply, joined(member_id, step.progress.epoch, asked.traits.protocols[0][0]))

    def appended(now: GroupEffects) -> None:
        if known_as is not None and known_as != member_id:
            timers.end(group.group_id, known_as, now)
        timers.joined(shard.consumer_groups[group.group_id], member_id, now)

    effects.on_appended = appended


class _ParsedJoin(NamedTuple):
    """A parsed JoinGroup request."""

    joiner: Joiner
    traits: ClassicTraits
    topic_names: frozenset[str]
    rack_id: str | None
    owned: Partitions

    @classmethod
    def of(cls, group: ConsumerGroup, joiner: Joiner, topics: TopicsView) -> _ParsedJoin:
        """Parse the request and check that the member is compatible with the group."""
        request = joiner.request
        offered = [protocol.name for protocol in joiner.protocols]
        if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not group.takes_classic(offered):
            raise errors.InconsistentGroupProtocolError(
                f"group {group.group_id!r} takes consumers with an assignor in common with its"
                f" {group.classic_members} classic members; this member has protocol type {request.protocol_type!r} and"
                f" assignors {', '.join(offered) or 'none'}"
            )
        try:
            subscription = ConsumerProtocolSubscription.decode_versioned(joiner.protocols[0].metadata)
        except errors.ProtocolError as error:
            raise errors.InconsistentGroupProtocolError(f"the member's subscription is malformed: {error}") from None
        return cls(
            joiner,
            ClassicTraits(request.session_timeout_ms, tuple((p.name, p.metadata) for p in joiner.protocols)),
            frozenset(subscription.topics),
            subscription.rack_id or None,
            owned_by(subscription, topics),
        )

    def profile(self, before: MemberProfile | None) -> MemberProfile:
        """Return the member's profile after this join."""
        before = before or MemberProfile()
        return MemberProfile(
            instance_id=self.joiner.request.group_instance_id or before.instance_id,
            rack_id=self.rack_id or before.rack_id,
            client_id=self.joiner.client_id,
            client_host=self.joiner.client_host,
            topic_names=self.topic_names,
            rebalance_timeout_ms=self.joiner.rebalance_timeout_ms,
            server_assignor=before.server_assignor,
            classic=self.traits,
        )


def _known_as(group: ConsumerGroup, member_id: str, instance_id: str | None) -> str | None:
    """Return the id under which the group knows the joining member; None for a new member. A static member without an
    id takes the place of the member that has its instance id."""
    if instance_id is None:
        return member_id if member_id in group.profiles else None
    known = group.static_members.get(instance_id)
    if member_id:
        return group.requesting_member(member_id, instance_id)
    return known


def _downgrade_with(
    shard: GroupShard,
    group: ConsumerGroup,
    member_id: str,
    joiner: Joiner,
    requester: RequestingMember,
    step: Step,
    reply: Reply[JoinGroupResponse],
    effects: GroupEffects,
) -> None:
    """Convert the group to a classic group; with this member, all members use the classic protocol.

    If every member owns its target and no subscription changed, the new member takes over its instance's assignment at
    once. Otherwise its join is parked until the others rejoin.
    """
    profiles = {known: profile for known, profile in group.profiles.items() if known != requester.known_as}
    settled = group.epoch == group.target_epoch and all(group.progress_of(m).is_at(group.epoch) for m in profiles)
    profiles[member_id] = step.profile
    at_rest = settled and step.progress.is_at(group.epoch)
    progress = {**group.progress, member_id: step.progress if at_rest else requester.progress}
    owned = {known: progress[known].held_partitions for known in profiles if known in progress}
    since_ms = effects.at.wall_ms if at_rest else NEEDS_REBALANCE
    classic = classic_group(group, profiles, owned, shard.topics, stable_since_ms=since_ms)
    member = classic.members[member_id]
    if at_rest:
        # The members had no leader. Only this response can tell the member that it now leads and must watch the topics.
        # A client without skip_assignment must not learn it, because it would compute an assignment.
        leads = joiner.can_skip_assignment
        if leads:
            classic.leader_id = member_id
        leader = "" if member_id == classic.leader_id and not leads else None
        roster = rebalance.member_roster(classic) if leads else []
        effects.answer(reply, rebalance.joined(classic, member_id, roster, leader=leader, skip_assignment=leads))
    else:
        rebalance.park_join(classic, member, reply, effects)

        def not_written(error: errors.KafkaError, _later: GroupEffects) -> None:
            if not effects.appended:
                reply.fail(error)

        effects.on_failed = not_written
    downgrade(shard, group, classic, effects)


# --- SyncGroup, Heartbeat ---


def sync(
    shard: GroupShard,
    group: ConsumerGroup,
    request: SyncGroupRequest,
    reply: Reply[SyncGroupResponse],
    effects: GroupEffects,
) -> None:
    """Handle SyncGroup: return the partitions that the member owns in the epoch that it joined.

    Raises:
        UnknownMemberIdError, FencedInstanceIdError, IllegalGenerationError: see `_classic_member`.
        RebalanceInProgressError: the group has a newer epoch; the member must rejoin.
        InconsistentGroupProtocolError: the request names a protocol that the member does not support.
    """
    member_id = request.member_id
    traits = _classic_member(group, member_id, request.group_instance_id, request.generation_id)
    progress = group.progress_of(member_id)
    if progress.epoch < group.epoch and progress.state is not MemberState.UNREVOKED_PARTITIONS:
        effects.timers.cancel(timers.sync_timer(group.group_id, member_id))  # it has synced; now it must rejoin
        timers.expect_join(group, member_id, effects)
        raise errors.RebalanceInProgressError(f"group {group.group_id!r} is in epoch {group.epoch}: rejoin")
    # Before a member's first join of the consumer group, it knows the classic group's protocol, maybe not its first.
    protocol = request.protocol_name if request.protocol_name is not None else traits.protocols[0][0]
    metadata = dict(traits.protocols).get(protocol)
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or metadata is None:
        raise errors.InconsistentGroupProtocolError(
            f"member {member_id} supports {', '.join(name for name, _ in traits.protocols)} of type"
            f" {CONSUMER_PROTOCOL_TYPE!r}, but the request names {protocol!r} of type {request.protocol_type!r}"
        )
    effects.timers.cancel(timers.sync_timer(group.group_id, member_id))
    timers.start(group.group_id, member_id, traits.session_timeout_ms, effects)
    assignment = write_assignment(progress.assigned_partitions, shard.topics, metadata)
    response = SyncGroupResponse(protocol_type=CONSUMER_PROTOCOL_TYPE, protocol_name=protocol, assignment=assignment)
    effects.answer(reply, response)


def heartbeat(
    shard: GroupShard,
    group: ConsumerGroup,
    request: HeartbeatRequest,
    reply: Reply[HeartbeatResponse],
    effects: GroupEffects,
) -> None:
    """Extend the member's session; the response tells whether it must rejoin.

    Checks for topic changes too: the group may have no member of the consumer protocol whose heartbeats would.

    Raises:
        UnknownMemberIdError, FencedInstanceIdError, IllegalGenerationError: see `_classic_member`.
    """
    member_id = request.member_id
    traits = _classic_member(group, member_id, request.group_instance_id, request.generation_id)
    timers.start(group.group_id, member_id, traits.session_timeout_ms, effects)
    must_rejoin = group.must_rejoin(member_id)
    if not must_rejoin and group.topics_version != shard.topics.version:
        metadata_hash = hash_of_topics(group.wanted_topics(), shard.topics)
        if metadata_hash == group.metadata_hash:
            group.topics_version = shard.topics.version
        else:
            effects.write(EpochChange(group.group_id, (group.epoch + 1, metadata_hash)))
            must_rejoin = True
    if must_rejoin:  # only once the new epoch, if any, is appended
        effects.on_appended = partial(timers.expect_join, group, member_id)
    effects.answer(reply, HeartbeatResponse(error_code=errors.RebalanceInProgressError.code if must_rejoin else 0))


def _classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ClassicTraits:
    """Return the classic traits of the member that a request names.

    Raises:
        UnknownMemberIdError: the group has no such member or instance, or the member uses the consumer protocol.
        FencedInstanceIdError: another member now has the instance id.
        IllegalGenerationError: the member is in another epoch.
    """
    traits = group.profiles[group.requesting_member(member_id, instance_id)].classic
    if traits is None:
        raise errors.UnknownMemberIdError(f"member {member_id} of group {group.group_id!r} uses the consumer protocol")
    epoch = group.progress_of(member_id).epoch
    if generation != epoch:
        raise errors.IllegalGenerationError(
            f"member {member_id} is in generation {epoch}; the request is from {generation}"
        )
    return traits


# --- LeaveGroup ---


def leave(
    shard: GroupShard, group: ConsumerGroup, leavers: list[MemberIdentity], effects: GroupEffects
) -> list[MemberResponse]:
    """Remove members of either protocol that leave or that an administrator removes; each has its own response."""
    gone: dict[str, None] = {}
    responses = []
    for leaver in leavers:
        error_code = 0
        try:
            member_id = leaver.member_id
            if not member_id and leaver.group_instance_id is not None:
                member_id = group.static_members.get(leaver.group_instance_id, "")
            gone[group.requesting_member(member_id, leaver.group_instance_id)] = None
        except errors.BrokerResponseError as error:
            error_code = error.code
        responses.append(
            MemberResponse(
                member_id=leaver.member_id, group_instance_id=leaver.group_instance_id, error_code=error_code
            )
        )
    if gone:
        depart(shard, group, list(gone), effects)
    return responses
