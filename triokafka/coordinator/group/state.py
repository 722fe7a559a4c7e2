"""States of a classic group and the transitions between them."""

from __future__ import annotations

from enum import Enum
from typing import Final


class GroupState(Enum):
    """State of a classic group. Values are the names that DescribeGroups and ListGroups show."""

    EMPTY = "Empty"
    """No members; offsets may live on."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members are joining the next generation; joins are parked."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The generation is made up and waits for the leader's assignment; syncs are parked."""
    STABLE = "Stable"
    """The assignment is stored and handed out."""
    DEAD = "Dead"
    """Gone from this coordinator."""


PREDECESSORS: Final[dict[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}
"""From which states each state may be entered. Any other transition is a programming error."""
