"""Improvement of a rough assignment until no exchange of partitions between members makes it better.

An assignment is better if it is more even; if equally even, with more partitions in the rack of their member; if that
is equal too, with fewer moved partitions. An exchange is a cycle in a graph: members pass partitions on along it. A
cycle through the floor node makes one member's count smaller and another's larger. Bellman-Ford finds cycles of
negative cost; when none is left, the assignment is optimal.
"""

from __future__ import annotations

from collections.abc import Sequence

from triokafka.assignors.sharing import Shares

_NONE = -1
_PATIENCE = 40_000_000
"""Maximum number of edges to relax, which takes seconds. A thousand members with ten thousand partitions need far
fewer, unless nearly every member has its own topics and there are many racks."""


class Exchange:
    """The graph of exchanges over `Shares`. Its nodes are numbered: members, kinds, crews, teams, and the floor.

    An edge from a kind to a member gives the member a partition of that kind; it leads through the member's crew and
    team unless the member had the partition before. An edge from a member to a kind takes a partition away. An edge
    between a member and the floor changes the member's count by one.
    """

    def __init__(self, shares: Shares) -> None:
        self._shares = shares
        self._patience = _PATIENCE
        self._kinds_at = len(shares.members)
        self._crews_at = self._kinds_at + len(shares.kinds)
        self._teams_at = self._crews_at + len(shares.crews)
        self._floor = self._teams_at + len(shares.teams)
        total = sum(kind.size for kind in shares.kinds)
        # All moves together cost less than one partition in another rack; all of those cost less than one unevenness.
        self._away = total + 1
        self._step = total * (self._away + 1) + 1
        self._length = [0] * (self._floor + 1)
        self._from = [_NONE] * (self._floor + 1)
        self._edges: list[list[tuple[int, int]] | None] = [None] * (self._floor + 1)
        """Outgoing edges by node; None where they must be computed again."""
        self._fixed: list[list[tuple[int, int]]] = [
            [
                (self._crews_at + crew, 1 + away * self._away)
                for away in (False, True)
                for crew in shares.crews_of(kind, away=away)
            ]
            for kind in range(len(shares.kinds))
        ]
        """The permanent edges out of kinds, crews and teams."""
        self._fixed += [[(self._teams_at + team, 0) for team in crew] for crew in shares.crews]
        self._fixed += [[(member, 0) for member in team] for team in shares.teams]

    def run(self) -> None:
        """Apply exchanges until none improves the assignment, or until the limit of relaxed edges is reached, because
        the leader must not miss its group's deadlines. The assignment is complete at all times."""
        active: Sequence[int] = range(self._floor + 1)
        while active and self._patience > 0:
            shortened = self._follow(active)
            circles = self._circles(shortened)
            if circles:
                for circle in circles:
                    while self._cost(circle) < 0:
                        self._give_round(circle)
                    shortened.update(dict.fromkeys(circle))
                # Distances stay: where nothing changed they are still right, so the next search is short.
                self._from = [_NONE] * len(self._from)
                shortened[self._floor] = None
            active = list(shortened)

    # --- search ---

    def _follow(self, active: Sequence[int]) -> dict[int, None]:
        """Relax the edges out of the active nodes; returns the nodes whose distance became shorter."""
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
        """Return the cost of the last of a member's ``count`` partitions of a kind."""
        shares = self._shares
        return shares.is_away(kind, member) * self._away + (count > shares.had(kind, member))

    def _circles(self, nodes: dict[int, None]) -> list[list[int]]:
        """Return the cycles in the predecessor graph that the nodes lead to, without crews and teams."""
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

    # --- exchanges ---

    def _steps(self, circle: list[int]) -> list[tuple[int, int]]:
        return list(zip(circle, circle[1:] + circle[:1], strict=True))

    def _cost(self, circle: list[int]) -> int:
        """Return the current cost of applying the cycle once; 0 when it cannot be applied."""
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
                continue  # `Shares.give` keeps the counts
            if source < self._kinds_at:
                self._shares.give(target - self._kinds_at, source, -1)
            else:
                self._shares.give(source - self._kinds_at, target)
