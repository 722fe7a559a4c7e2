"""The collected data of groups, with scripted brokers of which some fail."""

from __future__ import annotations

import pytest

from tests.support.scripted_broker import SILENCE
from tests.support.simulated import simulated
from tests.unit.client.admin.test_admin import admin_of
from tests.unit.client.admin.test_groups import OFFSET_FETCH, classic, coordinated_by, offsets_of
from triokafka.cli.groups.describing import _member_table, _position_row
from triokafka.cli.groups.group_selection import listings
from triokafka.cli.groups.lag import GroupPosition, describe_all, positions_of, remarks
from triokafka.client.admin import GroupDescription, MemberDescription
from triokafka.errors import GroupIdNotFoundError
from triokafka.protocol.api.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from triokafka.protocol.api.find_coordinator import FindCoordinatorRequest
from triokafka.protocol.api.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from triokafka.protocol.api.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from triokafka.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchResponsePartitions
from triokafka.protocol.consumer_protocol import AssignedTopic, ConsumerProtocolAssignment
from triokafka.structs import Node, OffsetAndMetadata, TopicPartition


def assigned(**topics: list[int]) -> bytes:
    return ConsumerProtocolAssignment(
        assigned_partitions=[AssignedTopic(topic=name, partitions=p) for name, p in topics.items()]
    ).encode_versioned(3)


@simulated
async def test_end_of_a_log_without_a_leader_is_unknown_and_the_others_are_shown() -> None:
    """Partitions come by member, then those without a member."""
    async with admin_of(nodes=2) as (cluster, admin):
        one, two = cluster.brokers[1], cluster.brokers[2]
        for broker in (one, two):
            broker.api_versions[OFFSET_FETCH] = (1, 9)
            broker.script(FindCoordinatorRequest, coordinated_by(g=one))
        cluster.move("orders", 1, 2)
        member = DescribedGroupMember(
            member_id="m", client_id="c", client_host="/h", member_assignment=assigned(orders=[1])
        )
        one.script(DescribeGroupsRequest, classic("g", members=[member]))
        answer = offsets_of(g=4)
        answer.groups[0].topics[0].partitions.append(
            OffsetFetchResponsePartitions(partition_index=1, committed_offset=7)
        )
        one.script(OffsetFetchRequest, answer)
        end = ListOffsetsPartitionResponse(partition_index=0, offset=9)
        one.script(
            ListOffsetsRequest,
            ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="orders", partitions=[end])]),
        )
        two.script(ListOffsetsRequest, *[SILENCE] * 20)
        found = await describe_all(admin, ["g"])
        by_group, failed, endless = await positions_of(admin, found.groups, 2000)
        assert failed == {}
        assert list(endless) == [TopicPartition("orders", 1)]
        assert [_position_row("g", row, verbose=False) for row in by_group["g"]] == [
            ("g", "orders", 1, 7, "unknown", "unknown", "m", "/h", "c"),
            ("g", "orders", 0, 4, 9, 5, None, None, None),
        ]


@simulated
async def test_groups_that_are_dead_or_not_of_consumers_are_errors_and_the_others_are_found() -> None:
    """Brokers before 4.0 call a group that does not exist dead."""
    async with admin_of() as (cluster, admin):
        groups = [
            DescribedGroup(group_id="gone", group_state="Dead"),
            DescribedGroup(group_id="connect", group_state="Stable", protocol_type="connect"),
            DescribedGroup(group_id="simple", group_state="Empty"),
            DescribedGroup(group_id="lost", error_code=69),
        ]
        cluster.brokers[1].script(DescribeGroupsRequest, DescribeGroupsResponse(groups=groups))
        found = await describe_all(admin, ["gone", "connect", "simple", "lost"])
        assert list(found.groups) == ["simple"]
        assert isinstance(found.errors["gone"], GroupIdNotFoundError)
        assert isinstance(found.errors["lost"], GroupIdNotFoundError)
        assert "not a consumer group; its protocol type is 'connect'" in str(found.errors["connect"])


@simulated
async def test_group_whose_offsets_are_unavailable_does_not_hide_the_others() -> None:
    async with admin_of() as (cluster, admin):
        broker = cluster.brokers[1]
        broker.api_versions[OFFSET_FETCH] = (1, 9)
        broker.script(DescribeGroupsRequest, classic("a", "b"))
        answer = offsets_of(a=-1, b=-1)
        answer.groups[0].error_code = 30
        broker.script(OffsetFetchRequest, answer)
        by_group, failed, endless = await positions_of(admin, (await describe_all(admin, ["a", "b"])).groups, 1000)
        assert (by_group, list(failed), endless) == ({"b": []}, ["a"], {})


@simulated
async def test_failed_broker_is_reported_and_the_groups_of_the_others_are_listed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with admin_of(nodes=2) as (cluster, admin):
        group = ListedGroup(group_id="g", protocol_type="consumer")
        cluster.brokers[1].script(ListGroupsRequest, ListGroupsResponse(groups=[group]))
        cluster.brokers[2].script(ListGroupsRequest, ListGroupsResponse(error_code=31))
        found, status = await listings(admin)
        assert ([listing.group_id for listing in found], status) == (["g"], 1)
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("triokafka: The groups of broker 2 at 127.0.0.1:")
        assert "are missing: groups of broker 2: " in line


def group_in(state: str, name: str = "g") -> GroupDescription:
    return GroupDescription(name, state, "consumer", "range", (), Node(1, "h", 9092))


@pytest.mark.parametrize("state", ["PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"])
def test_rebalancing_group_is_reported(state: str) -> None:
    assert remarks([group_in(state)]) == [f"group g ({state}) is rebalancing: assignments are about to change."]


def test_empty_groups_are_reported_in_one_sentence() -> None:
    assert remarks([group_in("Empty")]) == ["group g has no members now."]
    assert remarks([group_in("Empty", f"g{number}") for number in range(8)]) == [
        "groups g0, g1, g2, g3, g4 and 3 more have no members now."
    ]


def test_nothing_is_reported_about_a_stable_group() -> None:
    assert remarks([group_in("Stable")]) == []


def test_lag_needs_both_ends() -> None:
    tp = TopicPartition("orders", 0)
    assert GroupPosition(tp, OffsetAndMetadata(4), 9, None).lag == 5
    assert GroupPosition(tp, None, 9, None).lag is None
    assert GroupPosition(tp, OffsetAndMetadata(4), None, None).lag is None
    row = _position_row("g", GroupPosition(tp, OffsetAndMetadata(4, leader_epoch=2), None, None), verbose=True)
    assert row == ("g", "orders", 0, 2, 4, "unknown", "unknown", None, None, None)


def test_member_on_the_classic_protocol_is_reported() -> None:
    """(KIP-1099) The column is there only while a group has such members."""

    def member_of(name: str, upgraded: bool | None) -> MemberDescription:
        return MemberDescription(
            name, None, "c", "/h", (), member_epoch=2, target_assignment=(TopicPartition("orders", 0),),
            upgraded=upgraded,
        )  # fmt: skip

    def rows_of(*members: MemberDescription) -> list[dict[str, object]]:
        group = GroupDescription("g", "Stable", "consumer", "uniform", members, Node(1, "h", 9092), "consumer", 3, 2)
        columns, rows = _member_table(group, verbose=True)
        return [dict(zip([column.title for column in columns], row, strict=True)) for row in rows]

    old, new = rows_of(member_of("a", upgraded=False), member_of("b", upgraded=True))
    assert (old["UPGRADED"], new["UPGRADED"]) == ("false", "true")
    assert (old["CURRENT-EPOCH"], old["CURRENT-ASSIGNMENT"], old["TARGET-EPOCH"], old["TARGET-ASSIGNMENT"]) == (
        2, None, 2, "orders:0",
    )  # fmt: skip
    assert "UPGRADED" not in rows_of(member_of("b", upgraded=True))[0]
    assert "UPGRADED" not in rows_of(member_of("b", upgraded=None))[0]
