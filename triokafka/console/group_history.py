"""The history that the page shows: lag of groups, and their rebalances. Bounded. Pure."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Any, Final

MOST_GROUPS: Final = 500
MOST_REBALANCES: Final = 100

Assignment = Mapping[str, list[str]]
"""Partitions of each member, as texts."""


class GroupHistory:
    """Samples of all groups. Times are milliseconds since 1970. The group that was seen longest ago goes first."""

    def __init__(self, most_samples: int = 360) -> None:
        self._most_samples = most_samples
        self._lags: OrderedDict[str, deque[tuple[int, int]]] = OrderedDict()
        self._rebalances: OrderedDict[str, deque[dict[str, Any]]] = OrderedDict()

    def add_lag(self, group: str, now_ms: int, lag: int) -> None:
        """Note the lag of a group, in records."""
        self._samples(self._lags, group, self._most_samples).append((now_ms, lag))

    def add_assignment(self, group: str, now_ms: int, state: str, assignment: Assignment) -> None:
        """Note state and assignment, if they differ from those before."""
        known = self._samples(self._rebalances, group, MOST_REBALANCES)
        seen = {"state": state, "assignment": {member: list(parts) for member, parts in sorted(assignment.items())}}
        if not known or {"state": known[-1]["state"], "assignment": known[-1]["assignment"]} != seen:
            known.append({"time": now_ms, **seen})

    def of(self, group: str) -> dict[str, Any]:
        """Return ``{"lag": [[time, lag], …], "rebalances": [{"time", "state", "assignment"}, …]}``."""
        return {
            "lag": [list(sample) for sample in self._lags.get(group, ())],
            "rebalances": list(self._rebalances.get(group, ())),
        }

    def last_lag(self, group: str) -> int | None:
        """The newest sample; None without one."""
        known = self._lags.get(group)
        return known[-1][1] if known else None

    @staticmethod
    def _samples(kind: OrderedDict[str, Any], group: str, most: int) -> Any:
        found = kind.setdefault(group, deque(maxlen=most))
        kind.move_to_end(group)
        if len(kind) > MOST_GROUPS:
            kind.popitem(last=False)
        return found
