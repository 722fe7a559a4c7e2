"""Event counters of the group coordinator. They are incremented where the work is done."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class GroupCounters:
    """Event counters since the coordinator was created. Offsets count once per partition."""

    offset_commits: int = 0
    offset_expirations: int = 0
    offset_deletions: int = 0
    completed_rebalances: int = 0
    """Rebalances of classic groups whose assignment was stored."""
    consumer_group_rebalances: int = 0
    """Epoch bumps of consumer groups."""
