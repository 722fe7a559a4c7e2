"""Groups: list, describe and delete them, and remove members."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from triokafka.client.admin.call_routing import GROUP, CallRouting
from triokafka.client.admin.group_types import (
    CONSUMER_PROTOCOL_TYPE,
    GroupDescription,
    GroupListing,
    MemberDescription,
    MemberToRemove,
)
from triokafka.client.admin.retries import AdminRetries, values_of
from triokafka.client.admin.types import Results
from triokafka.errors import GroupIdNotFoundError, ProtocolError, UnsupportedVersionError
from triokafka.protocol.api import consumer_group_describe
from triokafka.protocol.api.consumer_group_describe import ConsumerGroupDescribeRequest
from triokafka.protocol.api.delete_groups import DeleteGroupsRequest
from triokafka.protocol.api.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsRequest
from triokafka.protocol.api.leave_group import LeaveGroupRequest, MemberIdentity
from triokafka.protocol.api.list_groups import ListGroupsRequest
from triokafka.protocol.consumer_protocol import (
    AssignedTopic,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    OwnedTopic,
)
from triokafka.security.acl import AclOperation
from triokafka.structs import Node, TopicPartition

_FIRST_WITH_STATES = 4
_FIRST_WITH_TYPES = 5
_FIRST_SEVERAL_MEMBERS = 3
_FIRST_WITH_OPERATIONS = 3
_ONLY_CLASSIC = (GroupIdNotFoundError.code, UnsupportedVersionError.code)
_SPEAKS_CLASSIC, _SPEAKS_NEW = 0, 1


class GroupAdmin:
    """The part of `AdminClient` about groups."""

    def __init__(self, retries: AdminRetries) -> None:
        self._retries = retries

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = (), timeout_ms: float | None = None
    ) -> list[GroupListing]:
        """List all groups of the cluster, by id; ``states`` (brokers from 2.6 on) or ``types`` (3.8) filter them.

        Sends a request to every broker, because each knows only the groups that it coordinates, and raises if one
        fails. `list_groups_by_broker` returns the answers of the others in that case.

        Raises:
            KafkaConnectionError, …: one broker could not be reached; an `ExceptionGroup` if several could not.
            UnsupportedVersionError: a broker does not support the filter.
        """
        by_broker = await self.list_groups_by_broker(states=states, types=types, timeout_ms=timeout_ms)
        errors = list(by_broker.errors.values())
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ExceptionGroup(f"{len(errors)} of {len(by_broker)} brokers failed", errors)
        found = {listing.group_id: listing for listings in by_broker.values() for listing in listings}
        return sorted(found.values(), key=lambda listing: listing.group_id)

    async def list_groups_by_broker(
        self, *, states: Iterable[str] = (), types: Iterable[str] = (), timeout_ms: float | None = None
    ) -> Results[Node, tuple[GroupListing, ...]]:
        """List the groups that each broker coordinates. Reading a broker that failed raises its error.

        Otherwise as `list_groups`.
        """
        wanted_states, wanted_types = list(states), list(types)
        request = ListGroupsRequest(states_filter=wanted_states, types_filter=wanted_types)
        min_version = _FIRST_WITH_TYPES if wanted_types else _FIRST_WITH_STATES if wanted_states else None

        async def ask(node_id: int, items: list[Node], call: CallRouting) -> Mapping[Node, tuple[GroupListing, ...]]:
            response = await call.to_node(node_id, request, min_version=min_version)
            self._retries.check(response.error_code, f"groups of broker {node_id}")
            listings = (GroupListing(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in response.groups)
            return dict.fromkeys(items, tuple(sorted(listings, key=lambda listing: listing.group_id)))

        async def do_round(items: list[Node], call: CallRouting) -> Mapping[Node, tuple[GroupListing, ...] | Exception]:
            return await call.side_by_side({node.node_id: [node] for node in items}, ask)

        time_left = self._retries.countdown(timeout_ms)
        asked = await self._retries.brokers(time_left())
        return await self._retries.each(asked, do_round, time_left())

    async def describe_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout_ms: float | None = None,
    ) -> Results[str, GroupDescription]:
        """Describe the state and members of consumer groups, under the classic or the consumer protocol (KIP-848).

        ``include_authorized_operations`` adds the operations that the caller may perform on each group (brokers from
        2.3 on). Each coordinator gets one request for all its groups: first as groups of the consumer protocol (brokers
        from 3.7 on), then for the rest as classic groups. A group that does not exist is ``Dead`` and empty, or an
        error with brokers from 4.0 on. Reading a group that failed raises its error.
        """

        async def ask(node: Node, items: list[str], call: CallRouting) -> Mapping[str, GroupDescription | Exception]:
            outcomes = await self._describe_new(node, items, call, include_authorized_operations)
            classic = [group_id for group_id in items if group_id not in outcomes]
            if classic:

                def build(version: int) -> DescribeGroupsRequest:
                    operations = include_authorized_operations and version >= _FIRST_WITH_OPERATIONS
                    return DescribeGroupsRequest(groups=classic, include_authorized_operations=operations)

                response = await call.to_node(node.node_id, build, api=DescribeGroupsRequest)
                for g in response.groups:
                    outcomes[g.group_id] = self._retries.group_error(
                        g.error_code, g.group_id, g.error_message
                    ) or _described(g, node)
            return outcomes

        return await self._retries.each_group(group_ids, ask, timeout_ms)

    async def _describe_new(
        self, node: Node, group_ids: list[str], call: CallRouting, operations: bool
    ) -> dict[str, GroupDescription | Exception]:
        """Return groups of the consumer protocol, and failures, without groups that may be classic."""
        try:
            request = ConsumerGroupDescribeRequest(group_ids=group_ids, include_authorized_operations=operations)
            response = await call.to_node(node.node_id, request)
        except UnsupportedVersionError:
            return {}
        return {
            g.group_id: self._retries.group_error(g.error_code, g.group_id, g.error_message) or _described_new(g, node)
            for g in response.groups
            if g.error_code not in _ONLY_CLASSIC
        }

    async def delete_groups(self, group_ids: Iterable[str], *, timeout_ms: float | None = None) -> None:
        """Delete groups without members, with their offsets.

        Raises:
            NonEmptyGroupError, GroupIdNotFoundError, …: one group could not be deleted; an `ExceptionGroup` when
                several could not.
        """

        async def ask(node: Node, items: list[str], call: CallRouting) -> Mapping[str, Exception | None]:
            response = await call.to_node(node.node_id, DeleteGroupsRequest(groups_names=items))
            return {r.group_id: self._retries.group_error(r.error_code, r.group_id) for r in response.results}

        values_of(await self._retries.each_group(group_ids, ask, timeout_ms))

    async def remove_all_group_members(
        self, group_id: str, *, reason: str | None = None, timeout_ms: float | None = None
    ) -> int:
        """Remove every current member of a classic group (brokers from 2.4 on); return their number.

        Members that are alive join again. Raises as `remove_group_members`, and when the group cannot be described.
        """
        time_left = self._retries.countdown(timeout_ms)
        group = (await self.describe_groups([group_id], timeout_ms=time_left()))[group_id]
        await self.remove_group_members(
            group_id,
            [member.member_id for member in group.members if member.group_instance_id is None],
            group_instance_ids=[m.group_instance_id for m in group.members if m.group_instance_id is not None],
            reason=reason,
            timeout_ms=time_left(),
        )
        return len(group.members)

    async def remove_group_members(
        self,
        group_id: str,
        members: Iterable[str | MemberToRemove] = (),
        *,
        group_instance_ids: Iterable[str] = (),
        reason: str | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        """Remove members of a classic group, by member id or (static ones) by instance id (brokers from 2.4 on).

        Their partitions go to the other members. ``reason`` is for the broker's log, for members without a reason of
        their own (`MemberToRemove`). Brokers before 2.4 get one request per member.

        Raises:
            UnsupportedVersionError: an instance id, and a broker before 2.4.
            UnknownMemberIdError, FencedInstanceIdError, …: one member could not be removed; an `ExceptionGroup` when
                several could not.
        """
        wanted = [MemberToRemove(member) if isinstance(member, str) else member for member in members]
        wanted += [MemberToRemove(group_instance_id=instance) for instance in group_instance_ids]
        any_static = any(member.group_instance_id is not None for member in wanted)
        min_version = _FIRST_SEVERAL_MEMBERS if any_static else None

        async def do_round(items: list[MemberToRemove], call: CallRouting) -> Mapping[MemberToRemove, Exception | None]:
            outcomes: dict[MemberToRemove, Exception | None] = {}
            while left := items[len(outcomes) :]:
                several = True

                def build(version: int) -> LeaveGroupRequest:
                    nonlocal several
                    several = version >= _FIRST_SEVERAL_MEMBERS
                    if not several:
                        return LeaveGroupRequest(group_id=group_id, member_id=left[0].member_id)
                    return LeaveGroupRequest(
                        group_id=group_id,
                        members=[
                            MemberIdentity(
                                member_id=member.member_id,
                                group_instance_id=member.group_instance_id,
                                reason=reason if member.reason is None else member.reason,
                            )
                            for member in left
                        ],
                    )

                response = await call.to_coordinator(group_id, build, api=LeaveGroupRequest, min_version=min_version)
                if several and (error := self._retries.group_error(response.error_code, group_id)) is not None:
                    raise error
                codes = [found.error_code for found in response.members] if several else [response.error_code]
                for member, code in zip(left, codes, strict=False):
                    instance = member.group_instance_id
                    who = f"member {member.member_id!r}" if instance is None else f"static member {instance!r}"
                    outcomes[member] = self._retries.group_error(code, group_id, part=who)
                if several:
                    break
            return outcomes

        await self._retries.change(wanted, do_round, timeout_ms)

    async def assume_coordinator(
        self, group_ids: Iterable[str], node_id: int, *, timeout_ms: float | None = None
    ) -> None:
        """Use this broker as the coordinator of these groups in the next call, without a look-up.

        If it answers that it is not the coordinator, the next attempt looks the coordinator up.

        Raises:
            BrokerNotAvailableError: the cluster has no such broker.
        """

        async def ask(call: CallRouting) -> None:
            node = await call.node(node_id)
            for group_id in group_ids:
                self._retries.client.assume_coordinator(group_id, node, GROUP)

        await self._retries.once(ask, timeout_ms)


def _described(group: DescribedGroup, coordinator: Node) -> GroupDescription:
    return GroupDescription(
        group.group_id,
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        tuple(_member(group, member) for member in group.members),
        coordinator,
        authorized_operations=AclOperation.of_bits(group.authorized_operations),
    )


def _member(group: DescribedGroup, member: DescribedGroupMember) -> MemberDescription:
    joined: ConsumerProtocolSubscription | None = None
    assigned: ConsumerProtocolAssignment | None = None
    if group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        with suppress(ProtocolError):  # another client's own format; the caller may decode the bytes
            if member.member_metadata:
                joined = ConsumerProtocolSubscription.decode_versioned(member.member_metadata)
            if member.member_assignment:
                assigned = ConsumerProtocolAssignment.decode_versioned(member.member_assignment)
    description = MemberDescription(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        () if assigned is None else _by_name(assigned.assigned_partitions),
        member.member_metadata,
        member.member_assignment,
        assignment_user_data=None if assigned is None else assigned.user_data,
    )
    if joined is None:
        return description
    return replace(
        description,
        rack_id=joined.rack_id,
        subscription=tuple(joined.topics),
        owned_partitions=_by_name(joined.owned_partitions),
        generation_id=joined.generation_id,
        user_data=joined.user_data,
    )


def _by_name(topics: Iterable[AssignedTopic] | Iterable[OwnedTopic]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic.topic, partition) for topic in topics for partition in topic.partitions)


def _described_new(group: consumer_group_describe.DescribedGroup, coordinator: Node) -> GroupDescription:
    return GroupDescription(
        group.group_id,
        group.group_state,
        CONSUMER_PROTOCOL_TYPE,
        group.assignor_name,
        tuple(_member_new(member) for member in group.members),
        coordinator,
        CONSUMER_PROTOCOL_TYPE,
        group.group_epoch,
        group.assignment_epoch,
        AclOperation.of_bits(group.authorized_operations),
    )


def _member_new(member: consumer_group_describe.Member) -> MemberDescription:
    return MemberDescription(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        _partitions(member.assignment),
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        target_assignment=_partitions(member.target_assignment),
        upgraded={_SPEAKS_CLASSIC: False, _SPEAKS_NEW: True}.get(member.member_type),
        subscription=tuple(member.subscribed_topic_names),
        subscribed_pattern=member.subscribed_topic_regex,
    )


def _partitions(assignment: consumer_group_describe.Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )
