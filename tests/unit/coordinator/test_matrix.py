"""Every request in every state of a classic group, as a table.

Compared with Kafka 0.10: groups start and end Empty; heartbeats succeed in CompletingRebalance and extend the session
in PreparingRebalance; new members get an id first; members can be static or pending. Requests to a broker that does not
serve the group's shard have a table of their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from tests.unit.coordinator.rig import (
    PARTITION,
    RANGE,
    ROUND_ROBIN,
    Rig,
    ScriptedLog,
    StillWorld,
    Topics,
    code,
    subscription,
)
from triokafka.coordinator.classic_group.classic_group import ClassicGroup
from triokafka.coordinator.classic_group.state import GroupState
from triokafka.coordinator.group import group_administration as admin
from triokafka.coordinator.group.config import GroupCoordinatorConfig
from triokafka.coordinator.group.group_coordinator import GroupCoordinator
from triokafka.coordinator.runtime.coordinator_log import CoordinatorRecord
from triokafka.coordinator.runtime.reply import Reply
from triokafka.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    MemberIdRequiredError,
    NonEmptyGroupError,
    NotCoordinatorError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from triokafka.protocol.api.delete_groups import DeleteGroupsRequest
from triokafka.protocol.api.describe_groups import DescribeGroupsRequest
from triokafka.protocol.api.heartbeat import HeartbeatRequest
from triokafka.protocol.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
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
from triokafka.protocol.api.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from triokafka.protocol.api.sync_group import SyncGroupRequest

EMPTY = GroupState.EMPTY
PREPARING = GroupState.PREPARING_REBALANCE
COMPLETING = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
DEAD = GroupState.DEAD

OK = 0
PARKED = None
UNKNOWN = UnknownMemberIdError.code
REBALANCE = RebalanceInProgressError.code
ILLEGAL = IllegalGenerationError.code
FENCED = FencedInstanceIdError.code
ID_REQUIRED = MemberIdRequiredError.code
NON_EMPTY = NonEmptyGroupError.code
SUBSCRIBED = GroupSubscribedToTopicError.code
NO_GROUP = GroupIdNotFoundError.code

CHANGED = ("range", subscription("orders", "bills"))


class GroupInState:
    """A group in a given state, with a leader and a follower (whose ids are stale when the group has no members).

    ``static``: the members are instances i-1 and i-2. ``promised``: the group also has one pending member.
    """

    def __init__(self, state: GroupState, *, static: bool = False, promised: bool = False) -> None:
        self.rig = Rig()
        instances = ("i-1", "i-2") if static else (None, None)
        joins = [self.rig.join(instance_id=instance) for instance in instances]
        self.rig.pass_time(9)
        self.leader, self.follower = (join.value.member_id for join in joins)
        self.generation = joins[0].value.generation_id
        if state is not COMPLETING:
            assert code(self.sync(self.leader, {self.leader: b"l", self.follower: b"f"})) == OK
            assert code(self.sync(self.follower)) == OK
        if state is PREPARING:
            assert code(self.rig.join()) is PARKED
        elif state is EMPTY:
            assert code(self.rig.leave(self.leader, self.follower)) == OK
        self.promised = self.rig.join(version=4).value.member_id if promised else ""
        if state is DEAD:
            self.rig.group().transition_to(DEAD, 0)
        self.group: ClassicGroup = self.rig.group()
        assert self.group.state is state

    def sync(self, member_id: str, assignments: dict[str, bytes] | None = None) -> Reply[Any]:
        return self.rig.sync(member_id, self.generation, assignments)


Ask = Callable[[GroupInState], Reply[Any]]

REQUESTS: dict[str, Ask] = {
    "join new": lambda s: s.rig.join(),
    "join new, version 4": lambda s: s.rig.join(version=4),
    "join of a stranger": lambda s: s.rig.join("stranger"),
    "join leader, same": lambda s: s.rig.join(s.leader),
    "join follower, same": lambda s: s.rig.join(s.follower),
    "join follower, changed": lambda s: s.rig.join(s.follower, protocols=[CHANGED]),
    "sync follower": lambda s: s.rig.sync(s.follower, s.generation),
    "sync leader": lambda s: s.rig.sync(s.leader, s.generation, {s.leader: b"l", s.follower: b"f"}),
    "heartbeat": lambda s: s.rig.heartbeat(s.follower, s.generation),
    "leave": lambda s: s.rig.leave(s.follower),
    "leave of a stranger": lambda s: s.rig.leave("stranger"),
    "commit": lambda s: s.rig.commit(s.follower, s.generation),
    "commit of a simple consumer": lambda s: s.rig.commit(),
}

# Request -> state -> (error code of the answer, or parked; state of the group after it)
MATRIX: dict[str, dict[GroupState, tuple[int | None, GroupState]]] = {
    "join new": {
        EMPTY: (PARKED, PREPARING),
        PREPARING: (PARKED, PREPARING),
        COMPLETING: (PARKED, PREPARING),
        STABLE: (PARKED, PREPARING),
        DEAD: (UNKNOWN, DEAD),
    },
    "join new, version 4": {
        EMPTY: (ID_REQUIRED, EMPTY),
        PREPARING: (ID_REQUIRED, PREPARING),
        COMPLETING: (ID_REQUIRED, COMPLETING),
        STABLE: (ID_REQUIRED, STABLE),
        DEAD: (UNKNOWN, DEAD),
    },
    "join of a stranger": {state: (UNKNOWN, state) for state in GroupState},
    "leave of a stranger": {state: (UNKNOWN, state) for state in GroupState},
    "join leader, same": {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (PARKED, PREPARING),
        COMPLETING: (OK, COMPLETING),
        STABLE: (PARKED, PREPARING),
        DEAD: (UNKNOWN, DEAD),
    },
    "join follower, same": {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (PARKED, PREPARING),
        COMPLETING: (OK, COMPLETING),
        STABLE: (OK, STABLE),
        DEAD: (UNKNOWN, DEAD),
    },
    "join follower, changed": {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (PARKED, PREPARING),
        COMPLETING: (PARKED, PREPARING),
        STABLE: (PARKED, PREPARING),
        DEAD: (UNKNOWN, DEAD),
    },
    "sync follower": {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (REBALANCE, PREPARING),
        COMPLETING: (PARKED, COMPLETING),
        STABLE: (OK, STABLE),
        DEAD: (UNKNOWN, DEAD),
    },
    "sync leader": {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (REBALANCE, PREPARING),
        COMPLETING: (OK, STABLE),
        STABLE: (OK, STABLE),
        DEAD: (UNKNOWN, DEAD),
    },
    "heartbeat": {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (REBALANCE, PREPARING),
        COMPLETING: (OK, COMPLETING),
        STABLE: (OK, STABLE),
        DEAD: (UNKNOWN, DEAD),
    },
    "leave": {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (OK, PREPARING),
        COMPLETING: (OK, PREPARING),
        STABLE: (OK, PREPARING),
        DEAD: (UNKNOWN, DEAD),
    },
    "commit": {
        EMPTY: (UNKNOWN, EMPTY),
        PREPARING: (OK, PREPARING),
        COMPLETING: (REBALANCE, COMPLETING),
        STABLE: (OK, STABLE),
        DEAD: (UNKNOWN, DEAD),
    },
    "commit of a simple consumer": {
        EMPTY: (OK, EMPTY),
        PREPARING: (UNKNOWN, PREPARING),
        COMPLETING: (UNKNOWN, COMPLETING),
        STABLE: (UNKNOWN, STABLE),
        DEAD: (UNKNOWN, DEAD),
    },
}

CELLS = [(request, state) for request, row in MATRIX.items() for state in row]


@pytest.mark.parametrize(("request_name", "state"), CELLS, ids=[f"{r}-{s.value}" for r, s in CELLS])
def test_every_request_in_every_state_has_the_answer_of_the_table(request_name: str, state: GroupState) -> None:
    scene = GroupInState(state)
    reply = REQUESTS[request_name](scene)
    assert (code(reply), scene.group.state) == MATRIX[request_name][state]


@pytest.mark.parametrize("state", list(GroupState), ids=[s.value for s in GroupState])
def test_offsets_can_be_fetched_in_every_state(state: GroupState) -> None:
    """This includes Dead."""
    scene = GroupInState(state)
    group = scene.rig.group()
    group.state, original = EMPTY, group.state
    members, group.members = group.members, {}
    assert code(scene.rig.commit(offsets={("orders", 1): 42})) == 0
    group.state, group.members = original, members
    assert scene.rig.offset("orders", 1) == 42


@pytest.mark.parametrize("state", [EMPTY, PREPARING, COMPLETING, STABLE], ids=lambda s: s.value)
@pytest.mark.parametrize("request_name", ["sync", "heartbeat", "commit"])
def test_unknown_member_is_refused_in_every_state(request_name: str, state: GroupState) -> None:
    scene = GroupInState(state)
    ask = {
        "sync": lambda: scene.rig.sync("stranger", scene.generation),
        "heartbeat": lambda: scene.rig.heartbeat("stranger", scene.generation),
        "commit": lambda: scene.rig.commit("stranger", scene.generation),
    }[request_name]
    assert code(ask()) == UNKNOWN  # type: ignore[arg-type]


@pytest.mark.parametrize("state", [PREPARING, COMPLETING, STABLE], ids=lambda s: s.value)
@pytest.mark.parametrize("request_name", ["sync", "heartbeat", "commit"])
def test_member_of_an_older_generation_is_refused_in_every_state(request_name: str, state: GroupState) -> None:
    scene = GroupInState(state)
    old = scene.generation - 1
    ask = {
        "sync": lambda: scene.rig.sync(scene.follower, old),
        "heartbeat": lambda: scene.rig.heartbeat(scene.follower, old),
        "commit": lambda: scene.rig.commit(scene.follower, old),
    }[request_name]
    assert code(ask()) == ILLEGAL  # type: ignore[arg-type]


@pytest.mark.parametrize("state", [PREPARING, COMPLETING, STABLE], ids=lambda s: s.value)
def test_member_without_a_common_protocol_is_refused_in_every_state(state: GroupState) -> None:
    scene = GroupInState(state)
    assert code(scene.rig.join(protocols=[ROUND_ROBIN])) == 23
    assert code(scene.rig.join(protocols=[RANGE], protocol_type="connect")) == 23
    assert code(scene.rig.join(scene.follower, protocols=[])) == 23
    assert scene.group.state is state


# --- static members (KIP-345) ---

STATIC_REQUESTS: dict[str, Ask] = {
    "restart of the leader": lambda s: s.rig.join(instance_id="i-1", version=9),
    "restart of the follower": lambda s: s.rig.join(instance_id="i-2", version=9),
    "restart with another choice": lambda s: s.rig.join(instance_id="i-2", protocols=[CHANGED], version=9),
    "join of a new instance": lambda s: s.rig.join(instance_id="i-9", version=9),
    "join of the leader, same": lambda s: s.rig.join(s.leader, instance_id="i-1", version=9),
    "join of the follower, same": lambda s: s.rig.join(s.follower, instance_id="i-2", version=9),
    "join under another's instance": lambda s: s.rig.join(s.leader, instance_id="i-2", version=9),
    "join of an id with an instance that nobody is": lambda s: s.rig.join(s.leader, instance_id="i-9", version=9),
    "sync": lambda s: s.rig.sync(s.follower, s.generation, instance_id="i-2"),
    "sync under another's instance": lambda s: s.rig.sync(s.leader, s.generation, instance_id="i-2"),
    "heartbeat": lambda s: s.rig.heartbeat(s.follower, s.generation, instance_id="i-2"),
    "heartbeat under another's instance": lambda s: s.rig.heartbeat(s.leader, s.generation, instance_id="i-2"),
    "heartbeat of an instance that nobody is": lambda s: s.rig.heartbeat(s.leader, s.generation, instance_id="i-9"),
    "commit": lambda s: s.rig.commit(s.follower, s.generation, instance_id="i-2"),
    "commit under another's instance": lambda s: s.rig.commit(s.leader, s.generation, instance_id="i-2"),
    "leave by instance alone": lambda s: s.rig.leave(("", "i-2")),
    "leave by id and instance": lambda s: s.rig.leave((s.follower, "i-2")),
    "leave under another's instance": lambda s: s.rig.leave((s.leader, "i-2")),
    "leave by an instance that nobody is": lambda s: s.rig.leave(("", "i-9")),
}


def row(
    empty: int | None,
    preparing: tuple[int | None, GroupState],
    completing: tuple[int | None, GroupState],
    stable: tuple[int | None, GroupState],
    *,
    empty_after: GroupState = EMPTY,
) -> dict[GroupState, tuple[int | None, GroupState]]:
    """Return one row of a matrix. A Dead group answers UNKNOWN_MEMBER_ID."""
    return {
        EMPTY: (empty, empty_after),
        PREPARING: preparing,
        COMPLETING: completing,
        STABLE: stable,
        DEAD: (UNKNOWN, DEAD),
    }


def everywhere(code: int) -> dict[GroupState, tuple[int | None, GroupState]]:
    """Return a row with the same error in every state with members, and no transition."""
    return row(UNKNOWN, (code, PREPARING), (code, COMPLETING), (code, STABLE))


STATIC_MATRIX: dict[str, dict[GroupState, tuple[int | None, GroupState]]] = {
    # An empty group has no instances, so a restart is a first start there.
    "restart of the leader": row(PARKED, (PARKED, PREPARING), (PARKED, PREPARING), (OK, STABLE), empty_after=PREPARING),
    "restart of the follower": row(
        PARKED, (PARKED, PREPARING), (PARKED, PREPARING), (OK, STABLE), empty_after=PREPARING
    ),
    # New metadata alone does not change the selected protocol; it is used from the next rebalance on.
    "restart with another choice": row(
        PARKED, (PARKED, PREPARING), (PARKED, PREPARING), (OK, STABLE), empty_after=PREPARING
    ),
    "join of a new instance": row(
        PARKED, (PARKED, PREPARING), (PARKED, PREPARING), (PARKED, PREPARING), empty_after=PREPARING
    ),
    "join of the leader, same": row(UNKNOWN, (PARKED, PREPARING), (OK, COMPLETING), (PARKED, PREPARING)),
    "join of the follower, same": row(UNKNOWN, (PARKED, PREPARING), (OK, COMPLETING), (OK, STABLE)),
    "join under another's instance": everywhere(FENCED),
    "join of an id with an instance that nobody is": everywhere(UNKNOWN),
    "sync": row(UNKNOWN, (REBALANCE, PREPARING), (PARKED, COMPLETING), (OK, STABLE)),
    "sync under another's instance": everywhere(FENCED),
    "heartbeat": row(UNKNOWN, (REBALANCE, PREPARING), (OK, COMPLETING), (OK, STABLE)),
    "heartbeat under another's instance": everywhere(FENCED),
    "heartbeat of an instance that nobody is": everywhere(UNKNOWN),
    "commit": row(UNKNOWN, (OK, PREPARING), (REBALANCE, COMPLETING), (OK, STABLE)),
    "commit under another's instance": everywhere(FENCED),
    "leave by instance alone": row(UNKNOWN, (OK, PREPARING), (OK, PREPARING), (OK, PREPARING)),
    "leave by id and instance": row(UNKNOWN, (OK, PREPARING), (OK, PREPARING), (OK, PREPARING)),
    "leave under another's instance": everywhere(FENCED),
    "leave by an instance that nobody is": everywhere(UNKNOWN),
}

STATIC_CELLS = [(request, state) for request in STATIC_MATRIX for state in GroupState]


@pytest.mark.parametrize(("request_name", "state"), STATIC_CELLS, ids=[f"{r}-{s.value}" for r, s in STATIC_CELLS])
def test_static_members_have_the_answers_of_the_table(request_name: str, state: GroupState) -> None:
    """KIP-345."""
    scene = GroupInState(state, static=True)
    reply = STATIC_REQUESTS[request_name](scene)
    assert (code(reply), scene.group.state) == STATIC_MATRIX[request_name][state]


# --- pending members (KIP-394) ---

PROMISED_REQUESTS: dict[str, Ask] = {
    "join": lambda s: s.rig.join(s.promised, version=4),
    "sync": lambda s: s.rig.sync(s.promised, s.generation),
    "heartbeat": lambda s: s.rig.heartbeat(s.promised, s.generation),
    "commit": lambda s: s.rig.commit(s.promised, s.generation),
    "leave": lambda s: s.rig.leave(s.promised),
}
PROMISED_MATRIX: dict[str, dict[GroupState, tuple[int | None, GroupState]]] = {
    "join": row(PARKED, (PARKED, PREPARING), (PARKED, PREPARING), (PARKED, PREPARING), empty_after=PREPARING),
    "sync": everywhere(UNKNOWN),
    "heartbeat": everywhere(UNKNOWN),
    "commit": everywhere(UNKNOWN),
    # The pending member was in no generation, so the group does not rebalance.
    "leave": row(OK, (OK, PREPARING), (OK, COMPLETING), (OK, STABLE)),
}
PROMISED_CELLS = [(request, state) for request in PROMISED_MATRIX for state in GroupState]


@pytest.mark.parametrize(("request_name", "state"), PROMISED_CELLS, ids=[f"{r}-{s.value}" for r, s in PROMISED_CELLS])
def test_pending_members_have_the_answers_of_the_table(request_name: str, state: GroupState) -> None:
    """A pending member can only join or leave."""
    scene = GroupInState(state, promised=True)
    reply = PROMISED_REQUESTS[request_name](scene)
    assert (code(reply), scene.group.state) == PROMISED_MATRIX[request_name][state]
    if request_name == "leave" and state is not DEAD:
        assert scene.group.pending_members == {}


@pytest.mark.parametrize("state", [EMPTY, COMPLETING, STABLE], ids=lambda s: s.value)
def test_expiry_of_a_pending_member_does_not_rebalance(state: GroupState) -> None:
    """The pending member expires after its session timeout."""
    scene = GroupInState(state, promised=True)
    before = scene.group.generation
    for seconds in (0, 9.9, 0.2):
        scene.rig.pass_time(seconds)
        for member in scene.group.members:
            assert code(scene.rig.heartbeat(member, scene.generation)) == OK
    assert (scene.group.pending_members, scene.group.state, scene.group.generation) == ({}, state, before)


# --- tools ---

TOOLS: dict[str, Ask] = {
    "delete": lambda s: s.rig.delete_group(),
    "delete offsets of a wanted topic": lambda s: s.rig.delete_offsets(("orders", 0)),
    "delete offsets of a topic that nobody wants": lambda s: s.rig.delete_offsets(("bills", 0)),
}
TOOL_MATRIX: dict[str, dict[GroupState, int]] = {
    "delete": {EMPTY: OK, PREPARING: NON_EMPTY, COMPLETING: NON_EMPTY, STABLE: NON_EMPTY, DEAD: NO_GROUP},
    "delete offsets of a wanted topic": {
        EMPTY: OK,
        PREPARING: SUBSCRIBED,
        COMPLETING: SUBSCRIBED,
        STABLE: SUBSCRIBED,
        DEAD: NO_GROUP,
    },
    "delete offsets of a topic that nobody wants": {
        EMPTY: OK,
        PREPARING: OK,
        COMPLETING: OK,
        STABLE: OK,
        DEAD: NO_GROUP,
    },
}
TOOL_CELLS = [(request, state) for request in TOOL_MATRIX for state in GroupState]


@pytest.mark.parametrize(("request_name", "state"), TOOL_CELLS, ids=[f"{r}-{s.value}" for r, s in TOOL_CELLS])
def test_tools_have_the_answers_of_the_table(request_name: str, state: GroupState) -> None:
    """DeleteGroups and OffsetDelete."""
    scene = GroupInState(state)
    reply = TOOLS[request_name](scene)
    assert code(reply) == TOOL_MATRIX[request_name][state]


@pytest.mark.parametrize("state", [EMPTY, PREPARING, COMPLETING, STABLE], ids=lambda s: s.value)
def test_groups_are_listed_and_described_in_every_state(state: GroupState) -> None:
    """Assignments are shown for a stable group only."""
    scene = GroupInState(state)
    listed = scene.rig.runtime.read(PARTITION, lambda shard: admin.list_groups(shard, shard.group_ids(), (), ()))
    described = scene.rig.runtime.read(PARTITION, lambda shard: admin.describe(shard, "g", 6))
    assert [(group.group_id, group.group_state, group.protocol_type) for group in listed] == [
        ("g", state.value, "consumer")
    ]
    assert (described.group_state, described.protocol_type, described.error_code) == (state.value, "consumer", OK)
    assert {member.member_id for member in described.members} == set(scene.group.members)
    assignments = {member.member_assignment for member in described.members}
    if state is STABLE:
        assert (described.protocol_data, assignments) == ("range", {b"l", b"f"})
    else:
        assert (described.protocol_data, assignments - {b""}) == ("", set())


# --- shards that this broker does not serve ---

NOT_HERE = NotCoordinatorError.code
LOADING = CoordinatorLoadInProgressError.code


class ShardScenario:
    """A coordinator whose shard of the group is loading, absent, unreadable, moved away, or stopped."""

    def __init__(self, shard: str) -> None:
        self.log = ScriptedLog()
        self.coordinator = GroupCoordinator(StillWorld(), self.log, Topics(), GroupCoordinatorConfig())
        partition = self.coordinator.runtime.partition_for("g")
        if shard == "loading":
            self.coordinator.runtime.load(partition, 1)
        elif shard == "unreadable":
            self.log.records[partition] = [CoordinatorRecord(None, None)]  # type: ignore[arg-type]  # an invalid key
            self.coordinator.runtime.load(partition, 1)
            self.coordinator.runtime.load_all()
        elif shard == "moved away":
            self.coordinator.runtime.load(partition, 1)
            self.coordinator.runtime.load_all()
            self.coordinator.runtime.unload(partition, 2)
        elif shard == "stopped":
            self.coordinator.runtime.load(partition, 1)
            self.coordinator.runtime.load_all()
            self.coordinator.runtime.stop()
            self.coordinator.runtime.load(partition, 2)


def _commit() -> OffsetCommitRequest:
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=5)]
    return OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="orders", partitions=partitions)])


def _delete() -> OffsetDeleteRequest:
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    return OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name="orders", partitions=partitions)])


ServiceAsk = Callable[[GroupCoordinator], Awaitable[int]]


async def _join(coordinator: GroupCoordinator) -> int:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range")],
    )
    return (await coordinator.membership.join_group(request, version=9)).error_code


async def _sync(coordinator: GroupCoordinator) -> int:
    return (
        await coordinator.membership.sync_group(SyncGroupRequest(group_id="g", member_id="m", generation_id=1))
    ).error_code


async def _heartbeat(coordinator: GroupCoordinator) -> int:
    return (
        await coordinator.membership.heartbeat(HeartbeatRequest(group_id="g", member_id="m", generation_id=1))
    ).error_code


async def _leave(coordinator: GroupCoordinator) -> int:
    request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="m")])
    return (await coordinator.membership.leave_group(request, version=5)).error_code


async def _commit_offsets(coordinator: GroupCoordinator) -> int:
    return (await coordinator.offsets.commit_offsets(_commit(), version=9)).topics[0].partitions[0].error_code


async def _fetch(coordinator: GroupCoordinator, *, stable: bool = False) -> int:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)], require_stable=stable)
    return (await coordinator.offsets.fetch_offsets(request, version=9)).groups[0].error_code


async def _delete_offsets(coordinator: GroupCoordinator) -> int:
    return (await coordinator.offsets.delete_offsets(_delete())).error_code


async def _describe(coordinator: GroupCoordinator) -> int:
    request = DescribeGroupsRequest(groups=["g"])
    return (await coordinator.admin.describe_groups(request, version=6)).groups[0].error_code


async def _delete_groups(coordinator: GroupCoordinator) -> int:
    return (await coordinator.admin.delete_groups(DeleteGroupsRequest(groups_names=["g"]))).results[0].error_code


async def _list(coordinator: GroupCoordinator) -> int:
    response = await coordinator.admin.list_groups(ListGroupsRequest())
    assert response.groups == []
    return response.error_code


NOT_SERVED: dict[str, tuple[ServiceAsk, int, int]] = {
    # request: (function, answer while the shard loads, answer without the shard)
    "join": (_join, LOADING, NOT_HERE),
    "sync": (_sync, REBALANCE, NOT_HERE),
    "heartbeat": (_heartbeat, OK, NOT_HERE),
    "leave": (_leave, LOADING, NOT_HERE),
    "commit": (_commit_offsets, LOADING, NOT_HERE),
    "fetch": (_fetch, LOADING, NOT_HERE),
    "stable fetch": (partial(_fetch, stable=True), LOADING, NOT_HERE),
    "delete offsets": (_delete_offsets, LOADING, NOT_HERE),
    "describe": (_describe, LOADING, NOT_HERE),
    "delete": (_delete_groups, LOADING, NOT_HERE),
    "list": (_list, LOADING, OK),
}


@pytest.mark.parametrize("request_name", NOT_SERVED)
async def test_stopped_coordinator_is_not_available(request_name: str) -> None:
    """It refuses all requests and ignores later loads."""
    broker = ShardScenario("stopped")
    assert await NOT_SERVED[request_name][0](broker.coordinator) == CoordinatorNotAvailableError.code
    assert broker.coordinator.runtime.active_partitions() == []


@pytest.mark.parametrize("shard", ["loading", "unreadable", "moved away", "never here"])
@pytest.mark.parametrize("request_name", NOT_SERVED)
async def test_requests_for_unserved_shards_have_the_answers_of_the_table(request_name: str, shard: str) -> None:
    """A shard that could not be loaded counts as not hosted."""
    ask, loading, not_here = NOT_SERVED[request_name]
    assert await ask(ShardScenario(shard).coordinator) == (loading if shard == "loading" else not_here)
