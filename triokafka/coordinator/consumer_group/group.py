"""One group under the new protocol: what its records say, and what follows from that without deciding anything.

A plain object that only `ConsumerGroup.replay` changes. Deciding, and writing records, is done elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from uuid import UUID

from triokafka.coordinator.consumer_group.changes import (
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
from triokafka.coordinator.consumer_group.member import (
    LEAVING_FOR_NOW,
    NO_PARTITIONS,
    MemberProfile,
    MemberState,
    Partitions,
    Progress,
)
from triokafka.errors import (
    FencedInstanceIdError,
    IllegalGenerationError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnsupportedVersionError,
)


class ConsumerGroupState(Enum):
    """What tools are shown."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """The target assignment for the newest epoch is not computed yet."""
    RECONCILING = "Reconciling"
    """Some member does not own yet what it is to own."""
    STABLE = "Stable"


class ConsumerGroup:
    """A group, by its records.

    ``epoch`` is of what the members want, ``target_epoch`` of the assignment; ``metadata_hash`` is of the topics that
    the epoch rests on. ``profiles`` is what members said, ``progress`` how far each has come, ``targets`` what each is
    to own; ``patterns`` are the topics of each regular expression. ``static_members`` maps instance to member id.
    """

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.target_timestamp_ms = 0
        self.has_topics_record = False
        """Whether the log has the subscribed topics as Kafka kept them up to 4.0."""
        self.profiles: dict[str, MemberProfile] = {}
        self.progress: dict[str, Progress] = {}
        self.targets: dict[str, Partitions] = {}
        self.patterns: dict[str, PatternMatch] = {}
        self.static_members: dict[str, str] = {}
        self.topics_version: int | None = None
        """Soft: the version of the metadata for which `metadata_hash` is known to be right."""
        self.patterns_checked: dict[str, tuple[int, int]] = {}
        """Soft: the version of the metadata at which each pattern was last looked up, and when (ms)."""
        self.classic_members = 0
        """How many members speak the classic protocol."""
        self._classic_protocols: dict[str, int] = {}
        self._holders: dict[tuple[UUID, int], str] = {}

    def __repr__(self) -> str:
        return f"<ConsumerGroup {self.group_id!r} {self.state.value} epoch={self.epoch} members={len(self.profiles)}>"

    # ---------------------------------------------------------------- records

    def replay(self, change: ConsumerGroupChange) -> None:
        """Apply a change of this group that is in the log. Records of a member may come in any order, and repeated."""
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
        if profile is None:
            return
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

    def _replay_progress(self, member_id: str, progress: Progress | None) -> None:
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
        """The changes after which the log knows nothing of the group; it must have no members."""
        changes: list[ConsumerGroupChange] = [PatternChange(self.group_id, pattern, None) for pattern in self.patterns]
        if self.has_topics_record:
            changes.append(TopicsChange(self.group_id, None))
        return [*changes, TargetEpochChange(self.group_id, None), EpochChange(self.group_id, None)]

    # ---------------------------------------------------------------- what follows from them

    @property
    def is_gone(self) -> bool:
        """Whether the log says nothing of it any more."""
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
        """For tools; nothing here is decided by it."""
        if not self.profiles:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(self.progress_of(member_id).is_at(self.target_epoch) for member_id in self.profiles):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def progress_of(self, member_id: str) -> Progress:
        """How far a member has come; one of which nothing is stored has nothing."""
        return self.progress.get(member_id) or Progress()

    def target_of(self, member_id: str) -> Partitions:
        """What a member is to own."""
        return self.targets.get(member_id, NO_PARTITIONS)

    def is_held(self, topic_id: UUID, number: int) -> bool:
        """Whether a member owns a partition or has still to give it up."""
        return (topic_id, number) in self._holders

    def holder_of(self, topic_id: UUID, number: int) -> str | None:
        """The member that owns a partition or has still to give it up."""
        return self._holders.get((topic_id, number))

    def is_away(self, member_id: str) -> bool:
        """Whether it is a static member that has left for now."""
        return self.progress_of(member_id).epoch == LEAVING_FOR_NOW

    def must_rejoin(self, member_id: str) -> bool:
        """Whether a classic member has to join again, and a heartbeat tells it so: for a newer epoch (one that has
        partitions to give up is not in it yet), or to get the last of those that it waits for."""
        progress = self.progress_of(member_id)
        if progress.epoch < self.epoch:
            return True
        return progress.state is MemberState.UNRELEASED_PARTITIONS and not any(
            (topic_id, number) in self._holders and number not in progress.assigned.get(topic_id, {})
            for topic_id, numbers in self.target_of(member_id).items()
            for number in numbers
        )

    def takes_classic(self, protocols: Iterable[str]) -> bool:
        """Whether a classic member with these protocols fits: one of them is common to all that are there."""
        return any(self._classic_protocols.get(name, 0) == self.classic_members for name in protocols)

    def topics_of(self, profile: MemberProfile, patterns: Mapping[str, PatternMatch] | None = None) -> frozenset[str]:
        """Names of the topics that a member wants, by name or by pattern; with ``patterns`` in the place of its own."""
        match = (self.patterns if patterns is None else patterns).get(profile.pattern) if profile.pattern else None
        return profile.topic_names if match is None else profile.topic_names | match.topics

    def wanted_topics(
        self, profiles: Iterable[MemberProfile] | None = None, patterns: Mapping[str, PatternMatch] | None = None
    ) -> set[str]:
        """Names of the topics that any of the members wants; with ``profiles`` and ``patterns`` in the place of its
        own."""
        found: set[str] = set()
        for profile in self.profiles.values() if profiles is None else profiles:
            found |= self.topics_of(profile, patterns)
        return found

    def subscribes_to(self, topic: str) -> bool:
        """Whether a member wants a topic."""
        return any(topic in self.topics_of(profile) for profile in self.profiles.values())

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        member_epoch: int,
        partitions: Iterable[tuple[UUID, int]],
        *,
        knows_epochs: bool = True,
    ) -> None:
        """Whether a member may commit positions on ``partitions``; without members, anybody may. ``knows_epochs`` tells
        whether the request is of a version that has epochs.

        A commit that was on its way while the member entered another epoch stands, as long as the member had the
        partitions in the epoch of the commit already (KIP-1251). The generation of a classic member is its epoch.

        Raises:
            UnknownMemberIdError: there is no such member.
            FencedInstanceIdError: the instance is another member by now.
            UnsupportedVersionError: a member under the consumer protocol needs a newer version.
            StaleMemberEpochError: the member's epoch is another one: it must heartbeat, and may then try again.
            IllegalGenerationError: the same of a classic member: it must join again.
        """
        if member_epoch < 0 and not self.profiles:
            return
        progress = self._progress_of_speaker(member_id, instance_id)
        if not knows_epochs and self.profiles[member_id].classic is None:
            raise UnsupportedVersionError("members of this group commit with version 9 of OffsetCommit, or newer")
        if member_epoch == progress.epoch:
            return
        if member_epoch < progress.epoch and all(
            progress.assigned.get(topic_id, {}).get(number, member_epoch + 1) <= member_epoch
            for topic_id, number in partitions
        ):
            return
        self._refuse_epoch(member_id, member_epoch, progress)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Whether a member may ask for positions; tools, which name no member, always may.

        Raises:
            UnknownMemberIdError, StaleMemberEpochError, IllegalGenerationError: as `check_commit`.
        """
        if member_epoch < 0 and not member_id:
            return
        progress = self._progress_of_speaker(member_id or "", None)
        if member_epoch != progress.epoch:
            self._refuse_epoch(member_id or "", member_epoch, progress)

    def speaker(self, member_id: str, instance_id: str | None) -> str:
        """The id of the member that a request speaks for, which must be there and have the instance.

        Raises:
            UnknownMemberIdError: there is no such member, or no such instance.
            FencedInstanceIdError: the instance is another member by now.
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

    def _progress_of_speaker(self, member_id: str, instance_id: str | None) -> Progress:
        if member_id not in self.profiles:
            raise UnknownMemberIdError(f"group {self.group_id!r} has no member {member_id!r}")
        if instance_id is not None and self.static_members.get(instance_id, member_id) != member_id:
            raise FencedInstanceIdError(f"instance {instance_id!r} is another member of {self.group_id!r} by now")
        return self.progress_of(member_id)

    def _refuse_epoch(self, member_id: str, member_epoch: int, progress: Progress) -> None:
        if self.profiles[member_id].classic is not None:
            raise IllegalGenerationError(
                f"member {member_id} of group {self.group_id!r} is in generation {progress.epoch}, not {member_epoch}"
            )
        raise StaleMemberEpochError(
            f"member {member_id} of group {self.group_id!r} is in epoch {progress.epoch}, not in {member_epoch}"
        )

    def preferred_assignor(self, profiles: Iterable[MemberProfile], offered: Sequence[str]) -> str:
        """Of the assignors that are offered, the one that most members would like; of equals, the one that comes first
        by name; and when nobody says, the first that is offered.

        What only the coordinator that the group was with before has, and no heartbeat could ask for here, is passed
        over.
        """
        votes: dict[str, int] = {}
        for profile in profiles:
            if profile.server_assignor is not None and profile.server_assignor in offered:
                votes[profile.server_assignor] = votes.get(profile.server_assignor, 0) + 1
        return min(votes, key=lambda name: (-votes[name], name)) if votes else offered[0]
