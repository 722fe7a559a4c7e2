"""The epoch of a consumer group: it grows with subscriptions and topics, and then a new target is due (KIP-848)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

from triokafka.coordinator.consumer_group.consumer_group import ConsumerGroup
from triokafka.coordinator.consumer_group.member import JOINING, MemberProfile, MemberProgress, Partitions
from triokafka.coordinator.consumer_group.records import (
    ConsumerGroupChange,
    EpochChange,
    PatternChange,
    TargetChange,
    TargetEpochChange,
    TopicsChange,
)
from triokafka.coordinator.consumer_group.target_assignment import compute_target
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.records import GroupEffects
from triokafka.coordinator.group.topics_view import TopicFilter, TopicsView, any_topic


class Circumstances(NamedTuple):
    """The inputs of a decision besides the group: topics, time and configuration.

    ``may_describe`` filters the topics that the requesting member's pattern may match. ``assignors`` are the assignors
    that the broker offers, the default first. ``pattern_refresh_ms`` is the maximum age of a pattern's matches.
    ``assignment_interval_ms`` is the minimum interval between two computations of the target assignment.
    """

    topics: TopicsView
    wall_ms: int
    max_size: int
    assignors: tuple[str, ...]
    pattern_refresh_ms: int
    assignment_interval_ms: int = 0
    may_describe: TopicFilter = any_topic

    @classmethod
    def of(
        cls, shard: GroupShard, group_id: str, effects: GroupEffects, may_describe: TopicFilter = any_topic
    ) -> Circumstances:
        """Collect the circumstances of an operation."""
        config = shard.config
        return cls(
            topics=shard.topics,
            wall_ms=effects.at.wall_ms,
            max_size=config.group_consumer_max_size,
            assignors=config.group_consumer_assignors,
            pattern_refresh_ms=config.group_consumer_regex_refresh_interval_ms,
            assignment_interval_ms=shard.assignment_interval_ms(group_id),
            may_describe=may_describe,
        )


class RequestingMember(NamedTuple):
    """The requesting member as it was before the request. ``known_as`` is its id in the group; None if it is new."""

    known_as: str | None
    profile: MemberProfile | None
    progress: MemberProgress
    target: Partitions
    starts_over: bool = False
    free_holders: frozenset[str | None] = frozenset({None})
    """Holders whose partitions are free for this member: None (no member), and its own id once it starts over."""

    @classmethod
    def of(cls, group: ConsumerGroup, member_id: str, known_as: str | None) -> RequestingMember:
        """Return the state of a new member, of a known one, or of a static member that returned under a new id. The
        last keeps its state but must enter its epoch again."""
        if known_as is None:
            return cls(None, None, MemberProgress(), {})
        progress = group.progress_of(known_as)
        if known_as != member_id:
            progress = progress._replace(epoch=JOINING, previous_epoch=JOINING)
        return cls(known_as, group.profiles[known_as], progress, group.target_of(known_as))

    def starting_over(self) -> RequestingMember:
        """Return the same member after it gave up everything and starts over."""
        return RequestingMember(
            self.known_as, self.profile, MemberProgress(), self.target, True, frozenset({None, self.known_as})
        )


class Subscriptions:
    """The topics that the members subscribe to, after the changes of this step."""

    def __init__(
        self,
        group: ConsumerGroup,
        member_id: str,
        requester: RequestingMember,
        profile: MemberProfile,
        found: Iterable[PatternChange],
    ) -> None:
        self._group = group
        self._member_id = member_id
        self._requester = requester
        self._profile = profile
        found_now = {change.pattern: change.value for change in found if change.value is not None}
        self._patterns = {**group.patterns, **found_now} if found_now else group.patterns

    @cached_property
    def profiles(self) -> Mapping[str, MemberProfile]:
        """The profiles of all members, collected when a target assignment is computed."""
        requester = self._requester
        if self._profile == requester.profile and requester.known_as == self._member_id:
            return self._group.profiles
        others = {known: profile for known, profile in self._group.profiles.items() if known != requester.known_as}
        return others | {self._member_id: self._profile}

    def by_member(self) -> dict[str, tuple[str | None, frozenset[str]]]:
        """Return each member's instance id and subscribed topics."""
        return {
            member_id: (profile.instance_id, self._group.topics_of(profile, self._patterns))
            for member_id, profile in self.profiles.items()
        }

    def all_topics(self) -> set[str]:
        """Return the subscribed topics of all members."""
        before = self._requester.profile
        return self._group.wanted_topics(
            without=() if before is None else (before,), also=self._profile, patterns=self._patterns
        )


def next_target(
    group: ConsumerGroup,
    member_id: str,
    target: Partitions,
    wants: Subscriptions,
    subscription_changed: bool,
    at: Circumstances,
    changes: list[ConsumerGroupChange],
) -> tuple[int, Partitions]:
    """Return the target epoch and the member's part of the target assignment.

    Starts a new epoch when subscriptions or the subscribed topics' metadata changed, and computes a new target unless
    the last one is younger than ``assignment_interval_ms``.
    """
    epoch, metadata_hash = group.epoch, group.metadata_hash
    if subscription_changed or group.topics_version != at.topics.version:
        metadata_hash = hash_of_topics(wants.all_topics(), at.topics)
        if metadata_hash == group.metadata_hash:
            group.topics_version = at.topics.version
    if subscription_changed or metadata_hash != group.metadata_hash:
        epoch += 1
        changes.append(EpochChange(group.group_id, (epoch, metadata_hash)))
        if group.has_topics_record:
            changes.append(TopicsChange(group.group_id, None))
    if epoch <= group.target_epoch or 0 <= at.wall_ms - group.target_timestamp_ms < at.assignment_interval_ms:
        return group.target_epoch, target
    current = {known: partitions for known, partitions in group.targets.items() if known in wants.profiles}
    current[member_id] = target
    strategy = group.preferred_assignor(wants.profiles.values(), at.assignors)
    targets = compute_target(strategy, wants.by_member(), current, at.topics)
    for known in sorted(targets):
        if targets[known] != current.get(known, {}):
            changes.append(TargetChange(group.group_id, known, targets[known]))
    changes.append(TargetEpochChange(group.group_id, (epoch, at.wall_ms)))
    return epoch, targets[member_id]


def hash_of_topics(names: set[str], topics: TopicsView) -> int:
    """Return a hash of the topics' ids and partition counts; 0 when none of the topics exists."""
    digest = hashlib.blake2b(digest_size=8)
    found = False
    for name in sorted(names):
        topic_id = topics.topic_id(name)
        if topic_id is not None:
            found = True
            digest.update(topic_id.bytes + topics.partition_count(name).to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True) if found else 0
