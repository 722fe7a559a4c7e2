"""The range assignor: per topic, each member gets one run of consecutive partitions; in racks, a share of them."""

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
    """Deal each topic by itself: with n partitions and m subscribers, the first n mod m get one more than the others.

    Topics with equal partition counts and subscribers are dealt alike, so that partition i of both lands on one member.
    Where ``racks`` and the members' own make a difference, partitions go to members in a rack with a replica first
    (KIP-881); counts stay the same, and topics with equal counts and subscribers are still dealt alike.
    """
    deals = [
        _Deal(topic, consumers, partitions[topic]) for topic, consumers in subscribers(members, partitions).items()
    ]
    where = racks_of_members(members)
    if where and racks:
        _deal_within_racks(deals, where, racks)
    assigned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
    for deal in deals:
        deal.deal_rest()
        for member_id, numbers in deal.dealt.items():
            assigned[member_id].extend(TopicPartition(deal.topic, number) for number in sorted(numbers))
    return assigned


class _Deal:
    """One topic while it is dealt. Consumers are in order."""

    def __init__(self, topic: str, consumers: Sequence[str], count: int) -> None:
        self.topic = topic
        self.consumers = consumers
        self.count = count
        self.dealt: dict[str, list[int]] = {member_id: [] for member_id in consumers}
        self._each, self._extra = divmod(count, len(consumers))
        self._taken = bytearray(count)

    def room(self, member_id: str) -> int:
        """How many more the member may get. It never grows."""
        return max(0, self._each + (self._extra > 0) - len(self.dealt[member_id]))

    def give(self, member_id: str, numbers: Iterable[int]) -> None:
        """No more than there is room for."""
        held = self.dealt[member_id]
        for number in numbers:
            self._taken[number] = True
            held.append(number)
            if len(held) == self._each + 1:
                self._extra -= 1

    def deal_rest(self) -> None:
        """In order to consumers in order."""
        left = [number for number, taken in enumerate(self._taken) if not taken]
        start = 0
        for member_id in self.consumers:
            end = start + self.room(member_id)
            self.give(member_id, left[start:end])
            start = end


def _deal_within_racks(deals: Sequence[_Deal], where: Mapping[str, str], racks: PartitionRacks) -> None:
    """Give members what has a replica in their rack; a member without a rack takes any partition."""
    places = {deal.topic: racks_of_topic(racks, deal.topic, deal.count) for deal in deals}
    matters = {
        deal.topic: racks_matter({where[m] for m in deal.consumers if m in where}, places[deal.topic]) for deal in deals
    }
    if not any(matters.values()):
        return
    alike: dict[tuple[tuple[str, ...], int], list[_Deal]] = {}
    for deal in deals:
        alike.setdefault((tuple(deal.consumers), deal.count), []).append(deal)
    for together in alike.values():
        first = together[0]
        if len(together) == 1:
            if matters[first.topic]:
                _deal_one(first, where, places[first.topic])
        elif not where.keys().isdisjoint(first.consumers):
            common = [frozenset.intersection(*each) for each in zip(*(places[d.topic] for d in together), strict=True)]
            _deal_alike(together, where, common)


def _deal_one(deal: _Deal, where: Mapping[str, str], places: Sequence[frozenset[str]]) -> None:
    """To each consumer in order, the first partitions in its rack."""
    free: dict[frozenset[str], deque[int]] = {}
    for number, racks in enumerate(places):
        free.setdefault(racks, deque()).append(number)
    for member_id in deal.consumers:
        rack = where.get(member_id)
        queues = [queue for racks, queue in free.items() if rack is None or rack in racks]
        found = []
        for _ in range(deal.room(member_id)):
            queue = min((queue for queue in queues if queue), key=lambda queue: queue[0], default=None)
            if queue is None:
                break
            found.append(queue.popleft())
        deal.give(member_id, found)


def _deal_alike(deals: Sequence[_Deal], where: Mapping[str, str], common: Sequence[frozenset[str]]) -> None:
    """Each number of all these topics to the first consumer with room that is in a rack where all of them are."""
    first = deals[0]
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
            for deal in deals:
                deal.give(member_id, (number,))


class RangeAssignor(PartitionAssignor):
    """Consecutive partitions per topic and member (wire name ``range``)."""

    name: ClassVar[str] = "range"

    def assign(
        self, members: Members, partitions: Mapping[str, int], racks: PartitionRacks = NO_RACKS
    ) -> dict[str, Assignment]:
        """See `assign_range`."""
        return {member_id: Assignment(got) for member_id, got in assign_range(members, partitions, racks).items()}
