"""Partition assignment strategies: pure functions over members, subscriptions and partition counts, and the assignor
classes that offer them under Kafka's names. This package does not talk to brokers."""

from __future__ import annotations

from triokafka.assignors.assignor import (
    NO_RACKS,
    Assignment,
    MemberSubscription,
    PartitionAssignor,
    PartitionRacks,
    in_member_order,
)
from triokafka.assignors.range import RangeAssignor, assign_range
from triokafka.assignors.roundrobin import RoundRobinAssignor, assign_round_robin
from triokafka.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from triokafka.assignors.sticky_assignment import assign_sticky, settle_claims
from triokafka.assignors.strategies import BUILT_IN, ENTRY_POINT_GROUP, JAVA_NAMES, resolve_assignors

__all__ = [
    "BUILT_IN",
    "ENTRY_POINT_GROUP",
    "JAVA_NAMES",
    "NO_RACKS",
    "Assignment",
    "CooperativeStickyAssignor",
    "MemberSubscription",
    "PartitionAssignor",
    "PartitionRacks",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "assign_range",
    "assign_round_robin",
    "assign_sticky",
    "in_member_order",
    "resolve_assignors",
    "settle_claims",
]
