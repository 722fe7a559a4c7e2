"""Migration of a live group from the classic to the consumer protocol and back (KIP-848).

A classic group becomes a consumer group when the first member joins with the consumer protocol, and a classic group
again when the last such member has left. The members keep their partitions, and the generation of the classic group is
the epoch of the consumer group. The tombstones of the old form and the records of the new one are written in one batch.
Committed offsets are not touched.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final
from uuid import UUID

from triokafka.coordinator.classic_group import rebalance
from triokafka.coordinator.classic_group.classic_group import ClassicGroup
from triokafka.coordinator.classic_group.member import Member, MemberProtocol
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.classic_group.stored_group import NEEDS_REBALANCE, group_change, group_removal
from triokafka.coordinator.classic_group.subscription import CONSUMER_PROTOCOL_TYPE
from triokafka.coordinator.consumer_group import timers
from triokafka.coordinator.consumer_group.advance import removal_of
from triokafka.coordinator.consumer_group.consumer_group import ConsumerGroup
from triokafka.coordinator.consumer_group.embedded import owned_by, read_assignment, write_assignment
from triokafka.coordinator.consumer_group.group_epoch import hash_of_topics
from triokafka.coordinator.consumer_group.member import (
    ClassicTraits,
    MemberProfile,
    MemberProgress,
    Partitions,
    partitions_of,
)
from triokafka.coordinator.consumer_group.records import (
    ConsumerGroupChange,
    EpochChange,
    ProfileChange,
    ProgressChange,
    TargetChange,
    TargetEpochChange,
)
from triokafka.coordinator.group.config import DOWNGRADES, UPGRADES, GroupCoordinatorConfig
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.records import GroupEffects
from triokafka.coordinator.group.topics_view import TopicsView
from triokafka.errors import GroupIdNotFoundError, ProtocolError, RebalanceInProgressError
from triokafka.protocol.api.join_group import JoinGroupResponse
from triokafka.protocol.consumer_protocol import ConsumerProtocolSubscription

_FORCES_ASSIGNMENT: Final = 0
"""A metadata hash that forces a new assignment: a rebalance was due, or the leader did not assign every partition."""

_STATELESS_ASSIGNORS: Final = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""Assignors whose user data may be lost: librdkafka's sticky assignors only return the data that a member has sent.
Kafka refuses to upgrade groups with any user data."""


# --- from classic to consumer ---


def upgrade(shard: GroupShard, classic: ClassicGroup, effects: GroupEffects) -> ConsumerGroup:
    """Write the conversion of a classic group with members to a consumer group, and return the consumer group for its
    new member to join.

    Once the records are appended, parked SyncGroup requests fail with REBALANCE_IN_PROGRESS. Parked JoinGroup requests
    succeed, in the current generation, and their members must rejoin when they sync: many clients do not expect
    that error from JoinGroup, and some do not know their member id before a join succeeds.

    Raises:
        GroupIdNotFoundError: the group cannot be converted; the message says why and what to do.
    """
    _check_upgrade(classic, shard.config)
    changes = consumer_group_changes(classic, shard.topics)
    group = ConsumerGroup(classic.group_id)
    for change in changes:
        group.replay(change)
    effects.write(group_removal(classic.group_id))
    effects.write(*changes)

    def upgraded(now: GroupEffects) -> None:
        now.note(f"group {classic.group_id!r} (generation {classic.generation}) became a consumer group")
        for member_id in [*classic.members, *classic.pending_members]:
            now.timers.cancel(rebalance.session_timer(classic, member_id))
        now.timers.cancel(rebalance.join_timer(classic))
        now.timers.cancel(rebalance.sync_timer(classic))
        for member in classic.members.values():
            joining = classic.take_join(member)
            if joining is not None:
                now.answer(joining, joined(member.member_id, classic.generation, member.protocols[0].name))
            rebalance.answer_waiting(classic, member, RebalanceInProgressError.code, now)
        timers.start_all(shard.consumer_groups[classic.group_id], shard.session_timeout_ms(classic.group_id), now)
        classic.transition_to(GroupState.DEAD, now.at.wall_ms)

    effects.on_appended = upgraded
    return group


def _check_upgrade(classic: ClassicGroup, config: GroupCoordinatorConfig) -> None:
    why = None
    if config.group_consumer_migration_policy not in UPGRADES:
        why = (
            "group.consumer.migration.policy does not allow it. Stop the group's members first, or set the policy to"
            " upgrade or bidirectional"
        )
    elif not classic.uses_consumer_protocol:
        why = f"its protocol type is {classic.protocol_type!r}, not 'consumer'"
    elif len(classic.members) > config.group_consumer_max_size:
        why = f"it has {len(classic.members)} members, and group.consumer.max.size is {config.group_consumer_max_size}"
    if why is not None:
        raise _cannot_upgrade(classic, why)


def _cannot_upgrade(classic: ClassicGroup, why: str) -> GroupIdNotFoundError:
    return GroupIdNotFoundError(f"classic group {classic.group_id!r} cannot become a consumer group: {why}")


def consumer_group_changes(classic: ClassicGroup, topics: TopicsView) -> list[ConsumerGroupChange]:
    """Return the records of the consumer group that replaces a classic group: its members with their partitions, in the
    epoch that equals the generation.

    Raises:
        GroupIdNotFoundError: a member's subscription or assignment is malformed, or user data would be lost.
    """
    group_id, epoch = classic.group_id, classic.generation
    profiles: dict[str, MemberProfile] = {}
    owned: dict[str, Partitions] = {}
    claimed: dict[str, Partitions] = {}
    taken: set[tuple[UUID, int]] = set()
    for member in classic.members.values():
        try:
            subscription = ConsumerProtocolSubscription.decode_versioned(_metadata(classic, member))
            assigned, besides = read_assignment(member.assignment, topics)
        except ProtocolError as error:
            raise _cannot_upgrade(classic, f"the metadata of member {member.member_id} is malformed: {error}") from None
        if besides and classic.protocol not in _STATELESS_ASSIGNORS:
            raise _cannot_upgrade(
                classic,
                f"its assignor sends user data, which member {member.member_id} would lose. Switch to an assignor"
                " without user data, such as range, first",
            )
        profiles[member.member_id] = MemberProfile(
            instance_id=member.instance_id,
            rack_id=subscription.rack_id or None,
            client_id=member.client_id,
            client_host=member.client_host,
            topic_names=frozenset(subscription.topics),
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=ClassicTraits(member.session_timeout_ms, tuple((p.name, p.metadata) for p in member.protocols)),
        )
        owned[member.member_id] = _unclaimed(assigned, taken)
        claimed[member.member_id] = owned_by(subscription, topics)
    names = {name for profile in profiles.values() for name in profile.topic_names}
    is_assigned = classic.state is GroupState.STABLE and all(
        (topics.topic_id(name), number) in taken for name in names for number in range(topics.partition_count(name))
    )
    return [
        *(ProfileChange(group_id, member_id, profile) for member_id, profile in profiles.items()),
        EpochChange(group_id, (epoch, hash_of_topics(names, topics) if is_assigned else _FORCES_ASSIGNMENT)),
        *(TargetChange(group_id, member_id, partitions) for member_id, partitions in owned.items()),
        TargetEpochChange(group_id, (epoch, 0)),
        *(
            ProgressChange(group_id, member_id, _settled(epoch, partitions))
            for member_id, partitions in _with_owned(owned, claimed, taken).items()
        ),
    ]


def _metadata(classic: ClassicGroup, member: Member) -> bytes:
    """Return the member's metadata under the group's protocol; a group in its first rebalance has no protocol yet."""
    for name, metadata in member.protocols:
        if name == classic.protocol:
            return metadata
    return member.protocols[0].metadata


def _unclaimed(partitions: Partitions, taken: set[tuple[UUID, int]]) -> Partitions:
    """Return the partitions that are not in ``taken``, and add them to it. If a leader assigned a partition to two
    members, the first keeps it."""
    left: dict[UUID, frozenset[int]] = {}
    for topic_id, numbers in partitions.items():
        free = frozenset(number for number in numbers if (topic_id, number) not in taken)
        taken.update((topic_id, number) for number in free)
        if free:
            left[topic_id] = free
    return left


def _with_owned(
    owned: Mapping[str, Partitions], claimed: Mapping[str, Partitions], taken: set[tuple[UUID, int]]
) -> dict[str, Partitions]:
    """Return the partitions that members hold until they rejoin: those assigned, and those that a cooperative member
    reported as owned in its last join. It may not have received its newer assignment yet."""
    return {
        member_id: partitions_of([*partitions.items(), *_unclaimed(claimed[member_id], taken).items()])
        for member_id, partitions in owned.items()
    }


def _settled(epoch: int, partitions: Partitions) -> MemberProgress:
    assigned = {topic_id: dict.fromkeys(sorted(numbers), epoch) for topic_id, numbers in partitions.items()}
    return MemberProgress(epoch, epoch, assigned=assigned)


def joined(member_id: str, epoch: int, protocol: str) -> JoinGroupResponse:
    """Return the JoinGroup response for a classic member of a consumer group, which has no leader."""
    return JoinGroupResponse(
        member_id=member_id, generation_id=epoch, protocol_type=CONSUMER_PROTOCOL_TYPE, protocol_name=protocol
    )


# --- from consumer to classic ---


def must_downgrade(
    group: ConsumerGroup, config: GroupCoordinatorConfig, *, without: Collection[str], joining: int = 0
) -> bool:
    """Whether the group must become a classic group once these members have left, and so many classic ones joined."""
    leaving = [group.profiles[member_id] for member_id in without]
    left = len(group.profiles) - len(leaving) + joining
    classic = group.classic_members - sum(profile.classic is not None for profile in leaving) + joining
    return (
        0 < left == classic and config.group_consumer_migration_policy in DOWNGRADES and left <= config.group_max_size
    )


def downgrade(shard: GroupShard, group: ConsumerGroup, classic: ClassicGroup, effects: GroupEffects) -> None:
    """Write the conversion of a consumer group to ``classic``. Once appended, ``classic`` takes its place, and
    rebalances if it is marked for it."""
    epoch = group.epoch
    for member_id in group.profiles:
        effects.write(*removal_of(group, member_id))
    effects.write(*group.removal())
    effects.write(group_change(classic, {member.member_id: member.assignment for member in classic.members.values()}))
    members = list(group.profiles)

    def downgraded(now: GroupEffects) -> None:
        now.note(f"group {classic.group_id!r} (epoch {epoch}) became a classic group")
        shard.groups[classic.group_id] = classic
        for member_id in members:
            timers.end(classic.group_id, member_id, now)
        for member in classic.members.values():
            rebalance.start_session(classic, member, now)
        if classic.state_timestamp_ms == NEEDS_REBALANCE:
            rebalance.prepare_rebalance(classic, "the group was a consumer group", shard.config, now)

    effects.on_appended = downgraded


def classic_group(
    group: ConsumerGroup,
    profiles: Mapping[str, MemberProfile],
    owned: Mapping[str, Partitions],
    topics: TopicsView,
    *,
    stable_since_ms: int = NEEDS_REBALANCE,
) -> ClassicGroup:
    """Build the classic group of these members. Each member's assignment is the partitions that it may still use: other
    members get them only after this one has rejoined, and the group may become a consumer group again before that.

    Raises:
        IllegalStateError: the members share no protocol; joins prevent that.
    """
    classic = ClassicGroup(group.group_id, state=GroupState.STABLE, state_timestamp_ms=stable_since_ms)
    classic.generation = group.epoch
    for member_id, profile in profiles.items():
        traits = profile.classic or ClassicTraits(0, ())
        member = Member(
            member_id,
            instance_id=profile.instance_id,
            client_id=profile.client_id,
            client_host=profile.client_host,
            session_timeout_ms=traits.session_timeout_ms,
            rebalance_timeout_ms=profile.rebalance_timeout_ms,
            protocols=tuple(MemberProtocol(name, metadata) for name, metadata in traits.protocols),
        )
        classic.add(member, CONSUMER_PROTOCOL_TYPE)
    classic.protocol = classic.select_protocol()
    classic.refresh_subscription()
    for member in classic.members.values():
        metadata = member.metadata(classic.protocol)
        member.assignment = write_assignment(owned.get(member.member_id, {}), topics, metadata)
    return classic
