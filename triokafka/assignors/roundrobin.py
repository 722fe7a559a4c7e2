"""The round-robin assignor: all partitions of all topics, one member after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from triokafka.assignors.assignor import (
    NO_RACKS,
    Assignment,
    Members,
    PartitionAssignor,
    PartitionRacks,
    in_member_order,
    subscribers,
)
from triokafka.structs import TopicPartition


def assign_round_robin(members: Members, partitions: Mapping[str, int]) -> dict[str, list[TopicPartition]]:
    """Assign partition after partition in topic order to member after member, skipping members without a subscription.

    With equal subscriptions, the members' counts differ by at most one.
    """
    assigned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
    ring = in_member_order(members)
    topics_of = {member_id: frozenset(members[member_id].topics) for member_id in ring}
    turn = 0
    for topic in subscribers(members, partitions):
        for number in range(partitions[topic]):
            while topic not in topics_of[ring[turn]]:
                turn = (turn + 1) % len(ring)
            assigned[ring[turn]].append(TopicPartition(topic, number))
            turn = (turn + 1) % len(ring)
    return assigned


class RoundRobinAssignor(PartitionAssignor):
    """All partitions in turn (protocol name ``roundrobin``)."""

    name: ClassVar[str] = "roundrobin"

    def assign(
        self, members: Members, partitions: Mapping[str, int], racks: PartitionRacks = NO_RACKS
    ) -> dict[str, Assignment]:
        """Assign as `assign_round_robin` does. Ignores ``racks``, as in Kafka."""
        return {member_id: Assignment(got) for member_id, got in assign_round_robin(members, partitions).items()}
