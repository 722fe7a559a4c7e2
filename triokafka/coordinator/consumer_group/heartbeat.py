"""ConsumerGroupHeartbeat: a member joins, reports its subscription and owned partitions, and reconciles (KIP-848)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from triokafka import errors
from triokafka.coordinator.classic_group import rebalance
from triokafka.coordinator.classic_group.classic_group import ClassicGroup
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.classic_group.stored_group import group_removal
from triokafka.coordinator.consumer_group import timers
from triokafka.coordinator.consumer_group.advance import advance
from triokafka.coordinator.consumer_group.consumer_group import ConsumerGroup
from triokafka.coordinator.consumer_group.group_epoch import Circumstances, RequestingMember
from triokafka.coordinator.consumer_group.member import (
    JOINING,
    LEAVING,
    LEAVING_FOR_NOW,
    MemberProfile,
    MemberProgress,
    Partitions,
    partitions_of,
)
from triokafka.coordinator.consumer_group.migration import upgrade
from triokafka.coordinator.consumer_group.records import ConsumerGroupChange
from triokafka.coordinator.consumer_group.target_assignment import STRATEGIES
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.records import GroupEffects
from triokafka.coordinator.group.topics_view import TopicFilter, any_topic
from triokafka.coordinator.runtime.reply import Reply
from triokafka.protocol.api.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

_FIRST_OWN_IDS: Final = 1


class Beat(NamedTuple):
    """A parsed heartbeat of a member that stays in the group, with its sender."""

    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int
    topic_names: frozenset[str] | None
    pattern: str | None
    server_assignor: str | None
    owned: Partitions | None
    client_id: str
    client_host: str

    @classmethod
    def of(cls, request: ConsumerGroupHeartbeatRequest, *, member_id: str, client_id: str, client_host: str) -> Beat:
        """Parse a request that passed `check`; ``member_id`` is the request's own or a generated one."""
        names, owned = request.subscribed_topic_names, request.topic_partitions
        return cls(
            member_id=member_id,
            member_epoch=request.member_epoch,
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            topic_names=None if names is None else frozenset(names),
            pattern=request.subscribed_topic_regex,
            server_assignor=request.server_assignor,
            owned=None if owned is None else partitions_of((one.topic_id, one.partitions) for one in owned),
            client_id=client_id,
            client_host=client_host,
        )

    @property
    def is_joining(self) -> bool:
        """Whether the member joins or starts over, with epoch 0."""
        return self.member_epoch == JOINING

    @property
    def is_full(self) -> bool:
        """Whether the request is complete, as the first heartbeat and those after a failure are. The response then
        includes the assignment."""
        return self.is_joining or (
            self.rebalance_timeout_ms >= 0
            and (self.topic_names is not None or self.pattern is not None)
            and self.owned is not None
        )


class HeartbeatOutcome(NamedTuple):
    """The changes that a heartbeat writes, and the member after they are written."""

    changes: list[ConsumerGroupChange]
    profile: MemberProfile
    progress: MemberProgress
    includes_assignment: bool
    """Whether the response includes the member's assignment."""


def check(request: ConsumerGroupHeartbeatRequest, version: int, assignors: Collection[str] = tuple(STRATEGIES)) -> None:
    """Validate a request by itself. ``assignors`` are those that the broker offers.

    Raises:
        InvalidRequestError: a field is missing, empty or out of range.
        UnsupportedAssignorError: the broker does not offer the assignor.
    """
    for name in ("group_id", "instance_id", "rack_id"):
        text = getattr(request, name)
        if text is not None and not text.strip():
            raise errors.InvalidRequestError(f"the {name} is empty")
    epoch = request.member_epoch
    if not request.member_id.strip() and (request.member_id or epoch != JOINING or version >= _FIRST_OWN_IDS):
        raise errors.InvalidRequestError("the member_id is empty")
    if epoch < LEAVING_FOR_NOW:
        raise errors.InvalidRequestError(f"{epoch} is not a valid member epoch")
    if epoch == LEAVING_FOR_NOW and request.instance_id is None:
        raise errors.InvalidRequestError("a member that leaves temporarily (epoch -2) must have an instance_id")
    if epoch == JOINING:
        if request.rebalance_timeout_ms < 0:
            raise errors.InvalidRequestError("the first heartbeat must have a rebalance_timeout_ms")
        if request.topic_partitions is None or request.topic_partitions:
            raise errors.InvalidRequestError("a joining member owns no partitions: topic_partitions must be empty")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise errors.InvalidRequestError(
                "the first heartbeat must have a subscription, in subscribed_topic_names or subscribed_topic_regex"
            )
    assignor = request.server_assignor
    if assignor is not None and assignor not in assignors:
        raise errors.UnsupportedAssignorError(f"unsupported assignor {assignor!r}; use one of {', '.join(assignors)}")


def leaves(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the request is a member's last heartbeat, permanently or temporarily."""
    return request.member_epoch in (LEAVING, LEAVING_FOR_NOW)


def heartbeat(
    shard: GroupShard,
    group_id: str,
    beat: Beat,
    reply: Reply[ConsumerGroupHeartbeatResponse],
    effects: GroupEffects,
    may_describe: TopicFilter = any_topic,
) -> None:
    """Handle the heartbeat of a member that stays. A joining member creates the group if it does not exist, replaces a
    classic group without members, and converts a classic group with members to a consumer group.

    Raises:
        GroupIdNotFoundError: the group does not exist, or is a classic group that cannot be converted.
        KafkaError: see `decide`.
    """
    group = shard.consumer_groups.get(group_id)
    if group is None:
        classic = shard.groups.get(group_id)
        if not beat.is_joining:
            raise errors.GroupIdNotFoundError(f"consumer group {group_id!r} does not exist")
        if classic is None:
            group = ConsumerGroup(group_id)
        elif classic.state is GroupState.EMPTY:
            _replace_classic(shard, classic, effects)
            group = ConsumerGroup(group_id)
        else:
            group = upgrade(shard, classic, effects)
    before = group.progress.get(beat.member_id)
    replaced = group.static_members.get(beat.instance_id) if beat.instance_id is not None else None
    outcome = decide(group, beat, Circumstances.of(shard, group_id, effects, may_describe))
    effects.write(*outcome.changes)
    timers.start(group_id, beat.member_id, shard.session_timeout_ms(group_id), effects)
    timeout_ms = outcome.profile.rebalance_timeout_ms

    def appended(now: GroupEffects) -> None:
        if replaced is not None and replaced != beat.member_id:
            timers.end(group_id, replaced, now)
        # Only after the append: a step that could not be written must not extend the deadline of the step before it.
        timers.watch_revocation(group_id, beat.member_id, before, outcome.progress, timeout_ms, now)

    if effects.on_appended is None:  # `upgrade` has its own callback, which starts the deadlines of all members
        effects.on_appended = appended
    effects.answer(reply, _answer(beat, outcome, shard.heartbeat_interval_ms(group_id)))


def _answer(beat: Beat, outcome: HeartbeatOutcome, heartbeat_interval_ms: int) -> ConsumerGroupHeartbeatResponse:
    response = ConsumerGroupHeartbeatResponse(
        member_id=beat.member_id,
        member_epoch=outcome.progress.epoch,
        heartbeat_interval_ms=heartbeat_interval_ms,
    )
    if outcome.includes_assignment:
        response.assignment = Assignment(topic_partitions=_topic_partitions(outcome.progress.assigned_partitions))
    return response


def _topic_partitions(partitions: Partitions) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic_id, partitions=sorted(partitions[topic_id])) for topic_id in sorted(partitions)
    ]


def _replace_classic(shard: GroupShard, classic: ClassicGroup, effects: GroupEffects) -> None:
    for member_id in list(classic.pending_members):
        classic.remove(member_id)
        effects.timers.cancel(rebalance.session_timer(classic, member_id))
    if shard.is_stored(classic.group_id):
        effects.write(group_removal(classic.group_id))


def decide(group: ConsumerGroup, beat: Beat, at: Circumstances) -> HeartbeatOutcome:
    """Decide the consequences of a heartbeat.

    Raises:
        UnknownMemberIdError, FencedInstanceIdError, FencedMemberEpochError: the sender is not a current member; it must
            give up its partitions and rejoin.
        UnreleasedInstanceIdError: another process has this instance id and has not left.
        GroupMaxSizeReachedError: the group is full.
        InvalidRegularExpressionError: see `look_up`.
    """
    requester = RequestingMember.of(group, beat.member_id, _known_as(group, beat, at.max_size))
    if requester.known_as == beat.member_id and beat.is_joining and requester.progress.previous_epoch != JOINING:
        requester = requester.starting_over()
    profile = _updated(requester.profile, beat)
    step = advance(group, beat.member_id, requester, profile, beat.owned, at)
    tells = beat.is_full or step.progress.assigned_partitions != requester.progress.assigned_partitions
    return HeartbeatOutcome(step.changes, profile, step.progress, tells)


def _known_as(group: ConsumerGroup, beat: Beat, max_size: int) -> str | None:
    """Return the member id under which the group knows the sender; None for a new member."""
    if beat.instance_id is None:
        if beat.member_id in group.profiles:
            if not beat.is_joining:
                _check_epoch(group, beat)
            return beat.member_id
        known = None
    else:
        known = group.static_members.get(beat.instance_id)
        if known is not None and not beat.is_joining:
            if known != beat.member_id:
                raise errors.FencedInstanceIdError(
                    f"instance {beat.instance_id!r} is now member {known}, not {beat.member_id}"
                )
            _check_epoch(group, beat)
            return known
        if known is not None:
            releases = group.is_away(known) or group.profiles[known].classic is not None
            if known != beat.member_id and not releases:
                raise errors.UnreleasedInstanceIdError(
                    f"instance {beat.instance_id!r} is member {known}, which has not left"
                )
            return known
    if not beat.is_joining:
        named = beat.member_id if beat.instance_id is None else f"instance {beat.instance_id!r}"
        raise errors.UnknownMemberIdError(f"group {group.group_id!r} has no member {named}")
    if len(group.profiles) >= max_size:
        raise errors.GroupMaxSizeReachedError(
            f"group {group.group_id!r} is full: group.consumer.max.size is {max_size}"
        )
    return None


def _check_epoch(group: ConsumerGroup, beat: Beat) -> None:
    progress = group.progress_of(beat.member_id)
    if beat.member_epoch == progress.epoch:
        return
    if beat.member_epoch == progress.previous_epoch < progress.epoch and beat.owned is not None:
        # The response with the new epoch was lost. Accept the old one unless the member still uses revoked partitions.
        assigned = progress.assigned_partitions
        if all(numbers <= assigned.get(topic_id, frozenset()) for topic_id, numbers in beat.owned.items()):
            return
    raise errors.FencedMemberEpochError(
        f"member {beat.member_id} is in epoch {progress.epoch}; the request is from epoch {beat.member_epoch}."
        " The member must give up its partitions and rejoin"
    )


def _updated(before: MemberProfile | None, beat: Beat) -> MemberProfile:
    profile = before or MemberProfile()
    return profile._replace(
        instance_id=_newer(beat.instance_id, profile.instance_id),
        rack_id=_newer(beat.rack_id, profile.rack_id),
        client_id=beat.client_id,
        client_host=beat.client_host,
        topic_names=profile.topic_names if beat.topic_names is None else beat.topic_names,
        pattern=profile.pattern if beat.pattern is None else beat.pattern,
        rebalance_timeout_ms=beat.rebalance_timeout_ms
        if beat.rebalance_timeout_ms >= 0
        else profile.rebalance_timeout_ms,
        server_assignor=_newer(beat.server_assignor, profile.server_assignor),
        classic=None,
    )


def _newer(said: str | None, known: str | None) -> str | None:
    return known if said is None else said
