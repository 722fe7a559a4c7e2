"""The range assignor: per topic, each member gets one run of consecutive partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from triokafka.assignors.assignor import Assignment, Members, PartitionAssignor, subscribers
from triokafka.structs import TopicPartition


def assign_range(members: Members, partitions: Mapping[str, int]) -> dict[str, list[TopicPartition]]:
    """Deal each topic by itself: with n partitions and m subscribers, the first n mod m get one more than the others.

    Topics with equal partition counts and subscribers are dealt alike, so that partition i of both lands on one member.
    """
    assigned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
    for topic, consumers in subscribers(members, partitions).items():
        each, extra = divmod(partitions[topic], len(consumers))
        start = 0
        for index, member_id in enumerate(consumers):
            end = start + each + (index < extra)
            assigned[member_id].extend(TopicPartition(topic, number) for number in range(start, end))
            start = end
    return assigned


class RangeAssignor(PartitionAssignor):
    """Consecutive partitions per topic and member (wire name ``range``)."""

    name: ClassVar[str] = "range"

    def assign(self, members: Members, partitions: Mapping[str, int]) -> dict[str, Assignment]:
        """See `assign_range`."""
        return {member_id: Assignment(got) for member_id, got in assign_range(members, partitions).items()}
