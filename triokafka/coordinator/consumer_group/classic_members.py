"""Members of a consumer group that still speak the classic protocol (KIP-848).

Nobody leads them and they wait for nobody: a join is answered at once with the member's own epoch as the generation,
and a sync with what the member owns in it. A heartbeat tells it to rejoin whenever there is something to give up or to
get, so that it takes the same steps as the other members, one round of its own for each.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from triokafka.coordinator.consumer_group import sessions
from triokafka.coordinator.consumer_group.advance import Circumstances, Speaker, Step, advance, hash_of_topics
from triokafka.coordinator.consumer_group.changes import EpochChange
from triokafka.coordinator.consumer_group.embedded import owned_by, read_subscription, write_assignment
from triokafka.coordinator.consumer_group.group import ConsumerGroup
from triokafka.coordinator.consumer_group.leaving import depart
from triokafka.coordinator.consumer_group.member import (
    JOINING,
    ClassicTraits,
    MemberProfile,
    MemberState,
    Partitions,
)
from triokafka.coordinator.consumer_group.migration import (
    OWES_A_ROUND,
    classic_group,
    downgrade,
    goes_back,
    joined,
)
from triokafka.coordinator.group import rounds
from triokafka.coordinator.group.join import Joiner
from triokafka.coordinator.group.subscription import CONSUMER_PROTOCOL_TYPE
from triokafka.coordinator.shard import GroupShard
from triokafka.coordinator.stored import GroupTurn
from triokafka.coordinator.topics import TopicsView
from triokafka.coordinator.turn import Reply
from triokafka.errors import (
    BrokerResponseError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    KafkaError,
    MemberIdRequiredError,
    ProtocolError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from triokafka.protocol.api.heartbeat import HeartbeatRequest, HeartbeatResponse
from triokafka.protocol.api.join_group import JoinGroupResponse
from triokafka.protocol.api.leave_group import MemberIdentity, MemberResponse
from triokafka.protocol.api.sync_group import SyncGroupRequest, SyncGroupResponse

# --- JoinGroup ---


def join(
    shard: GroupShard, group: ConsumerGroup, joiner: Joiner, reply: Reply[JoinGroupResponse], turn: GroupTurn
) -> None:
    """A member joins, or joins again. The last one that leaves the consumer protocol, by taking its instance over to
    the classic one, takes the group with it.

    Raises:
        GroupMaxSizeReachedError: there is no room for one more.
        InconsistentGroupProtocolError: it is no consumer, or has no assignor in common with the other classic members.
        UnknownMemberIdError, FencedInstanceIdError: it names an instance that is not there, or is another member.
    """
    request = joiner.request
    known_as = _known_as(group, request.member_id, request.group_instance_id)
    if known_as is None and len(group.profiles) >= shard.config.group_consumer_max_size:
        raise GroupMaxSizeReachedError(f"group {group.group_id!r} has {len(group.profiles)} members and takes no more")
    asked = _Asked.of(group, joiner, shard.topics)
    member_id = request.member_id or joiner.member_id(shard.new_id())
    if joiner.requires_known_id and not request.member_id:
        turn.answer(reply, JoinGroupResponse(error_code=MemberIdRequiredError.code, member_id=member_id))
        return
    speaker = Speaker.of(group, member_id, known_as)
    if speaker.progress.epoch < JOINING:  # it had left for now
        speaker = speaker._replace(progress=speaker.progress._replace(epoch=JOINING, previous_epoch=JOINING))
    # It cannot be told of its part later, other than by making it join once more.
    at = Circumstances.of(shard, group.group_id, turn)._replace(assignment_interval_ms=0)
    step = advance(group, member_id, speaker, asked.profile(speaker.profile), asked.owned, at)
    if known_as is not None and group.profiles[known_as].classic is None:
        others = {known: profile for known, profile in group.profiles.items() if known != known_as}
        if goes_back(group, [*others.values(), step.profile], shard.config):
            _take_along(shard, group, member_id, joiner, speaker, step, reply, turn)
            return
    for change in step.changes:
        turn.write(change)
    turn.answer(reply, joined(member_id, step.progress.epoch, asked.traits.protocols[0][0]))

    def appended(now: GroupTurn) -> None:
        if known_as is not None and known_as != member_id:
            sessions.end(group.group_id, known_as, now)
        sessions.joined(shard.consumer_groups[group.group_id], member_id, now)

    turn.on_appended = appended


class _Asked(NamedTuple):
    """What a JoinGroup request says, read."""

    joiner: Joiner
    traits: ClassicTraits
    topic_names: frozenset[str]
    rack_id: str | None
    owned: Partitions

    @classmethod
    def of(cls, group: ConsumerGroup, joiner: Joiner, topics: TopicsView) -> _Asked:
        """Read it, and see whether it fits in with the group."""
        request = joiner.request
        offered = [protocol.name for protocol in joiner.protocols]
        if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not group.takes_classic(offered):
            raise InconsistentGroupProtocolError(
                f"group {group.group_id!r} takes consumers that have an assignor in common with its"
                f" {group.classic_members} classic members; this one is of type {request.protocol_type!r} and has"
                f" {', '.join(offered) or 'none'}"
            )
        try:
            subscription = read_subscription(joiner.protocols[0].metadata)
        except ProtocolError as error:
            raise InconsistentGroupProtocolError(f"what the member wants cannot be read: {error}") from None
        return cls(
            joiner,
            ClassicTraits(request.session_timeout_ms, tuple((p.name, p.metadata) for p in joiner.protocols)),
            frozenset(subscription.topics),
            subscription.rack_id or None,
            owned_by(subscription, topics),
        )

    def profile(self, before: MemberProfile | None) -> MemberProfile:
        """The member as it is now."""
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
    """The member id under which the group knows the one that joins; None for a new member. A static one that has none
    yet takes the place of whoever has its instance."""
    if instance_id is None:
        return member_id if member_id in group.profiles else None
    known = group.static_members.get(instance_id)
    if member_id:
        return group.speaker(member_id, instance_id)
    return known


def _take_along(
    shard: GroupShard,
    group: ConsumerGroup,
    member_id: str,
    joiner: Joiner,
    speaker: Speaker,
    step: Step,
    reply: Reply[JoinGroupResponse],
    turn: GroupTurn,
) -> None:
    """With this member all are under the classic protocol, and so is the group.

    Where everybody owns what it is to own and wants what it did, the new member just takes the old one's part;
    otherwise it waits in a round for the others.
    """
    profiles = {known: profile for known, profile in group.profiles.items() if known != speaker.known_as}
    settled = group.epoch == group.target_epoch and all(group.progress_of(m).is_at(group.epoch) for m in profiles)
    profiles[member_id] = step.profile
    at_rest = settled and step.progress.is_at(group.epoch)
    progress = {**group.progress, member_id: step.progress if at_rest else speaker.progress}
    owned = {known: progress[known].held_partitions for known in profiles if known in progress}
    since_ms = turn.at.wall_ms if at_rest else OWES_A_ROUND
    classic = classic_group(group, profiles, owned, shard.topics, stable_since_ms=since_ms)
    member = classic.members[member_id]
    if at_rest:
        # Nobody has led these members: only this one can learn now that it does, and look after the topics. But one
        # that cannot skip the assignment must not believe that it leads.
        leads = joiner.can_skip_assignment
        if leads:
            classic.leader_id = member_id
        leader = "" if member_id == classic.leader_id and not leads else None
        roster = rounds.member_roster(classic) if leads else []
        turn.answer(reply, rounds.joined(classic, member_id, roster, leader=leader, skip_assignment=leads))
    else:
        rounds.park_join(classic, member, reply, turn)

        def not_written(error: KafkaError, _later: GroupTurn) -> None:
            if not turn.appended:
                reply.fail(error)

        turn.on_failed = not_written
    downgrade(shard, group, classic, turn)


# --- SyncGroup, Heartbeat ---


def sync(
    shard: GroupShard,
    group: ConsumerGroup,
    request: SyncGroupRequest,
    reply: Reply[SyncGroupResponse],
    turn: GroupTurn,
) -> None:
    """A member asks for what it owns in the epoch that it has joined.

    Raises:
        UnknownMemberIdError, FencedInstanceIdError, IllegalGenerationError: see `_classic_member`.
        RebalanceInProgressError: there is a newer epoch: it must join again.
        InconsistentGroupProtocolError: it names a protocol that it does not have.
    """
    member_id = request.member_id
    traits = _classic_member(group, member_id, request.group_instance_id, request.generation_id)
    progress = group.progress_of(member_id)
    if progress.epoch < group.epoch and progress.state is not MemberState.UNREVOKED_PARTITIONS:
        turn.timers.cancel(sessions.sync_timer(group.group_id, member_id))  # it has asked, and has other things to do
        sessions.expect_join(group, member_id, turn)
        raise RebalanceInProgressError(f"group {group.group_id!r} is in epoch {group.epoch}: join again")
    # Before it first joined this group it was told the protocol of the classic one, which need not be its favourite.
    protocol = request.protocol_name if request.protocol_name is not None else traits.protocols[0][0]
    metadata = dict(traits.protocols).get(protocol)
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or metadata is None:
        raise InconsistentGroupProtocolError(
            f"member {member_id} has {', '.join(name for name, _ in traits.protocols)} of type"
            f" {CONSUMER_PROTOCOL_TYPE!r}, and syncs for {protocol!r} of type {request.protocol_type!r}"
        )
    turn.timers.cancel(sessions.sync_timer(group.group_id, member_id))
    sessions.start(group.group_id, member_id, traits.session_timeout_ms, turn)
    assignment = write_assignment(progress.assigned_partitions, shard.topics, metadata)
    response = SyncGroupResponse(protocol_type=CONSUMER_PROTOCOL_TYPE, protocol_name=protocol, assignment=assignment)
    turn.answer(reply, response)


def heartbeat(
    shard: GroupShard,
    group: ConsumerGroup,
    request: HeartbeatRequest,
    reply: Reply[HeartbeatResponse],
    turn: GroupTurn,
) -> None:
    """A member is alive, and is told whether to join again.

    Also when topics have changed: there may be nobody under the consumer protocol whose heartbeats would find that.

    Raises:
        UnknownMemberIdError, FencedInstanceIdError, IllegalGenerationError: see `_classic_member`.
    """
    member_id = request.member_id
    traits = _classic_member(group, member_id, request.group_instance_id, request.generation_id)
    sessions.start(group.group_id, member_id, traits.session_timeout_ms, turn)
    must_rejoin = group.must_rejoin(member_id)
    if not must_rejoin and group.topics_version != shard.topics.version:
        metadata_hash = hash_of_topics(group.wanted_topics(), shard.topics)
        if metadata_hash == group.metadata_hash:
            group.topics_version = shard.topics.version
        else:
            turn.write(EpochChange(group.group_id, (group.epoch + 1, metadata_hash)))
            must_rejoin = True
    if must_rejoin:  # of an epoch that cannot be written it is not told
        turn.on_appended = partial(sessions.expect_join, group, member_id)
    turn.answer(reply, HeartbeatResponse(error_code=RebalanceInProgressError.code if must_rejoin else 0))


def _classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> ClassicTraits:
    """The member that a request of the classic protocol speaks for.

    Raises:
        UnknownMemberIdError: there is no such member or instance, or it is under the consumer protocol.
        FencedInstanceIdError: the instance is another member by now.
        IllegalGenerationError: the member is in another epoch.
    """
    traits = group.profiles[group.speaker(member_id, instance_id)].classic
    if traits is None:
        raise UnknownMemberIdError(f"member {member_id} of group {group.group_id!r} is under the consumer protocol")
    epoch = group.progress_of(member_id).epoch
    if generation != epoch:
        raise IllegalGenerationError(f"member {member_id} is in generation {epoch}, the request is of {generation}")
    return traits


# --- LeaveGroup ---


def leave(
    shard: GroupShard, group: ConsumerGroup, leavers: list[MemberIdentity], turn: GroupTurn
) -> list[MemberResponse]:
    """Members leave, or are removed by an administrator, whatever their protocol; each has its own answer."""
    gone: dict[str, None] = {}
    responses = []
    for leaver in leavers:
        error_code = 0
        try:
            member_id = leaver.member_id
            if not member_id and leaver.group_instance_id is not None:
                member_id = group.static_members.get(leaver.group_instance_id, "")
            gone[group.speaker(member_id, leaver.group_instance_id)] = None
        except BrokerResponseError as error:
            error_code = error.code
        responses.append(
            MemberResponse(
                member_id=leaver.member_id, group_instance_id=leaver.group_instance_id, error_code=error_code
            )
        )
    if gone:
        depart(shard, group, list(gone), turn)
    return responses
