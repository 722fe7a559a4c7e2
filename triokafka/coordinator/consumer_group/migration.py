"""Groups that change their protocol while their members go on: from classic to consumer, and back (KIP-848).

A classic group becomes a consumer group when the first member joins it under that protocol, and is a classic one again
when the last such member is gone. Either way the members that are there keep what they own; the generation of the one
is the epoch of the other; and the records of what was, and of what is, are written together or not at all. Positions
are not touched.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

from triokafka.coordinator.config import DOWNGRADES, UPGRADES, GroupCoordinatorConfig
from triokafka.coordinator.consumer_group import sessions
from triokafka.coordinator.consumer_group.advance import hash_of_topics, removal_of
from triokafka.coordinator.consumer_group.changes import (
    ConsumerGroupChange,
    EpochChange,
    ProfileChange,
    ProgressChange,
    TargetChange,
    TargetEpochChange,
)
from triokafka.coordinator.consumer_group.embedded import owned_by, read_assignment, read_subscription, write_assignment
from triokafka.coordinator.consumer_group.group import ConsumerGroup
from triokafka.coordinator.consumer_group.member import (
    ClassicTraits,
    MemberProfile,
    Partitions,
    Progress,
    partitions_of,
)
from triokafka.coordinator.group import rounds
from triokafka.coordinator.group.classic import ClassicGroup
from triokafka.coordinator.group.member import Member, MemberProtocol
from triokafka.coordinator.group.state import GroupState
from triokafka.coordinator.group.stored import group_change, group_removal
from triokafka.coordinator.group.subscription import CONSUMER_PROTOCOL_TYPE
from triokafka.coordinator.stored import GroupTurn
from triokafka.coordinator.topics import TopicsView
from triokafka.errors import GroupIdNotFoundError, ProtocolError, RebalanceInProgressError
from triokafka.protocol.api.join_group import JoinGroupResponse

if TYPE_CHECKING:
    from triokafka.coordinator.shard import GroupShard

_DEALS_ANEW: Final = 0
"""In the place of the hash of the topics: a round was owed, or the leader knew fewer partitions than there are now."""
OWES_A_ROUND: Final = 0
"""In the place of the time at which a classic group became stable: it has yet to rebalance, and begins with that when
it is loaded."""

_WITHOUT_SECRETS: Final = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
"""Assignors that tell members nothing that they need. What librdkafka's sticky ones send back to each member is what it
has said itself; Kafka takes that for something to lose, and refuses such groups."""


# --- from classic to consumer ---


def upgrade(shard: GroupShard, classic: ClassicGroup, turn: GroupTurn) -> ConsumerGroup:
    """Write that a classic group with members is a consumer group now, and return that, for its new member to join.

    Once it is written, the members who wait for their assignment are sent back to join. Those who wait in a round are
    let out of it first, into the generation that they were in, and are sent back when they sync: many clients do not
    expect a join to be refused like that, and some do not know their id before one succeeds.

    Raises:
        GroupIdNotFoundError: it cannot be one; says why, and what would help.
    """
    _check_upgrade(classic, shard.config)
    changes = consumer_group_changes(classic, shard.topics)
    group = ConsumerGroup(classic.group_id)
    for change in changes:
        group.replay(change)
    turn.write(group_removal(classic.group_id))
    for change in changes:
        turn.write(change)

    def upgraded(now: GroupTurn) -> None:
        now.note(f"group {classic.group_id!r} (generation {classic.generation}) is a consumer group from now on")
        for member_id in [*classic.members, *classic.pending_members]:
            now.timers.cancel(rounds.session_timer(classic, member_id))
        now.timers.cancel(rounds.join_timer(classic))
        now.timers.cancel(rounds.sync_timer(classic))
        for member in classic.members.values():
            joining = classic.take_join(member)
            if joining is not None:
                now.answer(joining, joined(member.member_id, classic.generation, member.protocols[0].name))
            rounds.answer_waiting(classic, member, RebalanceInProgressError.code, now)
        sessions.start_all(shard.consumer_groups[classic.group_id], shard.session_timeout_ms(classic.group_id), now)
        classic.transition_to(GroupState.DEAD, now.at.wall_ms)

    turn.on_appended = upgraded
    return group


def _check_upgrade(classic: ClassicGroup, config: GroupCoordinatorConfig) -> None:
    why = None
    if config.group_consumer_migration_policy not in UPGRADES:
        why = (
            "group.consumer.migration.policy does not allow that; stop its members first, or let the policy be"
            " upgrade or bidirectional"
        )
    elif not classic.uses_consumer_protocol:
        why = f"its members are no consumers, but of type {classic.protocol_type!r}"
    elif len(classic.members) > config.group_consumer_max_size:
        why = f"it has {len(classic.members)} members, and group.consumer.max.size is {config.group_consumer_max_size}"
    if why is not None:
        raise _cannot_upgrade(classic, why)


def _cannot_upgrade(classic: ClassicGroup, why: str) -> GroupIdNotFoundError:
    return GroupIdNotFoundError(f"classic group {classic.group_id!r} cannot become a consumer group: {why}")


def consumer_group_changes(classic: ClassicGroup, topics: TopicsView) -> list[ConsumerGroupChange]:
    """The records of a consumer group in the place of a classic one: its members with what they own, in the epoch that
    is the generation.

    Raises:
        GroupIdNotFoundError: what a member wants or was assigned cannot be read, or would be lost.
    """
    group_id, epoch = classic.group_id, classic.generation
    profiles: dict[str, MemberProfile] = {}
    owned: dict[str, Partitions] = {}
    claimed: dict[str, Partitions] = {}
    taken: set[tuple[UUID, int]] = set()
    for member in classic.members.values():
        try:
            subscription = read_subscription(_metadata(classic, member))
            assigned, besides = read_assignment(member.assignment, topics)
        except ProtocolError as error:
            raise _cannot_upgrade(classic, f"what member {member.member_id} says cannot be read: {error}") from None
        if besides and classic.protocol not in _WITHOUT_SECRETS:
            raise _cannot_upgrade(
                classic,
                f"its assignor tells members more than their partitions, and {member.member_id} would lose that; change"
                " to an assignor that does not, such as range, first",
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
        owned[member.member_id] = _not_taken(assigned, taken)
        claimed[member.member_id] = owned_by(subscription, topics)
    names = {name for profile in profiles.values() for name in profile.topic_names}
    is_dealt = classic.state is GroupState.STABLE and all(
        (topics.topic_id(name), number) in taken for name in names for number in range(topics.partition_count(name))
    )
    return [
        *(ProfileChange(group_id, member_id, profile) for member_id, profile in profiles.items()),
        EpochChange(group_id, (epoch, hash_of_topics(names, topics) if is_dealt else _DEALS_ANEW)),
        *(TargetChange(group_id, member_id, partitions) for member_id, partitions in owned.items()),
        TargetEpochChange(group_id, (epoch, 0)),
        *(
            ProgressChange(group_id, member_id, _settled(epoch, partitions))
            for member_id, partitions in _with_claims(owned, claimed, taken).items()
        ),
    ]


def _metadata(classic: ClassicGroup, member: Member) -> bytes:
    """What the member says of itself under the group's protocol; in its first round a group has none yet."""
    for name, metadata in member.protocols:
        if name == classic.protocol:
            return metadata
    return member.protocols[0].metadata


def _not_taken(partitions: Partitions, taken: set[tuple[UUID, int]]) -> Partitions:
    """A leader may have given one partition to two members; it stays with the first."""
    left: dict[UUID, frozenset[int]] = {}
    for topic_id, numbers in partitions.items():
        free = frozenset(number for number in numbers if (topic_id, number) not in taken)
        taken.update((topic_id, number) for number in free)
        if free:
            left[topic_id] = free
    return left


def _with_claims(
    owned: Mapping[str, Partitions], claimed: Mapping[str, Partitions], taken: set[tuple[UUID, int]]
) -> dict[str, Partitions]:
    """What members hold until they join again. A cooperative one may still use what it had when it joined last,
    whatever it was given since: that may not have come to it yet."""
    return {
        member_id: partitions_of([*partitions.items(), *_not_taken(claimed[member_id], taken).items()])
        for member_id, partitions in owned.items()
    }


def _settled(epoch: int, partitions: Partitions) -> Progress:
    assigned = {topic_id: dict.fromkeys(sorted(numbers), epoch) for topic_id, numbers in partitions.items()}
    return Progress(epoch, epoch, assigned=assigned)


def joined(member_id: str, epoch: int, protocol: str) -> JoinGroupResponse:
    """The answer that a classic member is in a consumer group, which nobody leads."""
    return JoinGroupResponse(
        member_id=member_id, generation_id=epoch, protocol_type=CONSUMER_PROTOCOL_TYPE, protocol_name=protocol
    )


# --- from consumer to classic ---


def goes_back(group: ConsumerGroup, profiles: Collection[MemberProfile], config: GroupCoordinatorConfig) -> bool:
    """Whether the group is a classic one when these members are left."""
    return (
        bool(profiles)
        and all(profile.classic is not None for profile in profiles)
        and config.group_consumer_migration_policy in DOWNGRADES
        and len(profiles) <= config.group_max_size
    )


def downgrade(shard: GroupShard, group: ConsumerGroup, classic: ClassicGroup, turn: GroupTurn) -> None:
    """Write that a consumer group is ``classic`` now; once it is written, that group has its place, and begins with a
    round if it owes one."""
    epoch = group.epoch
    for change in [change for member_id in group.profiles for change in removal_of(group, member_id)]:
        turn.write(change)
    for change in group.removal():
        turn.write(change)
    turn.write(group_change(classic, {member.member_id: member.assignment for member in classic.members.values()}))
    members = list(group.profiles)

    def downgraded(now: GroupTurn) -> None:
        now.note(f"group {classic.group_id!r} (epoch {epoch}) is a classic group from now on")
        shard.groups[classic.group_id] = classic
        for member_id in members:
            sessions.end(classic.group_id, member_id, now)
        for member in classic.members.values():
            rounds.start_session(classic, member, now)
        if classic.state_timestamp_ms == OWES_A_ROUND:
            rounds.prepare_rebalance(classic, "it was a consumer group before", shard.config, now)

    turn.on_appended = downgraded


def classic_group(
    group: ConsumerGroup,
    profiles: Mapping[str, MemberProfile],
    owned: Mapping[str, Partitions],
    topics: TopicsView,
    *,
    stable_since_ms: int = OWES_A_ROUND,
) -> ClassicGroup:
    """The classic group of these members, each with what it may still use as its assignment: what was dealt to another
    one meanwhile is not free before it has joined again, and the group may be a consumer group again before that.

    Raises:
        IllegalStateError: they have no protocol in common, which joining them does not let happen.
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
