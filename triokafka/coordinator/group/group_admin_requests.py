"""The group coordinator's requests from administrators: describe, list and delete groups."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Final

from triokafka.coordinator.consumer_group import operations as consumer_groups
from triokafka.coordinator.group import admin
from triokafka.coordinator.group.append_errors import coordinator_error
from triokafka.coordinator.group.group_shard import GroupShard
from triokafka.coordinator.group.group_shards import GroupShards, client_message
from triokafka.coordinator.group.records import GroupEffects
from triokafka.coordinator.runtime.reply import Reply
from triokafka.coordinator.runtime.waiting import answer_to, checkpoint
from triokafka.errors import CoordinatorLoadInProgressError, KafkaError
from triokafka.protocol.api.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from triokafka.protocol.api.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from triokafka.protocol.api.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from triokafka.protocol.api.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from triokafka.protocol.api.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

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
            return self._shards.read(group_id, lambda shard: admin.describe(shard, group_id, version))
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
        self._shards.begin(group_id, lambda shard, effects: consumer_groups.describe(shard, group_id, reply, effects))
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
            listing = partial(admin.list_groups, group_ids=some, states=states, types=types)
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
            left = admin.delete_groups(shard, {group_id: replies[group_id] for group_id in left}, effects)

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
