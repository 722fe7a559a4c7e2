"""The range assignor: each member gets a run of consecutive partitions of each topic, or a share within its rack."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from triokafka.assignors.assignor import (
    NO_RACKS,
    Assignment,
    Members,
    PartitionAssignor,
    PartitionRacks,
    subscribers,
)
from triokafka.assignors.racks import racks_matter, racks_of_members, racks_of_topic
from triokafka.structs import TopicPartition


def assign_range(
    members: Members, partitions: Mapping[str, int], racks: PartitionRacks = NO_RACKS
) -> dict[str, list[TopicPartition]]:
    """Assign each topic separately: with n partitions and m subscribers, the first n mod m get one more than the
    others.

    Topics with equal partition counts and subscribers are assigned alike, so that one member gets partition i of both.
    Where racks matter, members get partitions with a replica in their rack first (KIP-881). The counts stay the same,
    and topics with equal partition counts and subscribers are still assigned alike.
    """
    assignments = [
        _TopicAssignment(topic, consumers, partitions[topic])
        for topic, consumers in subscribers(members, partitions).items()
    ]
    where = racks_of_members(members)
    if where and racks:
        _assign_within_racks(assignments, where, racks)
    assigned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
    for assignment in assignments:
        assignment.assign_rest()
        for member_id, numbers in assignment.assigned.items():
            assigned[member_id].extend(TopicPartition(assignment.topic, number) for number in sorted(numbers))
    return assigned


class _TopicAssignment:
    """One topic during its assignment. The consumers are in assignment order."""

    def __init__(self, topic: str, consumers: Sequence[str], count: int) -> None:
        self.topic = topic
        self.consumers = consumers
        self.count = count
        self.assigned: dict[str, list[int]] = {member_id: [] for member_id in consumers}
        self._each, self._extra = divmod(count, len(consumers))
        self._taken = bytearray(count)

    def room(self, member_id: str) -> int:
        """Return how many more partitions the member may get. It never grows."""
        return max(0, self._each + (self._extra > 0) - len(self.assigned[member_id]))

    def give(self, member_id: str, numbers: Iterable[int]) -> None:
        """Assign partitions to a member; the caller must not exceed its `room`."""
        held = self.assigned[member_id]
        for number in numbers:
            self._taken[number] = True
            held.append(number)
            if len(held) == self._each + 1:
                self._extra -= 1

    def assign_rest(self) -> None:
        """Assign the remaining partitions in order, to the consumers in order."""
        left = [number for number, taken in enumerate(self._taken) if not taken]
        start = 0
        for member_id in self.consumers:
            end = start + self.room(member_id)
            self.give(member_id, left[start:end])
            start = end


def _assign_within_racks(
    assignments: Sequence[_TopicAssignment], where: Mapping[str, str], racks: PartitionRacks
) -> None:
    """Assign partitions with a replica in the member's rack; a member without a rack takes any partition."""
    places = {assignment.topic: racks_of_topic(racks, assignment.topic, assignment.count) for assignment in assignments}
    matters = {
        assignment.topic: racks_matter({where[m] for m in assignment.consumers if m in where}, places[assignment.topic])
        for assignment in assignments
    }
    if not any(matters.values()):
        return
    alike: dict[tuple[tuple[str, ...], int], list[_TopicAssignment]] = {}
    for assignment in assignments:
        alike.setdefault((tuple(assignment.consumers), assignment.count), []).append(assignment)
    for together in alike.values():
        first = together[0]
        if len(together) == 1:
            if matters[first.topic]:
                _assign_topic(first, where, places[first.topic])
        elif not where.keys().isdisjoint(first.consumers):
            common = [frozenset.intersection(*each) for each in zip(*(places[d.topic] for d in together), strict=True)]
            _assign_alike(together, where, common)


def _assign_topic(assignment: _TopicAssignment, where: Mapping[str, str], places: Sequence[frozenset[str]]) -> None:
    """Give each consumer, in order, the first partitions with a replica in its rack."""
    free: dict[frozenset[str], deque[int]] = {}
    for number, racks in enumerate(places):
        free.setdefault(racks, deque()).append(number)
    for member_id in assignment.consumers:
        rack = where.get(member_id)
        queues = [queue for racks, queue in free.items() if rack is None or rack in racks]
        found = []
        for _ in range(assignment.room(member_id)):
            queue = min((queue for queue in queues if queue), key=lambda queue: queue[0], default=None)
            if queue is None:
                break
            found.append(queue.popleft())
        assignment.give(member_id, found)


def _assign_alike(
    assignments: Sequence[_TopicAssignment], where: Mapping[str, str], common: Sequence[frozenset[str]]
) -> None:
    """Give each partition number of all these topics to the first consumer with room in a rack common to all of
    them."""
    first = assignments[0]
    waiting: dict[str | None, deque[tuple[int, str]]] = {}
    for position, member_id in enumerate(first.consumers):
        waiting.setdefault(where.get(member_id), deque()).append((position, member_id))
    for number, racks in enumerate(common):
        heads = []
        for rack in (None, *racks):
            queue = waiting.get(rack, deque())
            while queue and not first.room(queue[0][1]):
                queue.popleft()
            if queue:
                heads.append(queue[0])
        if heads:
            _, member_id = min(heads)
            for assignment in assignments:
                assignment.give(member_id, (number,))


class RangeAssignor(PartitionAssignor):
    """Consecutive partitions per topic and member (protocol name ``range``)."""

    name: ClassVar[str] = "range"

    def assign(
        self, members: Members, partitions: Mapping[str, int], racks: PartitionRacks = NO_RACKS
    ) -> dict[str, Assignment]:
        """Assign as `assign_range` does."""
        return {member_id: Assignment(got) for member_id, got in assign_range(members, partitions, racks).items()}
