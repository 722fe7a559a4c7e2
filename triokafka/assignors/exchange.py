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
_PATIENCE = 40_000_000
"""So many edges are followed at most, which takes seconds: a thousand members of ten thousand partitions are done long
before, unless nearly every one has topics of its own and racks are many."""


class Exchange:
    """The graph of gifts over `Shares`: members, kinds, crews, teams and the floor are numbered nodes, in this order.

    An edge from a kind to a member is a partition of it given to that member, by way of its crew and team unless the
    member had it before; from a member to a kind, one taken away; between a member and the floor, its count going up or
    down.
    """

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._patience = _PATIENCE
        self._kinds_at = len(shares.members)
        self._crews_at = self._kinds_at + len(shares.kinds)
        self._teams_at = self._crews_at + len(shares.crews)
        self._floor = self._teams_at + len(shares.teams)
        total = sum(kind.size for kind in shares.kinds)
        # All moves together cost less than one partition in another rack, and all of those less than one step in count.
        self._away = total + 1
        self._step = total * (self._away + 1) + 1
        self._length = [0] * (self._floor + 1)
        self._from = [_NONE] * (self._floor + 1)
        self._edges: list[list[tuple[int, int]] | None] = [None] * (self._floor + 1)
        """As they are now; None where that is to be found out."""
        self._fixed: list[list[tuple[int, int]]] = [
            [
                (self._crews_at + crew, 1 + away * self._away)
                for away in (False, True)
                for crew in shares.crews_of(kind, away=away)
            ]
            for kind in range(len(shares.kinds))
        ]
        """The edges out of kinds, crews and teams that are always there."""
        self._fixed += [[(self._teams_at + team, 0) for team in crew] for crew in shares.crews]
        self._fixed += [[(member, 0) for member in team] for team in shares.teams]

    def run(self) -> None:
        """Exchange until nothing gets better; in groups of thousands at odds with each other, until it has taken long
        enough: the leader must not miss its group's deadlines over it. The deal is complete all the time."""
        active: Sequence[int] = range(self._floor + 1)
        while active and self._patience > 0:
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
        length, came, known = self._length, self._from, self._edges
        shortened: dict[int, None] = {}
        for node in active:
            base = length[node]
            edges = known[node]
            if edges is None:
                edges = known[node] = self._edges_from(node)
            self._patience -= len(edges)
            for target, cost in edges:
                if base + cost < length[target]:
                    length[target] = base + cost
                    came[target] = node
                    shortened[target] = None
        return shortened

    def _edges_from(self, node: int) -> list[tuple[int, int]]:
        shares = self._shares
        if node < self._kinds_at:
            edges = [
                (self._kinds_at + kind, -self._cost_of(kind, node, count)) for kind, count in shares.held[node].items()
            ]
            edges.append((self._floor, self._step * (shares.counts[node] + 1)))
            return edges
        if node == self._floor:
            return [(member, -self._step * count) for member, count in enumerate(shares.counts) if count]
        edges = self._fixed[node - self._kinds_at]
        if node < self._crews_at and (had := shares.kinds[kind := node - self._kinds_at].had):
            return edges + [
                (member, shares.is_away(kind, member) * self._away)
                for member, partitions in had.items()
                if shares.held[member].get(kind, 0) < len(partitions)
            ]
        return edges

    def _cost_of(self, kind: int, member: int, count: int) -> int:
        """What the last of ``count`` partitions of a kind costs at a member."""
        shares = self._shares
        return shares.is_away(kind, member) * self._away + (count > shares.had(kind, member))

    def _circles(self, nodes: dict[int, None]) -> list[list[int]]:
        """The circles, without crews and teams, that the edges by which nodes were reached make up."""
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
                found.append([n for n in circle if n < self._crews_at or n == self._floor])
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
        for node in (*circle, self._floor):
            self._edges[node] = None
        for source, target in self._steps(circle):
            if self._floor in (source, target):
                continue  # counts go with what is held
            if source < self._kinds_at:
                self._shares.give(target - self._kinds_at, source, -1)
            else:
                self._shares.give(source - self._kinds_at, target)
