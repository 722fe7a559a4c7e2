"""A rough balanced assignment under subscriptions and racks. `exchange` improves it.

Partitions are counted by kind, and members are grouped into teams, so that the work grows with the number of different
subscriptions and racks instead of members times partitions.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from triokafka.assignors.assignor import Members, PartitionRacks, in_member_order, subscribers
from triokafka.assignors.racks import racks_matter, racks_of_members, racks_of_topic
from triokafka.structs import TopicPartition


@dataclass(slots=True)
class Kind:
    """Partitions with the same eligible members and with replicas in the same racks.

    They differ only in their previous owner. ``crews`` are all crews whose members are eligible; ``racks`` are the
    replica racks in which members are.
    """

    crews: list[int]
    racks: frozenset[str]
    size: int = 0
    had: dict[int, list[TopicPartition]] = field(default_factory=dict)
    """Partitions by previous owner (a member number)."""
    others: list[TopicPartition] = field(default_factory=list)
    """Partitions without an eligible previous owner."""


class Shares:
    """The number of partitions of each kind that each member has, during the assignment.

    Members, teams, crews and kinds are numbers: indexes into ``members`` (in assignment order), ``teams``, ``crews``
    and ``kinds``. A team is the set of members with the same topics in the same rack. A crew is the set of teams in one
    rack that are eligible for a kind.
    """

    def __init__(
        self,
        members: Members,
        partitions: Mapping[str, int],
        owners: Mapping[TopicPartition, str],
        racks: PartitionRacks,
    ) -> None:
        consumers = subscribers(members, partitions)
        self.members = in_member_order(members)
        number_of = {member_id: number for number, member_id in enumerate(self.members)}
        places = {topic: racks_of_topic(racks, topic, partitions[topic]) for topic in consumers} if racks else {}
        where = racks_of_members(members) if racks else {}
        if not racks_matter(frozenset(where.values()), {racks for each in places.values() for racks in each}):
            where = {}
        self.teams: list[list[int]] = []
        self.team_of: list[int] = []
        self.racks: list[str | None] = [where.get(member_id) for member_id in self.members]
        """Each member's rack; None if it has none, or if racks do not matter."""
        team_by_key: dict[tuple[frozenset[str], str | None], int] = {}
        for number, member_id in enumerate(self.members):
            topics = frozenset(topic for topic in members[member_id].topics if topic in consumers)
            team = team_by_key.setdefault((topics, where.get(member_id)), len(self.teams))
            if team == len(self.teams):
                self.teams.append([])
            self.teams[team].append(number)
            self.team_of.append(team)
        self.crews: list[list[int]] = []
        self.kinds: list[Kind] = []
        self.counts = [0] * len(self.members)
        self.held: list[dict[int, int]] = [{} for _ in self.members]
        """Per member, the number of partitions by kind."""
        in_use = frozenset(where.values())
        crews_by_key: dict[tuple[int, ...], list[int]] = {}
        kind_by_key: dict[tuple[tuple[int, ...], frozenset[str]], Kind] = {}
        for topic, found in consumers.items():
            teams = tuple(dict.fromkeys(self.team_of[number_of[member_id]] for member_id in found))
            entitled = frozenset(found)
            if teams not in crews_by_key:
                crews_by_key[teams] = self._add_crews(teams)
            for number in range(partitions[topic]):
                there = places[topic][number] & in_use if in_use else in_use
                kind = kind_by_key.get((teams, there))
                if kind is None:
                    kind = kind_by_key[teams, there] = Kind(crews_by_key[teams], there)
                    self.kinds.append(kind)
                kind.size += 1
                partition = TopicPartition(topic, number)
                owner = owners.get(partition)
                if owner in entitled:
                    kind.had.setdefault(number_of[owner], []).append(partition)
                else:
                    kind.others.append(partition)

    def _add_crews(self, teams: Iterable[int]) -> list[int]:
        by_rack: dict[str | None, list[int]] = {}
        for team in teams:
            by_rack.setdefault(self.racks[self.teams[team][0]], []).append(team)
        first = len(self.crews)
        self.crews.extend(by_rack.values())
        return list(range(first, len(self.crews)))

    def is_away(self, kind: int, member: int) -> bool:
        """Whether the member's rack has no replica of the kind."""
        rack = self.racks[member]
        return rack is not None and rack not in self.kinds[kind].racks

    def crews_of(self, kind: int, *, away: bool) -> list[int]:
        """Return the kind's eligible crews: those in a rack with a replica, or the others."""
        crews = self.kinds[kind].crews
        return [crew for crew in crews if self.is_away(kind, self.teams[self.crews[crew][0]][0]) is away]

    def had(self, kind: int, member: int) -> int:
        """Return how many partitions of a kind a member had before."""
        return len(self.kinds[kind].had.get(member, ()))

    def give(self, kind: int, member: int, count: int = 1) -> None:
        """Give the member ``count`` more partitions of the kind; a negative count takes them away."""
        held = self.held[member]
        now = held.get(kind, 0) + count
        if now:
            held[kind] = now
        else:
            del held[kind]
        self.counts[member] += count

    # --- the rough assignment ---

    def assign_evenly(self) -> None:
        """Raise all members to an even level as far as possible, then to the next level, and so on.

        Up to each level, members first keep partitions that they had in their rack, then get others in their rack, then
        keep those that they had in other racks, and then get the rest. That leaves little for `exchange` to improve.
        """
        left = {number: kind.size for number, kind in enumerate(self.kinds)}
        # Kinds with few eligible members come first: they have the least choice.
        takers = [sum(len(self.teams[team]) for team in crew) for crew in self.crews]
        scarce_first = sorted(left, key=lambda number: sum(takers[crew] for crew in self.kinds[number].crews))
        level = 0
        while left:
            level = max(level + 1, self._even_level(left))
            waiting = [number for number in scarce_first if number in left]
            for away in (False, True):
                for number in waiting:
                    left[number] -= self._keep(number, left[number], level, away=away)
                heads = self._emptiest_first(level)
                for number in waiting:
                    left[number] -= self._spread(number, left[number], level, heads, away=away)
            left = {number: count for number, count in left.items() if count}

    def _even_level(self, left: Mapping[int, int]) -> int:
        teams = {team for crew in {c for number in left for c in self.kinds[number].crews} for team in self.crews[crew]}
        takers = [member for team in teams for member in self.teams[team]]
        return -(-(sum(left.values()) + sum(self.counts[member] for member in takers)) // len(takers))

    def _keep(self, number: int, left: int, level: int, *, away: bool) -> int:
        kind = self.kinds[number]
        kept = 0
        for member, had in kind.had.items():
            if self.is_away(number, member) is away:
                count = min(len(had) - self.held[member].get(number, 0), level - self.counts[member], left - kept)
                if count > 0:
                    self.give(number, member, count)
                    kept += count
        return kept

    def _emptiest_first(self, level: int) -> list[list[tuple[int, int]]]:
        """Return a heap of (count, member) per team, of the members below the level."""
        heaps = []
        for team in self.teams:
            heap = [(self.counts[member], member) for member in team if self.counts[member] < level]
            heapq.heapify(heap)
            heaps.append(heap)
        return heaps

    def _spread(self, number: int, left: int, level: int, heads: list[list[tuple[int, int]]], *, away: bool) -> int:
        crews = self.crews_of(number, away=away) if left else ()
        choice = [heads[team] for crew in crews for team in self.crews[crew] if heads[team]]
        given = 0
        while given < left and choice:
            heap = min(choice, key=lambda heap: heap[0])
            count, member = heap[0]
            self.give(number, member)
            given += 1
            if count + 1 < level:
                heapq.heapreplace(heap, (count + 1, member))
            else:
                heapq.heappop(heap)
                if not heap:
                    choice.remove(heap)
        return given

    # --- the result ---

    def assigned(self) -> dict[str, list[TopicPartition]]:
        """Return the partitions of each member. Of each kind, members keep as many of their former ones as they can."""
        found: dict[str, list[TopicPartition]] = {member_id: [] for member_id in self.members}
        lists = list(found.values())
        takers: list[list[tuple[int, int]]] = [[] for _ in self.kinds]
        kept: list[dict[int, int]] = [{} for _ in self.kinds]
        for member, held in enumerate(self.held):
            for number, count in held.items():
                kept[number][member] = min(count, self.had(number, member))
                if count > kept[number][member]:
                    takers[number].append((member, count - kept[number][member]))
        for number, kind in enumerate(self.kinds):
            free = list(kind.others)
            for member, had in kind.had.items():
                stays = kept[number].get(member, 0)
                lists[member].extend(had[:stays])
                free.extend(had[stays:])
            for member, partition in zip(_in_rounds(takers[number]), sorted(free), strict=True):
                lists[member].append(partition)
        return found


def _in_rounds(takers: Iterable[tuple[int, int]]) -> Iterator[int]:
    """Yield each taker once per round until it has enough, which spreads the partitions of one topic."""
    waiting = list(takers)
    while waiting:
        for member, _ in waiting:
            yield member
        waiting = [(member, count - 1) for member, count in waiting if count > 1]
