"""One consumer group (KIP-848): the state that its records replay into, and queries on it.

A plain object that only `ConsumerGroup.replay` changes. Other modules make decisions and write records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from uuid import UUID

from triokafka.coordinator.consumer_group.member import (
    LEAVING_FOR_NOW,
    NO_PARTITIONS,
    MemberProfile,
    MemberProgress,
    MemberState,
    Partitions,
)
from triokafka.coordinator.consumer_group.records import (
    ConsumerGroupChange,
    EpochChange,
    PatternChange,
    PatternMatch,
    ProfileChange,
    ProgressChange,
    TargetChange,
    TargetEpochChange,
    TopicsChange,
)
from triokafka.coordinator.consumer_group.subscription_counts import SubscriptionCounts
from triokafka.errors import (
    FencedInstanceIdError,
    IllegalGenerationError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)


class ConsumerGroupState(Enum):
    """State of a consumer group, as tools show it."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The target assignment of the newest epoch is not computed yet."""
    RECONCILING = "Reconciling"
    """Some member does not own its target yet."""
    STABLE = "Stable"


class ConsumerGroup:
    """The state of a group, by its records.

    ``epoch`` counts changes of the subscriptions, ``target_epoch`` is the epoch of the target assignment.
    ``metadata_hash`` covers the subscribed topics' metadata in ``epoch``. ``profiles`` hold what members reported,
    ``progress`` their reconciliation states, ``targets`` their target partitions, ``patterns`` the topics of each
    regular expression. ``static_members`` maps instance id to member id.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.target_timestamp_ms = 0
        self.has_topics_record = False
        """Whether the log has a subscription metadata record, which Kafka wrote up to 4.0."""
        self.profiles: dict[str, MemberProfile] = {}
        self.progress: dict[str, MemberProgress] = {}
        self.targets: dict[str, Partitions] = {}
        self.patterns: dict[str, PatternMatch] = {}
        self.static_members: dict[str, str] = {}
        self.topics_version: int | None = None
        """Soft: the metadata version for which `metadata_hash` is known to be current."""
        self.patterns_checked: dict[str, tuple[int, int]] = {}
        """Soft: the metadata version and time (ms) of each pattern's last lookup."""
        self.classic_members = 0
        """The number of members that use the classic protocol."""
        self._classic_protocols: dict[str, int] = {}
        self._holders: dict[tuple[UUID, int], str] = {}
        self._subscriptions = SubscriptionCounts()

    def __repr__(self) -> str:
        return f"<ConsumerGroup {self.group_id!r} {self.state.value} epoch={self.epoch} members={len(self.profiles)}>"

    # --- records ---

    def replay(self, change: ConsumerGroupChange) -> None:
        """Apply a change of this group from the log. A member's records may come in any order and repeatedly."""
        match change:
            case EpochChange(_, value):
                self.epoch, self.metadata_hash = value or (0, 0)
                self.topics_version = None
            case TopicsChange(_, value):
                self.has_topics_record = value is not None
            case ProfileChange(_, member_id, profile):
                self._replay_profile(member_id, profile)
            case TargetEpochChange(_, value):
                self.target_epoch, self.target_timestamp_ms = value or (0, 0)
            case TargetChange(_, member_id, target):
                if target is None:
                    self.targets.pop(member_id, None)
                else:
                    self.targets[member_id] = target
            case ProgressChange(_, member_id, progress):
                self._replay_progress(member_id, progress)
            case PatternChange(_, pattern, match):
                if match is None:
                    self.patterns.pop(pattern, None)
                    self.patterns_checked.pop(pattern, None)
                else:
                    self.patterns[pattern] = match

    def _replay_profile(self, member_id: str, profile: MemberProfile | None) -> None:
        before = self.profiles.pop(member_id, None)
        if before is not None and self.static_members.get(before.instance_id or "") == member_id:
            del self.static_members[before.instance_id or ""]
        self._count_classic(before, -1)
        self._count_classic(profile, 1)
        if before is not None:
            self._subscriptions.remove(before)
        if profile is None:
            return
        self._subscriptions.add(profile)
        self.profiles[member_id] = profile
        if profile.instance_id is not None:
            self.static_members[profile.instance_id] = member_id

    def _count_classic(self, profile: MemberProfile | None, by: int) -> None:
        if profile is None or profile.classic is None:
            return
        self.classic_members += by
        for name in {name: None for name, _ in profile.classic.protocols}:
            count = self._classic_protocols.get(name, 0) + by
            if count:
                self._classic_protocols[name] = count
            else:
                del self._classic_protocols[name]

    def _replay_progress(self, member_id: str, progress: MemberProgress | None) -> None:
        before = self.progress.pop(member_id, None)
        if before is not None:
            for held in before.held():
                if self._holders.get(held) == member_id:
                    del self._holders[held]
        if progress is None:
            return
        self.progress[member_id] = progress
        for held in progress.held():
            self._holders[held] = member_id

    def removal(self) -> list[ConsumerGroupChange]:
        """Return the changes that remove the group from the log. The group must have no members."""
        changes: list[ConsumerGroupChange] = [PatternChange(self.group_id, pattern, None) for pattern in self.patterns]
        if self.has_topics_record:
            changes.append(TopicsChange(self.group_id, None))
        return [*changes, TargetEpochChange(self.group_id, None), EpochChange(self.group_id, None)]

    # --- queries ---

    @property
    def is_gone(self) -> bool:
        """Whether the log no longer has records of the group."""
        return not (
            self.epoch
            or self.target_epoch
            or self.profiles
            or self.progress
            or self.targets
            or self.patterns
            or self.has_topics_record
        )

    @property
    def state(self) -> ConsumerGroupState:
        """The group's state, for tools; no decision depends on it."""
        if not self.profiles:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(self.progress_of(member_id).is_at(self.target_epoch) for member_id in self.profiles):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def progress_of(self, member_id: str) -> MemberProgress:
        """Return a member's reconciliation state; the initial state when none is stored."""
        return self.progress.get(member_id) or MemberProgress()

    def target_of(self, member_id: str) -> Partitions:
        """Return a member's target partitions."""
        return self.targets.get(member_id, NO_PARTITIONS)

    def is_held(self, topic_id: UUID, number: int) -> bool:
        """Whether a member owns the partition or has not finished revoking it."""
        return (topic_id, number) in self._holders

    def holder_of(self, topic_id: UUID, number: int) -> str | None:
        """Return the member that owns the partition or has not finished revoking it."""
        return self._holders.get((topic_id, number))

    def is_away(self, member_id: str) -> bool:
        """Whether a static member has left temporarily."""
        return self.progress_of(member_id).epoch == LEAVING_FOR_NOW

    def must_rejoin(self, member_id: str) -> bool:
        """Whether heartbeats of a classic member must return REBALANCE_IN_PROGRESS.

        True when the group has a newer epoch than the member (a member that must revoke partitions has not entered it
        yet), and when all partitions that the member waits for are free.
        """
        progress = self.progress_of(member_id)
        if progress.epoch < self.epoch:
            return True
        return progress.state is MemberState.UNRELEASED_PARTITIONS and not any(
            (topic_id, number) in self._holders and number not in progress.assigned.get(topic_id, {})
            for topic_id, numbers in self.target_of(member_id).items()
            for number in numbers
        )

    def takes_classic(self, protocols: Iterable[str]) -> bool:
        """Whether a classic member may join: it shares one protocol with all present classic members."""
        return any(self._classic_protocols.get(name, 0) == self.classic_members for name in protocols)

    def topics_of(self, profile: MemberProfile, patterns: Mapping[str, PatternMatch] | None = None) -> frozenset[str]:
        """Return the topics that a member subscribes to; ``patterns``, if given, replaces the group's matches."""
        match = (self.patterns if patterns is None else patterns).get(profile.pattern) if profile.pattern else None
        return profile.topic_names if match is None else profile.topic_names | match.topics

    def wanted_topics(
        self,
        *,
        without: Iterable[MemberProfile] = (),
        also: MemberProfile | None = None,
        patterns: Mapping[str, PatternMatch] | None = None,
    ) -> set[str]:
        """Return the topics that any member subscribes to.

        Members with the profiles ``without`` do not count, and one with the profile ``also`` does. ``patterns``, if
        given, replaces the group's matches.
        """
        return self._subscriptions.topics(self.patterns if patterns is None else patterns, without=without, also=also)

    def unused_patterns(self, *, without: Iterable[MemberProfile] = (), also: MemberProfile | None = None) -> list[str]:
        """Return the stored patterns that no member uses; the arguments are those of `wanted_topics`."""
        if not self.patterns:
            return []
        return sorted(self.patterns.keys() - self._subscriptions.patterns(without=without, also=also))

    def subscribes_to(self, topic: str) -> bool:
        """Whether a member subscribes to the topic."""
        return topic in self.wanted_topics()

    def requesting_member(self, member_id: str, instance_id: str | None) -> str:
        """Return the id of the member that a request names, after checking its instance id.

        Raises:
            UnknownMemberIdError: the group has no such member or instance.
            FencedInstanceIdError: another member now has the instance id.
        """
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                raise UnknownMemberIdError(f"group {self.group_id!r} has no instance {instance_id!r}")
            if known != member_id:
                raise FencedInstanceIdError(f"instance {instance_id!r} is now member {known}, not {member_id}")
        if member_id not in self.profiles:
            raise UnknownMemberIdError(f"group {self.group_id!r} has no member {member_id!r}")
        return member_id

    def progress_of_requester(self, member_id: str, instance_id: str | None) -> MemberProgress:
        """Return the state of the member that a request for offsets names. Raises as `requesting_member`."""
        if member_id not in self.profiles:
            raise UnknownMemberIdError(f"group {self.group_id!r} has no member {member_id!r}")
        if instance_id is not None and self.static_members.get(instance_id, member_id) != member_id:
            raise FencedInstanceIdError(f"instance {instance_id!r} of group {self.group_id!r} is now another member")
        return self.progress_of(member_id)

    def refuse_epoch(self, member_id: str, member_epoch: int, progress: MemberProgress) -> None:
        """Refuse a request for offsets from another epoch.

        Raises:
            StaleMemberEpochError: the member must heartbeat, and may then retry.
            IllegalGenerationError: the same for a classic member; it must rejoin.
        """
        if self.profiles[member_id].classic is not None:
            raise IllegalGenerationError(
                f"member {member_id} of group {self.group_id!r} is in generation {progress.epoch}, not {member_epoch}"
            )
        raise StaleMemberEpochError(
            f"member {member_id} of group {self.group_id!r} is in epoch {progress.epoch}, not in {member_epoch}"
        )

    def preferred_assignor(self, profiles: Iterable[MemberProfile], offered: Sequence[str]) -> str:
        """Return the offered assignor that most members request; on a tie the first by name, and without requests the
        first offered.

        Ignores requests for assignors that this broker does not offer: a member may have requested one from a former
        coordinator.
        """
        votes: dict[str, int] = {}
        for profile in profiles:
            if profile.server_assignor is not None and profile.server_assignor in offered:
                votes[profile.server_assignor] = votes.get(profile.server_assignor, 0) + 1
        return min(votes, key=lambda name: (-votes[name], name)) if votes else offered[0]
