"""The group coordinator's requests of tools: DescribeGroups, ConsumerGroupDescribe, ListGroups, DeleteGroups."""

from __future__ import annotations

from functools import partial
from typing import Final

import trio

from triokafka.coordinator.consumer_group import operations as consumer_groups
from triokafka.coordinator.group import admin
from triokafka.coordinator.group.append_errors import coordinator_error
from triokafka.coordinator.requests import GroupRequests, told
from triokafka.coordinator.shard import GroupShard
from triokafka.coordinator.stored import GroupTurn
from triokafka.coordinator.turn import Reply
from triokafka.errors import CoordinatorLoadInProgressError, KafkaError
from triokafka.protocol.api.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from triokafka.protocol.api.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from triokafka.protocol.api.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from triokafka.protocol.api.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from triokafka.protocol.api.list_groups import ListGroupsRequest, ListGroupsResponse

_GROUPS_AT_ONCE: Final = 100
"""Groups that are described before others are served."""


class ToolRequests(GroupRequests):
    """What administrators ask about groups, one method per API."""

    async def describe_groups(self, request: DescribeGroupsRequest, *, version: int) -> DescribeGroupsResponse:
        """DescribeGroups. Waits for nothing; with very many groups, others are served in between."""
        response = DescribeGroupsResponse()
        for group_id in request.groups:
            response.groups.append(self._describe(group_id, version))
            if not len(response.groups) % _GROUPS_AT_ONCE:
                await trio.lowlevel.checkpoint()
        return response

    def _describe(self, group_id: str, version: int) -> DescribedGroup:
        try:
            return self.runtime.read(
                self.partition_for(group_id), lambda shard: admin.describe(shard, group_id, version)
            )
        except KafkaError as error:
            return DescribedGroup(group_id=group_id, error_code=coordinator_error(error))

    async def consumer_group_describe(self, request: ConsumerGroupDescribeRequest) -> ConsumerGroupDescribeResponse:
        """ConsumerGroupDescribe (KIP-848). Waits until what it shows is committed."""
        replies: list[Reply[DescribedConsumerGroup] | DescribedConsumerGroup] = []
        for group_id in request.group_ids:
            reply: Reply[DescribedConsumerGroup] = Reply()
            try:
                self.begin(group_id, partial(consumer_groups.describe, group_id=group_id, reply=reply))
                replies.append(reply)
            except KafkaError as error:
                replies.append(_not_described(group_id, error))
        response = ConsumerGroupDescribeResponse()
        for group_id, found in zip(request.group_ids, replies, strict=True):
            if isinstance(found, Reply):
                try:
                    found = await found.wait()
                except KafkaError as error:
                    found = _not_described(group_id, error)
            response.groups.append(found)
        return response

    async def list_groups(self, request: ListGroupsRequest) -> ListGroupsResponse:
        """ListGroups: those of the shards here. With a shard still loading the list is partial and says so. Waits for
        nothing; with very many groups, others are served in between."""
        states = {state.lower() for state in request.states_filter}
        types = {kind.lower() for kind in request.types_filter}
        response = ListGroupsResponse()
        try:
            self.runtime.check_running()
        except KafkaError as error:
            response.error_code = coordinator_error(error)
        told_of = 0
        for partition in self.runtime.active_partitions():
            try:
                found = self.runtime.read(partition, lambda shard: admin.list_groups(shard, states, types))
            except KafkaError:
                continue  # it has gone meanwhile
            response.groups.extend(found)
            if len(response.groups) - told_of >= _GROUPS_AT_ONCE:
                told_of = len(response.groups)
                await trio.lowlevel.checkpoint()
        if self.runtime.is_loading:
            response.error_code = CoordinatorLoadInProgressError.code
        return response

    async def delete_groups(self, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        """DeleteGroups, with one append per shard, or several for very many positions; others are served in between.
        Waits until every removal is committed or refused. Cancelled, it may leave a group with a part of its positions.
        """
        replies: dict[str, Reply[DeletableGroupResult]] = {name: Reply() for name in request.groups_names}
        by_partition: dict[int, list[str]] = {}
        for group_id in replies:
            by_partition.setdefault(self.partition_for(group_id), []).append(group_id)
        for partition, group_ids in by_partition.items():
            await self._delete(partition, {group_id: replies[group_id] for group_id in group_ids})
        response = DeleteGroupsResponse()
        for group_id, reply in replies.items():
            try:
                result = await reply.wait()
            except KafkaError as error:
                result = DeletableGroupResult(group_id=group_id, error_code=coordinator_error(error))
            response.results.append(result)
        return response

    async def _delete(self, partition: int, replies: dict[str, Reply[DeletableGroupResult]]) -> None:
        left = list(replies)

        def delete(shard: GroupShard, turn: GroupTurn) -> None:
            nonlocal left
            left = admin.delete_groups(shard, {group_id: replies[group_id] for group_id in left}, turn)

        while left and not replies[left[0]].is_set:
            try:
                self.runtime.write(partition, delete)
            except KafkaError as error:
                # Not for those before them: they are gone, and their answers may be on the way.
                for group_id in left:
                    replies[group_id].fail(error)
            await trio.lowlevel.checkpoint()


def _not_described(group_id: str, error: KafkaError) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(group_id=group_id, error_code=coordinator_error(error), error_message=told(error))
