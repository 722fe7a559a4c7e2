"""The service: one awaitable per API, from protocol message to protocol message."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from tests.support.bystander import Bystander
from tests.unit.coordinator.rig import TOPIC_IDS, Rig, ScriptedLog, StillWorld, Topics, subscription
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.group.config import GroupCoordinatorConfig
from triokafka.coordinator.group.group_coordinator import GroupCoordinator
from triokafka.errors import (
    ConfigurationError,
    CoordinatorLoadInProgressError,
    FencedInstanceIdError,
    GroupIdNotFoundError,
    InconsistentGroupProtocolError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    NonEmptyGroupError,
    NotCoordinatorError,
    NotLeaderForPartitionError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    UnsupportedAssignorError,
)
from triokafka.protocol.api.consumer_group_describe import ConsumerGroupDescribeRequest
from triokafka.protocol.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from triokafka.protocol.api.delete_groups import DeleteGroupsRequest
from triokafka.protocol.api.describe_groups import DescribeGroupsRequest
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
from triokafka.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic
from triokafka.protocol.api.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

NOT_COORDINATOR = NotCoordinatorError.code


class TrioWorld(StillWorld):
    """A world on Trio's clock, which the test advances."""

    def now(self) -> float:
        return trio.current_time()


class ServiceRig:
    """A coordinator of all 50 partitions on a scripted log, with a manual clock."""

    def __init__(self, world: StillWorld | None = None, **config: Any) -> None:
        self.world = world if world is not None else StillWorld()
        self.log = ScriptedLog()
        self.topics = Topics()
        self.topics.set("orders", 5_000)
        self.coordinator = GroupCoordinator(self.world, self.log, self.topics, GroupCoordinatorConfig(**config))
        for partition in range(50):
            self.coordinator.runtime.load(partition, 0)
        self.coordinator.runtime.load_all()

    def pass_time(self, seconds: float) -> None:
        end = self.world.clock + seconds
        while (due := self.coordinator.runtime.next_deadline()) <= end:
            self.world.clock = max(due, self.world.clock)
            self.coordinator.runtime.fire_due()
        self.world.clock = end

    async def join(self, member_id: str = "", *, group_id: str = "g", version: int = 3, **fields: Any) -> Any:
        request = JoinGroupRequest(
            group_id=group_id,
            member_id=member_id,
            **{"session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000, "protocol_type": "consumer", **fields},
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription("orders"))],
        )
        return await self.coordinator.membership.join_group(
            request, version=version, client_id="app", client_host="/10.0.0.1"
        )

    async def stable(self, group_id: str = "g") -> JoinGroupResponse:
        """Create a stable group of one member."""
        answers: list[JoinGroupResponse] = []

        async def member() -> None:
            answers.append(await self.join(group_id=group_id))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(member)
            await trio.testing.wait_all_tasks_blocked()
            self.pass_time(6)
        (joined,) = answers
        synced = await self.coordinator.membership.sync_group(
            SyncGroupRequest(
                group_id=group_id,
                member_id=joined.member_id,
                generation_id=joined.generation_id,
                assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")],
            )
        )
        assert (synced.error_code, synced.assignment) == (0, b"all")
        return joined


def commit_request(group_id: str = "g", **fields: Any) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group_id,
        topics=[
            OffsetCommitRequestTopic(
                name="orders", partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=7)]
            )
        ],
        **fields,
    )


async def test_requests_with_an_empty_group_id_are_refused_except_for_offsets() -> None:
    """Kafka still serves commits and fetches of the empty group id."""
    rig = ServiceRig()
    invalid = InvalidGroupIdError.code
    assert (await rig.join(group_id="")).error_code == invalid
    assert (await rig.coordinator.membership.sync_group(SyncGroupRequest())).error_code == invalid
    assert (await rig.coordinator.membership.heartbeat(HeartbeatRequest())).error_code == invalid
    assert (await rig.coordinator.membership.leave_group(LeaveGroupRequest(), version=2)).error_code == invalid
    assert (await rig.coordinator.offsets.delete_offsets(OffsetDeleteRequest())).error_code == invalid
    committed = await rig.coordinator.offsets.commit_offsets(commit_request(""), version=8)
    assert committed.topics[0].partitions[0].error_code == 0
    fetched = await rig.coordinator.offsets.fetch_offsets(OffsetFetchRequest(topics=None), version=7)
    assert fetched.topics[0].partitions[0].committed_offset == 7


@pytest.mark.parametrize("session_ms", [-1, 0, 5_999, 1_800_001, 2_147_483_647])
async def test_session_timeout_outside_the_limits_is_refused(session_ms: int) -> None:
    answer = await ServiceRig().join("someone", session_timeout_ms=session_ms)
    assert (answer.error_code, answer.member_id) == (InvalidSessionTimeoutError.code, "someone")


async def test_version_0_uses_the_session_timeout_as_rebalance_timeout() -> None:
    rig = ServiceRig()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: rig.join(version=0, session_timeout_ms=7_000, rebalance_timeout_ms=-1))
        await trio.testing.wait_all_tasks_blocked()
        shard = rig.coordinator.runtime.read(rig.coordinator.runtime.partition_for("g"), lambda shard: shard)
        assert shard.groups["g"].rebalance_timeout_ms == 7_000
        rig.pass_time(7)


async def test_broker_that_does_not_coordinate_the_group_refuses_all_requests() -> None:
    rig = ServiceRig()
    rig.coordinator.runtime.unload(rig.coordinator.runtime.partition_for("g"))
    coordinator = rig.coordinator
    assert (await rig.join()).error_code == NOT_COORDINATOR
    assert (await coordinator.membership.sync_group(SyncGroupRequest(group_id="g"))).error_code == NOT_COORDINATOR
    assert (await coordinator.membership.heartbeat(HeartbeatRequest(group_id="g"))).error_code == NOT_COORDINATOR
    assert (
        await coordinator.membership.leave_group(LeaveGroupRequest(group_id="g"), version=3)
    ).error_code == NOT_COORDINATOR
    committed = await coordinator.offsets.commit_offsets(commit_request(), version=8)
    assert committed.topics[0].partitions[0].error_code == NOT_COORDINATOR
    fetched = await coordinator.offsets.fetch_offsets(OffsetFetchRequest(group_id="g", topics=None), version=7)
    assert fetched.error_code == NOT_COORDINATOR
    described = await coordinator.admin.describe_groups(DescribeGroupsRequest(groups=["g"]), version=6)
    assert described.groups[0].error_code == NOT_COORDINATOR
    deleted = await coordinator.admin.delete_groups(DeleteGroupsRequest(groups_names=["g"]))
    assert deleted.results[0].error_code == NOT_COORDINATOR
    assert (await coordinator.offsets.delete_offsets(OffsetDeleteRequest(group_id="g"))).error_code == NOT_COORDINATOR
    assert (await coordinator.admin.list_groups(ListGroupsRequest())).error_code == 0


async def test_loading_shard_accepts_heartbeats_and_refuses_syncs_with_rebalance_in_progress() -> None:
    """Members need not rejoin after a failover."""
    rig = ServiceRig()
    rig.coordinator.runtime.load(rig.coordinator.runtime.partition_for("g"), 1)
    coordinator, loading = rig.coordinator, CoordinatorLoadInProgressError.code
    assert (await coordinator.membership.heartbeat(HeartbeatRequest(group_id="g", member_id="m"))).error_code == 0
    synced = await coordinator.membership.sync_group(SyncGroupRequest(group_id="g", member_id="m"))
    assert synced.error_code == RebalanceInProgressError.code
    assert (await rig.join()).error_code == loading
    fetched = await coordinator.offsets.fetch_offsets(OffsetFetchRequest(group_id="g", topics=None), version=7)
    assert fetched.error_code == loading
    listed = await coordinator.admin.list_groups(ListGroupsRequest())
    assert listed.error_code == loading


async def test_list_is_partial_while_a_shard_loads() -> None:
    rig = ServiceRig()
    await rig.coordinator.offsets.commit_offsets(commit_request("g"), version=8)
    await rig.coordinator.offsets.commit_offsets(commit_request("other"), version=8)
    rig.coordinator.runtime.load(rig.coordinator.runtime.partition_for("g"), 1)
    listed = await rig.coordinator.admin.list_groups(ListGroupsRequest())
    assert [group.group_id for group in listed.groups] == ["other"]
    assert listed.error_code == CoordinatorLoadInProgressError.code


# --- cancellation ---


async def test_disconnected_joining_client_stays_a_member_until_its_session_expires() -> None:
    """Its answer is discarded; the rebalance and the other members are unaffected."""
    rig = ServiceRig()
    first = await rig.stable()
    rejoined: list[JoinGroupResponse] = []
    gone = trio.CancelScope()

    async def newcomer() -> None:
        with gone:
            await rig.join()

    async def member() -> None:
        rejoined.append(await rig.join(first.member_id))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(newcomer)
        await trio.testing.wait_all_tasks_blocked()
        gone.cancel()
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(member)
    assert rejoined[0].generation_id == first.generation_id + 1
    assert len(rejoined[0].members) == 2
    group = rig.coordinator.runtime.read(rig.coordinator.runtime.partition_for("g"), lambda s: s.groups["g"])
    for _ in range(3):
        beat = HeartbeatRequest(group_id="g", member_id=first.member_id, generation_id=rejoined[0].generation_id)
        await rig.coordinator.membership.heartbeat(beat)
        rig.pass_time(5)
    assert list(group.members) == [first.member_id]


async def test_disconnected_syncing_client_gets_its_assignment_later() -> None:
    rig = ServiceRig()
    answers: list[JoinGroupResponse] = []

    async def member() -> None:
        answers.append(await rig.join())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(member)
        nursery.start_soon(member)
        await trio.testing.wait_all_tasks_blocked()
        rig.pass_time(6)
    leader = next(answer for answer in answers if answer.members)
    follower = next(answer for answer in answers if not answer.members)
    ask = SyncGroupRequest(group_id="g", member_id=follower.member_id, generation_id=1)
    with trio.CancelScope() as gone:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(rig.coordinator.membership.sync_group, ask)
            await trio.testing.wait_all_tasks_blocked()
            gone.cancel()
    assignments = [SyncGroupRequestAssignment(member_id=follower.member_id, assignment=b"F")]
    await rig.coordinator.membership.sync_group(
        SyncGroupRequest(group_id="g", member_id=leader.member_id, generation_id=1, assignments=assignments)
    )
    assert (await rig.coordinator.membership.sync_group(ask)).assignment == b"F"


async def test_commit_of_a_disconnected_client_is_committed() -> None:
    rig = ServiceRig()
    rig.log.commits_at_once = False
    with trio.CancelScope() as gone:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: rig.coordinator.offsets.commit_offsets(commit_request(), version=8))
            await trio.testing.wait_all_tasks_blocked()
            gone.cancel()
    partition = rig.coordinator.runtime.partition_for("g")
    rig.log.high_watermarks[partition] = 1
    rig.coordinator.runtime.high_watermark_changed(partition, 1)
    fetched = await rig.coordinator.offsets.fetch_offsets(OffsetFetchRequest(group_id="g", topics=None), version=7)
    assert fetched.topics[0].partitions[0].committed_offset == 7


# --- the task ---


async def test_task_fires_deadlines_as_the_clock_passes_them(autojump_clock: trio.testing.MockClock) -> None:
    """The task sleeps until the next deadline and wakes up for earlier ones that requests set."""

    rig = ServiceRig(world=TrioWorld())
    coordinator = rig.coordinator
    async with trio.open_nursery() as nursery:
        nursery.start_soon(coordinator.run)
        await trio.testing.wait_all_tasks_blocked()
        start = trio.current_time()
        joined = await rig.join()
        assert (joined.generation_id, trio.current_time() - start) == (1, 3)
        await trio.sleep(60)
        beat = HeartbeatRequest(group_id="g", member_id=joined.member_id, generation_id=1)
        assert (await coordinator.membership.heartbeat(beat)).error_code == UnknownMemberIdError.code
        nursery.cancel_scope.cancel()


async def test_end_of_the_task_fails_waiting_requests(autojump_clock: trio.testing.MockClock) -> None:
    rig = ServiceRig(world=TrioWorld())
    answers: list[JoinGroupResponse] = []

    async def member() -> None:
        answers.append(await rig.join())

    async with trio.open_nursery() as outer, trio.open_nursery() as nursery:
        nursery.start_soon(rig.coordinator.run)
        outer.start_soon(member)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert answers[0].error_code == NOT_COORDINATOR


async def test_defect_in_one_group_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    rig = ServiceRig()
    await rig.stable()
    group = rig.coordinator.runtime.read(rig.coordinator.runtime.partition_for("g"), lambda s: s.groups["g"])
    group.members[next(iter(group.members))].protocols = None  # type: ignore[assignment]
    rig.pass_time(10)
    assert "a coordinator step failed" in caplog.text
    await rig.stable("other")


# --- leaving, versions ---


async def test_leave_before_version_3_puts_the_error_into_the_response() -> None:
    rig = ServiceRig()
    joined = await rig.stable()
    leave = LeaveGroupRequest(group_id="g", member_id=joined.member_id)
    assert (await rig.coordinator.membership.leave_group(leave, version=2)).error_code == 0
    again = await rig.coordinator.membership.leave_group(leave, version=2)
    assert (again.error_code, again.members) == (UnknownMemberIdError.code, [])


async def test_leave_since_version_3_has_an_error_per_member() -> None:
    rig = ServiceRig()
    joined = await rig.stable()
    members = [MemberIdentity(member_id="x"), MemberIdentity(member_id=joined.member_id)]
    answer = await rig.coordinator.membership.leave_group(LeaveGroupRequest(group_id="g", members=members), version=5)
    assert answer.error_code == 0
    assert [member.error_code for member in answer.members] == [UnknownMemberIdError.code, 0]


# --- tools ---


@pytest.mark.parametrize(("protocol_type", "protocol_name"), [(None, None), ("consumer", None), (None, "range")])
async def test_sync_since_version_5_requires_its_protocol(protocol_type: str | None, protocol_name: str | None) -> None:
    """KIP-559."""
    rig = ServiceRig()
    joined = await rig.stable()
    request = SyncGroupRequest(
        group_id="g",
        member_id=joined.member_id,
        generation_id=joined.generation_id,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
    )
    answer = await rig.coordinator.membership.sync_group(request, version=5)
    assert answer.error_code == InconsistentGroupProtocolError.code
    assert (await rig.coordinator.membership.sync_group(request, version=4)).error_code == 0


async def test_error_messages_that_quote_the_longest_names_are_encodable() -> None:
    coordinator, name = ServiceRig().coordinator, "\x01" * 32_767
    refused = await coordinator.membership.consumer_group_heartbeat(
        ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            rebalance_timeout_ms=1_000,
            subscribed_topic_names=[],
            topic_partitions=[],
            server_assignor=name,
        ),
        version=1,
    )
    assert refused.error_code == UnsupportedAssignorError.code
    assert b"unsupported assignor" in refused.encode(1)
    missing = await coordinator.admin.describe_groups(DescribeGroupsRequest(groups=[name]), version=6)
    assert b"not found" in missing.encode(6)
    missing_too = await coordinator.admin.consumer_group_describe(ConsumerGroupDescribeRequest(group_ids=[name]))
    assert missing_too.encode(1)


async def test_describe_shows_members_with_their_assignments() -> None:
    rig = ServiceRig()
    joined = await rig.stable()
    request = DescribeGroupsRequest(groups=["g"])
    (group,) = (await rig.coordinator.admin.describe_groups(request, version=6)).groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    (member,) = group.members
    assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, "app", "/10.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (subscription("orders"), b"all")


async def test_describe_shows_no_assignment_of_a_group_that_is_not_stable() -> None:
    rig = ServiceRig()
    joined = await rig.stable()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: rig.join())
        await trio.testing.wait_all_tasks_blocked()
        (group,) = (await rig.coordinator.admin.describe_groups(DescribeGroupsRequest(groups=["g"]), version=5)).groups
        assert (group.group_state, group.protocol_data, len(group.members)) == ("PreparingRebalance", "", 2)
        assert {member.member_assignment for member in group.members} == {b""}
        rig.coordinator.runtime.unload(rig.coordinator.runtime.partition_for("g"))
    assert joined.generation_id == 1


@pytest.mark.parametrize(("version", "code"), [(5, 0), (6, GroupIdNotFoundError.code)])
async def test_unknown_group_is_described_as_dead(version: int, code: int) -> None:
    """Since version 6 the response has an error (KIP-1043)."""
    request = DescribeGroupsRequest(groups=["nobody"])
    (group,) = (await ServiceRig().coordinator.admin.describe_groups(request, version=version)).groups
    assert (group.group_state, group.error_code) == ("Dead", code)
    assert (group.error_message is not None) == (version == 6)


class _Steps(trio.abc.Instrument):
    """Counts the steps of all tasks."""

    def __init__(self) -> None:
        self.count = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        """Count a step."""
        self.count += 1


async def test_list_yields_among_the_groups_of_one_partition() -> None:
    """With a partition of 14,000 groups, other clients waited for more than a second."""
    rig = ServiceRig()
    names = [f"group-{number}" for number in range(20_000)]
    wanted = rig.coordinator.runtime.partition_for(names[0])
    names = [name for name in names if rig.coordinator.runtime.partition_for(name) == wanted]
    for name in names:
        await rig.coordinator.offsets.commit_offsets(commit_request(name), version=8)
    steps = _Steps()
    trio.lowlevel.add_instrument(steps)
    listed = await rig.coordinator.admin.list_groups(ListGroupsRequest())
    trio.lowlevel.remove_instrument(steps)
    assert [group.group_id for group in listed.groups] == sorted(names)
    assert len(names) > 300
    assert steps.count >= len(names) // 100


async def test_list_filters_by_state_and_type_ignoring_case() -> None:
    """KIP-518, KIP-848."""
    rig = ServiceRig()
    await rig.stable("steady")
    await rig.coordinator.offsets.commit_offsets(commit_request("simple"), version=8)

    async def listed(**filters: list[str]) -> dict[str, tuple[str, str, str]]:
        answer = await rig.coordinator.admin.list_groups(ListGroupsRequest(**filters))
        return {g.group_id: (g.protocol_type, g.group_state, g.group_type) for g in answer.groups}

    everything = {"steady": ("consumer", "Stable", "classic"), "simple": ("", "Empty", "classic")}
    assert await listed() == everything
    assert await listed(types_filter=["Classic"]) == everything
    assert await listed(types_filter=["consumer"]) == {}
    assert list(await listed(states_filter=["STABLE", "dead"])) == ["steady"]
    assert list(await listed(states_filter=["nonsense"])) == []


async def test_delete_removes_empty_groups_only() -> None:
    """Each group has its own answer; a repeated name is deleted once."""
    rig = ServiceRig()
    await rig.stable("busy")
    await rig.coordinator.offsets.commit_offsets(commit_request("idle"), version=8)
    request = DeleteGroupsRequest(groups_names=["idle", "busy", "nobody", "idle"])
    results = {r.group_id: r.error_code for r in (await rig.coordinator.admin.delete_groups(request)).results}
    assert results == {"idle": 0, "busy": NonEmptyGroupError.code, "nobody": GroupIdNotFoundError.code}
    fetched = await rig.coordinator.offsets.fetch_offsets(OffsetFetchRequest(group_id="idle", topics=None), version=7)
    assert fetched.topics == []


async def test_groups_of_one_shard_are_deleted_with_one_append() -> None:
    """Refused groups among them do not affect the others."""
    rig = ServiceRig()
    partition = rig.coordinator.runtime.partition_for("idle-0")
    names = [name for i in range(2_000) if rig.coordinator.runtime.partition_for(name := f"idle-{i}") == partition][:10]
    for name in names:
        await rig.coordinator.offsets.commit_offsets(commit_request(name), version=8)
    other = next(name for i in range(99) if rig.coordinator.runtime.partition_for(name := f"x{i}") != partition)
    await rig.coordinator.offsets.commit_offsets(commit_request(other), version=8)
    before = rig.log.appends
    missing = next(
        name for i in range(9_999) if rig.coordinator.runtime.partition_for(name := f"nobody{i}") == partition
    )
    request = DeleteGroupsRequest(groups_names=[*names[:5], missing, *names[5:], other])
    results = (await rig.coordinator.admin.delete_groups(request)).results
    assert [result.group_id for result in results] == request.groups_names
    assert {r.group_id: r.error_code for r in results if r.error_code} == {missing: GroupIdNotFoundError.code}
    assert rig.log.appends - before == 2


def commit_of_many(group_id: str, partitions: int) -> OffsetCommitRequest:
    many = [OffsetCommitRequestPartition(partition_index=i, committed_offset=7) for i in range(partitions)]
    return OffsetCommitRequest(group_id=group_id, topics=[OffsetCommitRequestTopic(name="orders", partitions=many)])


async def test_groups_with_many_offsets_are_deleted_in_bounded_appends() -> None:
    """A batch must stay below the log's maximum batch size."""
    rig = ServiceRig()
    partition = rig.coordinator.runtime.partition_for("many")
    alike = [n for i in range(9_999) if rig.coordinator.runtime.partition_for(n := f"alike{i}") == partition][:2]
    for name, partitions in (("many", 2_500), (alike[0], 700), (alike[1], 1)):
        await rig.coordinator.offsets.commit_offsets(commit_of_many(name, partitions), version=8)
    before = rig.log.appends
    results = (await rig.coordinator.admin.delete_groups(DeleteGroupsRequest(groups_names=["many", *alike]))).results
    assert [result.error_code for result in results] == [0, 0, 0]
    assert rig.log.appends - before == 4
    assert (await rig.coordinator.admin.list_groups(ListGroupsRequest())).groups == []


async def test_large_commit_is_one_append_and_yields_before_it() -> None:
    rig = ServiceRig()
    bystander = Bystander()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bystander.run)
        answer = await rig.coordinator.offsets.commit_offsets(commit_of_many("many", 3_000), version=8)
        nursery.cancel_scope.cancel()
    assert bystander.turns >= 10
    assert [one.error_code for one in answer.topics[0].partitions] == [0] * 3_000
    assert rig.log.appends == 1
    fetched = await rig.coordinator.offsets.fetch_offsets(OffsetFetchRequest(group_id="many", topics=None), version=7)
    assert [one.committed_offset for one in fetched.topics[0].partitions] == [7] * 3_000


async def commit_meanwhile(rig: ServiceRig, request: OffsetCommitRequest, change: Callable[[], object]) -> list[int]:
    """Commit many offsets, run ``change`` while they are prepared, and return the error codes."""
    codes: list[int] = []

    async def commit() -> None:
        answer = await rig.coordinator.offsets.commit_offsets(request, version=8)
        codes.extend(one.error_code for topic in answer.topics for one in topic.partitions)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(commit)
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        assert not rig.log.appends
        change()
    return codes


async def test_large_commit_skips_a_topic_deleted_meanwhile() -> None:
    """The removal of the topic's offsets has already run when the commit is appended."""
    rig = ServiceRig()
    request = commit_of_many("many", 3_000)
    request.topics.append(
        OffsetCommitRequestTopic(
            name="bills", partitions=[OffsetCommitRequestPartition(partition_index=1, committed_offset=8)]
        )
    )
    codes = await commit_meanwhile(rig, request, partial(rig.topics.delete, "orders"))
    assert codes == [UnknownTopicOrPartitionError.code] * 3_000 + [0]
    fetched = await rig.coordinator.offsets.fetch_offsets(OffsetFetchRequest(group_id="many", topics=None), version=7)
    assert [(topic.name, len(topic.partitions)) for topic in fetched.topics] == [("bills", 1)]


async def test_large_commit_fails_when_its_member_is_removed_meanwhile() -> None:
    rig = ServiceRig()
    joined = await rig.stable("many")
    rig.log.appends = 0
    request = commit_of_many("many", 3_000)
    request.member_id, request.generation_id_or_member_epoch = joined.member_id, joined.generation_id
    codes = await commit_meanwhile(rig, request, partial(rig.coordinator.expire_member, "many", joined.member_id))
    assert codes == [UnknownMemberIdError.code] * 3_000
    fetched = await rig.coordinator.offsets.fetch_offsets(OffsetFetchRequest(group_id="many", topics=None), version=7)
    assert fetched.topics == []


async def test_large_commit_cancelled_before_its_append_is_not_stored() -> None:
    rig = ServiceRig()
    with trio.CancelScope() as gone:
        await commit_meanwhile(rig, commit_of_many("many", 3_000), gone.cancel)
    assert gone.cancelled_caught
    assert not rig.log.appends


async def test_deleting_a_group_with_many_offsets_yields_to_other_tasks() -> None:
    rig = ServiceRig()
    await rig.coordinator.offsets.commit_offsets(commit_of_many("many", 4_500), version=8)
    bystander = Bystander()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bystander.run)
        await rig.coordinator.admin.delete_groups(DeleteGroupsRequest(groups_names=["many"]))
        nursery.cancel_scope.cancel()
    assert bystander.turns >= 3, "there are five appends"


async def test_join_during_a_group_deletion_keeps_the_group() -> None:
    rig = ServiceRig(group_initial_rebalance_delay_ms=0)
    await rig.coordinator.offsets.commit_offsets(commit_of_many("many", 4_500), version=8)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(rig.join, group_id="many"))
        (result,) = (await rig.coordinator.admin.delete_groups(DeleteGroupsRequest(groups_names=["many"]))).results
        nursery.cancel_scope.cancel()
    assert result.error_code == NonEmptyGroupError.code


async def test_partly_failed_deletion_fails_for_the_remaining_groups() -> None:
    rig = ServiceRig()
    partition = rig.coordinator.runtime.partition_for("many")
    alike = next(n for i in range(9_999) if rig.coordinator.runtime.partition_for(n := f"alike{i}") == partition)
    await rig.coordinator.offsets.commit_offsets(commit_of_many("many", 2_500), version=8)
    await rig.coordinator.offsets.commit_offsets(commit_request(alike), version=8)
    rig.log.fails_with = NotLeaderForPartitionError("moved")
    results = (await rig.coordinator.admin.delete_groups(DeleteGroupsRequest(groups_names=["many", alike]))).results
    assert [result.error_code for result in results] == [NOT_COORDINATOR, NOT_COORDINATOR]
    rig.log.fails_with = None
    results = (await rig.coordinator.admin.delete_groups(DeleteGroupsRequest(groups_names=["many", alike]))).results
    assert [result.error_code for result in results] == [0, 0]


async def test_groups_deleted_before_the_shard_moved_are_reported_as_deleted() -> None:
    """Including groups whose answers are still queued."""
    rig = ServiceRig()
    partition = rig.coordinator.runtime.partition_for("many")
    alike = [n for i in range(9_999) if rig.coordinator.runtime.partition_for(n := f"alike{i}") == partition][:80]
    for name in alike:
        await rig.coordinator.offsets.commit_offsets(commit_request(name), version=8)
    await rig.coordinator.offsets.commit_offsets(commit_of_many("many", 2_500), version=8)
    codes: list[int] = []

    async def delete() -> None:
        answer = await rig.coordinator.admin.delete_groups(DeleteGroupsRequest(groups_names=[*alike, "many"]))
        codes.extend(result.error_code for result in answer.results)

    async with trio.open_nursery() as nursery:
        before = rig.log.appends
        nursery.start_soon(delete)
        while rig.log.appends == before:
            await trio.lowlevel.checkpoint()
        rig.coordinator.runtime.unload(partition)
        await trio.testing.wait_all_tasks_blocked()
        rig.coordinator.runtime.stop()
    assert codes == [0] * 80 + [NOT_COORDINATOR]


async def test_deletion_fails_for_groups_whose_append_fails() -> None:
    rig = ServiceRig()
    await rig.coordinator.offsets.commit_offsets(commit_request("idle"), version=8)
    rig.log.fails_with = NotLeaderForPartitionError("moved")
    (result,) = (await rig.coordinator.admin.delete_groups(DeleteGroupsRequest(groups_names=["idle"]))).results
    assert result.error_code == NOT_COORDINATOR


async def test_fetch_returns_several_groups() -> None:
    """KIP-709: version 8 and later."""
    rig = ServiceRig()
    await rig.coordinator.offsets.commit_offsets(commit_request("a"), version=8)
    rig.coordinator.runtime.unload(rig.coordinator.runtime.partition_for("b"))
    groups = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in ("a", "b", "c")]
    answer = await rig.coordinator.offsets.fetch_offsets(OffsetFetchRequest(groups=groups), version=8)
    assert [(g.group_id, g.error_code, len(g.topics)) for g in answer.groups] == [
        ("a", 0, 1),
        ("b", NOT_COORDINATOR, 0),
        ("c", 0, 0),
    ]


async def test_offset_delete_removes_offsets_by_topic_name() -> None:
    rig = ServiceRig()
    await rig.coordinator.offsets.commit_offsets(commit_request(), version=8)
    topics = [OffsetDeleteRequestTopic(name="orders", partitions=[OffsetDeleteRequestPartition(partition_index=0)])]
    answer = await rig.coordinator.offsets.delete_offsets(OffsetDeleteRequest(group_id="g", topics=topics))
    assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (0, 0)
    again = await rig.coordinator.offsets.delete_offsets(OffsetDeleteRequest(group_id="g", topics=topics))
    assert again.error_code == GroupIdNotFoundError.code


async def test_deleted_topic_is_removed_from_all_shards() -> None:
    rig = ServiceRig()
    for name in ("a", "b"):
        await rig.coordinator.offsets.commit_offsets(commit_request(name), version=8)
    rig.coordinator.runtime.topics_deleted({TOPIC_IDS["orders"]: "orders"})
    assert (await rig.coordinator.admin.list_groups(ListGroupsRequest())).groups == []


async def test_commit_on_unknown_topics_only_needs_no_coordinator() -> None:
    rig = ServiceRig()
    rig.coordinator.runtime.unload(rig.coordinator.runtime.partition_for("g"))
    request = commit_request()
    request.topics[0].name = "nowhere"
    answer = await rig.coordinator.offsets.commit_offsets(request, version=8)
    assert answer.topics[0].partitions[0].error_code == 3


async def test_fenced_commit_answers_every_partition() -> None:
    rig = ServiceRig()
    answers: list[JoinGroupResponse] = []

    async def member() -> None:
        answers.append(await rig.join(group_instance_id="i", version=5))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(member)
        await trio.testing.wait_all_tasks_blocked()
        rig.pass_time(6)
    request = commit_request(generation_id_or_member_epoch=1, member_id="old", group_instance_id="i")
    answer = await rig.coordinator.offsets.commit_offsets(request, version=8)
    assert answer.topics[0].partitions[0].error_code == FencedInstanceIdError.code


async def test_response_by_topic_id_names_the_id() -> None:
    rig = ServiceRig()
    request = commit_request()
    request.topics[0].topic_id = TOPIC_IDS["orders"]
    answer = await rig.coordinator.offsets.commit_offsets(request, version=10)
    assert answer.topics[0].topic_id == TOPIC_IDS["orders"]
    old = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="orders", partition_indexes=[0])])
    fetched = await rig.coordinator.offsets.fetch_offsets(old, version=1)
    assert fetched.topics[0].partitions[0].committed_offset == 7


# --- configuration ---


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"group_min_session_timeout_ms": 10, "group_max_session_timeout_ms": 9}, "larger than"),
        ({"group_max_size": 0}, "group_max_size must be at least 1"),
        ({"offsets_topic_num_partitions": 0}, "offsets_topic_num_partitions must be at least 1"),
        ({"offset_metadata_max_bytes": -1}, "must not be negative"),
        ({"offset_commit_timeout_ms": 0}, "at least 1 millisecond"),
    ],
)
def test_contradictory_configuration_is_refused(values: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        GroupCoordinatorConfig(**values)  # type: ignore[arg-type]


def test_records_equal_kafkas_bytes() -> None:
    """The key starts with two bytes for the kind, the value with two bytes for the version."""
    rig = Rig()
    rig.commit(offsets={("orders", 2): 7}, metadata="m", leader_epoch=3, version=4, retention_ms=1_000)
    key, value = rig.log.records[3][0]
    assert key == struct.pack(">hh1sh6si", 1, 1, b"g", 6, b"orders", 2)
    now = rig.world.wall_ms()
    assert value == struct.pack(">hqh1sqq", 1, 7, 1, b"m", now, now + 1_000)
    rig.commit(offsets={("orders", 2): 7}, metadata="m", leader_epoch=3)
    value = rig.log.records[3][1].value
    fixed = struct.pack(">hqi", 4, 7, 3) + b"\x02m" + struct.pack(">q", now)
    assert value == fixed + b"\x01\x00\x10" + TOPIC_IDS["orders"].bytes
    members, _ = rig.stable_group(1, group_id="h")
    key, value = rig.log.records[3][-1]
    assert key == struct.pack(">hh1s", 2, 1, b"h")
    name = members[0].encode()
    assert value is not None and value.startswith(
        struct.pack(">hh8sih5sh", 3, 8, b"consumer", 1, 5, b"range", len(name)) + name
    )
    assert rig.state("h") is GroupState.STABLE
