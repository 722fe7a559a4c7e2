"""Groups and their committed offsets: list, describe, delete, alter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from triokafka.client.admin.base import AdminBase, by_topic
from triokafka.client.admin.types import GroupDescription, GroupListing, MemberDescription, Results
from triokafka.errors import KafkaError, ProtocolError
from triokafka.protocol.api.delete_groups import DeleteGroupsRequest
from triokafka.protocol.api.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsRequest
from triokafka.protocol.api.leave_group import LeaveGroupRequest, MemberIdentity
from triokafka.protocol.api.list_groups import ListGroupsRequest
from triokafka.protocol.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from triokafka.protocol.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from triokafka.protocol.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from triokafka.protocol.embedded import ConsumerProtocolAssignment
from triokafka.structs import Node, OffsetAndMetadata, TopicPartition

_FIRST_MANY_GROUPS = 8
_LAST_BY_NAME = 9  # later versions of OffsetFetch and OffsetCommit know topics by id only


class GroupAdmin(AdminBase):
    """The part of `AdminClient` about groups."""

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = (), timeout_ms: float | None = None
    ) -> list[GroupListing]:
        """All groups of the cluster, by id; with ``states`` (brokers from 2.6 on) or ``types`` (3.8) only those.

        Every broker is asked, since each knows only the groups that it coordinates.
        """
        wanted_states, wanted_types = list(states), list(types)
        request = ListGroupsRequest(states_filter=wanted_states, types_filter=wanted_types)
        min_version = 5 if wanted_types else 4 if wanted_states else None

        async def ask(left_ms: int) -> list[GroupListing]:
            cluster = await self._client.refresh_metadata(timeout_ms=left_ms)
            found: dict[str, GroupListing] = {}
            for node in cluster.nodes:
                response = await self._client.send(
                    node, request, timeout_ms=self._patience(left_ms), min_version=min_version
                )
                if response.error_code:
                    raise self._error(response.error_code, f"groups of broker {node}")
                for g in response.groups:
                    found[g.group_id] = GroupListing(g.group_id, g.protocol_type, g.group_state, g.group_type)
            return sorted(found.values(), key=lambda listing: listing.group_id)

        return await self._once(ask, timeout_ms)

    async def describe_groups(
        self, group_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> Results[str, GroupDescription]:
        """State and members of groups. A group that does not exist is ``Dead`` and empty (or its error, from 4.0
        on)."""

        async def do_round(items: list[str], left_ms: int) -> Mapping[str, GroupDescription | Exception]:
            outcomes: dict[str, GroupDescription | Exception] = {}
            for group_id in items:
                try:
                    node = await self._client.find_coordinator(group_id, timeout_ms=self._patience(left_ms))
                    response = await self._coordinator(group_id, DescribeGroupsRequest(groups=[group_id]), left_ms)
                except KafkaError as error:
                    outcomes[group_id] = error
                    continue
                for g in response.groups:
                    outcomes[g.group_id] = (
                        self._group_error(g.error_code, g.group_id, g.error_message)
                        if g.error_code
                        else _described(g, node)
                    )
            return outcomes

        return await self._each(group_ids, do_round, timeout_ms)

    async def delete_groups(self, group_ids: Iterable[str], *, timeout_ms: float | None = None) -> None:
        """Delete groups without members, with their offsets.

        Raises:
            NonEmptyGroupError, GroupIdNotFoundError, …: one group could not be deleted; an `ExceptionGroup` when
                several could not.
        """

        async def do_round(items: list[str], left_ms: int) -> Mapping[str, Exception | None]:
            outcomes: dict[str, Exception | None] = {}
            for group_id in items:
                try:
                    response = await self._coordinator(group_id, DeleteGroupsRequest(groups_names=[group_id]), left_ms)
                except KafkaError as error:
                    outcomes[group_id] = error
                    continue
                for r in response.results:
                    outcomes[r.group_id] = self._group_error(r.error_code, r.group_id) if r.error_code else None
            return outcomes

        await self._change(group_ids, do_round, timeout_ms)

    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Committed offsets of a group: of all partitions that it has any for, or of those given.

        Partitions without a committed offset are left out. ``require_stable`` waits for open transactions.

        Raises:
            GroupAuthorizationFailedError, TopicAuthorizationFailedError, …: the broker refused.
        """
        topics = None if partitions is None else by_topic(partitions)

        def build(version: int) -> OffsetFetchRequest:
            if version >= _FIRST_MANY_GROUPS:
                named = None
                if topics is not None:
                    named = [OffsetFetchRequestTopics(name=name, partition_indexes=p) for name, p in topics.items()]
                group = OffsetFetchRequestGroup(group_id=group_id, topics=named)
                return OffsetFetchRequest(groups=[group], require_stable=require_stable)
            old = None
            if topics is not None:
                old = [OffsetFetchRequestTopic(name=name, partition_indexes=p) for name, p in topics.items()]
            return OffsetFetchRequest(group_id=group_id, topics=old, require_stable=require_stable)

        async def ask(left_ms: int) -> dict[TopicPartition, OffsetAndMetadata]:
            response = await self._coordinator(
                group_id,
                build,
                left_ms,
                api=OffsetFetchRequest,
                min_version=7 if require_stable else 2 if topics is None else None,
                max_version=_LAST_BY_NAME,
            )
            code = response.groups[0].error_code if response.groups else response.error_code
            if code:
                raise self._group_error(code, group_id)
            found: dict[TopicPartition, OffsetAndMetadata] = {}
            for t in response.groups[0].topics if response.groups else response.topics:
                for p in t.partitions:
                    tp = TopicPartition(t.name, p.partition_index)
                    if p.error_code:
                        raise self._error(p.error_code, tp)
                    if p.committed_offset >= 0:
                        found[tp] = OffsetAndMetadata(p.committed_offset, p.metadata or "", p.committed_leader_epoch)
            return found

        return await self._once(ask, timeout_ms)

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Set committed offsets of a group that has no members.

        Raises:
            UnknownMemberIdError: the group has members.
            UnknownTopicOrPartitionError, …: one partition could not be changed; an `ExceptionGroup` when several
                could not.
        """

        async def do_round(items: list[TopicPartition], left_ms: int) -> Mapping[TopicPartition, Exception | None]:
            topics = []
            for name, numbers in by_topic(items).items():
                partitions = []
                for number in numbers:
                    given = offsets[TopicPartition(name, number)]
                    position = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)
                    partitions.append(
                        OffsetCommitRequestPartition(
                            partition_index=number,
                            committed_offset=position.offset,
                            committed_leader_epoch=position.leader_epoch,
                            committed_metadata=position.metadata,
                        )
                    )
                topics.append(OffsetCommitRequestTopic(name=name, partitions=partitions))
            request = OffsetCommitRequest(
                group_id=group_id, generation_id_or_member_epoch=-1, member_id="", topics=topics
            )
            response = await self._coordinator(group_id, request, left_ms, max_version=_LAST_BY_NAME)
            return {
                TopicPartition(t.name, p.partition_index): self._offset_error(
                    p.error_code, group_id, TopicPartition(t.name, p.partition_index)
                )
                for t in response.topics
                for p in t.partitions
            }

        await self._change(offsets, do_round, timeout_ms)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> None:
        """Forget committed offsets of partitions that no member of the group subscribes to.

        Raises:
            GroupSubscribedToTopicError, GroupIdNotFoundError, …: one partition could not be changed; an
                `ExceptionGroup` when several could not.
        """

        async def do_round(items: list[TopicPartition], left_ms: int) -> Mapping[TopicPartition, Exception | None]:
            topics = [
                OffsetDeleteRequestTopic(
                    name=name, partitions=[OffsetDeleteRequestPartition(partition_index=p) for p in numbers]
                )
                for name, numbers in by_topic(items).items()
            ]
            response = await self._coordinator(group_id, OffsetDeleteRequest(group_id=group_id, topics=topics), left_ms)
            if response.error_code:
                raise self._group_error(response.error_code, group_id)
            return {
                TopicPartition(t.name, p.partition_index): self._offset_error(
                    p.error_code, group_id, TopicPartition(t.name, p.partition_index)
                )
                for t in response.topics
                for p in t.partitions
            }

        await self._change(partitions, do_round, timeout_ms)

    async def remove_group_members(
        self,
        group_id: str,
        members: Iterable[str] = (),
        *,
        group_instance_ids: Iterable[str] = (),
        reason: str | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Put members out of a classic group, by member id or (static ones) by instance id (brokers from 2.4 on).

        Their partitions go to the others at once. ``reason`` is for the broker's log.

        Raises:
            UnknownMemberIdError, FencedInstanceIdError, …: one member could not be removed; an `ExceptionGroup` when
                several could not.
        """
        wanted: list[tuple[str, str | None]] = [(member, None) for member in members]
        wanted += [("", instance) for instance in group_instance_ids]

        async def do_round(
            items: list[tuple[str, str | None]], left_ms: int
        ) -> Mapping[tuple[str, str | None], Exception | None]:
            request = LeaveGroupRequest(
                group_id=group_id,
                members=[
                    MemberIdentity(member_id=member, group_instance_id=instance, reason=reason)
                    for member, instance in items
                ],
            )
            response = await self._coordinator(group_id, request, left_ms, min_version=3)
            if response.error_code:
                raise self._group_error(response.error_code, group_id)
            outcomes: dict[tuple[str, str | None], Exception | None] = {}
            for (member, instance), found in zip(items, response.members, strict=False):
                who = f"static member {instance!r}" if instance is not None else f"member {member!r}"
                outcomes[member, instance] = (
                    self._group_error(found.error_code, group_id, who) if found.error_code else None
                )
            return outcomes

        await self._change(wanted, do_round, timeout_ms)

    def _offset_error(self, code: int, group_id: str, partition: TopicPartition) -> Exception | None:
        return self._group_error(code, group_id, str(partition)) if code else None


def _described(group: DescribedGroup, coordinator: Node) -> GroupDescription:
    return GroupDescription(
        group.group_id,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        tuple(_member(group, member) for member in group.members),
        coordinator,
    )


def _member(group: DescribedGroup, member: DescribedGroupMember) -> MemberDescription:
    assignment: tuple[TopicPartition, ...] = ()
    if group.protocol_type == "consumer" and member.member_assignment:
        try:
            decoded = ConsumerProtocolAssignment.decode_versioned(member.member_assignment)
            assignment = tuple(
                TopicPartition(topic.topic, partition)
                for topic in decoded.assigned_partitions
                for partition in topic.partitions
            )
        except ProtocolError:
            pass  # another client's own format; the bytes are there for who knows it
    return MemberDescription(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        assignment,
        member.member_metadata,
        member.member_assignment,
    )
