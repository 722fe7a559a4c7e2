"""States of a classic group and the transitions between them."""

from __future__ import annotations

from enum import Enum
from typing import Final


class GroupState(Enum):
    """State of a classic group. The values are the names in DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    """No members; committed offsets may remain."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """The join phase: members are joining the next generation, and joins are parked."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The sync phase: the generation waits for the leader's assignment, and syncs are parked."""
    STABLE = "Stable"
    """The assignment is stored and distributed."""
    DEAD = "Dead"
    """Removed from this coordinator."""


PREDECESSORS: Final[dict[GroupState, frozenset[GroupState]]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}
"""The states from which each state may be entered. Any other transition is a programming error."""
