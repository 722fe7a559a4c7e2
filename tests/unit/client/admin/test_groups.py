"""Groups in the admin client, against scripted brokers: the requests, their number, and the brokers that get them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio

from tests.support.scripted_broker import CLOSE, SILENCE, ScriptedBroker
from tests.support.simulated import simulated
from tests.unit.client.admin.test_admin import admin_of
from triokafka.client.admin import GroupListing
from triokafka.errors import (
    GroupAuthorizationFailedError,
    GroupIdNotFoundError,
    KafkaError,
    NonEmptyGroupError,
    UnsupportedVersionError,
)
from triokafka.protocol.api import consumer_group_describe as new
from triokafka.protocol.api.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from triokafka.protocol.api.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from triokafka.protocol.api.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from triokafka.protocol.api.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from triokafka.protocol.api.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from triokafka.protocol.api.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from triokafka.protocol.api.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from triokafka.protocol.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from triokafka.structs import OffsetAndMetadata, TopicPartition

OFFSET_FETCH, FIND_COORDINATOR, CONSUMER_GROUP_DESCRIBE, LEAVE_GROUP, OFFSET_DELETE = 9, 10, 69, 13, 47
ORDERS = TopicPartition("orders", 0)


def coordinated_by(**nodes: Any) -> Callable[[FindCoordinatorRequest], FindCoordinatorResponse]:
    """Return a scripted lookup of coordinators: group to broker; a number is an error code."""

    def answer(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        found = []
        for key in request.coordinator_keys:
            broker = nodes[key]
            if isinstance(broker, ScriptedBroker):
                host, port = broker.address.split(":")
                found.append(Coordinator(key=key, node_id=broker.node_id, host=host, port=int(port)))
            else:
                found.append(Coordinator(key=key, node_id=-1, host="", port=-1, error_code=broker))
        return FindCoordinatorResponse(coordinators=found)

    return answer


def classic(*groups: str, **more: Any) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[
            DescribedGroup(group_id=group, group_state="Stable", protocol_type="consumer", **more) for group in groups
        ]
    )


def offsets_of(**positions: int) -> OffsetFetchResponse:
    """Return one committed offset of each group in ``orders-0``."""
    return OffsetFetchResponse(
        groups=[
            OffsetFetchResponseGroup(
                group_id=group,
                topics=[
                    OffsetFetchResponseTopics(
                        name="orders",
                        partitions=[OffsetFetchResponsePartitions(partition_index=0, committed_offset=offset)],
                    )
                ],
            )
            for group, offset in positions.items()
        ]
    )


@simulated
async def test_broker_that_fails_does_not_hide_the_groups_of_the_others() -> None:
    async with admin_of(nodes=3) as (cluster, admin):
        one, two, three = (cluster.brokers[number] for number in (1, 2, 3))
        one.script(ListGroupsRequest, ListGroupsResponse(groups=[ListedGroup(group_id="a", protocol_type="consumer")]))
        two.script(ListGroupsRequest, *[SILENCE] * 10)
        three.script(ListGroupsRequest, ListGroupsResponse(error_code=31))
        found = await admin.list_groups_by_broker(timeout_ms=2000)
        assert {node.node_id for node in found} == {1, 2, 3}
        assert {node.node_id for node in found.errors} == {2, 3}
        (asked,) = [node for node in found if node not in found.errors]
        assert found[asked] == (GroupListing("a", "consumer", "", ""),)


@simulated
async def test_listing_all_groups_raises_when_a_broker_fails() -> None:
    async with admin_of(nodes=2) as (cluster, admin):
        cluster.brokers[1].script(ListGroupsRequest, ListGroupsResponse())
        cluster.brokers[2].script(ListGroupsRequest, ListGroupsResponse(error_code=31))
        with pytest.raises(KafkaError, match="groups of broker 2"):
            await admin.list_groups()


@simulated
async def test_only_the_busy_broker_is_asked_again() -> None:
    async with admin_of(nodes=2) as (cluster, admin):
        one, two = cluster.brokers[1], cluster.brokers[2]
        one.script(ListGroupsRequest, ListGroupsResponse(groups=[ListedGroup(group_id="a", protocol_type="")]))
        two.script(ListGroupsRequest, ListGroupsResponse(error_code=14), CLOSE, ListGroupsResponse())
        assert [listing.group_id for listing in await admin.list_groups()] == ["a"]
        assert (len(one.seen(ListGroupsRequest)), len(two.seen(ListGroupsRequest))) == (1, 3)


def test_group_of_another_protocol_is_not_a_consumer_group() -> None:
    assert GroupListing("g", "consumer", "", "").is_consumer_group
    assert GroupListing("simple", "", "Empty", "classic").is_consumer_group
    assert not GroupListing("connect", "connect", "Stable", "classic").is_consumer_group


@simulated
async def test_many_groups_take_one_lookup_and_one_request_to_each_coordinator() -> None:
    """KIP-699."""
    async with admin_of(nodes=2) as (cluster, admin):
        one, two = cluster.brokers[1], cluster.brokers[2]
        where = coordinated_by(a=one, b=two, c=one, d=30)
        for broker in (one, two):
            broker.script(FindCoordinatorRequest, where)
        one.script(DescribeGroupsRequest, classic("a", "c"))
        two.script(DescribeGroupsRequest, classic("b"))
        found = await admin.describe_groups(["a", "b", "c", "d"])
        assert {group: found[group].coordinator.node_id for group in "abc"} == {"a": 1, "b": 2, "c": 1}
        assert isinstance(found.errors["d"], GroupAuthorizationFailedError)
        lookups = [request for broker in (one, two) for request in broker.seen(FindCoordinatorRequest)]
        assert [request.coordinator_keys for request in lookups] == [["a", "b", "c", "d"]]
        assert [request.groups for request in one.seen(DescribeGroupsRequest)] == [["a", "c"]]


@simulated
async def test_coordinators_are_looked_up_one_by_one_with_an_old_broker() -> None:
    """KIP-699: brokers before 3.0."""
    async with admin_of() as (cluster, admin):
        broker = cluster.brokers[1]
        broker.api_versions[FIND_COORDINATOR] = (0, 3)
        broker.script(DescribeGroupsRequest, classic("a", "b"))
        assert (await admin.describe_groups(["a", "b"]))["b"].state == "Stable"
        assert [request.key for request in broker.seen(FindCoordinatorRequest)] == ["a", "b"]


@simulated
async def test_only_the_group_whose_coordinator_moved_is_retried() -> None:
    async with admin_of(nodes=2) as (cluster, admin):
        one, two = cluster.brokers[1], cluster.brokers[2]
        for broker in (one, two):
            broker.script(FindCoordinatorRequest, coordinated_by(a=one, b=one), coordinated_by(b=two))
        moved = DeletableGroupResult(group_id="b", error_code=16)
        done = [DeletableGroupResult(group_id=group, error_code=0) for group in "ab"]
        one.script(DeleteGroupsRequest, DeleteGroupsResponse(results=[done[0], moved]))
        two.script(DeleteGroupsRequest, DeleteGroupsResponse(results=[done[1]]))
        one.script(FindCoordinatorRequest, coordinated_by(b=two))
        two.script(FindCoordinatorRequest, coordinated_by(b=two))
        await admin.delete_groups(["a", "b"])
        assert [request.groups_names for request in two.seen(DeleteGroupsRequest)] == [["b"]]


@simulated
async def test_coordinator_that_was_lost_is_looked_up_again() -> None:
    async with admin_of(nodes=2) as (cluster, admin):
        one, two = cluster.brokers[1], cluster.brokers[2]
        where = {"g": one}

        def lookup(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
            return coordinated_by(**where)(request)

        def die(_request: DescribeGroupsRequest) -> object:
            where["g"] = two
            return CLOSE

        for broker in (one, two):
            broker.script(FindCoordinatorRequest, *[lookup] * 5)
        one.script(DescribeGroupsRequest, die)
        two.script(DescribeGroupsRequest, classic("g"))
        assert (await admin.describe_groups(["g"]))["g"].coordinator.node_id == 2


@simulated
async def test_groups_of_a_lost_coordinator_fail_and_the_others_are_deleted() -> None:
    async with admin_of(nodes=2) as (cluster, admin):
        one, two = cluster.brokers[1], cluster.brokers[2]
        for broker in (one, two):
            broker.script(FindCoordinatorRequest, *[coordinated_by(a=one, b=one, c=two)] * 50)
        refused = DeletableGroupResult(group_id="b", error_code=68)
        one.script(
            DeleteGroupsRequest,
            DeleteGroupsResponse(results=[DeletableGroupResult(group_id="a", error_code=0), refused]),
        )
        two.script(DeleteGroupsRequest, *[CLOSE] * 50)
        with pytest.raises(ExceptionGroup) as caught:
            await admin.delete_groups(["a", "b", "c"], timeout_ms=1000)
        assert len(caught.value.exceptions) == 2
        assert any(isinstance(error, NonEmptyGroupError) for error in caught.value.exceptions)
        assert len(one.seen(DeleteGroupsRequest)) == 1


@simulated
async def test_groups_are_described_by_their_own_protocol() -> None:
    """KIP-848. All groups are described as new groups first; the others then as classic ones."""
    async with admin_of() as (cluster, admin):
        broker = cluster.brokers[1]
        broker.api_versions[CONSUMER_GROUP_DESCRIBE] = (0, 1)
        owned = new.TopicPartitions(topic_id=cluster.topic_ids["orders"], topic_name="orders", partitions=[0])
        member = new.Member(
            member_id="m",
            member_epoch=4,
            client_id="c",
            client_host="/h",
            subscribed_topic_names=["orders"],
            assignment=new.Assignment(topic_partitions=[owned]),
            target_assignment=new.Assignment(topic_partitions=[]),
            member_type=0,
        )
        modern = new.DescribedGroup(
            group_id="modern", group_state="Reconciling", group_epoch=5, assignment_epoch=4, assignor_name="uniform",
            members=[member],
        )  # fmt: skip
        refused = new.DescribedGroup(group_id="secret", error_code=30)
        others = [new.DescribedGroup(group_id="old", error_code=69), new.DescribedGroup(group_id="gone", error_code=69)]
        broker.script(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse(groups=[modern, refused, *others]))
        gone = DescribedGroup(group_id="gone", group_state="Dead", error_code=69, error_message="no such group")
        broker.script(DescribeGroupsRequest, DescribeGroupsResponse(groups=[*classic("old").groups, gone]))
        found = await admin.describe_groups(["modern", "secret", "old", "gone"])
        group = found["modern"]
        assert (group.group_type, group.state, group.assignor) == ("consumer", "Reconciling", "uniform")
        assert (group.group_epoch, group.target_assignment_epoch) == (5, 4)
        (one,) = group.members
        assert (one.assignment, one.target_assignment, one.member_epoch, one.upgraded) == ((ORDERS,), (), 4, False)
        assert one.subscription == ("orders",)
        assert (found["old"].group_type, found["old"].group_epoch) == ("classic", None)
        assert {name: type(error) for name, error in found.errors.items()} == {
            "secret": GroupAuthorizationFailedError,
            "gone": GroupIdNotFoundError,
        }
        assert [request.groups for request in broker.seen(DescribeGroupsRequest)] == [["old", "gone"]]


@simulated
async def test_broker_without_the_new_protocol_describes_classic_groups() -> None:
    """KIP-848: ``group.version`` 0."""
    async with admin_of() as (cluster, admin):
        broker = cluster.brokers[1]
        broker.api_versions[CONSUMER_GROUP_DESCRIBE] = (0, 1)
        off = ConsumerGroupDescribeResponse(groups=[new.DescribedGroup(group_id="g", error_code=35)])
        broker.script(ConsumerGroupDescribeRequest, off)
        broker.script(DescribeGroupsRequest, classic("g"))
        assert (await admin.describe_groups(["g"]))["g"].state == "Stable"


@simulated
async def test_assignment_of_another_protocol_type_stays_bytes() -> None:
    async with admin_of() as (cluster, admin):
        member = DescribedGroupMember(member_id="m", client_id="c", client_host="/h", member_assignment=b"\xff")
        cluster.brokers[1].script(DescribeGroupsRequest, classic("g", members=[member]))
        (found,) = (await admin.describe_groups(["g"]))["g"].members
        assert (found.assignment, found.member_assignment) == ((), b"\xff")


@simulated
async def test_offsets_of_many_groups_take_one_request_to_each_coordinator() -> None:
    """KIP-709."""
    async with admin_of(nodes=2) as (cluster, admin):
        one, two = cluster.brokers[1], cluster.brokers[2]
        for broker in (one, two):
            broker.api_versions[OFFSET_FETCH] = (1, 9)
            broker.script(FindCoordinatorRequest, coordinated_by(a=one, b=two, c=one))
        answer = offsets_of(a=5, c=-1)
        answer.groups[1].error_code = 30
        one.script(OffsetFetchRequest, answer)
        two.script(OffsetFetchRequest, offsets_of(b=-1))
        found = await admin.list_offsets_of_groups(["a", "b", "c"], {"a": [ORDERS]})
        assert found["a"] == {ORDERS: OffsetAndMetadata(5)}
        assert found["b"] == {}
        assert isinstance(found.errors["c"], GroupAuthorizationFailedError)
        (request,) = one.seen(OffsetFetchRequest)
        asked = {group.group_id: group.topics for group in request.groups}
        assert asked["c"] is None and asked["a"][0].partition_indexes == [0]


@simulated
async def test_offsets_are_requested_group_by_group_from_an_old_broker() -> None:
    """KIP-709: brokers before 3.0."""
    async with admin_of() as (cluster, admin):
        broker = cluster.brokers[1]
        broker.api_versions[OFFSET_FETCH] = (1, 7)

        def answer(request: OffsetFetchRequest) -> OffsetFetchResponse:
            partition = OffsetFetchResponsePartition(partition_index=0, committed_offset=len(request.group_id))
            return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="orders", partitions=[partition])])

        broker.script(OffsetFetchRequest, answer, answer)
        found = await admin.list_offsets_of_groups(["a", "bcd"], require_stable=True)
        assert [found[group][ORDERS].offset for group in ("a", "bcd")] == [1, 3]
        broker.api_versions[OFFSET_FETCH] = (1, 6)
        broker.cut()
        with pytest.raises(UnsupportedVersionError):
            await admin.list_group_offsets("a", require_stable=True)


@simulated
async def test_every_member_is_removed_static_ones_by_instance_id() -> None:
    """KIP-345."""
    async with admin_of() as (cluster, admin):
        broker = cluster.brokers[1]
        broker.api_versions[LEAVE_GROUP] = (0, 5)
        members = [
            DescribedGroupMember(member_id="m1", client_id="c", client_host="/h"),
            DescribedGroupMember(member_id="m2", group_instance_id="static", client_id="c", client_host="/h"),
        ]
        broker.script(DescribeGroupsRequest, classic("g", members=members))
        left = [MemberResponse(member_id="m1"), MemberResponse(member_id="", group_instance_id="static")]
        broker.script(LeaveGroupRequest, LeaveGroupResponse(members=left))
        assert await admin.remove_all_group_members("g") == 2
        (request,) = broker.seen(LeaveGroupRequest)
        assert [(m.member_id, m.group_instance_id) for m in request.members] == [("m1", None), ("", "static")]


@simulated
async def test_failure_of_the_whole_request_is_one_descriptive_error() -> None:
    async with admin_of() as (cluster, admin):
        broker = cluster.brokers[1]
        broker.api_versions[OFFSET_DELETE] = (0, 0)
        broker.script(OffsetDeleteRequest, OffsetDeleteResponse(error_code=69))
        with pytest.raises(GroupIdNotFoundError, match="group 'g': no such group"):
            await admin.delete_group_offsets("g", [ORDERS, TopicPartition("orders", 1)])


@simulated
async def test_silent_coordinator_does_not_delay_the_timeout() -> None:
    async with admin_of(nodes=2) as (cluster, admin):
        one, two = cluster.brokers[1], cluster.brokers[2]
        for broker in (one, two):
            broker.script(FindCoordinatorRequest, *[coordinated_by(a=one, b=two)] * 20)
        one.script(DescribeGroupsRequest, classic("a"))
        two.script(DescribeGroupsRequest, *[SILENCE] * 20)
        started = trio.current_time()
        found = await admin.describe_groups(["a", "b"], timeout_ms=2000)
        assert trio.current_time() - started <= 2.1
        assert found["a"].state == "Stable"
        assert list(found.errors) == ["b"]
