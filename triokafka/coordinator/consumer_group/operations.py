"""The requests of the consumer protocol on a shard: find or create the group, and dispatch."""

from __future__ import annotations

from triokafka.coordinator.classic_group import rebalance
from triokafka.coordinator.classic_group.classic_group import ClassicGroup
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.classic_group.stored_group import group_removal
from triokafka.coordinator.consumer_group import sessions
from triokafka.coordinator.consumer_group.advance import Circumstances
from triokafka.coordinator.consumer_group.consumer_group import ConsumerGroup
from triokafka.coordinator.consumer_group.describe import describe as describe_group
from triokafka.coordinator.consumer_group.heartbeat import Beat, HeartbeatOutcome
from triokafka.coordinator.consumer_group.heartbeat import heartbeat as decide
from triokafka.coordinator.consumer_group.leaving import leave as decide_leave
from triokafka.coordinator.consumer_group.member import Partitions
from triokafka.coordinator.consumer_group.migration import upgrade
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.records import GroupEffects
from triokafka.coordinator.group.topics_view import TopicFilter, any_topic
from triokafka.coordinator.runtime.reply import Reply
from triokafka.errors import GroupIdNotFoundError, InvalidGroupIdError
from triokafka.protocol.api.consumer_group_describe import DescribedGroup
from triokafka.protocol.api.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)


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
            raise GroupIdNotFoundError(f"consumer group {group_id!r} does not exist")
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
    sessions.start(group_id, beat.member_id, shard.session_timeout_ms(group_id), effects)
    timeout_ms = outcome.profile.rebalance_timeout_ms

    def appended(now: GroupEffects) -> None:
        if replaced is not None and replaced != beat.member_id:
            sessions.end(group_id, replaced, now)
        # Only after the append: a step that could not be written must not extend the deadline of the step before it.
        sessions.watch_revocation(group_id, beat.member_id, before, outcome.progress, timeout_ms, now)

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


def leave(
    shard: GroupShard,
    request: ConsumerGroupHeartbeatRequest,
    reply: Reply[ConsumerGroupHeartbeatResponse],
    effects: GroupEffects,
) -> None:
    """Handle a member's last heartbeat.

    Raises:
        GroupIdNotFoundError: the group does not exist.
        UnknownMemberIdError, FencedInstanceIdError: see `decide_leave`.
    """
    group = shard.consumer_groups.get(request.group_id)
    if group is None:
        raise GroupIdNotFoundError(f"consumer group {request.group_id!r} does not exist")
    decide_leave(shard, group, request.member_id, request.instance_id, request.member_epoch, effects)
    effects.answer(
        reply, ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
    )


def describe(shard: GroupShard, group_id: str, reply: Reply[DescribedGroup], effects: GroupEffects) -> None:
    """Describe a group with its members.

    Raises:
        InvalidGroupIdError: the id is empty.
        GroupIdNotFoundError: the group does not exist or is a classic group.
    """
    if not group_id:
        raise InvalidGroupIdError("the group id is empty")
    group = shard.consumer_groups.get(group_id)
    if group is None:
        kind = "is not a consumer group" if group_id in shard.groups else "not found"
        raise GroupIdNotFoundError(f"Group {group_id} {kind}.")
    effects.answer(reply, describe_group(group, shard.topics, shard.config.group_consumer_assignors))


def _replace_classic(shard: GroupShard, classic: ClassicGroup, effects: GroupEffects) -> None:
    for member_id in list(classic.pending_members):
        classic.remove(member_id)
        effects.timers.cancel(rebalance.session_timer(classic, member_id))
    if shard.is_stored(classic.group_id):
        effects.write(group_removal(classic.group_id))
