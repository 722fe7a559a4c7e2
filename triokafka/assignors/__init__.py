"""Partition assignment strategies: pure functions over members, subscriptions and partition counts, and the assignor
classes that offer them under Kafka's names. This package does not talk to brokers."""

from __future__ import annotations

from typing import Final

from triokafka.assignors.assignor import (
    ENTRY_POINT_GROUP,
    NO_RACKS,
    Assignment,
    MemberSubscription,
    PartitionAssignor,
    PartitionRacks,
    in_member_order,
    resolve_assignors,
)
from triokafka.assignors.range import RangeAssignor, assign_range
from triokafka.assignors.roundrobin import RoundRobinAssignor, assign_round_robin
from triokafka.assignors.stickiness import assign_sticky, settle_claims
from triokafka.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

BUILT_IN: Final[dict[str, type[PartitionAssignor]]] = {
    assignor.name: assignor
    for assignor in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}
"""Assignor classes by protocol name."""

JAVA_NAMES: Final = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
"""Kafka's Java class names, as used in configuration files, to protocol names."""

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
