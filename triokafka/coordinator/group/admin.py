"""Administration of groups: describe, list, delete."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Final

from triokafka.coordinator.classic_group import rebalance
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.classic_group.stored_group import group_removal
from triokafka.coordinator.classic_group.subscription import CONSUMER_PROTOCOL_TYPE
from triokafka.coordinator.consumer_group.consumer_group import ConsumerGroup
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.records import GroupEffects, OffsetChange
from triokafka.coordinator.offsets.deleted_topics import MAX_RECORDS
from triokafka.coordinator.runtime.reply import Reply
from triokafka.errors import BrokerResponseError, GroupIdNotFoundError, KafkaError, NonEmptyGroupError
from triokafka.protocol.api.delete_groups import DeletableGroupResult
from triokafka.protocol.api.describe_groups import DescribedGroup, DescribedGroupMember
from triokafka.protocol.api.list_groups import ListedGroup

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
_FIRST_WITH_NOT_FOUND: Final = 6
_QUOTED: Final = 1_000
"""Characters of a group id in an error message; the message must fit the longest string of the protocol."""


def describe(shard: GroupShard, group_id: str, version: int) -> DescribedGroup:
    """Describe one group with its members. Assignments are shown only while the group is stable.

    A group that does not exist or is not a classic group is described as Dead; since v6 also with an error (KIP-1043).
    """
    if group_id in shard.consumer_groups or not shard.exists_committed(group_id):
        described = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        if version >= _FIRST_WITH_NOT_FOUND:
            described.error_code = GroupIdNotFoundError.code
            kind = "is not a classic group" if group_id in shard.consumer_groups else "not found"
            described.error_message = f"Group {group_id[:_QUOTED]} {kind}."
        return described
    group = shard.groups.get(group_id)
    if group is None:  # the group's removal is not committed yet
        return DescribedGroup(
            group_id=group_id,
            group_state=GroupState.EMPTY.value,
            protocol_type=shard.committed_protocol_type(group_id) or "",
        )
    protocol = group.protocol if group.state is GroupState.STABLE else None
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(protocol) if protocol is not None else b"",
                member_assignment=member.assignment if protocol is not None else b"",
            )
            for member in group.members.values()
        ],
    )


def list_groups(
    shard: GroupShard, group_ids: Iterable[str], states: Collection[str], types: Collection[str]
) -> list[ListedGroup]:
    """List those of ``group_ids`` that exist in committed state and have one of these states and types (lower case;
    empty means all)."""
    listed = []
    for group_id in group_ids:
        if not shard.exists_committed(group_id):
            continue
        found = _listed(shard, group_id)
        if (not states or found.group_state.lower() in states) and (not types or found.group_type in types):
            listed.append(found)
    return listed


def _listed(shard: GroupShard, group_id: str) -> ListedGroup:
    consumer_group = shard.consumer_groups.get(group_id)
    if consumer_group is not None:
        return ListedGroup(
            group_id=group_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            group_state=consumer_group.state.value,
            group_type=CONSUMER,
        )
    group = shard.groups.get(group_id)
    state = group.state if group is not None else GroupState.EMPTY
    protocol_type = group.protocol_type if group is not None else shard.committed_protocol_type(group_id)
    return ListedGroup(
        group_id=group_id, protocol_type=protocol_type or "", group_state=state.value, group_type=CLASSIC
    )


def delete_groups(
    shard: GroupShard, replies: Mapping[str, Reply[DeletableGroupResult]], effects: GroupEffects
) -> list[str]:
    """Delete the empty groups of ``replies`` in one append; returns the groups that did not fit into it."""
    done = 0
    for group_id, reply in replies.items():
        try:
            if not delete(shard, group_id, reply, effects):
                break
        except BrokerResponseError as error:
            effects.answer(reply, DeletableGroupResult(group_id=group_id, error_code=error.code))
        done += 1
    left = list(replies)[done:]

    def not_removed(error: KafkaError, _later: GroupEffects) -> None:
        for group_id in left:
            replies[group_id].fail(error)

    effects.on_failed = not_removed
    return left


def delete(shard: GroupShard, group_id: str, reply: Reply[DeletableGroupResult], effects: GroupEffects) -> bool:
    """Delete an empty group and its offsets. Returns False, without an answer, when the tombstones exceed one append:
    this append removes as many offsets as fit, and a later append removes the rest and the group.

    Raises:
        GroupIdNotFoundError: the group does not exist.
        NonEmptyGroupError: the group has members.
    """
    group = shard.consumer_groups.get(group_id) or shard.groups.get(group_id)
    if group is None or group.state is GroupState.DEAD:
        raise GroupIdNotFoundError(f"group {group_id!r} does not exist")
    if isinstance(group, ConsumerGroup):
        if group.profiles:
            raise NonEmptyGroupError(f"group {group_id!r} has {len(group.profiles)} members")
    elif group.state is not GroupState.EMPTY:
        raise NonEmptyGroupError(f"group {group_id!r} is {group.state.value} and has {len(group.members)} members")
    room = max(MAX_RECORDS - len(effects.records), 0)
    keys = list(islice(shard.offsets.removable(group_id), room + 1))
    effects.write(*(OffsetChange(key, None) for key in keys[:room]))
    if len(keys) > room:
        return False
    if isinstance(group, ConsumerGroup):
        effects.write(*group.removal())
    else:
        for member_id in list(group.pending_members):
            # A pending member does not keep a group alive; its join recreates the group or is refused.
            group.remove(member_id)
            effects.timers.cancel(rebalance.session_timer(group, member_id))
        effects.write(group_removal(group_id))
    effects.answer(reply, DeletableGroupResult(group_id=group_id))
    return True
