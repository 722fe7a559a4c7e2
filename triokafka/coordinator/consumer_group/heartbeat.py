"""ConsumerGroupHeartbeat: a member joins, says what it wants and owns, and is led to what it is to own (KIP-848)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from triokafka.coordinator.consumer_group.assign import STRATEGIES, compute_target
from triokafka.coordinator.consumer_group.changes import (
    ConsumerGroupChange,
    EpochChange,
    PatternChange,
    ProfileChange,
    ProgressChange,
    TargetChange,
    TargetEpochChange,
    TopicsChange,
)
from triokafka.coordinator.consumer_group.group import ConsumerGroup
from triokafka.coordinator.consumer_group.member import (
    JOINING,
    LEAVING,
    LEAVING_FOR_NOW,
    MemberProfile,
    Partitions,
    Progress,
    partitions_of,
)
from triokafka.coordinator.consumer_group.patterns import look_up
from triokafka.coordinator.consumer_group.reconcile import reconcile
from triokafka.coordinator.topics import TopicFilter, TopicsView, any_topic
from triokafka.errors import (
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupMaxSizeReachedError,
    InvalidRequestError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
)
from triokafka.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

_DEFAULT_STRATEGY: Final = next(iter(STRATEGIES))
_FIRST_OWN_IDS: Final = 1


@dataclass(frozen=True, slots=True)
class Beat:
    """One heartbeat of a member that stays: what the request says and who sent it."""

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
        """Read a request that `check` let through; ``member_id`` is its own, or the one made for it."""
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
        """Whether the member begins, with nothing."""
        return self.member_epoch == JOINING

    @property
    def says_everything(self) -> bool:
        """Whether nothing is left out, as in the first heartbeat and in those after a failure: then the answer leaves
        nothing out either."""
        return self.is_joining or (
            self.rebalance_timeout_ms >= 0
            and (self.topic_names is not None or self.pattern is not None)
            and self.owned is not None
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a heartbeat leads to: the changes to write, and the member as it is once they are written."""

    changes: list[ConsumerGroupChange]
    profile: MemberProfile
    progress: Progress
    tells_assignment: bool
    """Whether the answer says what the member owns."""


def check(request: ConsumerGroupHeartbeatRequest, version: int) -> None:
    """Refuse a request that is wrong by itself.

    Raises:
        InvalidRequestError: a field is missing, empty or out of range.
        UnsupportedAssignorError: there is no such assignor.
    """
    for name in ("group_id", "instance_id", "rack_id"):
        if getattr(request, name) == "":
            raise InvalidRequestError(f"the {name} is empty")
    epoch = request.member_epoch
    if not request.member_id and (epoch != JOINING or version >= _FIRST_OWN_IDS):
        raise InvalidRequestError("the member_id is empty")
    if epoch < LEAVING_FOR_NOW:
        raise InvalidRequestError(f"{epoch} is no epoch of a member")
    if epoch == LEAVING_FOR_NOW and request.instance_id is None:
        raise InvalidRequestError("a member that leaves for now must have an instance_id")
    if epoch == JOINING:
        if request.rebalance_timeout_ms < 0:
            raise InvalidRequestError("the first heartbeat must have a rebalance_timeout_ms")
        if request.topic_partitions is None or request.topic_partitions:
            raise InvalidRequestError("a member that joins owns no partitions: topic_partitions must be empty")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise InvalidRequestError(
                "the first heartbeat must say what it subscribes to, in subscribed_topic_names or _regex"
            )
    assignor = request.server_assignor
    if assignor is not None and assignor not in STRATEGIES:
        raise UnsupportedAssignorError(f"there is no assignor {assignor!r}; there are {', '.join(STRATEGIES)}")


def leaves(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether it is the last heartbeat of a member, for good or for now."""
    return request.member_epoch in (LEAVING, LEAVING_FOR_NOW)


def heartbeat(
    group: ConsumerGroup,
    beat: Beat,
    *,
    topics: TopicsView,
    max_size: int,
    wall_ms: int,
    may_describe: TopicFilter = any_topic,
) -> Outcome:
    """Decide what follows from a heartbeat. ``may_describe`` says which topics the member's pattern may match.

    Raises:
        UnknownMemberIdError, FencedInstanceIdError, FencedMemberEpochError: it is not this member's turn to speak: it
            must give up everything and join anew.
        UnreleasedInstanceIdError: another process has this instance, and has not left.
        GroupMaxSizeReachedError: there is no room for one more.
    """
    changes: list[ConsumerGroupChange] = []
    predecessor = _predecessor(group, beat, max_size)
    speaker = _Speaker.of(group, beat, predecessor)
    if predecessor is not None and predecessor != beat.member_id:
        changes += removal_of(group, predecessor)
        if speaker.target:
            changes.append(TargetChange(group.group_id, beat.member_id, speaker.target))
        changes.append(ProgressChange(group.group_id, beat.member_id, speaker.progress))
    profile = _updated(speaker.profile, beat)
    if profile != speaker.profile or predecessor != beat.member_id:
        changes.append(ProfileChange(group.group_id, beat.member_id, profile))
    is_new_want = speaker.profile is None or not profile.wants_the_same(speaker.profile)
    profiles = group.profiles
    if (
        is_new_want
        or predecessor != beat.member_id
        or profile.server_assignor != group.profiles[beat.member_id].server_assignor
    ):
        profiles = {known: profiles[known] for known in profiles if known != predecessor} | {beat.member_id: profile}
    found = look_up(group, speaker.profile, profile, topics, wall_ms, may_describe)
    changes += found
    wants = _Wants(group, profiles, found)
    target_epoch, target = _target(
        group, beat.member_id, speaker.target, wants, is_new_want or bool(found), topics, wall_ms, changes
    )
    progress = reconcile(
        speaker.progress,
        target_epoch=target_epoch,
        target=target,
        owned=beat.owned,
        is_held=lambda topic_id, number: group.holder_of(topic_id, number) not in speaker.is_not_holder,
    )
    if progress != speaker.progress or speaker.starts_anew:
        changes = [c for c in changes if not isinstance(c, ProgressChange) or c.member_id != beat.member_id]
        changes.append(ProgressChange(group.group_id, beat.member_id, progress))
    tells = beat.says_everything or progress.assigned_partitions != speaker.progress.assigned_partitions
    return Outcome(changes, profile, progress, tells)


class _Wants:
    """Which topics the members want, once the changes of this heartbeat are written."""

    def __init__(
        self, group: ConsumerGroup, profiles: Mapping[str, MemberProfile], found: Iterable[PatternChange]
    ) -> None:
        self.profiles = profiles
        self._group = group
        found_now = {change.pattern: change.value for change in found if change.value is not None}
        self._patterns = {**group.patterns, **found_now} if found_now else group.patterns

    def by_member(self) -> dict[str, tuple[str | None, frozenset[str]]]:
        """For each member its instance and its topics."""
        return {
            member_id: (profile.instance_id, self._group.topics_of(profile, self._patterns))
            for member_id, profile in self.profiles.items()
        }

    def all_topics(self) -> set[str]:
        """Those of all members."""
        return self._group.wanted_topics(self.profiles.values(), self._patterns)


@dataclass(frozen=True, slots=True)
class _Speaker:
    """The member that speaks, as it was before."""

    profile: MemberProfile | None
    progress: Progress
    target: Partitions
    starts_anew: bool
    is_not_holder: frozenset[str | None]
    """Whose partitions are free for it: nobody's, and its own from before it started anew."""

    @classmethod
    def of(cls, group: ConsumerGroup, beat: Beat, predecessor: str | None) -> _Speaker:
        if predecessor is None:
            return cls(None, Progress(), {}, False, frozenset({None}))
        profile, target = group.profiles[predecessor], group.target_of(predecessor)
        progress = group.progress_of(predecessor)
        if predecessor != beat.member_id:
            # A static member is back under a new id: it goes on with what it had, but must enter its epoch again.
            return cls(
                profile, replace(progress, epoch=JOINING, previous_epoch=JOINING), target, False, frozenset({None})
            )
        if beat.is_joining and progress.previous_epoch != JOINING:
            return cls(profile, Progress(), target, True, frozenset({None, predecessor}))
        return cls(profile, progress, target, False, frozenset({None}))


def _predecessor(group: ConsumerGroup, beat: Beat, max_size: int) -> str | None:
    """The member id under which the group knows the speaker; None for a new member."""
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
                raise FencedInstanceIdError(
                    f"instance {beat.instance_id!r} is now member {known}, not {beat.member_id}"
                )
            _check_epoch(group, beat)
            return known
        if known is not None:
            if known != beat.member_id and not group.is_away(known):
                raise UnreleasedInstanceIdError(f"instance {beat.instance_id!r} is member {known}, which has not left")
            return known
    if not beat.is_joining:
        named = beat.member_id if beat.instance_id is None else f"instance {beat.instance_id!r}"
        raise UnknownMemberIdError(f"group {group.group_id!r} has no member {named}")
    if len(group.profiles) >= max_size:
        raise GroupMaxSizeReachedError(
            f"group {group.group_id!r} has {max_size} members, which is the most it may have"
        )
    return None


def _check_epoch(group: ConsumerGroup, beat: Beat) -> None:
    progress = group.progress_of(beat.member_id)
    if beat.member_epoch == progress.epoch:
        return
    if beat.member_epoch == progress.previous_epoch < progress.epoch and beat.owned is not None:
        # The answer with its new epoch was lost; but it must not use what it had to give up since.
        assigned = progress.assigned_partitions
        if all(numbers <= assigned.get(topic_id, frozenset()) for topic_id, numbers in beat.owned.items()):
            return
    raise FencedMemberEpochError(
        f"member {beat.member_id} is in epoch {progress.epoch}, the request of {beat.member_epoch};"
        " it must give up its partitions and join anew"
    )


def _updated(before: MemberProfile | None, beat: Beat) -> MemberProfile:
    profile = before or MemberProfile()
    return replace(
        profile,
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


def _target(
    group: ConsumerGroup,
    member_id: str,
    target: Partitions,
    wants: _Wants,
    is_new_want: bool,
    topics: TopicsView,
    wall_ms: int,
    changes: list[ConsumerGroupChange],
) -> tuple[int, Partitions]:
    """The epoch and the member's part of the assignment, made anew where what members want, or what there is of it,
    has changed."""
    epoch, metadata_hash = group.epoch, group.metadata_hash
    if is_new_want or group.topics_version != topics.version:
        metadata_hash = hash_of_topics(wants.all_topics(), topics)
        if metadata_hash == group.metadata_hash:
            group.topics_version = topics.version
    if is_new_want or metadata_hash != group.metadata_hash:
        epoch += 1
        changes.append(EpochChange(group.group_id, (epoch, metadata_hash)))
        if group.has_topics_record:
            changes.append(TopicsChange(group.group_id, None))
    if epoch <= group.target_epoch:
        return group.target_epoch, target
    current = {known: partitions for known, partitions in group.targets.items() if known in wants.profiles}
    current[member_id] = target
    strategy = group.preferred_assignor(wants.profiles.values(), _DEFAULT_STRATEGY)
    targets = compute_target(strategy, wants.by_member(), current, topics)
    for known in sorted(targets):
        if targets[known] != current.get(known, {}):
            changes.append(TargetChange(group.group_id, known, targets[known]))
    changes.append(TargetEpochChange(group.group_id, (epoch, wall_ms)))
    return epoch, targets[member_id]


def hash_of_topics(names: set[str], topics: TopicsView) -> int:
    """A number that changes whenever one of the topics comes, goes, or gets partitions; 0 when there is none."""
    digest = hashlib.blake2b(digest_size=8)
    found = False
    for name in sorted(names):
        topic_id = topics.topic_id(name)
        if topic_id is not None:
            found = True
            digest.update(topic_id.bytes + topics.partition_count(name).to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True) if found else 0


def removal_of(group: ConsumerGroup, member_id: str) -> list[ConsumerGroupChange]:
    """The changes after which the log knows nothing of a member."""
    changes: list[ConsumerGroupChange] = []
    if member_id in group.progress:
        changes.append(ProgressChange(group.group_id, member_id, None))
    if member_id in group.targets:
        changes.append(TargetChange(group.group_id, member_id, None))
    changes.append(ProfileChange(group.group_id, member_id, None))
    return changes
