"""How partitions are dealt evenly while members keep what they had. Pure functions, shared by both sticky assignors."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Mapping

from triokafka.assignors.assignor import Members, in_member_order, java_order, subscribers
from triokafka.structs import TopicPartition

Claims = Mapping[str, tuple[int, Iterable[TopicPartition]]]
"""Member id to (generation, partitions that it held in that generation)."""


def settle_claims(claims: Claims) -> dict[TopicPartition, str]:
    """Who held each partition last. The newest generation wins; two claims of one generation cancel each other,
    because neither member can be believed."""
    newest: dict[TopicPartition, tuple[int, str | None]] = {}
    for member_id, (generation, partitions) in claims.items():
        for partition in partitions:
            known = newest.get(partition)
            if known is None or generation > known[0]:
                newest[partition] = (generation, member_id)
            elif generation == known[0] and known[1] != member_id:
                newest[partition] = (generation, None)
    return {partition: owner for partition, (_, owner) in newest.items() if owner is not None}


def assign_sticky(
    members: Members, partitions: Mapping[str, int], owners: Mapping[TopicPartition, str]
) -> dict[str, list[TopicPartition]]:
    """Deal all partitions as evenly as the subscriptions allow, moving few of those that have an owner.

    With equal subscriptions counts differ by at most one and the number of moves is minimal. With unequal ones no chain
    of moves can make the counts more even.

    Args:
        members: every member with its subscription.
        partitions: topic to number of partitions.
        owners: who held what before; see `settle_claims`.
    """
    consumers = subscribers(members, partitions)
    kept: dict[str, list[TopicPartition]] = {member_id: [] for member_id in in_member_order(members)}
    fresh: list[TopicPartition] = []
    entitled = {topic: frozenset(found) for topic, found in consumers.items()}
    for topic, subscribed in entitled.items():
        for number in range(partitions[topic]):
            partition = TopicPartition(topic, number)
            owner = owners.get(partition)
            if owner in subscribed:
                kept[owner].append(partition)
            else:
                fresh.append(partition)
    if all(len(found) == len(kept) for found in consumers.values()):
        return _deal_to_equals(kept, fresh)
    return _deal_to_unequals(kept, fresh, consumers)


def _deal_to_equals(
    kept: dict[str, list[TopicPartition]], fresh: list[TopicPartition]
) -> dict[str, list[TopicPartition]]:
    """All members may have any partition: quotas decide."""
    total = len(fresh) + sum(map(len, kept.values()))
    low, over = divmod(total, len(kept)) if kept else (0, 0)
    assigned: dict[str, list[TopicPartition]] = {}
    for member_id, held in kept.items():
        quota = low
        if over and len(held) > low:
            quota, over = low + 1, over - 1
        assigned[member_id] = held[:quota]
        fresh.extend(held[quota:])
    fresh.sort(key=lambda partition: (java_order(partition.topic), partition.partition))
    # The emptiest first, in rounds, so that the partitions of one topic are spread.
    heap = [(len(held), position, member_id) for position, (member_id, held) in enumerate(assigned.items())]
    heapq.heapify(heap)
    for partition in fresh:
        count, position, member_id = heap[0]
        assigned[member_id].append(partition)
        heapq.heapreplace(heap, (count + 1, position, member_id))
    return assigned


def _deal_to_unequals(
    kept: dict[str, list[TopicPartition]], fresh: list[TopicPartition], consumers: Mapping[str, list[str]]
) -> dict[str, list[TopicPartition]]:
    holdings = _Holdings(kept, consumers)
    by_topic: dict[str, list[TopicPartition]] = {}
    for partition in fresh:
        by_topic.setdefault(partition.topic, []).append(partition)
    # Topics with the fewest takers first: their partitions have the least choice.
    for topic in sorted(by_topic, key=lambda name: (len(consumers[name]), java_order(name))):
        heap = [(holdings.count(member_id), position, member_id) for position, member_id in enumerate(consumers[topic])]
        heapq.heapify(heap)
        for partition in by_topic[topic]:
            count, position, member_id = heap[0]
            holdings.give(member_id, partition)
            heapq.heapreplace(heap, (count + 1, position, member_id))
    holdings.level()
    return holdings.assigned()


class _Holdings:
    """Who holds what, per topic, while it is being levelled."""

    def __init__(self, kept: Mapping[str, list[TopicPartition]], consumers: Mapping[str, list[str]]) -> None:
        self._consumers = consumers
        self._by_topic: dict[str, dict[str, list[TopicPartition]]] = {member_id: {} for member_id in kept}
        self._counts = {member_id: 0 for member_id in kept}
        for member_id, held in kept.items():
            for partition in held:
                self.give(member_id, partition)

    def count(self, member_id: str) -> int:
        return self._counts[member_id]

    def give(self, member_id: str, partition: TopicPartition) -> None:
        # Appended last and taken from the end: what a member was given just now leaves it again first.
        self._by_topic[member_id].setdefault(partition.topic, []).append(partition)
        self._counts[member_id] += 1

    def _move(self, topic: str, giver: str, taker: str) -> None:
        held = self._by_topic[giver][topic]
        partition = held.pop()
        if not held:
            del self._by_topic[giver][topic]
        self._counts[giver] -= 1
        self.give(taker, partition)

    def level(self) -> None:
        """Move partitions along chains of members until no chain leads from one member to another that has at least two
        fewer: then no assignment is more even."""
        changed = True
        while changed:
            changed = False
            for member_id in sorted(self._counts, key=self._counts.__getitem__, reverse=True):
                while chain := self._chain_from(member_id):
                    for topic, giver, taker in reversed(chain):
                        self._move(topic, giver, taker)
                    changed = True

    def _chain_from(self, giver: str) -> list[tuple[str, str, str]]:
        """The shortest chain of moves (topic, from, to) that takes one partition off ``giver``, if one helps."""
        enough = self._counts[giver] - 2
        if enough < 0:
            return []
        came: dict[str, tuple[str, str]] = {}
        seen_topics: set[str] = set()
        queue = deque([giver])
        while queue:
            member_id = queue.popleft()
            for topic in self._by_topic[member_id]:
                if topic in seen_topics:
                    continue
                seen_topics.add(topic)
                for taker in self._consumers[topic]:
                    if taker == giver or taker in came:
                        continue
                    came[taker] = (topic, member_id)
                    if self._counts[taker] <= enough:
                        return self._trace(came, giver, taker)
                    queue.append(taker)
        return []

    @staticmethod
    def _trace(came: Mapping[str, tuple[str, str]], giver: str, taker: str) -> list[tuple[str, str, str]]:
        chain = []
        while taker != giver:
            topic, source = came[taker]
            chain.append((topic, source, taker))
            taker = source
        chain.reverse()
        return chain

    def assigned(self) -> dict[str, list[TopicPartition]]:
        return {
            member_id: [partition for held in by_topic.values() for partition in held]
            for member_id, by_topic in self._by_topic.items()
        }
