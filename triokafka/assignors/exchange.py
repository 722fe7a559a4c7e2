"""Mends a rough deal until no exchange of partitions between members makes it better.

Better is: more even; if as even, with more partitions in the rack of their member; if with as many, with fewer moved.
Members give partitions round in circles; a circle by way of the floor, as it were, makes one member's count smaller
and another's larger. As long as some circle is for the better, one is found by following the shortest paths
(Bellman-Ford), whose lengths are what each gift costs; when there is none, the deal is the best there is.
"""

from __future__ import annotations

from collections.abc import Sequence

from triokafka.assignors.sharing import Shares

_NONE = -1


class Exchange:
    """The graph of gifts over `Shares`: members, kinds, teams and the floor are numbered nodes, in this order.

    An edge from a kind to a member is a partition of it given to that member, by way of its team unless the member had
    it before; from a member to a kind, one taken away; between a member and the floor, its count going up or down.
    """

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._kinds_at = len(shares.members)
        self._teams_at = self._kinds_at + len(shares.kinds)
        self._floor = self._teams_at + len(shares.teams)
        total = sum(kind.size for kind in shares.kinds)
        # All moves together cost less than one partition in another rack, and all of those less than one step in count.
        self._away = total + 1
        self._step = total * (self._away + 1) + 1
        self._length = [0] * (self._floor + 1)
        self._from = [_NONE] * (self._floor + 1)
        self._gifts = [
            [(self._teams_at + team, 1 + (self._away if team in kind.away else 0)) for team in kind.teams]
            for kind in shares.kinds
        ]

    def run(self) -> None:
        """Exchange until nothing gets better."""
        active: Sequence[int] = range(self._floor + 1)
        while active:
            shortened = self._follow(active)
            circles = self._circles(shortened)
            if circles:
                for circle in circles:
                    while self._cost(circle) < 0:
                        self._give_round(circle)
                    shortened.update(dict.fromkeys(circle))
                # Lengths stay: where nothing changed they are right as they are, so the next search is short.
                self._from = [_NONE] * len(self._from)
                shortened[self._floor] = None
            active = list(shortened)

    # ---------------------------------------------------------------- search

    def _follow(self, active: Sequence[int]) -> dict[int, None]:
        """Follow the edges out of these nodes; returns the nodes to which that made the path shorter."""
        length, came = self._length, self._from
        shortened: dict[int, None] = {}
        for node in active:
            base = length[node]
            for target, cost in self._edges(node):
                if base + cost < length[target]:
                    length[target] = base + cost
                    came[target] = node
                    shortened[target] = None
        return shortened

    def _edges(self, node: int) -> list[tuple[int, int]]:
        shares = self._shares
        if node < self._kinds_at:
            edges = [
                (self._kinds_at + kind, -self._cost_of(kind, node, count)) for kind, count in shares.held[node].items()
            ]
            edges.append((self._floor, self._step * (shares.counts[node] + 1)))
            return edges
        if node < self._teams_at:
            number = node - self._kinds_at
            kind = shares.kinds[number]
            back = [
                (member, self._away if shares.team_of[member] in kind.away else 0)
                for member, had in kind.had.items()
                if shares.held[member].get(number, 0) < len(had)
            ]
            return self._gifts[number] + back
        if node < self._floor:
            return [(member, 0) for member in shares.teams[node - self._teams_at]]
        return [(member, -self._step * count) for member, count in enumerate(shares.counts) if count]

    def _cost_of(self, kind: int, member: int, count: int) -> int:
        """What the last of ``count`` partitions of a kind costs at a member."""
        found = self._shares.kinds[kind]
        away = self._away if self._shares.team_of[member] in found.away else 0
        return away + (count > len(found.had.get(member, ())))

    def _circles(self, nodes: dict[int, None]) -> list[list[int]]:
        """The circles, without teams, that the edges by which nodes were reached make up."""
        came = self._from
        seen = [0] * len(came)
        found = []
        for walk, node in enumerate(nodes, start=1):
            while node != _NONE and not seen[node]:
                seen[node] = walk
                node = came[node]
            if node != _NONE and seen[node] == walk:
                circle = [node]
                while (before := came[circle[-1]]) != node:
                    circle.append(before)
                circle.reverse()
                found.append([n for n in circle if not self._teams_at <= n < self._floor])
        return found

    # ---------------------------------------------------------------- gifts

    def _steps(self, circle: list[int]) -> list[tuple[int, int]]:
        return list(zip(circle, circle[1:] + circle[:1], strict=True))

    def _cost(self, circle: list[int]) -> int:
        """What going round once costs now; 0 when it cannot be gone round."""
        shares = self._shares
        cost = 0
        for source, target in self._steps(circle):
            if source == self._floor:
                if not shares.counts[target]:
                    return 0
                cost -= self._step * shares.counts[target]
            elif target == self._floor:
                cost += self._step * (shares.counts[source] + 1)
            elif source < self._kinds_at:
                count = shares.held[source].get(target - self._kinds_at, 0)
                if not count:
                    return 0
                cost -= self._cost_of(target - self._kinds_at, source, count)
            else:
                kind = source - self._kinds_at
                cost += self._cost_of(kind, target, shares.held[target].get(kind, 0) + 1)
        return cost

    def _give_round(self, circle: list[int]) -> None:
        for source, target in self._steps(circle):
            if self._floor in (source, target):
                continue  # counts go with what is held
            if source < self._kinds_at:
                self._shares.give(target - self._kinds_at, source, -1)
            else:
                self._shares.give(source - self._kinds_at, target)
