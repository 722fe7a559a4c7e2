"""Every request in every state of a classic group: the table of the specification, with its modern errata.

Against the table of Kafka 0.10: groups start and end Empty; heartbeats succeed while the assignment is awaited and keep
the session alive while members join (cluster section 19).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.coordinator.rig import RANGE, ROUND_ROBIN, Rig, code, subscription
from triokafka.coordinator.group.classic import ClassicGroup
from triokafka.coordinator.group.state import GroupState
from triokafka.coordinator.turn import Reply
from triokafka.errors import (
    IllegalGenerationError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)

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

CHANGED = ("range", subscription("orders", "bills"))


class Scene:
    """A group in some state, with a leader and a follower (their ids are stale where it has no members)."""

    def __init__(self, state: GroupState) -> None:
        self.rig = Rig()
        if state is COMPLETING:
            (self.leader, self.follower), self.generation = self.rig.joined_group()
        else:
            (self.leader, self.follower), self.generation = self.rig.stable_group()
        if state is PREPARING:
            self.rig.join()
        elif state is EMPTY:
            self.rig.leave(self.leader, self.follower)
        elif state is DEAD:
            self.rig.group().transition_to(DEAD, 0)
        self.group: ClassicGroup = self.rig.group()
        assert self.group.state is state


Ask = Callable[[Scene], Reply[Any]]

REQUESTS: dict[str, Ask] = {
    "join new": lambda s: s.rig.join(),
    "join leader, same": lambda s: s.rig.join(s.leader),
    "join follower, same": lambda s: s.rig.join(s.follower),
    "join follower, changed": lambda s: s.rig.join(s.follower, protocols=[CHANGED]),
    "sync follower": lambda s: s.rig.sync(s.follower, s.generation),
    "sync leader": lambda s: s.rig.sync(s.leader, s.generation, {s.leader: b"l", s.follower: b"f"}),
    "heartbeat": lambda s: s.rig.heartbeat(s.follower, s.generation),
    "leave": lambda s: s.rig.leave(s.follower),
    "commit": lambda s: s.rig.commit(s.follower, s.generation),
    "commit of a simple consumer": lambda s: s.rig.commit(),
}

# Request -> state -> (error code of the answer, or parked; state of the group afterwards)
MATRIX: dict[str, dict[GroupState, tuple[int | None, GroupState]]] = {
    "join new": {
        EMPTY: (PARKED, PREPARING),
        PREPARING: (PARKED, PREPARING),
        COMPLETING: (PARKED, PREPARING),
        STABLE: (PARKED, PREPARING),
        DEAD: (UNKNOWN, DEAD),
    },
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
def test_every_request_in_every_state_is_answered_as_the_table_says(request_name: str, state: GroupState) -> None:
    """`cluster/GST-01` to `cluster/GST-09`, `cluster/GJN-04` to `GJN-08`, `GSY-01` to `GSY-05`, `GHB-01`, `GOC-03`."""
    scene = Scene(state)
    reply = REQUESTS[request_name](scene)
    assert (code(reply), scene.group.state) == MATRIX[request_name][state]


@pytest.mark.parametrize("state", list(GroupState), ids=[s.value for s in GroupState])
def test_offsets_can_be_fetched_in_every_state(state: GroupState) -> None:
    """`cluster/GMD-26`, erratum E11: also of a group that is Dead."""
    scene = Scene(state)
    group = scene.rig.group()
    group.state, kept = EMPTY, group.state
    members, group.members = group.members, {}
    assert code(scene.rig.commit(offsets={("orders", 1): 42})) == 0
    group.state, group.members = kept, members
    assert scene.rig.offset("orders", 1) == 42


@pytest.mark.parametrize("state", [EMPTY, PREPARING, COMPLETING, STABLE], ids=lambda s: s.value)
@pytest.mark.parametrize("request_name", ["sync", "heartbeat", "commit"])
def test_a_member_that_nobody_knows_is_told_so_in_every_state(request_name: str, state: GroupState) -> None:
    """`cluster/GSY-01`, `cluster/GHB-01`, `cluster/GOC-03`."""
    scene = Scene(state)
    ask = {
        "sync": lambda: scene.rig.sync("stranger", scene.generation),
        "heartbeat": lambda: scene.rig.heartbeat("stranger", scene.generation),
        "commit": lambda: scene.rig.commit("stranger", scene.generation),
    }[request_name]
    assert code(ask()) == UNKNOWN


@pytest.mark.parametrize("state", [PREPARING, COMPLETING, STABLE], ids=lambda s: s.value)
@pytest.mark.parametrize("request_name", ["sync", "heartbeat", "commit"])
def test_a_member_of_an_older_generation_is_told_so_in_every_state(request_name: str, state: GroupState) -> None:
    """`cluster/GSY-01`, `cluster/GHB-01`, `cluster/GOC-03`."""
    scene = Scene(state)
    old = scene.generation - 1
    ask = {
        "sync": lambda: scene.rig.sync(scene.follower, old),
        "heartbeat": lambda: scene.rig.heartbeat(scene.follower, old),
        "commit": lambda: scene.rig.commit(scene.follower, old),
    }[request_name]
    assert code(ask()) == ILLEGAL


@pytest.mark.parametrize("state", [PREPARING, COMPLETING, STABLE], ids=lambda s: s.value)
def test_a_member_without_a_protocol_in_common_is_refused_in_every_state(state: GroupState) -> None:
    """`cluster/GJN-03`."""
    scene = Scene(state)
    assert code(scene.rig.join(protocols=[ROUND_ROBIN])) == 23
    assert code(scene.rig.join(protocols=[RANGE], protocol_type="connect")) == 23
    assert code(scene.rig.join(scene.follower, protocols=[])) == 23
    assert scene.group.state is state
