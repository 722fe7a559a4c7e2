"""The group APIs through the dispatcher: every version is understood and answered, and denied without permission."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.broker_stub.api.node import Node, memory_world, running_node
from triokafka.broker_stub.authorizer import NOT_ASKED, Authorizer
from triokafka.errors import (
    GroupAuthorizationFailedError,
    GroupIdNotFoundError,
    InconsistentGroupProtocolError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
)
from triokafka.protocol.api.consumer_group_describe import ConsumerGroupDescribeRequest
from triokafka.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from triokafka.protocol.api.delete_groups import DeleteGroupsRequest
from triokafka.protocol.api.describe_groups import DescribeGroupsRequest
from triokafka.protocol.api.find_coordinator import FindCoordinatorRequest
from triokafka.protocol.api.heartbeat import HeartbeatRequest
from triokafka.protocol.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
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
from triokafka.protocol.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from triokafka.security.acl import AclOperation, ResourceType

DENIED = GroupAuthorizationFailedError.code
FAST: dict[str, Any] = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 3}


def join_request(version: int, group_id: str = "g", member_id: str = "") -> JoinGroupRequest:
    """The request of a joining consumer, with the fields of that version."""
    return JoinGroupRequest(
        group_id=group_id,
        member_id=member_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=20_000 if version >= 1 else -1,
        group_instance_id="i" if version >= 5 else None,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\x01\0\x01t\xff\xff\xff\xff")],
        reason="why not" if version >= 8 else None,
    )


async def join(node: Node, version: int, group_id: str = "g") -> JoinGroupResponse:
    """Join, in two steps if the version requires it."""
    await node.call(FindCoordinatorRequest(key=group_id), 1)
    response = await node.call(join_request(version, group_id), version)
    if response.error_code == 79:
        response = await node.call(join_request(version, group_id, response.member_id), version)
    assert response.error_code == 0
    return response


async def stable(node: Node, group_id: str = "g") -> JoinGroupResponse:
    """A group of one dynamic member, with its assignment."""
    joined = await join(node, 4, group_id)
    assignments = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")]
    request = SyncGroupRequest(
        group_id=group_id,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=assignments,
    )
    assert (await node.call(request, 0)).assignment == b"all"
    return joined


def commit_request(node: Node, version: int, **fields: Any) -> OffsetCommitRequest:
    """Commit offset 7 of partition 0 of topic ``t``, by name or by id."""
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="mine")]
    if version >= 6:
        partitions[0].committed_leader_epoch = 3
    topic = (
        OffsetCommitRequestTopic(topic_id=node.broker.image.topics["t"].topic_id, partitions=partitions)
        if version >= 10
        else OffsetCommitRequestTopic(name="t", partitions=partitions)
    )
    return OffsetCommitRequest(group_id="g", topics=[topic], **fields)


@pytest.mark.parametrize("version", range(10))
async def test_join_sync_heartbeat_and_leave_in_every_version(version: int) -> None:
    async with running_node(**FAST) as node:
        joined = await join(node, version)
        instance = "i" if version >= 5 else None
        assert (joined.generation_id, joined.protocol_name, joined.leader) == (1, "range", joined.member_id)
        assert joined.protocol_type == ("consumer" if version >= 7 else None)
        assert [member.group_instance_id for member in joined.members] == [instance]
        sync = SyncGroupRequest(
            group_id="g",
            generation_id=1,
            member_id=joined.member_id,
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")],
        )
        sync_version = min(version, 5)
        if sync_version >= 5:
            assert (await node.call(sync, sync_version)).error_code == InconsistentGroupProtocolError.code
            sync.protocol_type, sync.protocol_name = "consumer", "range"
        synced = await node.call(sync, sync_version)
        assert (synced.error_code, synced.assignment) == (0, b"all")
        assert synced.protocol_name == ("range" if sync_version >= 5 else None)
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
        assert (await node.call(beat, min(version, 4))).error_code == 0
        leave_version = min(version, 5)
        if leave_version >= 3:
            leave = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=joined.member_id)])
        else:
            leave = LeaveGroupRequest(group_id="g", member_id=joined.member_id)
        left = await node.call(leave, leave_version)
        assert (left.error_code, [m.error_code for m in left.members]) == (0, [0] if leave_version >= 3 else [])
        leave.group_id = "absent"
        left = await node.call(leave, leave_version)
        unknown = UnknownMemberIdError.code
        expected = (0, [unknown]) if leave_version >= 3 else (unknown, [])
        assert (left.error_code, [m.error_code for m in left.members]) == expected
        assert (await node.call(beat, 0)).error_code == UnknownMemberIdError.code


@pytest.mark.parametrize("version", range(2, 11))
async def test_commit_in_every_version(version: int) -> None:
    async with running_node(**FAST) as node:
        await node.create("t")
        await node.call(FindCoordinatorRequest(key="g"), 1)
        response = await node.call(commit_request(node, version), version)
        assert [p.error_code for p in response.topics[0].partitions] == [0]
        fetched = await node.call(OffsetFetchRequest(group_id="g", topics=None), 5)
        (found,) = fetched.topics[0].partitions
        assert (found.committed_offset, found.metadata) == (7, "mine")
        assert found.committed_leader_epoch == (3 if version >= 6 else -1)


@pytest.mark.parametrize("version", range(1, 11))
async def test_fetch_of_offsets_in_every_version(version: int) -> None:
    async with running_node(**FAST) as node:
        await node.create("t")
        await node.call(FindCoordinatorRequest(key="g"), 1)
        await node.call(commit_request(node, 8), 8)
        if version >= 8:
            topic = OffsetFetchRequestTopics(partition_indexes=[0, 1])
            if version >= 10:
                topic.topic_id = node.broker.image.topics["t"].topic_id
            else:
                topic.name = "t"
            groups = [OffsetFetchRequestGroup(group_id="g", topics=[topic])]
            batched = (await node.call(OffsetFetchRequest(groups=groups, require_stable=True), version)).groups[0]
            offsets = [p.committed_offset for p in batched.topics[0].partitions]
            assert batched.error_code == 0
        else:
            topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
            response = await node.call(OffsetFetchRequest(group_id="g", topics=topics), version)
            offsets = [p.committed_offset for p in response.topics[0].partitions]
            assert response.error_code == 0
        assert offsets == [7, -1]


@pytest.mark.parametrize("version", range(7))
async def test_describe_in_every_version(version: int) -> None:
    async with running_node(**FAST) as node:
        joined = await stable(node)
        request = DescribeGroupsRequest(groups=["g", "nobody"], include_authorized_operations=version >= 3)
        group, missing = (await node.call(request, version)).groups
        assert (group.group_state, group.members[0].client_host) == ("Stable", "/192.0.2.1")
        assert (group.members[0].client_id, group.members[0].member_id) == ("test", joined.member_id)
        assert group.authorized_operations == (0b1101_0100_1000 if version >= 3 else NOT_ASKED)
        assert (missing.group_state, missing.error_code) == ("Dead", GroupIdNotFoundError.code if version >= 6 else 0)
        # What one may do with a group that is not there is not said, but a Dead one is a group.
        assert missing.authorized_operations == (group.authorized_operations if version < 6 else NOT_ASKED)


async def test_missing_group_has_no_authorized_operations() -> None:
    """ConsumerGroupDescribe, as Kafka's KafkaApis answers it (KIP-430, KIP-848)."""
    async with running_node(**FAST) as node:
        await node.create("t")
        await node.broker.topic_creation.ensure("__consumer_offsets")
        joining = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
        assert (await node.call(joining, 1)).error_code == 0
        request = ConsumerGroupDescribeRequest(group_ids=["g", "nobody"], include_authorized_operations=True)
        group, missing = (await node.call(request, 1)).groups
        assert (group.error_code, group.authorized_operations) == (0, 0b1101_0100_1000)
        assert (missing.error_code, missing.authorized_operations) == (GroupIdNotFoundError.code, NOT_ASKED)


@pytest.mark.parametrize("version", range(6))
async def test_list_in_every_version(version: int) -> None:
    async with running_node(**FAST) as node:
        await stable(node)
        (group,) = (await node.call(ListGroupsRequest(), version)).groups
        assert (group.group_id, group.protocol_type) == ("g", "consumer")
        assert group.group_state == ("Stable" if version >= 4 else "")
        assert group.group_type == ("classic" if version >= 5 else "")


@pytest.mark.parametrize("version", [4, 5])
async def test_list_is_filtered_by_state_and_type(version: int) -> None:
    """KIP-518 and KIP-848, in upper and lower case; an unknown state or type matches no group."""
    async with running_node(**FAST) as node:
        await node.create("t")
        await stable(node, "steady")
        await node.call(commit_request(node, 8), 8)

        async def listed(states: tuple[str, ...], types: tuple[str, ...] = ()) -> list[str]:
            request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
            return [group.group_id for group in (await node.call(request, version)).groups]

        assert await listed(("stable",)) == ["steady"]
        assert await listed(("EMPTY",)) == ["g"]
        assert sorted(await listed(("Stable", "Empty", "Nonsense"))) == ["g", "steady"]
        assert await listed(("Dead",)) == []
        if version >= 5:
            assert sorted(await listed((), ("Classic",))) == ["g", "steady"]
            assert await listed(("Empty",), ("classic", "consumer")) == ["g"]
            assert await listed((), ("consumer",)) == await listed((), ("share",)) == []


@pytest.mark.parametrize("version", [7, 8, 9, 10])
async def test_stable_positions_are_requested_on_the_wire(version: int) -> None:
    """KIP-447: no offset is pending, so all are stable."""
    async with running_node(**FAST) as node:
        await node.create("t")
        await node.call(FindCoordinatorRequest(key="g"), 1)
        await node.call(commit_request(node, 8), 8)
        if version < 8:
            response: Any = await node.call(OffsetFetchRequest(group_id="g", topics=None, require_stable=True), version)
        else:
            groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("g", "h")]
            answer = await node.call(OffsetFetchRequest(groups=groups, require_stable=True), version)
            assert [group.group_id for group in answer.groups] == ["g", "h"]
            response = answer.groups[0]
        (found,) = response.topics[0].partitions
        assert (found.committed_offset, found.committed_leader_epoch, found.error_code) == (7, 3, 0)


@pytest.mark.parametrize("version", range(3))
async def test_delete_in_every_version(version: int) -> None:
    async with running_node(**FAST) as node:
        await node.create("t")
        await stable(node, "busy")
        await node.call(FindCoordinatorRequest(key="g"), 1)
        await node.call(commit_request(node, 8), 8)
        response = await node.call(DeleteGroupsRequest(groups_names=["g", "busy"]), version)
        assert {r.group_id: r.error_code for r in response.results} == {"g": 0, "busy": 68}


async def test_offsets_of_a_topic_are_deleted() -> None:
    async with running_node(**FAST) as node:
        await node.create("t")
        await node.call(FindCoordinatorRequest(key="g"), 1)
        await node.call(commit_request(node, 8), 8)
        topics = [OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])]
        response = await node.call(OffsetDeleteRequest(group_id="g", topics=topics), 0)
        assert (response.error_code, response.topics[0].partitions[0].error_code) == (0, 0)
        assert (await node.call(OffsetFetchRequest(group_id="g", topics=None), 5)).topics == []


async def test_groups_and_offsets_are_there_after_the_broker_restarts() -> None:
    """Everything that was acknowledged, from the broker's own log."""
    world = memory_world()
    async with running_node(world=world, **FAST) as node:
        await node.create("t")
        joined = await stable(node)
        fields = {"generation_id_or_member_epoch": 1, "member_id": joined.member_id}
        await node.call(commit_request(node, 8, **fields), 8)
    async with running_node(world=world, **FAST) as node:
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
        assert (await node.call(beat, 3)).error_code == 0
        sync = SyncGroupRequest(group_id="g", generation_id=1, member_id=joined.member_id)
        assert (await node.call(sync, 3)).assignment == b"all"
        fetched = await node.call(OffsetFetchRequest(group_id="g", topics=None), 5)
        assert fetched.topics[0].partitions[0].committed_offset == 7


async def test_deleted_topic_takes_its_offsets_with_it() -> None:
    from triokafka.protocol.api.delete_topics import DeleteTopicsRequest

    async with running_node(**FAST) as node:
        await node.create("t")
        await node.call(FindCoordinatorRequest(key="g"), 1)
        await node.call(commit_request(node, 8), 8)
        await node.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 4)
        assert (await node.call(OffsetFetchRequest(group_id="g", topics=None), 5)).topics == []


class Without(Authorizer):
    """Allows everything, except operations on these kinds of resources."""

    def __init__(self, *denied: ResourceType) -> None:
        self.kinds = denied

    def allows(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        return resource_type not in self.kinds


async def test_topics_that_the_caller_may_not_touch_are_denied_one_by_one() -> None:
    denied = TopicAuthorizationFailedError.code
    world = memory_world()
    async with running_node(world=world, **FAST) as node:
        await node.create("t")
        await node.call(FindCoordinatorRequest(key="g"), 1)
        await node.call(commit_request(node, 8), 8)
    async with running_node(world=world, authorizer=Without(ResourceType.TOPIC), **FAST) as node:
        for version in (8, 10):
            committed = await node.call(commit_request(node, version), version)
            assert [p.error_code for p in committed.topics[0].partitions] == [denied]
        named = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        fetched = await node.call(OffsetFetchRequest(group_id="g", topics=named), 5)
        assert [(p.committed_offset, p.error_code) for p in fetched.topics[0].partitions] == [(-1, denied)]
        assert (await node.call(OffsetFetchRequest(group_id="g", topics=None), 5)).topics == []
        topics = [OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])]
        deleted = await node.call(OffsetDeleteRequest(group_id="g", topics=topics), 0)
        assert deleted.topics[0].partitions[0].error_code == denied


async def test_list_shows_the_groups_that_the_caller_may_see() -> None:
    world = memory_world()
    async with running_node(world=world, **FAST) as node:
        await stable(node)
    shown: list[int] = []
    for kinds in (
        (ResourceType.GROUP,),
        (ResourceType.CLUSTER,),
        (ResourceType.GROUP, ResourceType.CLUSTER),
    ):
        async with running_node(world=world, authorizer=Without(*kinds), **FAST) as node:
            shown.append(len((await node.call(ListGroupsRequest(), 5)).groups))
    assert shown == [1, 1, 0]


async def test_groups_that_the_caller_may_not_touch_are_denied_in_each_api() -> None:
    async with running_node(authorizer=Without(ResourceType.GROUP), **FAST) as node:
        await node.create("t")
        assert (await node.call(join_request(5), 5)).error_code == DENIED
        assert (await node.call(SyncGroupRequest(group_id="g"), 3)).error_code == DENIED
        assert (await node.call(HeartbeatRequest(group_id="g"), 3)).error_code == DENIED
        assert (await node.call(LeaveGroupRequest(group_id="g"), 3)).error_code == DENIED
        committed = await node.call(commit_request(node, 8), 8)
        assert [p.error_code for p in committed.topics[0].partitions] == [DENIED]
        assert (await node.call(OffsetFetchRequest(group_id="g", topics=None), 7)).error_code == DENIED
        groups = [OffsetFetchRequestGroup(group_id="g", topics=None)]
        fetched = await node.call(OffsetFetchRequest(groups=groups), 8)
        assert [group.error_code for group in fetched.groups] == [DENIED]
        described = await node.call(DescribeGroupsRequest(groups=["g"]), 5)
        assert [group.error_code for group in described.groups] == [DENIED]
        deleted = await node.call(DeleteGroupsRequest(groups_names=["g"]), 1)
        assert [result.error_code for result in deleted.results] == [DENIED]
        assert (await node.call(OffsetDeleteRequest(group_id="g"), 0)).error_code == DENIED
