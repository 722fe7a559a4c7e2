"""The consequences of a member's heartbeat or join in a consumer group, under either protocol.

The member's profile is stored. If the subscriptions changed, the group enters a new epoch and gets a new target
assignment. Then the member takes its next step towards its part of the target.
"""

from __future__ import annotations

from typing import NamedTuple

from triokafka.coordinator.consumer_group.consumer_group import ConsumerGroup
from triokafka.coordinator.consumer_group.group_epoch import Circumstances, RequestingMember, Subscriptions, next_target
from triokafka.coordinator.consumer_group.member import MemberProfile, MemberProgress, Partitions
from triokafka.coordinator.consumer_group.reconcile import reconcile
from triokafka.coordinator.consumer_group.records import (
    ConsumerGroupChange,
    ProfileChange,
    ProgressChange,
    TargetChange,
)
from triokafka.coordinator.consumer_group.resolved_regular_expressions import look_up


class Step(NamedTuple):
    """The changes to write, and the member after they are written."""

    changes: list[ConsumerGroupChange]
    profile: MemberProfile
    progress: MemberProgress


def advance(
    group: ConsumerGroup,
    member_id: str,
    requester: RequestingMember,
    profile: MemberProfile,
    owned: Partitions | None,
    at: Circumstances,
) -> Step:
    """Decide the consequences when ``requester``, as member ``member_id``, reports ``profile`` and owned partitions.

    ``owned`` is None when the request does not report owned partitions.

    Raises:
        FencedMemberEpochError: see `reconcile`.
        InvalidRegularExpressionError: see `look_up`.
    """
    changes: list[ConsumerGroupChange] = []
    if requester.known_as is not None and requester.known_as != member_id:
        changes += removal_of(group, requester.known_as)
        if requester.target:
            changes.append(TargetChange(group.group_id, member_id, requester.target))
        changes.append(ProgressChange(group.group_id, member_id, requester.progress))
    if profile != requester.profile or requester.known_as != member_id:
        changes.append(ProfileChange(group.group_id, member_id, profile))
    subscription_changed = requester.profile is None or not profile.has_same_subscription(requester.profile)
    found = look_up(group, requester.profile, profile, at.topics, at.wall_ms, at.pattern_refresh_ms, at.may_describe)
    changes += found
    wants = Subscriptions(group, member_id, requester, profile, found)
    target_epoch, target = next_target(
        group, member_id, requester.target, wants, subscription_changed or bool(found), at, changes
    )
    progress = reconcile(
        requester.progress,
        target_epoch=target_epoch,
        target=target,
        owned=owned,
        is_held=lambda topic_id, number: group.holder_of(topic_id, number) not in requester.free_holders,
    )
    if progress != requester.progress or requester.starts_over:
        changes = [c for c in changes if not isinstance(c, ProgressChange) or c.member_id != member_id]
        changes.append(ProgressChange(group.group_id, member_id, progress))
    return Step(changes, profile, progress)


def removal_of(group: ConsumerGroup, member_id: str) -> list[ConsumerGroupChange]:
    """Return the changes that remove a member from the log."""
    changes: list[ConsumerGroupChange] = []
    if member_id in group.progress:
        changes.append(ProgressChange(group.group_id, member_id, None))
    if member_id in group.targets:
        changes.append(TargetChange(group.group_id, member_id, None))
    changes.append(ProfileChange(group.group_id, member_id, None))
    return changes
