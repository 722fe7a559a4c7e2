"""Administration of groups: describe, list and delete them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from itertools import islice
from typing import Final

from triokafka.coordinator.classic_group import rebalance
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.classic_group.stored_group import group_removal
from triokafka.coordinator.classic_group.subscription import CONSUMER_PROTOCOL_TYPE
from triokafka.coordinator.consumer_group.consumer_group import ConsumerGroup
from triokafka.coordinator.consumer_group.describe import describe as described
from triokafka.coordinator.group.append_errors import coordinator_error
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.group_shards import GroupShards, client_message
from triokafka.coordinator.group.records import GroupEffects, OffsetChange
from triokafka.coordinator.offsets.deleted_topics import MAX_RECORDS
from triokafka.coordinator.runtime.reply import Reply
from triokafka.coordinator.runtime.waiting import answer_to, checkpoint
from triokafka.errors import (
    BrokerResponseError,
    CoordinatorLoadInProgressError,
    GroupIdNotFoundError,
    InvalidGroupIdError,
    KafkaError,
    NonEmptyGroupError,
)
from triokafka.protocol.api.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from triokafka.protocol.api.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from triokafka.protocol.api.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from triokafka.protocol.api.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from triokafka.protocol.api.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
_FIRST_WITH_NOT_FOUND: Final = 6
_QUOTED: Final = 1_000
"""Characters of a group id in an error message; the message must fit the longest string of the protocol."""
_GROUPS_AT_ONCE: Final = 100
"""Groups to describe before other tasks may run."""


class GroupAdminRequests:
    """DescribeGroups, ConsumerGroupDescribe, ListGroups and DeleteGroups, one method per API."""

    def __init__(self, shards: GroupShards) -> None:
        self._shards = shards
        self._runtime = shards.runtime

    async def describe_groups(self, request: DescribeGroupsRequest, *, version: int) -> DescribeGroupsResponse:
        """Handle DescribeGroups. Does not wait; with very many groups it yields to other tasks in between."""
        response = DescribeGroupsResponse()
        for group_id in request.groups:
            response.groups.append(self._describe(group_id, version))
            if not len(response.groups) % _GROUPS_AT_ONCE:
                await checkpoint()
        return response

    def _describe(self, group_id: str, version: int) -> DescribedGroup:
        try:
            return self._shards.read(group_id, lambda shard: describe(shard, group_id, version))
        except KafkaError as error:
            return DescribedGroup(group_id=group_id, error_code=coordinator_error(error))

    async def consumer_group_describe(self, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
        """Handle ConsumerGroupDescribe (KIP-848). Waits until the described state is committed.

        With very many groups it yields to other tasks in between.
        """
        replies: list[Reply[DescribedConsumerGroup] | DescribedConsumerGroup] = []
        for group_id in request.group_ids:
            if replies and not len(replies) % _GROUPS_AT_ONCE:
                await checkpoint()
            try:
                replies.append(self._describe_consumer_group(group_id))
            except KafkaError as error:
                replies.append(_not_described(group_id, error))
        response = ConsumerGroupDescribeResponse()
        for group_id, found in zip(request.group_ids, replies, strict=True):
            if isinstance(found, Reply):
                try:
                    found = await answer_to(found)
                except KafkaError as error:
                    found = _not_described(group_id, error)
            response.groups.append(found)
            if not len(response.groups) % _GROUPS_AT_ONCE:
                await checkpoint()
        return response

    def _describe_consumer_group(self, group_id: str) -> Reply[DescribedConsumerGroup]:
        reply: Reply[DescribedConsumerGroup] = Reply()
        self._shards.begin(group_id, lambda shard, effects: describe_consumer_group(shard, group_id, reply, effects))
        return reply

    async def list_groups(self, request: ListGroupsRequest) -> ListGroupsResponse:
        """Handle ListGroups for the shards of this broker. While a shard is loading, the list is partial and the
        response says COORDINATOR_LOAD_IN_PROGRESS. Does not wait; with very many groups it yields in between."""
        states = {state.lower() for state in request.states_filter}
        types = {kind.lower() for kind in request.types_filter}
        response = ListGroupsResponse()
        try:
            self._runtime.check_running()
        except KafkaError as error:
            response.error_code = coordinator_error(error)
        for partition in self._runtime.active_partitions():
            try:
                response.groups += await self._list(partition, states, types)
            except KafkaError:
                continue  # the shard moved away meanwhile
        if self._runtime.is_loading:
            response.error_code = CoordinatorLoadInProgressError.code
        return response

    async def _list(self, partition: int, states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
        names = self._runtime.read(partition, GroupShard.group_ids)
        listed: list[ListedGroup] = []
        for begin in range(0, len(names), _GROUPS_AT_ONCE):
            some = names[begin : begin + _GROUPS_AT_ONCE]
            listing = partial(list_groups, group_ids=some, states=states, types=types)
            listed += self._runtime.read(partition, listing)
            await checkpoint()
        return listed

    async def delete_groups(self, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        """Handle DeleteGroups, with one append per shard, or several for very many offsets; it yields in between.
        Waits until every removal is committed or refused. Cancelling may leave a group with part of its offsets.
        """
        replies: dict[str, Reply[DeletableGroupResult]] = {name: Reply() for name in request.groups_names}
        by_partition: dict[int, list[str]] = {}
        for number, group_id in enumerate(replies, 1):
            by_partition.setdefault(self._runtime.partition_for(group_id), []).append(group_id)
            if not number % _GROUPS_AT_ONCE:
                await checkpoint()
        for partition, group_ids in by_partition.items():
            await self._delete(partition, {group_id: replies[group_id] for group_id in group_ids})
        response = DeleteGroupsResponse()
        for group_id, reply in replies.items():
            try:
                result = await answer_to(reply)
            except KafkaError as error:
                result = DeletableGroupResult(group_id=group_id, error_code=coordinator_error(error))
            response.results.append(result)
            if not len(response.results) % _GROUPS_AT_ONCE:
                await checkpoint()
        return response

    async def _delete(self, partition: int, replies: dict[str, Reply[DeletableGroupResult]]) -> None:
        left = list(replies)

        def delete(shard: GroupShard, effects: GroupEffects) -> None:
            nonlocal left
            left = delete_groups(shard, {group_id: replies[group_id] for group_id in left}, effects)

        while left and not replies[left[0]].is_set:
            try:
                self._runtime.write(partition, delete)
            except KafkaError as error:
                # Only the remaining groups fail: earlier groups are deleted, and their answers may be on the way.
                for group_id in left:
                    replies[group_id].fail(error)
            await checkpoint()


def _not_described(group_id: str, error: KafkaError) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        group_id=group_id, error_code=coordinator_error(error), error_message=client_message(error)
    )


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


def describe_consumer_group(
    shard: GroupShard, group_id: str, reply: Reply[DescribedConsumerGroup], effects: GroupEffects
) -> None:
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
    effects.answer(reply, described(group, shard.topics, shard.config.group_consumer_assignors))
